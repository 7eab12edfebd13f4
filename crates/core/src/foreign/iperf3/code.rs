//! iperf3's error numbers: a server sends them, a client prints their texts.

/// An error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub i32);

impl ErrorCode {
    /// The test is too long.
    pub const DURATION: Self = Self(5);
    /// Too many streams.
    pub const STREAMS: Self = Self(6);
    /// The block is too large, or has no length.
    pub const BLOCK: Self = Self(7);
    /// The socket buffer is too large.
    pub const BUFFER: Self = Self(8);
    /// The segment is too large.
    pub const MSS: Self = Self(10);
    /// The warm-up is too long.
    pub const OMIT: Self = Self(12);
    /// A burst is too large.
    pub const BURST: Self = Self(15);
    /// The datagram is too small or too large.
    pub const UDP_BLOCK: Self = Self(20);
    /// The type of service is none.
    pub const TOS: Self = Self(21);
    /// More than the server's limit of rate.
    pub const TOTAL_RATE: Self = Self(27);
    /// Longer than the server's limit.
    pub const MAX_DURATION: Self = Self(37);
    /// A state byte is unknown, or not allowed now.
    pub const MESSAGE: Self = Self(110);
    /// The parameters cannot be read.
    pub const PARAMS: Self = Self(114);
    /// A data connection could not be used.
    pub const STREAM: Self = Self(118);
    /// The client has given up.
    pub const CLIENT_TERMINATED: Self = Self(119);
    /// The server has been stopped.
    pub const SERVER_TERMINATED: Self = Self(120);
    /// The server is busy.
    pub const BUSY: Self = Self(121);
    /// The congestion control is not available.
    pub const CONGESTION: Self = Self(134);
    /// The user is unknown, or the password is wrong.
    pub const AUTHORIZATION: Self = Self(142);
    /// No message came in time.
    pub const NO_MESSAGE: Self = Self(144);
    /// The test has not ended in its time.
    pub const EXPIRED: Self = Self(160);

    /// The nearest number for which a client of this version has a text: 3.12 prints later numbers without
    /// a text.
    #[must_use]
    pub fn known_to(self, version: Option<&str>) -> Self {
        let minor = version.and_then(|version| {
            let digits = version.strip_prefix("3.")?;
            let end = digits.find(|c: char| !c.is_ascii_digit());
            digits[..end.unwrap_or(digits.len())].parse::<u32>().ok()
        });
        match self {
            _ if minor.is_some_and(|minor| minor >= 20) => self,
            Self::MAX_DURATION => Self::DURATION,
            Self::EXPIRED => Self::SERVER_TERMINATED,
            other => other,
        }
    }

    /// The text of the error.
    pub fn words(self) -> &'static str {
        match self {
            Self::DURATION => "the test is too long",
            Self::STREAMS => "too many streams",
            Self::BLOCK => "the block size is invalid",
            Self::BUFFER => "the socket buffer is too large",
            Self::MSS => "the MSS is too large",
            Self::OMIT => "the warm-up is too long",
            Self::BURST => "the burst is too large",
            Self::UDP_BLOCK => "the datagram size is invalid",
            Self::TOS => "the type of service is invalid",
            Self::TOTAL_RATE => "more than the server's limit of rate",
            Self::MAX_DURATION => "longer than the server's limit",
            Self::MESSAGE => "an unknown message",
            Self::PARAMS => "the parameters cannot be read",
            Self::STREAM => "a data connection could not be used",
            Self::CLIENT_TERMINATED => "the client has given up",
            Self::SERVER_TERMINATED => "the server has been stopped",
            Self::BUSY => "the server is busy",
            Self::CONGESTION => "the congestion control cannot be had there",
            Self::AUTHORIZATION => "not authorised",
            Self::NO_MESSAGE => "nothing came for too long",
            Self::EXPIRED => "the test did not end in its time",
            _ => "an error that linerate has no words for",
        }
    }
}

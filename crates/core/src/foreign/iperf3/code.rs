//! iperf3's error numbers: a server sends them, a client prints their texts.

/// An error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub i32);

/// Makes a constant of each error, and the table of their texts.
macro_rules! errors {
    ($($name:ident = $number:literal: $text:literal;)*) => {
        impl ErrorCode {
            $(
                #[doc = $text]
                pub const $name: Self = Self($number);
            )*

            /// The text of the error.
            pub fn words(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    _ => "an error that linerate has no words for",
                }
            }
        }
    };
}

errors! {
    DURATION = 5: "the test is too long";
    STREAMS = 6: "too many streams";
    BLOCK = 7: "the block size is invalid";
    BUFFER = 8: "the socket buffer is too large";
    MSS = 10: "the MSS is too large";
    OMIT = 12: "the warm-up is too long";
    BURST = 15: "the burst is too large";
    UDP_BLOCK = 20: "the datagram size is invalid";
    TOS = 21: "the type of service is invalid";
    TOTAL_RATE = 27: "more than the server's limit of rate";
    MAX_DURATION = 37: "longer than the server's limit";
    MESSAGE = 110: "an unknown message";
    PARAMS = 114: "the parameters cannot be read";
    STREAM = 118: "a data connection could not be used";
    CLIENT_TERMINATED = 119: "the client has given up";
    SERVER_TERMINATED = 120: "the server has been stopped";
    BUSY = 121: "the server is busy";
    CONGESTION = 134: "the congestion control cannot be had there";
    AUTHORIZATION = 142: "not authorised";
    NO_MESSAGE = 144: "nothing came for too long";
    EXPIRED = 160: "the test did not end in its time";
}

impl ErrorCode {
    /// The nearest number for which a client of this version has a text: 3.12 prints later numbers
    /// without a text.
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
}

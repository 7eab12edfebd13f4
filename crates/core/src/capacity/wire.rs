//! The bytes on the connections that are held, and on UDP.
//!
//! The first bytes on a TCP connection are the session's token and a header; from then on each
//! message of the client is a header, and of the load a header and the rest of the request. What is
//! answered is the header, and for a request as many bytes more as the session's response has. A
//! header is answered only if it asks for it.
//!
//! When those first bytes come is the client's affair within the endpoint's patience
//! ([`super::HoldPorts::patience_s`]): sending them costs as much as a quarter of opening the
//! connection, so that most go out with the first message.
//!
//! A datagram has the token, a cookie and a header. One without the cookie of its own address is
//! answered with the cookie and nothing else happens; one with it is counted, and answered with
//! itself. Answers have the length of what they answer, so that nobody gains by sending in
//! another's name.

use crate::wire::Token;

/// Length of a header: a kind and the number of the message.
pub const HEADER_BYTES: usize = 8;
/// Length of a connection's first message.
pub const OPENING_BYTES: usize = 16 + HEADER_BYTES;
/// Length of every datagram: token, cookie, header.
pub const DATAGRAM_BYTES: usize = 16 + 8 + HEADER_BYTES;

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Opens a connection; no answer.
    Open = 0x4f,
    /// Opens a connection and asks for a confirmation.
    OpenAnswered = 0x50,
    /// Asks whether the connection is alive.
    Heartbeat = 0x51,
    /// The beginning of a request of the load.
    Request = 0x52,
}

/// The header before each message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The kind of the message.
    pub kind: Kind,
    /// Number of the message on its connection; of UDP, number of the socket in its upper 32 of 56
    /// bits.
    pub number: u64,
}

impl Header {
    /// Numbers are below this.
    pub const NUMBERS: u64 = 1 << 56;

    /// Its bytes. Of a number too large the lower 56 bits go.
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let word = (u64::from(self.kind as u8) << 56) | (self.number % Self::NUMBERS);
        word.to_be_bytes()
    }

    /// Reads a header; `None` if it is invalid.
    pub fn decode(bytes: [u8; HEADER_BYTES]) -> Option<Self> {
        let word = u64::from_be_bytes(bytes);
        let mut kinds =
            [Kind::Open, Kind::OpenAnswered, Kind::Heartbeat, Kind::Request].into_iter();
        let kind = kinds.find(|kind| u64::from(*kind as u8) == word >> 56)?;
        let number = word % Self::NUMBERS;
        Some(Self { kind, number })
    }
}

/// The first message of a connection.
pub fn opening(token: Token, header: Header) -> [u8; OPENING_BYTES] {
    let mut bytes = [0; OPENING_BYTES];
    bytes[..16].copy_from_slice(&token.0);
    bytes[16..].copy_from_slice(&header.encode());
    bytes
}

/// Reads what a connection opened with; `None` if it names another session, or opens nothing.
pub fn opened(bytes: &[u8; OPENING_BYTES], token: Token) -> Option<Header> {
    let (named, header) = bytes.split_at(16);
    let header = Header::decode(header.try_into().ok()?)?;
    let opens = matches!(header.kind, Kind::Open | Kind::OpenAnswered);
    (named == token.0 && opens).then_some(header)
}

/// A datagram of either end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram {
    /// The session's token.
    pub token: Token,
    /// Proves that the sender receives at its address; 0 until it is known.
    pub cookie: u64,
    /// The number of the socket and of its heartbeat.
    pub header: Header,
}

impl Datagram {
    /// Its bytes.
    pub fn encode(&self) -> [u8; DATAGRAM_BYTES] {
        let mut bytes = [0; DATAGRAM_BYTES];
        bytes[..16].copy_from_slice(&self.token.0);
        bytes[16..24].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[24..].copy_from_slice(&self.header.encode());
        bytes
    }

    /// Reads a datagram of exactly this length; `None` if it is invalid.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; DATAGRAM_BYTES] = bytes.try_into().ok()?;
        let (token, rest) = bytes.split_first_chunk::<16>()?;
        let (cookie, header) = rest.split_first_chunk::<8>()?;
        Some(Self {
            token: Token(*token),
            cookie: u64::from_be_bytes(*cookie),
            header: Header::decode(header.try_into().ok()?)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn datagrams_and_openings_survive(
            token: [u8; 16], cookie: u64, number in 0..Header::NUMBERS,
        ) {
            let token = Token(token);
            for kind in [Kind::Open, Kind::OpenAnswered, Kind::Heartbeat, Kind::Request] {
                let header = Header { kind, number };
                let datagram = Datagram { token, cookie, header };
                prop_assert_eq!(Datagram::decode(&datagram.encode()), Some(datagram));
                let opens = matches!(kind, Kind::Open | Kind::OpenAnswered);
                let read = opened(&opening(token, header), token);
                prop_assert_eq!(read, opens.then_some(header));
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Some(datagram) = Datagram::decode(&bytes) {
                prop_assert_eq!(&datagram.encode()[..], &bytes[..]);
            }
        }
    }

    #[test]
    fn another_session_opens_nothing() {
        let header = Header { kind: Kind::Open, number: 7 };
        let bytes = opening(Token([1; 16]), header);
        assert_eq!(opened(&bytes, Token([2; 16])), None);
    }
}

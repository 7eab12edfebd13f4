//! The first bytes of every TCP connection.

use serde::{Deserialize, Serialize};

use super::{WIRE_VERSION, WireError};

/// Length of a [`Hello`].
pub const HELLO_BYTES: usize = 64;

/// Not printable, not a TLS record type, not the first byte of an iperf3 cookie.
const FIRST: u8 = 0xd1;
const MAGIC: [u8; 9] = [FIRST, b'l', b'i', b'n', b'e', b'r', b'a', b't', b'e'];
const FLAG_SEALED: u8 = 1;

/// The name of a session, by which its data connections and UDP flows find it: 128 random bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Token(pub [u8; 16]);

/// The purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelloKind {
    /// A control connection; `sealed` if a Noise handshake follows.
    Control {
        /// The client holds a key and will encrypt.
        sealed: bool,
    },
    /// Flow number `flow` of the session named by `token`.
    Data {
        /// The session.
        token: Token,
        /// The flow.
        flow: u32,
    },
}

/// Layout, big-endian: magic 9, kind 1, version 2, flags 1, reserved 3, token 16, flow 4, zero to
/// 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// [`WIRE_VERSION`] of the client.
    pub version: u16,
    /// The purpose of the connection.
    pub kind: HelloKind,
}

/// Whether `first`, the first byte of a connection, can begin a [`Hello`].
pub fn is_hello_start(first: u8) -> bool {
    first == FIRST
}

impl Hello {
    /// A hello of this version.
    pub fn new(kind: HelloKind) -> Self {
        Self { version: WIRE_VERSION, kind }
    }

    /// The bytes to send.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..9].copy_from_slice(&MAGIC);
        bytes[10..12].copy_from_slice(&self.version.to_be_bytes());
        match self.kind {
            HelloKind::Control { sealed } => {
                bytes[9] = 1;
                bytes[12] = if sealed { FLAG_SEALED } else { 0 };
            }
            HelloKind::Data { token, flow } => {
                bytes[9] = 2;
                bytes[16..32].copy_from_slice(&token.0);
                bytes[32..36].copy_from_slice(&flow.to_be_bytes());
            }
        }
        bytes
    }

    /// Reads a hello.
    ///
    /// # Errors
    /// What the bytes are instead.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, WireError> {
        if bytes[..9] != MAGIC {
            return Err(WireError::NotLinerate);
        }
        let version = u16::from_be_bytes([bytes[10], bytes[11]]);
        if version != WIRE_VERSION {
            return Err(WireError::Version(version));
        }
        let kind = match bytes[9] {
            1 => HelloKind::Control { sealed: bytes[12] & FLAG_SEALED != 0 },
            2 => HelloKind::Data {
                token: Token(std::array::from_fn(|at| bytes[16 + at])),
                flow: u32::from_be_bytes([bytes[32], bytes[33], bytes[34], bytes[35]]),
            },
            kind => return Err(WireError::Kind(kind)),
        };
        Ok(Self { version, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_hello_survives_the_wire(sealed: bool, token: [u8; 16], flow: u32, data: bool) {
            let kind = if data {
                HelloKind::Data { token: Token(token), flow }
            } else {
                HelloKind::Control { sealed }
            };
            let hello = Hello::new(kind);
            prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: [u8; 32]) {
            let mut long = [0; HELLO_BYTES];
            long[..32].copy_from_slice(&bytes);
            let _ = Hello::decode(&long);
            long[..9].copy_from_slice(&MAGIC);
            let _ = Hello::decode(&long);
        }
    }

    #[test]
    fn the_first_byte_is_not_printable_and_an_iperf3_cookie_is_shorter() {
        assert!(!FIRST.is_ascii_graphic() && !FIRST.is_ascii_whitespace());
        const { assert!(HELLO_BYTES >= 37) };
    }
}

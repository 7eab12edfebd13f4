//! Bytes on the wire. Everything that a stranger can send is parsed here, with a limit on each
//! length.
//!
//! * [`Hello`]: the first 64 bytes that a client sends on any TCP connection. Its first byte is not
//!   printable and it is longer than an iperf3 cookie (37 printable bytes), so that one port can
//!   serve both, and so that a real iperf3 server answers it instead of waiting for more.
//! * [`Frame`]: what follows on a control connection, both ways: type, length, body.
//!   The bodies are JSON: see [`crate::session::message`].
//! * [`Seal`]: the same frames under Noise `NNpsk0` where the endpoint has a key.
//! * [`DatagramHeader`] and [`Handshake`]: UDP payload, and the challenge that comes before it.
//! * [`StampRequest`] and [`StampAnswer`]: STAMP's test packets (RFC 8762), which tell one-way
//!   delays.

mod seal;
mod stamp;

pub use seal::{Frame, FrameKind, FrameReader, Key, Seal, bytes_of_hex, is_same_secret};
use serde::{Deserialize, Serialize};
pub use stamp::{
    STAMP_ANSWERED_AT, STAMP_BYTES, STAMP_PORT, StampAnswer, StampArrival, StampRequest, reflect,
};
use thiserror::Error;

use crate::units::SplitMix64;

/// Version of everything in this module and of the session's messages. A peer of another version is
/// told both numbers.
pub const WIRE_VERSION: u16 = 2;

/// Why bytes are no hello, no frame, or nothing that a key opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WireError {
    /// A hello of another protocol.
    #[error("the peer does not speak linerate's protocol")]
    NotLinerate,
    /// A hello of linerate's protocol of another version.
    #[error("the peer speaks version {0} of linerate's protocol, this is version {WIRE_VERSION}")]
    Version(u16),
    /// A hello for a kind of connection that this version does not have.
    #[error("the peer asked for a connection of kind {0}, which this version does not have")]
    Kind(u8),
    /// A frame of unknown type.
    #[error("a frame begins with byte {0:#04x}, which is none of linerate's")]
    FrameKind(u8),
    /// A frame with a body longer than the receiver accepts now.
    #[error("a frame of {length} bytes was announced where at most {limit} are taken")]
    FrameTooLong {
        /// The announced length.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// The peer has another key or none, or the bytes were altered.
    #[error("the peer has another key (or the bytes were altered on the way)")]
    WrongKey,
    /// The cipher could not be set up.
    #[error("the cipher could not be set up")]
    CipherSetup,
    /// A message came before the handshake was done, or after it failed.
    #[error("an encrypted message came before the handshake was done")]
    CipherNotReady,
    /// The text of a key file is no key.
    #[error(
        "a key is 64 hexadecimal digits (32 bytes), this has {digits}; make one with: head -c 32 \
         /dev/urandom | od -An -tx1 | tr -d ' \\n'"
    )]
    NoKey {
        /// Number of hexadecimal digits that it begins with.
        digits: usize,
    },
}

// The hello: the first bytes of every TCP connection.

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

// The seeded byte pattern of `--verify`.

/// A pattern in which the byte at each position of the stream follows from the seed alone, so that
/// the receiver can check any piece of it. The period is 256 KiB + 8, which no power-of-two slip
/// repeats.
#[derive(Debug, Clone)]
pub struct Pattern {
    bytes: Vec<u8>,
}

const PERIOD: usize = (256 << 10) + 8;

impl Pattern {
    /// The pattern of `seed`.
    pub fn new(seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let mut bytes = Vec::with_capacity(PERIOD);
        while bytes.len() < PERIOD {
            bytes.extend_from_slice(&random.draw().to_be_bytes());
        }
        bytes.truncate(PERIOD);
        Self { bytes }
    }

    /// Writes the pattern from stream position `position` on.
    pub fn fill(&self, position: u64, out: &mut [u8]) {
        let mut at = (position % PERIOD as u64) as usize;
        let mut rest = out;
        while !rest.is_empty() {
            let n = rest.len().min(PERIOD - at);
            rest[..n].copy_from_slice(&self.bytes[at..at + n]);
            rest = &mut rest[n..];
            at = 0;
        }
    }

    /// Bytes of `received` that differ from the pattern from stream position `position` on.
    pub fn differences(&self, position: u64, received: &[u8]) -> u64 {
        let mut at = (position % PERIOD as u64) as usize;
        let mut rest = received;
        let mut different = 0;
        while !rest.is_empty() {
            let n = rest.len().min(PERIOD - at);
            let (piece, after) = rest.split_at(n);
            let wanted = &self.bytes[at..at + n];
            // Whole slices first: equal memory is the rule and memcmp is far faster than counting.
            if piece != wanted {
                different += piece.iter().zip(wanted).filter(|(a, b)| a != b).count() as u64;
            }
            rest = after;
            at = 0;
        }
        different
    }
}

// UDP: the challenge that precedes a flow, and the header of its datagrams.

/// Bytes of [`DatagramHeader`]; the smallest payload of a UDP stream.
pub const DATAGRAM_HEADER: usize = 16;
/// Bytes of [`Handshake`], of every kind: an answer is never longer than what it answers.
pub const HANDSHAKE_BYTES: usize = 48;

const HANDSHAKE_MAGIC: [u8; 8] = *b"\xd1lr-udp\x01";

/// The part of a run that a datagram belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The warm-up, which is not counted.
    WarmUp,
    /// The measured time; its sequence numbers begin at 0.
    Measured,
}

/// The first 16 bytes of each datagram of a UDP stream, big-endian: phase in the top bit and 63
/// bits of sequence number, then the sender's monotonic clock in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramHeader {
    /// The part of the run.
    pub phase: Phase,
    /// Sequence number within the phase, from 0.
    pub sequence: u64,
    /// Time by the sender's clock, ns; only differences have a meaning.
    pub sent_ns: u64,
}

const MEASURED: u64 = 1 << 63;

impl DatagramHeader {
    /// Writes the header to the front of `datagram`, which must hold it.
    #[inline]
    pub fn write(&self, datagram: &mut [u8]) {
        let phase = match self.phase {
            Phase::WarmUp => 0,
            Phase::Measured => MEASURED,
        };
        datagram[..8].copy_from_slice(&(phase | self.sequence & !MEASURED).to_be_bytes());
        datagram[8..DATAGRAM_HEADER].copy_from_slice(&self.sent_ns.to_be_bytes());
    }

    /// Reads the header; `None` if the datagram is too short.
    #[inline]
    pub fn read(datagram: &[u8]) -> Option<Self> {
        let (first, rest) = datagram.split_first_chunk::<8>()?;
        let second = rest.first_chunk::<8>()?;
        let word = u64::from_be_bytes(*first);
        Some(Self {
            phase: if word & MEASURED == 0 { Phase::WarmUp } else { Phase::Measured },
            sequence: word & !MEASURED,
            sent_ns: u64::from_be_bytes(*second),
        })
    }
}

/// A step of the challenge, with its byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeStep {
    /// The client asks for a flow.
    Ask = 1,
    /// The endpoint sends a cookie, to see whether the client receives at its address.
    Challenge,
    /// The client returns the cookie.
    Answer,
    /// The endpoint gives the client the flow.
    Welcome,
}

/// The four datagrams by which a client proves its address before any datagram goes there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handshake {
    /// The step.
    pub kind: HandshakeStep,
    /// The session.
    pub token: Token,
    /// The flow.
    pub flow: u32,
    /// The endpoint's cookie; zero in [`HandshakeStep::Ask`].
    pub cookie: u64,
}

impl Handshake {
    /// Layout, big-endian: magic 8, kind 1, zero 3, flow 4, token 16, cookie 8, zero to 48.
    pub fn encode(&self) -> [u8; HANDSHAKE_BYTES] {
        let mut bytes = [0; HANDSHAKE_BYTES];
        bytes[..8].copy_from_slice(&HANDSHAKE_MAGIC);
        bytes[8] = self.kind as u8;
        bytes[12..16].copy_from_slice(&self.flow.to_be_bytes());
        bytes[16..32].copy_from_slice(&self.token.0);
        bytes[32..40].copy_from_slice(&self.cookie.to_be_bytes());
        bytes
    }

    /// Reads a handshake; `None` for any other datagram, also one of another length.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HANDSHAKE_BYTES] = bytes.try_into().ok()?;
        if bytes[..8] != HANDSHAKE_MAGIC {
            return None;
        }
        let kind = match bytes[8] {
            1 => HandshakeStep::Ask,
            2 => HandshakeStep::Challenge,
            3 => HandshakeStep::Answer,
            4 => HandshakeStep::Welcome,
            _ => return None,
        };
        let (_, rest) = bytes.split_at(12);
        let (flow, rest) = rest.split_first_chunk::<4>()?;
        let (token, rest) = rest.split_first_chunk::<16>()?;
        let cookie = rest.first_chunk::<8>()?;
        Some(Self {
            kind,
            token: Token(*token),
            flow: u32::from_be_bytes(*flow),
            cookie: u64::from_be_bytes(*cookie),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
        fn any_hello_is_read_without_panic(bytes: [u8; 32]) {
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

    proptest! {
        #[test]
        fn every_changed_byte_is_counted(
            seed: u64, position in 0u64..1 << 40, length in 1usize..5000, at in 0usize..5000,
        ) {
            let pattern = Pattern::new(seed);
            let mut bytes = vec![0; length];
            pattern.fill(position, &mut bytes);
            prop_assert_eq!(pattern.differences(position, &bytes), 0);
            bytes[at % length] ^= 0x10;
            prop_assert_eq!(pattern.differences(position, &bytes), 1);
        }
    }

    #[test]
    fn bytes_shifted_by_one_are_detected() {
        let pattern = Pattern::new(7);
        let mut bytes = vec![0; 4096];
        pattern.fill(1, &mut bytes);
        assert!(pattern.differences(0, &bytes) > 3900);
    }

    proptest! {
        #[test]
        fn a_header_survives_the_wire(measured: bool, sequence in 0u64..1 << 63, sent_ns: u64) {
            let phase = if measured { Phase::Measured } else { Phase::WarmUp };
            let header = DatagramHeader { phase, sequence, sent_ns };
            let mut datagram = [0; 20];
            header.write(&mut datagram);
            prop_assert_eq!(DatagramHeader::read(&datagram), Some(header));
        }

        #[test]
        fn a_handshake_survives_the_wire(token: [u8; 16], flow: u32, cookie: u64) {
            for kind in [HandshakeStep::Ask, HandshakeStep::Challenge, HandshakeStep::Answer,
                HandshakeStep::Welcome] {
                let handshake = Handshake { kind, token: Token(token), flow, cookie };
                prop_assert_eq!(Handshake::decode(&handshake.encode()), Some(handshake));
            }
        }

        #[test]
        fn any_datagram_is_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Handshake::decode(&bytes);
            let _ = DatagramHeader::read(&bytes);
        }
    }
}

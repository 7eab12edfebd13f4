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

mod datagram;
mod error;
mod frame;
mod hello;
mod pattern;
mod seal;
mod stamp;

pub use datagram::{
    DATAGRAM_HEADER, DatagramHeader, HANDSHAKE_BYTES, Handshake, HandshakeStep, Phase,
};
pub use error::WireError;
pub use frame::{Frame, FrameKind, FrameReader};
pub use hello::{HELLO_BYTES, Hello, HelloKind, Token, is_hello_start};
pub use pattern::Pattern;
pub use seal::{Key, Seal, bytes_of_hex, is_same_secret};
pub use stamp::{
    STAMP_ANSWERED_AT, STAMP_BYTES, STAMP_PORT, StampAnswer, StampArrival, StampRequest, reflect,
};

/// Version of everything in this module and of the session's messages. A peer of another version is
/// told both numbers.
pub const WIRE_VERSION: u16 = 2;

//! Why bytes on the wire cannot be taken.

use thiserror::Error;

use super::WIRE_VERSION;

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
    #[error("the peer's key is another one (or the bytes were altered on the way)")]
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

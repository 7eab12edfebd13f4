//! The frames of the control channel, and their encryption and authentication by a shared key.
//!
//! Noise `NNpsk0_25519_ChaChaPoly_BLAKE2s` (noiseprotocol.org, revision 34): both ends prove the
//! key in the first message, and each session has fresh keys. The ephemeral keys are the one thing
//! in core that is random of its own: `snow` takes them from the operating system, since a seeded
//! key is none.

use data_encoding::HEXLOWER_PERMISSIVE;
use snow::params::HashChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use subtle::ConstantTimeEq;

use super::WireError;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Noise limits a message to 65,535 bytes, of which 16 are the tag.
const CHUNK: usize = 65_535;
const TAG: usize = 16;

/// A shared key of 32 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// The key in the text of a key file: 64 hexadecimal digits, blanks and line ends ignored.
    ///
    /// # Errors
    /// The text is anything else; it is not repeated in the message, since it may be secret.
    pub fn from_text(text: &str) -> Result<Self, WireError> {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let digits = text.chars().take_while(char::is_ascii_hexdigit).count();
        bytes_of_hex(&text).map(Self).ok_or(WireError::NoKey { digits })
    }

    /// A message authentication code: only who has the key can make it. HMAC (RFC 2104) with
    /// BLAKE2s, of whose 32 bytes the first 16 are taken.
    pub fn mac(&self, text: &[u8]) -> u128 {
        let mut hash =
            DefaultResolver.resolve_hash(&HashChoice::Blake2s).expect("snow is built with BLAKE2");
        let mut code = [0; 32];
        hash.hmac(&self.0, text, &mut code);
        u128::from_be_bytes(*code.first_chunk().expect("it has 32 bytes"))
    }
}

/// Reads two hexadecimal digits for each of `N` bytes; `None` for any other text.
pub fn bytes_of_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
    bytes.try_into().ok()
}

/// Compares two secrets in a time that does not depend on how much of them agrees.
pub fn is_same_secret(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

enum SealState {
    Handshake(Box<snow::HandshakeState>),
    Transport(Box<snow::TransportState>),
    Broken,
}

/// One end of a sealed channel.
pub struct Seal {
    state: SealState,
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal(…)")
    }
}

impl Seal {
    /// The client's end, which sends first.
    ///
    /// # Errors
    /// [`WireError::CipherSetup`] if the operating system has no randomness.
    pub fn client(key: &Key) -> Result<Self, WireError> {
        Self::new(key, true)
    }

    /// The endpoint's end.
    ///
    /// # Errors
    /// As [`Seal::client`].
    pub fn server(key: &Key) -> Result<Self, WireError> {
        Self::new(key, false)
    }

    fn new(key: &Key, client: bool) -> Result<Self, WireError> {
        let parameters = PATTERN.parse().map_err(|_| WireError::CipherSetup)?;
        let builder = snow::Builder::new(parameters).psk(0, &key.0);
        let handshake =
            builder
                .and_then(|builder| {
                    if client { builder.build_initiator() } else { builder.build_responder() }
                })
                .map_err(|_| WireError::CipherSetup)?;
        Ok(Self { state: SealState::Handshake(Box::new(handshake)) })
    }

    /// Whether messages can be sealed.
    pub fn is_ready(&self) -> bool {
        matches!(self.state, SealState::Transport(_))
    }

    /// This end's next message of the handshake.
    ///
    /// # Errors
    /// [`WireError::CipherSetup`] out of turn.
    pub fn write_handshake(&mut self) -> Result<Vec<u8>, WireError> {
        let SealState::Handshake(handshake) = &mut self.state else {
            return Err(WireError::CipherSetup);
        };
        let mut out = vec![0; 128];
        let n = handshake.write_message(&[], &mut out).map_err(|_| WireError::CipherSetup)?;
        out.truncate(n);
        self.advance();
        Ok(out)
    }

    /// The peer's next message of the handshake.
    ///
    /// # Errors
    /// [`WireError::WrongKey`].
    pub fn read_handshake(&mut self, message: &[u8]) -> Result<(), WireError> {
        let SealState::Handshake(handshake) = &mut self.state else {
            return Err(WireError::CipherNotReady);
        };
        let mut out = vec![0; message.len().min(CHUNK)];
        if handshake.read_message(message, &mut out).is_err() {
            self.state = SealState::Broken;
            return Err(WireError::WrongKey);
        }
        self.advance();
        Ok(())
    }

    fn advance(&mut self) {
        let SealState::Handshake(handshake) = &self.state else {
            return;
        };
        if !handshake.is_handshake_finished() {
            return;
        }
        if let SealState::Handshake(handshake) =
            std::mem::replace(&mut self.state, SealState::Broken)
            && let Ok(transport) = handshake.into_transport_mode()
        {
            self.state = SealState::Transport(Box::new(transport));
        }
    }

    /// Encrypts a message as a sequence of Noise messages, all but the last of full length.
    ///
    /// # Errors
    /// [`WireError::CipherNotReady`].
    pub fn seal(&mut self, message: &[u8]) -> Result<Vec<u8>, WireError> {
        let SealState::Transport(transport) = &mut self.state else {
            return Err(WireError::CipherNotReady);
        };
        let mut sealed = Vec::with_capacity(message.len() + TAG * (message.len() / CHUNK + 1));
        let mut out = vec![0; CHUNK];
        for piece in message.chunks(CHUNK - TAG) {
            let n =
                transport.write_message(piece, &mut out).map_err(|_| WireError::CipherNotReady)?;
            sealed.extend_from_slice(&out[..n]);
        }
        Ok(sealed)
    }

    /// Decrypts what [`Seal::seal`] made.
    ///
    /// # Errors
    /// [`WireError::WrongKey`] if anything was altered, repeated or left out.
    pub fn open(&mut self, sealed: &[u8]) -> Result<Vec<u8>, WireError> {
        let SealState::Transport(transport) = &mut self.state else {
            return Err(WireError::CipherNotReady);
        };
        let mut message = Vec::with_capacity(sealed.len());
        let mut out = vec![0; CHUNK];
        for piece in sealed.chunks(CHUNK) {
            let n = transport.read_message(piece, &mut out).map_err(|_| WireError::WrongKey)?;
            message.extend_from_slice(&out[..n]);
        }
        Ok(message)
    }
}

// Frames: type, length, body.

/// The content of a frame's body, with its byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// A message in clear.
    Clear = 1,
    /// A message of the Noise handshake.
    Handshake,
    /// A message, encrypted.
    Sealed,
}

/// A whole frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The content of the body.
    pub kind: FrameKind,
    /// The body.
    pub body: Vec<u8>,
}

impl Frame {
    /// The bytes to send; `None` if the length of the body does not fit 24 bits.
    pub fn encode(&self) -> Option<Vec<u8>> {
        let length = u32::try_from(self.body.len()).ok()?;
        let length = Some(length).filter(|length| *length < 1 << 24)?;
        let mut bytes = Vec::with_capacity(FRAME_HEADER + self.body.len());
        bytes.extend_from_slice(&((self.kind as u32) << 24 | length).to_be_bytes());
        bytes.extend_from_slice(&self.body);
        Some(bytes)
    }
}

/// Assembles frames from pieces of any size. It holds at most one frame and what came with it.
#[derive(Debug)]
pub struct FrameReader {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that were handed out. They go with the next push: moving the rest down
    /// after each frame would let a peer of many small frames cost time with the square of their
    /// number.
    taken: usize,
    limit: usize,
}

impl FrameReader {
    /// A reader that accepts bodies of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), taken: 0, limit }
    }

    /// Changes the limit for the next frames.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Takes bytes from the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame; `None` if more bytes are needed.
    ///
    /// # Errors
    /// After one the stream is useless: the next frame cannot be found.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, WireError> {
        let waiting = &self.buffer[self.taken..];
        let Some(&first) = waiting.first() else {
            return Ok(None);
        };
        // Before the length is complete, so that another protocol is known by its first byte.
        let kind = match first {
            1 => FrameKind::Clear,
            2 => FrameKind::Handshake,
            3 => FrameKind::Sealed,
            other => return Err(WireError::FrameKind(other)),
        };
        let Some(header) = waiting.first_chunk::<FRAME_HEADER>() else {
            return Ok(None);
        };
        let length = (u32::from_be_bytes(*header) & 0x00ff_ffff) as usize;
        if length > self.limit {
            return Err(WireError::FrameTooLong { length, limit: self.limit });
        }
        let end = FRAME_HEADER + length;
        let Some(body) = waiting.get(FRAME_HEADER..end) else {
            return Ok(None);
        };
        let body = body.to_vec();
        self.taken += end;
        Ok(Some(Frame { kind, body }))
    }
}

/// Bytes before the body: type, and a 24-bit big-endian length.
const FRAME_HEADER: usize = 4;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(digit: &str) -> Key {
        Key::from_text(&digit.repeat(64 / digit.len())).unwrap()
    }

    #[test]
    fn secrets_are_the_same_only_byte_for_byte() {
        assert!(is_same_secret(b"ab", b"ab") && is_same_secret(b"", b""));
        assert!(!is_same_secret(b"ab", b"ac") && !is_same_secret(b"ab", b"abc"));
    }

    #[test]
    fn bytes_have_two_digits_each() {
        assert_eq!(bytes_of_hex("00fFa1"), Some([0, 0xff, 0xa1]));
        for text in ["", "00fF", "00fFa", "00fFa1b2", "00fFg1", "00fF 1", "00fFé"] {
            assert_eq!(bytes_of_hex::<3>(text), None, "{text}");
        }
    }

    /// The code is that of Python's `hmac.new(key, text, hashlib.blake2s)`.
    #[test]
    fn a_mac_is_of_its_key_and_its_text() {
        let code = key("ab").mac(b"a task");
        assert_eq!(format!("{code:032x}"), "b25a3998e5cbf889dc5d37db0d822546");
        assert_ne!(key("ab").mac(b"a tasc"), code);
        assert_ne!(key("ac").mac(b"a task"), code);
    }

    fn pair() -> (Seal, Seal) {
        let mut client = Seal::client(&key("a")).unwrap();
        let mut server = Seal::server(&key("a")).unwrap();
        server.read_handshake(&client.write_handshake().unwrap()).unwrap();
        client.read_handshake(&server.write_handshake().unwrap()).unwrap();
        (client, server)
    }

    #[test]
    fn messages_of_every_length_pass_both_ways() {
        let (mut client, mut server) = pair();
        for length in [1, 100, CHUNK - TAG, CHUNK - TAG + 1, 300_000] {
            let message = vec![7; length];
            let sealed = client.seal(&message).unwrap();
            assert_eq!(server.open(&sealed).unwrap(), message);
            let sealed = server.seal(&message).unwrap();
            assert_eq!(client.open(&sealed).unwrap(), message);
        }
    }

    #[test]
    fn another_key_is_refused_in_the_first_message() {
        let mut client = Seal::client(&key("a")).unwrap();
        let mut server = Seal::server(&key("b")).unwrap();
        let first = client.write_handshake().unwrap();
        assert_eq!(server.read_handshake(&first), Err(WireError::WrongKey));
    }

    #[test]
    fn an_altered_or_repeated_message_is_refused() {
        let (mut client, mut server) = pair();
        let sealed = client.seal(b"begin").unwrap();
        let mut altered = sealed.clone();
        altered[2] ^= 1;
        assert_eq!(server.open(&altered), Err(WireError::WrongKey));
        let (mut client, mut server) = pair();
        let sealed = client.seal(b"begin").unwrap();
        server.open(&sealed).unwrap();
        assert_eq!(server.open(&sealed), Err(WireError::WrongKey));
    }

    #[test]
    fn a_key_file_holds_64_digits_and_nothing_else() {
        assert!(Key::from_text(&format!(" {}\n", "0f".repeat(32))).is_ok());
        assert!(Key::from_text("0f").is_err());
        assert!(Key::from_text(&"xy".repeat(32)).is_err());
        assert!(Key::from_text(&format!("{}zz", "0f".repeat(32))).is_err());
    }

    proptest! {
        #[test]
        fn frames_survive_any_cut(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..6),
            cut in 1usize..50,
        ) {
            let frames: Vec<Frame> = bodies
                .into_iter()
                .map(|body| Frame { kind: FrameKind::Clear, body })
                .collect();
            let wire: Vec<u8> = frames.iter().flat_map(|f| f.encode().unwrap()).collect();
            let mut reader = FrameReader::new(200);
            let mut seen = Vec::new();
            for piece in wire.chunks(cut) {
                reader.push(piece);
                while let Some(frame) = reader.next_frame().unwrap() {
                    seen.push(frame);
                }
            }
            prop_assert_eq!(seen, frames);
        }
    }

    #[test]
    fn a_frame_over_the_limit_is_refused_by_its_header_alone() {
        let mut reader = FrameReader::new(100);
        reader.push(&[1, 0, 0, 101]);
        assert_eq!(reader.next_frame(), Err(WireError::FrameTooLong { length: 101, limit: 100 }));
    }

    #[test]
    fn another_protocol_is_known_by_its_first_byte() {
        let mut reader = FrameReader::new(100);
        reader.push(b"H");
        assert_eq!(reader.next_frame(), Err(WireError::FrameKind(b'H')));
    }
}

//! netperf's control protocol (2.4 to 2.7), at both ends: [`Server`] answers stock clients,
//! [`Client`] uses a netserver.
//!
//! Every message is one [`Block`] of a fixed size; a request for a test is read into a [`DataTest`]
//! with its limits, and answered by [`Ready`] before the data moves and by [`Results`] after it.
//! Newer clients ask for almost all tests by one message, OMNI; older ones and a few tests have a
//! message each ([`classic`]).
//!
//! ```text
//! client                                   server
//!   [Passphrase, where the owner has set one, unanswered]
//!   Debug on | CPU calibrate ───────────────▶
//!   ◀────────────────────────────── its answer
//!   request (OMNI or classic) ──────────────▶           ┐
//!   ◀────────── response with the data port, or errno   │ as often as
//!   data connections or datagrams ──────────▶           │ the client likes
//!   ◀───────────────────────────────── results          ┘
//!   end of the stream ──────────────────────▶
//! ```
//!
//! A request does not tell whether a client with wide blocks is 2.6.0, whose results have fewer
//! fields. It gets the results of 2.7, as from a netserver of 2.7, and misreads all fields after
//! the CPU utilisation.

mod answer;
pub mod classic;
mod client;
mod request;
mod server;

#[cfg(test)]
mod tests;

pub use answer::{CpuShares, Ready, Results};
pub use client::{Client, ClientError, ClientEvent};
pub use request::{DataTest, Length, Message, Refusal, Role, Transport};
pub use server::{End, Server, ServerEvent, Settings};

/// The port of a netserver.
pub const PORT: u16 = 12865;
/// Time that a server waits after a test for what is still in flight, seconds.
pub const PAD_SECONDS: u32 = 4;

/// Types of messages; those of single tests are in [`classic`].
mod kind {
    pub(super) const DEBUG_ON: i32 = 1;
    pub(super) const DEBUG_OFF: i32 = 2;
    pub(super) const DEBUG_OK: i32 = 3;
    pub(super) const CPU_CALIBRATE: i32 = 5;
    pub(super) const PASSPHRASE: i32 = 6;
    pub(super) const SYSTEM: i32 = 600;
    pub(super) const SYSTEM_ANSWER: i32 = 601;
    pub(super) const OMNI_REQUEST: i32 = 97;
    pub(super) const OMNI_RESPONSE: i32 = 98;
    pub(super) const OMNI_RESULTS: i32 = 99;
}

/// Second words of a refusal, by Linux's numbers of errors: the client prints their texts.
pub mod errno {
    /// The owner's limits do not allow it.
    pub const EPERM: i32 = 1;
    /// Datagrams would go to an address that is not the client's.
    pub const EACCES: i32 = 13;
    /// The owner allows no more clients at once, or another client has changed the host.
    pub const EBUSY: i32 = 16;
    /// A figure is invalid.
    pub const EINVAL: i32 = 22;
    /// A size is too large.
    pub const EMSGSIZE: i32 = 90;
    /// A protocol that is neither TCP nor UDP.
    pub const EPROTONOSUPPORT: i32 = 93;
    /// A direction or a way that is not served.
    pub const EOPNOTSUPP: i32 = 95;
    /// An address family that is neither IPv4 nor IPv6.
    pub const EAFNOSUPPORT: i32 = 97;
    /// Nobody connected in time.
    pub const ETIMEDOUT: i32 = 110;
    /// netperf's own: a test that the server does not know.
    pub const UNKNOWN_TEST: i32 = 998;
}

// The block, the form of all control messages.

/// Bytes of a block of netperf 2.5 and older.
pub const NARROW_BYTES: usize = 256;
/// Bytes of a block since netperf 2.6.
pub const WIDE_BYTES: usize = 656;
/// Bytes before the payload: the type and the second word.
const HEADER: usize = 8;

/// Length of a client's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// 256 bytes.
    Narrow,
    /// 656 bytes.
    Wide,
}

impl Width {
    /// Bytes of a block.
    pub fn bytes(self) -> usize {
        match self {
            Self::Narrow => NARROW_BYTES,
            Self::Wide => WIDE_BYTES,
        }
    }
}

/// A control message: a type, a second word (requests: CPU affinity; answers: errno), and a payload
/// of 32-bit words, big-endian, with texts as plain bytes after them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    width: Width,
    bytes: Vec<u8>,
}

impl Block {
    /// A block with its type and no payload.
    pub fn new(width: Width, kind: i32) -> Self {
        let mut bytes = vec![0; width.bytes()];
        bytes[..4].copy_from_slice(&kind.to_be_bytes());
        Self { width, bytes }
    }

    /// A block whose payload begins with these words; words that do not fit are left out.
    pub fn of_words(width: Width, kind: i32, words: &[u32]) -> Self {
        let mut block = Self::new(width, kind);
        for (index, word) in words.iter().enumerate() {
            block.set_word(index, *word);
        }
        block
    }

    /// Reads a block; `None` if it has another length.
    pub fn decode(width: Width, bytes: &[u8]) -> Option<Self> {
        (bytes.len() == width.bytes()).then(|| Self { width, bytes: bytes.to_vec() })
    }

    /// The bytes to send.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Its length.
    pub fn width(&self) -> Width {
        self.width
    }

    /// Its type.
    pub fn kind(&self) -> i32 {
        self.raw_word(0) as i32
    }

    /// Affinity of a request, errno of an answer.
    pub fn second(&self) -> i32 {
        self.raw_word(4) as i32
    }

    /// The block with another second word.
    #[must_use]
    pub fn with_second(mut self, second: i32) -> Self {
        self.bytes[4..HEADER].copy_from_slice(&second.to_be_bytes());
        self
    }

    /// Payload word `index`; zero after the end.
    pub fn word(&self, index: usize) -> u32 {
        self.raw_word(HEADER + 4 * index)
    }

    /// Payload word `index` as a signed number.
    pub fn int(&self, index: usize) -> i32 {
        self.word(index) as i32
    }

    /// Payload word `index` as a floating-point number.
    pub fn float(&self, index: usize) -> f32 {
        f32::from_bits(self.word(index))
    }

    /// The text in `length` bytes from payload word `index` on, up to its zero byte: printable
    /// ASCII, other bytes as `?`.
    pub fn text(&self, index: usize, length: usize) -> String {
        self.text_at(index, 0, length)
    }

    /// The text `offset` bytes behind payload word `index`.
    pub fn text_at(&self, index: usize, offset: usize, length: usize) -> String {
        let printable = |&byte: &u8| match byte {
            b' '..=b'~' => char::from(byte),
            _ => '?',
        };
        self.text_bytes(index, offset, length).iter().map(printable).collect()
    }

    /// The bytes of such a text.
    pub fn text_bytes(&self, index: usize, offset: usize, length: usize) -> &[u8] {
        let start = (HEADER + 4 * index + offset).min(self.bytes.len());
        let field = &self.bytes[start..(start + length).min(self.bytes.len())];
        let end = field.iter().position(|byte| *byte == 0);
        &field[..end.unwrap_or(field.len())]
    }

    /// Writes a word of the payload, if it has one there.
    pub fn set_word(&mut self, index: usize, word: u32) {
        let start = HEADER + 4 * index;
        if let Some(place) = self.bytes.get_mut(start..start + 4) {
            place.copy_from_slice(&word.to_be_bytes());
        }
    }

    /// Writes a text of at most `length` bytes with its zero byte, `offset` bytes behind payload
    /// word `index`.
    pub fn set_text(&mut self, index: usize, offset: usize, length: usize, text: &str) {
        let start = HEADER + 4 * index + offset;
        let text = &text.as_bytes()[..text.len().min(length.saturating_sub(1))];
        if let Some(place) = self.bytes.get_mut(start..start + text.len()) {
            place.copy_from_slice(text);
        }
    }

    fn raw_word(&self, start: usize) -> u32 {
        let bytes = self.bytes.get(start..start + 4);
        let word = bytes.and_then(|bytes| bytes.first_chunk::<4>());
        word.map_or(0, |word| u32::from_be_bytes(*word))
    }
}

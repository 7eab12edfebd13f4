//! iperf3's protocol, 3.1 to 3.21: the state machines of a server and of a client.
//!
//! One TCP connection for each test carries single *state* bytes and JSON with a length before it.
//! All data sockets go to the same port and begin with the cookie of the control connection (TCP),
//! or with a greeting of four bytes (UDP).
//!
//! ```text
//! client                                     server
//!   cookie (37 bytes) ─────────────────────────▶
//!   ◀──────────────────────────── PARAM_EXCHANGE
//!   parameters ────────────────────────────────▶
//!   ◀───────────── CREATE_STREAMS | SERVER_ERROR
//!   data connections, each with the cookie ────▶
//!   ◀─────────────────── TEST_START TEST_RUNNING
//!   TEST_END ──────────────────────────────────▶
//!   ◀───────────────────────── EXCHANGE_RESULTS
//!   results ───────────────────────────────────▶
//!   ◀──────────────────────────────────  results
//!   ◀─────────────────────────── DISPLAY_RESULTS
//!   IPERF_DONE ────────────────────────────────▶
//! ```
//!
//! | module | what is in it |
//! |---|---|
//! | [`Server`], [`Client`] | the order of messages, and every deadline |
//! | [`Params`], [`Results`] | the two JSON messages, with limits |
//! | [`Layout`], [`Greeting`] | datagrams |
//! | [`Users`], [`Credentials`] | the users who may test, the content of a token |

mod auth;
mod client;
mod datagram;
mod params;
mod results;
mod server;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use auth::{Credentials, NotAllowed, Users, from_base64};
pub use client::{Client, ClientError, ClientEvent};
pub use datagram::{Greeting, Layout};
pub use params::{Params, Transport};
pub use results::{Results, StreamResult};
use serde_json::Value;
pub use server::{Server, ServerError, ServerEvent};

/// Bytes of a [`Cookie`] on the wire, the terminating zero included.
pub const COOKIE_BYTES: usize = 37;
/// Answer to a connection that is not taken: the server is busy, or no test has the cookie.
pub const ACCESS_DENIED: u8 = 0xff;

/// Longest time from the connection to the parameters.
const PARAMS_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time from one data connection to the next: round trips are long on some paths.
const STREAM_TIMEOUT: Duration = Duration::from_secs(10);
/// Time beyond the length of a test (the reference: 10 transitions of 4 s).
const GRACE: Duration = Duration::from_secs(40);
/// Longest time from the end of the test to the client's results, and from the server's results to
/// the goodbye.
const RESULTS_TIMEOUT: Duration = Duration::from_secs(10);

/// The name of a test, by which its data connections find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cookie(pub [u8; COOKIE_BYTES]);

impl Cookie {
    /// Whether these bytes, at most [`COOKIE_BYTES`], can be the beginning of a cookie: printable
    /// ASCII, and only zeros after the first zero.
    pub fn can_begin(bytes: &[u8]) -> bool {
        let text = bytes.iter().position(|byte| *byte == 0);
        let (text, rest) = bytes.split_at(text.unwrap_or(bytes.len()));
        let printable = text.iter().all(|byte| byte.is_ascii_graphic());
        let whole = bytes.len() < COOKIE_BYTES || bytes[COOKIE_BYTES - 1] == 0;
        !bytes.is_empty()
            && bytes[0] != 0
            && printable
            && whole
            && rest.iter().all(|byte| *byte == 0)
    }

    /// A cookie of 36 letters from random bytes, as iperf3 makes it. It uses 32 letters, so that
    /// all are equally likely.
    pub fn from_random(random: [u8; COOKIE_BYTES - 1]) -> Self {
        const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        let mut bytes = [0; COOKIE_BYTES];
        for (letter, random) in bytes.iter_mut().zip(random) {
            *letter = LETTERS[usize::from(random % 32)];
        }
        Self(bytes)
    }
}

/// iperf3's number of the flow that was opened as `index`-th: 1, 3, 4, 5, …
pub fn stream_id(index: u32) -> u32 {
    match index {
        0 => 1,
        n => n + 2,
    }
}

/// A message of one byte on the control connection. Any byte can arrive; the constants are those
/// that iperf3 sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State(pub u8);

impl State {
    /// Set up the timers.
    pub const TEST_START: Self = Self(1);
    /// Send and receive.
    pub const TEST_RUNNING: Self = Self(2);
    /// The client has ended the test.
    pub const TEST_END: Self = Self(4);
    /// Send the parameters.
    pub const PARAM_EXCHANGE: Self = Self(9);
    /// Open the data connections.
    pub const CREATE_STREAMS: Self = Self(10);
    /// The server ends.
    pub const SERVER_TERMINATE: Self = Self(11);
    /// The client gives up.
    pub const CLIENT_TERMINATE: Self = Self(12);
    /// Send your results, then take mine.
    pub const EXCHANGE_RESULTS: Self = Self(13);
    /// All results are exchanged.
    pub const DISPLAY_RESULTS: Self = Self(14);
    /// Goodbye.
    pub const IPERF_DONE: Self = Self(16);
    /// The server is busy, or has no place for this connection.
    pub const ACCESS_DENIED: Self = Self(ACCESS_DENIED);
    /// Two numbers follow: iperf3's error, and errno.
    pub const SERVER_ERROR: Self = Self(0xfe);
}

/// An error number of iperf3's.
///
/// A server sends it, a client prints its text.
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

/// Splits the bytes of the control connection into messages: takes bytes, and gives states and JSON
/// when asked. Its errors say in words what is wrong.
#[derive(Debug, Default)]
struct Reader {
    buffer: Vec<u8>,
}

impl Reader {
    /// Takes bytes. The next message may have up to `wanted` bytes.
    fn push(&mut self, bytes: &[u8], wanted: usize) -> Result<(), String> {
        if self.buffer.len() + bytes.len() > wanted + MAX_WAITING {
            return Err("more bytes than there was anything to say".to_owned());
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn byte(&mut self) -> Option<u8> {
        if self.buffer.is_empty() {
            return None;
        }
        Some(self.buffer.remove(0))
    }

    /// Two 32-bit numbers, as they follow an error.
    fn numbers(&mut self) -> Option<(i32, i32)> {
        let bytes: [u8; 8] = *self.buffer.first_chunk()?;
        self.buffer.drain(..8);
        let number = |at: usize| i32::from_be_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        Some((number(0), number(4)))
    }

    /// JSON of at most `limit` bytes; `None` until it is whole.
    fn json(&mut self, limit: usize) -> Result<Option<Vec<u8>>, String> {
        let Some(head) = self.buffer.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*head) as usize;
        if length > limit {
            return Err(format!("JSON of {length} bytes, where at most {limit} are taken"));
        }
        if self.buffer.len() < 4 + length {
            return Ok(None);
        }
        let rest = self.buffer.split_off(4 + length);
        let whole = std::mem::replace(&mut self.buffer, rest);
        Ok(Some(whole[4..].to_vec()))
    }
}

/// JSON, preceded by its length.
fn framed(json: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + json.len());
    bytes.extend_from_slice(&(json.len() as u32).to_be_bytes());
    bytes.extend_from_slice(json);
    bytes
}

/// Most bytes that may wait for their turn.
const MAX_WAITING: usize = 64 << 10;

// Numbers and flags as the different versions of iperf3 write them.

/// A count: whole and not negative, also where it was written as a float (`1e+10`).
fn count(value: &Value) -> Option<u64> {
    /// Beyond it a double does not have every whole number.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if let Some(count) = value.as_u64() {
        return Some(count);
    }
    let number = value.as_f64()?;
    (0.0..=EXACT).contains(&number).then_some(number as u64)
}

/// A count that may be −1 for "not known"; a version with unsigned JSON writes that as 2⁶⁴ − 1.
fn count_if_known(value: &Value) -> Option<u64> {
    count(value).filter(|count| *count < 1 << 62)
}

/// A flag: `true`, or any number but 0.
fn flag(value: &Value) -> bool {
    match value {
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        _ => false,
    }
}

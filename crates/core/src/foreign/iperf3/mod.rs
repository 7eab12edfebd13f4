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

mod account;
mod auth;
mod client;
mod code;
mod datagram;
mod number;
mod params;
mod reader;
mod results;
mod server;
mod state;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use auth::{Credentials, NotAllowed, Users, from_base64};
pub use client::{Client, ClientError, ClientEvent};
pub use code::ErrorCode;
pub use datagram::{Greeting, Layout};
pub use params::{Params, Transport};
pub use results::{Results, StreamResult};
pub use server::{Server, ServerError, ServerEvent};
pub use state::State;

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

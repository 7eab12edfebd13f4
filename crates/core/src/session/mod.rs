//! The control session as two pure state machines: [`Client`] and [`Server`].
//!
//! Both have one shape: bytes in by `handle_input`, time in by `handle_timeout`, and out come bytes
//! (`poll_transmit`), events (`poll_event`) and the time of the next deadline (`poll_timeout`).
//! Time is a [`Duration`] since any fixed moment. Neither ever waits without a deadline.
//!
//! ```text
//! client                                   server
//!   Hello (64 bytes, see wire) ─────────────▶
//!   [Noise handshake, if sealed] ◀──────────▶
//!   Introduce ──────────────────────────────▶
//!   ◀─────────────────────── Welcome | Refuse
//!   Ask(request) ───────────────────────────▶           ┐ any operation,
//!   ◀──────────────────────── Answer | Refuse           ┘ as often as the client likes
//!   Bye ────────────────────────────────────▶
//! ```
//!
//! What can be asked for is in [`operation`]. Only two have phases of their own. A test:
//!
//! ```text
//!   Ask(Open) ──────────────────────────────▶
//!   ◀──────────────────────── Answer | Refuse
//!   data connections, each with its Hello ──▶
//!   ◀───────────────────────────────── Ready
//!   Begin ──────────────────────────────────▶
//!   Alive ───────────▶ ◀──── Progress, Finished
//!   Ask(End) ───────────────────────────────▶
//!   ◀───────────────────────── Answer(report)
//! ```
//!
//! And connections that are held:
//!
//! ```text
//!   Ask(Hold) ──────────────────────────────▶
//!   ◀──────────────────────── Answer | Refuse
//!   Alive ───────────▶ ◀────────────────── Held
//!   Ask(Release) ───────────────────────────▶
//!   ◀───────────────────────── Answer(report)
//! ```
//!
//! Several sessions begin together by the endpoint's clock: `Ask(Clock)` tells the client how far
//! it is ahead, and `Begin` has the moment.
//!
//! What `Treat` has changed on the endpoint's host is on loan: it is undone by `Untreat`, and at
//! the latest when the session ends in whatever way, so at most [`IDLE_TIMEOUT`] after the client
//! was heard last.

mod admission;
mod bounds;
mod channel;
mod client;
pub mod message;
pub mod operation;
mod server;

use std::time::Duration;

use thiserror::Error;

pub use admission::Owner;
pub use client::{Client, ClientEvent};
pub use server::{Server, ServerEvent};

use crate::wire::{FrameError, SealError};
use message::{Refusal, RefusalReason};

/// From the connection to the end of the handshake.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// Without a test, a client may think so long between two of them.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// From `Opened` to the last data connection, and from `Ready` to `Begin`.
pub const OPENING_TIMEOUT: Duration = Duration::from_secs(10);
/// Without a word from the peer while a test runs, and without data of the test.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often each end says that it is there while a test runs.
pub const ALIVE_EVERY: Duration = Duration::from_secs(1);
/// From `End` to the report: an endpoint whose host was profiled names thousands of functions
/// first, on CPUs that may have much else to do.
pub const REPORT_TIMEOUT: Duration = Duration::from_secs(30);
/// From `Treat` or `Untreat` to the answer: some devices renegotiate their link when they are
/// changed, and the control connection stands still for as long.
pub const TREATING_TIMEOUT: Duration = Duration::from_secs(30);
/// From `Trace` to the answer: an endpoint traces for [`crate::trace::LONGEST_REVERSE`] at most.
pub const TRACING_TIMEOUT: Duration = Duration::from_secs(15);
/// From `Hold` to its answer: an endpoint starts a process for each 20,000 connections.
pub const HOLDING_TIMEOUT: Duration = Duration::from_secs(30);
/// From the `End` of a `Hold` to the report: closing a million connections takes about ten seconds
/// on an idle host.
pub const RELEASE_TIMEOUT: Duration = Duration::from_secs(180);
/// What a test may take longer than its own time, for queues to drain.
pub const GRACE: Duration = Duration::from_secs(30);

/// A peer whose test runs is given up [`SILENCE_TIMEOUT`] after its last word. But words wait
/// behind what the test has queued on the path, or are lost there: data that moves shows that the
/// peer is there, and where its words are held up it has [`GRACE`].
#[derive(Debug, Default)]
struct Silence {
    /// The last word.
    since: Duration,
    moved_bytes: u64,
    is_held_up: bool,
}

impl Silence {
    /// A run begins.
    fn new(now: Duration) -> Self {
        Self {
            since: now,
            ..Self::default()
        }
    }

    /// A word came: the new deadline.
    fn heard(&mut self, now: Duration) -> Duration {
        self.since = now;
        self.deadline(now)
    }

    /// So much data of the run has moved: the new deadline, if that is more than before.
    fn moved(&mut self, now: Duration, bytes: u64) -> Option<Duration> {
        let before = std::mem::replace(&mut self.moved_bytes, bytes);
        self.is_held_up |= bytes > before && now.saturating_sub(self.since) > HELD_UP;
        (bytes > before).then(|| self.deadline(now))
    }

    fn deadline(&self, now: Duration) -> Duration {
        now + if self.is_held_up {
            GRACE
        } else {
            SILENCE_TIMEOUT
        }
    }
}

/// Data comes, and no word for so long, which says more often that it is there.
const HELD_UP: Duration = Duration::from_secs(3);

/// Why a session ended before its time.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SessionError {
    /// The bytes are no frames of linerate's.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The key is wrong.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The peer said no.
    #[error("{}", .0.message)]
    Refused(Refusal),
    /// A message that has no place here.
    #[error("the peer sent a message that has no place here: {0}")]
    OutOfTurn(&'static str),
    /// A message that is none.
    #[error("the peer sent a message that cannot be read: {0}")]
    Message(String),
    /// Something took too long.
    #[error("timed out: {0}")]
    Timeout(&'static str),
    /// The connection ended.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer offers no encryption where this end has a key, or the other way round.
    #[error("{0}")]
    Key(&'static str),
    /// The answer came from another kind of server.
    #[error("{0} answers there, not `linerate serve`")]
    NotLinerate(&'static str),
}

impl SessionError {
    /// What to tell the peer before hanging up.
    fn refusal(&self) -> Refusal {
        let reason = match self {
            Self::Refused(refusal) => refusal.reason,
            Self::Seal(_) | Self::Key(_) => RefusalReason::Key,
            Self::Timeout(_) => RefusalReason::Timeout,
            _ => RefusalReason::Protocol,
        };
        Refusal {
            reason,
            message: self.to_string(),
        }
    }
}

/// The bytes that turn a client away before it has a session. A client that waits for the Noise
/// handshake takes them as well: they are in clear and say nothing secret.
pub fn refusal_frame(refusal: Refusal) -> Vec<u8> {
    let mut channel = channel::Channel::new(0, None);
    // A refusal is short text: it can always be encoded.
    let _ = channel.send(&message::ServerMessage::Refuse(refusal));
    channel.poll_transmit().unwrap_or_default()
}

#[cfg(test)]
mod tests;

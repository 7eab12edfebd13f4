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
mod client;
pub mod message;
pub mod operation;
mod server;

use std::collections::VecDeque;
use std::time::Duration;

pub use admission::Owner;
pub use client::{Client, ClientEvent};
use message::{Refusal, RefusalReason};
use serde::Serialize;
pub use server::{Server, ServerEvent};
use thiserror::Error;

use crate::wire::{Frame, FrameKind, FrameReader, Seal, WireError};

/// From the connection to the end of the handshake: long enough for three lost segments in a row,
/// which Linux sends again after 1, 3 and 7 s, and for a host that is busy with something else.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time between two requests of a client while no test runs.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// From `Opened` to the last data connection, and from `Ready` to `Begin`.
pub const OPENING_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest silence of the peer while a test runs: neither messages nor data of the test.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which each end sends a sign of life while a test runs.
const ALIVE_EVERY: Duration = Duration::from_secs(1);
/// From `End` to the report: an endpoint whose host was profiled names thousands of functions
/// first, on CPUs that may have much else to do.
const REPORT_TIMEOUT: Duration = Duration::from_secs(30);
/// From `Treat` or `Untreat` to the answer: some devices renegotiate their link when they are
/// changed, and the control connection stands still for as long.
const TREATING_TIMEOUT: Duration = Duration::from_secs(30);
/// From `Trace` to the answer: an endpoint traces for [`crate::trace::LONGEST_REVERSE`] at most.
pub const TRACING_TIMEOUT: Duration = Duration::from_secs(15);
/// From `Hold` to its answer: an endpoint starts a process for each 20,000 connections.
pub const HOLDING_TIMEOUT: Duration = Duration::from_secs(30);
/// From the `End` of a `Hold` to the report: closing a million connections takes about ten seconds
/// on an idle host.
pub const RELEASE_TIMEOUT: Duration = Duration::from_secs(180);
/// Time beyond the length of a test, for queues to drain.
pub const GRACE: Duration = Duration::from_secs(30);

/// The deadline for the peer's next message while a test runs: [`SILENCE_TIMEOUT`] after the last
/// one. But messages wait behind what the test has queued on the path, or are lost there. Data that
/// moves shows that the peer is alive, and if its messages are held up, the deadline is [`GRACE`].
#[derive(Debug, Default)]
struct Silence {
    /// When the last message came.
    since: Duration,
    moved_bytes: u64,
    is_held_up: bool,
}

impl Silence {
    /// A run begins.
    fn new(now: Duration) -> Self {
        Self { since: now, ..Self::default() }
    }

    /// A message came. Returns the new deadline.
    fn heard(&mut self, now: Duration) -> Duration {
        self.since = now;
        self.deadline(now)
    }

    /// That many bytes of the run have moved. Returns the new deadline, if it is more than before.
    fn moved(&mut self, now: Duration, bytes: u64) -> Option<Duration> {
        let before = std::mem::replace(&mut self.moved_bytes, bytes);
        self.is_held_up |= bytes > before && now.saturating_sub(self.since) > HELD_UP;
        (bytes > before).then(|| self.deadline(now))
    }

    fn deadline(&self, now: Duration) -> Duration {
        now + if self.is_held_up { GRACE } else { SILENCE_TIMEOUT }
    }
}

/// Messages are held up if data moves and none came for so long: the peer sends one each second.
const HELD_UP: Duration = Duration::from_secs(3);

/// Why a session failed.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SessionError {
    /// The bytes are not linerate's frames, or the key is wrong.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The peer refused.
    #[error("{}", .0.message)]
    Refused(Refusal),
    /// The peer sent a message that is not allowed now.
    #[error("the peer sent an unexpected message: {0}")]
    OutOfTurn(&'static str),
    /// The peer sent a message that cannot be read.
    #[error("the peer sent a message that cannot be read: {0}")]
    Message(String),
    /// A deadline has passed.
    #[error("timed out: {0}")]
    Timeout(&'static str),
    /// The connection ended.
    #[error("the peer closed the connection")]
    Closed,
    /// Only one of the two ends has a key.
    #[error("{0}")]
    Key(&'static str),
    /// Another kind of server answered.
    #[error("{0} answers there, not `linerate serve`")]
    NotLinerate(&'static str),
}

impl SessionError {
    /// The refusal that the peer is sent before the connection is closed.
    fn refusal(&self) -> Refusal {
        let reason = match self {
            Self::Refused(refusal) => refusal.reason,
            Self::Wire(
                WireError::WrongKey | WireError::CipherSetup | WireError::CipherNotReady,
            )
            | Self::Key(_) => RefusalReason::Key,
            Self::Timeout(_) => RefusalReason::Timeout,
            _ => RefusalReason::Protocol,
        };
        Refusal { reason, message: self.to_string() }
    }
}

/// The bytes that refuse a client before it has a session. A client that waits for the Noise
/// handshake accepts them as well: they are in clear and contain no secret.
pub fn refusal_frame(refusal: Refusal) -> Vec<u8> {
    let mut channel = Channel::new(0, None);
    // A refusal is short text: it can always be encoded.
    let _ = channel.send(&message::ServerMessage::Refuse(refusal));
    channel.poll_transmit().unwrap_or_default()
}

// Frames and messages over a byte stream, in clear or sealed.

/// Converts bytes to messages and back. It knows neither which end is the client nor what messages
/// mean.
#[derive(Debug)]
struct Channel {
    reader: FrameReader,
    seal: Option<Seal>,
    out: VecDeque<Vec<u8>>,
}

/// What has come in.
enum Incoming<M> {
    Message(M),
    /// A message of the Noise handshake, which was taken.
    Handshake,
}

impl Channel {
    fn new(limit: usize, seal: Option<Seal>) -> Self {
        Self { reader: FrameReader::new(limit), seal, out: VecDeque::new() }
    }

    fn set_limit(&mut self, limit: usize) {
        self.reader.set_limit(limit);
    }

    fn is_sealed(&self) -> bool {
        self.seal.is_some()
    }

    /// Drops the seal, to send to a peer without the key.
    fn unseal(&mut self) {
        self.seal = None;
    }

    fn push(&mut self, bytes: &[u8]) {
        self.reader.push(bytes);
    }

    fn send_raw(&mut self, bytes: Vec<u8>) {
        self.out.push_back(bytes);
    }

    fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }

    fn send_handshake(&mut self) -> Result<(), SessionError> {
        let Some(seal) = &mut self.seal else {
            return Ok(());
        };
        let body = seal.write_handshake()?;
        self.send_frame(FrameKind::Handshake, body)
    }

    fn send(&mut self, message: &impl Serialize) -> Result<(), SessionError> {
        let body = serde_json::to_vec(message)
            .map_err(|error| SessionError::Message(error.to_string()))?;
        match &mut self.seal {
            Some(seal) => {
                let sealed = seal.seal(&body)?;
                self.send_frame(FrameKind::Sealed, sealed)
            }
            None => self.send_frame(FrameKind::Clear, body),
        }
    }

    fn send_frame(&mut self, kind: FrameKind, body: Vec<u8>) -> Result<(), SessionError> {
        let bytes = Frame { kind, body }
            .encode()
            .ok_or_else(|| SessionError::Message("longer than a frame can be".to_owned()))?;
        self.out.push_back(bytes);
        Ok(())
    }

    /// The next whole message. On a sealed channel a clear message is accepted only before the end
    /// of the handshake: it can only be the peer's refusal.
    fn next<M>(
        &mut self,
        parse: fn(&[u8]) -> serde_json::Result<M>,
    ) -> Result<Option<Incoming<M>>, SessionError> {
        let Some(frame) = self.reader.next_frame()? else {
            return Ok(None);
        };
        let ready = self.seal.as_ref().is_some_and(Seal::is_ready);
        let body = match (frame.kind, &mut self.seal) {
            (FrameKind::Handshake, Some(seal)) if !ready => {
                seal.read_handshake(&frame.body)?;
                return Ok(Some(Incoming::Handshake));
            }
            (FrameKind::Sealed, Some(seal)) if ready => seal.open(&frame.body)?,
            (FrameKind::Clear, None) => frame.body,
            (FrameKind::Clear, Some(_)) if !ready => frame.body,
            (FrameKind::Handshake | FrameKind::Sealed, None) => {
                return Err(SessionError::Key("the peer encrypts and this end does not"));
            }
            _ => return Err(SessionError::OutOfTurn("a frame of the wrong kind")),
        };
        parse(&body)
            .map(|message| Some(Incoming::Message(message)))
            // The error quotes the peer, and ends in a log.
            .map_err(|error| {
                SessionError::Message(error.to_string().chars().take(QUOTED).collect())
            })
    }
}

/// Longest text about a message that cannot be read, characters.
const QUOTED: usize = 300;

#[cfg(test)]
mod tests;

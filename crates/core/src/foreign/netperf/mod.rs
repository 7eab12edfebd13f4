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
mod block;
pub mod classic;
mod client;
mod request;
mod server;

#[cfg(test)]
mod tests;

pub use answer::{CpuShares, Ready, Results};
pub use block::{Block, NARROW_BYTES, WIDE_BYTES, Width};
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

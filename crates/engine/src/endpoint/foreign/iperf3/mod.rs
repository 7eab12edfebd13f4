//! iperf3's clients: many at once, each with a thread for its control connection and a thread for
//! each of its streams.

mod access;
mod calls;
#[cfg_attr(not(feature = "iperf3-auth"), path = "no_key.rs")]
mod key;
mod output;
mod session;

pub use access::{AccessError, Iperf3Access};
pub(in crate::endpoint) use calls::Turns;
pub(in crate::endpoint) use session::run;

//! iperf3's clients: many at once, each with a thread for its control connection and one for each
//! of its streams.

mod access;
mod calls;
mod output;
mod session;

pub use access::{AccessError, Iperf3Access};
pub(in crate::endpoint) use calls::{Caller, Calls};
pub(in crate::endpoint) use session::run;

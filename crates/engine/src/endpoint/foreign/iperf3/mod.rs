//! iperf3's clients: many at once, each with a thread for its control connection and one for each of its streams.

mod calls;
mod output;
mod session;

pub(in crate::endpoint) use calls::{Caller, Calls};
pub(in crate::endpoint) use session::run;

//! Verdicts on connections of any program, by the rules for linerate's own runs.
//!
//! A [`ConnectionsDocument`] comes from the sockets of a host, watched from outside, or from a
//! capture. [`explain`] gives the rules of [`crate::ceilings`] what one end knows of each
//! [`Connection`]. A cause that this end cannot know is never named: then
//! [`Connection::needs_other_end`] has the command to run at the other end.
//!
//! | module | what is in it |
//! |---|---|
//! | `document` | the document and its parts |
//! | `capture` | evidence from the packets of a capture |
//! | `steady` | the part of a connection after slow start, which is explained |
//! | `held` | a clock, a writer or a buffer that holds the sender back, as packets show it |
//! | `mss` | the reason for small segments |
//! | `view` | the evidence of a connection, for the rules |
//! | `explain` | the verdict; the causes that an end can know |
//! | `remedy` | remedies for its program or its host |

mod capture;
mod document;
mod explain;
mod held;
mod mss;
mod remedy;
mod steady;
#[cfg(test)]
mod tests;
mod view;

pub use document::{
    CONNECTIONS_SCHEMA, Connection, ConnectionsDocument, LimitSource, ListenTotals, Listener,
    Process, Settled, Source, State, Vantage,
};
pub use explain::explain;

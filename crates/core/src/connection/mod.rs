//! Connections of any program: what holds them back, by the rules for linerate's own runs.
//!
//! A host's sockets, watched from outside, or a capture make a [`ConnectionsDocument`].
//! [`explain`] makes of each [`Connection`] what [`crate::ceilings`] looks at, with what one end
//! knows and no more. A cause that this end cannot know is never named: then
//! [`Connection::needs_other_end`] has the command to run there.
//!
//! | module | what is in it |
//! |---|---|
//! | `document` | the document and its parts |
//! | `capture` | what the packets of a capture are evidence of |
//! | `steady` | what of it is explained, once slow start is over |
//! | `held` | a clock, a writer or a buffer that keeps its sender back, by its packets |
//! | `mss` | why its segments are small |
//! | `half` | a connection as a record of one end |
//! | `explain` | its verdict; which causes that end can know |
//! | `remedy` | what its own program, or its host, has to change |

mod capture;
mod document;
mod explain;
mod half;
mod held;
mod mss;
mod remedy;
mod steady;
#[cfg(test)]
mod tests;

pub use document::{
    CONNECTIONS_SCHEMA, Connection, ConnectionsDocument, LimitSource, ListenTotals, Listener,
    Process, Settled, Source, State, Vantage,
};
pub use explain::explain;

//! How responsive a path is while it is busy: round trips per minute.
//!
//! After draft-ietf-ippm-responsiveness, "Responsiveness under Working Conditions": flows are added
//! until goodput and round trips no longer change ([`WorkingConditions`]); what a small exchange
//! then takes, on a connection of its own and on one that carries load, makes the figure
//! ([`Responsiveness`]); where it waits is a [`Queue`].

mod flow;
mod grade;
mod queue;
mod remedy;
mod score;
mod working;

pub use flow::{Look, Wait, waits};
pub use grade::Grade;
pub use queue::{Backlog, Place, Queue};
pub use remedy::{SendingHost, remedy};
pub use score::{Probe, Responsiveness, Samples};
pub use working::{Next, Seen, WorkingConditions};

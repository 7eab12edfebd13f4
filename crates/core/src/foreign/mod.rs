//! Who else speaks: tools whose clients an endpoint serves, and whose servers a client uses.
//!
//! Each protocol is a module of its own: pure state machines of the shape of [`crate::session`],
//! bytes and time in, bytes and events out. What is common to them is here: the [`Tool`], and
//! [`Encounter`], which makes a record of a test of which one end alone has linerate's evidence;
//! [`Demand`] is what a client asks of the owner.

mod demand;
mod encounter;
pub mod iperf3;
pub mod netperf;
mod told;

pub use crate::record::Tool;
pub use demand::{Demand, Excess};
pub use encounter::{Encounter, Role};

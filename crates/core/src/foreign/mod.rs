//! The protocols of other measuring tools: an endpoint serves their clients, and a client uses
//! their servers.
//!
//! Each protocol is a module of pure state machines of the shape of [`crate::session`]: bytes and
//! time in, bytes and events out. Shared by all are the [`Tool`], [`ForeignRun`], which makes the
//! record of a test of which only one end is linerate's, and [`Demand`], what a client asks of the
//! owner's limits.

mod demand;
pub mod iperf3;
pub mod netperf;
mod run;
mod told;

pub use crate::record::Tool;
pub use demand::{Demand, Excess};
pub use run::{ForeignRun, Role};

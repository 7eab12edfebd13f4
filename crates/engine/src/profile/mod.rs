//! Where the CPU time of a run goes: samples of what the CPUs do while it is measured.
//!
//! | module | what is in it |
//! |---|---|
//! | `sampling` | one end's profiler, from the beginning of the measured time to its end |
//! | `source` | what may be sampled here, and what is had instead |
//! | `count` | samples counted by address |
//! | `task` | whose thread a sample has met |
//! | `fold` | addresses to names, chains to folded stacks |
//! | `what_ifs` | models, projections and proofs of a test |
//! | `prove` | the runs that a projection is made from, and those that prove it |
//! | `cost` | what one sample takes |

mod cost;
mod count;
mod fold;
mod prove;
mod sampling;
mod source;
mod task;
mod what_ifs;

pub use prove::{DesignOptions, Designed, ProveOptions, prove, run_design, udp_records};
pub(crate) use sampling::{Circumstances, Profiler, Taken};
pub use what_ifs::{WhatIfOptions, WhatIfs, what_ifs};

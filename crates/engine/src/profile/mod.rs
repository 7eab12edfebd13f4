//! Where the CPU time of a run goes: samples of what the CPUs do while it is measured.
//!
//! | module | what is in it |
//! |---|---|
//! | `run` | a run with both hosts profiled, and a file beside it |
//! | `sampling` | one end's profiler, from the beginning of the measured time to its end |
//! | `source` | what may be sampled here, and what is had instead |
//! | `clock` | what drives the samples: cycles, or a timer |
//! | `hotplug` | CPUs that come and go meanwhile |
//! | `obstacle` | what could not be sampled, in words |
//! | `count` | samples counted by address |
//! | `task` | whose thread a sample has met |
//! | `fold` | addresses to names, chains to folded stacks |
//! | `prove` | the runs that a projection is made from, and those that prove it |
//! | `what_ifs` | both, beside a profile |
//! | `cost` | what one sample takes |

mod clock;
mod cost;
mod count;
mod fold;
mod hotplug;
mod obstacle;
mod prove;
mod run;
mod sampling;
mod source;
mod task;
mod what_ifs;

pub use prove::{DesignOptions, ProveOptions, prove, run_design};
pub use run::{disk_beside, profile};
pub(crate) use sampling::{Circumstances, Profiler, Taken};
pub use what_ifs::{WhatIfOptions, time_of_what_ifs, what_ifs};

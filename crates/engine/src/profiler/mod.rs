//! One end's profiler: samples of what its CPUs do while a run is measured.
//!
//! | module | what is in it |
//! |---|---|
//! | `sampling` | the profiler, from the beginning of the measured time to its end |
//! | `source` | what may be sampled here, and what is had instead |
//! | `clock` | what drives the samples: cycles, or a timer |
//! | `hotplug` | CPUs that come and go meanwhile |
//! | `obstacle` | what could not be sampled, in words |
//! | `count` | samples counted by address |
//! | `task` | whose thread a sample has met |
//! | `fold` | addresses to names, chains to folded stacks |
//! | `cost` | what one sample takes |

mod clock;
mod cost;
mod count;
mod fold;
mod hotplug;
mod obstacle;
mod sampling;
mod source;
mod task;

pub(crate) use sampling::{Circumstances, Profiler, Taken};

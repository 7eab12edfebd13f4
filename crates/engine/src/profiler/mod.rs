//! One end's profiler: samples of what its CPUs do while a run is measured.
//!
//! | module | what is in it |
//! |---|---|
//! | `sampling` | the profiler, from the beginning of the measured time to its end |
//! | `source` | what may be sampled here, and what is had instead; `source` | what drives the samples: cycles, or a timer; `source` | CPUs that come and go meanwhile; `source` | what could not be sampled, in words |
//! | `fold` | samples counted by address; `fold` | addresses to names, chains to folded stacks; `fold` | whose thread a sample has met |
//! | `cost` | what one sample takes |

mod cost;
mod fold;
mod sampling;
mod source;

pub(crate) use sampling::{Circumstances, Profiler, Taken};

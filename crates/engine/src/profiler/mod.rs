//! One end's profiler: samples of what its CPUs do while a run is measured.
//!
//! | module | what is in it |
//! |---|---|
//! | `sampling` | the profiler, from the beginning of the measured time to its end |
//! | `source` | what may be sampled here and what triggers it; CPUs that come and go; caveats |
//! | `fold` | samples counted, with their names and threads, as folded stacks |
//! | `cost` | what one sample takes |

mod cost;
mod fold;
mod sampling;
mod source;

pub(crate) use sampling::{Circumstances, Profiler, Taken};

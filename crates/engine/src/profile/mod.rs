//! What `linerate profile` runs: tests with both ends profiled, and what a change would bring.
//!
//! | module | what is in it |
//! |---|---|
//! | `run` | a run with both hosts profiled, and a file beside it |
//! | `prove` | the runs that a projection is made from, and those that prove it |
//! | `what_ifs` | both, beside a profile |

mod prove;
mod run;
mod what_ifs;

pub use prove::{DesignOptions, prove, run_design};
pub use run::{disk_beside, profile};
pub use what_ifs::{WhatIfOptions, time_of_what_ifs, what_ifs};

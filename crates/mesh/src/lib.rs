#![forbid(unsafe_code)]
//! Tests between all pairs of many sites: their schedule, the limits of each site's owner, and the
//! matrix of results.
//!
//! Nothing here touches a socket, a file, a thread or a clock: time, seed and texts are arguments.
//! A [`Mesh`] is read from a file; a [`Schedule`] decides which pair is tested when.
//!
//! ```
//! use linerate_core::units::Nanos;
//! use linerate_mesh::{Input, Mesh, Schedule};
//!
//! let file = r#"
//! [[site]]
//! name = "oslo"
//! host = "192.0.2.1"
//! [[site]]
//! name = "rome"
//! host = "192.0.2.2"
//! [[test]]
//! name = "bulk"
//! workload = { command = "stream", time = "10s" }
//! "#;
//! let mesh = Mesh::from_toml(file, 7)?;
//! let begin = Nanos::from_millis(1_800_000_000_000);
//! let mut schedule = Schedule::new(&mesh, begin);
//! for site in 0..2 {
//!     schedule.handle_input(begin, Input::Joined { site, reachable: true });
//! }
//! let assignment = schedule.poll_transmit().expect("both are there");
//! assert_eq!(mesh.tests[assignment.test].name, "bulk");
//! assert!(schedule.poll_transmit().is_none(), "a site is in one bandwidth test at a time");
//! schedule.handle_input(begin, Input::Finished { task: assignment.id, bytes: 1 << 30 });
//! # Ok::<(), linerate_core::toml_reader::FileError>(())
//! ```
//!
//! | module | what is in it |
//! |---|---|
//! | [`bus`] | the carrier of the messages, a trait |
//! | `limits` | what the owner of a site allows its agent to do; the ids of tasks |
//! | `matrix` | the last result of each pair, `linerate.matrix/1`, and what explains bad pairs |
//! | [`message`] | the messages between agents and coordinator |
//! | `plan` | the file of a mesh: sites, groups, tests, budgets |
//! | `schedule` | which pair is tested when: a state machine in virtual time |

pub mod bus;
#[cfg(test)]
mod clock_tests;
mod limits;
mod matrix;
pub mod message;
mod plan;
mod schedule;

pub use limits::{
    NotOffered, Offered, Offers, OwnerLimits, OwnerRefusal, Target, TestRequest, max_bytes,
};
pub use matrix::{
    CauseCount, MATRIX_SCHEMA, MatrixCell, MatrixDocument, MatrixSite, Suspect, SuspectKind,
    SuspectMetric, SuspectProof,
};
pub use plan::{
    DEFAULT_AT_ONCE, Group, MAX_GROUPS, MAX_SITES, MAX_TESTS, Mesh, MeshTest, Site, TestKind,
};
pub use schedule::{Assignment, Failure, Input, MissReason, Missed, Progress, Schedule, TaskId};

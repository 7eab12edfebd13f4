//! Experiment files: what a report varied, measured and found, in a form that can run again.
//!
//! [`Experiment::from_toml`] reads one and resolves it to [`Cell`]s, one for each combination of
//! levels; every name in it is known then, and every test checked. [`Experiment::next`] says which
//! [`Run`] comes next, after those that there are. [`Experiment::assemble`] makes the one document
//! of them: the report's table with the report's own figures beside ours, and what of its findings
//! agrees. No agreement is typed: each is computed from the records.
//!
//! | module | what is in it |
//! |---|---|
//! | `file` | the format, and what can be wrong with a file |
//! | `workload` | the keys of `[workload]`; what is run that is no network test |
//! | `model` | an experiment with everything resolved |
//! | `measure` | a run, and which figure of it is meant |
//! | `schedule` | which run is next, and how long the rest takes |
//! | `document` | what is kept of runs, and the document |
//! | `assemble`, `table`, `findings` | figures, tables and findings from runs |

mod assemble;
mod document;
mod file;
mod findings;
mod measure;
mod model;
mod schedule;
mod table;
#[cfg(test)]
mod tests;
mod workload;

pub use assemble::Ending;
pub use document::{
    CellFigure, DocumentColumn, DocumentFinding, DocumentRow, DocumentTable, EXPERIMENT_SCHEMA,
    ExperimentDocument,
};
pub(crate) use file::workload_of;
pub use file::{Choice, Files};
pub use measure::{Measure, QOS_PACKET_NS, Run};
pub use model::{Cell, Column, Experiment, ExperimentPath, Factor, Finding, Place};
pub use schedule::{Estimate, MAX_ATTEMPTS, Slot};
pub use workload::{FileTransfer, SPECIAL_FIGURES, Special, Work};

//! Experiment files: what a report varied, measured and found, as a file that runs it again.
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
//! | `workload`, `special` | the keys of `[workload]`; what is run that is no network test |
//! | `model`, `cell` | an experiment with everything resolved |
//! | `measure` | which figure of a run is meant |
//! | `schedule`, `estimate` | which run is next, and how long the rest takes |
//! | `run`, `document` | what is kept of runs, and the document |
//! | `assemble`, `table`, `findings` | figures, tables and findings from runs |
//! | `error` | what is wrong with a file, and where |

mod assemble;
mod cell;
mod document;
mod error;
mod estimate;
mod file;
mod findings;
mod measure;
mod model;
mod run;
mod schedule;
mod special;
mod table;
#[cfg(test)]
mod tests;
mod workload;

pub use crate::toml_reader::ReadProblem;
pub use assemble::Ending;
pub use cell::{Cell, ExperimentPath, Place};
pub use document::{
    CellFigure, DocumentColumn, DocumentFactor, DocumentFinding, DocumentRow, DocumentTable,
    EXPERIMENT_SCHEMA, ExperimentDocument,
};
pub use error::{ExperimentFileError, ExperimentProblem};
pub use estimate::Estimate;
pub(crate) use file::workload_of;
pub use file::{Choice, Files};
pub use measure::Measure;
pub use model::{Column, Expectation, Experiment, Factor, Finding};
pub use run::Run;
pub use schedule::{MAX_ATTEMPTS, Slot};
pub use special::{FileTransfer, SPECIAL_FIGURES, Special};
pub use workload::Work;

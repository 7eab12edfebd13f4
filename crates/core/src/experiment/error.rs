//! What is wrong with an experiment's file, and where.

use thiserror::Error;

use crate::compare::{FaultError, MetricError};
use crate::lab::TopologyError;
use crate::link::SpecError;
use crate::toml_reader::{self, FileError, ReadProblem};
use crate::treatment::TreatmentError;

/// A text that is no experiment, and where.
pub type ExperimentFileError = FileError<ExperimentProblem>;

/// What is wrong with an experiment's file.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ExperimentProblem {
    /// What can be wrong with any file.
    #[error(transparent)]
    Read(#[from] ReadProblem),
    /// A name that nothing has.
    #[error("there is no {what} `{name}`; {hint}")]
    Unknown {
        /// What it should be: a factor, a level, a column.
        what: &'static str,
        /// The name.
        name: String,
        /// A name that looks like it, or all names.
        hint: String,
    },
    /// A value of a workload's key cannot be read, or is none that it may have.
    #[error("{0}")]
    Workload(String),
    /// A cell's test has no meaning as a whole.
    #[error("{cell}{why}")]
    Test {
        /// The levels of the cell, as the beginning of a sentence; empty where there are no
        /// factors.
        cell: String,
        /// Why.
        why: String,
    },
    /// The lab's spec, as it is put together.
    #[error("in the spec `{spec}`, {error}")]
    Spec {
        /// The spec.
        spec: String,
        /// What is wrong with it.
        error: SpecError,
    },
    /// A topology's file.
    #[error("in the topology, {0}")]
    Topology(#[from] Box<TopologyError>),
    /// A file that this one names.
    #[error("{name}: {why}")]
    File {
        /// Its name.
        name: String,
        /// Why it cannot be had, or what is wrong with it.
        why: String,
    },
    /// A treatment.
    #[error("{0}")]
    Treatment(#[from] TreatmentError),
    /// A figure that no record has.
    #[error("{0}")]
    Metric(#[from] MetricError),
    /// A word that names no validity fault.
    #[error("{0}")]
    Fault(#[from] FaultError),
    /// More than an experiment may have.
    #[error("{found} {what}: an experiment has at most {most}")]
    TooMany {
        /// What.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many there may be.
        most: usize,
    },
}

/// A problem, and the byte at which it is.
pub(super) type Fault = toml_reader::Fault<ExperimentProblem>;

impl From<toml_reader::Fault<ReadProblem>> for Fault {
    fn from(fault: toml_reader::Fault<ReadProblem>) -> Self {
        Self::new(fault.offset, fault.problem.into())
    }
}

impl Fault {
    /// A name that none of `known` is.
    pub(super) fn unknown(
        at: toml_reader::At<&str>,
        what: &'static str,
        known: &[impl AsRef<str>],
    ) -> Self {
        let names: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
        let hint = crate::units::suggestion(at.value, names.iter().copied());
        let problem = ExperimentProblem::Unknown {
            what,
            name: crate::units::shortened(at.value),
            hint: hint.unwrap_or_else(|| {
                if names.is_empty() {
                    format!("this experiment has no {what} at all")
                } else {
                    crate::units::shortened(&format!("they are {}", names.join(", ")))
                }
            }),
        };
        Self::new(at.offset, problem)
    }
}

//! What is wrong with a lab's file, and where.

use thiserror::Error;

use crate::link::SpecError;
use crate::toml_reader::{self, FileError, ReadProblem};

/// A mistake in a lab's file, and its place.
pub type TopologyError = FileError<TopologyProblem>;

/// A mistake in a lab's file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TopologyProblem {
    /// A mistake that any file can have.
    #[error(transparent)]
    Read(#[from] ReadProblem),
    /// A mistake in the spec of a link.
    #[error("in the spec, {0}")]
    Spec(#[from] SpecError),
    /// What can be wrong with a lab alone, in a sentence.
    #[error("{0}")]
    Lab(String),
}

/// A mistake, and the byte at which it is.
pub(super) type Fault = toml_reader::Fault<TopologyProblem>;

impl Fault {
    pub(super) fn lab<T>(offset: usize, problem: String) -> Result<T, Self> {
        Err(Self::new(offset, TopologyProblem::Lab(problem)))
    }
}

impl From<toml_reader::Fault<ReadProblem>> for Fault {
    fn from(fault: toml_reader::Fault<ReadProblem>) -> Self {
        Self::new(fault.offset, fault.problem.into())
    }
}

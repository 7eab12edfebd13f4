//! What is wrong with a lab's file, and where.

use thiserror::Error;

use crate::lab::Prefix;
use crate::link::SpecError;
use crate::toml_reader::{self, FileError, ReadProblem};

/// A text that is no topology, and where.
pub type TopologyError = FileError<TopologyProblem>;

/// What is wrong with a lab's file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TopologyProblem {
    /// What can be wrong with any file.
    #[error(transparent)]
    Read(#[from] ReadProblem),
    /// No host or router has that name.
    #[error("no host or router has the name `{name}`; {hint}")]
    UnknownNode {
        /// The name.
        name: String,
        /// A name that looks like it, or how to make one.
        hint: String,
    },
    /// A link's spec.
    #[error("in the spec, {0}")]
    Spec(#[from] SpecError),
    /// Two links have addresses in common.
    #[error("{}/{} overlaps with {}/{} of the link \
        `{link}`", network.address, network.length, other.address, other.length)]
    Overlap {
        /// The network.
        network: Prefix,
        /// The one that is there already.
        other: Prefix,
        /// Whose that is.
        link: String,
    },
    /// There are more than a lab can have.
    #[error("a lab has at most {most} {what}")]
    TooMany {
        /// What.
        what: &'static str,
        /// How many there may be.
        most: usize,
    },
    /// A setting that is not a namespace's own.
    #[error("`{key}` cannot be set for a host: {hint}")]
    Sysctl {
        /// The key.
        key: String,
        /// Why.
        hint: &'static str,
    },
}

/// A problem, and the byte at which it is.
pub(super) type Fault = toml_reader::Fault<TopologyProblem>;

impl From<toml_reader::Fault<ReadProblem>> for Fault {
    fn from(fault: toml_reader::Fault<ReadProblem>) -> Self {
        Self::new(fault.offset, fault.problem.into())
    }
}

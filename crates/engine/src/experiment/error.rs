//! What can go wrong in an experiment.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::category::{Categorized, Category};
use crate::error::MeasureError;
use crate::lab::LabError;
use crate::qos::QosError;
use crate::state_files::StateError;

/// A run of an experiment, or all of it, that could not be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// Its path could not be made.
    #[error("cannot make the path")]
    Lab(#[from] LabError),
    /// A CPU could not be shared out.
    #[error("cannot give the hosts their share of a CPU")]
    Cpu(#[source] LabError),
    /// The run failed.
    #[error("the run failed")]
    Measure(#[from] MeasureError),
    /// The file system refused something to a workload that is no network test.
    #[error("cannot {what} in {}", directory.display())]
    File {
        /// Operation that failed.
        what: &'static str,
        /// Where the file was, or was to be.
        directory: PathBuf,
        /// From the kernel.
        source: io::Error,
    },
    /// The cost of a policy's program could not be measured.
    #[error("cannot run the policy's program by itself")]
    Policy(#[from] QosError),
    /// The file of runs could not be opened, read or written.
    #[error(transparent)]
    State(#[from] StateError),
    /// Somebody else appends to the file of runs.
    #[error("{}: another process runs this experiment", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The runs in the file are not this experiment's.
    #[error(
        "{}: it holds runs of another experiment, or of this one before its file, seed or path was \
         changed; \
         --fresh throws them away, --records FILE keeps them", path.display()
    )]
    Other {
        /// The file.
        path: PathBuf,
    },
    /// A file is no file of runs.
    #[error("{}: line {line} is no run of an experiment: {why}; --records FILE takes another \
        file", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// Why.
        why: String,
    },
    /// It has a real path and nobody said which endpoint that leads to.
    #[error("the experiment has a real path, and no endpoint was resolved")]
    NoTarget,
    /// Stopped by the user.
    #[error("interrupted")]
    Interrupted,
}

impl Categorized for ExperimentError {
    fn category(&self) -> Category {
        match self {
            Self::Lab(error) => error.category(),
            Self::Measure(error) => error.category(),
            Self::Policy(error) => error.category(),
            Self::Cpu(_) => Category::Missing,
            Self::State(error) if error.is_of_writing() => Category::Failed,
            Self::State(_)
            | Self::InUse { .. }
            | Self::Other { .. }
            | Self::Malformed { .. }
            | Self::NoTarget => Category::Usage,
            Self::File { .. } | Self::Interrupted => Category::Failed,
        }
    }
}

impl ExperimentError {
    /// Whether the user asked for it.
    pub(crate) fn is_interruption(&self) -> bool {
        matches!(self, Self::Interrupted | Self::Measure(MeasureError::Interrupted))
    }
}

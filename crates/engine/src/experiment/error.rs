//! What can go wrong in an experiment.

use thiserror::Error;

use super::records::RecordsError;
use super::special::SpecialError;
use crate::category::{Categorized, Category};
use crate::error::MeasureError;
use crate::lab::{CpuError, LabError};
use crate::qos::QosError;

/// A run of an experiment, or all of it, that could not be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// Its path could not be made.
    #[error("cannot make the path")]
    Lab(#[from] LabError),
    /// A CPU could not be shared out.
    #[error("cannot give the hosts their share of a CPU")]
    Cpu(#[from] CpuError),
    /// The run failed.
    #[error("the run failed")]
    Measure(#[from] MeasureError),
    /// A workload that is no network test failed.
    #[error(transparent)]
    Special(#[from] SpecialError),
    /// The cost of a policy's program could not be measured.
    #[error("cannot run the policy's program by itself")]
    Policy(#[from] QosError),
    /// The file of runs cannot be used.
    #[error(transparent)]
    Records(#[from] RecordsError),
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
            Self::Records(error) => error.category(),
            Self::Policy(error) => error.category(),
            Self::Cpu(_) => Category::Missing,
            Self::NoTarget => Category::Usage,
            Self::Special(_) | Self::Interrupted => Category::Failed,
        }
    }
}

impl ExperimentError {
    /// Whether the user asked for it.
    pub fn is_interruption(&self) -> bool {
        matches!(
            self,
            Self::Interrupted
                | Self::Measure(MeasureError::Interrupted)
                | Self::Special(SpecialError::Interrupted)
        )
    }
}

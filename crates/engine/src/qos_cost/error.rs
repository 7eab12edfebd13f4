//! What can go wrong while the cost of a policy is measured.

use linerate_core::link::SpecError;
use linerate_core::stats::StatsError;
use linerate_qos::cost::PlanFault;
use thiserror::Error;

use crate::category::{Categorized, Category};
use crate::experiment::ExperimentError;
use crate::lab::LabError;
use crate::qos::QosError;

/// The cost of a policy could not be measured, or not to its end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CostError {
    /// The policy is wrong, or this host has no eBPF.
    #[error(transparent)]
    Policy(#[from] QosError),
    /// A link cannot be written as one.
    #[error("the link cannot be emulated")]
    Link(#[source] SpecError),
    /// This host allows no lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// Runs failed.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// A cell cannot be run so.
    #[error(transparent)]
    Plan(#[from] PlanFault),
    /// A comparison cannot be designed so.
    #[error(transparent)]
    Statistics(#[from] StatsError),
}

impl Categorized for CostError {
    fn category(&self) -> Category {
        match self {
            Self::Policy(error) => error.category(),
            Self::Lab(error) => error.category(),
            Self::Experiment(error) => error.category(),
            Self::Link(_) | Self::Plan(_) | Self::Statistics(_) => Category::Usage,
        }
    }
}

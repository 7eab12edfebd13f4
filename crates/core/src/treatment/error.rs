//! The errors of treatments.

use std::fmt::Display;

use thiserror::Error;

use crate::plan::PlanError;
use crate::units::shortened;

/// A text that is no treatment, treatments that cannot be applied as they stand (nothing was
/// changed then), or one that had no effect.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum TreatmentError {
    /// A text that is no treatment, or treatments that cannot be applied as they stand.
    #[error("{0}")]
    Invalid(String),
    /// The test has the option already, on both sides.
    #[error(
        "`{name}` is set for all runs already: give it as a treatment or as an option, not as both"
    )]
    Given {
        /// The treatment.
        name: &'static str,
    },
    /// The record of a run shows something else than was asked for.
    #[error("`{treatment}` did not take: the run had {found}: {why}")]
    NotTaken {
        /// The treatment.
        treatment: String,
        /// What the record shows.
        found: String,
        /// What may be the reason.
        why: &'static str,
    },
    /// With the treatment the test is outside its limits.
    #[error(transparent)]
    Test(#[from] PlanError),
}

impl TreatmentError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }

    /// A treatment that is given twice for one end.
    pub fn repeated(name: &str) -> Self {
        Self::new(format!("`{name}` is given twice"))
    }

    /// A treatment that is known, and refused.
    pub(super) fn refused(name: &str, why: &str) -> Self {
        Self::new(format!("`{name}` is refused: {why}"))
    }

    /// A value of another kind than `wanted`, or out of its range.
    pub(super) fn value(name: &str, value: &str, wanted: impl Display) -> Self {
        let value = shortened(value);
        Self::new(format!("`{name}={value}`: it must be {wanted}"))
    }

    /// Two treatments of one side that exclude each other.
    pub(super) fn excluded(one: impl Display, other: impl Display, why: &str) -> Self {
        Self::new(format!("`{one}` and `{other}` exclude each other: {why}"))
    }

    /// A test whose traffic does not have what is treated.
    pub(super) fn unfit(name: &str, why: &str) -> Self {
        Self::new(format!("`{name}` does not fit this test: {why}"))
    }
}

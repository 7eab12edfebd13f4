//! What can be wrong with a treatment, before anything is changed.

use thiserror::Error;

use crate::plan::PlanError;

/// A text that is no treatment, or treatments that cannot be applied as they stand. Nothing was
/// changed.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum TreatmentError {
    /// It is not `NAME=VALUE`.
    #[error("`{text}`: {why}")]
    Malformed {
        /// The part of the text.
        text: String,
        /// How it is written.
        why: &'static str,
    },
    /// The table has no such treatment.
    #[error("there is no treatment `{name}`; {hint}")]
    Unknown {
        /// The name.
        name: String,
        /// A name that looks like it, or all names.
        hint: String,
    },
    /// The kernel setting is not among those that a treatment may change.
    #[error("the kernel setting `{key}` is not among those that a treatment may change; {hint}")]
    UnknownSysctl {
        /// The key.
        key: String,
        /// A key that looks like it, or where the list is.
        hint: String,
    },
    /// The value is of another kind, or out of range.
    #[error("`{name}={value}`: it must be {wanted}")]
    Value {
        /// The treatment, or the kernel setting.
        name: String,
        /// The value.
        value: String,
        /// Kind and range.
        wanted: String,
    },
    /// It is known, and refused.
    #[error("`{name}` is refused: {why}")]
    Refused {
        /// The treatment.
        name: String,
        /// Why, and what to use instead.
        why: &'static str,
    },
    /// It is given twice for the same end.
    #[error("`{name}` is given twice")]
    Repeated {
        /// The treatment, with its end where one was named.
        name: String,
    },
    /// There are more than anybody compares.
    #[error(
        "{count} treatments are given; at most {} may be",
        super::MAX_TREATMENTS
    )]
    TooMany {
        /// How many.
        count: usize,
    },
    /// Two treatments of one side exclude each other.
    #[error("`{one}` and `{other}` exclude each other: {why}")]
    Excluded {
        /// The one.
        one: String,
        /// The other.
        other: String,
        /// Why.
        why: &'static str,
    },
    /// The test has the option already, on both sides.
    #[error(
        "`{name}` is set for all runs already: give it as a treatment or as an option, not as both"
    )]
    Given {
        /// The treatment.
        name: &'static str,
    },
    /// The test's traffic does not have what it changes.
    #[error("`{name}` does not fit this test: {why}")]
    Unfit {
        /// The treatment.
        name: &'static str,
        /// Why.
        why: &'static str,
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
    /// The file of a policy cannot be had.
    #[error("the policy `{name}`: {why}")]
    File {
        /// As it was written.
        name: String,
        /// Why.
        why: String,
    },
    /// With the treatment the test is outside its limits.
    #[error(transparent)]
    Test(#[from] PlanError),
}

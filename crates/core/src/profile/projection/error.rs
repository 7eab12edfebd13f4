//! Why there is no model.

use thiserror::Error;

/// No model can be fitted, or no projection made from it.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum ProjectionError {
    /// Fewer runs than would over-determine the terms.
    #[error("{runs} runs for {terms} terms: a model needs at least {needed}")]
    TooFew {
        /// Runs that there are.
        runs: usize,
        /// Terms that they exercise.
        terms: usize,
        /// Runs that are needed.
        needed: usize,
    },
    /// A run without CPU time.
    #[error("a run of the design (`{point}`) took no CPU time that could be seen: make it longer")]
    NoTime {
        /// Where in the design.
        point: String,
    },
}

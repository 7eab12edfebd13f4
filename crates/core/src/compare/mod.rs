//! The comparison of two treatments: the figure that is compared, the faults that exclude a pair,
//! and the conclusion from all pairs.
//!
//! The test itself is [`linerate_stats::paired`]: pairs in random order, signs that are a fair coin
//! if the change does nothing, looks fixed before the first run.
//!
//! | module | what is in it |
//! |---|---|
//! | `metric`, `fault` | which figure of a record is compared; what spoils a run for it |
//! | `ledger` | every pair that ran, which count, what they amount to |
//! | `document` | the document of a comparison |

mod document;
mod fault;
mod ledger;
mod metric;
#[cfg(test)]
pub(crate) mod samples;

pub use document::{COMPARISON_SCHEMA, Comparison, IdleLoad, ReadBack, WouldDecide, asked_of_both};
pub use fault::{FAULTS, Fault};
pub use ledger::{ComparedMetric, ComparedPair, Ledger, OneSidedFault, SeenFault, Standing};
pub use linerate_stats::paired::{
    ComparisonVerdict, Conclusion, Design, MAX_METRICS, MAX_PAIRS, MetricConclusion, Observation,
    Order, Schedule, Sequential, Side, log_ratio, observational,
};
pub use metric::Metric;

//! What a change is worth, with an error rate that is known: the sequential paired comparison.
//!
//! Runs under A and B come in pairs, one right after the other, the order in each pair by a fair
//! coin ([`Schedule`]). If the treatments are the same, that coin alone decides which run is called
//! A, so the sign of the pair's log ratio ln(b/a) is a fair coin too, whatever the path does
//! meanwhile: drift, bursts, two modes, a first run that is always the faster one. A test that asks
//! nothing but how rare the signs are (a sign-flip test, Fisher 1935) is therefore exact.
//!
//! [`Sequential`] makes that test at looks that were fixed before the first run, and shares the 5 %
//! of error out among them, so that looking early costs nothing of it. It ends with DIFFERENT,
//! EQUIVALENT (within a margin that was set before) or INCONCLUSIVE, an effect and its interval.
//! What this is worth is simulated:
//! `cargo run --release -p linerate-core --example error_rates`.
//!
//! [`observational`] is for figures that were not taken in pairs. It has an effect and an interval,
//! and no verdict.
//!
//! | module | what is in it |
//! |---|---|
//! | `schedule` | which run of a pair comes first |
//! | `metric`, `fault` | which figure of a record is compared; what spoils a run for it |
//! | `ledger` | every pair that ran, which count, what they amount to |
//! | `design` | what is fixed before: looks, the error spent at each, margin, number of metrics |
//! | `sequential` | pairs in, conclusion out |
//! | `track` | one metric's tests, and where they crossed |
//! | `holm` | the error shared out among several metrics |
//! | `sign_flip` | the test over all looks |
//! | `ranks`, `effect` | signed ranks, their distribution; the effect and its interval |
//! | `conclusion` | what is said |
//! | `document` | the document of a comparison |
//! | `observational`, `mann_whitney` | figures that were not paired |
//!
//! ```
//! use linerate_core::compare::{Design, Sequential, Verdict3, log_ratio};
//!
//! let design = Design { margin_percent: None, metrics: 1, max_pairs: 30, seed: 1 };
//! let mut test = Sequential::new(&design)?;
//! let pairs = [(94.1, 101.2), (93.7, 103.0), (95.0, 102.5), (94.4, 104.1), (92.9, 101.0), (94.8,
//! 103.3), (93.3, 102.2)]; for (a, b) in pairs {
//!     assert!(test.push(&[log_ratio(a, b)?])?.is_none());
//! }
//! let conclusion = test.push(&[log_ratio(94.0, 103.4)?])?.expect("eight pairs of one sign are
//! enough"); assert_eq!(conclusion.verdict, Verdict3::Different);
//! assert!(conclusion.metrics[0].interval_percent[0] > 7.0);
//! # Ok::<(), linerate_core::stats::StatsError>(())
//! ```

mod conclusion;
mod design;
mod document;
mod effect;
mod fault;
mod holm;
mod ledger;
mod mann_whitney;
mod metric;
mod observational;
mod ranks;
#[cfg(test)]
pub(crate) mod samples;
mod schedule;
mod sequential;
mod sign_flip;
mod track;

pub use conclusion::{Conclusion, MetricConclusion, Verdict3};
pub use design::{Design, MAX_METRICS, MAX_PAIRS};
pub use document::{COMPARISON_SCHEMA, Comparison, IdleLoad, ReadBack};
pub use fault::{FAULTS, Fault, FaultError};
pub use ledger::{
    ComparedMetric, ComparedPair, Ledger, MAX_EXCLUDED, OneSidedFault, SeenFault, Side, Standing,
};
pub use metric::{Metric, MetricError};
pub use observational::{Observation, observational};
pub use schedule::{Order, Schedule};
pub use sequential::{Sequential, log_ratio};

//! The sequential paired comparison: the effect of a change, with a known error rate.
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
//! `cargo run --release -p linerate-stats --example error_rates`.
//!
//! [`observational`] is for figures that were not taken in pairs. It has an effect and an interval,
//! and no verdict.
//!
//! | module | what is in it |
//! |---|---|
//! | `design` | what is fixed before, order, margin and looks among it; the effect; what is said |
//! | `sequential` | pairs in, conclusion out; the tests of each metric, and the error they share |
//! | `sign_flip` | the test over all looks; signed ranks and their distribution |
//! | `observational` | figures that were not paired |
//!
//! ```
//! use linerate_stats::paired::{Design, Sequential, ComparisonVerdict, log_ratio};
//!
//! let design = Design { margin_percent: None, metrics: 1, max_pairs: 30, seed: 1 };
//! let mut test = Sequential::new(&design)?;
//! let a = [94.1, 93.7, 95.0, 94.4, 92.9, 94.8, 93.3];
//! let b = [101.2, 103.0, 102.5, 104.1, 101.0, 103.3, 102.2];
//! for (a, b) in a.into_iter().zip(b) {
//!     assert!(test.push(&[log_ratio(a, b)?])?.is_none());
//! }
//! let conclusion = test.push(&[log_ratio(94.0, 103.4)?])?;
//! let conclusion = conclusion.expect("eight pairs of one sign are enough");
//! assert_eq!(conclusion.verdict, ComparisonVerdict::Different);
//! assert!(conclusion.metrics[0].interval_percent[0] > 7.0);
//! # Ok::<(), linerate_stats::StatsError>(())
//! ```

mod design;
mod observational;
mod sequential;
mod sign_flip;

pub use design::{
    ComparisonVerdict, Conclusion, Design, MAX_METRICS, MAX_PAIRS, MetricConclusion, Order,
    Schedule, Side,
};
pub use observational::{Observation, observational};
pub use sequential::{Sequential, log_ratio};

pub(crate) use observational::inversion_shares;

#![forbid(unsafe_code)]
//! Statistics of measured figures: spread, confidence interval, and whether a sample is one figure.
//!
//! Everything here is a pure function of its arguments. Intervals are distribution-free and at 95 %
//! ([`CONFIDENCE`]): throughputs and latencies are neither normal nor symmetric, and a handful of
//! runs cannot show that they are.
//!
//! * over runs: [`Summary`], [`median_interval`], [`interval_of_runs`] (in their order),
//!   [`precision_reached`], [`figure`] (one figure, modes or a drift)
//! * of a series over days: [`changes`](changes())
//! * of counts: [`wilson`]
//! * against what a report states: [`Accepted`]
//! * over packets, without allocation: [`Jitter`], [`AddedDelay`], [`SequenceTracker`],
//!   [`LatencyHistogram`]
//! * of A against B: [`paired`], a sequential test whose error rate is known
//!
//! ```
//! use linerate_stats::{Summary, median_interval};
//!
//! let runs = [94.1, 93.7, 95.0, 94.4, 92.9, 94.8];
//! assert_eq!(Summary::new(&runs)?.median(), 94.25);
//! let interval = median_interval(&runs)?;
//! assert_eq!((interval.low, interval.high), (92.9, 95.0));
//! # Ok::<(), linerate_stats::StatsError>(())
//! ```

mod changes;
mod histogram;
mod packets;
pub mod paired;
mod shape;
mod summary;

pub use changes::{ChangePoint, FALSE_ALARMS, TimedValue, changes, new_change, two_sided_normal};
pub use histogram::{LatencyBuckets, LatencyHistogram, LatencySummary};
pub use packets::{AddedDelay, Arrival, DelayGrowth, Jitter, SequenceCounts, SequenceTracker};
pub use shape::{Figure, Mode, figure};
pub use summary::{
    Accepted, Agreement, MedianInterval, NORMAL_QUANTILE, Precision, Proportion, Summary,
    interval_of_runs, median_interval, precision_reached, usual_difference, wilson,
};

/// The confidence of every interval in this crate.
pub const CONFIDENCE: f64 = 0.95;

/// Why a statistic cannot be computed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StatsError {
    /// There is nothing to compute it from.
    #[error("{operation}: no samples")]
    Empty {
        /// The statistic that was asked for.
        operation: &'static str,
    },
    /// A sample is not a number or infinite.
    #[error("{operation}: sample {index} is {value}, not a finite number")]
    NotFinite {
        /// The statistic that was asked for.
        operation: &'static str,
        /// Position of the sample, from 0.
        index: usize,
        /// The sample.
        value: f64,
    },
    /// An argument is outside its range.
    #[error("{operation}: {value} is not {allowed}")]
    OutOfRange {
        /// The statistic that was asked for.
        operation: &'static str,
        /// The refused argument.
        value: f64,
        /// What the argument must be.
        allowed: &'static str,
    },
}

impl StatsError {
    fn out_of_range(operation: &'static str, value: f64, allowed: &'static str) -> Self {
        Self::OutOfRange { operation, value, allowed }
    }
}

/// The samples in ascending order, if there are any and all are finite.
fn sorted(operation: &'static str, samples: &[f64]) -> Result<Vec<f64>, StatsError> {
    if samples.is_empty() {
        return Err(StatsError::Empty { operation });
    }
    if let Some(index) = samples.iter().position(|value| !value.is_finite()) {
        return Err(StatsError::NotFinite { operation, index, value: samples[index] });
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Ok(sorted)
}

/// Median of samples in ascending order: the middle one, or the mean of the two in the middle.
fn median_of_sorted(sorted: &[f64]) -> f64 {
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

/// Median of samples in any order, of which there is one at least.
pub fn median(samples: &[f64]) -> f64 {
    let mut ascending = samples.to_vec();
    ascending.sort_by(f64::total_cmp);
    median_of_sorted(&ascending)
}

/// Standard deviation over mean of a sample; `None` of fewer than two, and without a positive mean.
pub fn variation(samples: &[f64]) -> Option<f64> {
    let n = samples.len() as f64;
    let mean = samples.iter().sum::<f64>() / n;
    let square = samples.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    Some(square.sqrt() / mean).filter(|variation| mean > 0.0 && variation.is_finite())
}

/// Random samples for the simulations that the tests of this module run; every one has a fixed
/// seed.
#[cfg(test)]
mod simulation {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    pub(super) struct Source(ChaCha8Rng);

    impl Source {
        pub(super) fn new(seed: u64) -> Self {
            Self(ChaCha8Rng::seed_from_u64(seed))
        }

        /// Uniform in (0, 1).
        pub(super) fn uniform(&mut self) -> f64 {
            ((self.0.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
        }

        /// Standard normal, by Box and Muller.
        pub(super) fn normal(&mut self) -> f64 {
            let radius = (-2.0 * self.uniform().ln()).sqrt();
            radius * (std::f64::consts::TAU * self.uniform()).cos()
        }

        /// Exponential with mean 1.
        pub(super) fn exponential(&mut self) -> f64 {
            -self.uniform().ln()
        }

        /// Cauchy: tails so heavy that it has no mean.
        pub(super) fn cauchy(&mut self) -> f64 {
            (std::f64::consts::PI * (self.uniform() - 0.5)).tan()
        }

        pub(super) fn samples(
            &mut self,
            n: usize,
            mut draw: impl FnMut(&mut Self) -> f64,
        ) -> Vec<f64> {
            (0..n).map(|_| draw(self)).collect()
        }
    }

    /// Share of `trials` for which `event` holds.
    pub(super) fn rate(trials: u32, mut event: impl FnMut() -> bool) -> f64 {
        f64::from((0..trials).filter(|_| event()).count() as u32) / f64::from(trials)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_and_non_finite_samples_are_errors_everywhere() {
        type Statistic = fn(&[f64]) -> Result<(), StatsError>;
        let statistics: [Statistic; 4] = [
            |samples| Summary::new(samples).map(drop),
            |samples| median_interval(samples).map(drop),
            |samples| precision_reached(samples, 1.0).map(drop),
            |samples| figure(samples).map(drop),
        ];
        for statistic in statistics {
            assert!(matches!(statistic(&[]), Err(StatsError::Empty { .. })));
            for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let error = statistic(&[1.0, bad]);
                assert!(matches!(error, Err(StatsError::NotFinite { index: 1, .. })));
            }
        }
    }
}

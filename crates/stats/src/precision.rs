//! Whether there are enough runs for a wanted precision.

use super::median_interval::{MedianInterval, median_interval};
use super::{CONFIDENCE, NORMAL_QUANTILE, StatsError};

/// Whether a median is known precisely enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Precision {
    /// The 95 % interval lies within the wanted distance of the median.
    Reached {
        /// Half-width of the interval, in percent of the median.
        half_width_percent: f64,
    },
    /// It does not, or there are fewer than the 6 runs that a 95 % interval needs.
    NeedsMore {
        /// Half-width of the interval, in percent of the median; below 6 runs, that of the whole
        /// range.
        half_width_percent: f64,
        /// An estimate of how many more runs it will take.
        more_runs: usize,
    },
    /// The median is 0 and the interval is not: no number of runs can be foretold to reach a
    /// percentage of nothing.
    NotRelative,
}

/// Is the 95 % interval of the median within `percent` of the median on both sides, and if not, how
/// many more runs?
///
/// The estimate takes the samples near the median to be evenly spread: the interval's width is then
/// proportional to the share of the sample that it spans, which falls with 1.96/√n. It is rough for
/// a handful of runs; ask again after them. Stopping at the first run that reaches the precision
/// makes the interval cover less often than it says, because it stops where the spread happens to
/// look small: 94.6 % in the simulation below. A number of runs that was fixed before does not.
///
/// # Errors
/// Those of [`median_interval`], and [`StatsError::OutOfRange`] if `percent` is not positive and
/// finite.
pub fn precision_reached(samples: &[f64], percent: f64) -> Result<Precision, StatsError> {
    if !(percent > 0.0 && percent.is_finite()) {
        let allowed = "a positive percentage";
        return Err(StatsError::out_of_range("precision", percent, allowed));
    }
    let interval = median_interval(samples)?;
    let half_width = interval.half_width();
    if interval.median == 0.0 && half_width > 0.0 {
        return Ok(Precision::NotRelative);
    }
    let relative = half_width / interval.median.abs() * 100.0;
    let half_width_percent = if half_width == 0.0 { 0.0 } else { relative };
    if interval.reaches_confidence() && half_width_percent <= percent {
        return Ok(Precision::Reached { half_width_percent });
    }
    let needed = runs_needed(&interval, half_width_percent / percent);
    Ok(Precision::NeedsMore {
        half_width_percent,
        more_runs: needed.max(interval.n + 1) - interval.n,
    })
}

/// Runs after which the interval is narrower by the factor `shrink`.
fn runs_needed(interval: &MedianInterval, shrink: f64) -> usize {
    let (skipped, _) = super::median_interval::order_statistics(interval.n);
    let n = interval.n as f64;
    let spanned = (n - 1.0 - 2.0 * skipped as f64) / (n + 1.0);
    if spanned == 0.0 || shrink == 0.0 {
        return FEWEST_RUNS;
    }
    let wanted = spanned / shrink;
    // The cast saturates: an absurd precision asks for an absurd number of runs.
    let runs = (NORMAL_QUANTILE / wanted).powi(2).ceil() as usize;
    runs.max(FEWEST_RUNS)
}

/// The fewest samples whose whole range covers the median with [`CONFIDENCE`]: 1 − 2^(1−6) = 0.969.
const FEWEST_RUNS: usize = 6;

const _: () = assert!(CONFIDENCE == 0.95, "FEWEST_RUNS belongs to 95 %");

#[cfg(test)]
mod tests {
    use super::super::simulation::{Source, rate};
    use super::*;

    #[test]
    fn tight_samples_reach_the_precision_and_few_never_do() {
        let samples = [99.0, 100.0, 101.0, 100.0, 100.5, 99.5];
        assert_eq!(
            precision_reached(&samples, 1.0).unwrap(),
            Precision::Reached { half_width_percent: 1.0 }
        );
        let few = precision_reached(&[100.0; 4], 1.0).unwrap();
        let needs = Precision::NeedsMore { half_width_percent: 0.0, more_runs: 2 };
        assert_eq!(few, needs);
        let one = precision_reached(&[100.0], 1.0).unwrap();
        assert!(matches!(one, Precision::NeedsMore { more_runs: 5, .. }));
    }

    #[test]
    fn a_median_of_zero_has_no_relative_precision() {
        let around_zero = [-1.0, 0.0, 1.0];
        assert_eq!(precision_reached(&around_zero, 5.0).unwrap(), Precision::NotRelative);
        let all_zero = precision_reached(&[0.0; 6], 5.0).unwrap();
        assert!(matches!(all_zero, Precision::Reached { .. }));
    }

    #[test]
    fn a_percentage_that_is_not_positive_is_an_error() {
        for percent in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(precision_reached(&[1.0], percent).is_err());
        }
    }

    #[test]
    fn the_estimate_is_within_a_factor_of_two_of_what_it_takes() {
        // Normal runs with 5 % of spread and ±1 % wanted: 1.96·1.2533·5 % / √n = 1 % at n = 151.
        let mut source = Source::new(2);
        let mut totals: Vec<usize> = (0..400)
            .map(|_| {
                let samples = source.samples(30, |s| 100.0 + 5.0 * s.normal());
                match precision_reached(&samples, 1.0).unwrap() {
                    Precision::NeedsMore { more_runs, .. } => 30 + more_runs,
                    reached => panic!("30 runs cannot reach it: {reached:?}"),
                }
            })
            .collect();
        totals.sort_unstable();
        assert!((75..=302).contains(&totals[200]), "median estimate {}", totals[200]);
    }

    #[test]
    fn stopping_at_the_precision_costs_a_bounded_share_of_the_coverage() {
        let mut source = Source::new(3);
        let covered = rate(2_000, || {
            let mut samples = source.samples(6, |s| 100.0 + 5.0 * s.normal());
            while !matches!(precision_reached(&samples, 5.0).unwrap(), Precision::Reached { .. }) {
                samples.push(100.0 + 5.0 * source.normal());
            }
            let interval = median_interval(&samples).unwrap();
            (interval.low..=interval.high).contains(&100.0)
        });
        assert!((0.93..0.96).contains(&covered), "{covered}");
    }
}

//! Comparison of figures that were not taken in pairs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::design::{ALPHA, refused};
use super::effect::percent;
use super::mann_whitney::{Differences, NullCount, smallest_p_value};
use crate::{NORMAL_QUANTILE, StatsError, Summary};

/// What figures show that were not taken in interleaved pairs. There is no verdict: whatever else
/// changed between the runs under A and those under B is in the effect too, and no number of runs
/// takes it out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Observation {
    /// Number of runs under A.
    pub runs_a: usize,
    /// Number of runs under B.
    pub runs_b: usize,
    /// Median of the runs under A, in their unit.
    pub median_a: f64,
    /// Median of the runs under B, in their unit.
    pub median_b: f64,
    /// By how much B's figures differ from A's, in percent of A's: the median of all ratios of a
    /// run under B to one under A (Hodges–Lehmann).
    pub effect_percent: f64,
    /// The effects that the Mann–Whitney test at 5 % does not refuse, in percent. Where the runs
    /// are too few for 5 %, it is the range of all those ratios.
    pub interval_percent: [f64; 2],
    /// What the interval holds the effect with, in percent, if nothing but the treatment and chance
    /// was at work: 95 or more, less where the runs are too few for that, 0 for one run against
    /// one.
    pub confidence_percent: f64,
    /// Two-sided p-value of the Mann–Whitney test under that same condition; ties count against a
    /// difference.
    pub p_value: f64,
    /// The smallest p-value that so many runs could have had, whatever they measured.
    pub smallest_p_value: f64,
    /// The fewest runs under each of the two with which any test of ranks can reach 5 %.
    pub runs_to_reach_5_percent: usize,
    /// Runs under each that would have shown an effect of this size in four of five cases, at the
    /// spread seen here, to one significant digit or so. Absent where the effect is 0 or the spread
    /// not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs_needed: Option<usize>,
}

impl Observation {
    /// Whether this number of runs could reach 5 % at all.
    pub fn can_reach_5_percent(&self) -> bool {
        self.smallest_p_value <= ALPHA
    }
}

/// Compares unpaired figures, in any order: effect and interval of the ratio of B to A, and what so
/// many runs can show.
///
/// Exact up to n·m = 2500, by the normal approximation beyond. O((n + m)·log(n + m)).
///
/// # Errors
/// [`StatsError::Empty`] without figures on one side, [`StatsError::NotFinite`] if one is NaN or
/// infinite,
/// [`StatsError::OutOfRange`] if one is not above 0: there are no ratios then.
pub fn observational(a: &[f64], b: &[f64]) -> Result<Observation, StatsError> {
    let (median_a, median_b) = (median(a)?, median(b)?);
    let (log_a, log_b) = (ascending_logs(a), ascending_logs(b));
    let differences = Differences::new(&log_a, &log_b);
    let null = NullCount::new(a.len(), b.len());
    let pairs = differences.count();
    let skip = null.quantile(ALPHA / 2.0, pairs).unwrap_or(0);
    // With the few runs that 5 % is out of reach for, the middle can be within a skip of 0.
    let skip = skip.min((pairs - 1) / 2);
    let effect = differences.median();
    Ok(Observation {
        runs_a: a.len(),
        runs_b: b.len(),
        median_a,
        median_b,
        effect_percent: percent(effect),
        interval_percent: [skip, pairs - 1 - skip].map(|place| percent(differences.nth(place))),
        confidence_percent: 100.0 * (1.0 - 2.0 * null.upto(skip)).max(0.0),
        p_value: p_value(&differences, &null),
        smallest_p_value: smallest_p_value(a.len(), b.len()),
        runs_to_reach_5_percent: fewest_runs(),
        runs_needed: runs_needed(effect, pooled_deviation(&log_a, &log_b)),
    })
}

fn median(figures: &[f64]) -> Result<f64, StatsError> {
    let median = Summary::new(figures)?.median();
    match figures.iter().find(|figure| **figure <= 0.0) {
        Some(&value) => Err(refused(value, "above 0, so there is no ratio")),
        None => Ok(median),
    }
}

fn ascending_logs(figures: &[f64]) -> Vec<f64> {
    let mut logs: Vec<f64> = figures.iter().map(|figure| figure.ln()).collect();
    logs.sort_by(f64::total_cmp);
    logs
}

/// Of the count of pairs in which B is the smaller or the greater, whichever is less; half a tie is
/// rounded up.
fn p_value(differences: &Differences, null: &NullCount) -> f64 {
    let below = differences.below(0.0);
    let tied = differences.upto(0.0) - below;
    let above = differences.count() - below - tied;
    let less = below.min(above) + tied.div_ceil(2);
    (2.0 * null.upto(less)).min(1.0)
}

/// The smallest number of runs on each side whose smallest p-value is at most 5 %.
fn fewest_runs() -> usize {
    (1..)
        .find(|&runs| smallest_p_value(runs, runs) <= ALPHA)
        .expect("the smallest p-value falls with the number of runs")
}

/// Standard deviation within the two, of logs; `None` for one run against one.
fn pooled_deviation(a: &[f64], b: &[f64]) -> Option<f64> {
    let squares = |sample: &[f64]| {
        let mean = sample.iter().sum::<f64>() / sample.len() as f64;
        sample.iter().map(|x| (x - mean).powi(2)).sum::<f64>()
    };
    let freedom = a.len() + b.len() - 2;
    (freedom > 0).then(|| ((squares(a) + squares(b)) / freedom as f64).sqrt())
}

/// Runs of each for a power of 80 % at 5 %: the t-test's 2·((z₀.₉₇₅ + z₀.₈)·σ/Δ)², divided by the
/// efficiency of ranks for normal samples, 3/π (Lehmann, *Nonparametrics*, section 2.3).
fn runs_needed(effect: f64, deviation: Option<f64>) -> Option<usize> {
    let ratio = deviation? / effect;
    let runs =
        2.0 * (NORMAL_QUANTILE + Z_POWER).powi(2) * ratio * ratio / (3.0 / std::f64::consts::PI);
    // The cast saturates: next to no effect asks for an absurd number of runs.
    (effect != 0.0).then(|| (runs.ceil() as usize).max(fewest_runs()))
}

/// The normal distribution's 80 % quantile.
const Z_POWER: f64 = 0.841_621;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn three_runs_against_three_say_what_they_cannot_show() {
        let seen = observational(&[100.0, 101.0, 99.0], &[93.0, 92.0, 94.0]).unwrap();
        assert!((seen.p_value - 0.1).abs() < 1e-12 && (seen.smallest_p_value - 0.1).abs() < 1e-12);
        assert!(!seen.can_reach_5_percent());
        assert!((seen.confidence_percent - 90.0).abs() < 1e-9);
        let [low, high] = seen.interval_percent;
        assert!((low - 100.0 * (92.0 / 101.0 - 1.0)).abs() < 1e-9);
        assert!((high - 100.0 * (94.0 / 99.0 - 1.0)).abs() < 1e-9);
        assert!((seen.effect_percent + 7.0).abs() < 0.1);
        assert_eq!((seen.runs_to_reach_5_percent, seen.runs_needed), (4, Some(4)));
    }

    #[test]
    fn one_run_against_one_has_no_confidence_and_no_spread() {
        let seen = observational(&[1.0], &[2.0]).unwrap();
        assert_eq!((seen.confidence_percent, seen.p_value), (0.0, 1.0));
        assert!((seen.effect_percent - 100.0).abs() < 1e-9);
        assert_eq!(seen.interval_percent[0], seen.interval_percent[1]);
        assert_eq!(seen.runs_needed, None);
        let equal = observational(&[5.0, 5.0], &[5.0, 5.0]).unwrap();
        assert_eq!((equal.effect_percent, equal.p_value), (0.0, 1.0));
        assert_eq!(equal.runs_needed, None);
    }

    #[test]
    fn a_small_effect_in_much_noise_needs_many_runs() {
        let a = [100.0, 110.0, 90.0, 105.0, 95.0];
        let b = a.map(|figure| figure * 1.01);
        // σ is about 8 %: 2·2.8²·(8/1)² ≈ 1000.
        let needed = observational(&a, &b).unwrap().runs_needed.unwrap();
        assert!((800..1500).contains(&needed), "{needed}");
    }

    #[test]
    fn figures_without_a_ratio_are_errors() {
        assert!(matches!(observational(&[], &[1.0]), Err(StatsError::Empty { .. })));
        assert!(matches!(observational(&[1.0], &[]), Err(StatsError::Empty { .. })));
        let nan = observational(&[1.0], &[1.0, f64::NAN]);
        assert!(matches!(nan, Err(StatsError::NotFinite { index: 1, .. })));
        for bad in [0.0, -3.0] {
            let error = observational(&[1.0, bad], &[1.0]);
            assert!(matches!(error, Err(StatsError::OutOfRange { .. })));
        }
    }

    proptest! {
        #[test]
        fn swapping_the_two_mirrors_effect_and_interval(
            a in prop::collection::vec(1.0..100.0, 1..70),
            b in prop::collection::vec(1.0..100.0, 1..70),
        ) {
            let (there, back) = (observational(&a, &b).unwrap(), observational(&b, &a).unwrap());
            let factor = |percent: f64| 1.0 + percent / 100.0;
            let mirrored = |x: f64, y: f64| (factor(x) * factor(y) - 1.0).abs() < 1e-9;
            prop_assert!(mirrored(there.effect_percent, back.effect_percent));
            prop_assert!(mirrored(there.interval_percent[0], back.interval_percent[1]));
            prop_assert!(mirrored(there.interval_percent[1], back.interval_percent[0]));
            prop_assert!((there.p_value - back.p_value).abs() < 1e-9);
            prop_assert!(there.p_value >= there.smallest_p_value - 1e-6);
            prop_assert!(there.interval_percent[0] <= there.effect_percent + 1e-9);
            prop_assert!(there.effect_percent <= there.interval_percent[1] + 1e-9);
        }

        #[test]
        fn units_do_not_matter(
            a in prop::collection::vec(1.0..100.0, 1..20),
            b in prop::collection::vec(1.0..100.0, 1..20), unit in 0.01..1e6,
        ) {
            let plain = observational(&a, &b).unwrap();
            let scaled = |sample: &[f64]| sample.iter().map(|x| x * unit).collect::<Vec<f64>>();
            let scaled = observational(&scaled(&a), &scaled(&b)).unwrap();
            prop_assert!((plain.effect_percent - scaled.effect_percent).abs() < 1e-6);
            prop_assert!((plain.confidence_percent - scaled.confidence_percent).abs() < 1e-9);
        }
    }
}

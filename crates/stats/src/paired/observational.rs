//! The comparison of figures that were not taken in pairs: the Mann–Whitney test (1947) and the
//! shift that belongs to it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::design::{ALPHA, percent, refused};
use crate::{NORMAL_QUANTILE, StatsError, Summary, two_sided_normal};

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

// The test on two samples.

/// The distribution of the number of pairs (one of each sample) in which the second is the smaller,
/// if both samples are of one law without ties.
#[derive(Debug)]
pub(super) enum NullCount {
    /// Cumulative probabilities, from counting all orders.
    Exact(Vec<f64>),
    /// The normal approximation, with a continuity correction.
    Normal { mean: f64, deviation: f64 },
}

impl NullCount {
    /// The distribution for samples of `n` and `m`: exact up to [`EXACT_UPTO`] pairs of values.
    pub(super) fn new(n: usize, m: usize) -> Self {
        if n.saturating_mul(m) <= EXACT_UPTO {
            return Self::Exact(cumulative(n, m));
        }
        let (n, m) = (n as f64, m as f64);
        Self::Normal { mean: n * m / 2.0, deviation: (n * m * (n + m + 1.0) / 12.0).sqrt() }
    }

    /// The probability of a count of at most `count`.
    pub(super) fn upto(&self, count: u64) -> f64 {
        match self {
            Self::Exact(cumulative) => cumulative[(count as usize).min(cumulative.len() - 1)],
            Self::Normal { mean, deviation } => {
                let z = (count as f64 + 0.5 - mean) / deviation;
                let tail = two_sided_normal(z.abs()) / 2.0;
                if z < 0.0 { tail } else { 1.0 - tail }
            }
        }
    }

    /// The greatest count below `pairs` that with at most this probability is not exceeded; `None`
    /// if even 0 is likelier.
    pub(super) fn quantile(&self, level: f64, pairs: u64) -> Option<u64> {
        let (mut low, mut high) = (0, pairs);
        // The first count that is too likely lies within low..=high.
        while low < high {
            let middle = u64::midpoint(low, high);
            if self.upto(middle) <= level {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1)
    }
}

/// The shares of all orders of `n` and `m` values that have 0, 1, … `max` inversions: pairs, one
/// value of each sample, in which the second is the smaller. The numbers of orders are the
/// coefficients of Gauss's binomial, the product of (1 − q^(n+i)) / (1 − q^i) for i from 1 to m.
pub(crate) fn inversion_shares(n: usize, m: usize, max: usize) -> Vec<f64> {
    let mut orders = vec![0.0; max + 1];
    orders[0] = 1.0;
    let mut all = 1.0;
    for i in 1..=m {
        for at in (n + i..=max).rev() {
            orders[at] -= orders[at - n - i];
        }
        for at in i..=max {
            orders[at] += orders[at - i];
        }
        all *= (n + i) as f64 / i as f64;
    }
    orders.iter().map(|count| count / all).collect()
}

/// P(count ≤ c), c from 0 to n·m.
fn cumulative(n: usize, m: usize) -> Vec<f64> {
    let shares = inversion_shares(n, m, n * m);
    let total = shares.iter().scan(0.0, |total, share| {
        *total += share;
        Some(*total)
    });
    total.collect()
}

/// The smallest two-sided p-value that samples of these sizes can have: 2 of all (n+m)! ÷ (n!·m!)
/// orders.
pub(super) fn smallest_p_value(n: usize, m: usize) -> f64 {
    let (few, many) = (n.min(m), n.max(m));
    let factors = (1..=few).map(|i| i as f64 / (many + i) as f64);
    let one_order: f64 = factors.product();
    (2.0 * one_order).min(1.0)
}

/// All differences b − a of two ascending samples, n·m of them, without a list of them.
#[derive(Debug)]
pub(super) struct Differences<'a> {
    a: &'a [f64],
    b: &'a [f64],
}

impl<'a> Differences<'a> {
    /// The differences of two ascending, finite samples that are not empty.
    pub(super) fn new(a: &'a [f64], b: &'a [f64]) -> Self {
        Self { a, b }
    }

    /// The number of differences.
    pub(super) fn count(&self) -> u64 {
        self.a.len() as u64 * self.b.len() as u64
    }

    /// The one that `skip` others come before, by bisection over the floats: O((n + m)·64).
    pub(super) fn nth(&self, skip: u64) -> f64 {
        let [first_a, last_a] = ends(self.a);
        let [first_b, last_b] = ends(self.b);
        let (mut low, mut high) = (place(first_b - last_a), place(last_b - first_a));
        while low < high {
            let half = (high.wrapping_sub(low) as u64 / 2) as i64;
            let middle = low.wrapping_add(half);
            if self.upto(at_place(middle)) > skip {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        // Not −0.
        at_place(low) + 0.0
    }

    /// Their median: the Hodges–Lehmann shift of the second sample against the first.
    pub(super) fn median(&self) -> f64 {
        let n = self.count();
        f64::midpoint(self.nth((n - 1) / 2), self.nth(n / 2))
    }

    /// The number of differences that are at most `x`.
    pub(super) fn upto(&self, x: f64) -> u64 {
        self.count_where(|difference| difference <= x)
    }

    /// The number of differences that are less than `x`.
    pub(super) fn below(&self, x: f64) -> u64 {
        self.count_where(|difference| difference < x)
    }

    /// `holds` must hold for all differences up to some one.
    fn count_where(&self, holds: impl Fn(f64) -> bool) -> u64 {
        let mut from = 0;
        let mut count = 0;
        for b in self.b {
            while self.a.get(from).is_some_and(|a| !holds(b - a)) {
                from += 1;
            }
            count += (self.a.len() - from) as u64;
        }
        count
    }
}

fn ends(ascending: &[f64]) -> [f64; 2] {
    [ascending[0], ascending[ascending.len() - 1]]
}

/// The place of a float in the total order of floats, and back: its own inverse but for the type.
fn place(x: f64) -> i64 {
    mirrored(x.to_bits() as i64)
}

fn at_place(place: i64) -> f64 {
    f64::from_bits(mirrored(place) as u64)
}

fn mirrored(bits: i64) -> i64 {
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// Up to this many pairs of values the distribution is computed exactly.
const EXACT_UPTO: usize = 2500;

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

    #[test]
    fn null_distribution_is_the_published_one() {
        // Mann and Whitney (1947), table I, as P(U ≤ u).
        for (n, m, u, p) in [(3, 3, 0, 0.05), (3, 4, 1, 0.057), (4, 4, 2, 0.057), (5, 8, 6, 0.023)]
        {
            let exact = NullCount::new(n, m).upto(u);
            assert!((exact - p).abs() < 5e-4, "{n} {m} {u}: {exact}");
        }
        // Two-sided 5 %: U ≤ 23 for 10 and 10, none for 3 and 3.
        assert_eq!(NullCount::new(10, 10).quantile(0.025, 100), Some(23));
        assert_eq!(NullCount::new(3, 3).quantile(0.025, 9), None);
        assert_eq!(NullCount::new(3, 3).quantile(0.05, 9), Some(0));
    }

    #[test]
    fn normal_and_exact_distributions_meet() {
        let exact = NullCount::Exact(cumulative(60, 50));
        let normal = NullCount::new(60, 50);
        assert!(matches!(normal, NullCount::Normal { .. }));
        for count in [900, 1173, 1300, 1500, 1800] {
            assert!((exact.upto(count) - normal.upto(count)).abs() < 1e-3);
        }
    }

    #[test]
    fn three_against_three_cannot_reach_five_percent() {
        assert!((smallest_p_value(3, 3) - 0.1).abs() < 1e-12);
        assert!((smallest_p_value(4, 4) - 2.0 / 70.0).abs() < 1e-12);
        assert_eq!(smallest_p_value(1, 1), 1.0);
        assert!((smallest_p_value(2, 60) - 2.0 / 1891.0).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn order_statistics_are_those_of_the_list(
            a in prop::collection::vec(-9_i32..9, 1..12),
            b in prop::collection::vec(-9_i32..9, 1..12),
        ) {
            let ascending = |sample: Vec<i32>| {
                let mut sample: Vec<f64> = sample.into_iter().map(|x| f64::from(x) / 7.0).collect();
                sample.sort_by(f64::total_cmp);
                sample
            };
            let (a, b) = (ascending(a), ascending(b));
            let differences = Differences::new(&a, &b);
            let mut list: Vec<f64> = a.iter().flat_map(|a| b.iter().map(move |b| b - a)).collect();
            list.sort_by(f64::total_cmp);
            for (skip, &expected) in (0..).zip(&list) {
                prop_assert_eq!(differences.nth(skip), expected);
                prop_assert_eq!(differences.below(expected),
                    list.iter().filter(|&&d| d < expected).count() as u64);
            }
        }
    }
}

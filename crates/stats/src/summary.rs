//! One sample in figures: its location and spread, the interval of its median, the precision of its
//! runs, its agreement with a report; and the interval of a proportion.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::changes::{CLEARLY, dependence, inflation_of_mean, ranks};
use super::{CONFIDENCE, Figure, StatsError, median_of_sorted, sorted};

/// A sample's location and spread, in the unit of its samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    sorted: Vec<f64>,
}

impl Summary {
    /// Takes the samples in any order.
    ///
    /// # Errors
    /// [`StatsError::Empty`] without samples, [`StatsError::NotFinite`] if one is NaN or infinite.
    pub fn new(samples: &[f64]) -> Result<Self, StatsError> {
        sorted("summary", samples).map(|sorted| Self { sorted })
    }

    /// Number of samples, at least 1.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The smallest sample.
    pub fn min(&self) -> f64 {
        self.sorted[0]
    }

    /// The largest sample.
    pub fn max(&self) -> f64 {
        self.sorted[self.sorted.len() - 1]
    }

    /// The arithmetic mean.
    pub fn mean(&self) -> f64 {
        let n = self.sorted.len() as f64;
        // Divided first, so that the sum of large finite samples stays finite.
        self.sorted.iter().map(|value| value / n).sum()
    }

    /// The middle sample, or the mean of the two in the middle.
    pub fn median(&self) -> f64 {
        median_of_sorted(&self.sorted)
    }

    /// The `q`-quantile, 0 ≤ `q` ≤ 1, by definition 7 of Hyndman and Fan (1996): linear between the
    /// order statistics, the first at `q` = 0 and the last at `q` = 1. It is the default of R and
    /// of NumPy.
    ///
    /// # Errors
    /// [`StatsError::OutOfRange`] if `q` is not within 0..=1.
    pub fn quantile(&self, q: f64) -> Result<f64, StatsError> {
        if !(0.0..=1.0).contains(&q) {
            return Err(StatsError::out_of_range("quantile", q, "within 0..=1"));
        }
        let position = q * (self.sorted.len() - 1) as f64;
        let below = self.sorted[position.floor() as usize];
        let above = self.sorted[position.ceil() as usize];
        let share = position.fract();
        Ok(below * (1.0 - share) + above * share)
    }
}

// Agreement with a report.

/// Whether figures bear a claim out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// All of the interval is in what the claim accepts; of modes and drifts, all repeats.
    Agrees,
    /// The whole interval is outside.
    Disagrees,
    /// The interval is partly inside and partly outside: the runs do not decide it.
    Undecided,
    /// There is no figure.
    NotKnown,
}

/// The figures that a claim accepts, both ends included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Accepted {
    /// The lowest value; may be infinite.
    pub low: f64,
    /// The highest value; may be infinite.
    pub high: f64,
}

impl Accepted {
    /// Whether a figure is accepted.
    pub fn contains(self, figure: f64) -> bool {
        (self.low..=self.high).contains(&figure)
    }

    /// How far a figure is outside; negative inside.
    pub fn beyond(self, figure: f64) -> f64 {
        (self.low - figure).max(figure - self.high)
    }

    /// Single figures, all of which have to say the same.
    pub fn judge_all(self, figures: impl IntoIterator<Item = f64>) -> Agreement {
        let figures = figures.into_iter();
        let (inside, outside): (Vec<f64>, Vec<f64>) = figures.partition(|it| self.contains(*it));
        match (inside.is_empty(), outside.is_empty()) {
            (false, true) => Agreement::Agrees,
            (true, false) => Agreement::Disagrees,
            (false, false) => Agreement::Undecided,
            (true, true) => Agreement::NotKnown,
        }
    }

    /// A figure of several runs, by the interval of its median. Modes and drifts have no median to
    /// speak of: there every sample has to say the same.
    pub fn judge(self, figure: &Figure, samples: &[f64]) -> Agreement {
        let Figure::One(one) = figure else {
            return self.judge_all(samples.iter().copied());
        };
        if self.contains(one.low) && self.contains(one.high) {
            Agreement::Agrees
        } else if one.high < self.low || one.low > self.high {
            Agreement::Disagrees
        } else {
            Agreement::Undecided
        }
    }
}

// Precision: whether there are enough runs.

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

/// Is the 95 % interval of the median of these runs, in their order, within `percent` of the median
/// on both sides, and if not, how many more runs?
///
/// The estimate takes the samples near the median to be evenly spread: the interval's width is then
/// proportional to the share of the sample that it spans, which falls with 1.96/√n. It is rough for
/// a handful of runs; ask again after them. Stopping at the first run that reaches the precision
/// makes the interval cover less often than it says, because it stops where the spread happens to
/// look small: 94.6 % in the simulation below. A number of runs that was fixed before does not.
///
/// # Errors
/// Those of [`interval_of_runs`], and [`StatsError::OutOfRange`] if `percent` is not positive and
/// finite.
pub fn precision_reached(samples: &[f64], percent: f64) -> Result<Precision, StatsError> {
    if !(percent > 0.0 && percent.is_finite()) {
        let allowed = "a positive percentage";
        return Err(StatsError::out_of_range("precision", percent, allowed));
    }
    let interval = interval_of_runs(samples)?;
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
    let (skipped, _) = order_statistics(interval.n, 1.0);
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

// The distribution-free interval of a median.

/// An interval between two samples that holds the median of what was sampled, with its exact
/// coverage.
#[derive(
    Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct MedianInterval {
    /// The samples' median, in the unit of the samples; of an even number of repeated runs the
    /// lower of the two in the middle.
    pub median: f64,
    /// Lower end, a sample.
    pub low: f64,
    /// Upper end, a sample.
    pub high: f64,
    /// Probability, 0 to 1, that such an interval holds the median: 0.95 or more where so many
    /// samples can reach that, else what the whole range from the smallest to the largest has; of
    /// fewer than 6 that is 1 − 2^(1−n). It is that of independent samples; of 20 runs and more, in
    /// their order, it allows for their dependence on those before them.
    pub coverage: f64,
    /// Number of samples.
    pub n: usize,
}

impl MedianInterval {
    /// The interval of these samples with one of them as its median: of an even number the lower of
    /// the two in the middle (the low median). It is that of a run that was made, and all that is
    /// told of the run fits.
    pub fn of_a_run(self, samples: &[f64]) -> Self {
        let median = sorted("low median", samples).map(|sorted| sorted[(sorted.len() - 1) / 2]);
        Self { median: median.unwrap_or(self.median), ..self }
    }

    /// Whether the coverage is that of independent runs, because they are too few to show how they
    /// depend on each other.
    pub fn takes_independence(&self) -> bool {
        self.n < SHOWS_DEPENDENCE
    }

    /// Whether the coverage is 95 %. Fewer than 6 samples cannot reach it, whatever they are.
    pub fn reaches_confidence(&self) -> bool {
        self.coverage >= CONFIDENCE
    }

    /// The farther end's distance from the median, in the unit of the samples.
    pub fn half_width(&self) -> f64 {
        f64::max(self.high - self.median, self.median - self.low)
    }
}

/// The shortest symmetric interval `[x(k), x(n+1−k)]` of order statistics whose coverage is at
/// least 95 %.
///
/// Each sample falls below the median with probability ½, so the coverage is 1 − 2·P(Bin(n, ½) < k)
/// whatever the distribution (David and Nagaraja, *Order Statistics*, 3rd ed., section 7.1). It is
/// exact for a continuous distribution and a lower bound where samples tie. The interpolated
/// interval of Hettmansperger and Sheather (1986) is shorter, but its coverage is only approximate
/// and depends on the distribution, so it is not used.
///
/// # Errors
/// [`StatsError::Empty`] without samples, [`StatsError::NotFinite`] if one is NaN or infinite.
pub fn median_interval(samples: &[f64]) -> Result<MedianInterval, StatsError> {
    let sorted = sorted("median interval", samples)?;
    Ok(interval_of_sorted(&sorted, 1.0))
}

/// As [`median_interval`], of runs in the order in which they were made: the more a run is like the
/// one before it, the wider.
///
/// Of dependent runs the number below the median varies more than that of independent ones. By as
/// much as the variance of their mean grows (`inflation_of_mean`), the probability of a tail is
/// raised to the power of one over that, as for [`super::new_change`]. Fewer than 20 runs do not
/// show how they depend on each other, and their interval is mostly the whole range anyway: it is
/// that of independent ones, and [`MedianInterval::takes_independence`] says so. How often the
/// interval holds the median of runs with a correlation of 0.2, 0.5, 0.8 to the one before: the test
/// `intervals_of_dependent_runs_cover_what_is_published`.
///
/// # Errors
/// As [`median_interval`].
pub fn interval_of_runs(samples: &[f64]) -> Result<MedianInterval, StatsError> {
    let sorted = sorted("interval of runs", samples)?;
    let n = sorted.len();
    let is_shown = n >= SHOWS_DEPENDENCE && sorted[0] < sorted[n - 1];
    let correlations = if is_shown { dependence(&ranks(samples), CLEARLY) } else { Vec::new() };
    Ok(interval_of_sorted(&sorted, inflation_of_mean(&correlations, n)))
}

/// Runs from which on the interval keeps its 95 % up to a correlation of 0.5, by the simulation of
/// `intervals_of_dependent_runs_cover_what_is_published`.
const SHOWS_DEPENDENCE: usize = 20;

fn interval_of_sorted(sorted: &[f64], inflation: f64) -> MedianInterval {
    let n = sorted.len();
    let (skipped, coverage) = order_statistics(n, inflation);
    MedianInterval {
        median: median_of_sorted(sorted),
        low: sorted[skipped],
        high: sorted[n - 1 - skipped],
        coverage,
        n,
    }
}

/// How many samples to leave out at each end for a coverage of at least [`CONFIDENCE`], and the
/// coverage, where the variance of their mean is so many times that of independent samples.
fn order_statistics(n: usize, inflation: f64) -> (usize, f64) {
    let n_real = n as f64;
    let coverage_of = |tail: f64| 1.0 - 2.0 * tail.powf(1.0 / inflation);
    // In logarithms, because 2^-n underflows from n = 1075 on.
    let mut ln_probability = -n_real * std::f64::consts::LN_2;
    let mut tail = ln_probability.exp();
    let mut coverage = coverage_of(tail);
    let mut skipped = 0;
    while 2 * (skipped + 1) < n {
        let next = (skipped + 1) as f64;
        ln_probability += ((n_real - next + 1.0) / next).ln();
        tail += ln_probability.exp();
        if coverage_of(tail) < CONFIDENCE {
            break;
        }
        coverage = coverage_of(tail);
        skipped += 1;
    }
    (skipped, coverage.max(0.0))
}

/// What two further values of the same law differ by at most in 95 % of cases, in the unit of the
/// values: Student's t times their standard deviation times √2. It is exact for normal values; of
/// logarithms it is of ratios. `None` of fewer than four values, of equal ones, and if one is not
/// finite.
///
/// Student's quantile by its series in one over the degrees of freedom (Abramowitz and Stegun,
/// 26.7.5), from three degrees on to 0.1 %.
pub fn usual_difference(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    let freedom = n - 1.0;
    let mean = values.iter().sum::<f64>() / n;
    let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / freedom;
    let terms = [
        Z,
        (Z.powi(3) + Z) / 4.0,
        (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / 96.0,
        (3.0 * Z.powi(7) + 19.0 * Z.powi(5) + 17.0 * Z.powi(3) - 15.0 * Z) / 384.0,
        (79.0 * Z.powi(9) + 776.0 * Z.powi(7) + 1482.0 * Z.powi(5)
            - 1920.0 * Z.powi(3)
            - 945.0 * Z)
            / 92_160.0,
    ];
    let student = terms.iter().rev().fold(0.0, |sum, term| term + sum / freedom);
    let difference = student * (2.0 * square).sqrt();
    (values.len() >= 4 && difference > 0.0 && difference.is_finite()).then_some(difference)
}

// The interval of a proportion.

/// A proportion with its 95 % interval, all from 0 to 1.
#[derive(
    Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct Proportion {
    /// Events ÷ trials.
    pub share: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// The score interval of a proportion (Wilson 1927; Brown, Cai and DasGupta 2001, section 3.1.1).
///
/// Unlike share ± 1.96 standard errors it does not shrink to nothing at 0 or all events: no loss in
/// 1,000 packets still leaves up to 0.38 % possible. The trials must be independent; losses in
/// bursts make the true interval wider.
///
/// # Errors
/// [`StatsError::Empty`] without trials, [`StatsError::OutOfRange`] if there are more events than
/// trials.
pub fn wilson(events: u64, trials: u64) -> Result<Proportion, StatsError> {
    if trials == 0 {
        return Err(StatsError::Empty { operation: "proportion" });
    }
    if events > trials {
        let allowed = "at most the number of trials";
        return Err(StatsError::out_of_range("proportion", events as f64, allowed));
    }
    let n = trials as f64;
    let share = events as f64 / n;
    let center = share + Z * Z / (2.0 * n);
    let half_width = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    Ok(Proportion {
        share,
        // The formula gives exactly these at the ends; rounding must not leave a residue.
        low: if events == 0 { 0.0 } else { (center - half_width) / scale },
        high: if events == trials { 1.0 } else { (center + half_width) / scale },
    })
}

/// The normal distribution's 97.5 % quantile, for a two-sided 95 % interval.
pub const NORMAL_QUANTILE: f64 = 1.959_963_984_540_054;
const Z: f64 = NORMAL_QUANTILE;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::simulation::{Source, rate};

    #[test]
    fn known_sample() {
        let summary = Summary::new(&[9.0, 1.0, 4.0, 2.0]).unwrap();
        assert_eq!((summary.count(), summary.min(), summary.max()), (4, 1.0, 9.0));
        assert_eq!((summary.mean(), summary.median()), (4.0, 3.0));
        // R: quantile(c(9, 1, 4, 2), c(.1, .25, .9), type = 7)
        for (q, expected) in [(0.1, 1.3), (0.25, 1.75), (0.9, 7.5)] {
            assert!((summary.quantile(q).unwrap() - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn quantile_outside_its_range_is_an_error() {
        let summary = Summary::new(&[1.0]).unwrap();
        for q in [-0.01, 1.01, f64::NAN] {
            assert!(matches!(summary.quantile(q), Err(StatsError::OutOfRange { .. })));
        }
    }

    #[test]
    fn largest_floats_do_not_overflow() {
        let summary = Summary::new(&[f64::MAX, f64::MAX]).unwrap();
        assert_eq!((summary.mean(), summary.median()), (f64::MAX, f64::MAX));
    }

    proptest! {
        #[test]
        fn quantiles_ascend_from_min_over_median_to_max(
            samples in prop::collection::vec(-1e9..1e9, 1..50), a in 0.0..=1.0, b in 0.0..=1.0,
        ) {
            let summary = Summary::new(&samples).unwrap();
            prop_assert_eq!(summary.quantile(0.0).unwrap(), summary.min());
            prop_assert_eq!(summary.quantile(1.0).unwrap(), summary.max());
            prop_assert!((summary.quantile(0.5).unwrap() - summary.median()).abs() < 1e-6);
            let (low, high) = (f64::min(a, b), f64::max(a, b));
            prop_assert!(summary.quantile(low).unwrap() <= summary.quantile(high).unwrap() + 1e-6);
        }
    }

    #[test]
    fn figures_that_say_different_things_decide_nothing() {
        let accepted = Accepted { low: 1.0, high: f64::INFINITY };
        for (figures, agreement) in [
            (&[1.0, 7.0][..], Agreement::Agrees),
            (&[0.5, 0.9], Agreement::Disagrees),
            (&[0.5, 2.0], Agreement::Undecided),
            (&[], Agreement::NotKnown),
        ] {
            assert_eq!(accepted.judge_all(figures.iter().copied()), agreement);
        }
        assert_eq!(accepted.beyond(0.5), 0.5);
    }

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

    #[test]
    fn ranks_and_coverage_match_exact_binomial_sums() {
        // n, samples left out at each end, coverage in exact integer arithmetic: 1 − 2·Σ C(n, i) /
        // 2^n.
        let table = [
            (1, 0, 0.0),
            (2, 0, 0.5),
            (5, 0, 0.9375),
            (6, 0, 0.96875),
            (8, 0, 0.9921875),
            (9, 1, 0.9609375),
            (10, 1, 0.978515625),
            (20, 5, 0.958_610_534_667_968_8),
            (30, 9, 0.957_226_054_742_932_3),
        ];
        for (n, skipped, coverage) in table {
            let (got_skipped, got_coverage) = order_statistics(n, 1.0);
            assert_eq!(got_skipped, skipped, "n = {n}");
            assert!((got_coverage - coverage).abs() < 1e-12, "n = {n}: {got_coverage}");
        }
    }

    #[test]
    fn six_samples_are_the_fewest_that_reach_95_percent() {
        let samples = [5.0, 3.0, 4.0, 1.0, 2.0, 6.0];
        assert!(median_interval(&samples).unwrap().reaches_confidence());
        let few = median_interval(&samples[..5]).unwrap();
        assert!(!few.reaches_confidence());
        assert_eq!((few.low, few.median, few.high), (1.0, 3.0, 5.0));
        assert_eq!((few.coverage, few.half_width()), (0.9375, 2.0));
    }

    #[test]
    fn coverage_stays_just_above_95_percent_for_many_samples() {
        for n in [1_000, 1_074, 1_075, 5_000, 100_000] {
            let (_, coverage) = order_statistics(n, 1.0);
            assert!((0.95..0.9524).contains(&coverage) || n < 5_000 && coverage < 0.956);
        }
    }

    #[test]
    fn simulated_coverage_is_the_stated_one_for_any_distribution() {
        let mut source = Source::new(1);
        type Law = fn(&mut Source) -> f64;
        let laws: [(Law, f64); 3] = [
            (Source::normal, 0.0),
            (Source::exponential, std::f64::consts::LN_2),
            (Source::cauchy, 0.0),
        ];
        for (draw, truth) in laws {
            for n in [5, 9, 20] {
                let (_, stated) = order_statistics(n, 1.0);
                let covered = rate(20_000, || {
                    let interval = median_interval(&source.samples(n, draw)).unwrap();
                    (interval.low..=interval.high).contains(&truth)
                });
                // Four standard errors of 20,000 trials at 94 %.
                assert!((covered - stated).abs() < 0.007, "n = {n}: {covered} for {stated}");
            }
        }
    }

    /// Shares of intervals that hold the median, in percent: of so many runs whose correlation with
    /// the one before is 0, 0.2, 0.5, 0.8. docs/comparisons.md has them.
    const COVERED: [(usize, [f64; 4]); 6] = [
        (6, [97.0, 93.4, 86.3, 63.1]),
        (8, [99.0, 98.1, 92.6, 71.2]),
        (10, [98.3, 96.1, 87.1, 62.4]),
        (15, [96.5, 93.2, 84.1, 59.0]),
        (20, [97.2, 95.7, 96.1, 93.3]),
        (30, [95.7, 95.4, 97.3, 97.3]),
    ];

    #[test]
    fn intervals_of_dependent_runs_cover_what_is_published() {
        let mut source = Source::new(4);
        for (n, published) in COVERED {
            for (rho, published) in [0.0, 0.2, 0.5, 0.8_f64].into_iter().zip(published) {
                let covered = 100.0
                    * rate(2_000, || {
                        let mut last = source.normal();
                        let runs = source.samples(n, |source| {
                            last = rho * last + (1.0 - rho * rho).sqrt() * source.normal();
                            last
                        });
                        let interval = interval_of_runs(&runs).unwrap();
                        (interval.low..=interval.high).contains(&0.0)
                    });
                // Four standard errors of 2,000 trials at 95 %.
                assert!((covered - published).abs() < 2.0, "{n} runs, {rho}: {covered}");
                // Where the runs are enough to show it, 95 % is what is kept.
                assert!(
                    n < SHOWS_DEPENDENCE || rho > 0.5 || covered > 94.0,
                    "{n}, {rho}: {covered}"
                );
            }
        }
    }

    #[test]
    fn runs_that_do_not_follow_each_other_have_the_interval_of_any_order() {
        // Neighbours are as far apart as can be.
        let runs: Vec<f64> = (0..24).map(|run| f64::from((run * 7) % 24)).collect();
        assert_eq!(interval_of_runs(&runs), median_interval(&runs));
        let risen: Vec<f64> = (0..24).map(f64::from).collect();
        let wide = interval_of_runs(&risen).unwrap();
        assert_eq!((wide.low, wide.high, wide.reaches_confidence()), (0.0, 23.0, false));
        // Too few to show it, and equal ones.
        assert_eq!(interval_of_runs(&risen[..19]), median_interval(&risen[..19]));
        assert_eq!(interval_of_runs(&[7.0; 24]), median_interval(&[7.0; 24]));
        assert!(median_interval(&risen[..19]).unwrap().takes_independence());
    }

    #[test]
    fn the_usual_difference_is_that_of_students_tables() {
        // A standard deviation of 1; t of 3, 9 and 29 degrees of freedom.
        for (n, t) in [(4_u32, 3.182), (10, 2.262), (30, 2.045)] {
            let half = f64::from(n) / 2.0;
            let far = ((f64::from(n) - 1.0) / (2.0 * half)).sqrt();
            let values: Vec<f64> =
                (0..n).map(|it| if it.is_multiple_of(2) { far } else { -far }).collect();
            let found = usual_difference(&values).unwrap() / std::f64::consts::SQRT_2;
            assert!((found - t).abs() < 0.004, "{n}: {found}");
        }
        assert_eq!(usual_difference(&[1.0, 2.0, 3.0]), None);
        assert_eq!(usual_difference(&[1.0; 9]), None);
        assert_eq!(usual_difference(&[1.0, 2.0, f64::NEG_INFINITY, 3.0]), None);
    }

    #[test]
    fn published_intervals_are_reproduced() {
        // Newcombe (1998), table I, method 3.
        let table = [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ];
        for (events, trials, low, high) in table {
            let got = wilson(events, trials).unwrap();
            assert!((got.low - low).abs() < 5e-5 && (got.high - high).abs() < 5e-5, "{got:?}");
        }
    }

    #[test]
    fn impossible_counts_are_errors() {
        assert!(matches!(wilson(0, 0), Err(StatsError::Empty { .. })));
        assert!(matches!(wilson(2, 1), Err(StatsError::OutOfRange { .. })));
    }

    proptest! {
        #[test]
        fn interval_holds_the_share_and_mirrors(trials in 1_u64..1 << 40, part in 0.0..=1.0) {
            let events = (trials as f64 * part) as u64;
            let interval = wilson(events, trials).unwrap();
            prop_assert!(0.0 <= interval.low && interval.low <= interval.share);
            prop_assert!(interval.share <= interval.high && interval.high <= 1.0);
            let mirrored = wilson(trials - events, trials).unwrap();
            prop_assert!((interval.low - (1.0 - mirrored.high)).abs() < 1e-12);
        }
    }
}

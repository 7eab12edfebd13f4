//! The design of a comparison, fixed before the first run, and what it ends with: the order of each
//! pair, the effect, the conclusion.

use std::fmt;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sign_flip::{DRAWN, ENUMERATED};
use crate::{StatsError, median_of_sorted};

/// A comparison as it is laid down before the first run. Changing it afterwards voids the error
/// rate.
#[derive(Debug, Clone, PartialEq)]
pub struct Design {
    /// Differences up to so many percent count as none: what EQUIVALENT means, above 0 and below
    /// 100. The margin is ±ln(1 + margin/100) of the log ratio, so that A against B and B against A
    ///      get one answer. Without it there is no
    /// EQUIVALENT.
    pub margin_percent: Option<f64>,
    /// Number of metrics, 1 to [`MAX_METRICS`]. They share the 5 % of error (Holm 1979).
    pub metrics: usize,
    /// Pairs at most, 6 to [`MAX_PAIRS`]. The last look is made there, with all of the error that
    /// is left.
    pub max_pairs: u32,
    /// Seed of the sign vectors. [`super::Schedule`] may have the same.
    pub seed: u64,
}

/// Largest number of pairs in a comparison.
pub const MAX_PAIRS: u32 = 30;
/// Largest number of metrics that a comparison can divide its error among.
pub const MAX_METRICS: usize = 20;

/// Error of a family of tests: the share of comparisons of A with A that say DIFFERENT at most.
pub(super) const ALPHA: f64 = 0.05;

/// Streams of the seed, so that the order of the pairs and the sign vectors are independent of each
/// other.
pub(super) const ORDER_STREAM: u64 = 1;
/// See [`ORDER_STREAM`].
pub(super) const SIGNS_STREAM: u64 = 2;

/// With fewer pairs no test of signs can reach 5 %: 2 of 2^5 vectors are 6 %.
const FEWEST_PAIRS: u32 = 6;

/// Pairs and cumulative error of each look for DIFFERENT.
const DIFFERENCE: [(u32, f64); 6] =
    [(8, 0.012), (10, 0.020), (13, 0.028), (17, 0.036), (23, 0.043), (30, ALPHA)];
/// Pairs and cumulative error of each look for EQUIVALENT, of each of its two one-sided tests.
const EQUIVALENCE: [(u32, f64); 7] =
    [(6, 0.016), (8, 0.021), (10, 0.027), (13, 0.033), (17, 0.039), (23, 0.045), (30, ALPHA)];

/// One look, with the error that may have been spent up to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Look {
    pub(super) pairs: u32,
    /// Absent where difference is not tested at this number of pairs.
    pub(super) difference: Option<f64>,
    /// Absent where equivalence is not tested.
    pub(super) equivalence: Option<f64>,
}

impl Look {
    /// Whether a verdict on one of `metrics` is possible at all, before any of them has one.
    pub(super) fn can_fire(&self, metrics: usize) -> bool {
        let pairs = self.pairs as usize;
        let (vectors, fewest) = if pairs <= ENUMERATED {
            // A vector and its mirror image are as far out as each other.
            ((1_usize << pairs) as f64, 2.0)
        } else {
            // The drawn ones seldom hold the mirror image of the observed one.
            ((DRAWN + 1) as f64, 1.0)
        };
        let reaches = |alpha: Option<f64>, fewest: f64| {
            alpha.is_some_and(|alpha| alpha / metrics as f64 * vectors >= fewest)
        };
        reaches(self.difference, fewest) || reaches(self.equivalence, 1.0)
    }
}

impl Design {
    /// The looks in ascending order, if the design is one.
    pub(super) fn looks(&self) -> Result<Vec<Look>, StatsError> {
        self.check()?;
        let look = |pairs: u32| Look {
            pairs,
            difference: self.spent(&DIFFERENCE, pairs),
            equivalence: (self.margin_percent).and_then(|_| self.spent(&EQUIVALENCE, pairs)),
        };
        let mut looks: Vec<Look> = (1..=self.max_pairs).map(look).collect();
        looks.retain(|look| look.difference.is_some() || look.equivalence.is_some());
        if looks.iter().any(|look| look.can_fire(self.metrics)) {
            return Ok(looks);
        }
        let allowed = "enough pairs for so many metrics: no look could have a verdict";
        Err(refused(f64::from(self.max_pairs), allowed))
    }

    /// The margin as a log ratio.
    pub(super) fn margin(&self) -> Option<f64> {
        self.margin_percent.map(|percent| (percent / 100.0).ln_1p())
    }

    /// Cumulative error at a look of a table that is cut off at the most pairs.
    fn spent(&self, table: &[(u32, f64)], pairs: u32) -> Option<f64> {
        if pairs == self.max_pairs {
            return Some(ALPHA);
        }
        let look = table.iter().find(|look| look.0 == pairs);
        look.map(|look| look.1)
    }

    fn check(&self) -> Result<(), StatsError> {
        if !(FEWEST_PAIRS..=MAX_PAIRS).contains(&self.max_pairs) {
            let allowed = "a number of pairs within 6..=30";
            return Err(refused(f64::from(self.max_pairs), allowed));
        }
        if !(1..=MAX_METRICS).contains(&self.metrics) {
            let allowed = "a number of metrics within 1..=20";
            return Err(refused(self.metrics as f64, allowed));
        }
        match self.margin_percent {
            Some(margin) if !(margin > 0.0 && margin < 100.0) => {
                Err(refused(margin, "a margin above 0 and below 100 percent"))
            }
            _ => Ok(()),
        }
    }
}

pub(super) fn refused(value: f64, allowed: &'static str) -> StatsError {
    StatsError::out_of_range(OPERATION, value, allowed)
}

/// What errors call a comparison.
pub(super) const OPERATION: &str = "comparison";

// The random order of the two runs of a pair.

/// The order of the two runs of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// A, then B.
    AFirst,
    /// B, then A.
    BFirst,
}

/// One of the two treatments.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The treatment that B is compared with.
    A,
    /// The treatment whose effect is measured.
    B,
}

impl Side {
    /// `A` or `B`.
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
        }
    }
}

impl Order {
    /// The two sides in the order in which they run.
    pub fn sides(self) -> [Side; 2] {
        match self {
            Self::AFirst => [Side::A, Side::B],
            Self::BFirst => [Side::B, Side::A],
        }
    }
}

/// The order of each pair by a fair coin, without end; the same for the same seed.
///
/// A fixed order, even ABBA, would let whatever favours the second of two runs pass for an effect,
/// or for the lack of one.
#[derive(Debug, Clone)]
pub struct Schedule {
    coins: ChaCha8Rng,
}

impl Schedule {
    /// The schedule of a seed. It has nothing to do with the sign vectors that the test draws from
    /// the same seed.
    pub fn new(seed: u64) -> Self {
        let mut coins = ChaCha8Rng::seed_from_u64(seed);
        coins.set_stream(ORDER_STREAM);
        Self { coins }
    }
}

impl Iterator for Schedule {
    type Item = Order;

    fn next(&mut self) -> Option<Order> {
        let heads = self.coins.next_u64() >> 63 == 1;
        Some(if heads { Order::AFirst } else { Order::BFirst })
    }
}

// The effect and its interval.

/// The means of all two values, each with itself too (Walsh 1949), in ascending order.
///
/// The number of them above a shift is the sum of the ranks with a positive sign after that shift
/// is taken off, so their order statistics are the ends of the interval that the signed-rank test
/// does not refuse (Hollander, Wolfe and Chicken,
/// *Nonparametric Statistical Methods*, 3rd ed., section 3.3).
#[derive(Debug)]
pub(super) struct WalshAverages {
    sorted: Vec<f64>,
}

impl WalshAverages {
    /// Averages of the pairs of `values`, of which there is at least one; all are finite.
    pub(super) fn new(values: &[f64]) -> Self {
        let means =
            |(i, &one): (usize, &f64)| values[i..].iter().map(move |&two| f64::midpoint(one, two));
        let mut sorted: Vec<f64> = values.iter().enumerate().flat_map(means).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        Self { sorted }
    }

    /// Their median: the Hodges–Lehmann estimate of the effect (1963).
    pub(super) fn median(&self) -> f64 {
        median_of_sorted(&self.sorted)
    }

    /// The interval that leaves out so many of them at each end.
    pub(super) fn interval(&self, skip: [usize; 2]) -> [f64; 2] {
        let last = self.sorted.len() - 1;
        let ends = [skip[0].min(last), last.saturating_sub(skip[1])];
        ends.map(|end| self.sorted[end])
    }

    /// Share of them above `shift`, those at it counted half.
    pub(super) fn share_above(&self, shift: f64) -> f64 {
        let below = self.sorted.partition_point(|&mean| mean < shift);
        let upto = self.sorted.partition_point(|&mean| mean <= shift);
        let n = self.sorted.len();
        ((n - below) + (n - upto)) as f64 / (2 * n) as f64
    }
}

/// A log ratio as a change in percent.
pub(super) fn percent(log_ratio: f64) -> f64 {
    100.0 * log_ratio.exp_m1()
}

// The conclusion of a comparison.

/// The answer of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ComparisonVerdict {
    /// A and B differ. It may still be by less than the margin: see `equivalent`.
    Different,
    /// If they differ, then by less than the margin.
    Equivalent,
    /// Neither could be shown with so many pairs.
    Inconclusive,
}

impl ComparisonVerdict {
    /// As in the document: `DIFFERENT`, `EQUIVALENT` or `INCONCLUSIVE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Different => "DIFFERENT",
            Self::Equivalent => "EQUIVALENT",
            Self::Inconclusive => "INCONCLUSIVE",
        }
    }
}

impl fmt::Display for ComparisonVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What all metrics together say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Conclusion {
    /// DIFFERENT if one metric is, EQUIVALENT if all are, else INCONCLUSIVE. If A and B are the
    /// same, DIFFERENT comes up in at most 5 % of comparisons, however many metrics there are.
    pub verdict: ComparisonVerdict,
    /// Each metric, in the order of the log ratios.
    pub metrics: Vec<MetricConclusion>,
    /// Pairs that were entered.
    pub pairs: u32,
}

/// What one metric says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricConclusion {
    /// DIFFERENT wherever `different` is true, also where `equivalent` is: real, and small.
    pub verdict: ComparisonVerdict,
    /// Whether a difference was shown.
    pub different: bool,
    /// Whether a difference as large as the margin was ruled out.
    pub equivalent: bool,
    /// By how much B's figure differs from A's, in percent of A's (Hodges–Lehmann, of the log
    /// ratios). Where a difference stopped the comparison early it is overstated on average,
    /// because it stopped where the effect happened to look large.
    pub effect_percent: f64,
    /// The effects that the test behind the verdict does not refuse, in percent: without 0 if
    /// DIFFERENT, within the margin if EQUIVALENT. Where figures are exactly equal in many pairs, 0
    /// can be an end.
    pub interval_percent: [f64; 2],
    /// How often such an interval holds the effect at least, in percent, over all looks: 95 for one
    /// metric, 90 if EQUIVALENT (which are two tests of 5 %), nearer to 100 for one of several
    /// metrics, less with fewer than 6 pairs.
    pub confidence_percent: f64,
    /// The same for the look at which it stopped, taken by itself, in percent. That is what the
    /// interval was made for.
    pub look_confidence_percent: f64,
    /// Pairs up to the look that decided; all of them if none did.
    pub pairs: u32,
}

#[cfg(test)]
mod tests {
    use super::super::sign_flip::NullSum;
    use super::*;

    fn design(margin_percent: Option<f64>, metrics: usize, max_pairs: u32) -> Design {
        Design { margin_percent, metrics, max_pairs, seed: 1 }
    }

    fn first(margin: Option<f64>, metrics: usize) -> u32 {
        let looks = design(margin, metrics, 30).looks().unwrap();
        looks.iter().find(|l| l.can_fire(metrics)).unwrap().pairs
    }

    #[test]
    fn the_error_spent_never_falls_and_ends_at_all_of_it() {
        for max_pairs in FEWEST_PAIRS..=MAX_PAIRS {
            let looks = design(Some(3.0), 1, max_pairs).looks().unwrap();
            let spent: Vec<f64> = looks.iter().filter_map(|look| look.difference).collect();
            assert!(spent.is_sorted() && spent.last() == Some(&ALPHA));
            let spent: Vec<f64> = looks.iter().filter_map(|look| look.equivalence).collect();
            assert!(spent.is_sorted() && spent.last() == Some(&ALPHA));
            assert_eq!(looks.last().unwrap().pairs, max_pairs);
        }
    }

    #[test]
    fn more_metrics_need_more_pairs_before_a_look_can_fire() {
        assert_eq!((first(None, 1), first(Some(3.0), 1)), (8, 6));
        assert_eq!((first(None, 2), first(Some(3.0), 2)), (10, 8));
        assert_eq!((first(None, 10), first(None, 11)), (10, 13));
        assert_eq!((first(None, 20), first(Some(3.0), 20)), (13, 10));
    }

    #[test]
    fn designs_that_cannot_be_are_errors() {
        for margin in [0.0, -1.0, 100.0, f64::NAN, f64::INFINITY] {
            assert!(design(Some(margin), 1, 30).looks().is_err());
        }
        for (metrics, max_pairs) in [(1, 5), (1, 31), (0, 30), (21, 30), (7, 8)] {
            assert!(design(None, metrics, max_pairs).looks().is_err());
        }
    }

    fn a_first(seed: u64, pairs: usize) -> usize {
        let orders = Schedule::new(seed).take(pairs);
        orders.filter(|&order| order == Order::AFirst).count()
    }

    #[test]
    fn the_coin_is_fair_and_the_seed_decides() {
        // Five standard errors of 100,000 throws.
        assert!(a_first(1, 100_000).abs_diff(50_000) < 791);
        let orders = |seed| Schedule::new(seed).take(64).collect::<Vec<_>>();
        assert_eq!(orders(5), orders(5));
        assert_ne!(orders(5), orders(6));
    }

    #[test]
    fn one_order_says_nothing_about_the_next() {
        let orders: Vec<Order> = Schedule::new(2).take(100_001).collect();
        let same = orders.windows(2).filter(|two| two[0] == two[1]).count();
        assert!(same.abs_diff(50_000) < 791, "{same}");
    }

    #[test]
    fn estimate_and_interval_are_the_published_ones() {
        // Hollander, Wolfe and Chicken, tables 3.1 to 3.3 (depression scores): estimate −0.46, and
        // from the 6th value on each side an interval of 96.1 % from −0.786 to −0.010.
        let changes = [-0.952, 0.147, -1.022, -0.430, -0.620, -0.590, -0.490, 0.080, -0.010];
        let means = WalshAverages::new(&changes);
        assert!((means.median() + 0.46).abs() < 1e-9);
        let [low, high] = means.interval([5, 5]);
        assert!((low + 0.786).abs() < 1e-9 && (high + 0.010).abs() < 1e-9);
        assert!((1.0 - 2.0 * NullSum::for_size(9).upto(5) - 0.961).abs() < 5e-4);
    }

    #[test]
    fn shares_count_ties_half() {
        let means = WalshAverages::new(&[0.0, 1.0]);
        assert_eq!(means.share_above(0.5), 0.5);
        assert_eq!(means.share_above(-1.0), 1.0);
        assert_eq!(means.share_above(1.0), 1.0 / 6.0);
    }
}

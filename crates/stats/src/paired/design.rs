//! The design of a comparison, fixed before the first run.

use super::sign_flip::{DRAWN, ENUMERATED};
use crate::StatsError;

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

#[cfg(test)]
mod tests {
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
}

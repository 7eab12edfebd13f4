//! Two samples that are not paired: the Mann–Whitney test (1947) and the shift that belongs to it.

use crate::two_sided_normal;

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

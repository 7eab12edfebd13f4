//! The signed-rank statistic (Wilcoxon 1945).

use std::sync::LazyLock;

use super::design::MAX_PAIRS;

/// Twice the rank of each |value|, in the order of the values.
///
/// Ties have the mean of their ranks, which doubling makes whole. A value of 0 is ranked with the
/// others and then counts nothing, because turning its sign over changes nothing (Pratt 1959).
pub(super) fn doubled_ranks(values: &[f64]) -> Vec<u16> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&i, &j| values[i].abs().total_cmp(&values[j].abs()));
    let mut ranks = vec![0; values.len()];
    let mut first = 1;
    for ties in order.chunk_by(|&i, &j| values[i].abs() == values[j].abs()) {
        let last = first + ties.len() - 1;
        for &tied in ties.iter().filter(|&&tied| values[tied] != 0.0) {
            ranks[tied] = (first + last) as u16;
        }
        first = last + 1;
    }
    ranks
}

/// How many means of two of `n` values there are, each value with itself too: the greatest sum of
/// ranks.
pub(super) fn greatest_sum(n: usize) -> usize {
    n * (n + 1) / 2
}

/// The distribution of the sum of the ranks whose sign is positive, if every sign is a fair coin
/// and no ranks are tied.
#[derive(Debug)]
pub(super) struct NullSum {
    cumulative: Vec<f64>,
}

impl NullSum {
    /// The distribution for `n` values, at most [`MAX_PAIRS`].
    pub(super) fn for_size(n: usize) -> &'static Self {
        static ALL: LazyLock<Vec<NullSum>> =
            LazyLock::new(|| (0..=MAX_PAIRS as usize).map(NullSum::new).collect());
        &ALL[n]
    }

    fn new(n: usize) -> Self {
        let mut density = vec![0.0; greatest_sum(n) + 1];
        density[0] = 1.0;
        for rank in 1..=n {
            // Downwards, so that what is read was not changed yet.
            for sum in (0..=greatest_sum(rank)).rev() {
                let with = if sum < rank { 0.0 } else { density[sum - rank] };
                density[sum] = f64::midpoint(density[sum], with);
            }
        }
        let mut total = 0.0;
        for share in &mut density {
            total += *share;
            *share = total;
        }
        Self { cumulative: density }
    }

    /// The probability of a sum of at most `sum`.
    pub(super) fn upto(&self, sum: usize) -> f64 {
        self.cumulative[sum.min(self.cumulative.len() - 1)]
    }

    /// The greatest sum that with at most this probability is not exceeded; `None` if even 0 is
    /// likelier.
    pub(super) fn quantile(&self, level: f64) -> Option<usize> {
        let rounding = 1e-12;
        let below = self.cumulative.partition_point(|&share| share <= level + rounding);
        below.checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_share_their_ranks_and_zeros_have_none() {
        assert_eq!(doubled_ranks(&[0.3, -0.1, 0.2, -0.2, 0.5]), [8, 2, 5, 5, 10]);
        assert_eq!(doubled_ranks(&[0.0, 2.0, -0.0, -1.0, 2.0]), [0, 9, 0, 6, 9]);
        assert!(doubled_ranks(&[]).is_empty());
    }

    #[test]
    fn the_null_distribution_is_the_published_one() {
        // Wilcoxon and Wilcox (1964), two-sided 5 %: 0, 3, 8, 17, 137 for n = 6, 8, 10, 13, 30.
        for (n, critical) in [(6, 0), (8, 3), (10, 8), (13, 17), (30, 137)] {
            assert_eq!(NullSum::for_size(n).quantile(0.025), Some(critical), "n = {n}");
        }
        assert_eq!(NullSum::for_size(5).quantile(0.025), None);
        assert_eq!(NullSum::for_size(3).upto(2), 3.0 / 8.0);
        assert!((NullSum::for_size(30).upto(465) - 1.0).abs() < 1e-12);
        assert!((NullSum::for_size(10).upto(27) - 0.5).abs() < 1e-12);
    }
}

//! The effect and its interval.

use crate::median_of_sorted;

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

#[cfg(test)]
mod tests {
    use super::super::ranks::NullSum;
    use super::*;

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

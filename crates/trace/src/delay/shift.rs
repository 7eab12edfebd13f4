//! How far one sample lies above another: the Hodges–Lehmann shift with its distribution-free
//! interval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::thinned;
/// Confidence aimed at. Few samples reach less: 3 and 3 reach 90 %, 3 and 2 reach 80 %.
const CONFIDENCE: f64 = 0.95;
/// Up to this many pairs the distribution is computed; beyond that it is close to normal.
const MAX_EXACT: usize = 2_500;
/// Most samples used, chosen evenly, so that the pairs stay few.
const MAX_SAMPLES: usize = 1_000;

/// A shift in location between two samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shift {
    /// Median of all differences, in the unit of the samples.
    pub estimate: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Probability, 0 to 1, that the interval contains the shift, if the samples differ only by a
    /// shift.
    pub coverage: f64,
}

impl Shift {
    /// The interval, widened to contain another estimate of the same shift, such as the difference
    /// of the least samples.
    pub(super) fn interval_with(&self, estimate: f64) -> [f64; 2] {
        [self.low.min(estimate), self.high.max(estimate)]
    }
}

/// The shift from `a` to `b`; `None` if one is empty or contains a number that is not finite.
///
/// The interval runs from the k-th smallest to the k-th largest of the differences b − a, where k
/// is the largest with 1 − 2·P(U < k) ≥ 95 % and U is the Mann–Whitney statistic (Lehmann,
/// *Nonparametrics*, section 2.5); if even the whole range has less, it is the range with its
/// coverage.
pub(super) fn shift(a: &[f64], b: &[f64]) -> Option<Shift> {
    let all_finite = |samples: &[f64]| samples.iter().all(|sample| sample.is_finite());
    if a.is_empty() || b.is_empty() || !all_finite(a) || !all_finite(b) {
        return None;
    }
    let (a, b) = (thinned(a, MAX_SAMPLES), thinned(b, MAX_SAMPLES));
    let mut differences: Vec<f64> = b.iter().flat_map(|b| a.iter().map(move |a| b - a)).collect();
    differences.sort_by(f64::total_cmp);
    let (skipped, coverage) = ranks(a.len(), b.len());
    let last = differences.len() - 1;
    Some(Shift {
        estimate: f64::midpoint(differences[last / 2], differences[last.div_ceil(2)]),
        low: differences[skipped],
        high: differences[last - skipped],
        coverage,
    })
}

/// How many differences to skip at each end, and the coverage.
fn ranks(m: usize, n: usize) -> (usize, f64) {
    if m * n > MAX_EXACT {
        return normal_ranks(m as f64, n as f64);
    }
    let probability = mann_whitney(m, n);
    let mut below = probability[0];
    let mut coverage = 1.0 - 2.0 * below;
    let mut skipped = 0;
    while 2 * (skipped + 1) < m * n {
        below += probability[skipped + 1];
        if 1.0 - 2.0 * below < CONFIDENCE {
            break;
        }
        coverage = 1.0 - 2.0 * below;
        skipped += 1;
    }
    (skipped, coverage.max(0.0))
}

/// P(U = u) for u = 0..=m·n if both samples are of one distribution: the coefficients of the
/// Gaussian binomial.
fn mann_whitney(m: usize, n: usize) -> Vec<f64> {
    let mut ways = vec![0.0; m * n + 1];
    ways[0] = 1.0;
    for i in 1..=m {
        // Times (1 − q^(n+i)), then over (1 − q^i).
        for u in (n + i..=m * n).rev() {
            ways[u] -= ways[u - n - i];
        }
        for u in i..=m * n {
            ways[u] += ways[u - i];
        }
    }
    let all: f64 = ways.iter().sum();
    ways.into_iter().map(|way| (way / all).max(0.0)).collect()
}

fn normal_ranks(m: f64, n: f64) -> (usize, f64) {
    // The quantile of the standard normal distribution at 97.5 %.
    const Z: f64 = 1.959_963_984_540_054;
    let spread = (m * n * (m + n + 1.0) / 12.0).sqrt();
    let skipped = (m * n / 2.0 - Z * spread - 0.5).floor().max(0.0);
    (skipped as usize, CONFIDENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_is_the_one_of_counting() {
        // 3 and 3: C(6,3) = 20 orders; U = 0..9 in 1, 1, 2, 3, 3, 3, 3, 2, 1, 1 of them.
        let ways: Vec<f64> = mann_whitney(3, 3).iter().map(|p| p * 20.0).collect();
        let counted = [1.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 2.0, 1.0, 1.0];
        assert!(ways.iter().zip(counted).all(|(a, b)| (a - b).abs() < 1e-9));
        assert_eq!(mann_whitney(1, 4), [0.2; 5]);
        assert_eq!(mann_whitney(4, 1), [0.2; 5]);
    }

    #[test]
    fn coverage_is_what_the_numbers_of_samples_can_have() {
        assert_eq!(ranks(1, 1), (0, 0.0));
        let near = |(skipped, coverage): (usize, f64), k, c: f64| {
            assert_eq!(skipped, k);
            assert!((coverage - c).abs() < 1e-9, "{coverage}");
        };
        near(ranks(3, 3), 0, 0.9);
        near(ranks(3, 2), 0, 0.8);
        // 5 and 5: critical value 2 of the two-sided test at 5 %, P(U ≤ 2) = 4/252.
        near(ranks(5, 5), 2, 1.0 - 8.0 / 252.0);
        // 10 and 10: critical value 23.
        assert_eq!(ranks(10, 10).0, 23);
    }

    #[test]
    fn the_normal_ranks_join_the_exact_ones() {
        let (exact, _) = ranks(50, 50);
        let (normal, _) = normal_ranks(50.0, 50.0);
        assert!(exact.abs_diff(normal) <= 2, "{exact} and {normal}");
    }

    #[test]
    fn a_shift_is_the_median_difference() {
        let shift = shift(&[1.0, 2.0, 3.0], &[11.0, 12.0, 13.0]).unwrap();
        assert_eq!((shift.estimate, shift.low, shift.high), (10.0, 8.0, 12.0));
        assert_eq!(super::shift(&[], &[1.0]), None);
        assert_eq!(super::shift(&[1.0], &[f64::NAN]), None);
        let one = super::shift(&[1.0], &[5.0]).unwrap();
        assert_eq!((one.estimate, one.coverage), (4.0, 0.0));
    }

    #[test]
    fn many_samples_stay_affordable() {
        let many: Vec<f64> = (0..100_000).map(f64::from).collect();
        let shift = shift(&many, &many).unwrap();
        assert!(shift.low < 0.0 && shift.high > 0.0);
    }
}

//! The Mann–Kendall test: do the samples rise or fall in the order in which they were taken?

/// Two-sided p-value of the Mann–Kendall test (Kendall, *Rank Correlation Methods*, chapters 4 and
/// 5).
///
/// Up to [`EXACT_UPTO`] samples without ties the null distribution is enumerated; else it is the
/// normal one with a continuity correction and the variance reduced for ties. O(n²).
pub(super) fn mann_kendall(samples: &[f64]) -> f64 {
    let score = score(samples);
    let tie_sizes = tie_sizes(samples);
    if samples.len() <= EXACT_UPTO && tie_sizes.iter().all(|&size| size == 1) {
        return exact_p_value(samples.len(), score);
    }
    let term = |n: usize| (n * (n - 1) * (2 * n + 5)) as f64;
    let ties: f64 = tie_sizes.into_iter().map(term).sum();
    let variance = (term(samples.len()) - ties) / 18.0;
    if variance == 0.0 {
        return 1.0;
    }
    let z = (score.abs() as f64 - 1.0).max(0.0) / variance.sqrt();
    two_sided_normal(z)
}

/// The Theil–Sen slope, the median of the slopes between all pairs: the change from one sample to
/// the next.
pub(super) fn theil_sen_slope(samples: &[f64]) -> f64 {
    let mut slopes: Vec<f64> =
        pairs(samples.len()).map(|(i, j)| (samples[j] - samples[i]) / (j - i) as f64).collect();
    slopes.sort_by(f64::total_cmp);
    super::median_of_sorted(&slopes)
}

/// Kendall's S: pairs that rise minus pairs that fall.
fn score(samples: &[f64]) -> i64 {
    pairs(samples.len())
        .map(|(i, j)| i64::from(samples[j] > samples[i]) - i64::from(samples[j] < samples[i]))
        .sum()
}

fn pairs(n: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n).flat_map(move |i| (i + 1..n).map(move |j| (i, j)))
}

fn tie_sizes(samples: &[f64]) -> Vec<usize> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.chunk_by(|a, b| a == b).map(<[f64]>::len).collect()
}

/// P(|S| ≥ |score|) over all orders of `n` distinct samples.
fn exact_p_value(n: usize, score: i64) -> f64 {
    // The k-th sample has 0 to k − 1 larger ones before it, each with the same probability: the
    // number of falling pairs is a sum of independent uniform numbers.
    let mut falling = vec![1.0];
    for k in 2..=n {
        let mut longer = vec![0.0; falling.len() + k - 1];
        for (so_far, probability) in falling.iter().enumerate() {
            for more in 0..k {
                longer[so_far + more] += probability / k as f64;
            }
        }
        falling = longer;
    }
    let all_pairs = falling.len() as i64 - 1;
    falling
        .into_iter()
        .zip(0_i64..)
        .filter(|&(_, falling)| (all_pairs - 2 * falling).abs() >= score.abs())
        .map(|(probability, _)| probability)
        .sum::<f64>()
        .min(1.0)
}

/// P(|Z| ≥ z) of the normal distribution, for z ≥ 0, to 1.5·10⁻⁷: Abramowitz and Stegun, formula
/// 7.1.26.
pub fn two_sided_normal(z: f64) -> f64 {
    let x = z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let polynomial = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592]
        .into_iter()
        .fold(0.0, |sum, coefficient| (sum + coefficient) * t);
    (polynomial * (-x * x).exp()).clamp(0.0, 1.0)
}

/// Beyond this the normal p-value is within 0.003 of the exact one, and within 0.001 of it near
/// 0.01.
const EXACT_UPTO: usize = 30;

#[cfg(test)]
mod tests {
    use super::super::simulation::{Source, rate};
    use super::*;

    #[test]
    fn exact_p_values_match_enumeration_and_kendalls_table() {
        // Counted over all orders of n: S reaches ±score in so many of them.
        for (n, score, orders, of) in [(4, 6, 2, 24), (5, 10, 2, 120), (7, 11, 686, 5_040)] {
            let exact = f64::from(orders) / f64::from(of);
            assert!((exact_p_value(n, score) - exact).abs() < 1e-12, "n = {n}");
        }
        // Kendall's appendix table 1 prints 0.031 and 0.036 for one side.
        assert!((exact_p_value(8, 16) / 2.0 - 0.031).abs() < 5e-4);
        assert!((exact_p_value(10, 21) / 2.0 - 0.036).abs() < 5e-4);
        assert!((exact_p_value(5, 0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn normal_and_exact_p_values_meet_where_one_takes_over() {
        let variance = (30 * 29 * 65) as f64 / 18.0;
        for score in [61, 101, 145, 181] {
            let normal = two_sided_normal((score - 1) as f64 / variance.sqrt());
            assert!((normal - exact_p_value(30, score)).abs() < 3e-3, "S = {score}");
        }
        assert!((two_sided_normal(1.959_964) - 0.05).abs() < 1e-6);
        assert!((two_sided_normal(0.0) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn constant_samples_have_no_trend() {
        assert_eq!(mann_kendall(&[4.0; 12]), 1.0);
        assert_eq!(mann_kendall(&[4.0]), 1.0);
    }

    #[test]
    fn slope_ignores_an_outlier() {
        let mut samples: Vec<f64> = (0..11).map(|i| 2.0 * f64::from(i)).collect();
        samples[3] = 1e6;
        assert_eq!(theil_sen_slope(&samples), 2.0);
    }

    #[test]
    fn tied_samples_without_trend_are_rejected_no_more_often_than_the_level() {
        let mut source = Source::new(4);
        for n in [6, 10, 40] {
            let rejected = rate(10_000, || {
                mann_kendall(&source.samples(n, |s| (3.0 * s.uniform()).floor())) <= 0.01
            });
            assert!(rejected < 0.013, "n = {n}: {rejected}");
        }
    }
}

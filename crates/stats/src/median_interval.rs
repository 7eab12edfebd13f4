//! The distribution-free interval of a median.

use super::{CONFIDENCE, StatsError, median_of_sorted, sorted};

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
    /// Probability, 0 to 1, that such an interval holds the median: at least 0.95 from 6 samples
    /// on. For fewer it is what the whole range from the smallest to the largest sample has, 1 −
    /// 2^(1−n).
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
    let n = sorted.len();
    let (skipped, coverage) = order_statistics(n);
    Ok(MedianInterval {
        median: median_of_sorted(&sorted),
        low: sorted[skipped],
        high: sorted[n - 1 - skipped],
        coverage,
        n,
    })
}

/// How many samples to leave out at each end for a coverage of at least [`CONFIDENCE`], and the
/// coverage.
pub(super) fn order_statistics(n: usize) -> (usize, f64) {
    let n_real = n as f64;
    // In logarithms, because 2^-n underflows from n = 1075 on.
    let mut ln_probability = -n_real * std::f64::consts::LN_2;
    let mut tail = ln_probability.exp();
    let mut coverage = 1.0 - 2.0 * tail;
    let mut skipped = 0;
    while 2 * (skipped + 1) < n {
        let next = (skipped + 1) as f64;
        ln_probability += ((n_real - next + 1.0) / next).ln();
        tail += ln_probability.exp();
        if 1.0 - 2.0 * tail < CONFIDENCE {
            break;
        }
        coverage = 1.0 - 2.0 * tail;
        skipped += 1;
    }
    (skipped, coverage.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::super::simulation::{Source, rate};
    use super::*;

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
            let (got_skipped, got_coverage) = order_statistics(n);
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
            let (_, coverage) = order_statistics(n);
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
                let (_, stated) = order_statistics(n);
                let covered = rate(20_000, || {
                    let interval = median_interval(&source.samples(n, draw)).unwrap();
                    (interval.low..=interval.high).contains(&truth)
                });
                // Four standard errors of 20,000 trials at 94 %.
                assert!((covered - stated).abs() < 0.007, "n = {n}: {covered} for {stated}");
            }
        }
    }
}

//! Location and spread of a sample.

use super::{StatsError, median_of_sorted, sorted};

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
}

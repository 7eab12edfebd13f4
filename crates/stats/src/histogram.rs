//! Latencies of many packets or transactions, in bounded memory.

use hdrhistogram::Histogram;

use super::StatsError;

/// A histogram of latencies from 1 ns to 1000 s, to 3 significant digits.
///
/// A latency beyond the range is counted at its end. Recording allocates nothing; the memory, about
/// 250 KiB, is allocated by `new`.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyHistogram {
    ns: Histogram<u64>,
}

/// Latencies of a run, in µs. Quantiles are the smallest latency that this share of the samples
/// does not exceed; all but the count are accurate to 0.1 %.
#[derive(
    Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct LatencySummary {
    /// The shortest latency, in µs.
    pub min: f64,
    /// The arithmetic mean, in µs.
    pub mean: f64,
    /// The median, in µs.
    pub p50: f64,
    /// The 90 % quantile, in µs.
    pub p90: f64,
    /// The 99 % quantile, in µs.
    pub p99: f64,
    /// The 99.9 % quantile, in µs.
    pub p999: f64,
    /// The longest latency, in µs.
    pub max: f64,
    /// Number of samples.
    pub count: u64,
}

/// A histogram for a record: at most 512 pairs of an upper bound in µs and the number of samples up
/// to it and above the bound before. Empty buckets are left out, so a bound says nothing about
/// where the samples in it begin.
#[derive(
    Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct LatencyBuckets(pub Vec<(f64, u64)>);

impl LatencyHistogram {
    /// An empty histogram.
    pub fn new() -> Self {
        let ns = Histogram::new_with_bounds(1, MAX_NS, SIGNIFICANT_DIGITS)
            .expect("1 to 10^12 at 3 digits are valid bounds");
        Self { ns }
    }

    /// Counts one latency in ns.
    pub fn record_ns(&mut self, latency_ns: u64) {
        self.ns.saturating_record(latency_ns.min(MAX_NS));
    }

    /// Adds the samples of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.ns.add(&other.ns).expect("all latency histograms have the same bounds");
    }

    /// Adds the samples of a record's buckets, each counted at its bucket's upper bound.
    ///
    /// # Errors
    /// [`StatsError::OutOfRange`] if a bound is not within 0 to 10⁹ µs; nothing is added then.
    pub fn merge_buckets(&mut self, buckets: &LatencyBuckets) -> Result<(), StatsError> {
        let bad = |upper_us: &f64| !(0.0..=MAX_NS as f64 / NS_PER_US).contains(upper_us);
        if let Some(&(value, _)) = buckets.0.iter().find(|(upper_us, _)| bad(upper_us)) {
            let allowed = "within 0..=10^9 µs";
            return Err(StatsError::out_of_range("latency buckets", value, allowed));
        }
        for &(upper_us, count) in &buckets.0 {
            let upper_ns = (upper_us * NS_PER_US).round() as u64;
            self.ns.saturating_record_n(upper_ns, count);
        }
        Ok(())
    }

    /// The latencies in short; `None` if there are none.
    pub fn summary(&self) -> Option<LatencySummary> {
        if self.ns.is_empty() {
            return None;
        }
        let us = |ns: u64| ns.min(MAX_NS) as f64 / NS_PER_US;
        let quantile = |q| us(self.ns.value_at_quantile(q));
        Some(LatencySummary {
            min: us(self.ns.min()),
            mean: self.ns.mean() / NS_PER_US,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: us(self.ns.max()),
            count: self.ns.len(),
        })
    }

    /// The histogram for a record, as fine as 512 buckets allow: 2^b to each doubling of the
    /// latency, b from 10 (as fine as the histogram itself, 0.1 %) down to 3 (12.5 %), which
    /// suffices for samples at every latency there is.
    pub fn buckets(&self) -> LatencyBuckets {
        (COARSEST..=FINEST)
            .rev()
            .map(|bits| self.buckets_of(bits))
            .find(|buckets| buckets.0.len() <= MAX_BUCKETS)
            .expect("40 doublings of 2^3 buckets are fewer than 512")
    }

    fn buckets_of(&self, bits: u32) -> LatencyBuckets {
        let mut buckets: Vec<(f64, u64)> = Vec::new();
        for value in self.ns.iter_recorded() {
            let upper_ns = coarse_upper(value.value_iterated_to(), bits).min(MAX_NS);
            let upper_us = upper_ns as f64 / NS_PER_US;
            let count = value.count_at_value();
            match buckets.last_mut() {
                Some(last) if last.0 == upper_us => last.1 = last.1.saturating_add(count),
                _ => buckets.push((upper_us, count)),
            }
        }
        LatencyBuckets(buckets)
    }
}

impl TryFrom<&LatencyBuckets> for LatencyHistogram {
    type Error = StatsError;

    fn try_from(buckets: &LatencyBuckets) -> Result<Self, StatsError> {
        let mut histogram = Self::new();
        histogram.merge_buckets(buckets)?;
        Ok(histogram)
    }
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self::new()
    }
}

/// The largest value in the same cell as `ns`, where each doubling is cut into 2^`bits` cells of
/// the same width.
fn coarse_upper(ns: u64, bits: u32) -> u64 {
    let shift = ns.checked_ilog2().unwrap_or(0).saturating_sub(bits);
    ns | ((1 << shift) - 1)
}

/// 1000 s.
const MAX_NS: u64 = 1_000_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;
const NS_PER_US: f64 = 1e3;
/// Entries of a record's histogram.
const MAX_BUCKETS: usize = 512;
/// log2 of the buckets to a doubling: the histogram's own, and the finest at which all 40 doublings
/// fit.
const FINEST: u32 = 10;
const COARSEST: u32 = 3;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn histogram(latencies_ns: &[u64]) -> LatencyHistogram {
        let mut histogram = LatencyHistogram::new();
        for &ns in latencies_ns {
            histogram.record_ns(ns);
        }
        histogram
    }

    #[test]
    fn summary_of_a_uniform_sample_is_within_a_thousandth() {
        let latencies: Vec<u64> = (1..=10_000).map(|us| us * 1_000).collect();
        let got = histogram(&latencies).summary().unwrap();
        let pairs = [
            (got.min, 1.0),
            (got.mean, 5_000.5),
            (got.p50, 5_000.0),
            (got.p90, 9_000.0),
            (got.p99, 9_900.0),
            (got.p999, 9_990.0),
            (got.max, 10_000.0),
        ];
        for (got, exact) in pairs {
            assert!((got / exact - 1.0).abs() <= 1e-3, "{got} for {exact}");
        }
        assert_eq!(got.count, 10_000);
    }

    #[test]
    fn without_samples_there_is_no_summary() {
        assert_eq!(LatencyHistogram::new().summary(), None);
        assert!(LatencyHistogram::new().buckets().0.is_empty());
    }

    #[test]
    fn latencies_beyond_the_range_count_at_its_ends() {
        let summary = histogram(&[0, u64::MAX]).summary().unwrap();
        assert_eq!((summary.min, summary.max), (0.0, 1e9));
        assert_eq!(summary.count, 2);
    }

    #[test]
    fn latencies_everywhere_still_fit_the_record() {
        let latencies: Vec<u64> = (0..40_000).map(|i| 1.0007_f64.powi(i) as u64).collect();
        let buckets = histogram(&latencies).buckets();
        assert!((256..=512).contains(&buckets.0.len()), "{}", buckets.0.len());
        let count: u64 = buckets.0.iter().map(|bucket| bucket.1).sum();
        assert_eq!(count, 40_000);
    }

    #[test]
    fn buckets_with_impossible_bounds_are_refused_whole() {
        let mut histogram = LatencyHistogram::new();
        for bad in [-1.0, 1e9 + 1.0, f64::NAN, f64::INFINITY] {
            let buckets = LatencyBuckets(vec![(1.0, 1), (bad, 1)]);
            assert!(histogram.merge_buckets(&buckets).is_err());
        }
        assert_eq!(histogram.summary(), None);
    }

    fn latency() -> impl Strategy<Value = u64> {
        (0_u32..40).prop_flat_map(|bits| (1_u64 << bits)..(2_u64 << bits))
    }

    proptest! {
        #[test]
        fn merging_is_recording_both(
            a in prop::collection::vec(latency(), 0..100),
            b in prop::collection::vec(latency(), 0..100),
        ) {
            let mut merged = histogram(&a);
            merged.merge(&histogram(&b));
            prop_assert_eq!(merged, histogram(&[a, b].concat()));
        }

        #[test]
        fn buckets_survive_json_and_merging_back(
            latencies in prop::collection::vec(latency(), 0..2_000),
        ) {
            let original = histogram(&latencies);
            let buckets = original.buckets();
            prop_assert!(buckets.0.len() <= MAX_BUCKETS);
            let text = serde_json::to_string(&buckets).unwrap();
            let mut back = LatencyHistogram::new();
            back.merge_buckets(&serde_json::from_str(&text).unwrap()).unwrap();
            prop_assert_eq!(back.buckets(), buckets);
            if let (Some(was), Some(is)) = (original.summary(), back.summary()) {
                prop_assert_eq!(was.count, is.count);
                // Counted at the upper bound, a latency grows by at most the coarsest bucket's
                // width.
                prop_assert!(was.p99 * 0.999 <= is.p99 && is.p99 <= was.p99 * 1.126 + 0.001);
            }
        }
    }
}

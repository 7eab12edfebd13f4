//! Estimates the rate of each link from how the RTT grows with the size of probes (pathchar's
//! method).
//!
//! A store-and-forward link of rate C takes 8/C longer per byte. The least RTT for each size
//! contains no queueing and grows with the size by the sum of 8/C over the links up to the hop; the
//! difference between two hops is the link between them (Jacobson, "pathchar", 1997; Downey, "Using
//! pathchar to estimate Internet link characteristics", 1999).
//!
//! It needs answers of constant length. Routers quote up to 576 bytes in all (RFC 1812) and IPv6
//! hosts up to 1280, so probes must be longer than these; an echo comes back whole and doubles the
//! sum. A switch that stores frames counts as a link. Errors add up from hop to hop: nothing is
//! seen of a fast link behind a slow one, and the interval then says so.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

/// RTTs of one hop by the size of the probe.
#[derive(Debug, Clone, PartialEq)]
pub struct SizedSamples {
    /// Its TTL.
    pub ttl: u8,
    /// Size including the IP header, bytes, and RTT, microseconds; values that are not finite are
    /// ignored.
    pub samples: Vec<(u16, f64)>,
}

/// The rate of a link, or of several between two hops that answered.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkRate {
    /// TTL of the hop before it; absent for this host.
    pub after_ttl: Option<u8>,
    /// TTL of the hop after it.
    pub to_ttl: u8,
    /// The estimate, bits per second; absent if the RTT does not grow there.
    pub rate_bps: Option<f64>,
    /// Lower end of the interval at 95 % or more; absent if even the upper limit of the growth is
    /// not above zero.
    pub at_least_bps: Option<f64>,
    /// Upper end; absent if there may be no growth at all, so that any faster rate would look the
    /// same.
    pub at_most_bps: Option<f64>,
    /// Different sizes answered by both ends.
    pub sizes: u32,
}

/// Fewest sizes with an interval at this confidence: 7 reach 99.96 % at most, 5 reach 98.3 %.
const MIN_SIZES: usize = 5;
/// Quantile of the normal distribution for 97.5 % two-sided: two such intervals differ at 95 %.
const Z: f64 = 2.241_402_727_604_945;
/// Most sizes used, chosen evenly, since all pairs of them are compared.
const MAX_SIZES: usize = 300;

/// The rates of the links between hops, from near to far. Hops with answers to fewer than 5 sizes
/// are skipped.
pub fn link_rates(hops: &[SizedSamples]) -> Vec<LinkRate> {
    let mut rates = Vec::new();
    let mut before: Option<(u8, Growth)> = None;
    for hop in hops {
        let Some(growth) = growth(&hop.samples) else {
            continue;
        };
        // To this host itself nothing grows.
        let near = before.map(|(_, growth)| growth).unwrap_or_default();
        let bps = |us_per_byte: f64| (us_per_byte > 0.0).then(|| 8e6 / us_per_byte);
        rates.push(LinkRate {
            after_ttl: before.map(|(ttl, _)| ttl),
            to_ttl: hop.ttl,
            rate_bps: bps(growth.estimate - near.estimate),
            at_least_bps: bps(growth.high - near.low),
            at_most_bps: bps(growth.low - near.high),
            sizes: growth.sizes,
        });
        before = Some((hop.ttl, growth));
    }
    rates
}

/// How an RTT grows with the size, microseconds per byte.
#[derive(Debug, Clone, Copy, Default)]
struct Growth {
    estimate: f64,
    low: f64,
    high: f64,
    sizes: u32,
}

/// Theil and Sen's slope of the least RTTs, the median slope of all pairs, with its interval by
/// Kendall's statistic (Sen, "Estimates of the regression coefficient based on Kendall's tau",
/// 1968).
fn growth(samples: &[(u16, f64)]) -> Option<Growth> {
    let points = least_by_size(samples);
    if points.len() < MIN_SIZES {
        return None;
    }
    let mut slopes = Vec::with_capacity(points.len() * points.len() / 2);
    for (place, (size, rtt)) in points.iter().enumerate() {
        let later = points[place + 1..].iter();
        slopes.extend(later.map(|(larger, other)| (other - rtt) / (larger - size)));
    }
    slopes.sort_by(f64::total_cmp);
    let n = points.len() as f64;
    let spread = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    let skipped = ((slopes.len() as f64 - Z * spread) / 2.0).floor().max(0.0) as usize;
    let last = slopes.len() - 1;
    Some(Growth {
        estimate: f64::midpoint(slopes[last / 2], slopes[last.div_ceil(2)]),
        low: slopes[skipped],
        high: slopes[last - skipped],
        sizes: u32::try_from(points.len()).unwrap_or(u32::MAX),
    })
}

fn least_by_size(samples: &[(u16, f64)]) -> Vec<(f64, f64)> {
    let mut least = std::collections::BTreeMap::<u16, f64>::new();
    for (size, rtt) in samples.iter().filter(|(_, rtt)| rtt.is_finite()) {
        let entry = least.entry(*size).or_insert(*rtt);
        *entry = entry.min(*rtt);
    }
    let step = least.len().div_ceil(MAX_SIZES).max(1);
    let chosen = least.into_iter().step_by(step);
    chosen.map(|(size, rtt)| (f64::from(size), rtt)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Hops of a path with links of these rates: 16 sizes, `times` probes of each, with exponential
    /// queues.
    fn path(rates_bps: &[f64], times: u32, queue_us: f64, seed: u64) -> Vec<SizedSamples> {
        let mut state = seed;
        let mut uniform = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        };
        let mut us_per_byte = 0.0;
        let mut hops = Vec::new();
        for (ttl, bps) in (1..).zip(rates_bps) {
            us_per_byte += 8e6 / bps;
            let mut samples = Vec::new();
            for size in (600..1_500u16).step_by(60) {
                for _ in 0..times {
                    let queue = -queue_us * uniform().ln();
                    samples.push((size, 500.0 + us_per_byte * f64::from(size) + queue));
                }
            }
            hops.push(SizedSamples { ttl, samples });
        }
        hops
    }

    #[test]
    fn without_queues_the_rates_are_exact() {
        let rates = link_rates(&path(&[1e8, 1e7, 1e8], 1, 0.0, 1));
        let found: Vec<f64> = rates.iter().map(|rate| rate.rate_bps.unwrap()).collect();
        for (found, there) in found.iter().zip([1e8, 1e7, 1e8]) {
            assert!((found / there - 1.0).abs() < 1e-6, "{found} for {there}");
        }
        assert_eq!((rates[1].after_ttl, rates[1].to_ttl, rates[1].sizes), (Some(1), 2, 15));
    }

    #[test]
    fn a_fast_link_behind_a_slow_one_is_bounded_from_below_alone() {
        let rates = link_rates(&path(&[1e7, 1e10], 20, 30.0, 7));
        assert!(rates[0].at_most_bps.is_some());
        assert_eq!(rates[1].at_most_bps, None);
        assert!(rates[1].at_least_bps.is_none_or(|bps| bps > 2e7));
    }

    #[test]
    fn too_few_sizes_say_nothing() {
        let samples = vec![(600, 1.0), (700, 2.0), (800, 3.0), (900, 4.0), (900, 5.0)];
        assert!(link_rates(&[SizedSamples { ttl: 1, samples }]).is_empty());
        let samples = vec![(600, f64::NAN); 9];
        assert!(link_rates(&[SizedSamples { ttl: 1, samples }]).is_empty());
    }

    #[test]
    fn the_interval_holds_the_rate_in_19_of_20_cases() {
        let there = [1e8, 1e7, 5e7];
        let (mut held, mut all) = (0, 0);
        for seed in 0..200 {
            for (rate, bps) in link_rates(&path(&there, 4, 50.0, seed)).iter().zip(there) {
                let above = rate.at_least_bps.is_some_and(|least| least <= bps);
                let below = rate.at_most_bps.is_none_or(|most| bps <= most);
                held += u32::from(above && below);
                all += 1;
            }
        }
        assert!(f64::from(held) >= 0.94 * f64::from(all), "{held} of {all}");
    }

    proptest! {
        #[test]
        fn any_samples_are_stood(
            samples in prop::collection::vec((any::<u16>(), any::<f64>()), 0..60),
        ) {
            let hops = [SizedSamples { ttl: 1, samples: samples.clone() },
                SizedSamples { ttl: 2, samples }];
            for rate in link_rates(&hops) {
                prop_assert!(rate.rate_bps.is_none_or(|bps| bps >= 0.0));
            }
        }
    }
}

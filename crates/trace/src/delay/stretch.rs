//! Finds the core of a path, its shortest part that adds at least half of the delay.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shift;
use super::{HopSamples, MIN_COVERAGE, least, thinned};

/// Share of the whole delay it must add.
const SHARE: f64 = 0.5;
/// Samples of a hop compared; more are thinned out, since any pair of hops may be compared.
const MAX_SAMPLES: usize = 20;

/// A stretch of the path known to add at least half of its delay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DelayCore {
    /// TTL of the hop after which it begins; absent for this host itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_ttl: Option<u8>,
    /// TTL of the hop with which it ends.
    pub to_ttl: u8,
    /// Difference of the least RTTs at both ends, microseconds.
    pub added_us: f64,
    /// Interval of the shift between the RTTs at both ends, microseconds; its lower end is at least
    /// half of the path, and it contains `added_us`.
    pub interval_us: [f64; 2],
    /// Probability, 0 to 1, that the interval contains the shift.
    pub coverage: f64,
}

/// The core among stretches between `ends`, indices of hops whose least RTTs rise. Of several
/// equally short ones, it is the one with the highest lower end.
pub(super) fn find(hops: &[HopSamples], ends: &[usize]) -> Option<DelayCore> {
    let whole = least(&hops[*ends.last()?]);
    let enough = SHARE * whole;
    let mut stretches = Vec::new();
    for (number, &to) in ends.iter().enumerate() {
        // The whole path is not a part of it.
        let is_part = number + 1 < ends.len();
        let from_here = (is_part && least(&hops[to]) >= enough).then_some((None, to));
        let from = ends[..number].iter().map(|&after| (Some(after), to));
        let adds = |(after, to): &(Option<usize>, usize)| {
            after.map_or(0.0, |after| least(&hops[after])) + enough <= least(&hops[*to])
        };
        stretches.extend(from.chain(from_here).filter(adds));
    }
    let length = |(after, to): &(Option<usize>, usize)| {
        hops[*to].ttl - after.map_or(0, |after| hops[after].ttl)
    };
    stretches.sort_by_key(length);
    let mut best: Option<DelayCore> = None;
    let mut shortest = u8::MAX;
    for stretch in &stretches {
        if length(stretch) > shortest {
            break;
        }
        let is_enough =
            |core: &DelayCore| core.interval_us[0] >= enough && core.coverage >= MIN_COVERAGE;
        let Some(found) = stretch_of(hops, *stretch).filter(is_enough) else {
            continue;
        };
        shortest = length(stretch);
        let is_worse = |best: &DelayCore| best.interval_us[0] < found.interval_us[0];
        if best.as_ref().is_none_or(is_worse) {
            best = Some(found);
        }
    }
    best
}

fn stretch_of(hops: &[HopSamples], (after, to): (Option<usize>, usize)) -> Option<DelayCore> {
    let end = thinned(&hops[to].rtt_us, MAX_SAMPLES);
    let start = match after {
        Some(after) => thinned(&hops[after].rtt_us, MAX_SAMPLES),
        // This host answers itself immediately, as often as it is asked.
        None => vec![0.0; end.len()],
    };
    let shift = shift(&start, &end)?;
    let added_us = least(&hops[to]) - after.map_or(0.0, |after| least(&hops[after]));
    Some(DelayCore {
        after_ttl: after.map(|after| hops[after].ttl),
        to_ttl: hops[to].ttl,
        added_us,
        interval_us: shift.interval_with(added_us),
        coverage: shift.coverage,
    })
}

#[cfg(test)]
mod tests {
    use super::super::analyze;
    use super::*;
    use proptest::prelude::*;

    fn hop(ttl: u8, rtt_us: &[f64]) -> HopSamples {
        HopSamples { ttl, address: None, rtt_us: rtt_us.to_vec() }
    }

    #[test]
    fn one_long_link_is_the_core() {
        let hops = [
            hop(1, &[1_000.0, 1_010.0, 1_020.0]),
            hop(2, &[9_000.0, 9_010.0, 9_020.0]),
            hop(3, &[10_000.0, 10_010.0, 10_020.0]),
        ];
        let core = analyze(&hops, 60.0).core.unwrap();
        assert_eq!((core.after_ttl, core.to_ttl), (Some(1), 2));
        assert_eq!((core.added_us, core.interval_us), (8_000.0, [7_980.0, 8_020.0]));
    }

    #[test]
    fn of_like_links_half_of_the_path_is() {
        let hops: Vec<_> = (1..=10)
            .map(|ttl| hop(ttl, &[0.0, 20.0, 40.0].map(|noise| f64::from(ttl) * 2_000.0 + noise)))
            .collect();
        let analysis = analyze(&hops, 60.0);
        let core = analysis.core.unwrap();
        // From this host five are known to be enough: its own end has no noise.
        assert_eq!((core.after_ttl, core.to_ttl), (None, 5));
        assert!(!analysis.is_largest_clear);
    }

    proptest! {
        #[test]
        fn the_core_is_known_to_add_half_and_lies_in_the_path(
            rtts in prop::collection::vec(prop::collection::vec(0.0..1e6f64, 1..6), 1..30),
        ) {
            let hops: Vec<_> = (1..).zip(&rtts).map(|(ttl, rtts)| hop(ttl, rtts)).collect();
            let analysis = analyze(&hops, 60.0);
            for step in &analysis.steps {
                let [low, high] = step.interval_us;
                prop_assert!((low..=high).contains(&step.added_us));
            }
            if let Some(core) = analysis.core {
                let whole = analysis.hops.last().unwrap().path_us;
                prop_assert!(core.interval_us[0] >= whole / 2.0 && core.added_us <= whole + 1e-6);
                let [low, high] = core.interval_us;
                prop_assert!((low..=high).contains(&core.added_us));
                prop_assert!(core.after_ttl.is_none_or(|after| after < core.to_ttl));
            }
        }
    }
}

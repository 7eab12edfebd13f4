//! Finds where along a path the delay is added.
//!
//! The RTT of a hop is the way there, the time the router needs to answer, and the way back.
//! Routers answer with low priority, so the RTT of one hop may exceed that of the next; the
//! difference is not a negative delay but a slow router or a queue that came and went. Yet a packet
//! to a farther hop passes this router too, so the path to a router takes no longer than the least
//! RTT of any hop from it on:
//!
//! ```text
//! path(h) = min { least RTT of k : k ≥ h }
//! ```
//!
//! (where the way back does not get shorter with the distance; an asymmetric return can break
//! that). It rises only at hops whose own least RTT is below that of all hops beyond. Between two
//! such hops lies a **step**: its delay is added somewhere between them, and at which of the slow
//! hops in between cannot be told. All samples of both hops give the interval of the shift between
//! them, whatever their distributions. A step whose interval reaches zero is not known to add
//! anything.
//!
//! A router inside an MPLS tunnel may send its answer on to the tunnel's end, from where it returns
//! (RFC 3032, section 2.3.2): the delay of the whole tunnel then appears at the first router with a
//! label (RFC 4950). So no step ends inside a tunnel: the hops with labels one after another, and
//! the hop behind them, which gets the packet without its label, are one step.
//!
//! A round trip does not tell which direction adds a delay. Over how many routers an answer comes
//! back follows from its TTL: where that grows by another number than the TTLs of the probes, the
//! ways back from both ends of a step differ, and so may their delay. Where it grows by the same, a
//! way of the same length may still be another one.
//!
//! Which of many similar steps is the largest is a matter of chance. The **core** of the path is
//! not: its shortest stretch that adds at least half of the delay, by the lower end of its
//! interval. It is reported where no single step is clearly the largest.

mod rate;
mod words;

use std::net::IpAddr;

pub use rate::{LinkRate, SizedSamples, link_rates};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

/// RTTs of one hop.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HopSamples {
    /// Its TTL.
    pub ttl: u8,
    /// Its address: the only one or the most frequent.
    pub address: Option<IpAddr>,
    /// RTTs, microseconds; values that are not finite are ignored.
    pub rtt_us: Vec<f64>,
    /// Whether its answers quote probes with an MPLS label: it is inside a tunnel.
    pub is_labelled: bool,
    /// Routers that its answers passed on the way back, itself included.
    pub return_hops: Option<u8>,
}

impl HopSamples {
    /// Routers on the way back beyond those on the way there.
    fn return_extra_hops(&self) -> Option<i16> {
        Some(i16::from(self.return_hops?) - i16::from(self.ttl))
    }
}

/// Where along a path the delay is added.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DelayAnalysis {
    /// Each hop that answered.
    pub hops: Vec<HopDelay>,
    /// The steps from near to far; together they add up to `path_us` of the last hop.
    pub steps: Vec<DelayStep>,
    /// Index of the step that adds most among those known to add; absent if there is none.
    pub largest: Option<usize>,
    /// Whether its interval is above those of all other steps.
    pub is_largest_clear: bool,
    /// The shortest stretch known to add half of the delay; absent if there is none.
    pub core: Option<DelayCore>,
    /// The analysis in sentences.
    pub words: Vec<String>,
}

/// The analysis of one hop.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HopDelay {
    /// Its TTL.
    pub ttl: u8,
    /// Its least RTT, microseconds.
    pub least_us: f64,
    /// Its median RTT, microseconds.
    #[serde(default)]
    pub median_us: f64,
    /// Upper limit of the path's RTT up to it: the least RTT of all hops from it on, microseconds.
    pub path_us: f64,
    /// How far its fastest answer is above that, microseconds: the router's own slowness or a
    /// queue.
    pub slow_answer_us: f64,
    /// Index of its step.
    pub step: usize,
    /// The lowest TTL at which its address answered before.
    pub repeats: Option<u8>,
    /// Routers that its answers pass on the way back beyond those on the way there, judged by the
    /// TTL of the answers; absent if that is not known.
    pub return_extra_hops: Option<i16>,
}

/// A stretch of the path and the delay it adds, both ways together.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DelayStep {
    /// TTL of the hop after which it begins; absent for this host itself.
    pub after_ttl: Option<u8>,
    /// TTL of the hop at which it ends. If that is more than one farther, the delay is somewhere in
    /// between.
    pub to_ttl: u8,
    /// Difference of the least RTTs at both ends, microseconds.
    pub added_us: f64,
    /// Interval of the shift between the RTTs at both ends, microseconds, including the RTTs of
    /// hops seen behind the step. It contains `added_us`.
    pub interval_us: [f64; 2],
    /// Probability, 0 to 1, that the interval contains the shift.
    pub coverage: f64,
    /// Whether the interval is above zero and the samples suffice to say so.
    pub is_known_to_add: bool,
    /// TTL of the first hop in it that answers as late as its end, within a twentieth of what the
    /// step adds or 0.1 ms. If that is below `to_ttl`, the delay is most likely added before that
    /// hop, which is hardly that slow by chance.
    #[serde(default)]
    pub seen_from_ttl: u8,
    /// The first and the last TTL with MPLS labels in it: at which router of the tunnel the delay
    /// is added is not known, since their answers may pass the whole tunnel before they return.
    /// Absent without labels.
    pub tunnel_ttls: Option<[u8; 2]>,
    /// `return_extra_hops` of the hop at its end less that of the hop after which it begins. If it
    /// is not 0, the ways back from both differ, and part of the step, or all of it, may be there;
    /// if it is 0, nothing shows that, but other ways of the same length would not. Absent if that
    /// is not known.
    pub return_extra_hops: Option<i16>,
}

/// Coverage a step needs to be known: what three probes at both ends reach.
const MIN_COVERAGE: f64 = 0.9 - 1e-9;
/// A hop counts as behind a step if its answer exceeds the step's end by no more than this share of
/// the step, or than this time.
const SEEN_SHARE: f64 = 0.05;
const SEEN_US: f64 = 100.0;

/// Analyses the hops of a path from near to far. Hops without a finite sample are skipped.
/// `probed_s` is the time between the first and the last probe, seconds: a queue that came and went
/// is seen only in answers of different times.
pub fn analyze(hops: &[HopSamples], probed_s: f64) -> DelayAnalysis {
    let hops: Vec<HopSamples> = hops.iter().filter_map(usable).collect();
    let paths_us = paths_us(&hops);
    let ends = step_ends(&hops, &paths_us);
    let steps = steps(&hops, &ends);
    let mut delays = Vec::with_capacity(hops.len());
    let mut step = 0;
    for (place, (hop, &path_us)) in hops.iter().zip(&paths_us).enumerate() {
        delays.push(HopDelay {
            ttl: hop.ttl,
            least_us: least(hop),
            median_us: linerate_stats::median(&hop.rtt_us),
            path_us,
            slow_answer_us: least(hop) - path_us,
            step,
            repeats: repeats(&hops[..place], hop.address),
            return_extra_hops: hop.return_extra_hops(),
        });
        step += usize::from(place == ends[step]);
    }
    let largest = largest(&steps);
    let is_largest_clear = largest.is_some_and(|largest| is_clear(&steps, largest));
    let mut analysis = DelayAnalysis {
        hops: delays,
        steps,
        largest,
        is_largest_clear,
        core: find(&hops, &ends),
        words: Vec::new(),
    };
    analysis.words = words::sentences(&analysis, probed_s);
    analysis
}

fn usable(hop: &HopSamples) -> Option<HopSamples> {
    let finite = |rtt: &f64| rtt.is_finite() && *rtt >= 0.0;
    let rtt_us: Vec<f64> = hop.rtt_us.iter().copied().filter(finite).collect();
    (!rtt_us.is_empty()).then(|| HopSamples { rtt_us, ..hop.clone() })
}

fn least(hop: &HopSamples) -> f64 {
    hop.rtt_us.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The least RTT of all hops from each one on.
fn paths_us(hops: &[HopSamples]) -> Vec<f64> {
    let mut paths: Vec<f64> = hops.iter().map(least).collect();
    for place in (1..paths.len()).rev() {
        paths[place - 1] = paths[place - 1].min(paths[place]);
    }
    paths
}

/// Indices of the hops at which steps end: their least RTT is below those of all hops beyond, and
/// they are not inside a tunnel that goes on beyond them.
fn step_ends(hops: &[HopSamples], paths_us: &[f64]) -> Vec<usize> {
    let is_end = |place: &usize| match paths_us.get(place + 1) {
        Some(beyond) => least(&hops[*place]) < *beyond && !hops[*place].is_labelled,
        None => true,
    };
    (0..hops.len()).filter(is_end).collect()
}

fn steps(hops: &[HopSamples], ends: &[usize]) -> Vec<DelayStep> {
    let mut before: Option<(&HopSamples, Vec<f64>)> = None;
    let mut first = 0;
    let mut steps = Vec::with_capacity(ends.len());
    for &end in ends {
        let hop = &hops[end];
        let added_us = least(hop) - before.as_ref().map_or(0.0, |(before, _)| least(before));
        let within = &hops[first..=end];
        let (seen_from_ttl, rtts) = seen(within, added_us);
        // This host answers itself immediately, as often as it is asked.
        let at_once = vec![0.0; rtts.len()];
        let from = before.as_ref().map_or(&at_once, |(_, rtts)| rtts);
        let shift = shift(from, &rtts).expect("usable samples are finite and some");
        let extra_before = match &before {
            Some((before, _)) => before.return_extra_hops(),
            None => Some(0),
        };
        steps.push(DelayStep {
            after_ttl: before.as_ref().map(|(before, _)| before.ttl),
            to_ttl: hop.ttl,
            added_us,
            interval_us: shift.interval_with(added_us),
            coverage: shift.coverage,
            is_known_to_add: shift.low > 0.0 && shift.coverage >= MIN_COVERAGE,
            seen_from_ttl,
            tunnel_ttls: tunnel_ttls(within),
            return_extra_hops: hop
                .return_extra_hops()
                .zip(extra_before)
                .map(|(to, from)| to - from),
        });
        before = Some((hop, rtts));
        first = end + 1;
    }
    steps
}

fn tunnel_ttls(step: &[HopSamples]) -> Option<[u8; 2]> {
    let mut labelled = step.iter().filter(|hop| hop.is_labelled).map(|hop| hop.ttl);
    let first = labelled.next()?;
    Some([first, labelled.next_back().unwrap_or(first)])
}

/// The hops of a step that answer as late as its last one: the TTL of the first, and the RTTs of
/// all. They are behind the same delay, so their answers count as more samples of the step's end.
/// Those inside a tunnel may be late only because their answers pass the rest of it.
fn seen(step: &[HopSamples], added_us: f64) -> (u8, Vec<f64>) {
    // Where the whole step is noise, no hop is behind it.
    let noise = (added_us * SEEN_SHARE).max(SEEN_US).min(added_us / 2.0);
    let end_us = step.last().map_or(0.0, least);
    let tunnel = step.iter().rposition(|hop| hop.is_labelled).map_or(0, |place| place + 1);
    let outside = &step[tunnel.min(step.len() - 1)..];
    let behind = || outside.iter().filter(|hop| least(hop) - end_us <= noise);
    let first = behind().next().map_or(0, |hop| hop.ttl);
    let rtts = behind().flat_map(|hop| hop.rtt_us.iter().copied());
    (first, rtts.collect())
}

fn repeats(before: &[HopSamples], address: Option<IpAddr>) -> Option<u8> {
    let address = Some(address?);
    let earlier = before.iter().find(|hop| hop.address == address);
    earlier.map(|hop| hop.ttl)
}

fn largest(steps: &[DelayStep]) -> Option<usize> {
    let known = (0..steps.len()).filter(|step| steps[*step].is_known_to_add);
    known.max_by(|a, b| steps[*a].added_us.total_cmp(&steps[*b].added_us))
}

fn is_clear(steps: &[DelayStep], largest: usize) -> bool {
    let low = steps[largest].interval_us[0];
    let is_below =
        |(place, step): (usize, &DelayStep)| place == largest || step.interval_us[1] < low;
    steps.iter().enumerate().all(is_below)
}

/// At most `most` samples, evenly chosen.
fn thinned(samples: &[f64], most: usize) -> Vec<f64> {
    let step = samples.len().div_ceil(most).max(1);
    samples.iter().copied().step_by(step).collect()
}

// The Hodges–Lehmann shift: how far one sample lies above another, with its interval.

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
    fn interval_with(&self, estimate: f64) -> [f64; 2] {
        [self.low.min(estimate), self.high.max(estimate)]
    }
}

/// The shift from `a` to `b`; `None` if one is empty or contains a number that is not finite.
///
/// The interval runs from the k-th smallest to the k-th largest of the differences b − a, where k
/// is the largest with 1 − 2·P(U < k) ≥ 95 % and U is the Mann–Whitney statistic (Lehmann,
/// *Nonparametrics*, section 2.5); if even the whole range has less, it is the range with its
/// coverage.
fn shift(a: &[f64], b: &[f64]) -> Option<Shift> {
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

// The core of a path: its shortest part that adds at least half of the delay.

/// Share of the whole delay it must add.
const SHARE: f64 = 0.5;
/// Samples of a hop compared; more are thinned out, since any pair of hops may be compared.
const STRETCH_MAX_SAMPLES: usize = 20;

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
fn find(hops: &[HopSamples], ends: &[usize]) -> Option<DelayCore> {
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
    let end = thinned(&hops[to].rtt_us, STRETCH_MAX_SAMPLES);
    let start = match after {
        Some(after) => thinned(&hops[after].rtt_us, STRETCH_MAX_SAMPLES),
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
    use proptest::prelude::*;

    use super::*;

    fn hop(ttl: u8, rtt_us: &[f64]) -> HopSamples {
        let address = Some(IpAddr::from([192, 0, 2, ttl]));
        let rtt_us = rtt_us.to_vec();
        HopSamples { ttl, address, rtt_us, return_hops: Some(ttl), ..HopSamples::default() }
    }

    #[test]
    fn the_step_is_where_the_line_is_long() {
        let hops = [
            hop(1, &[500.0, 520.0, 510.0]),
            hop(2, &[1_000.0, 1_100.0, 1_050.0]),
            hop(3, &[41_000.0, 41_200.0, 41_100.0]),
            hop(4, &[41_500.0, 41_700.0, 41_650.0]),
        ];
        let analysis = analyze(&hops, 60.0);
        assert_eq!(analysis.steps.len(), 4);
        assert_eq!(analysis.largest, Some(2));
        assert!(analysis.is_largest_clear);
        let step = &analysis.steps[2];
        assert_eq!((step.after_ttl, step.to_ttl), (Some(2), 3));
        assert_eq!(step.added_us, 40_000.0);
        assert_eq!(step.interval_us, [39_900.0, 40_200.0]);
        assert!((step.coverage - 0.9).abs() < 1e-9);
    }

    /// Hop 3 is later than hop 4 by 0.05 ms of noise: the 40 ms are before it all the same.
    #[test]
    fn noise_does_not_hide_which_hop_a_step_is_at() {
        let hops = [
            hop(1, &[500.0, 520.0, 510.0]),
            hop(2, &[1_000.0, 1_100.0, 1_050.0]),
            hop(3, &[41_050.0, 41_200.0, 41_100.0]),
            hop(4, &[41_000.0, 41_700.0, 41_650.0]),
        ];
        let step = &analyze(&hops, 60.0).steps[2];
        assert_eq!((step.after_ttl, step.to_ttl, step.seen_from_ttl), (Some(2), 4, 3));
        assert!(step.coverage > 0.95, "the answers of both count");
        // The last hop has lost one of three answers, and the one before it none.
        let few = [hop(1, &[10.0, 20.0, 30.0]), hop(2, &[8_030.0; 3]), hop(3, &[8_020.0; 2])];
        assert!(analyze(&few, 60.0).steps[1].is_known_to_add);
        let far = [hop(1, &[500.0; 3]), hop(2, &[44_000.0; 3]), hop(3, &[41_000.0; 3])];
        assert_eq!(analyze(&far, 60.0).steps[1].seen_from_ttl, 3, "3 ms of 40 are no noise");
    }

    #[test]
    fn a_slow_router_adds_nothing_to_the_path() {
        let hops = [
            hop(1, &[1_000.0, 1_010.0, 1_020.0]),
            hop(2, &[80_000.0, 90_000.0, 85_000.0]),
            hop(3, &[3_000.0, 3_010.0, 3_020.0]),
        ];
        let analysis = analyze(&hops, 60.0);
        assert_eq!(analysis.hops[1].path_us, 3_000.0);
        assert_eq!(analysis.hops[1].slow_answer_us, 77_000.0);
        let step = &analysis.steps[1];
        assert_eq!((step.after_ttl, step.to_ttl), (Some(1), 3));
        assert_eq!(step.added_us, 2_000.0);
    }

    #[test]
    fn no_step_ends_inside_a_tunnel_that_goes_on() {
        let mut hops: Vec<HopSamples> = (1..=9)
            .map(|ttl| hop(ttl, &[10.0, 10.1, 10.2].map(|us| us * f64::from(ttl))))
            .collect();
        let ends = |hops: &[HopSamples]| -> Vec<(u8, Option<[u8; 2]>)> {
            let steps = analyze(hops, 60.0).steps;
            steps.iter().map(|step| (step.to_ttl, step.tunnel_ttls)).collect()
        };
        // Two tunnels, the second up to the last hop.
        for ttl in [3, 4, 7, 8, 9] {
            hops[ttl - 1].is_labelled = true;
        }
        let whole = [(1, None), (2, None), (5, Some([3, 4])), (6, None), (9, Some([7, 9]))];
        assert_eq!(ends(&hops), whole);
        // A silent router between labels is of the same tunnel.
        hops[7].rtt_us.clear();
        assert_eq!(ends(&hops), whole);
        // Paths up to routers in it stay what later answers allow.
        assert_eq!(analyze(&hops, 60.0).hops[2].path_us, 30.0);
    }

    #[test]
    fn a_step_says_how_much_longer_the_way_back_gets_than_the_way_there() {
        let mut hops: Vec<HopSamples> = (1..=4).map(|ttl| hop(ttl, &[f64::from(ttl); 3])).collect();
        hops[2].return_hops = Some(9);
        let extra = |hops: &[HopSamples]| -> Vec<Option<i16>> {
            analyze(hops, 60.0).steps.iter().map(|step| step.return_extra_hops).collect()
        };
        assert_eq!(extra(&hops), [Some(0), Some(0), Some(6), Some(-6)]);
        hops[0].return_hops = None;
        assert_eq!(extra(&hops), [None, None, Some(6), Some(-6)]);
    }

    #[test]
    fn one_sample_a_hop_makes_nothing_known() {
        let analysis = analyze(&[hop(1, &[1.0]), hop(2, &[100.0])], 60.0);
        assert_eq!(analysis.largest, None);
        assert_eq!(analysis.steps[1].coverage, 0.0);
        assert!(analyze(&[], 60.0).steps.is_empty());
        assert!(analyze(&[hop(1, &[f64::NAN])], 60.0).hops.is_empty());
    }

    proptest! {
        #[test]
        fn the_steps_add_up_and_none_is_negative(
            rtts in prop::collection::vec(prop::collection::vec(0.0..1e6f64, 0..6), 0..40),
        ) {
            let hops: Vec<HopSamples> = (1..).zip(&rtts)
                .map(|(ttl, rtts)| hop(ttl, rtts)).collect();
            let analysis = analyze(&hops, 60.0);
            prop_assert!(analysis.steps.iter().all(|step| step.added_us >= 0.0));
            prop_assert!(analysis.hops.iter().all(|hop| hop.slow_answer_us >= 0.0));
            prop_assert!(analysis.hops.is_sorted_by(|a, b| a.path_us <= b.path_us));
            let sum: f64 = analysis.steps.iter().map(|step| step.added_us).sum();
            let last = analysis.hops.last().map_or(0.0, |hop| hop.path_us);
            prop_assert!((sum - last).abs() < 1e-6);
            for hop in &analysis.hops {
                let step = &analysis.steps[hop.step];
                prop_assert!(step.after_ttl.is_none_or(|after| after < step.seen_from_ttl));
                prop_assert!(step.seen_from_ttl <= step.to_ttl);
                prop_assert!(hop.ttl <= step.to_ttl
                    && step.after_ttl.is_none_or(|after| after < hop.ttl));
            }
        }
    }

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

    fn stretch_hop(ttl: u8, rtt_us: &[f64]) -> HopSamples {
        HopSamples { ttl, rtt_us: rtt_us.to_vec(), ..HopSamples::default() }
    }

    #[test]
    fn one_long_link_is_the_core() {
        let hops = [
            stretch_hop(1, &[1_000.0, 1_010.0, 1_020.0]),
            stretch_hop(2, &[9_000.0, 9_010.0, 9_020.0]),
            stretch_hop(3, &[10_000.0, 10_010.0, 10_020.0]),
        ];
        let core = analyze(&hops, 60.0).core.unwrap();
        assert_eq!((core.after_ttl, core.to_ttl), (Some(1), 2));
        assert_eq!((core.added_us, core.interval_us), (8_000.0, [7_980.0, 8_020.0]));
    }

    #[test]
    fn of_like_links_half_of_the_path_is() {
        let hops: Vec<_> = (1..=10)
            .map(|ttl| {
                stretch_hop(ttl, &[0.0, 20.0, 40.0].map(|noise| f64::from(ttl) * 2_000.0 + noise))
            })
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
            let hops: Vec<_> = (1..).zip(&rtts).map(|(ttl, rtts)| stretch_hop(ttl, rtts)).collect();
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

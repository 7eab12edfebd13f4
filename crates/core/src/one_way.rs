//! One-way delays measured with two clocks that are not synchronized.
//!
//! A probe says when it left and when it arrived, each by the clock of the host where it did
//! ([`Probe`]). Its delay one way is wrong by the clocks' offset, and the other way by as much
//! less. What is added to the shortest delay of a way needs no offset, only the clocks' drift; and
//! how both ways share the shortest round trip no clock can say: half each, and the half is the
//! error.
//!
//! The offset lies between the lowest delays of both ways (V. Paxson, "On calibrating measurements
//! of packet transit times", 1998): in each of several windows of time it is at most the least
//! delay up less the least that a way can have, and at least the negative of that down. A line
//! through all windows is the drift; how far it can be turned there, its error.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::stats::{LatencyHistogram, LatencySummary};

/// A probe that was answered: four readings of two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// When it was sent, by the sender's clock, ns.
    pub sent_ns: u64,
    /// Arrival at the endpoint by its clock, minus departure here by this host's, ns.
    pub up_ns: i64,
    /// Arrival here minus departure at the endpoint, each by its own clock, ns.
    pub down_ns: i64,
}

impl Probe {
    /// Of the times at which it left and arrived, there and back, each in ns by the clock of that
    /// host.
    pub fn new(sent: u64, received: u64, answered: u64, returned: u64) -> Self {
        Self {
            sent_ns: sent,
            up_ns: received.wrapping_sub(sent) as i64,
            down_ns: returned.wrapping_sub(answered) as i64,
        }
    }
}

/// The endpoint's clock relative to this host's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockOffset {
    /// The endpoint's clock is so much ahead of this host's at the first probe, µs; both ways'
    /// least delays being equal.
    pub offset_us: f64,
    /// Half of the least round trip: the offset, and each way's least delay, can be wrong by as
    /// much on a path whose ways differ.
    pub offset_error_us: f64,
    /// Its drift, parts per million; positive if it runs faster.
    pub drift_ppm: f64,
    /// The smallest drift that fits all probes.
    pub drift_min_ppm: f64,
    /// The largest drift that fits all probes.
    pub drift_max_ppm: f64,
}

/// One-way delays in each direction.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OneWay {
    /// From this host to the endpoint, by clocks that agree as far as `clock` says.
    pub up_us: LatencySummary,
    /// From the endpoint to this host.
    pub down_us: LatencySummary,
    /// Lost on the way up; absent where the reflector does not count.
    pub up_lost: Option<u64>,
    /// Lost on the way down.
    pub down_lost: Option<u64>,
    /// The clock offset that was estimated and removed.
    pub clock: ClockOffset,
}

impl OneWay {
    /// Of all probes of a run; `lost` is how many were lost up and down. `None` without a probe.
    pub fn new(probes: &[Probe], lost: Option<(u64, u64)>) -> Option<Self> {
        let clock = Clock::new(probes)?;
        let [up_us, down_us] = clock.delays(probes)?;
        Some(Self {
            up_us,
            down_us,
            up_lost: lost.map(|(up, _)| up),
            down_lost: lost.map(|(_, down)| down),
            clock: clock.offset,
        })
    }
}

/// The other host's clock as a line over this one's.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// The estimate.
    pub offset: ClockOffset,
    from_ns: u64,
    offset_ns: f64,
    drift: f64,
}

/// The lowest delays of both ways in a window of time: when, s, and how low, ns.
#[derive(Debug, Clone, Copy)]
struct DelayWindow {
    up: (f64, f64),
    down: (f64, f64),
}

impl Clock {
    /// Of these probes, in the order in which they were sent or not. `None` without any.
    pub fn new(probes: &[Probe]) -> Option<Self> {
        let from_ns = probes.iter().map(|probe| probe.sent_ns).min()?;
        let windows = windows(probes, from_ns);
        let (least, drift, most) = drift(&windows);
        let lowest = |way: fn(&DelayWindow) -> (f64, f64), drift: f64| {
            let level = windows.iter().map(|window| way(window).1 - drift * way(window).0);
            level.fold(f64::INFINITY, f64::min)
        };
        let (up, down) = (lowest(|w| w.up, drift), lowest(|w| w.down, -drift));
        let offset_ns = (up - down) / 2.0;
        Some(Self {
            offset: ClockOffset {
                offset_us: offset_ns / 1e3,
                offset_error_us: ((up + down) / 2e3).max(0.0),
                // ns in a second are parts in 10⁹.
                drift_ppm: drift / 1e3,
                drift_min_ppm: least / 1e3,
                drift_max_ppm: most / 1e3,
            },
            from_ns,
            offset_ns,
            drift,
        })
    }

    /// The delays up and down of probes, by this clock.
    pub fn delays(&self, probes: &[Probe]) -> Option<[LatencySummary; 2]> {
        let (mut up, mut down) = (LatencyHistogram::new(), LatencyHistogram::new());
        for probe in probes {
            let offset = self.offset_ns + self.drift * self.seconds(probe);
            // A reading can be early by what a clock's grain is: no delay is less than nothing.
            up.record_ns((probe.up_ns as f64 - offset).max(0.0) as u64);
            down.record_ns((probe.down_ns as f64 + offset).max(0.0) as u64);
        }
        Some([up.summary()?, down.summary()?])
    }

    fn seconds(&self, probe: &Probe) -> f64 {
        (probe.sent_ns - self.from_ns.min(probe.sent_ns)) as f64 / 1e9
    }
}

fn windows(probes: &[Probe], from_ns: u64) -> Vec<DelayWindow> {
    let last = probes.iter().map(|probe| probe.sent_ns).max().unwrap_or(0);
    let width = ((last - from_ns) / WINDOWS as u64).max(1) + 1;
    let mut windows: Vec<Option<DelayWindow>> = vec![None; WINDOWS];
    for probe in probes {
        let since = probe.sent_ns - from_ns;
        let at = since as f64 / 1e9;
        let (up, down) = ((at, probe.up_ns as f64), (at, probe.down_ns as f64));
        let lower = |old: (f64, f64), new: (f64, f64)| if new.1 < old.1 { new } else { old };
        let window = &mut windows[((since / width) as usize).min(WINDOWS - 1)];
        *window = Some(window.map_or(DelayWindow { up, down }, |old| DelayWindow {
            up: lower(old.up, up),
            down: lower(old.down, down),
        }));
    }
    windows.into_iter().flatten().collect()
}

/// The smallest, the likeliest and the largest drift, ns per second.
fn drift(windows: &[DelayWindow]) -> (f64, f64, f64) {
    let round_trip = |window: &DelayWindow| window.up.1 + window.down.1;
    let shortest = windows.iter().map(round_trip).fold(f64::INFINITY, f64::min);
    // What no delay of a way is below; and from there a queue of either way can only add.
    let least_delay = shortest / 2.0 - GRAIN_NS;
    let most: Vec<(f64, f64)> =
        (windows.iter()).map(|window| (window.up.0, window.up.1 - least_delay)).collect();
    let least: Vec<(f64, f64)> =
        (windows.iter()).map(|window| (window.down.0, least_delay - window.down.1)).collect();
    let (mut low, mut high) = (-MAX_DRIFT, MAX_DRIFT);
    for (at_most, at_least) in most.iter().flat_map(|m| least.iter().map(move |l| (m, l))) {
        let seconds = at_most.0 - at_least.0;
        let slope = (at_most.1 - at_least.1) / seconds;
        if seconds > 0.0 {
            high = high.min(slope.max(-MAX_DRIFT));
        } else if seconds < 0.0 {
            low = low.max(slope.min(MAX_DRIFT));
        }
    }
    let (low, high) = (low.min(high), low.max(high));
    (low, middle(&most, &least).clamp(low, high), high)
}

/// The slope of a line between both bounds, by least squares; where they are far apart, because the
/// path was busy, they say little. A drift that nobody can see is taken for none.
fn middle(most: &[(f64, f64)], least: &[(f64, f64)]) -> f64 {
    let points: Vec<[f64; 3]> = (most.iter().zip(least))
        .map(|(most, least)| {
            let apart = (most.1 - least.1) / 2.0;
            [(most.0 + least.0) / 2.0, (most.1 + least.1) / 2.0, 1.0 / (apart * apart).max(1.0)]
        })
        .collect();
    let sum = |of: &dyn Fn(&[f64; 3]) -> f64| points.iter().map(of).sum::<f64>();
    let weight = sum(&|p| p[2]);
    let (t, y) = (sum(&|p| p[2] * p[0]) / weight, sum(&|p| p[2] * p[1]) / weight);
    let spread = sum(&|p| p[2] * (p[0] - t) * (p[0] - t));
    let slope = sum(&|p| p[2] * (p[0] - t) * (p[1] - y)) / spread;
    if slope.is_finite() { slope } else { 0.0 }
}

/// Windows of time: enough for a line, few enough that each has an idle moment.
const WINDOWS: usize = 32;
/// Differences below this are attributed to the resolution of clocks and time stamps, ns.
const GRAIN_NS: f64 = 5_000.0;
/// The most that Linux lets a clock be slewed, ns in a second (adjtimex(2)): 500 parts per million.
const MAX_DRIFT: f64 = 500_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Every 100 ms; `queue` says what is added to 10 ms of each way at a second, ns. The other
    /// clock is ahead and runs faster.
    fn probes(seconds: u64, drift_ppm: f64, queue: impl Fn(f64, u64) -> [f64; 2]) -> Vec<Probe> {
        let ahead = |at: f64| 3e15 + drift_ppm * 1e3 * at;
        let probe = |n: u64| {
            let at = n as f64 / 10.0;
            let [up, down] = queue(at, n);
            Probe {
                sent_ns: 1_000_000_000_000 + n * 100_000_000,
                up_ns: (10e6 + up + ahead(at)) as i64,
                down_ns: (10e6 + down - ahead(at)) as i64,
            }
        };
        (0..seconds * 10).map(probe).collect()
    }

    /// Up to 2 ms, by a rule that looks random and reaches nothing now and then.
    fn noise(n: u64) -> [f64; 2] {
        let of = |k: u64| (n.wrapping_mul(k) >> 7) % 200;
        [of(2_654_435_761) as f64 * 1e4, of(40_503 * 977) as f64 * 1e4]
    }

    #[test]
    fn offset_and_drift_are_found_from_both_ways_minima() {
        for ppm in [-80.0, 0.0, 40.0] {
            let probes = probes(60, ppm, |_, n| noise(n));
            let found = OneWay::new(&probes, Some((1, 2))).unwrap();
            let clock = found.clock;
            assert!((clock.drift_ppm - ppm).abs() < 8.0, "{clock:?}");
            assert!(clock.drift_min_ppm <= ppm + 1.0 && ppm - 1.0 <= clock.drift_max_ppm);
            assert!((clock.offset_us - 3e12).abs() < 500.0, "{clock:?}");
            assert!((clock.offset_error_us - 10_000.0).abs() < 500.0, "{clock:?}");
            assert!((found.up_us.min - 10_000.0).abs() < 500.0, "{found:?}");
            assert!((found.up_us.p50 - found.down_us.p50).abs() < 500.0, "{found:?}");
            assert_eq!((found.up_lost, found.down_lost), (Some(1), Some(2)));
        }
    }

    #[test]
    fn a_queue_is_seen_on_the_way_that_has_it() {
        // Idle for 3 s; then 250 ms on one way, which never empties.
        for (way, ppm) in [(0, 0.0), (1, 0.0), (0, 30.0), (1, -30.0)] {
            let probes = probes(13, ppm, |at, n| {
                let mut added = noise(n).map(|noise| noise / 20.0);
                added[way] += if at < 3.0 { 0.0 } else { 250e6 };
                added
            });
            let clock = Clock::new(&probes).unwrap();
            let [idle, loaded] = [&probes[..30], &probes[30..]].map(|p| clock.delays(p).unwrap());
            let added = [0, 1].map(|way| loaded[way].mean - idle[way].mean);
            assert!((added[way] - 250_000.0).abs() < 500.0, "{added:?} {clock:?}");
            assert!(added[1 - way].abs() < 500.0, "{added:?} {clock:?}");
        }
    }

    #[test]
    fn one_probe_has_no_drift_and_none_no_clock() {
        assert!(Clock::new(&[]).is_none());
        let one = Probe::new(1_000, 9_000_000, 9_000_500, 21_500);
        assert_eq!((one.up_ns, one.down_ns), (8_999_000, -8_979_000));
        let found = OneWay::new(&[one], None).unwrap();
        // A histogram has three digits.
        let is_10_us = |us: f64| (us - 10.0).abs() < 0.01;
        assert!(is_10_us(found.up_us.max) && is_10_us(found.down_us.max));
        assert_eq!((found.clock.offset_us, found.clock.drift_ppm), (8_989.0, 0.0));
        assert_eq!(found.clock.drift_max_ppm, 500.0);
        // Clocks of an absurd peer are absurd, and nothing more.
        let absurd = [Probe::new(0, u64::MAX, 0, 0), Probe::new(u64::MAX, 0, u64::MAX, 1), one];
        assert!(OneWay::new(&absurd, None).is_some());
    }
}

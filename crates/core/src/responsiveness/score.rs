//! Computes round trips per minute from probes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::{Grade, Queue};

/// Round trips of a path under load, and what load adds to them; of one direction's load.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Responsiveness {
    /// Round trips per minute under load: the mean of those on separate connections and of those on
    /// connections that carry load (draft-ietf-ippm-responsiveness, the case without TLS).
    pub rpm: f64,
    /// 60,000,000 over the mean of both kinds of round trips, µs: what earlier versions of the
    /// draft and some tools call RPM.
    pub rpm_of_mean: Option<f64>,
    /// Grade of `added_us`.
    pub grade: Grade,
    /// A round trip on a separate connection of the idle path, µs: the mean of TCP's handshake and
    /// of a request with its response.
    pub idle_us: f64,
    /// Round trip under load, µs.
    pub loaded_us: f64,
    /// What load adds: their difference, µs; 0 where load adds nothing.
    pub added_us: f64,
    /// TCP's handshake under load, µs.
    pub connect_us: f64,
    /// A request and its response on a new connection under load, µs.
    pub request_us: f64,
    /// What a request on a connection that carries load would have waited for its response, µs:
    /// that connection's round trip, and the time in which what its sender's socket held unsent
    /// arrived; absent where the sender's kernel does not tell.
    pub loaded_flow_us: Option<f64>,
    /// Separate connections that were measured under load.
    pub probes: u64,
    /// Flows that carried load at the end.
    pub flows: u32,
    /// Goodput of all of them, payload bits per second.
    pub throughput_bps: f64,
    /// Length of an interval, seconds; at the end of each a flow is added.
    pub interval_s: f64,
    /// Intervals with load.
    pub intervals: u32,
    /// Goodput and round trips no longer changed. Where not, time was up before.
    pub stable: bool,
    /// Goodput no longer changed.
    pub goodput_stable: bool,
    /// Where what load adds to the round trips of its own flows waits, the longest queue first.
    #[serde(default)]
    pub queues: Vec<Queue>,
}

/// A connection of its own: made, one request, one response.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probe {
    /// TCP's handshake, µs.
    pub connect_us: f64,
    /// Request and response, µs.
    pub request_us: f64,
}

impl Probe {
    /// A round trip of it, µs.
    pub fn round_trip_us(self) -> f64 {
        f64::midpoint(self.connect_us, self.request_us)
    }
}

/// What the figure is made of.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples {
    /// On the idle path.
    pub idle: Vec<Probe>,
    /// In the last intervals under load.
    pub loaded: Vec<Probe>,
    /// What connections with load let a request wait in them, µs.
    pub loaded_flows_us: Vec<f64>,
}

/// Of all values, from the smallest on, these are averaged.
const TRIM_PERCENT: usize = 95;

/// The mean of the values without the largest [`TRIM_PERCENT`]…100 %; `None` of nothing.
fn trimmed_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let kept = (values.len() * TRIM_PERCENT).div_ceil(100);
    let sum: f64 = values[..kept].iter().sum();
    (kept > 0).then(|| sum / kept as f64)
}

impl Samples {
    /// The figures of the probes; what is known of the load besides is left to fill in. `None`
    /// without a probe on the idle path or under load.
    pub fn score(&self) -> Option<Responsiveness> {
        let connect = |probes: &[Probe]| trimmed_mean(probes.iter().map(|probe| probe.connect_us));
        let request = |probes: &[Probe]| trimmed_mean(probes.iter().map(|probe| probe.request_us));
        let idle_us = f64::midpoint(connect(&self.idle)?, request(&self.idle)?);
        let (connect_us, request_us) = (connect(&self.loaded)?, request(&self.loaded)?);
        let loaded_us = f64::midpoint(connect_us, request_us);
        let loaded_flow_us = trimmed_mean(self.loaded_flows_us.iter().copied());
        let own = per_minute(loaded_us);
        let rpm = loaded_flow_us.map_or(own, |us| f64::midpoint(own, per_minute(us)));
        let mean_us = loaded_flow_us.map_or(loaded_us, |us| f64::midpoint(loaded_us, us));
        let added_us = (loaded_us - idle_us).max(0.0);
        Some(Responsiveness {
            rpm,
            rpm_of_mean: Some(per_minute(mean_us)),
            grade: Grade::new(added_us),
            idle_us,
            loaded_us,
            added_us,
            connect_us,
            request_us,
            loaded_flow_us,
            probes: self.loaded.len() as u64,
            flows: 0,
            throughput_bps: 0.0,
            interval_s: 0.0,
            intervals: 0,
            stable: false,
            goodput_stable: false,
            queues: Vec::new(),
        })
    }
}

fn per_minute(us: f64) -> f64 {
    60e6 / us
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probes(connect_us: f64, request_us: f64) -> Vec<Probe> {
        let probe = Probe { connect_us, request_us };
        vec![probe; 40]
    }

    #[test]
    fn both_kinds_of_connections_have_half_of_the_figure() {
        let mut samples = Samples {
            idle: probes(10e3, 12e3),
            loaded: probes(50e3, 70e3),
            loaded_flows_us: vec![120e3; 9],
        };
        let score = samples.score().unwrap();
        // 1000 on separate connections, 500 on those with load.
        assert!((score.rpm - 750.0).abs() < 1e-9, "{}", score.rpm);
        // 60 ms and 120 ms.
        assert!((score.rpm_of_mean.unwrap() - 60e3 / 90.0).abs() < 1e-9);
        assert!((score.added_us - 49e3).abs() < 1e-6);
        assert_eq!(score.grade, Grade::B);
        samples.loaded_flows_us.clear();
        assert!((samples.score().unwrap().rpm - 1000.0).abs() < 1e-9);
        samples.loaded.clear();
        assert_eq!(samples.score(), None);
    }

    #[test]
    fn the_slowest_twentieth_of_the_probes_is_left_out() {
        let values = (1..=100).map(f64::from);
        assert_eq!(trimmed_mean(values), Some(48.0));
        // Of a few none is.
        assert_eq!(trimmed_mean([1.0, 2.0, 9.0]), Some(4.0));
        assert_eq!(trimmed_mean([]), None);
    }

    #[test]
    fn load_that_makes_a_path_faster_adds_nothing() {
        let samples =
            Samples { idle: probes(12e3, 12e3), loaded: probes(9e3, 9e3), ..Samples::default() };
        let score = samples.score().unwrap();
        assert_eq!((score.added_us, score.grade), (0.0, Grade::APlus));
    }
}

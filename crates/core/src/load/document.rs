//! The document of a mix: the JSON contract; and the quality of a call. The document's arithmetic
//! is in `figures`.
//!
//! As in [`crate::record`]: adding a key is free, renaming one is a new version; a key is absent
//! where its figure is not known.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::one_way::{ClockOffset, Probe};
use crate::plan::{Direction, Protocol};
use crate::qoo::Outcome;
use crate::record::{Caveat, Environment, Record, Status};
use crate::stats::LatencySummary;
use crate::units::Dscp;

/// Schema of [`LoadDocument`].
pub const LOAD_SCHEMA: &str = "linerate.load/1";

/// How a path behaves under a mix of traffic.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadDocument {
    /// [`LOAD_SCHEMA`].
    pub schema: String,
    /// Whether every member ended as planned.
    pub status: Status,
    /// When the load began, RFC 3339.
    #[serde(deserialize_with = "crate::units::deserialize_rfc3339")]
    pub started_at: String,
    /// The endpoint as the user named it; several are joined by commas.
    pub host: String,
    /// The endpoint's address and port.
    pub peer: String,
    /// Name of the mix, or of its file.
    pub mix: String,
    /// A description of the mix.
    pub title: String,
    /// Measured time of the load, s.
    pub seconds: f64,
    /// How long the probes were measured before the load, s.
    pub idle_seconds: f64,
    /// Streams from the client.
    pub up: Option<LoadTotal>,
    /// Streams to the client.
    pub down: Option<LoadTotal>,
    /// The latency of each probe.
    pub latency: Vec<ClassLatency>,
    /// Mean over the probes of their mean round trips before the load, µs.
    pub idle_latency_us: Option<f64>,
    /// Mean over the probes of their mean round trips under the load, µs.
    pub loaded_latency_us: Option<f64>,
    /// One-way delays, where probes use STAMP: they show which direction has the queue.
    pub one_way: Option<LoadOneWay>,
    /// The quality of each call, in each direction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallQuality>,
    /// From the first to the last of the streams that were to begin with the mix: when each handed
    /// over its first byte, as late as it was by its sender's clock, µs.
    pub start_skew_us: Option<f64>,
    /// The same of when their first bytes were taken, by their receivers' clocks, µs.
    pub arrival_skew_us: Option<f64>,
    /// Every member.
    pub members: Vec<LoadMember>,
    /// Caveats about the whole run.
    pub caveats: Vec<Caveat>,
    /// The environment of both ends.
    pub environment: Environment,
    /// Seed of every random choice.
    pub seed: u64,
}

/// A member of the mix and its results.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadMember {
    /// Its name.
    pub name: String,
    /// Whether it measures the latency of its class.
    pub probe: bool,
    /// The codec, if it is a call.
    pub codec: Option<Codec>,
    /// Whether its TCP connections were to negotiate ECN; absent where the system decided.
    pub ecn: Option<bool>,
    /// Planned start, after the start of the mix, s.
    pub start_s: f64,
    /// Actual start of its first flow, after the start of the mix, s.
    pub started_s: Option<f64>,
    /// A probe's round trips before the load.
    pub idle_latency_us: Option<LatencySummary>,
    /// A STAMP probe's packets before the load.
    #[serde(skip)]
    pub idle_probes: Vec<Probe>,
    /// A STAMP probe's packets under the load.
    #[serde(skip)]
    pub probes: Vec<Probe>,
    /// The record of its run.
    pub record: Record,
}

/// All streams of one direction.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadTotal {
    /// Goodput of all of them over the measured time of the longest, payload bits per second.
    pub throughput_bps: f64,
    /// The number of flows.
    pub flows: u64,
    /// Jain's index of the TCP flows' goodput: 1 if all have the same, 1/n if one has all; absent
    /// with fewer than two.
    pub fairness: Option<f64>,
}

/// Round trips of one class.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClassLatency {
    /// The probe.
    pub member: String,
    /// Code point of its packets.
    pub dscp: Dscp,
    /// The transport.
    pub protocol: Protocol,
    /// Round trips before the load.
    pub idle_us: Option<LatencySummary>,
    /// Round trips under the load.
    pub loaded_us: Option<LatencySummary>,
    /// Requests without an answer under the load.
    pub failed: Option<u64>,
    /// On the way up under the load, by clocks as [`LoadOneWay`] has them.
    pub loaded_up_us: Option<LatencySummary>,
    /// On the way down under the load.
    pub loaded_down_us: Option<LatencySummary>,
    /// Quality of Outcome under the load, by application: of these round trips, of the requests
    /// without an answer over UDP, and of the slower direction's throughput.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outcomes: Vec<Outcome>,
}

/// One-way delays in each direction, from all STAMP probes.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadOneWay {
    /// To the endpoint.
    pub up: WayDelay,
    /// From the endpoint.
    pub down: WayDelay,
    /// Which way the queue is that the load made: that with the larger part of what is added, or
    /// both; absent where less than 1 ms is.
    pub queue: Option<Direction>,
    /// What the delays owe to the clocks. What is added owes nothing to their offset.
    pub clock: ClockOffset,
}

/// Delays of one way.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WayDelay {
    /// Delays before the load.
    pub idle_us: Option<LatencySummary>,
    /// Delays under the load.
    pub loaded_us: LatencySummary,
    /// What the load adds to the mean, µs.
    pub added_us: Option<f64>,
}

/// The quality of a call in one direction, by the E-model (ITU-T G.107).
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallQuality {
    /// The member.
    pub member: String,
    /// The direction.
    pub direction: Direction,
    /// The codec.
    pub codec: Codec,
    /// Datagrams that the network lost, percent.
    pub loss_percent: f64,
    /// Those that came too late for the playout buffer, percent of those that came: the share of
    /// the probes of its class with a longer delay.
    pub late_percent: Option<f64>,
    /// G.107's BurstR: the mean length of the runs of lost datagrams, late ones among them, over
    /// that of random loss; 1 or more, and 1 where the receiver does not report the runs.
    pub burst_ratio: Option<f64>,
    /// Interarrival jitter (RFC 3550), µs; the rating does not use it.
    pub jitter_us: f64,
    /// From mouth to ear: a packet's 20 ms and the 99th percentile of its class's delay this way
    /// (without STAMP's packets half that of the round trip), which a playout buffer brings every
    /// datagram to, µs.
    pub delay_us: f64,
    /// Rating R, 0 to 93.2.
    pub r: f64,
    /// Mean opinion score, 1 to 4.5.
    pub mos: f64,
}

// The quality of a call: the E-model (ITU-T G.107, 06/2015) with its default values and echo
// cancelled.

/// A codec, with its parameters for G.107.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// ITU-T G.711, 64 kbit/s, with its concealment of lost packets (Appendix I).
    G711,
    /// ITU-T G.729 Annex A, 8 kbit/s.
    G729a,
}

impl Codec {
    /// All codecs by name.
    pub const ALL: [(&'static str, Self); 2] = [("g711", Self::G711), ("g729a", Self::G729a)];

    /// Equipment impairment Ie without loss, and the robustness Bpl against loss (G.113, Appendix
    /// I).
    fn impairment(self) -> (f64, f64) {
        match self {
            Self::G711 => (0.0, 25.1),
            Self::G729a => (11.0, 19.0),
        }
    }
}

/// What a listener misses of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Loss {
    /// G.107's Ppl: lost by the network or late, percent.
    pub(super) percent: f64,
    /// G.107's BurstR, from 1.
    pub(super) burst_ratio: f64,
}

impl Loss {
    /// Of `sent` datagrams `lost` are lost in so many runs, and this share of the others is late,
    /// each of those a run of its own. Where runs are not known, losses are random.
    ///
    /// By G.107 (7-30), BurstR = (1 − Ppl) / q, where q is the probability of a two-state Markov
    /// chain to go from a lost datagram to one that is not: runs over losses.
    pub(super) fn new(sent: u64, lost: u64, runs: Option<u64>, late_share: f64) -> Self {
        let late = late_share * sent.saturating_sub(lost) as f64;
        let missed = lost as f64 + late;
        let share = (missed / sent.max(1) as f64).min(1.0);
        let runs = runs.map(|runs| runs.max(u64::from(lost > 0)) as f64 + late);
        let ratio = runs.map(|runs| (1.0 - share) * missed / runs);
        // Losses in even distances are no better than random ones: the law is for 1 and more. With
        // no loss the ratio is none.
        let burst_ratio = ratio.unwrap_or(1.0).max(1.0);
        Self { percent: 100.0 * share, burst_ratio }
    }
}

/// The rating R, 0 to 93.2, at that one-way delay from mouth to ear and that loss.
pub(super) fn rating(codec: Codec, delay_ms: f64, loss: Loss) -> f64 {
    let (ie, bpl) = codec.impairment();
    // G.107 (7-29).
    let Loss { percent, burst_ratio } = loss;
    let equipment = ie + (95.0 - ie) * percent / (percent / burst_ratio + bpl);
    (BEST - delay_impairment(delay_ms) - equipment).max(0.0)
}

/// Idd, G.107 (7-27) with sT = 1 and mT = 100 ms.
fn delay_impairment(delay_ms: f64) -> f64 {
    if delay_ms <= 100.0 {
        return 0.0;
    }
    let x = (delay_ms / 100.0).log2();
    let root = |x: f64| (1.0 + x.powi(6)).powf(1.0 / 6.0);
    25.0 * (root(x) - 3.0 * root(x / 3.0) + 2.0)
}

/// The mean opinion of listeners, 1 (bad) to 4.5, of a rating (G.107, Annex B).
pub(super) fn mos(rating: f64) -> f64 {
    match rating {
        r if r <= 0.0 => 1.0,
        r if r >= 100.0 => 4.5,
        r => (1.0 + 0.035 * r + r * (r - 60.0) * (100.0 - r) * 7e-6).max(1.0),
    }
}

/// R with all of G.107's default values.
const BEST: f64 = 93.2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opinions_are_those_of_the_table_of_g_107() {
        // Table B.1: R as the lower limit of a category, and its MOS.
        for (r, expected) in
            [(93.2, 4.41), (90.0, 4.34), (80.0, 4.03), (70.0, 3.60), (60.0, 3.10), (50.0, 2.58)]
        {
            assert!((mos(r) - expected).abs() < 0.01, "{r}: {}", mos(r));
        }
        assert_eq!((mos(-1.0), mos(0.0), mos(100.0)), (1.0, 1.0, 4.5));
        assert_eq!(rating(Codec::G711, 0.0, random(0.0)), 93.2);
    }

    fn random(percent: f64) -> Loss {
        Loss { percent, burst_ratio: 1.0 }
    }

    #[test]
    fn loss_in_bursts_costs_more_the_less_the_codec_bears() {
        let costs = |codec, burst_ratio| {
            let of = |burst_ratio| rating(codec, 0.0, Loss { percent: 5.0, burst_ratio });
            of(1.0) - of(burst_ratio)
        };
        // By hand, 95 × 5 / (5 / 2 + 25.1) − 95 × 5 / (5 + 25.1).
        assert!((costs(Codec::G711, 2.0) - 1.429).abs() < 0.001);
        // Of 84 × 5 with 19: a smaller Bpl is hurt more by bursts.
        assert!((costs(Codec::G729a, 2.0) - 2.035).abs() < 0.001);
        assert!(costs(Codec::G711, 4.0) > costs(Codec::G711, 2.0));
    }

    #[test]
    fn the_burst_ratio_is_that_of_the_markov_chain() {
        // 100 of 1,000 in runs of 5: q = 1/5, and (1 − 0.1) × 5 = 4.5.
        let bursts = Loss::new(1_000, 100, Some(20), 0.0);
        assert!((bursts.burst_ratio - 4.5).abs() < 1e-9 && bursts.percent == 10.0);
        // As long as those of random loss, 1 / (1 − 0.1).
        assert_eq!(Loss::new(1_000, 100, Some(90), 0.0).burst_ratio, 1.0);
        // None alone is less than random; nor is it known without the runs, or without a loss.
        for random in [
            Loss::new(1_000, 100, Some(100), 0.0),
            Loss::new(1_000, 100, None, 0.0),
            Loss::new(1_000, 0, Some(0), 0.0),
            Loss::new(1_000, 1_000, Some(1), 0.0),
        ] {
            assert_eq!(random.burst_ratio, 1.0, "{random:?}");
        }
        // One in ten of 900 is late: 190 missed in 110 runs.
        let late = Loss::new(1_000, 100, Some(20), 0.1);
        assert!((late.percent - 19.0).abs() < 1e-9, "{late:?}");
        assert!((late.burst_ratio - 0.81 * 190.0 / 110.0).abs() < 1e-9, "{late:?}");
    }

    #[test]
    fn loss_costs_what_g_113_lists() {
        // G.113, Table I.2, G.711 with concealment and random loss: Ie at 2, 3, 5, 7 percent.
        for (loss, ie) in [(2.0, 7.0), (3.0, 10.0), (5.0, 15.0), (7.0, 20.0)] {
            let found = 93.2 - rating(Codec::G711, 0.0, random(loss));
            assert!((found - ie).abs() < 1.0, "{loss}: {found}");
        }
    }

    #[test]
    fn delay_costs_what_was_published_of_it() {
        // Janssen et al., "Assessing voice quality in packet-based telephony", 2002, Table 3:
        // one-way delays at which R falls to 70 without echo, by Ie of the codec: 0, 5, 10, 20.
        for (ie, delay_ms) in [(0.0, 400.0), (5.0, 342.0), (10.0, 294.0), (20.0, 213.0)] {
            let r = 94.2 - ie - delay_impairment(delay_ms);
            assert!((r - 70.0).abs() < 0.7, "{delay_ms}: {r}");
        }
        assert_eq!(delay_impairment(100.0), 0.0);
    }
}

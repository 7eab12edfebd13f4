//! The document of a mix: the JSON contract. Its arithmetic is in `figures`.
//!
//! As in [`crate::record`]: adding a key is free, renaming one is a new version; a key is absent
//! where its figure is not known.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::voice::Codec;
use crate::one_way::{ClockOffset, Probe};
use crate::plan::{Direction, Protocol};
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallQuality {
    /// The member.
    pub member: String,
    /// The direction.
    pub direction: Direction,
    /// The codec.
    pub codec: Codec,
    /// Lost datagrams, percent.
    pub loss_percent: f64,
    /// Interarrival jitter (RFC 3550), µs.
    pub jitter_us: f64,
    /// From mouth to ear: a packet's 20 ms, the mean delay of its class this way (without STAMP's
    /// packets half its round trip), and a playout buffer of twice the jitter, µs.
    pub delay_us: f64,
    /// Rating R, 0 to 93.2.
    pub r: f64,
    /// Mean opinion score, 1 to 4.5.
    pub mos: f64,
}

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

/// What a path is like while a mix is on it.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadDocument {
    /// [`LOAD_SCHEMA`].
    pub schema: String,
    /// Whether every member ended as planned.
    pub status: Status,
    /// When the load began, RFC 3339.
    pub started_at: String,
    /// The endpoint as the user named it; several are joined by commas.
    pub host: String,
    /// Its address and port.
    pub peer: String,
    /// Name of the mix, or of its file.
    pub mix: String,
    /// What it is.
    pub title: String,
    /// Measured time of the load, s.
    pub seconds: f64,
    /// How long the probes were measured before the load, s.
    pub idle_seconds: f64,
    /// Streams from the client.
    pub up: Option<LoadTotal>,
    /// Streams to the client.
    pub down: Option<LoadTotal>,
    /// Of each probe.
    pub latency: Vec<ClassLatency>,
    /// Mean over the probes of their mean round trips before the load, µs.
    pub idle_latency_us: Option<f64>,
    /// The same under the load, µs.
    pub loaded_latency_us: Option<f64>,
    /// Each way by itself, where probes are of STAMP's packets: where the queue is.
    pub one_way: Option<LoadOneWay>,
    /// What calls were worth, each direction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallQuality>,
    /// From the first to the last of the streams that were to begin with the mix: when each handed
    /// over its first byte, as late as it was by its sender's clock, µs.
    pub start_skew_us: Option<f64>,
    /// The same of when their first bytes were taken, by their receivers' clocks, µs.
    pub arrival_skew_us: Option<f64>,
    /// Every member.
    pub members: Vec<LoadMember>,
    /// What to keep in mind of the whole.
    pub caveats: Vec<Caveat>,
    /// Both ends.
    pub environment: Environment,
    /// Seed of every random choice.
    pub seed: u64,
}

/// A member and what it left.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadMember {
    /// What it is called.
    pub name: String,
    /// Whether it tells the latency of its class.
    pub probe: bool,
    /// It is a call, coded so.
    pub codec: Option<Codec>,
    /// Its TCP connections were to negotiate ECN, or not to.
    pub ecn: Option<bool>,
    /// When it was to begin, after the mix, s.
    pub start_s: f64,
    /// When its first flow began, after the mix, s.
    pub started_s: Option<f64>,
    /// Of a probe: its round trips before the load.
    pub idle_latency_us: Option<LatencySummary>,
    /// Of a probe of STAMP's packets: what they said before the load.
    #[serde(skip)]
    pub idle_probes: Vec<Probe>,
    /// And beside it.
    #[serde(skip)]
    pub probes: Vec<Probe>,
    /// Its run beside the others.
    pub record: Record,
}

/// All streams of one direction.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadTotal {
    /// Goodput of all of them over the measured time of the longest, payload bits per second.
    pub throughput_bps: f64,
    /// How many.
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
    /// Over which transport.
    pub protocol: Protocol,
    /// Before the load.
    pub idle_us: Option<LatencySummary>,
    /// Under it.
    pub loaded_us: Option<LatencySummary>,
    /// Requests without an answer under the load.
    pub failed: Option<u64>,
    /// On the way up under the load, by clocks as [`LoadOneWay`] has them.
    pub loaded_up_us: Option<LatencySummary>,
    /// On the way down.
    pub loaded_down_us: Option<LatencySummary>,
}

/// Each way's delays, of all probes of STAMP's packets.
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
    /// Before the load.
    pub idle_us: Option<LatencySummary>,
    /// Beside it.
    pub loaded_us: LatencySummary,
    /// What the load adds to the mean, µs.
    pub added_us: Option<f64>,
}

/// What a call was worth in one direction, by the E-model (ITU-T G.107).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallQuality {
    /// The member.
    pub member: String,
    /// Which way.
    pub direction: Direction,
    /// How speech is coded.
    pub codec: Codec,
    /// Datagrams that did not come, percent.
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

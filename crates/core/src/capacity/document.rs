//! The document of a run: the JSON contract.
//!
//! As in [`crate::record`]: adding a key is free, renaming one is a new version; a key is absent
//! where its figure is not known.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::half::{CapacityHalf, Failure};
use super::limit::{LimitRow, StoppedBy};
use super::search::SearchFound;
use super::test::CapacityTest;
use crate::record::{Caveat, Environment, Status};
use crate::stats::{LatencyBuckets, LatencySummary};
use crate::units::Family;

/// Schema of [`CapacityDocument`].
pub const CAPACITY_SCHEMA: &str = "linerate.capacity/1";

/// The number of connections that two ends held, and the cost.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CapacityDocument {
    /// [`CAPACITY_SCHEMA`].
    pub schema: String,
    /// When it began, RFC 3339.
    #[serde(deserialize_with = "crate::units::deserialize_rfc3339")]
    pub started_at: String,
    /// The endpoint as the user named it.
    pub host: String,
    /// The endpoint's address and port.
    pub peer: String,
    /// Address family of all connections.
    pub family: Family,
    /// Whether the run was completed.
    pub status: Status,
    /// The test that was asked for.
    pub test: CapacityTest,
    /// TCP connections; absent if none were asked for.
    pub tcp: Option<PoolResult>,
    /// UDP sockets; absent if none were asked for.
    pub udp: Option<PoolResult>,
    /// An active connection's latency by the number of idle ones beside it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<LatencyAt>,
    /// Connections closed and opened anew.
    pub churn: Option<ChurnResult>,
    /// Requests and responses over a part of the connections.
    pub load: Option<LoadResult>,
    /// This end's half.
    pub client: CapacityHalf,
    /// The endpoint's half, as it reported it.
    pub server: Option<CapacityHalf>,
    /// The limit that ended it before all were open; absent where all that was asked for was
    /// opened.
    pub stopped_by: Option<StoppedBy>,
    /// The limit in `limits` that would be reached first.
    pub next_limit: Option<LimitRow>,
    /// Every limit of both ends that is known, the one that would come first at the top.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitRow>,
    /// The rounds in which the limit was looked for; all else is of the smallest round that was not
    /// held, or of the largest.
    pub search: Option<SearchFound>,
    /// Duration of the whole run, s.
    pub seconds: f64,
    /// Duration of closing, s.
    pub close_seconds: Option<f64>,
    /// The hosts of both ends.
    pub environment: Environment,
    /// What limits the worth of these figures.
    pub caveats: Vec<Caveat>,
    /// Seed of every random choice.
    pub seed: u64,
}

/// The fate of the connections, or of the UDP sockets.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PoolResult {
    /// The number asked for.
    pub asked: u64,
    /// As many were opened: of TCP, connected; of UDP, answered by the endpoint. Without churn.
    pub opened: u64,
    /// The number that answered the last heartbeat.
    pub alive: u64,
    /// Were open, and did not stay or no longer answered. Those closed by churn are not lost.
    pub lost: u64,
    /// The causes of losses.
    pub losses: Vec<Failure>,
    /// The causes of failures to open.
    pub failures: Vec<Failure>,
    /// Mean rate of opening, per second.
    pub connect_per_s: Option<f64>,
    /// Duration of opening, s, without pauses for measurements.
    pub connect_seconds: Option<f64>,
    /// The number open over time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ramp: Vec<RampStep>,
    /// From the first packet to the connection (of UDP: to the answer to the challenge).
    pub connect_latency_us: Option<ConnectLatency>,
    /// SYN retransmissions; of UDP, repeated challenges.
    pub syn_retransmissions: u64,
    /// Heartbeats sent.
    pub heartbeats_sent: u64,
    /// Heartbeats answered.
    pub heartbeats_answered: u64,
    /// From a heartbeat to its answer; most of it is waiting for the others.
    pub heartbeat_latency_us: Option<LatencySummary>,
    /// Kernel memory of both ends (on one kernel) or of this end for each, bytes, from the growth
    /// of the slab.
    pub kernel_bytes_each: Option<f64>,
    /// Memory of this end's processes for each, bytes.
    pub user_bytes_each: Option<f64>,
    /// Memory of the endpoint's processes for each, bytes.
    pub server_user_bytes_each: Option<f64>,
}

/// Connect latency; connections whose first SYN was lost stand apart.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectLatency {
    /// Connections whose first SYN was answered.
    pub first_try: Option<LatencySummary>,
    /// Connections that needed a retransmitted SYN.
    pub retransmitted: Option<LatencySummary>,
    /// All connections.
    pub histogram: LatencyBuckets,
}

/// The number open at a moment of the ramp.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RampStep {
    /// Since the ramp began, pauses not counted, s.
    pub at_s: f64,
    /// Open.
    pub opened: u64,
}

/// An active connection's round trips beside a number of idle ones.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyAt {
    /// Idle TCP connections beside it.
    pub population: u64,
    /// Latency with one request at a time.
    pub latency_us: LatencySummary,
}

/// The result of churn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ChurnResult {
    /// Asked rate, connections per second.
    pub asked_per_s: u64,
    /// Closed by this end.
    pub closed: u64,
    /// Opened in their place.
    pub opened: u64,
    /// Rate of opening in their place, per second.
    pub per_s: f64,
}

/// The result of the load.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LoadResult {
    /// Connections that took part.
    pub connections: u64,
    /// Requests that were answered.
    pub transactions: u64,
    /// Requests answered per second.
    pub transactions_per_s: f64,
    /// Requests of an open loop that had to wait for their connection.
    pub late: u64,
    /// From when a request went out, or was due, to the last byte of its response.
    pub latency_us: Option<LatencySummary>,
    /// The latency as a histogram.
    pub histogram: Option<LatencyBuckets>,
}

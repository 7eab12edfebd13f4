//! What `linerate qos cost` prints.

use std::collections::BTreeMap;

use linerate_core::compare::MetricConclusion;
use linerate_core::plan::{Protocol, Workload};
use linerate_core::record::{Caveat, HostFacts, Status};
use linerate_core::stats::MedianInterval;
use linerate_core::treatment::{TreatmentError, Treatments};
use linerate_core::units::Family;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::plan::Test;

/// Schema of [`QosCost`].
pub const COST_SCHEMA: &str = "linerate.qos_cost/1";

/// What a policy costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QosCost {
    /// [`COST_SCHEMA`].
    pub schema: String,
    /// Whether it ended by itself.
    pub status: Status,
    /// When it began, RFC 3339.
    #[serde(deserialize_with = "linerate_core::units::deserialize_rfc3339")]
    pub started_at: String,
    /// Measured time of each run, seconds.
    pub time_s: f64,
    /// Blocks of each row: the three runs of one follow each other in random order.
    pub blocks: u32,
    /// Differences up to this many percent count as equal.
    pub margin_percent: f64,
    /// The policies that were in force.
    pub policies: Vec<CostPolicy>,
    /// Packet rates of the links.
    pub links: Vec<LinkRates>,
    /// Run time of the programs by themselves.
    pub direct: Vec<DirectCost>,
    /// A row for each transfer.
    pub rows: Vec<CostRow>,
    /// What limits the worth of these figures.
    pub caveats: Vec<Caveat>,
    /// The host; it is both ends of every link.
    pub host: HostFacts,
    /// Seed of every random choice.
    pub seed: u64,
}

/// The treatment of a run.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Treatment {
    /// Neither policy nor program.
    Without,
    /// A program without rules.
    Passthrough,
    /// The policy.
    Policy,
}

/// All treatments; the others are compared with the first one.
pub const TREATMENTS: [Treatment; 3] = [
    Treatment::Without,
    Treatment::Passthrough,
    Treatment::Policy,
];

impl Treatment {
    /// The treatment as it is applied to the host; `policy` is the text of a policy.
    pub(super) fn treatments(self, policy: &str) -> Result<Treatments, TreatmentError> {
        let text = match self {
            Self::Without => "none",
            Self::Passthrough => "qos=passthrough",
            Self::Policy => "qos=policy",
        };
        let mut treatments: Treatments = text.parse()?;
        treatments.load(&|_| Ok(policy.to_owned()))?;
        Ok(treatments)
    }

    /// Name on pages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Without => "without",
            Self::Passthrough => "pass-through",
            Self::Policy => "policy",
        }
    }
}

/// A policy of a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostPolicy {
    /// The tests in which it was in force.
    pub tests: Vec<Test>,
    /// The user's file; absent for a policy that is built in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Number of its filters.
    pub filters: usize,
}

/// Packets per second of a link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkRates {
    /// Rate of the link.
    pub link_bps: f64,
    /// As the white paper counts: packets of 20 bytes, an IPv4 header alone.
    pub paper_packets_per_s: f64,
    /// Smallest frames of Ethernet: 84 bytes with preamble and gap.
    pub smallest_frames_per_s: f64,
    /// Frames with 1500 bytes of IP: 1538 bytes.
    pub largest_frames_per_s: f64,
}

/// Run time of a program on packets of one kind, measured by `BPF_PROG_TEST_RUN` with the same
/// packet again and again. The first run marks the packet, so that changing its header is not
/// included.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DirectCost {
    /// The test whose policy it is.
    pub test: Test,
    /// IPv4 or IPv6.
    pub family: Family,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// A program without rules, ns per packet.
    pub passthrough_ns: MedianInterval,
    /// The policy's program, ns per packet.
    pub policy_ns: MedianInterval,
    /// Instructions of the policy's program.
    pub instructions: usize,
}

/// A transfer without a policy, with a program that does nothing, and with a policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostRow {
    /// The test that it belongs to.
    pub test: Test,
    /// Rate of the link.
    pub link_bps: f64,
    /// Its largest IP packet, bytes.
    pub mtu_bytes: u32,
    /// IPv4 or IPv6.
    pub family: Family,
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Bulk transfer, or request and response.
    pub workload: Workload,
    /// Bytes of a message.
    pub message_bytes: u64,
    /// The figures under each treatment.
    pub figures: Vec<CostFigure>,
    /// Each treatment against being without, figure by figure.
    pub comparisons: Vec<CostComparison>,
    /// What a treatment adds to the cost of a packet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packet: Vec<PacketCost>,
    /// Every run.
    pub runs: Vec<CostRun>,
}

/// A figure of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostFigure {
    /// Its path in a record.
    pub metric: String,
    /// Under which treatment.
    pub treatment: Treatment,
    /// The median of the runs with its interval, in the unit of the record's key.
    pub figure: MedianInterval,
}

/// A treatment against being without, block by block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostComparison {
    /// The figure's path in a record.
    pub metric: String,
    /// Which treatment.
    pub treatment: Treatment,
    /// The effect with its interval, and the verdict. Each comparison has its own 5 % of error.
    pub conclusion: MetricConclusion,
}

/// What a treatment adds to the cost of a packet, from service demand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PacketCost {
    /// Which treatment.
    pub treatment: Treatment,
    /// Service demand that it adds, µs/KiB: the median of the blocks' differences with its
    /// interval.
    pub demand_us_per_kib: MedianInterval,
    /// By the paper's rule, service demand × 1.46, µs.
    pub paper_us: f64,
    /// The ends of its interval, µs.
    pub paper_interval_us: [f64; 2],
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostRun {
    /// Of which block, from 1.
    pub block: u32,
    /// Under which treatment.
    pub treatment: Treatment,
    /// The figures by their paths in a record.
    pub figures: BTreeMap<String, f64>,
}

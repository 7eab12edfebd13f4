//! What `linerate qos --json` prints: the JSON contract `linerate.qos/1`.
//!
//! As in [`linerate_core::record`]: adding a key is free, renaming one is a new version; a key is
//! absent where there is nothing to say.

mod describe;
mod file;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

pub use describe::describe;
pub use file::{AdapterRules, FileReport, WarningReport};

use crate::explain::ExplanationReport;
use crate::interpret::CounterReport;

/// Schema of [`QosDocument`].
pub const QOS_SCHEMA: &str = "linerate.qos/1";

/// The policies of this host's interfaces, or the report on a file.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QosDocument {
    /// [`QOS_SCHEMA`].
    pub schema: String,
    /// The interfaces with a policy.
    #[serde(default)]
    pub adapters: Vec<AdapterReport>,
    /// What `check` found in a file.
    pub file: Option<FileReport>,
    /// Which filter of a file takes a packet.
    pub explanation: Option<ExplanationReport>,
    /// Warnings and side effects, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl QosDocument {
    /// A document on these interfaces.
    pub fn new(adapters: Vec<AdapterReport>, notes: Vec<String>) -> Self {
        Self { schema: QOS_SCHEMA.to_owned(), adapters, file: None, explanation: None, notes }
    }
}

impl From<FileReport> for QosDocument {
    fn from(file: FileReport) -> Self {
        Self { file: Some(file), ..Self::new(Vec::new(), Vec::new()) }
    }
}

impl From<ExplanationReport> for QosDocument {
    fn from(explanation: ExplanationReport) -> Self {
        Self { explanation: Some(explanation), ..Self::new(Vec::new(), Vec::new()) }
    }
}

/// The state of an interface's policy.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum QosState {
    /// Enabled: packets go through the policy.
    Filtering,
    /// Enabled, but packets pass unchanged.
    PassingThrough,
    /// Packets go through no program; the policy is kept for `enable`.
    Disabled,
    /// Not as it should be: see `fault`.
    Failed,
}

/// An interface with its policy.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdapterReport {
    /// Name of the interface.
    pub name: String,
    /// Index of the interface.
    pub index: u32,
    /// Its addresses with their prefix lengths.
    pub addresses: Vec<String>,
    /// Beginning of its frames: `ethernet` or `raw_ip`.
    pub kind: String,
    /// Speed that the driver reports, bits per second.
    pub speed_bps: Option<u64>,
    /// Rate of which the policies' shares are parts, bits per second; absent without classes.
    pub rate_bps: Option<u64>,
    /// The state of its policy.
    pub state: QosState,
    /// Fault, in words.
    pub fault: Option<String>,
    /// Attachment point of the program: `tcx` or `clsact`.
    pub attached: Option<String>,
    /// Whether incoming packets go through the policy, too.
    pub ingress: bool,
    /// Maximum size of an offloaded frame, bytes, so that none delays others by more than a
    /// millisecond; absent if it is the device's own.
    pub gso_max_size_bytes: Option<u32>,
    /// The policies, in the order of the file.
    pub policies: Vec<PolicyReport>,
    /// The class of packets that no policy takes.
    pub default_class: Option<ClassReport>,
}

/// A policy.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyReport {
    /// Name of the policy.
    pub name: String,
    /// DSCP that packets get.
    pub dscp: Option<u8>,
    /// VLAN priority that packets get.
    pub vlan_priority: Option<u8>,
    /// The policy that it is nested in.
    pub parent: Option<String>,
    /// Reserved rate, bits per second.
    pub reserve_bps: Option<u64>,
    /// Maximum rate, bits per second.
    pub limit_bps: Option<u64>,
    /// Order in which unused rate is offered, 0 (first) to 7.
    pub priority: Option<u8>,
    /// Its meter, in words.
    pub meter: Option<String>,
    /// Whether its packets are dropped.
    pub drop: bool,
    /// Its class, with the counters since it was made.
    pub class: Option<ClassReport>,
    /// Counters of outgoing packets.
    #[serde(default)]
    pub egress: CounterReport,
    /// Counters of incoming packets.
    pub ingress: Option<CounterReport>,
    /// Its filters, in the order of the file.
    pub filters: Vec<FilterReport>,
}

/// A filter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FilterReport {
    /// Its name.
    pub name: String,
    /// Lower is asked first.
    pub priority: u32,
    /// IP protocols, by name if they have one; empty for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<String>,
    /// The other conditions, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// Counters of outgoing packets.
    #[serde(default)]
    pub egress: CounterReport,
    /// Counters of incoming packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress: Option<CounterReport>,
}

/// A class of HTB.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClassReport {
    /// Identifier as in `tc`: `4c51:10`.
    pub id: String,
    /// Queueing discipline of the class: `fq_codel`, or `bfifo` if the kernel lacks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Guaranteed rate, bits per second.
    pub rate_bps: u64,
    /// Maximum rate, bits per second.
    pub ceil_bps: u64,
    /// Priority, 0 (first) to 7.
    pub priority: u8,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets dropped, because its queue was full.
    pub drops: u64,
    /// Number of times that it had to wait.
    pub overlimits: u64,
    /// Bytes in its queue.
    pub backlog_bytes: u64,
    /// Packets sent from its own rate.
    pub lends: u64,
    /// Packets sent with rate borrowed from other classes.
    pub borrows: u64,
}

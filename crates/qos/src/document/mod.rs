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

/// The policies of this host's interfaces, or what is said of a file.
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
    /// What is doubtful or was changed beside, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl QosDocument {
    /// A document of these interfaces.
    pub fn new(adapters: Vec<AdapterReport>, notes: Vec<String>) -> Self {
        Self {
            schema: QOS_SCHEMA.to_owned(),
            adapters,
            file: None,
            explanation: None,
            notes,
        }
    }
}

impl From<FileReport> for QosDocument {
    fn from(file: FileReport) -> Self {
        Self {
            file: Some(file),
            ..Self::new(Vec::new(), Vec::new())
        }
    }
}

impl From<ExplanationReport> for QosDocument {
    fn from(explanation: ExplanationReport) -> Self {
        Self {
            explanation: Some(explanation),
            ..Self::new(Vec::new(), Vec::new())
        }
    }
}

/// What becomes of an interface's packets.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum QosState {
    /// Enabled: packets meet the policy.
    Filtering,
    /// Enabled, but packets pass as they are.
    PassingThrough,
    /// Packets meet no program; the policy is kept for `enable`.
    Disabled,
    /// It is not as it should be: see `fault`.
    Failed,
}

/// An interface with its policy.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdapterReport {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Its addresses, with the lengths of their prefixes.
    pub addresses: Vec<String>,
    /// How its frames begin: `ethernet` or `raw_ip`.
    pub kind: String,
    /// What the driver says that it carries, bits per second.
    pub speed_bps: Option<u64>,
    /// What the policy's shares are parts of, bits per second; absent where there are no classes.
    pub rate_bps: Option<u64>,
    /// What becomes of its packets.
    pub state: QosState,
    /// What is wrong, in words.
    pub fault: Option<String>,
    /// Where the program stands: `tcx` or `clsact`.
    pub attached: Option<String>,
    /// Packets that come in meet the policy, too.
    pub ingress: bool,
    /// The largest offloaded frame, in bytes, so that none holds up others for longer than a
    /// millisecond; absent where it is the device's own.
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
    /// Its name.
    pub name: String,
    /// The code point that packets get.
    pub dscp: Option<u8>,
    /// The VLAN priority that they get.
    pub vlan_priority: Option<u8>,
    /// The policy inside whose class its own is.
    pub parent: Option<String>,
    /// What is kept for them, bits per second.
    pub reserve_bps: Option<u64>,
    /// What they never exceed, bits per second.
    pub limit_bps: Option<u64>,
    /// Who is offered first what others leave, 0 to 7.
    pub priority: Option<u8>,
    /// Its meter, in words.
    pub meter: Option<String>,
    /// Its packets are dropped.
    pub drop: bool,
    /// Its class, and what that did since it was made.
    pub class: Option<ClassReport>,
    /// What it counted of packets that leave.
    #[serde(default)]
    pub egress: CounterReport,
    /// What it counted of packets that come in.
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
    /// IP protocols, by name where they have one; empty for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<String>,
    /// The other conditions, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// What it counted of packets that leave.
    #[serde(default)]
    pub egress: CounterReport,
    /// What it counted of packets that come in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress: Option<CounterReport>,
}

/// A class of HTB.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClassReport {
    /// As `tc` writes it: `4c51:10`.
    pub id: String,
    /// How packets wait in it: `fq_codel`, or `bfifo` where the kernel has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// What it has for sure, bits per second.
    pub rate_bps: u64,
    /// What it never exceeds, bits per second.
    pub ceil_bps: u64,
    /// 0 (offered first) to 7.
    pub priority: u8,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets dropped, because its queue was full.
    pub drops: u64,
    /// How often it had to wait.
    pub overlimits: u64,
    /// Bytes that wait.
    pub backlog_bytes: u64,
    /// Packets sent of its own rate.
    pub lends: u64,
    /// Packets sent of others' rates.
    pub borrows: u64,
}

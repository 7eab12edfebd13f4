//! What `linerate qos --json` prints: the JSON contract `linerate.qos/1`, with a file's policies
//! described and its warnings.
//!
//! As in [`linerate_core::record`]: adding a key is free, renaming one is a new version; a key is
//! absent where there is nothing to say.

use std::collections::BTreeMap;

use linerate_core::units::BitRate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::classes::ClassPlan;
use crate::explain::ExplanationReport;
use crate::interpret::CounterReport;
use crate::policy::{Adapter, Filter, Meter, MeterKind, PolicyFile, written};
use crate::rules::{Bindings, RuleError, RuleSet};
use crate::warnings::{Warning, warnings};

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

// The policies of an adapter, with their counters at zero.

/// Describes the policies of `adapter`, each before those nested in it, with their filters. Shares
/// are those of `plan`.
pub fn describe(
    file: &PolicyFile,
    adapter: &Adapter,
    plan: Option<&ClassPlan>,
) -> Vec<PolicyReport> {
    let policies = in_tree(file, adapter).into_iter().map(|index| {
        let policy = &file.policies[index];
        let class = plan.and_then(|plan| {
            let mut classes = plan.classes.iter();
            classes.find(|class| Some(class.id) == plan.of_policy[index])
        });
        PolicyReport {
            name: policy.name.clone(),
            dscp: policy.dscp.map(|dscp| dscp.octet() >> 2),
            vlan_priority: policy.vlan_priority,
            parent: policy.parent.map(|at| file.policies[at].name.clone()),
            reserve_bps: policy.reserve.and(class).map(|class| class.rate.0),
            limit_bps: policy.limit.and(class).map(|class| class.ceil.0),
            priority: policy.priority,
            meter: policy.meter.as_ref().map(meter),
            drop: policy.drop,
            class: None,
            egress: CounterReport::default(),
            ingress: None,
            filters: (file.filters.iter())
                .filter(|filter| filter.policy == index)
                .map(filter_report)
                .collect(),
        }
    });
    policies.collect()
}

/// The policies of an adapter, each before those nested in it.
fn in_tree(file: &PolicyFile, adapter: &Adapter) -> Vec<usize> {
    let mut tree: Vec<usize> = Vec::with_capacity(adapter.policies.len());
    let mut rest = vec![None];
    while let Some(parent) = rest.pop() {
        tree.extend(parent);
        let inside =
            adapter.policies.iter().rev().filter(|at| file.policies[**at].parent == parent);
        rest.extend(inside.map(|at| Some(*at)));
    }
    tree
}

fn filter_report(filter: &Filter) -> FilterReport {
    let all = written(&filter.conditions).into_iter();
    let (protocols, others): (Vec<_>, Vec<_>) = all.partition(|(key, _)| *key == "protocol");
    let words = |(key, values): (&str, Vec<String>)| {
        format!("{} {}", key.replace('_', " "), values.join(", "))
    };
    FilterReport {
        name: filter.name.clone(),
        priority: filter.priority,
        protocols: protocols.into_iter().flat_map(|(_, them)| them).collect(),
        conditions: others.into_iter().map(words).collect(),
        egress: CounterReport::default(),
        ingress: None,
    }
}

fn meter(meter: &Meter) -> String {
    let mut words = match meter.kind {
        MeterKind::SingleRate { committed, committed_burst, excess_burst } => {
            format!("srTCM {committed}, bursts {committed_burst} and {excess_burst}")
        }
        MeterKind::TwoRate { committed, committed_burst, peak, peak_burst } => {
            format!("trTCM {committed} ({committed_burst}), peak {peak} ({peak_burst})")
        }
    };
    if meter.colour_aware {
        words += ", colour-aware";
    }
    for (colour, dscp) in meter.code_points() {
        words += &format!(", {colour} {dscp}");
    }
    if meter.drop_red {
        words += ", red dropped";
    }
    words
}

// The report on a file: its content and warnings.

/// The content of a valid policy file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileReport {
    /// Name of the file, as it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number of filters.
    pub filters: usize,
    /// Number of policies.
    pub policies: usize,
    /// The adapters.
    pub adapters: Vec<AdapterRules>,
    /// Warnings about what the author may not have meant.
    pub warnings: Vec<WarningReport>,
}

/// A warning about a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WarningReport {
    /// The line in which it is defined.
    pub line: usize,
    /// The column.
    pub column: usize,
    /// The warning in words.
    pub text: String,
    /// Whether `apply` refuses the file because of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
}

impl From<&Warning> for WarningReport {
    fn from(warning: &Warning) -> Self {
        Self {
            line: warning.place.line,
            column: warning.place.column,
            text: warning.doubt.to_string(),
            refused: warning.doubt.is_refused(),
        }
    }
}

/// The number of rules that an adapter's filters become: two for `address`, two for `port`, one for
/// each family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AdapterRules {
    /// The adapter's name.
    pub name: String,
    /// Rules for IPv4.
    pub v4_rules: usize,
    /// Rules for IPv6.
    pub v6_rules: usize,
    /// Rules for all other packets.
    pub other_rules: usize,
}

impl FileReport {
    /// Reports on `file`. `speeds` are the speeds that drivers report of adapters without a `rate`.
    ///
    /// # Errors
    /// [`RuleError`], if its filters make too many rules.
    pub fn new(file: &PolicyFile, speeds: &BTreeMap<String, BitRate>) -> Result<Self, RuleError> {
        let bindings = Bindings::stand_in(file);
        let adapters = file.adapters.iter().map(|adapter| {
            let rules = RuleSet::new(file, adapter, &bindings)?;
            Ok(AdapterRules {
                name: adapter.name.clone(),
                v4_rules: rules.v4.len(),
                v6_rules: rules.v6.len(),
                other_rules: rules.other.len(),
            })
        });
        Ok(Self {
            name: None,
            filters: file.filters.len(),
            policies: file.policies.len(),
            adapters: adapters.collect::<Result<_, RuleError>>()?,
            warnings: warnings(file, speeds)?.iter().map(WarningReport::from).collect(),
        })
    }
}

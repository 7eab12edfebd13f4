//! What an end of the path was like when the run began.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Both ends.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// This host.
    pub client: HostFacts,
    /// The endpoint's host, as the endpoint tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<HostFacts>,
    /// Both ends run on the same kernel.
    #[serde(default)]
    pub shared_kernel: bool,
}

/// One host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HostFacts {
    /// Version of linerate.
    pub linerate: String,
    /// Kernel release, as `uname -r`.
    pub kernel: String,
    /// Kernel boot id; two ends with the same one share a kernel.
    pub boot_id: String,
    /// Host name.
    pub hostname: String,
    /// Processors.
    pub cpu: CpuFacts,
    /// Interface that the path leaves by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceFacts>,
    /// Settings that decide performance: `net.*` keys and their values.
    pub sysctls: BTreeMap<String, String>,
    /// Current clock source, such as `tsc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_source: Option<String>,
    /// Congestion control of new connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Physical memory, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// Processors of a host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CpuFacts {
    /// CPUs on line.
    pub count: u32,
    /// CPUs that linerate may use (affinity, cgroup).
    pub usable: f64,
    /// Model name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Frequency governor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Hypervisor, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtualisation: Option<String>,
}

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DeviceFacts {
    /// Interface name.
    pub name: String,
    /// Kind or driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// MTU, bytes.
    pub mtu_bytes: u32,
    /// Link speed, bits per second, where the driver says one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_bps: Option<u64>,
    /// Root queueing discipline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qdisc: Option<String>,
    /// Offloads by ethtool's names and whether they are on.
    pub offloads: BTreeMap<String, bool>,
}

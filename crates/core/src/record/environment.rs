//! The hosts and the emulated path of a run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::plan::Direction;

/// The hosts of both ends.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// This host.
    pub client: HostFacts,
    /// The endpoint's host, as the endpoint reports it.
    pub server: Option<HostFacts>,
    /// Both ends run on the same kernel.
    #[serde(default)]
    pub shared_kernel: bool,
    /// The emulated path, if there was one. No verdict depends on it.
    pub lab: Option<LabFacts>,
}

impl Environment {
    /// An environment of both hosts, which may be the same.
    pub fn new(client: HostFacts, server: Option<HostFacts>) -> Self {
        let boot_id = server.as_ref().map(|server| &server.boot_id);
        Self {
            shared_kernel: !client.boot_id.is_empty() && boot_id == Some(&client.boot_id),
            client,
            server,
            lab: None,
        }
    }

    /// The hosts that send and receive in one direction.
    pub fn hosts_of(&self, direction: Direction) -> [Option<&HostFacts>; 2] {
        let (client, server) = (Some(&self.client), self.server.as_ref());
        match direction {
            Direction::Down => [server, client],
            Direction::Up | Direction::Both => [client, server],
        }
    }
}

/// An emulated path with its counts from its beginning to the end of the command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LabFacts {
    /// Its description, as `--lab` reads it.
    pub spec: String,
    /// Round trip through the emulator without delay, which is subtracted from the delays, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline_rtt_us: Option<f64>,
    /// Its emulated links.
    pub links: Vec<LabLink>,
}

/// An emulated link.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LabLink {
    /// Its name.
    pub name: String,
    /// The direction from the client.
    pub up: LabDirection,
    /// The direction to the client.
    pub down: LabDirection,
}

/// The counts of one direction of an emulated link, packets. If a link only delays, a frame of
/// segmentation offload counts as one packet.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LabDirection {
    /// Packets given to the link.
    pub offered: u64,
    /// Packets that arrived at the far end, copies included.
    pub delivered: u64,
    /// Their bytes, from the IP header on.
    pub delivered_bytes: u64,
    /// Of these, packets of less than 128 bytes from the IP header on: acknowledgements without
    /// data.
    pub packets_below_128: u64,
    /// Packets of 128 to 511 bytes.
    pub packets_128_to_511: u64,
    /// Packets of 512 to 1535 bytes.
    pub packets_512_to_1535: u64,
    /// Packets of 1536 bytes or more.
    pub packets_from_1536: u64,
    /// Copies that the link made.
    pub duplicated: u64,
    /// Packets that arrived with a flipped bit.
    pub corrupted: u64,
    /// Packets that arrived after one that was sent later.
    pub reordered: u64,
    /// Packets marked by ECN.
    pub marked: u64,
    /// Drops of packets larger than the MTU.
    pub dropped_mtu: u64,
    /// Drops above the policer's rate.
    pub dropped_policer: u64,
    /// Drops at random.
    pub dropped_loss: u64,
    /// Drops at a full queue.
    pub dropped_queue: u64,
    /// Drops by CoDel.
    pub dropped_aqm: u64,
    /// Drops by the emulator's own fault.
    pub overflowed: u64,
    /// Lateness of the packets' departures, median, µs.
    pub lateness_p50_us: Option<f64>,
    /// Lateness of the packets' departures, 99th percentile, µs.
    pub lateness_p99_us: Option<f64>,
}

impl LabDirection {
    /// Cause and number of all drops that happened.
    pub fn drops(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = [
            ("mtu", self.dropped_mtu),
            ("policer", self.dropped_policer),
            ("loss", self.dropped_loss),
            ("queue", self.dropped_queue),
            ("aqm", self.dropped_aqm),
            ("emulator", self.overflowed),
        ];
        all.into_iter().filter(|(_, count)| *count > 0)
    }
}

/// One host.
#[skip_serializing_none]
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
    /// Interface to the path.
    pub device: Option<DeviceFacts>,
    /// Settings that affect performance: `net.*` keys and their values.
    pub sysctls: BTreeMap<String, String>,
    /// Those of `sysctls` that nobody can write here: in a network namespace, settings of the whole
    /// host such as `net.core.rmem_max`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read_only_sysctls: Vec<String>,
    /// Current clock source, such as `tsc`.
    pub clock_source: Option<String>,
    /// Congestion control of new connections.
    pub congestion: Option<String>,
    /// Physical memory, bytes.
    pub memory_bytes: Option<u64>,
    /// The queueing disciplines with short queues that the kernel is known to have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disciplines: Vec<String>,
}

impl HostFacts {
    /// A setting's value, if the record has it.
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.sysctls.get(key).map(|text| text.trim())
    }

    /// Whether nobody can write the setting there.
    pub fn is_read_only(&self, key: &str) -> bool {
        self.read_only_sysctls.iter().any(|known| known == key)
    }
}

/// Processors of a host.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CpuFacts {
    /// CPUs on line.
    pub count: u32,
    /// CPUs that linerate may use (affinity, cgroup).
    pub usable: f64,
    /// Model name.
    pub model: Option<String>,
    /// Frequency governor.
    pub governor: Option<String>,
    /// Hypervisor, if there is one.
    pub virtualisation: Option<String>,
}

/// A network interface.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DeviceFacts {
    /// Interface name.
    pub name: String,
    /// Kind or driver.
    pub driver: Option<String>,
    /// MTU, bytes.
    pub mtu_bytes: u32,
    /// Link speed, bits per second, if the driver reports one.
    pub speed_bps: Option<u64>,
    /// Root queueing discipline.
    pub qdisc: Option<String>,
    /// The most with which its `fq` lets each flow leave (`maxrate`), frames in bits per second.
    pub flow_max_rate_bps: Option<u64>,
    /// Offloads by ethtool's names and whether they are on.
    pub offloads: BTreeMap<String, bool>,
}

//! What the files of a lab say, and what its process answers: plain data.

use std::net::IpAddr;

use linerate_core::lab::{Role, Topology};
use linerate_core::link::{LinkSpec, PathSpec};
use serde::{Deserialize, Serialize};

use crate::lab::{DirectionReport, Lab};

/// A lab that a process holds: enough to enter its hosts and to end it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabState {
    /// Its name.
    pub name: String,
    /// The process that holds it.
    pub pid: u32,
    /// When that began, in clock ticks since boot.
    pub started_ticks: u64,
    /// Hosts and routers, in the order of the file.
    pub hosts: Vec<HostState>,
}

/// A host or router of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostState {
    /// Its name.
    pub name: String,
    /// Whether it forwards.
    pub is_router: bool,
    /// The addresses of its first interface, which are what its name means.
    pub addresses: Vec<IpAddr>,
    /// The number that its namespace's descriptor has in the process that holds the lab.
    pub descriptor: i32,
    /// The number of the namespace itself.
    pub namespace: u64,
}

/// What the process that holds a lab says of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabStatus {
    /// Round trip through the emulator without any delay, which is taken off the delays, µs.
    pub baseline_us: Option<f64>,
    /// All links, in the order of the file.
    pub links: Vec<LinkStatus>,
}

/// A link of a lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Its name.
    pub name: String,
    /// Names of its two ends.
    pub between: [String; 2],
    /// As `--lab` has it; empty for a plain link.
    pub spec: String,
    /// MTU of both interfaces, bytes.
    pub mtu_bytes: u32,
    /// From the first end to the second, if it is emulated.
    pub up: Option<DirectionStatus>,
    /// Back, if it is emulated.
    pub down: Option<DirectionStatus>,
}

/// What one direction of an emulated link did so far, in packets; of a link that only delays, frames of segmentation
/// offload count as one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectionStatus {
    /// Packets given to the link.
    pub offered: u64,
    /// Arrivals, copies included.
    pub delivered: u64,
    /// Copies.
    pub duplicated: u64,
    /// Arrivals with a flipped bit.
    pub corrupted: u64,
    /// Arrivals after one that was sent later.
    pub reordered: u64,
    /// Packets marked by CoDel.
    pub marked: u64,
    /// Packets dropped.
    pub dropped: Drops,
    /// Median of how much later than due packets were handed on, µs; `None` before the first.
    pub lateness_p50_us: Option<f64>,
    /// The 99 % quantile of it, µs.
    pub lateness_p99_us: Option<f64>,
}

/// Packets that were dropped, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drops {
    /// By the MTU.
    pub mtu: u64,
    /// By the policer.
    pub policer: u64,
    /// By the loss model.
    pub loss: u64,
    /// By the full queue.
    pub queue: u64,
    /// By CoDel.
    pub aqm: u64,
    /// By the emulator's own fault: this machine was too slow.
    pub emulator: u64,
}

/// A process that runs in a host of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inhabitant {
    /// Its number.
    pub pid: u32,
    /// Its name, up to 15 bytes.
    pub command: String,
    /// The host.
    pub host: String,
}

impl LabStatus {
    pub(super) fn of(lab: &Lab) -> Self {
        let topology = lab.topology();
        let report = lab.report();
        let links = topology.links.iter().map(|link| {
            let counted = report
                .links
                .iter()
                .find(|counted| counted.name == link.name);
            let [up, down] = match counted {
                Some(counted) => counted
                    .directions
                    .each_ref()
                    .map(|d| Some(DirectionStatus::of(d))),
                None => [None, None],
            };
            LinkStatus {
                name: link.name.clone(),
                between: link.ends.map(|(node, _)| topology.nodes[node].name.clone()),
                spec: spec(&link.up, &link.down),
                mtu_bytes: link.mtu,
                up,
                down,
            }
        });
        Self {
            baseline_us: report.baseline.map(|baseline| baseline.as_secs_f64() * 1e6),
            links: links.collect(),
        }
    }
}

impl DirectionStatus {
    fn of(report: &DirectionReport) -> Self {
        let counters = report.counters;
        let dropped = counters.dropped;
        Self {
            offered: counters.offered,
            delivered: counters.delivered,
            duplicated: counters.duplicated,
            corrupted: counters.corrupted,
            reordered: counters.reordered,
            marked: counters.marked,
            dropped: Drops {
                mtu: dropped.mtu,
                policer: dropped.policer,
                loss: dropped.loss,
                queue: dropped.queue,
                aqm: dropped.aqm,
                emulator: report.overflowed,
            },
            lateness_p50_us: report.lateness_us.as_ref().map(|lateness| lateness.p50),
            lateness_p99_us: report.lateness_us.as_ref().map(|lateness| lateness.p99),
        }
    }
}

impl Drops {
    /// Cause and number of all that have dropped anything.
    pub fn causes(self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = [
            ("mtu", self.mtu),
            ("policer", self.policer),
            ("loss", self.loss),
            ("queue", self.queue),
            ("aqm", self.aqm),
            ("emulator", self.emulator),
        ];
        all.into_iter().filter(|(_, count)| *count > 0)
    }
}

/// The text of /etc/hosts in a lab: what each name means there.
pub(super) fn hosts_file(topology: &Topology) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    for node in &topology.nodes {
        for prefix in node
            .interfaces
            .iter()
            .take(1)
            .flat_map(|first| &first.addresses)
        {
            text += &format!("{} {}\n", prefix.address, node.name);
        }
    }
    text
}

/// Whether it forwards.
pub(super) fn is_router(role: Role) -> bool {
    role == Role::Router
}

fn spec(up: &LinkSpec, down: &LinkSpec) -> String {
    let path = PathSpec {
        up: up.clone(),
        down: down.clone(),
        hops: 0,
    };
    path.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hosts_file_has_each_name_with_the_addresses_of_its_first_interface() {
        let topology = Topology::of_path(&"hops=1".parse().unwrap());
        let expected = "127.0.0.1 localhost\n::1 localhost\n198.18.0.1 client\n2001:2::1 client\n\
                        198.18.0.2 r1\n2001:2::2 r1\n198.18.1.2 server\n2001:2:0:1::2 server\n";
        assert_eq!(hosts_file(&topology), expected);
    }
}

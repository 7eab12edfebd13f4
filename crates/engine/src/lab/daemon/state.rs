//! The contents of a lab's files, and the answer of its process.

use std::net::IpAddr;

use linerate_core::lab::{LabStatus, LinkStatus, Topology};
use linerate_core::link::{LinkSpec, PathSpec};
use serde::{Deserialize, Serialize};

use crate::lab::Lab;

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

/// What a lab does, as its process answers it.
pub(super) fn status(lab: &Lab) -> LabStatus {
    let topology = lab.topology();
    let report = lab.report();
    let links = topology.links.iter().map(|link| {
        let counted = report.links.iter().find(|counted| counted.name == link.name);
        let (up, down) = counted.map(|counted| (counted.up.clone(), counted.down.clone())).unzip();
        LinkStatus {
            name: link.name.clone(),
            between: link.ends.map(|(node, _)| topology.nodes[node].name.clone()),
            spec: spec(&link.up, &link.down),
            mtu_bytes: link.mtu,
            up,
            down,
        }
    });
    LabStatus {
        baseline_rtt_us: report.baseline.map(|baseline| baseline.as_secs_f64() * 1e6),
        links: links.collect(),
    }
}

/// The text of /etc/hosts in a lab.
pub(super) fn hosts_file(topology: &Topology) -> String {
    let mut text = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    for node in &topology.nodes {
        for prefix in node.interfaces.iter().take(1).flat_map(|first| &first.addresses) {
            text += &format!("{} {}\n", prefix.address, node.name);
        }
    }
    text
}

fn spec(up: &LinkSpec, down: &LinkSpec) -> String {
    let path = PathSpec { up: up.clone(), down: down.clone(), hops: 0 };
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

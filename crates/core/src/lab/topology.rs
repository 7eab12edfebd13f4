//! The parts of a lab, as plain data.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use crate::link::LinkSpec;

/// Hosts, routers and the links between them, fully resolved.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Topology {
    /// Hosts and routers, in the order of the file.
    pub nodes: Vec<Node>,
    /// Links, in the order of the file.
    pub links: Vec<Join>,
}

/// A host or a router: a network namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// A DNS label, 1 to 63 bytes.
    pub name: String,
    /// Whether it forwards.
    pub role: Role,
    /// Its interfaces, `eth0` first; the node's name stands for the addresses of the first one.
    pub interfaces: Vec<Interface>,
    /// Its routes beyond its own links, more specific ones first.
    pub routes: Vec<Route>,
    /// Settings of its namespace, each a key such as `net.ipv4.tcp_rmem`.
    pub sysctls: BTreeMap<String, String>,
}

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A host: it sends and receives.
    Host,
    /// A router: it also forwards, and answers packets that are too big or whose hop limit ends.
    Router,
}

/// One end of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Name in the namespace, `eth0`, `eth1`, … unless the file says otherwise; 1 to 15 bytes.
    pub name: String,
    /// Index of its link in [`Topology::links`].
    pub link: usize,
    /// Addresses, with the length of the link's prefix.
    pub addresses: Vec<Prefix>,
    /// MTU, bytes.
    pub mtu: u32,
}

/// An address and the length of its network's prefix, bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    /// The address.
    pub address: IpAddr,
    /// 0 to 32, or to 128.
    pub length: u8,
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// A route of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Its destination; the length 0 is the default route.
    pub to: Prefix,
    /// The neighbour that forwards.
    pub via: IpAddr,
    /// Address to send from, in place of the interface's.
    pub source: Option<IpAddr>,
    /// MTU of the route, bytes.
    pub mtu: Option<u32>,
    /// MSS that is advertised, bytes.
    pub advmss: Option<u32>,
    /// Every segment is acknowledged at once.
    pub quickack: Option<bool>,
}

/// A link between two interfaces.
#[derive(Debug, Clone, PartialEq)]
pub struct Join {
    /// Name, for counters and messages.
    pub name: String,
    /// Its two interfaces: node's index in [`Topology::nodes`] and interface's index there.
    pub ends: [(usize, usize); 2],
    /// From the first end to the second.
    pub up: LinkSpec,
    /// Back.
    pub down: LinkSpec,
    /// MTU of both its interfaces, bytes.
    pub mtu: u32,
}

impl Join {
    /// Whether its interfaces do all that it needs, so that it can be a veth pair without
    /// emulation.
    pub fn is_plain(&self) -> bool {
        [&self.up, &self.down].into_iter().all(|link| {
            let is_held = link.mtu.is_none_or(|mtu| mtu.bytes >= self.mtu);
            is_held && link.changes_nothing()
        })
    }
}

impl Topology {
    /// The node of that name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }
}

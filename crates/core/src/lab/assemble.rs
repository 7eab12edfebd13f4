//! Adds nodes, links and routes to a topology.

use super::address::block;
use super::routes;
use super::topology::{Interface, Join, Node, Prefix, Role, Topology};
use crate::link::{LinkSpec, PathSpec};

/// A link that is to be added.
pub(super) struct Wanted {
    pub(super) name: String,
    /// Indices of the nodes.
    pub(super) nodes: [usize; 2],
    /// Names of the interfaces; `None`: `eth0`, `eth1`, …
    pub(super) interfaces: [Option<String>; 2],
    pub(super) addresses: [Vec<Prefix>; 2],
    pub(super) spec: PathSpec,
    /// MTU of both interfaces, bytes.
    pub(super) mtu: u32,
}

impl Wanted {
    /// A link between two nodes, with defaults for the rest.
    pub(super) fn plain(topology: &Topology, nodes: [usize; 2]) -> Self {
        let [a, b] = nodes.map(|node| &topology.nodes[node].name);
        Self {
            name: format!("{a}-{b}"),
            nodes,
            interfaces: [None, None],
            addresses: [Vec::new(), Vec::new()],
            spec: PathSpec::default(),
            mtu: DEFAULT_MTU,
        }
    }

    /// Gives it the addresses of a number. IPv6 needs an MTU of 1280 (RFC 8200, section 5): Linux
    /// removes it from an interface with less.
    pub(super) fn number(&mut self, number: usize) {
        let [v4, v6] = block(number);
        let has_ipv6 = self.mtu >= MIN_IPV6_MTU;
        for (end, addresses) in self.addresses.iter_mut().enumerate() {
            *addresses = vec![v4[end]];
            addresses.extend(has_ipv6.then_some(v6[end]));
        }
    }
}

impl Topology {
    /// Adds a node without links, and returns its index.
    pub(super) fn add_node(&mut self, name: impl Into<String>, role: Role) -> usize {
        self.nodes.push(Node {
            name: name.into(),
            role,
            interfaces: Vec::new(),
            routes: Vec::new(),
            sysctls: Default::default(),
        });
        self.nodes.len() - 1
    }

    /// Adds a link, and an interface to each of its nodes.
    pub(super) fn add_link(&mut self, wanted: Wanted) {
        let link = self.links.len();
        let named = wanted.nodes.into_iter().zip(wanted.interfaces);
        let ends: Vec<_> = named
            .zip(wanted.addresses)
            .map(|((node, name), addresses)| {
                let interfaces = &mut self.nodes[node].interfaces;
                let number = interfaces.len();
                interfaces.push(Interface {
                    name: name.unwrap_or_else(|| format!("eth{number}")),
                    link,
                    addresses,
                    mtu: wanted.mtu,
                });
                (node, number)
            })
            .collect();
        self.links.push(Join {
            name: wanted.name,
            ends: [ends[0], ends[1]],
            up: wanted.spec.up,
            down: wanted.spec.down,
            mtu: wanted.mtu,
        });
    }

    /// Gives each node its computed routes.
    pub(super) fn add_routes(&mut self) {
        let routes = routes::shortest(self);
        for (node, routes) in self.nodes.iter_mut().zip(routes) {
            node.routes = routes;
        }
    }
}

/// The MTU that the interfaces of a link need, bytes: the smallest that limits neither direction.
/// The link itself drops packets for a smaller MTU in one direction, and for a black hole.
pub(super) fn interface_mtu(spec: &PathSpec) -> u32 {
    let needed = |link: &LinkSpec| match link.mtu {
        None => DEFAULT_MTU,
        Some(mtu) if mtu.is_black_hole => mtu.bytes.max(DEFAULT_MTU),
        Some(mtu) => mtu.bytes,
    };
    needed(&spec.up).max(needed(&spec.down))
}

/// The MTU of Ethernet, bytes.
pub(super) const DEFAULT_MTU: u32 = 1500;

/// RFC 8200, section 5.
const MIN_IPV6_MTU: u32 = 1280;

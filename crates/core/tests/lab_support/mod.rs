//! Follows routes as the kernel would.

use std::collections::VecDeque;
use std::net::IpAddr;

use linerate_core::lab::{Node, Role, Topology};

/// How a packet's way ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walk {
    /// After so many links.
    Arrived(u32),
    /// A node has no route, or does not forward.
    NoRoute,
    /// It goes in circles.
    Circle,
}

/// The ways to each of the addresses that a name means.
pub(crate) fn walk(lab: &Topology, from: &str, to: &str) -> Vec<Walk> {
    let start =
        lab.nodes.iter().position(|node| node.name == from).expect("there is one of that name");
    let addresses = &lab.node(to).expect("there is one of that name").interfaces[0].addresses;
    addresses.iter().map(|prefix| walk_to(lab, start, prefix.address)).collect()
}

fn walk_to(lab: &Topology, start: usize, to: IpAddr) -> Walk {
    let mut at = start;
    for hops in 0..=lab.nodes.len() as u32 {
        let node = &lab.nodes[at];
        if has(node, to) {
            return Walk::Arrived(hops);
        }
        if hops > 0 && node.role == Role::Host {
            return Walk::NoRoute;
        }
        let Some(next) = next_hop(node, to) else {
            return Walk::NoRoute;
        };
        let Some(neighbour) = neighbour(lab, at, next) else {
            return Walk::NoRoute;
        };
        at = neighbour;
    }
    Walk::Circle
}

/// Longest prefix first, own networks included.
fn next_hop(node: &Node, to: IpAddr) -> Option<IpAddr> {
    let own = node.interfaces.iter().flat_map(|interface| &interface.addresses);
    let own = own.map(|prefix| (*prefix, to));
    let routes = node.routes.iter().map(|route| (route.to, route.via));
    (own.chain(routes))
        .filter(|(prefix, _)| prefix.contains(to))
        .max_by_key(|(prefix, _)| prefix.length)
        .map(|(_, via)| via)
}

fn neighbour(lab: &Topology, at: usize, address: IpAddr) -> Option<usize> {
    lab.links.iter().find_map(|link| {
        let (far, interface) = match link.ends {
            [(node, _), far] | [far, (node, _)] if node == at => far,
            _ => return None,
        };
        let addresses = &lab.nodes[far].interfaces[interface].addresses;
        addresses.iter().any(|prefix| prefix.address == address).then_some(far)
    })
}

fn has(node: &Node, address: IpAddr) -> bool {
    let mut own = node.interfaces.iter().flat_map(|interface| &interface.addresses);
    own.any(|prefix| prefix.address == address)
}

/// Links between two nodes, if routers alone forward.
pub(crate) fn hops_between(lab: &Topology, from: &str, to: &str) -> Option<u32> {
    let index = |name: &str| {
        lab.nodes.iter().position(|node| node.name == name).expect("there is one of that name")
    };
    let (start, end) = (index(from), index(to));
    let mut hops = vec![None; lab.nodes.len()];
    hops[start] = Some(0);
    let mut waiting = VecDeque::from([start]);
    while let Some(node) = waiting.pop_front() {
        if node != start && lab.nodes[node].role == Role::Host {
            continue;
        }
        for link in &lab.links {
            let [(a, _), (b, _)] = link.ends;
            for (near, far) in [(a, b), (b, a)] {
                if near == node && hops[far].is_none() {
                    hops[far] = hops[node].map(|hops: u32| hops + 1);
                    waiting.push_back(far);
                }
            }
        }
    }
    hops[end]
}

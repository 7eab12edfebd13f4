//! Routes: the shortest ways, by hops, where only routers forward; of two as short the first in the
//! file.
//!
//! Each route leads one hop nearer to its destination, as counted from the destination, so no
//! packet goes in circles.

use std::net::IpAddr;

use super::topology::{Node, Prefix, Role, Route, Topology};

/// The computed routes of all nodes, for one family after the other, as if no other were given.
pub(super) fn shortest(topology: &Topology) -> Vec<Vec<Route>> {
    let mut routes = vec![Vec::new(); topology.nodes.len()];
    for is_ipv4 in [true, false] {
        let graph = Graph::new(topology, is_ipv4);
        for link in 0..topology.links.len() {
            graph.lead_to(link, &mut routes);
        }
        for (node, routes) in routes.iter_mut().enumerate() {
            if let Some(via) = graph.only_router(node) {
                routes.retain(|route| route.to.address.is_ipv4() != is_ipv4);
                routes.push(Route::new(Prefix::default_of(is_ipv4), via));
            }
        }
    }
    for routes in &mut routes {
        most_specific_first(routes);
    }
    routes
}

/// The order that a node's routes have.
pub(super) fn most_specific_first(routes: &mut [Route]) {
    routes.sort_by_key(|route| std::cmp::Reverse(route.to.length));
}

impl Route {
    /// A route without further settings.
    pub(crate) fn new(to: Prefix, via: IpAddr) -> Self {
        Self { to, via, source: None, mtu: None, advmss: None, quickack: None }
    }
}

impl Node {
    /// The address of that family on an interface.
    pub(super) fn address_on(&self, interface: usize, is_ipv4: bool) -> Option<Prefix> {
        let mut addresses = self.interfaces[interface].addresses.iter();
        addresses.find(|prefix| prefix.address.is_ipv4() == is_ipv4).copied()
    }
}

/// What one family sees of a topology.
struct Graph<'a> {
    topology: &'a Topology,
    is_ipv4: bool,
    /// For each node its neighbours and their addresses, in the order of the links.
    neighbours: Vec<Vec<(usize, IpAddr)>>,
}

impl<'a> Graph<'a> {
    fn new(topology: &'a Topology, is_ipv4: bool) -> Self {
        let mut neighbours = vec![Vec::new(); topology.nodes.len()];
        for link in &topology.links {
            let [a, b] = link.ends.map(|(node, interface)| {
                let address = topology.nodes[node].address_on(interface, is_ipv4);
                (node, address)
            });
            if let ((a, Some(of_a)), (b, Some(of_b))) = (a, b) {
                neighbours[a].push((b, of_b.address));
                neighbours[b].push((a, of_a.address));
            }
        }
        Self { topology, is_ipv4, neighbours }
    }

    /// The address of the router through which all goes: the node is a host, with one link.
    fn only_router(&self, node: usize) -> Option<IpAddr> {
        let is_single = self.topology.nodes[node].interfaces.len() == 1 && !self.forwards(node);
        match self.neighbours[node][..] {
            [(router, via)] if is_single && self.forwards(router) => Some(via),
            _ => None,
        }
    }

    /// Adds to each node what it needs to reach both ends of a link: a route to the network, by the
    /// nearest router at its ends. A host at its end has a route of its own where that is shorter,
    /// or the only one.
    fn lead_to(&self, link: usize, routes: &mut [Vec<Route>]) {
        let ends = self.topology.links[link].ends;
        let [a, b] = ends.map(|(node, _)| node);
        let address = |(node, interface): (usize, usize)| {
            self.topology.nodes[node].address_on(interface, self.is_ipv4)
        };
        let [Some(of_a), Some(of_b)] = ends.map(address) else {
            return;
        };
        let routers: Vec<usize> = [a, b].into_iter().filter(|n| self.forwards(*n)).collect();
        let to_network = self.hops_to(&routers);
        let ends = [(a, of_a), (b, of_b)].into_iter();
        let hosts = ends.filter(|(node, _)| !self.forwards(*node));
        let hops = |(node, prefix)| (node, prefix, self.hops_to(&[node]));
        let hosts: Vec<_> = hosts.map(hops).collect();
        for (node, routes) in routes.iter_mut().enumerate() {
            if node == a || node == b {
                continue;
            }
            for (host, prefix, hops) in &hosts {
                if hops[node] < to_network[node].saturating_add(1)
                    && let Some(via) = self.next(node, hops, &[*host])
                {
                    routes.push(Route::new(Prefix::of_host(prefix.address), via));
                }
            }
            if let Some(via) = self.next(node, &to_network, &routers) {
                routes.push(Route::new(of_a.network(), via));
            }
        }
    }

    /// Hops from each node to the nearest of the targets; `u32::MAX`: there is no way.
    fn hops_to(&self, targets: &[usize]) -> Vec<u32> {
        let mut hops = vec![u32::MAX; self.neighbours.len()];
        let mut reached = targets.to_vec();
        for target in targets {
            hops[*target] = 0;
        }
        let mut position = 0;
        while let Some(&node) = reached.get(position) {
            position += 1;
            if !self.forwards(node) && !targets.contains(&node) {
                continue;
            }
            for &(neighbour, _) in &self.neighbours[node] {
                if hops[neighbour] == u32::MAX {
                    hops[neighbour] = hops[node] + 1;
                    reached.push(neighbour);
                }
            }
        }
        hops
    }

    /// The neighbour that is one hop nearer, and may be sent to.
    fn next(&self, node: usize, hops: &[u32], targets: &[usize]) -> Option<IpAddr> {
        let nearer = hops[node].checked_sub(1)?;
        let may_send_to = |node: &usize| self.forwards(*node) || targets.contains(node);
        let is_next = |node: &usize| hops[*node] == nearer && may_send_to(node);
        let neighbours = self.neighbours[node].iter();
        let mut nearer = neighbours.filter(|(neighbour, _)| is_next(neighbour));
        nearer.next().map(|(_, via)| *via)
    }

    fn forwards(&self, node: usize) -> bool {
        self.topology.nodes[node].role == Role::Router
    }
}

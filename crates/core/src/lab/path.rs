//! The topology of one path: client, routers, server.

use super::assemble::{DEFAULT_MTU, Wanted, interface_mtu};
use super::topology::{Role, Topology};
use crate::link::PathSpec;

impl Topology {
    /// The hosts `client` and `server`, and `spec.hops` routers `r1`, `r2`, … between them. One
    /// link is emulated, in the middle, the nearer one to the client where there are two; the
    /// others are plain. `up` leads from the client to the server.
    ///
    /// The emulated link's interfaces have the MTU of the spec; where that is less in one direction
    /// than in the other, or a black hole, the link itself drops. The other links hold at least
    /// 1500 bytes. A path for less than 1280 bytes has no IPv6.
    ///
    /// ```
    /// use linerate_core::lab::Topology;
    ///
    /// let topology = Topology::of_path(&"rate=100mbit,rtt=29ms,hops=2".parse()?);
    /// let names: Vec<_> = topology.links.iter().map(|link| link.name.as_str()).collect();
    /// assert_eq!(names, ["client-r1", "r1-r2", "r2-server"]);
    /// assert!(!topology.links[1].is_plain());
    /// # Ok::<(), linerate_core::link::SpecError>(())
    /// ```
    pub fn of_path(spec: &PathSpec) -> Self {
        let mut topology = Self::default();
        let mut nodes = vec![topology.add_node("client", Role::Host)];
        for number in 1..=spec.hops {
            nodes.push(topology.add_node(format!("r{number}"), Role::Router));
        }
        nodes.push(topology.add_node("server", Role::Host));

        let mtu = interface_mtu(spec);
        let emulated = spec.hops as usize / 2;
        for (number, ends) in nodes.windows(2).enumerate() {
            let mut link = Wanted::plain(&topology, [ends[0], ends[1]]);
            // First, so that IPv6 is everywhere or nowhere.
            link.mtu = mtu;
            link.number(number);
            if number == emulated {
                link.spec = PathSpec { hops: 0, ..spec.clone() };
            } else {
                link.mtu = mtu.max(DEFAULT_MTU);
            }
            topology.add_link(link);
        }
        topology.add_routes();
        topology
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(spec: &str) -> Topology {
        Topology::of_path(&spec.parse().unwrap())
    }

    fn mtus(topology: &Topology) -> Vec<u32> {
        topology.links.iter().map(|link| link.mtu).collect()
    }

    #[test]
    fn a_path_without_hops_is_two_hosts_and_needs_no_routes() {
        let path = path("rate=10mbit,up.loss=1%");
        let client = path.node("client").unwrap();
        assert_eq!(path.nodes.len(), 2);
        assert_eq!(client.interfaces[0].name, "eth0");
        assert_eq!(client.interfaces[0].addresses[0].address.to_string(), "198.18.0.1");
        assert!(client.routes.is_empty());
        assert!(path.links[0].up.loss.is_some() && path.links[0].down.loss.is_none());
    }

    #[test]
    fn the_emulated_link_is_in_the_middle() {
        for (hops, emulated) in [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2)] {
            let path = path(&format!("rate=10mbit,hops={hops}"));
            let found: Vec<_> =
                (0..path.links.len()).filter(|link| !path.links[*link].is_plain()).collect();
            assert_eq!((path.links.len(), found), (hops + 1, vec![emulated]));
        }
    }

    #[test]
    fn a_host_behind_a_router_has_default_routes() {
        let path = path("hops=1");
        let routes = &path.node("client").unwrap().routes;
        let text = |route: &crate::lab::Route| {
            format!("{}/{} via {}", route.to.address, route.to.length, route.via)
        };
        let routes: Vec<_> = routes.iter().map(text).collect();
        assert_eq!(routes, ["0.0.0.0/0 via 198.18.0.2", "::/0 via 2001:2::2"]);
        assert!(path.node("r1").unwrap().routes.is_empty());
    }

    #[test]
    fn interfaces_hold_an_mtu_where_both_directions_have_it() {
        assert_eq!(mtus(&path("hops=2")), [1500, 1500, 1500]);
        assert_eq!(mtus(&path("hops=2,mtu=1400")), [1500, 1400, 1500]);
        assert_eq!(mtus(&path("hops=2,mtu=9000")), [9000, 9000, 9000]);
        assert_eq!(mtus(&path("mtu=1400:blackhole")), [1500]);
        assert_eq!(mtus(&path("mtu=9000:blackhole")), [9000]);
        assert_eq!(mtus(&path("up.mtu=1400")), [1500]);
        assert_eq!(mtus(&path("up.mtu=1300,down.mtu=1400")), [1400]);
    }

    #[test]
    fn an_mtu_that_interfaces_cannot_hold_is_the_links() {
        assert!(path("mtu=1400").links[0].is_plain());
        for spec in ["mtu=1400:blackhole", "up.mtu=1400", "up.mtu=1300,down.mtu=1400"] {
            assert!(!path(spec).links[0].is_plain(), "{spec}");
        }
    }

    #[test]
    fn a_path_too_narrow_for_ipv6_has_none() {
        let addresses = path("mtu=576,hops=2")
            .nodes
            .iter()
            .flat_map(|node| node.interfaces.clone())
            .flat_map(|interface| interface.addresses)
            .map(|prefix| prefix.address)
            .collect::<Vec<_>>();
        assert!(addresses.len() == 6 && addresses.iter().all(|address| address.is_ipv4()));
    }
}

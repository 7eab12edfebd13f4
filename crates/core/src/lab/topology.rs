//! The topology of a lab: its parts as plain data, how it is put together from nodes and links, the
//! addresses of links, and the routes.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::link::{LinkSpec, PathSpec};

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
        let routes = shortest_routes(self);
        for (node, routes) in self.nodes.iter_mut().zip(routes) {
            node.routes = routes;
        }
    }
}

// Routes.

/// The computed routes of all nodes, for one family after the other, as if no other were given.
///
/// The routes are the shortest ways, by hops, where only routers forward; of two as short the first
/// in the file. Each leads one hop nearer to its destination, as counted from the destination, so
/// no packet goes in circles.
pub(super) fn shortest_routes(topology: &Topology) -> Vec<Vec<Route>> {
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

// Networks, and the addresses that links get unless the file gives them others.

/// Most links: there are as many /24 networks in 198.18.0.0/15.
pub(super) const MAX_LINKS: usize = 512;

/// The two ends' addresses, of IPv4 and then of IPv6, in the network of that number, which is below
/// [`MAX_LINKS`].
pub(super) fn block(number: usize) -> [[Prefix; 2]; 2] {
    debug_assert!(number < MAX_LINKS);
    let [high, low] = (number as u16).to_be_bytes();
    let v4 = |host| Prefix { address: Ipv4Addr::new(198, 18 + high, low, host).into(), length: 24 };
    let v6 = |host| Prefix {
        address: Ipv6Addr::new(0x2001, 2, 0, number as u16, 0, 0, 0, host).into(),
        length: 64,
    };
    [[v4(1), v4(2)], [v6(1), v6(2)]]
}

impl Prefix {
    /// The network: the address with all bits behind the prefix cleared.
    pub fn network(self) -> Self {
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.length));
                Ipv4Addr::from_bits(address.to_bits() & mask.unwrap_or(0)).into()
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.length));
                Ipv6Addr::from_bits(address.to_bits() & mask.unwrap_or(0)).into()
            }
        };
        Self { address, ..self }
    }

    /// Whether the network has that address.
    pub fn contains(self, address: IpAddr) -> bool {
        let length = self.length;
        self.address.is_ipv4() == address.is_ipv4()
            && self.network() == Self { address, length }.network()
    }

    /// Whether the two networks have an address in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.network().address) || other.contains(self.network().address)
    }

    /// The prefix of one address.
    pub(crate) fn of_host(address: IpAddr) -> Self {
        let length = if address.is_ipv4() { 32 } else { 128 };
        Self { address, length }
    }

    /// The prefix of all addresses of a family.
    pub(super) fn default_of(is_ipv4: bool) -> Self {
        let address =
            if is_ipv4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        Self { address, length: 0 }
    }
}

impl FromStr for Prefix {
    type Err = &'static str;

    /// `192.0.2.0/24`, or an address alone.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const HINT: &str =
            "write a network such as 192.0.2.0/24 (up to /32, IPv6 /128), or an address";
        let Some((address, length)) = text.split_once('/') else {
            return text.parse().map(Self::of_host).map_err(|_| HINT);
        };
        let address: IpAddr = address.parse().map_err(|_| HINT)?;
        let length: u8 = length.parse().map_err(|_| HINT)?;
        let is_one = length <= Self::of_host(address).length;
        is_one.then_some(Self { address, length }).ok_or(HINT)
    }
}

// Nodes, links and routes that are added to a topology.

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
const DEFAULT_MTU: u32 = 1500;

/// RFC 8200, section 5.
const MIN_IPV6_MTU: u32 = 1280;

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

    fn prefix(address: &str, length: u8) -> Prefix {
        Prefix { address: address.parse().unwrap(), length }
    }

    #[test]
    fn a_links_number_is_in_its_addresses() {
        assert_eq!(block(0)[0][0], prefix("198.18.0.1", 24));
        assert_eq!(block(255)[0][1], prefix("198.18.255.2", 24));
        assert_eq!(block(256)[0][0], prefix("198.19.0.1", 24));
        assert_eq!(block(511)[1][1], prefix("2001:2:0:1ff::2", 64));
    }

    #[test]
    fn a_network_contains_its_own_addresses_and_no_others() {
        assert_eq!(prefix("198.18.5.7", 24).network(), prefix("198.18.5.0", 24));
        assert_eq!(prefix("198.18.5.7", 0).network(), prefix("0.0.0.0", 0));
        assert_eq!(prefix("198.18.5.7", 32).network(), prefix("198.18.5.7", 32));
        assert_eq!(prefix("2001:2::7", 0).network(), prefix("::", 0));
        assert!(prefix("198.18.5.6", 31).contains("198.18.5.7".parse().unwrap()));
        assert!(!prefix("198.18.5.6", 31).contains("198.18.5.8".parse().unwrap()));
        assert!(!prefix("0.0.0.0", 0).contains("::".parse().unwrap()));
        assert!(prefix("198.18.0.0", 15).overlaps(prefix("198.19.3.0", 24)));
        assert!(!prefix("198.18.2.0", 24).overlaps(prefix("198.18.3.0", 24)));
    }
}

//! `[[route]]`: what is added to the computed routes, or replaces them.

use std::net::IpAddr;

use super::super::topology::{most_specific_first, shortest_routes};
use super::Nodes;
use super::links::prefix;
use crate::lab::{Prefix, Route, Topology};
use crate::toml_reader::{At, Fault, Section};

pub(super) const KEYS: &str = "host to via mtu advmss quickack source";

/// Gives each node its routes.
pub(super) fn add(root: &Section<'_>, topology: &mut Topology, nodes: &Nodes) -> Result<(), Fault> {
    let computed = shortest_routes(topology);
    let mut given: Vec<Vec<Route>> = vec![Vec::new(); topology.nodes.len()];
    for section in root.sections("route", "[[route]]", KEYS)? {
        let host = nodes.find(section.required("host", "the host or router that has it")?)?;
        let reader = Reader { section: &section, topology, nodes, host, computed: &computed[host] };
        for route in reader.routes()? {
            if given[host].iter().any(|other| other.to == route.to) {
                let to = route.to.to_string();
                return Fault::repeated(section.offset, "routes of that host", &to);
            }
            given[host].push(route);
        }
    }
    for (index, (mut computed, given)) in computed.into_iter().zip(given).enumerate() {
        let keeps = !nodes.without_routes.contains(&index);
        computed.retain(|route| keeps && given.iter().all(|other| other.to != route.to));
        let mut routes = given;
        routes.append(&mut computed);
        most_specific_first(&mut routes);
        topology.nodes[index].routes = routes;
    }
    Ok(())
}

struct Reader<'a> {
    section: &'a Section<'a>,
    topology: &'a Topology,
    nodes: &'a Nodes,
    host: usize,
    /// The host's routes as they were without any in the file.
    computed: &'a [Route],
}

impl Reader<'_> {
    /// One route, or one for each family.
    fn routes(&self) -> Result<Vec<Route>, Fault> {
        let hint = "a network, a host's name or \"default\"";
        let to = self.section.required("to", hint)?;
        let source = self.source()?;
        let via = self.section.string("via")?;
        let mut routes = Vec::new();
        for to in self.destinations(to)? {
            let is_ipv4 = to.address.is_ipv4();
            if source.is_some_and(|source| source.is_ipv4() != is_ipv4) {
                continue;
            }
            let via = match via {
                Some(via) => self.neighbour(via, is_ipv4)?,
                None => self.computed_via(to),
            };
            if let Some(via) = via {
                routes.push(self.route(to, via, source)?);
            }
        }
        if routes.is_empty() {
            let what = format!("`{}` from `{}`", to.value, self.name());
            let hint = match via {
                Some(_) => "`via` and `source` have no address of the same family as `to`",
                None => "no computed route leads there; give `via`",
            };
            return Fault::contradiction(to.offset, what, hint);
        }
        Ok(routes)
    }

    fn route(&self, to: Prefix, via: IpAddr, source: Option<IpAddr>) -> Result<Route, Fault> {
        Ok(Route {
            source,
            // From what each IPv4 router passes (RFC 791) to what the length field can say.
            mtu: self.section.number("mtu", 68..=65_535)?,
            // RTAX_ADVMSS, net/ipv4/fib_semantics.c: more is cut to 65,495.
            advmss: self.section.number("advmss", 1..=65_495)?,
            quickack: self.section.boolean("quickack")?,
            ..Route::new(to, via)
        })
    }

    fn destinations(&self, to: At<&str>) -> Result<Vec<Prefix>, Fault> {
        if to.value == "default" {
            return Ok(vec![Prefix::default_of(true), Prefix::default_of(false)]);
        }
        if let Ok(address) = to.value.parse() {
            return Ok(vec![Prefix::of_host(address)]);
        }
        if let Some(prefix) = prefix(to.value) {
            if prefix.network() != prefix {
                return Fault::malformed(to, "network", "it has bits beyond its length");
            }
            return Ok(vec![prefix]);
        }
        if to.value.contains(['/', ':', '.']) {
            let hint = "write 198.18.9.0/24, a name or \"default\"";
            return Fault::malformed(to, "destination", hint);
        }
        let node = self.nodes.find(to)?;
        let what = format!("`{}`", to.value);
        if node == self.host {
            return Fault::contradiction(to.offset, what, "it is that host itself");
        }
        let Some(first) = self.topology.nodes[node].interfaces.first() else {
            return Fault::contradiction(to.offset, what, "it has no link, so no address");
        };
        let addresses = first.addresses.iter();
        Ok(addresses.map(|at| Prefix::of_host(at.address)).collect())
    }

    /// The address of a neighbour, who is given by name or by that address.
    fn neighbour(&self, via: At<&str>, is_ipv4: bool) -> Result<Option<IpAddr>, Fault> {
        if self.nodes.has(via.value) || !via.value.contains([':', '.']) {
            let node = self.nodes.find(via)?;
            let of_node = self.neighbours().filter(|(other, _)| *other == node);
            let addresses = Vec::from_iter(of_node.map(|(_, address)| address));
            if addresses.is_empty() {
                let what = format!("`{}`", via.value);
                return Fault::contradiction(via.offset, what, "no link joins the two");
            }
            return Ok(addresses.into_iter().find(|address| address.is_ipv4() == is_ipv4));
        }
        let address = address(via)?;
        if !self.neighbours().any(|(_, other)| other == address) {
            let what = format!("`{}`", via.value);
            return Fault::contradiction(via.offset, what, "no neighbour of that host has it");
        }
        Ok(Some(address).filter(|address| address.is_ipv4() == is_ipv4))
    }

    /// Where packets for `to` would go: to a neighbour itself, or by the most specific route.
    fn computed_via(&self, to: Prefix) -> Option<IpAddr> {
        let is_alone = to == Prefix::of_host(to.address);
        let neighbours = self.neighbours().map(|(_, address)| address);
        let beside = neighbours.filter(|address| is_alone && *address == to.address);
        let routes = self.computed.iter();
        let route =
            routes.filter(|route| route.to.length <= to.length && route.to.contains(to.address));
        beside.chain(route.map(|route| route.via)).next()
    }

    /// The neighbours and their addresses.
    fn neighbours(&self) -> impl Iterator<Item = (usize, IpAddr)> {
        let host = self.host;
        let links = self.topology.links.iter();
        let far_ends = links.filter_map(move |link| match link.ends {
            [(node, _), far] | [far, (node, _)] if node == host => Some(far),
            _ => None,
        });
        far_ends.flat_map(|(node, interface)| {
            let addresses = &self.topology.nodes[node].interfaces[interface].addresses;
            addresses.iter().map(move |prefix| (node, prefix.address))
        })
    }

    fn source(&self) -> Result<Option<IpAddr>, Fault> {
        let Some(text) = self.section.string("source")? else {
            return Ok(None);
        };
        let source = address(text)?;
        let interfaces = self.topology.nodes[self.host].interfaces.iter();
        let mut own = interfaces.flat_map(|interface| &interface.addresses);
        if own.any(|own| own.address == source) {
            Ok(Some(source))
        } else {
            let what = format!("`{}`", text.value);
            Fault::contradiction(text.offset, what, "that host does not have it")
        }
    }

    fn name(&self) -> &str {
        &self.topology.nodes[self.host].name
    }
}

/// An address without a length.
fn address(at: At<&str>) -> Result<IpAddr, Fault> {
    at.parsed("address", "write 198.18.5.1 or 2001:2::1", |_| true)
}

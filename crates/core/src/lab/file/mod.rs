//! Reads a topology from a TOML file. The format is at [`Topology::from_toml`].

mod addresses;
mod links;
mod nodes;
mod routes;

use std::collections::BTreeSet;

use super::topology::Topology;
use crate::toml_reader::{self, Fault, FileError, Section};
use links::Draft;
use nodes::Nodes;

impl Topology {
    /// Reads a topology from the text of a file.
    ///
    /// ```
    /// use linerate_core::lab::Topology;
    ///
    /// let topology = Topology::from_toml(r#"
    /// [host.alpha]
    /// sysctl = { "net.ipv4.tcp_rmem" = "4096 16384 65536" }
    /// [host.omega]
    /// [router.r1]
    ///
    /// [[link]]
    /// between = ["alpha:wan0", "r1"]
    /// spec = "rate=100mbit,rtt=10ms"
    /// [[link]]
    /// between = ["r1", "omega"]
    ///
    /// [[route]]
    /// host = "alpha"
    /// to = "omega"
    /// mtu = 1400
    /// "#)?;
    /// assert_eq!(topology.links.len(), 2);
    /// # Ok::<(), linerate_core::toml_reader::FileError>(())
    /// ```
    ///
    /// | table | key | value |
    /// |---|---|---|
    /// | `[host.NAME]`, `[router.NAME]` | | names begin with a letter and have up to 63 lower-case letters, digits and hyphens; up to 256 |
    /// | | `sysctl` | settings under `net.` that are a namespace's own |
    /// | | `routes` | `"computed"` (default), or `"given"`: none but those of `[[route]]` |
    /// | `[[link]]`, up to 512 | `between` | its ends, `["alpha", "r1"]`; `"alpha:wan0"` names the interface |
    /// | | `spec` | a [`PathSpec`](crate::link::PathSpec) without `hops`, `up` from the first end to the second; a `trace` lies beside the file |
    /// | | `name` | default: `alpha-r1` |
    /// | | `addresses` | one for each end, `198.18.5.1/24`, or a list of one of each family |
    /// | | `mtu` | of both interfaces, 1280 to 65535; default: 1500, or what the spec's `mtu` needs |
    /// | `[[chain]]` | `from`, `to` | its ends |
    /// | | `routers`, `prefix` | how many it makes between them, 0 to 254, and how they begin; default: `r`, so r1, r2, … |
    /// | | `spec`, `mtu` | of each of its links |
    /// | `[[star]]` | `centre` | the router in the middle; each link's `up` leads to it |
    /// | | `hosts`, or `prefix` and `count` | names of hosts, or how many it makes and how they begin |
    /// | | `spec`, `mtu` | of each of its links |
    /// | `[[mesh]]` | `hosts`, or `prefix` and `count` | as of `[[star]]`; each is joined to each |
    /// | | `spec`, `mtu` | of each of its links |
    /// | `[[route]]` | `host` | who has it; it takes the place of a computed one to the same destination |
    /// | | `to` | a network, an address, a name (then it is one route for each of its addresses) or `"default"` |
    /// | | `via` | a neighbour's name or address; default: as computed |
    /// | | `mtu`, `advmss`, `quickack`, `source` | see [`Route`](super::Route) |
    ///
    /// Links without addresses get 198.18.N.0/24 and 2001:2:0:N::/64, where N is their number in
    /// the file, from 0 (198.19.N−256.0/24 from 256 on), and the highest free N where that is
    /// taken. Routes are the shortest by hops; hosts do not forward. Several interfaces of a node
    /// are eth0, eth1, … in the order of the links.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong, with its line and column.
    pub fn from_toml(text: &str) -> Result<Self, FileError> {
        read(text).map_err(|fault| fault.located(text))
    }
}

fn read(text: &str) -> Result<Topology, Fault> {
    let table = toml_reader::parse(text)?;
    let root = Section::new("the file", 0, table.get_ref(), KEYS)?;
    let mut topology = Topology::default();
    let mut nodes = Nodes::read(&root, &mut topology)?;
    let mut drafts = links::read(&root, &mut topology, &mut nodes)?;
    name(&mut drafts)?;
    addresses::allocate(&mut drafts)?;
    for draft in drafts {
        add_link(&mut topology, draft)?;
    }
    routes::add(&root, &mut topology, &nodes)?;
    Ok(topology)
}

/// Gives each link a name of its own: as told, or by its ends, with a number if that is taken.
fn name(drafts: &mut [Draft<'_>]) -> Result<(), Fault> {
    let mut taken = BTreeSet::new();
    for draft in drafts.iter_mut() {
        if let Some(name) = draft.name {
            draft.wanted.name = name.value.to_owned();
            if !taken.insert(name.value.to_owned()) {
                return Fault::repeated(name.offset, "links", name.value);
            }
        }
    }
    for draft in drafts.iter_mut().filter(|draft| draft.name.is_none()) {
        let name = draft.wanted.name.clone();
        let mut numbered = (2..).map(|number| format!("{name}-{number}"));
        while !taken.insert(draft.wanted.name.clone()) {
            draft.wanted.name = numbered.next().expect("numbers do not end");
        }
    }
    Ok(())
}

fn add_link(topology: &mut Topology, draft: Draft<'_>) -> Result<(), Fault> {
    let nodes = draft.wanted.nodes;
    topology.add_link(draft.wanted);
    for node in nodes {
        let Some((last, others)) = topology.nodes[node].interfaces.split_last() else {
            continue;
        };
        if others.iter().any(|other| other.name == last.name) {
            return Fault::repeated(draft.offset, "interfaces of a host", &last.name);
        }
    }
    Ok(())
}

const KEYS: &str = "host router link chain star mesh route";

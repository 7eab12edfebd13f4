//! Reads a topology from a TOML file. The format is at [`Topology::from_toml`].

mod links;
mod routes;

use std::collections::{BTreeMap, BTreeSet};

use toml::de::DeValue;

use super::topology::{Role, Topology};
use crate::toml_reader::{self, At, Fault, FileError, Section, Value, wrong_type};
use crate::units::{shortened, suggestion};
use links::Draft;

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
    links::allocate(&mut drafts)?;
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

/// The nodes so far: their names, and those without computed routes.
#[derive(Default)]
struct Nodes {
    by_name: BTreeMap<String, usize>,
    without_routes: BTreeSet<usize>,
}

impl Nodes {
    /// Reads the nodes that have a table, in the order of the file.
    fn read(root: &Section<'_>, topology: &mut Topology) -> Result<Self, Fault> {
        let hosts = root.named_sections("host", "[host.NAME]", NODE_KEYS)?;
        let routers = root.named_sections("router", "[router.NAME]", NODE_KEYS)?;
        let with = |role| move |(name, section)| (role, name, section);
        let mut tables: Vec<_> = (hosts.into_iter().map(with(Role::Host)))
            .chain(routers.into_iter().map(with(Role::Router)))
            .collect();
        tables.sort_by_key(|(_, name, _): &(Role, At<&str>, Section)| name.offset);
        let mut nodes = Self::default();
        for (role, name, section) in tables {
            let node = nodes.add(topology, name, role)?;
            if let Some(value) = section.value("sysctl") {
                read_sysctls("", value, &mut topology.nodes[node].sysctls)?;
            }
            let ways = [("computed", false), ("given", true)];
            if section.choice("routes", "kind of routes", &ways)? == Some(true) {
                nodes.without_routes.insert(node);
            }
        }
        Ok(nodes)
    }

    /// Adds a node.
    fn add(&mut self, topology: &mut Topology, name: At<&str>, role: Role) -> Result<usize, Fault> {
        check_name(name, "name")?;
        if topology.nodes.len() == MAX_NODES {
            let problem = format!("a lab has at most {MAX_NODES} hosts and routers");
            return Err(Fault::new(name.offset, problem));
        }
        let node = topology.add_node(name.value, role);
        match self.by_name.insert(name.value.to_owned(), node) {
            None => Ok(node),
            Some(_) => Fault::repeated(name.offset, "hosts or routers", name.value),
        }
    }

    /// The node of that name.
    fn find(&self, name: At<&str>) -> Result<usize, Fault> {
        if let Some(node) = self.by_name.get(name.value) {
            return Ok(*node);
        }
        let text = shortened(name.value);
        let alike = suggestion(name.value, self.by_name.keys());
        let hint = alike.unwrap_or_else(|| format!("[host.{text}] makes one"));
        let problem = format!("no host or router has the name `{text}`; {hint}");
        Err(Fault::new(name.offset, problem))
    }

    /// Whether there is a node of that name.
    fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }
}

/// Refuses what is not a name of a host or a link. Names begin with a letter: `getaddrinfo` takes
/// `127` and `0x7f` for addresses.
fn check_name(name: At<&str>, what: &'static str) -> Result<(), Fault> {
    let text = name.value;
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_name = (1..=63).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.chars().all(is_letter);
    if !is_name {
        let hint =
            "a name has 1 to 63 lower-case letters, digits and hyphens, and begins with a letter";
        return Fault::malformed(name, what, hint);
    }
    if text == "localhost" || text == "default" {
        return Fault::malformed(name, what, "that word has a meaning of its own");
    }
    Ok(())
}

/// Settings are written `"net.ipv4.tcp_sack" = 0` or, as dots make tables in TOML,
/// `net.ipv4.tcp_sack = 0`.
fn read_sysctls(
    prefix: &str,
    value: &Value<'_>,
    sysctls: &mut BTreeMap<String, String>,
) -> Result<(), Fault> {
    let DeValue::Table(table) = value.get_ref() else {
        let hint = "a table such as { \"net.ipv4.tcp_sack\" = 0 }";
        return Err(wrong_type("sysctl", value, hint));
    };
    for (name, value) in table.iter() {
        let key = format!("{prefix}{}", name.get_ref());
        let offset = name.span().start;
        let text = match value.get_ref() {
            DeValue::Table(_) => {
                read_sysctls(&format!("{key}."), value, sysctls)?;
                continue;
            }
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.as_str().to_owned(),
            _ => {
                let hint = "a text in quotes or a whole number";
                return Err(wrong_type(&key, value, hint));
            }
        };
        if let Some(hint) = refusal_of_key(&key) {
            let what = format!("`{}` cannot be set for a host", shortened(&key));
            return Fault::contradiction(offset, what, hint);
        }
        let is_strange = |c: char| c.is_control() && c != '\t';
        if !(1..=256).contains(&text.len()) || text.contains(is_strange) {
            let at = At::new(value.span().start, text.as_str());
            return Fault::malformed(at, "setting", "it has 1 to 256 characters on one line");
        }
        if sysctls.insert(key.clone(), text).is_some() {
            return Fault::repeated(offset, "settings", &key);
        }
    }
    Ok(())
}

/// Why a namespace has no such setting of its own; `None` if it has.
fn refusal_of_key(key: &str) -> Option<&'static str> {
    let is_path = key.split('.').all(|part| {
        let mut bytes = part.bytes();
        !part.is_empty() && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    });
    if !is_path {
        return Some("a key has letters, digits, `_` and `-` between single dots");
    }
    let Some(key) = key.strip_prefix("net.") else {
        return Some("only the settings under `net.` are a host's own");
    };
    match key.strip_prefix("core.") {
        Some(name) if !OWN_CORE_KEYS.contains(&name) && !name.starts_with("xfrm_") => Some(
            "of `net.core.` only somaxconn, optmem_max, txrehash, tstamp_allow_data and xfrm_* are \
             per namespace",
        ),
        _ => None,
    }
}

const NODE_KEYS: &str = "sysctl routes";

/// Enough for each address of a /24, and more than one machine runs well.
const MAX_NODES: usize = 256;

/// `netns_core_table` in net/core/sysctl_net_core.c; all others are the machine's.
const OWN_CORE_KEYS: &[&str] = &["somaxconn", "optmem_max", "txrehash", "tstamp_allow_data"];

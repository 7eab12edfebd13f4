//! `[host.NAME]` and `[router.NAME]`.

use std::collections::{BTreeMap, BTreeSet};

use toml::de::DeValue;

use crate::lab::{Role, Topology};
use crate::toml_reader::{At, Fault, Section, Value, wrong_type};
use crate::units::{shortened, suggestion};

/// The nodes so far: their names, and those without computed routes.
#[derive(Default)]
pub(super) struct Nodes {
    by_name: BTreeMap<String, usize>,
    pub(super) without_routes: BTreeSet<usize>,
}

impl Nodes {
    /// Reads the nodes that have a table, in the order of the file.
    pub(super) fn read(root: &Section<'_>, topology: &mut Topology) -> Result<Self, Fault> {
        let hosts = root.named_sections("host", "[host.NAME]", KEYS)?;
        let routers = root.named_sections("router", "[router.NAME]", KEYS)?;
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
            match section.string("routes")?.map(|at| (at.value, at)) {
                None | Some(("computed", _)) => {}
                Some(("given", _)) => {
                    nodes.without_routes.insert(node);
                }
                Some((_, at)) => {
                    let hint = "write \"computed\" or \"given\"";
                    return Fault::malformed(at, "kind of routes", hint);
                }
            }
        }
        Ok(nodes)
    }

    /// Adds a node.
    pub(super) fn add(
        &mut self,
        topology: &mut Topology,
        name: At<&str>,
        role: Role,
    ) -> Result<usize, Fault> {
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
    pub(super) fn find(&self, name: At<&str>) -> Result<usize, Fault> {
        if let Some(node) = self.by_name.get(name.value) {
            return Ok(*node);
        }
        let text = shortened(name.value);
        let hint = suggestion(name.value, self.by_name.keys());
        let hint = hint.unwrap_or_else(|| format!("[host.{text}] makes one"));
        let problem = format!("no host or router has the name `{text}`; {hint}");
        Err(Fault::new(name.offset, problem))
    }

    /// Whether there is a node of that name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }
}

/// Refuses what is not a name of a host or a link. Names begin with a letter: `getaddrinfo` takes
/// `127` and `0x7f` for addresses.
pub(super) fn check_name(name: At<&str>, what: &'static str) -> Result<(), Fault> {
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
            let at = At {
                offset: value.span().start,
                value: text.as_str(),
            };
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

const KEYS: &str = "sysctl routes";

/// Enough for each address of a /24, and more than one machine runs well.
const MAX_NODES: usize = 256;

/// `netns_core_table` in net/core/sysctl_net_core.c; all others are the machine's.
const OWN_CORE_KEYS: &[&str] = &["somaxconn", "optmem_max", "txrehash", "tstamp_allow_data"];

//! `[[link]]`, and what makes several: `[[chain]]`, `[[star]]`, `[[mesh]]`.

use super::nodes::{Nodes, check_name};
use crate::lab::address::MAX_LINKS;
use crate::lab::assemble::{Wanted, interface_mtu};
use crate::lab::{Role, Topology};
use crate::link::PathSpec;
use crate::toml_reader::{At, Fault, Section, Value};

/// A link as the file describes it.
pub(super) struct Draft<'a> {
    /// Place of its table in the file.
    pub(super) offset: usize,
    pub(super) wanted: Wanted,
    /// Its name, if the file gives one.
    pub(super) name: Option<At<&'a str>>,
    /// Its addresses, if the file gives them.
    pub(super) addresses: Option<&'a Value<'a>>,
}

/// Reads all links, in the order of the file. Nodes that the tables make come after those with a
/// table of their own.
pub(super) fn read<'a>(
    root: &Section<'a>,
    topology: &mut Topology,
    nodes: &mut Nodes,
) -> Result<Vec<Draft<'a>>, Fault> {
    let mut tables = Vec::new();
    for (kind, place, keys) in KINDS {
        let sections = root.sections(kind, place, keys)?;
        tables.extend(sections.into_iter().map(|section| (section, kind)));
    }
    tables.sort_by_key(|(section, _)| section.offset);
    let mut drafts = Vec::new();
    for (section, kind) in tables {
        let mut maker = Maker {
            section: &section,
            topology,
            nodes,
            drafts: &mut drafts,
        };
        match kind {
            "chain" => maker.chain()?,
            "star" => maker.star()?,
            "mesh" => maker.mesh()?,
            _ => maker.link()?,
        }
    }
    Ok(drafts)
}

/// The tables that make links: key, place and keys.
const KINDS: [(&str, &str, &str); 4] = [
    ("link", "[[link]]", "between spec name addresses mtu"),
    ("chain", "[[chain]]", "from to routers prefix spec mtu"),
    ("star", "[[star]]", "centre hosts prefix count spec mtu"),
    ("mesh", "[[mesh]]", "hosts prefix count spec mtu"),
];

struct Maker<'a, 'm> {
    section: &'m Section<'a>,
    topology: &'m mut Topology,
    nodes: &'m mut Nodes,
    drafts: &'m mut Vec<Draft<'a>>,
}

impl<'a> Maker<'a, '_> {
    fn link(&mut self) -> Result<(), Fault> {
        let hint = "the two ends, such as [\"alpha\", \"r1\"]";
        let ends = self.section.strings("between")?;
        let ends = ends.ok_or_else(|| self.section.missing("between", hint))?;
        let offset = self.offset_of("between");
        let [a, b] = ends[..] else {
            return Fault::contradiction(offset, "`between`", "a link has two ends");
        };
        let [(a, of_a), (b, of_b)] = [self.end(a)?, self.end(b)?];
        let name = self.section.string("name")?;
        if let Some(name) = name {
            check_name(name, "name")?;
        }
        let addresses = self.section.value("addresses");
        let draft = self.add(offset, [a, b])?;
        draft.wanted.interfaces = [of_a, of_b];
        draft.name = name;
        draft.addresses = addresses;
        Ok(())
    }

    fn chain(&mut self) -> Result<(), Fault> {
        let from = self.section.required("from", "the host at its beginning")?;
        let to = self.section.required("to", "the host at its end")?;
        let [from, to] = [self.nodes.find(from)?, self.nodes.find(to)?];
        let routers = self.section.number("routers", 0..=254)?;
        let routers = routers.ok_or_else(|| self.section.missing("routers", "how many"))?;
        let prefix = self.section.string("prefix")?.map_or("r", |at| at.value);
        let mut chain = vec![from];
        for number in 1..=routers.value {
            chain.push(self.make(prefix, number, Role::Router)?);
        }
        chain.push(to);
        for ends in chain.windows(2) {
            self.add(self.section.offset, [ends[0], ends[1]])?;
        }
        Ok(())
    }

    fn star(&mut self) -> Result<(), Fault> {
        let hint = "the router in its middle";
        let centre = self.section.required("centre", hint)?;
        let centre = self.nodes.find(centre)?;
        for host in self.hosts()? {
            self.add(self.section.offset, [host, centre])?;
        }
        Ok(())
    }

    fn mesh(&mut self) -> Result<(), Fault> {
        let hosts = self.hosts()?;
        for (position, from) in hosts.iter().enumerate() {
            for to in &hosts[position + 1..] {
                self.add(self.section.offset, [*from, *to])?;
            }
        }
        Ok(())
    }

    /// `hosts = ["a", "b"]`, or else those that `prefix` and `count` make.
    fn hosts(&mut self) -> Result<Vec<usize>, Fault> {
        let prefix = self.section.string("prefix")?;
        let count = self.section.number("count", 1..=256)?;
        let hint = "either `hosts`, a list of names, or `prefix` and `count`";
        match (self.section.strings("hosts")?, prefix, count) {
            (Some(names), None, None) => names.into_iter().map(|at| self.nodes.find(at)).collect(),
            (None, Some(prefix), Some(count)) => (1..=count.value)
                .map(|number| self.make(prefix.value, number, Role::Host))
                .collect(),
            (None, _, _) => Err(self.section.missing("hosts", hint)),
            (Some(_), _, _) => Fault::contradiction(self.offset_of("hosts"), "`hosts`", hint),
        }
    }

    /// A new node, `prefix` and `number` its name.
    fn make(&mut self, prefix: &str, number: u32, role: Role) -> Result<usize, Fault> {
        let name = format!("{prefix}{number}");
        let offset = self.offset_of("prefix");
        if self.nodes.has(&name) {
            let hint = "there is a host or router of that name; give another `prefix`";
            return Fault::contradiction(offset, format!("`{name}`"), hint);
        }
        let value = name.as_str();
        self.nodes.add(self.topology, At { offset, value }, role)
    }

    /// A link with the spec and MTU of its table.
    fn add(&mut self, offset: usize, ends: [usize; 2]) -> Result<&mut Draft<'a>, Fault> {
        if ends[0] == ends[1] {
            let name = format!("`{}`", self.topology.nodes[ends[0]].name);
            return Fault::contradiction(offset, name, "a link joins two different ones");
        }
        if self.drafts.len() == MAX_LINKS {
            let problem = format!("a lab has at most {MAX_LINKS} links");
            return Err(Fault::new(offset, problem));
        }
        let mut wanted = Wanted::plain(self.topology, ends);
        wanted.spec = self.spec()?;
        let mtu = self.section.number("mtu", 1280..=65_535)?;
        wanted.mtu = mtu.map_or_else(|| interface_mtu(&wanted.spec), |mtu| mtu.value);
        self.drafts.push(Draft {
            offset,
            wanted,
            name: None,
            addresses: None,
        });
        Ok(self.drafts.last_mut().expect("one was pushed"))
    }

    fn spec(&self) -> Result<PathSpec, Fault> {
        let Some(text) = self.section.string("spec")? else {
            return Ok(PathSpec::default());
        };
        let spec: PathSpec = (text.value.parse())
            .map_err(|error| Fault::new(text.offset, format!("in the spec, {error}")))?;
        if spec.hops > 0 {
            let hint = "a link has none; [[chain]] makes routers";
            return Fault::contradiction(text.offset, "`hops`", hint);
        }
        Ok(spec)
    }

    /// `alpha`, or `alpha:wan0`: the node, and its interface's name.
    fn end(&self, at: At<&str>) -> Result<(usize, Option<String>), Fault> {
        let (node, interface) = match at.value.split_once(':') {
            None => (at, None),
            Some((node, interface)) => (at.map(|_| node), Some(interface)),
        };
        let node = self.nodes.find(node)?;
        match interface {
            Some(name) if !is_interface_name(name) => {
                let hint =
                    "it has 1 to 15 letters, digits, `_` and `-`, and is not lo, all or default";
                Fault::malformed(at.map(|_| name), "name of an interface", hint)
            }
            name => Ok((node, name.map(str::to_owned))),
        }
    }

    fn offset_of(&self, key: &str) -> usize {
        let value = self.section.value(key);
        value.map_or(self.section.offset, |value| value.span().start)
    }
}

/// `all` and `default` stand for others in the kernel's settings.
fn is_interface_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=15).contains(&name.len())
        && name.chars().all(is_allowed)
        && !["lo", "all", "default"].contains(&name)
}

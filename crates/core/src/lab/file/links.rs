//! `[[link]]`, and what makes several: `[[chain]]`, `[[star]]`, `[[mesh]]`; and the addresses of
//! links: those that the file gives, and free ones for the others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use toml::de::DeValue;

use super::super::topology::{MAX_LINKS, Wanted, block, interface_mtu};
use super::{Nodes, check_name};
use crate::lab::{Prefix, Role, Topology};
use crate::link::PathSpec;
use crate::toml_reader::{At, Fault, Section, Value, string, wrong_type};

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
        let mut maker = Maker { section: &section, topology, nodes, drafts: &mut drafts };
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
        let between = self.section.strings("between")?;
        let ends = between.ok_or_else(|| self.section.missing("between", hint))?;
        let offset = self.section.offset_of("between");
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
        let count = self.section.number("routers", 0..=254)?;
        let routers = count.ok_or_else(|| self.section.missing("routers", "how many"))?;
        let prefix = self.section.string("prefix")?.map_or("r", |at| at.value);
        let mut chain = vec![from];
        for number in 1..=routers {
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
            (None, Some(prefix), Some(count)) => {
                (1..=count).map(|number| self.make(prefix.value, number, Role::Host)).collect()
            }
            (None, _, _) => Err(self.section.missing("hosts", hint)),
            (Some(_), _, _) => {
                Fault::contradiction(self.section.offset_of("hosts"), "`hosts`", hint)
            }
        }
    }

    /// A new node, `prefix` and `number` its name.
    fn make(&mut self, prefix: &str, number: u32, role: Role) -> Result<usize, Fault> {
        let name = format!("{prefix}{number}");
        let offset = self.section.offset_of("prefix");
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
        wanted.mtu = mtu.unwrap_or_else(|| interface_mtu(&wanted.spec));
        self.drafts.push(Draft { offset, wanted, name: None, addresses: None });
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
}

/// `all` and `default` stand for others in the kernel's settings.
fn is_interface_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=15).contains(&name.len())
        && name.chars().all(is_allowed)
        && !["lo", "all", "default"].contains(&name)
}

/// Gives each link its addresses. A link has its own number in them, unless one with addresses from
/// the file is in the way: then the highest number that is free.
pub(super) fn allocate(drafts: &mut [Draft<'_>]) -> Result<(), Fault> {
    let taken = take_explicit(drafts)?;
    let is_free = |number: &usize| {
        let networks = block(*number).map(|ends| ends[0].network());
        let mut others = taken.iter();
        !others.any(|(other, _)| networks.iter().any(|network| network.overlaps(*other)))
    };
    let is_wanted = Vec::from_iter(drafts.iter().map(|draft| draft.addresses.is_none()));
    let is_spare = |number: &usize| is_wanted.get(*number) != Some(&true) && is_free(number);
    let mut spare = (0..MAX_LINKS).rev().filter(is_spare);
    for (number, draft) in drafts.iter_mut().enumerate() {
        if draft.addresses.is_some() {
            continue;
        }
        match Some(number).filter(is_free).or_else(|| spare.next()) {
            Some(number) => draft.wanted.number(number),
            None => {
                let hint = "the given ones leave none free in 198.18.0.0/15 and 2001:2::/48";
                return Fault::contradiction(draft.offset, "no addresses are left", hint);
            }
        }
    }
    Ok(())
}

/// Gives links the addresses that the file has for them; the networks that are taken then, and by
/// which link.
fn take_explicit(drafts: &mut [Draft<'_>]) -> Result<Vec<(Prefix, usize)>, Fault> {
    let mut taken: Vec<(Prefix, usize)> = Vec::new();
    for link in 0..drafts.len() {
        let Some(value) = drafts[link].addresses else {
            continue;
        };
        let addresses = explicit(value, drafts[link].wanted.mtu)?;
        for network in addresses[0].iter().map(|prefix| prefix.network()) {
            if let Some((other, owner)) = taken.iter().find(|(other, _)| network.overlaps(*other)) {
                let link = &drafts[*owner].wanted.name;
                let problem = format!("{network} overlaps with {other} of the link `{link}`");
                return Err(Fault::new(value.span().start, problem));
            }
            taken.push((network, link));
        }
        drafts[link].wanted.addresses = addresses;
    }
    Ok(taken)
}

/// `["198.18.5.1/24", "198.18.5.2/24"]`, each of them one address or a list with one of each
/// family.
fn explicit(value: &Value<'_>, mtu: u32) -> Result<[Vec<Prefix>; 2], Fault> {
    let offset = value.span().start;
    let ends: Vec<_> = match value.get_ref() {
        DeValue::Array(ends) => ends.iter().map(end).collect::<Result<_, _>>()?,
        _ => {
            let hint = "a list of two, such as [\"198.18.5.1/24\", \"198.18.5.2/24\"]";
            return Err(wrong_type("addresses", value, hint));
        }
    };
    let [a, b] = <[_; 2]>::try_from(ends)
        .or_else(|_| Fault::contradiction(offset, "`addresses`", "there are two ends"))?;
    if a.is_empty() || a.len() != b.len() {
        let hint = "both ends need the same families";
        return Fault::contradiction(offset, "`addresses`", hint);
    }
    for (of_a, of_b) in a.iter().zip(&b) {
        if of_a.network() != of_b.network() || of_a == of_b {
            let text = format!("`{}` and `{}`", of_a.address, of_b.address);
            let hint = "the ends have different addresses in one network";
            return Fault::contradiction(offset, text, hint);
        }
        if of_a.address.is_ipv6() && mtu < 1280 {
            let hint = "IPv6 needs an MTU of 1280";
            return Fault::contradiction(offset, "`addresses`", hint);
        }
    }
    Ok([a, b])
}

/// One end's addresses, IPv4 first.
fn end(value: &Value<'_>) -> Result<Vec<Prefix>, Fault> {
    let mut prefixes = match value.get_ref() {
        DeValue::Array(items) => items.iter().map(one).collect::<Result<_, _>>()?,
        _ => vec![one(value)?],
    };
    prefixes.sort_by_key(|prefix| prefix.address.is_ipv6());
    let mut pairs = prefixes.windows(2);
    if pairs.any(|two| two[0].address.is_ipv4() == two[1].address.is_ipv4()) {
        let hint = "an end has one of each family";
        return Fault::contradiction(value.span().start, "two addresses", hint);
    }
    Ok(prefixes)
}

fn one(value: &Value<'_>) -> Result<Prefix, Fault> {
    let text = string("addresses", value)?;
    let Some(prefix) = prefix(text.value) else {
        return Fault::malformed(text, "address", HINT);
    };
    let (address, length, longest) = match prefix.address {
        IpAddr::V4(_) => (Ipv4Addr::new(198, 18, 0, 0).into(), 15, 31),
        IpAddr::V6(_) => (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0).into(), 48, 127),
    };
    let range = Prefix { address, length };
    if !range.contains(prefix.address) || !(length..=longest).contains(&prefix.length) {
        let hint = "a lab's are networks within 198.18.0.0/15 and 2001:2::/48 with room for two";
        return Fault::malformed(text, "address of a lab", hint);
    }
    if is_reserved(prefix) {
        let hint = "the first address of a network is its own, and IPv4's last one is for all";
        return Fault::malformed(text, "address of a host", hint);
    }
    Ok(prefix)
}

/// Subnet-router anycast, RFC 4291, section 2.6.1, and IPv4's broadcast; networks of two addresses
/// have neither (RFC 3021, RFC 6164).
fn is_reserved(prefix: Prefix) -> bool {
    let first = prefix.network().address;
    match (prefix.address, first) {
        (IpAddr::V4(address), IpAddr::V4(first)) if prefix.length < 31 => {
            let last = first.to_bits() | (u32::MAX >> prefix.length);
            address == first || address.to_bits() == last
        }
        (IpAddr::V6(address), IpAddr::V6(first)) if prefix.length < 127 => address == first,
        _ => false,
    }
}

/// `198.18.5.1/24`.
pub(super) fn prefix(text: &str) -> Option<Prefix> {
    text.contains('/').then(|| text.parse().ok()).flatten()
}

const HINT: &str =
    "write [\"198.18.5.1/24\", \"198.18.5.2/24\"], or a list with IPv4 and IPv6 for each";

//! The interpreter against a matcher that shares nothing with it: it knows a packet from its parts,
//! not from its bytes, and asks a file's conditions as they are written, not the rules made of
//! them.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::IpAddr;

use crate::common::{self, Dice, Extension, Ip, Recipe, Wishes};
use linerate_qos::interpret::{Decision, State, interpret, rewritten};
use linerate_qos::packet::{Fields, LinkType, Metadata};
use linerate_qos::policy::{
    AddressRange, Conditions, Family, Filter, MarkRange, PolicyFile, Range,
};
use linerate_qos::rules::{Bindings, RuleSet};

/// A packet as its maker knows it.
struct Facts<'a> {
    recipe: &'a Recipe,
    metadata: Metadata,
    bindings: &'a Bindings,
    /// Protocol and whether the transport header is there, behind options and extension headers.
    above: Option<(u8, bool)>,
}

impl<'a> Facts<'a> {
    fn of(recipe: &'a Recipe, bindings: &'a Bindings) -> Self {
        let above = recipe.ip.as_ref().and_then(|ip| match ip.source {
            IpAddr::V4(_) => Some((ip.protocol, ip.fragment.is_none_or(|part| part.0 == 0))),
            IpAddr::V6(_) => above_ipv6(ip),
        });
        Self { recipe, metadata: recipe.metadata(), bindings, above }
    }

    fn family(&self) -> Family {
        match &self.recipe.ip {
            Some(ip) if ip.source.is_ipv6() => Family::V6,
            Some(_) => Family::V4,
            None => Family::Other,
        }
    }

    fn vlan(&self) -> Option<u16> {
        let inside = self.recipe.tags.first().map(|(_, tci)| *tci);
        let tci = self.metadata.vlan_tci.or(inside)?;
        (self.recipe.link == LinkType::Ethernet).then_some(tci & 0xfff)
    }

    fn ethertype(&self) -> u16 {
        match self.recipe.tags.get(2) {
            Some((third, _)) => *third,
            None => self.recipe.family_ethertype(),
        }
    }

    /// A header of one of these protocols, if the packet has it.
    fn transport(&self, protocols: &[u8]) -> Option<&Ip> {
        let (protocol, true) = self.above? else {
            return None;
        };
        self.ip().filter(|_| protocols.contains(&protocol))
    }

    /// Behind three tags nobody sees that it is IP.
    fn ip(&self) -> Option<&Ip> {
        self.recipe.ip.as_ref().filter(|_| self.recipe.tags.len() < 3)
    }

    fn ports(&self) -> Option<(u16, u16)> {
        self.transport(&[6, 17, 33, 132, 136]).map(|ip| ip.ports)
    }

    fn icmp(&self) -> Option<(u8, u8)> {
        let number = if self.family() == Family::V6 { 58 } else { 1 };
        self.transport(&[number]).map(|ip| ip.icmp)
    }

    fn length(&self) -> Option<u32> {
        let ip = self.ip()?;
        match (self.metadata.gso_size, &ip.claimed_length) {
            (0, Some(claimed)) if ip.source.is_ipv6() => Some(u32::from(*claimed).max(40)),
            (0, Some(claimed)) => Some(u32::from(*claimed)),
            (0, None) => Some((ip.header_bytes() + ip.payload) as u32),
            (size, _) => {
                let ip = self.transport(&[6, 17])?;
                Some(ip.header_bytes() as u32 + size)
            }
        }
    }

    fn is_in(&self, filter: &Filter) -> bool {
        let asked = &filter.conditions;
        let family = match self.recipe.tags.len() {
            3.. => Family::Other,
            _ => self.family(),
        };
        (asked.family.is_empty() || asked.family.contains(&family))
            && any(&asked.vlan, self.vlan())
            && any(&asked.ethertype, Some(self.ethertype()))
            && self.is_between(asked)
            && self.has_transport(asked)
            && any(&asked.protocol, self.ip().and(self.above).map(|(protocol, _)| protocol))
            && any(&asked.length, self.length())
            && self.is_owned(asked)
    }

    fn is_between(&self, asked: &Conditions) -> bool {
        let ends = self.ip().map(|ip| (ip.source, ip.destination));
        let (source, destination) = (ends.map(|ends| ends.0), ends.map(|ends| ends.1));
        let class = self.ip().map(|ip| ip.traffic_class);
        let label = self.ip().filter(|ip| ip.source.is_ipv6()).map(|ip| ip.flow_label);
        any_address(&asked.source, source)
            && any_address(&asked.destination, destination)
            && (any_address(&asked.address, source) || any_address(&asked.address, destination))
            && any(&asked.dscp, class.map(|class| class / 4))
            && any(&asked.ecn, class.map(|class| class % 4))
            && any(&asked.flow_label, label)
    }

    fn has_transport(&self, asked: &Conditions) -> bool {
        let (ports, icmp) = (self.ports(), self.icmp());
        let (source, destination) = (ports.map(|ports| ports.0), ports.map(|ports| ports.1));
        let flags = self.transport(&[6]).map(|ip| ip.flags);
        let passes =
            |flags: u8| (asked.tcp_flags.iter()).any(|test| flags & test.mask == test.value);
        any(&asked.source_port, source)
            && any(&asked.destination_port, destination)
            && (any(&asked.port, source) || any(&asked.port, destination))
            && any(&asked.icmp_type, icmp.map(|icmp| icmp.0))
            && any(&asked.icmp_code, icmp.map(|icmp| icmp.1))
            && (asked.tcp_flags.is_empty() || flags.is_some_and(passes))
    }

    fn is_owned(&self, asked: &Conditions) -> bool {
        let uid = self.metadata.uid.filter(|uid| *uid != 65_534);
        let in_group = |path| {
            let group = self.bindings.cgroups[path];
            self.metadata.cgroups.contains(&group.id)
        };
        let is_marked = |mark: &MarkRange| mark.range.contains(self.metadata.mark & mark.mask);
        let is_framed =
            self.recipe.link == LinkType::Ethernet && self.recipe.cut.is_none_or(|cut| cut >= 14);
        let macs = is_framed.then_some(self.recipe.macs);
        let by = |interface| self.metadata.incoming == self.bindings.interfaces[interface];
        any(&asked.uid, uid)
            && (asked.cgroup.is_empty() || asked.cgroup.iter().any(in_group))
            && (asked.mark.is_empty() || asked.mark.iter().any(is_marked))
            && any(&asked.destination_mac, macs.map(|[destination, _]| destination))
            && any(&asked.source_mac, macs.map(|[_, source]| source))
            && (asked.incoming.is_empty() || asked.incoming.iter().any(by))
    }
}

fn above_ipv6(ip: &Ip) -> Option<(u8, bool)> {
    for (walked, extension) in ip.extensions.iter().enumerate() {
        match extension {
            _ if walked == 8 => return None,
            Extension::Fragment { offset: 1.., .. } => {
                let is_last = walked + 1 == ip.extensions.len();
                return is_last.then_some((ip.protocol, false));
            }
            _ => {}
        }
    }
    Some((ip.protocol, true))
}

fn any<T: PartialOrd + Copy>(list: &[Range<T>], value: Option<T>) -> bool {
    let holds = |value: T| list.iter().any(|range| range.first <= value && value <= range.last);
    list.is_empty() || value.is_some_and(holds)
}

fn any_address(list: &[AddressRange], value: Option<IpAddr>) -> bool {
    let holds = |value: IpAddr| {
        list.iter().any(|range| {
            range.first.is_ipv4() == value.is_ipv4() && range.first <= value && value <= range.last
        })
    };
    list.is_empty() || value.is_some_and(holds)
}

/// The filter that takes a packet, by the words of the file.
fn naive(file: &PolicyFile, facts: &Facts<'_>) -> Option<String> {
    let taking = file.filters.iter().filter(|filter| facts.is_in(filter));
    // `min_by_key` gives the first of equals.
    taking.min_by_key(|filter| filter.priority).map(|filter| filter.name.clone())
}

#[test]
fn interpreter_takes_what_the_written_conditions_take() {
    let mut dice = Dice::new(6);
    let wishes =
        Wishes { filters: 0, owners: true, tags_beside: true, meters: false, track: false };
    let (mut taken, mut filters_hit) = (0, 0);
    for round in 0..1000 {
        let filters = [1, 2, 3, 5, 8, 13, 21, 34, 60][round % 9];
        let file = common::file(&mut dice, &Wishes { filters, ..wishes });
        let bindings = Bindings::stand_in(&file);
        let rules = RuleSet::new(&file, &file.adapters[0], &bindings).unwrap();
        let mut hit = vec![false; filters];
        for _ in 0..100 {
            let recipe = common::packet(&mut dice, &file, &wishes);
            let recipe = Recipe { cut: None, ..recipe };
            let facts = Facts::of(&recipe, &bindings);
            let fields = Fields::new(&recipe.frame(), recipe.link, &facts.metadata);
            let decision = interpret(&rules, &fields, &facts.metadata, 1, &mut State::default());
            let filter = decision.rule.map(|rule| rules.family(fields.family())[rule].filter);
            let name = filter.map(|filter| rules.filters[filter].0.clone());
            assert_eq!(name, naive(&file, &facts), "{recipe:#?}\n{file:#?}");
            taken += usize::from(filter.is_some());
            filter.into_iter().for_each(|filter| hit[filter] = true);
        }
        filters_hit += hit.iter().filter(|hit| **hit).count();
    }
    // The generators are worth something only if most packets are taken, by many filters.
    assert!((40_000..95_000).contains(&taken), "{taken} of 100,000 packets were taken");
    assert!(filters_hit > 5_000, "{filters_hit} filters were hit");
}

#[test]
fn what_is_written_changes_the_code_point_and_the_checksum_and_nothing_else() {
    let mut dice = Dice::new(7);
    let wishes = Wishes { filters: 4, owners: false, tags_beside: true, meters: true, track: true };
    let (mut marked, mut tagged) = (0, 0);
    for _ in 0..300 {
        let file = common::file(&mut dice, &wishes);
        let bindings = Bindings::stand_in(&file);
        let rules = RuleSet::new(&file, &file.adapters[0], &bindings).unwrap();
        let mut state = State::default();
        for now in 1..40 {
            let recipe = common::packet(&mut dice, &file, &wishes);
            let (frame, metadata) = (recipe.frame(), recipe.metadata());
            let before = Fields::new(&frame, recipe.link, &metadata);
            let decision = interpret(&rules, &before, &metadata, now * 100_000, &mut state);
            let Some(left) = rewritten(&frame, recipe.link, &metadata, &decision) else {
                assert!(decision.dropped);
                continue;
            };
            marked += usize::from(decision.dscp.is_some());
            tagged += usize::from(decision.vlan_priority.is_some());
            check_written(&recipe, &decision, &left.bytes, left.vlan_tci);
        }
    }
    assert!(marked > 500 && tagged > 200, "{marked} marked, {tagged} tagged");
}

/// Builds the packet that should be there from its parts, and compares.
fn check_written(recipe: &Recipe, decision: &Decision, bytes: &[u8], tci: Option<u16>) {
    let mut wanted = recipe.clone();
    if let (Some(dscp), Some(ip)) = (decision.dscp, &mut wanted.ip) {
        ip.traffic_class = ip.traffic_class & 3 | dscp.octet();
    }
    if let (Some(priority), LinkType::Ethernet) = (decision.vlan_priority, recipe.link) {
        let whole = recipe.cut.is_none_or(|cut| cut >= 18);
        let inside = recipe.tags.first().filter(|_| whole).map(|(_, tci)| *tci);
        let old = recipe.beside.vlan_tci.or(inside);
        wanted.beside.vlan_tci = Some(old.unwrap_or(0) & 0x1fff | u16::from(priority) << 13);
        if recipe.beside.vlan_tci.is_none() && inside.is_some() {
            wanted.tags.remove(0);
            wanted.cut = wanted.cut.map(|cut| cut - 4);
        }
    }
    assert_eq!(bytes, wanted.frame(), "{decision:?} {recipe:#?}");
    assert_eq!(tci, wanted.beside.vlan_tci);
}

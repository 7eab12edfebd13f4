//! Field values and sets in words.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_core::units::Dscp;

use crate::packet::{Fields, icmp};
use crate::policy::words::{ECN, ETHERTYPES, PROTOCOLS, PROTOCOLS_WITH_PORTS, TCP};
use crate::policy::{AddressRange, Conditions, Family, Mac};
use crate::rules::{Bindings, Field, Ranges, Rule};

use super::packet::{Packet, flags_in_words, icmp_types};

/// Describes the fields of one packet.
pub(super) struct Words<'a> {
    fields: &'a Fields,
    packet: &'a Packet,
    bindings: &'a Bindings,
}

impl<'a> Words<'a> {
    pub(super) fn new(fields: &'a Fields, packet: &'a Packet, bindings: &'a Bindings) -> Self {
        Self { fields, packet, bindings }
    }

    /// Writes the packet as a user describes it.
    pub(super) fn packet(&self) -> String {
        let known = |field| self.fields.value(field);
        let written = |field| known(field).map(|value| self.value(field, value));
        let end = |address, port| match (written(address)?, known(port)) {
            (address, Some(port)) if address.contains(':') => Some(format!("[{address}]:{port}")),
            (address, Some(port)) => Some(format!("{address}:{port}")),
            (address, None) => Some(address),
        };
        let source = end(Field::Source, Field::SourcePort);
        let destination = end(Field::Destination, Field::DestinationPort);
        let mut text = match (written(Field::Protocol), source.zip(destination)) {
            (Some(protocol), Some((source, destination))) => {
                format!("{protocol} {source} > {destination}")
            }
            _ => written(Field::EtherType).unwrap_or_else(|| "a frame that is cut off".to_owned()),
        };
        let mut add = |key: &str, value: Option<String>| {
            text += &value.map_or_else(String::new, |value| format!(" {key}={value}"));
        };
        let fragment = self.fields.fragment();
        add("fragment", fragment.map(|part| if part.first { "first" } else { "later" }.to_owned()));
        let not_zero = |field| written(field).filter(|_| known(field) != Some(0));
        add("flags", written(Field::TcpFlags));
        add("type", written(Field::IcmpType));
        add("code", written(Field::IcmpCode));
        add("dscp", written(Field::Dscp));
        add("ecn", not_zero(Field::Ecn));
        add("flow_label", not_zero(Field::FlowLabel));
        add("length", known(Field::Length).map(|length| length.to_string()));
        add("vlan", written(Field::Vlan));
        let priority = self.fields.tci().map(|tci| tci >> 13).filter(|it| *it != 0);
        add("vlan_priority", priority.map(|it| it.to_string()));
        add("uid", self.packet.uid.map(|uid| uid.to_string()));
        add("cgroup", self.packet.cgroup.as_ref().map(|path| path.0.clone()));
        add("incoming", self.packet.incoming.as_ref().map(|name| name.0.clone()));
        add("mark", not_zero(Field::Mark(u32::MAX)));
        add("source_mac", not_zero(Field::SourceMac));
        add("destination_mac", not_zero(Field::DestinationMac));
        text
    }

    /// Explains why none of a filter's rules takes the packet: the first condition of each that
    /// does not hold.
    pub(super) fn refusal(&self, rules: &[&Rule]) -> String {
        let mut reasons: Vec<String> = Vec::new();
        for rule in rules {
            let reason = (rule.conditions.iter())
                .find(|(field, set)| !self.fields.value(*field).is_some_and(|it| set.contains(it)))
                .map(|(field, set)| self.reason(*field, set));
            reasons.extend(reason.filter(|reason| !reasons.contains(reason)));
        }
        reasons.join(", and ")
    }

    /// Explains why a filter has no rules in the packet's family.
    pub(super) fn no_rules(&self, asked: &Conditions) -> String {
        let families = asked.families();
        if families.contains(&self.fields.family()) {
            return format!("no {} packet can have all that it asks for", self.family());
        }
        let names: Vec<_> = families.iter().map(|family| family_name(*family)).collect();
        let (names, own) = (names.join(" and "), self.family());
        format!("it is for {names} packets, and this is {own}")
    }

    pub(super) fn new_dscp(&self, dscp: Dscp) -> String {
        let value = self.fields.value(Field::Dscp);
        let came = value.map(|value| self.value(Field::Dscp, value)).unwrap_or_default();
        format!("DSCP {came} becomes {dscp}")
    }

    pub(super) fn new_vlan_priority(&self, priority: u8) -> String {
        match self.fields.tci() {
            Some(tci) => format!("VLAN priority {} becomes {priority}", tci >> 13),
            None => format!("gets a VLAN tag with id 0 and priority {priority}"),
        }
    }

    fn family(&self) -> &'static str {
        family_name(self.fields.family())
    }

    fn reason(&self, field: Field, set: &Ranges) -> String {
        let name = name(field);
        let wanted = self.set(field, set);
        match (field, self.fields.value(field)) {
            (Field::Cgroup(_), _) => match &self.packet.cgroup {
                Some(path) => format!("control group {} is not in {wanted}", path.0),
                None => format!("it has no control group, {wanted} is asked for"),
            },
            (Field::Incoming, _) => match &self.packet.incoming {
                Some(interface) => format!("it came in by {}, not by {wanted}", interface.0),
                None => format!("it is this host's own, and did not come in by {wanted}"),
            },
            (Field::Length, Some(value)) => format!("length {value} is not {wanted} bytes"),
            (_, Some(value)) => {
                let is_one = matches!(set.as_slice(), [(first, last)] if first == last);
                let relation = if is_one { "is not" } else { "is not in" };
                format!("{name} {} {relation} {wanted}", self.value(field, value))
            }
            (_, None) => format!("it has no {name}{}", self.lack(field)),
        }
    }

    /// Explains why a packet lacks a field.
    fn lack(&self, field: Field) -> String {
        let is_later = self.fields.fragment().is_some_and(|part| !part.first);
        let protocol = self.fields.value(Field::Protocol);
        let carriers: Vec<u8> = match field {
            Field::SourcePort | Field::DestinationPort => PROTOCOLS_WITH_PORTS.to_vec(),
            Field::TcpFlags => vec![TCP],
            Field::IcmpType | Field::IcmpCode => icmp(self.fields.family()).into_iter().collect(),
            _ => return String::new(),
        };
        match protocol {
            None => ": its transport header is not to be seen".to_owned(),
            Some(number) if carriers.iter().all(|one| u128::from(*one) != number) => {
                format!(": its protocol is {}", self.value(Field::Protocol, number))
            }
            Some(_) if is_later => ": it is a later fragment".to_owned(),
            Some(_) => ": the packet ends before".to_owned(),
        }
    }

    /// Writes a set: at most four of its ranges.
    fn set(&self, field: Field, set: &Ranges) -> String {
        let ranges = set.as_slice();
        let mut words: Vec<_> = (ranges.iter().take(MAX_RANGES))
            .map(|(first, last)| self.range(field, *first, *last))
            .collect();
        if field == Field::TcpFlags && ranges.len() > 1 {
            let count: u128 = ranges.iter().map(|(first, last)| last - first + 1).sum();
            return format!("the {count} combinations that are asked for");
        }
        if ranges.len() > MAX_RANGES {
            words.push(format!("{} more", ranges.len() - MAX_RANGES));
        }
        words.join(", ")
    }

    fn range(&self, field: Field, first: u128, last: u128) -> String {
        if first == last {
            return self.value(field, first);
        }
        if let Field::Source | Field::Destination = field {
            let range = AddressRange { first: self.address(first), last: self.address(last) };
            if let Some(length) = range.prefix_length() {
                return format!("{}/{length}", range.first);
            }
        }
        format!("{}-{}", self.value(field, first), self.value(field, last))
    }

    fn value(&self, field: Field, value: u128) -> String {
        let small = u32::try_from(value).unwrap_or(u32::MAX);
        match field {
            Field::Source | Field::Destination => self.address(value).to_string(),
            Field::Protocol => PROTOCOLS.written(small),
            Field::Dscp => match u8::try_from(value).ok().and_then(Dscp::new) {
                Some(dscp) => dscp.to_string(),
                None => value.to_string(),
            },
            Field::Ecn => ECN.written(small),
            Field::IcmpType => icmp_types(self.fields.family()).written(small),
            Field::TcpFlags => flags_in_words(small as u8),
            Field::EtherType => match ETHERTYPES.name(small) {
                Some(name) => name.to_owned(),
                None => format!("{value:#06x}"),
            },
            Field::FlowLabel | Field::Mark(u32::MAX) => format!("{value:#x}"),
            Field::Mark(mask) => format!("{value:#x}/{mask:#x}"),
            Field::SourceMac | Field::DestinationMac => {
                Mac::try_from(value).map_or_else(|_| value.to_string(), |mac| mac.to_string())
            }
            Field::Cgroup(level) => {
                let mut groups = self.bindings.cgroups.iter();
                let found =
                    groups.find(|(_, group)| group.level == level && u128::from(group.id) == value);
                found.map_or_else(|| value.to_string(), |(path, _)| path.0.clone())
            }
            Field::Incoming => {
                let mut interfaces = self.bindings.interfaces.iter();
                let found = interfaces.find(|(_, index)| u128::from(**index) == value);
                found.map_or_else(|| value.to_string(), |(interface, _)| interface.0.clone())
            }
            _ => value.to_string(),
        }
    }

    fn address(&self, number: u128) -> IpAddr {
        match self.fields.family() {
            Family::V6 => Ipv6Addr::from(number).into(),
            _ => Ipv4Addr::from(number as u32).into(),
        }
    }
}

fn family_name(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
        Family::Other => "other",
    }
}

fn name(field: Field) -> &'static str {
    match field {
        Field::Source => "source",
        Field::Destination => "destination",
        Field::Protocol => "protocol",
        Field::SourcePort => "source port",
        Field::DestinationPort => "destination port",
        Field::Dscp => "DSCP",
        Field::Ecn => "ECN field",
        Field::IcmpType => "ICMP type",
        Field::IcmpCode => "ICMP code",
        Field::TcpFlags => "TCP flags",
        Field::FlowLabel => "flow label",
        Field::Vlan => "VLAN tag",
        Field::EtherType => "EtherType",
        Field::Length => "length",
        Field::Uid => "owner",
        Field::Cgroup(_) => "control group",
        Field::Incoming => "incoming interface",
        Field::Mark(_) => "mark",
        Field::SourceMac => "source MAC",
        Field::DestinationMac => "destination MAC",
    }
}

/// Maximum number of ranges that are written.
const MAX_RANGES: usize = 4;

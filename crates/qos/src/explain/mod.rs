//! Explains in words which filter takes a packet, and why those before it do not.

mod packet;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_core::units::Dscp;
pub use packet::Packet;
use packet::{flags_in_words, icmp_types};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::interpret::{Decision, State, interpret};
use crate::packet::{Fields, LinkType, icmp};
use crate::policy::words::{ECN, ETHERTYPES, PROTOCOLS, PROTOCOLS_WITH_PORTS, TCP};
use crate::policy::{Adapter, AddressRange, Conditions, Family, Filter, Mac, Policy, PolicyFile};
use crate::rules::{Bindings, Field, Ranges, Rule, RuleError, RuleSet};

/// What a policy does with a packet that is the first on its adapter: which filter takes it, and
/// why those before it do not.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExplanationReport {
    /// The packet, as it was understood.
    pub packet: String,
    /// The interface by which it leaves.
    pub adapter: String,
    /// `ipv4`, `ipv6` or `other`.
    pub family: String,
    /// The filter that takes it; absent if none does.
    pub taken: Option<AskedReport>,
    /// The policy of that filter.
    pub policy: Option<String>,
    /// What that policy does to the packet, in words, such as `DSCP CS0 becomes EF`; meters have
    /// full buckets.
    pub effects: Vec<String>,
    /// The filters that were tried before, in this order.
    pub refused: Vec<RefusalReport>,
}

/// A filter that is tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AskedReport {
    /// Name of the filter.
    pub filter: String,
    /// The line of the file in which it is defined.
    pub line: usize,
    /// Priority of the filter.
    pub priority: u32,
}

/// A filter that does not take the packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusalReport {
    /// The filter.
    #[serde(flatten)]
    pub asked: AskedReport,
    /// The first of its conditions that does not hold, such as `destination port 443 is not 80`.
    pub why: String,
}

/// Explains what happens to `packet` on `adapter`.
///
/// Control groups and interfaces are compared by name: a packet is in every group whose path is a
/// prefix of its own.
///
/// # Errors
/// [`RuleError`], if the filters make too many rules.
pub fn explain(
    file: &PolicyFile,
    adapter: &Adapter,
    packet: &Packet,
) -> Result<ExplanationReport, RuleError> {
    let bindings = Bindings::stand_in(file);
    let rules = RuleSet::new(file, adapter, &bindings)?;
    let metadata = packet.metadata(&bindings);
    let fields = Fields::new(packet.frame(), LinkType::Ethernet, &metadata);
    let decision = interpret(&rules, &fields, &metadata, 1, &mut State::default());
    let of_family = rules.family(fields.family());
    let rule = decision.rule.map(|rule| &of_family[rule]);

    let order = order(file, &rules);
    let taken = rule.and_then(|rule| order.iter().position(|(index, _)| *index == rule.filter));
    let before = &order[..taken.unwrap_or(order.len())];
    let taken = taken.map(|at| order[at].1);
    let policy = taken.map(|filter| &file.policies[filter.policy]);
    let mut of_filter: HashMap<usize, Vec<&Rule>> = HashMap::new();
    for rule in of_family {
        of_filter.entry(rule.filter).or_default().push(rule);
    }
    let words = Words::new(&fields, packet, &bindings);
    let refused = before.iter().map(|(index, filter)| RefusalReport {
        asked: asked(filter),
        why: match of_filter.get(index) {
            Some(rules) => words.refusal(rules),
            None => words.no_rules(&filter.conditions),
        },
    });
    Ok(ExplanationReport {
        packet: words.packet(),
        adapter: adapter.name.clone(),
        family: match fields.family() {
            Family::V4 => "ipv4".to_owned(),
            Family::V6 => "ipv6".to_owned(),
            Family::Other => "other".to_owned(),
        },
        taken: taken.map(asked),
        policy: policy.map(|policy| policy.name.clone()),
        effects: policy.map_or_else(Vec::new, |policy| effects(policy, &decision, &words)),
        refused: refused.collect(),
    })
}

/// The filters of an adapter in the order in which they are tried, each with its index in
/// [`RuleSet::filters`].
fn order<'a>(file: &'a PolicyFile, rules: &RuleSet) -> Vec<(usize, &'a Filter)> {
    let by_name: HashMap<&str, &Filter> =
        (file.filters.iter()).map(|filter| (filter.name.as_str(), filter)).collect();
    let names = rules.filters.iter().map(|(name, _)| name.as_str());
    let mut order: Vec<_> = names.map(|name| by_name[name]).enumerate().collect();
    order.sort_by_key(|(_, filter)| filter.priority);
    order
}

fn asked(filter: &Filter) -> AskedReport {
    AskedReport { filter: filter.name.clone(), line: filter.place.line, priority: filter.priority }
}

fn effects(policy: &Policy, decision: &Decision, words: &Words<'_>) -> Vec<String> {
    let mut effects = Vec::new();
    if policy.meter.is_some() {
        let colour =
            decision.colour.map_or(String::new(), |colour| format!("{colour:?}").to_lowercase());
        effects.push(format!("coloured by its meter: {colour} while the buckets are full"));
    }
    if decision.dropped {
        effects.push("dropped".to_owned());
        return effects;
    }
    effects.extend(decision.dscp.map(|dscp| words.new_dscp(dscp)));
    if let Some(priority) = decision.vlan_priority {
        effects.push(words.new_vlan_priority(priority));
    }
    if policy.has_class() {
        effects.push(format!("in the class of policy `{}`", policy.name));
    }
    if effects.is_empty() {
        effects.push("counted only".to_owned());
    }
    effects
}

// Field values and sets in words.

/// Describes the fields of one packet.
struct Words<'a> {
    fields: &'a Fields,
    packet: &'a Packet,
    bindings: &'a Bindings,
}

impl<'a> Words<'a> {
    fn new(fields: &'a Fields, packet: &'a Packet, bindings: &'a Bindings) -> Self {
        Self { fields, packet, bindings }
    }

    /// Writes the packet as a user describes it.
    fn packet(&self) -> String {
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
    fn refusal(&self, rules: &[&Rule]) -> String {
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
    fn no_rules(&self, asked: &Conditions) -> String {
        let families = asked.families();
        if families.contains(&self.fields.family()) {
            return format!("no {} packet can have all that it asks for", self.family());
        }
        let names: Vec<_> = families.iter().map(|family| family_name(*family)).collect();
        let (names, own) = (names.join(" and "), self.family());
        format!("it is for {names} packets, and this is {own}")
    }

    fn new_dscp(&self, dscp: Dscp) -> String {
        let value = self.fields.value(Field::Dscp);
        let came = value.map(|value| self.value(Field::Dscp, value)).unwrap_or_default();
        format!("DSCP {came} becomes {dscp}")
    }

    fn new_vlan_priority(&self, priority: u8) -> String {
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
            None => ": its transport header cannot be seen".to_owned(),
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

//! Turns a file into the rules of one adapter.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::packet::{CGROUP_LEVELS, EXTENSIONS, Field, NO_UID, icmp};
use crate::policy::words::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, PROTOCOLS_WITH_PORTS, TCP};
use crate::policy::{
    Adapter, AddressRange, CgroupPath, Conditions, Family, Filter, FlagTest, Interface, Policy,
    PolicyFile, Range,
};

use super::{Action, Bindings, Ranges, Rule, RuleSet};

/// Most rules of one family.
pub const MAX_RULES: usize = 16_384;

/// Why rules, or the program of them, cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// Too many rules.
    #[error(
        "the filters of adapter `{adapter}` make more than {MAX_RULES} rules of one family; \
         a filter makes two for `address`, two for `port`, four for both"
    )]
    TooMany {
        /// The adapter.
        adapter: String,
    },
    /// A control group has no number.
    #[error("filter `{filter}`: control group `{path}` is not known")]
    Cgroup {
        /// The filter that names it.
        filter: String,
        /// Its path.
        path: String,
    },
    /// A control group is below too many others.
    #[error(
        "filter `{filter}`: control group `{path}` is below {level} others; at most {} can be \
         compared",
        CGROUP_LEVELS - 1
    )]
    CgroupLevel {
        /// The filter that names it.
        filter: String,
        /// Its path.
        path: String,
        /// Number of groups above it.
        level: u8,
    },
    /// An interface has no number.
    #[error("filter `{filter}`: interface `{name}` is not known")]
    Interface {
        /// The filter that names it.
        filter: String,
        /// Its name.
        name: String,
    },
    /// More rules than a program holds.
    #[error("{rules} rules of one family; a program holds at most {most}")]
    TooManyRules {
        /// Number of rules.
        rules: usize,
        /// The most.
        most: usize,
    },
    /// The rules' tables are too large.
    #[error("the rules make tables of more than {} MiB; fewer ranges make smaller \
        ones", most >> 20)]
    TooLarge {
        /// The most, in bytes.
        most: usize,
    },
    /// There are no VLAN tags on this kind of link.
    #[error(
        "policy `{policy}` sets a VLAN priority, but frames of this interface have no Ethernet \
         header"
    )]
    NoVlan {
        /// The policy.
        policy: String,
    },
}

/// The conditions of one rule.
pub(crate) type Box = BTreeMap<Field, Ranges>;

impl RuleSet {
    /// The rules of `adapter` in the order they are tested: by priority, then by place in the file.
    ///
    /// `bindings` has a slot for each filter and each policy of the file.
    ///
    /// # Errors
    /// [`RuleError`].
    pub fn new(
        file: &PolicyFile,
        adapter: &Adapter,
        bindings: &Bindings,
    ) -> Result<Self, RuleError> {
        let mut policies = adapter.policies.clone();
        policies.sort_unstable();
        policies.dedup();
        let chosen: Vec<_> = (file.filters.iter().enumerate())
            .filter(|(_, filter)| policies.contains(&filter.policy))
            .collect();
        let action = |policy: &usize| action(&file.policies[*policy], *policy, bindings);
        let mut rules = Self {
            filters: (chosen.iter())
                .map(|(index, filter)| (filter.name.clone(), bindings.filter_slots[*index]))
                .collect(),
            actions: policies.iter().map(action).collect(),
            v4: Vec::new(),
            v6: Vec::new(),
            other: Vec::new(),
            fragments: file.fragments,
            default_class: bindings.default_class,
        };
        let filters = chosen.iter().map(|(_, filter)| *filter);
        let mut ordered: Vec<_> = filters.enumerate().collect();
        ordered.sort_by_key(|(_, filter)| filter.priority);
        for (index, filter) in ordered {
            let action = policies.partition_point(|policy| *policy < filter.policy);
            let mut groups = cgroups(filter, bindings)?;
            groups.extend(marks(&filter.conditions));
            let incoming = incoming(filter, bindings)?;
            for family in filter.conditions.families() {
                let boxes = boxes(&filter.conditions, family, &groups, incoming.as_ref());
                let of_family = rules.of_mut(family);
                of_family.extend(boxes.into_iter().map(|conditions| Rule {
                    filter: index,
                    action,
                    conditions: conditions.into_iter().collect(),
                }));
                if of_family.len() > MAX_RULES {
                    let adapter = adapter.name.clone();
                    return Err(RuleError::TooMany { adapter });
                }
            }
        }
        Ok(rules)
    }

    fn of_mut(&mut self, family: Family) -> &mut Vec<Rule> {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
            Family::Other => &mut self.other,
        }
    }
}

fn action(policy: &Policy, index: usize, bindings: &Bindings) -> Action {
    let class = bindings.classes.get(index).copied().flatten();
    Action {
        policy: policy.name.clone(),
        slot: bindings.policy_slots[index],
        dscp: policy.dscp,
        vlan_priority: policy.vlan_priority,
        class: class.or(bindings.default_class),
        meter: policy.meter,
        drop: policy.drop,
    }
}

/// The alternatives of a filter in a family that each of its conditions allows; none if no packet
/// can meet all conditions.
fn boxes(
    asked: &Conditions,
    family: Family,
    groups: &[Vec<(Field, Ranges)>],
    incoming: Option<&Ranges>,
) -> Vec<Box> {
    let mut boxes = vec![Box::new()];
    one_way(&mut boxes, asked, family);
    if let Some(interfaces) = incoming {
        narrow(&mut boxes, Field::Incoming, Some(interfaces.clone()));
    }
    if !asked.ethertype.is_empty() {
        by_ethertype(&mut boxes, &asked.ethertype, family);
    }
    if !asked.address.is_empty() {
        let set = addresses(&asked.address, family);
        either(&mut boxes, [Field::Source, Field::Destination], set);
    }
    if !asked.port.is_empty() {
        let set = numbers(&asked.port);
        either(&mut boxes, [Field::SourcePort, Field::DestinationPort], set);
    }
    for alternatives in groups.iter().filter(|group| !group.is_empty()) {
        boxes = (boxes.iter())
            .flat_map(|one| alternatives.iter().map(move |of| (one, of)))
            .filter_map(|(one, (field, set))| with(one, *field, set))
            .collect();
    }
    boxes.retain(|one| is_possible(one, family));
    boxes
}

/// Adds the conditions that make no alternatives.
fn one_way(boxes: &mut Vec<Box>, asked: &Conditions, family: Family) {
    let mut protocols = numbers(&asked.protocol);
    if family == Family::V6 {
        // Extension headers precede the header whose protocol this is.
        let extensions = points(EXTENSIONS).expect("some numbers");
        protocols = protocols.and_then(|set| set.without(&extensions));
    }
    let no_user = points([NO_UID]).expect("one number");
    let owners = numbers(&asked.uid).and_then(|set| set.without(&no_user));
    let addresses = |list: &[AddressRange]| (list.is_empty(), addresses(list, family));
    let all = [
        (Field::Source, addresses(&asked.source)),
        (Field::Destination, addresses(&asked.destination)),
        (Field::SourcePort, listed(&asked.source_port)),
        (Field::DestinationPort, listed(&asked.destination_port)),
        (Field::Protocol, (asked.protocol.is_empty(), protocols)),
        (Field::Dscp, listed(&asked.dscp)),
        (Field::Ecn, listed(&asked.ecn)),
        (Field::IcmpType, listed(&asked.icmp_type)),
        (Field::IcmpCode, listed(&asked.icmp_code)),
        (Field::TcpFlags, (asked.tcp_flags.is_empty(), flags(&asked.tcp_flags))),
        (Field::Vlan, listed(&asked.vlan)),
        (Field::FlowLabel, listed(&asked.flow_label)),
        (Field::Length, listed(&asked.length)),
        (Field::SourceMac, listed(&asked.source_mac)),
        (Field::DestinationMac, listed(&asked.destination_mac)),
        (Field::Uid, (asked.uid.is_empty(), owners)),
    ];
    for (field, (is_any, set)) in all {
        if !is_any {
            narrow(boxes, field, set);
        }
    }
}

/// The EtherType decides the family, so only rules of other families test it.
fn by_ethertype(boxes: &mut Vec<Box>, list: &[Range<u16>], family: Family) {
    if family == Family::Other {
        let ip = points([ETHERTYPE_IPV4, ETHERTYPE_IPV6]).expect("two numbers");
        let others = numbers(list).and_then(|set| set.without(&ip));
        narrow(boxes, Field::EtherType, others);
    }
}

/// Adds a condition to all boxes and drops those that become empty.
fn narrow(boxes: &mut Vec<Box>, field: Field, set: Option<Ranges>) {
    let narrowed = boxes.iter().filter_map(|one| with(one, field, set.as_ref()?));
    *boxes = narrowed.collect();
}

/// Doubles each box: with the condition on one field, and on the other.
fn either(boxes: &mut Vec<Box>, fields: [Field; 2], set: Option<Ranges>) {
    let both = |one| fields.map(|field| with(one, field, set.as_ref()?));
    *boxes = boxes.iter().flat_map(both).flatten().collect();
}

fn with(one: &Box, field: Field, set: &Ranges) -> Option<Box> {
    let both = match one.get(&field) {
        Some(asked) => asked.intersection(set)?,
        None => set.clone(),
    };
    let mut one = one.clone();
    one.insert(field, both);
    Some(one)
}

/// Whether the protocols a box allows have the fields it tests.
fn is_possible(one: &Box, family: Family) -> bool {
    match (one.get(&Field::Protocol), protocols_with(one, family)) {
        (_, Some(None)) => false,
        (Some(asked), Some(Some(needed))) => asked.meets(&needed),
        _ => true,
    }
}

/// The protocols that have all fields of the transport layer that a box tests: `None` if it tests
/// none, `Some(None)` if no protocol has all.
pub(crate) fn protocols_with(one: &Box, family: Family) -> Option<Option<Ranges>> {
    let mut needed: Option<Option<Ranges>> = None;
    let mut need = |protocols: &[u8]| {
        needed = Some(match (needed.take(), points(protocols.iter().copied())) {
            (None, set) => set,
            (Some(Some(before)), Some(set)) => before.intersection(&set),
            _ => None,
        });
    };
    for field in one.keys() {
        match field {
            Field::SourcePort | Field::DestinationPort => need(&PROTOCOLS_WITH_PORTS),
            Field::TcpFlags => need(&[TCP]),
            Field::IcmpType | Field::IcmpCode => need(icmp(family).as_slice()),
            _ => {}
        }
    }
    needed
}

fn addresses(list: &[AddressRange], family: Family) -> Option<Ranges> {
    Ranges::new(list.iter().filter_map(|range| {
        let of_family = match range.first {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        };
        (of_family == family).then(|| (address_number(range.first), address_number(range.last)))
    }))
}

/// An address as a number of its family.
pub(crate) fn address_number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

fn numbers<T: Copy + Into<u128>>(list: &[Range<T>]) -> Option<Ranges> {
    Ranges::new(list.iter().map(|range| (range.first.into(), range.last.into())))
}

/// Whether a condition is absent, and its numbers.
fn listed<T: Copy + Into<u128>>(list: &[Range<T>]) -> (bool, Option<Ranges>) {
    (list.is_empty(), numbers(list))
}

/// The set of some single numbers.
fn points<T: Copy + Into<u128>>(numbers: impl IntoIterator<Item = T>) -> Option<Ranges> {
    Ranges::new(numbers.into_iter().map(|number| (number.into(), number.into())))
}

fn flags(tests: &[FlagTest]) -> Option<Ranges> {
    let passes = |flags: &u8| tests.iter().any(|test| flags & test.mask == test.value);
    points((0..=u8::MAX).filter(passes))
}

/// For each mask the marks a filter tests, as alternatives.
fn marks(asked: &Conditions) -> Option<Vec<(Field, Ranges)>> {
    let mut masks: BTreeMap<u32, Vec<Range<u32>>> = BTreeMap::new();
    for mark in &asked.mark {
        masks.entry(mark.mask).or_default().push(mark.range);
    }
    let set = |(mask, marks): (u32, Vec<_>)| Some((Field::Mark(mask), numbers(&marks)?));
    Some(masks.into_iter().filter_map(set).collect())
}

/// For each level the ids a filter tests, as alternatives.
fn cgroups(filter: &Filter, bindings: &Bindings) -> Result<Vec<Vec<(Field, Ranges)>>, RuleError> {
    let mut levels: BTreeMap<u8, Vec<u64>> = BTreeMap::new();
    for cgroup in &filter.conditions.cgroup {
        let (filter, CgroupPath(path)) = (filter.name.clone(), cgroup.clone());
        let Some(group) = bindings.cgroups.get(cgroup) else {
            return Err(RuleError::Cgroup { filter, path });
        };
        let level = group.level;
        if usize::from(level) >= CGROUP_LEVELS {
            return Err(RuleError::CgroupLevel { filter, path, level });
        }
        levels.entry(group.level).or_default().push(group.id);
    }
    let set = |(level, ids)| Some((Field::Cgroup(level), points::<u64>(ids)?));
    Ok(vec![levels.into_iter().filter_map(set).collect()])
}

fn incoming(filter: &Filter, bindings: &Bindings) -> Result<Option<Ranges>, RuleError> {
    let index = |name: &Interface| match bindings.interfaces.get(name) {
        Some(index) => Ok(*index),
        None => Err(RuleError::Interface { filter: filter.name.clone(), name: name.0.clone() }),
    };
    let indices: Result<Vec<u32>, _> = filter.conditions.incoming.iter().map(index).collect();
    Ok(points(indices?))
}

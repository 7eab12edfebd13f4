//! Rules, their sets and what they do.

use std::collections::BTreeMap;

use linerate_core::units::Dscp;

use crate::policy::{CgroupPath, Family, Fragments, Interface, MeterKind};

/// What a rule can ask of a packet. A packet that has no such field (a port of a fragment, a flow label of IPv4) is in no
/// set of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// Source address: 32 or 128 bits.
    Source,
    /// Destination address.
    Destination,
    /// IP protocol; IPv6: of the upper-layer header.
    Protocol,
    /// Source port.
    SourcePort,
    /// Destination port.
    DestinationPort,
    /// DSCP as it came.
    Dscp,
    /// ECN field.
    Ecn,
    /// ICMP or ICMPv6 type.
    IcmpType,
    /// ICMP or ICMPv6 code.
    IcmpCode,
    /// The eight TCP flags as a number.
    TcpFlags,
    /// IPv6 flow label.
    FlowLabel,
    /// VLAN id of the outermost tag.
    Vlan,
    /// EtherType behind VLAN tags.
    EtherType,
    /// Bytes of the IP packet on the wire.
    Length,
    /// Owner of the socket.
    Uid,
    /// Id of the socket's control group or of one above it.
    Cgroup,
    /// Index of the interface by which it came in.
    Incoming,
}

/// A set of numbers as ranges: sorted, apart from each other, not empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ranges(Vec<(u128, u128)>);

/// Where a filter or a policy counts. A slot keeps its meaning over reloads of a policy, so that its counters do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The filter it comes from, an index of [`RuleSet::filters`]; one filter can be several rules.
    pub filter: usize,
    /// What it does, an index of [`RuleSet::actions`].
    pub action: usize,
    /// The sets, each field at most once, in the order of [`Field`].
    pub conditions: Vec<(Field, Ranges)>,
}

/// What is done with the packets of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// The policy's name.
    pub policy: String,
    /// Where the policy counts.
    pub slot: Slot,
    /// The code point that packets get. ECN bits are never changed.
    pub dscp: Option<Dscp>,
    /// The VLAN priority they get.
    pub vlan_priority: Option<u8>,
    /// The HTB class, `major << 16 | minor`, put into `skb->priority`.
    pub class: Option<u32>,
    /// Colours by rate.
    pub meter: Option<Meter>,
    /// They are dropped.
    pub drop: bool,
}

/// A meter of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meter {
    /// Which, with its rates and bursts.
    pub kind: MeterKind,
    /// Whether the packet's own code point sets a least colour.
    pub colour_aware: bool,
    /// Code points of green, yellow and red packets; `None` leaves the action's.
    pub colours: [Option<Dscp>; 3],
    /// Red packets are dropped.
    pub drop_red: bool,
}

/// The rules of one adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSet {
    /// Names and slots of the filters, in the order of the file.
    pub filters: Vec<(String, Slot)>,
    /// What rules do.
    pub actions: Vec<Action>,
    /// The rules of IPv4, first asked first.
    pub v4: Vec<Rule>,
    /// Of IPv6.
    pub v6: Vec<Rule>,
    /// Of everything else.
    pub other: Vec<Rule>,
    /// What becomes of fragments that are not the first.
    pub fragments: Fragments,
    /// `skb->priority` of packets that no rule takes: the default class. `None` leaves it alone.
    pub default_class: Option<u32>,
}

impl RuleSet {
    /// The rules of a family, first asked first.
    pub fn family(&self, family: Family) -> &[Rule] {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
            Family::Other => &self.other,
        }
    }
}

impl Rule {
    /// What it asks of a field, if it does.
    pub fn condition(&self, field: Field) -> Option<&Ranges> {
        self.conditions
            .iter()
            .find(|(asked, _)| *asked == field)
            .map(|(_, ranges)| ranges)
    }
}

impl Ranges {
    /// The set of these ranges, sorted and joined; `None` if there is none.
    pub fn new(ranges: impl IntoIterator<Item = (u128, u128)>) -> Option<Self> {
        let mut ranges: Vec<_> = ranges
            .into_iter()
            .filter(|(first, last)| first <= last)
            .collect();
        ranges.sort_unstable();
        let mut joined: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => joined.push((first, last)),
            }
        }
        (!joined.is_empty()).then_some(Self(joined))
    }

    /// The ranges, sorted, none touching the next.
    pub fn as_slice(&self) -> &[(u128, u128)] {
        &self.0
    }

    /// Whether a number is in the set.
    pub fn contains(&self, number: u128) -> bool {
        let behind = self.0.partition_point(|(first, _)| *first <= number);
        behind > 0 && number <= self.0[behind - 1].1
    }
}

/// What the engine adds to a file before its rules can be made: names of this host as the kernel's numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bindings {
    /// The slot of each filter of the file.
    pub filter_slots: Vec<Slot>,
    /// The slot of each policy of the file.
    pub policy_slots: Vec<Slot>,
    /// The HTB class of each policy of the file, `major << 16 | minor`; empty where there are no classes.
    pub classes: Vec<Option<u32>>,
    /// See [`RuleSet::default_class`].
    pub default_class: Option<u32>,
    /// Ids of the control groups that the file names.
    pub cgroups: BTreeMap<CgroupPath, u64>,
    /// Indices of the interfaces that the file names.
    pub interfaces: BTreeMap<Interface, u32>,
}

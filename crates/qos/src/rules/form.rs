//! Rules, their sets and what they do.

use std::collections::BTreeMap;

use linerate_core::units::Dscp;

use crate::policy::{CgroupPath, Family, Fragments, Interface, Meter, PolicyFile};

use crate::packet::Field;

use super::Ranges;

/// The place of a filter's or policy's counters, which stays the same when a policy is reloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Index in [`RuleSet::filters`] of the filter it comes from; one filter can become several
    /// rules.
    pub filter: usize,
    /// Index of its action in [`RuleSet::actions`].
    pub action: usize,
    /// The set for each tested field, each field at most once, in the order of [`Field`].
    pub conditions: Vec<(Field, Ranges)>,
}

/// What happens to the packets of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// The policy's name.
    pub policy: String,
    /// The policy's counters.
    pub slot: Slot,
    /// The code point written to packets. ECN bits are never changed.
    pub dscp: Option<Dscp>,
    /// The VLAN priority they get.
    pub vlan_priority: Option<u8>,
    /// The HTB class, `major << 16 | minor`, put into `skb->priority`: the policy's, else the
    /// default one.
    pub class: Option<u32>,
    /// The meter that colours packets by rate.
    pub meter: Option<Meter>,
    /// Whether packets are dropped.
    pub drop: bool,
}

/// The rules of one adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSet {
    /// Names and slots of the filters whose policies the adapter has, in the order of the file.
    pub filters: Vec<(String, Slot)>,
    /// The actions of the rules.
    pub actions: Vec<Action>,
    /// The rules for IPv4, in the order they are tested.
    pub v4: Vec<Rule>,
    /// The rules for IPv6.
    pub v6: Vec<Rule>,
    /// The rules for everything else.
    pub other: Vec<Rule>,
    /// How later fragments are treated.
    pub fragments: Fragments,
    /// `skb->priority` of packets that match no rule: the default class. `None` leaves it
    /// unchanged.
    pub default_class: Option<u32>,
}

impl RuleSet {
    /// No rules: all packets pass unchanged.
    pub fn pass_through() -> Self {
        Self {
            filters: Vec::new(),
            actions: Vec::new(),
            v4: Vec::new(),
            v6: Vec::new(),
            other: Vec::new(),
            fragments: Fragments::Plain,
            default_class: None,
        }
    }

    /// The rules of a family in the order they are tested.
    pub fn family(&self, family: Family) -> &[Rule] {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
            Family::Other => &self.other,
        }
    }
}

impl Rule {
    /// The set it requires of a field, if any.
    pub fn condition(&self, field: Field) -> Option<&Ranges> {
        let found = self.conditions.iter().find(|(asked, _)| *asked == field);
        found.map(|(_, ranges)| ranges)
    }
}

/// What the engine adds to a file to make rules: this host's names as the kernel's numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bindings {
    /// The slot of each filter of the file.
    pub filter_slots: Vec<Slot>,
    /// The slot of each policy of the file.
    pub policy_slots: Vec<Slot>,
    /// The HTB class of each policy of the file, `major << 16 | minor`; empty where there are no
    /// classes.
    pub classes: Vec<Option<u32>>,
    /// See [`RuleSet::default_class`].
    pub default_class: Option<u32>,
    /// The control groups that the file names.
    pub cgroups: BTreeMap<CgroupPath, Cgroup>,
    /// Indices of the interfaces that the file names.
    pub interfaces: BTreeMap<Interface, u32>,
}

/// A control group as the kernel compares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cgroup {
    /// Its id, the inode of its directory; never 0.
    pub id: u64,
    /// Number of groups above it; 0 for the root.
    pub level: u8,
}

impl CgroupPath {
    /// Number of groups above it, the components of its path.
    pub fn level(&self) -> usize {
        self.0.split('/').filter(|part| !part.is_empty()).count()
    }
}

impl Bindings {
    /// Made-up numbers where no kernel is asked, to check and explain a file. Slots count filters,
    /// then policies; there are no classes.
    pub fn stand_in(file: &PolicyFile) -> Self {
        let filters = file.filters.len() as u32;
        let policies = file.policies.len() as u32;
        let mut bindings = Self {
            filter_slots: (0..filters).map(Slot).collect(),
            policy_slots: (filters..filters + policies).map(Slot).collect(),
            ..Self::default()
        };
        for filter in &file.filters {
            for path in &filter.conditions.cgroup {
                bindings.stand_in_cgroup(path);
            }
            for interface in &filter.conditions.incoming {
                let next = bindings.interfaces.len() as u32 + 1;
                bindings.interfaces.entry(interface.clone()).or_insert(next);
            }
        }
        bindings
    }

    fn stand_in_cgroup(&mut self, path: &CgroupPath) {
        // In the kernel, 1 is the root.
        let id = self.cgroups.len() as u64 + 2;
        let level = path.level().try_into().unwrap_or(u8::MAX);
        self.cgroups.entry(path.clone()).or_insert(Cgroup { id, level });
    }
}

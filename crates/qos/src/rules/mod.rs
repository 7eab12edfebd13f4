//! The intermediate form: the rules of one adapter, by family, in the order they are tested.
//!
//! A rule is a set for each [`Field`] that it tests; the first rule of the packet's family whose
//! sets contain all the packet's values matches. The interpreter, the explanation and the code
//! generator read only this form. `lower` makes it from a policy file.

mod lower;

use std::collections::BTreeMap;

use linerate_core::units::{BitRate, ByteCount, Dscp};
pub(crate) use lower::protocols_with;
pub use lower::{MAX_RULES, RuleError};

pub use crate::packet::Field;
use crate::policy::{CgroupPath, Family, Fragments, Interface, Meter, MeterKind, PolicyFile};

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

// Token buckets of a meter in integers, computed the same way by a kernel program.

/// Tokens of one byte. A token is a billionth of a bit, what 1 bit/s gives in 1 ns. So filling is
/// one multiplication and nothing is ever rounded.
pub(crate) const UNITS_PER_BYTE: u64 = 8_000_000_000;

/// The deepest bucket, 1 GiB: two of them fit in 64 bits.
const MAX_BURST_BYTES: u64 = 1 << 30;

/// Most bytes a packet is charged for.
pub(crate) const MAX_METERED_BYTES: u32 = 1 << 30;

/// Highest rate used, 1 Pbit/s, so that filling never exceeds 64 bits.
const MAX_RATE: u64 = 1_000_000_000_000_000;

/// The constants of a meter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buckets {
    /// RFC 2697: one rate fills the committed bucket and, when it is full, the excess bucket.
    SingleRate {
        /// The committed bucket; its `full_ns` is the time that fills both from empty.
        committed: Bucket,
        /// Depth of the excess bucket.
        excess_depth: u64,
    },
    /// RFC 2698: each bucket has a rate of its own.
    TwoRate {
        /// The committed bucket.
        committed: Bucket,
        /// The peak bucket.
        peak: Bucket,
    },
}

/// The constants of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Tokens per nanosecond.
    pub rate: u64,
    /// Most tokens it holds.
    pub depth: u64,
    /// Nanoseconds after which it is full whatever it held; longer times count as this, and
    /// multiplied by `rate` it fits in 64 bits.
    pub full_ns: u64,
}

impl Meter {
    /// Its constants.
    pub fn buckets(&self) -> Buckets {
        match self.kind {
            MeterKind::SingleRate { committed, committed_burst, excess_burst } => {
                let excess_depth = depth(excess_burst);
                Buckets::SingleRate {
                    committed: Bucket::new(committed, committed_burst, excess_depth),
                    excess_depth,
                }
            }
            MeterKind::TwoRate { committed, committed_burst, peak, peak_burst } => {
                Buckets::TwoRate {
                    committed: Bucket::new(committed, committed_burst, 0),
                    peak: Bucket::new(peak, peak_burst, 0),
                }
            }
        }
    }
}

impl Bucket {
    /// A bucket that is surely full after `full_ns`, with `further` tokens for a second one.
    fn new(rate: BitRate, burst: ByteCount, further: u64) -> Self {
        let rate = rate.0.min(MAX_RATE);
        let depth = depth(burst);
        let full_ns = (depth + further).checked_div(rate).map_or(0, |ns| ns + 1);
        Self { rate, depth, full_ns }
    }
}

fn depth(burst: ByteCount) -> u64 {
    burst.0.min(MAX_BURST_BYTES) * UNITS_PER_BYTE
}

// Sets of numbers.

/// A set of numbers as sorted, separate, non-empty ranges.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ranges(Vec<(u128, u128)>);

impl Ranges {
    /// The set of these ranges, sorted and merged; `None` if there are none.
    pub fn new(ranges: impl IntoIterator<Item = (u128, u128)>) -> Option<Self> {
        let mut ranges: Vec<_> = ranges.into_iter().filter(|(first, last)| first <= last).collect();
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

    /// The lowest and the highest number.
    pub fn hull(&self) -> (u128, u128) {
        (self.0[0].0, self.0[self.0.len() - 1].1)
    }

    /// Whether a number is in the set.
    pub fn contains(&self, number: u128) -> bool {
        self.last_before(number).is_some_and(|end| number <= end)
    }

    /// The end of the last range that begins at a number or before it.
    fn last_before(&self, number: u128) -> Option<u128> {
        let behind = self.0.partition_point(|(first, _)| *first <= number);
        self.0[..behind].last().map(|(_, last)| *last)
    }

    /// Whether all of `inner` is in the set.
    pub fn covers(&self, inner: &Self) -> bool {
        inner.0.iter().all(|(first, last)| self.last_before(*first).is_some_and(|end| *last <= end))
    }

    /// Whether the sets overlap.
    pub fn meets(&self, other: &Self) -> bool {
        let (few, many) = match self.0.len() <= other.0.len() {
            true => (self, other),
            false => (other, self),
        };
        few.0.iter().any(|(first, last)| many.last_before(*last).is_some_and(|end| *first <= end))
    }

    /// The intersection; `None` if it is empty.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut both = Vec::new();
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            let (first, last) = (a.0.max(b.0), a.1.min(b.1));
            if first <= last {
                both.push((first, last));
            }
            if a.1 <= b.1 {
                left.next()
            } else {
                right.next()
            };
        }
        Self::new(both)
    }

    /// The difference; `None` if it is empty.
    pub fn without(&self, other: &Self) -> Option<Self> {
        let mut rest = Vec::new();
        for &(first, last) in &self.0 {
            let mut from = Some(first);
            let begin = other.0.partition_point(|(_, end)| *end < first);
            for &(start, end) in &other.0[begin..] {
                let Some(at) = from else { break };
                if start > last {
                    break;
                }
                if start > at {
                    rest.push((at, start - 1));
                }
                from = end.checked_add(1).filter(|next| *next <= last);
            }
            rest.extend(from.map(|at| (at, last)));
        }
        Self::new(rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set() -> impl Strategy<Value = Ranges> {
        let small = (0u128..40, 0u128..6).prop_map(|(first, more)| (first, first + more));
        let top = (0u128..40).prop_map(|below| (u128::MAX - below, u128::MAX));
        prop::collection::vec(prop_oneof![4 => small, 1 => top], 1..6)
            .prop_map(|ranges| Ranges::new(ranges).expect("there is one range at least"))
    }

    fn numbers() -> impl Iterator<Item = u128> {
        (0..50).chain((0..50).map(|below| u128::MAX - below))
    }

    proptest! {
        #[test]
        fn sets_do_what_their_numbers_say(a in set(), b in set()) {
            let both = a.intersection(&b);
            let rest = a.without(&b);
            let within =
                |set: &Option<Ranges>, number| set.as_ref().is_some_and(|set| set.contains(number));
            for number in numbers() {
                let (in_a, in_b) = (a.contains(number), b.contains(number));
                prop_assert_eq!(within(&both, number), in_a && in_b);
                prop_assert_eq!(within(&rest, number), in_a && !in_b);
            }
            prop_assert_eq!(a.meets(&b), both.is_some());
            prop_assert_eq!(a.covers(&b), b.without(&a).is_none());
            prop_assert_eq!(Ranges::new(a.as_slice().to_vec()), Some(a));
        }
    }
}

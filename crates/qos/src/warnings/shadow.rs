//! Finds filters whose packets others before them all match.
//!
//! A rule is a box, a set for each field that it tests. It is never reached if the boxes before it
//! cover it. A single covering box is always found; several that cover it together are found by
//! subtracting them one after the other, as long as the rest stays in few pieces.
//!
//! A box that tests a field which the rule does not test cannot help: packets of the rule without
//! that field are outside the box, and what covers those covers the others too.

use std::collections::{BTreeMap, BTreeSet};

use crate::policy::Family;
use crate::rules::{Field, Ranges, Rule, RuleSet, protocols_with};

/// The outcome for a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// It matches some packet, as far as is known.
    Asked,
    /// It has no rules.
    Impossible,
    /// These filters before it match all its packets.
    Hidden(Vec<usize>),
}

/// The result, with filters as indices of [`RuleSet::filters`].
#[derive(Debug)]
pub(super) struct Found {
    /// The outcome for each filter.
    pub(super) fates: Vec<Fate>,
    /// For each priority the first two filters of different policies with a packet in common.
    pub(super) ties: BTreeMap<u32, (usize, usize)>,
}

/// Searches all filters; `priorities` are theirs.
pub(super) fn search(rules: &RuleSet, priorities: &[u32]) -> Found {
    let mut covers: Vec<Option<BTreeSet<usize>>> = vec![None; rules.filters.len()];
    let mut is_asked = vec![false; rules.filters.len()];
    let mut ties = BTreeMap::new();
    let mut work = MAX_WORK;
    for family in Family::ALL {
        let boxes: Vec<_> =
            (rules.family(family).iter()).map(|rule| RuleBox::new(rule, family)).collect();
        for (number, asked) in boxes.iter().enumerate() {
            let before = &boxes[..number];
            let filter = asked.rule.filter;
            match asked.covered_by(before, &mut work) {
                Some(by) => covers[filter].get_or_insert_default().extend(by),
                None => is_asked[filter] = true,
            }
            let priority = priorities[filter];
            if !ties.contains_key(&priority) {
                let is_tied = |other: &&RuleBox<'_>| priorities[other.rule.filter] == priority;
                let tied = before.iter().rev().take_while(is_tied);
                let other = tied.filter(|other| other.ties_with(asked)).last();
                ties.extend(other.map(|other| (priority, (other.rule.filter, filter))));
            }
        }
    }
    let fates = covers
        .into_iter()
        .zip(is_asked)
        .enumerate()
        .map(|(filter, (by, is_asked))| fate(filter, by, is_asked));
    Found { fates: fates.collect(), ties }
}

fn fate(filter: usize, by: Option<BTreeSet<usize>>, is_asked: bool) -> Fate {
    match by {
        _ if is_asked => Fate::Asked,
        None => Fate::Impossible,
        // One rule of a filter can cover another; what covers the first is among the rest.
        Some(by) => Fate::Hidden(by.into_iter().filter(|other| *other != filter).collect()),
    }
}

/// A rule as a box.
struct RuleBox<'a> {
    rule: &'a Rule,
    /// The fields it tests, a bit each.
    asked: u64,
    /// Its conditions and what they imply of its packets.
    has: Vec<(Field, Ranges)>,
    /// The fields of `has`.
    has_fields: u64,
}

impl<'a> RuleBox<'a> {
    fn new(rule: &'a Rule, family: Family) -> Self {
        let has = implied(rule, family);
        let bits = |conditions: &[(Field, Ranges)]| {
            let fields = conditions.iter().map(|(field, _)| *field);
            fields.fold(0, |bits, field| bits | bit(field))
        };
        Self { rule, asked: bits(&rule.conditions), has_fields: bits(&has), has }
    }

    /// The filters of the boxes that cover it, alone or together.
    fn covered_by(&self, before: &[RuleBox<'_>], work: &mut usize) -> Option<Vec<usize>> {
        let mut parts = Vec::new();
        for other in before {
            if other.asked & !self.has_fields != 0 {
                continue;
            }
            match other.relation(self) {
                Relation::Apart => {}
                Relation::Covers => return Some(vec![other.rule.filter]),
                Relation::Meets => parts.push(other),
            }
        }
        let mut spans = |(field, set): &(Field, Ranges)| {
            let is_affordable = parts.len() <= *work;
            *work = work.saturating_sub(parts.len());
            is_affordable && is_spanned(*field, set, &parts)
        };
        let could = parts.len() > 1 && self.has.iter().all(&mut spans);
        (could && self.is_taken_away(&parts, work))
            .then(|| parts.iter().map(|part| part.rule.filter).collect())
    }

    /// Relation of this box to `other`, which has all fields this one tests.
    fn relation(&self, other: &RuleBox<'_>) -> Relation {
        let mut covers = true;
        let mut has = other.has.iter();
        for (field, set) in &self.rule.conditions {
            let Some((_, theirs)) = has.find(|(of, _)| of == field) else {
                return Relation::Apart;
            };
            if covers && set.covers(theirs) {
                continue;
            }
            covers = false;
            if !set.meets(theirs) {
                return Relation::Apart;
            }
        }
        if covers { Relation::Covers } else { Relation::Meets }
    }

    /// Whether subtracting `parts` leaves nothing; `false` also if that takes too long.
    fn is_taken_away(&self, parts: &[&RuleBox<'_>], work: &mut usize) -> bool {
        let mut left = vec![self.has.clone()];
        for part in parts {
            if left.len() > MAX_PIECES || left.len() > *work {
                return false;
            }
            *work -= left.len();
            left = (left.into_iter())
                .flat_map(|piece| without(piece, &part.rule.conditions))
                .collect();
        }
        left.is_empty()
    }

    /// Whether a packet can be in both and their order matters.
    fn ties_with(&self, other: &RuleBox<'_>) -> bool {
        let (left, right) = (&self.rule.conditions, &other.rule.conditions);
        let mut right = right.iter().peekable();
        self.rule.action != other.rule.action
            && !have_other_marks(left, &other.rule.conditions)
            && left.iter().all(|(field, set)| {
                while right.next_if(|(of, _)| of < field).is_some() {}
                right.next_if(|(of, _)| of == field).is_none_or(|(_, theirs)| set.meets(theirs))
            })
    }
}

/// Whether no mark is in both: each tests one number under its own mask, and these differ in a bit
/// of both masks.
fn have_other_marks(left: &[(Field, Ranges)], right: &[(Field, Ranges)]) -> bool {
    let single = |(field, set): &(Field, Ranges)| match (field, set.as_slice()) {
        (Field::Mark(mask), [(first, last)]) if first == last => Some((*mask, *first as u32)),
        _ => None,
    };
    let (left, right) = (left.iter().find_map(single), right.iter().find_map(single));
    (left.zip(right))
        .is_some_and(|((one, mark), (other, theirs))| (mark ^ theirs) & one & other != 0)
}

enum Relation {
    Apart,
    Meets,
    Covers,
}

/// Whether the parts together contain the field's whole set; otherwise they cannot cover it.
fn is_spanned(field: Field, set: &Ranges, parts: &[&RuleBox<'_>]) -> bool {
    let of_parts = parts.iter().map(|part| part.rule.condition(field));
    let Some(of_parts) = of_parts.collect::<Option<Vec<_>>>() else {
        return true;
    };
    let all = of_parts.iter().flat_map(|ranges| ranges.as_slice());
    Ranges::new(all.copied()).is_some_and(|all| all.covers(set))
}

/// The rest of a box as separate boxes.
fn without(
    mut piece: Vec<(Field, Ranges)>,
    taken: &[(Field, Ranges)],
) -> Vec<Vec<(Field, Ranges)>> {
    let set_of = |piece: &[(Field, Ranges)], field| piece.iter().position(|(of, _)| *of == field);
    let meets = taken
        .iter()
        .all(|(field, set)| set_of(&piece, *field).is_some_and(|at| piece[at].1.meets(set)));
    if !meets {
        return vec![piece];
    }
    let mut left = Vec::new();
    for (field, set) in taken {
        let Some(at) = set_of(&piece, *field) else {
            continue;
        };
        if let Some(outside) = piece[at].1.without(set) {
            let mut rest = piece.clone();
            rest[at].1 = outside;
            left.push(rest);
        }
        if let Some(inside) = piece[at].1.intersection(set) {
            piece[at].1 = inside;
        }
    }
    left
}

/// The conditions of a rule and what they imply. A packet with an address has the whole IP header,
/// ports come together, and a header with flags has ports.
fn implied(rule: &Rule, family: Family) -> Vec<(Field, Ranges)> {
    let mut has: BTreeMap<Field, Ranges> = rule.conditions.iter().cloned().collect();
    let asks = |fields: &[Field]| fields.iter().any(|field| rule.condition(*field).is_some());
    let mut fields = Vec::new();
    if rule.conditions.iter().any(|(field, _)| !field.is_beside_ip()) {
        fields.extend([Field::Source, Field::Destination, Field::Dscp, Field::Ecn]);
        fields.push(match family {
            Family::V6 => Field::FlowLabel,
            _ => Field::Protocol,
        });
    }
    if asks(&[Field::SourcePort, Field::DestinationPort, Field::TcpFlags]) {
        fields.extend([Field::SourcePort, Field::DestinationPort]);
    }
    if asks(&[Field::IcmpType, Field::IcmpCode]) {
        fields.extend([Field::IcmpType, Field::IcmpCode]);
    }
    if let Some(Some(carriers)) = protocols_with(&has, family) {
        let protocols = match has.get(&Field::Protocol) {
            Some(asked) => asked.intersection(&carriers),
            None => Some(carriers),
        };
        has.extend(protocols.map(|protocols| (Field::Protocol, protocols)));
    }
    for field in fields {
        let whole = || Ranges::new([(0, field.max(family))]).expect("0 is in it");
        has.entry(field).or_insert_with(whole);
    }
    has.into_iter().collect()
}

fn bit(field: Field) -> u64 {
    let number = match field {
        Field::Cgroup(level) => ALL.len() as u32 + u32::from(level),
        // One bit for all masks: it only tells which boxes can be skipped.
        Field::Mark(_) => u64::BITS - 1,
        field => ALL.iter().position(|other| *other == field).unwrap_or(0) as u32,
    };
    1 << number
}

/// All but control groups, of which there is one per level, and marks.
const ALL: [Field; 18] = [
    Field::Source,
    Field::Destination,
    Field::Protocol,
    Field::SourcePort,
    Field::DestinationPort,
    Field::Dscp,
    Field::Ecn,
    Field::IcmpType,
    Field::IcmpCode,
    Field::TcpFlags,
    Field::FlowLabel,
    Field::Vlan,
    Field::EtherType,
    Field::Length,
    Field::Uid,
    Field::Incoming,
    Field::SourceMac,
    Field::DestinationMac,
];

/// Most pieces of one box kept while others are subtracted.
const MAX_PIECES: usize = 256;

/// Most pieces examined in one search.
const MAX_WORK: usize = 1_000_000;

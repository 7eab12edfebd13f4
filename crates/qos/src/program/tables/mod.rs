//! Code for many rules: for each field a table maps its values to a row, a bitmap of the rules that
//! a packet with that value can still match. The rows of all fields combined leave the rules that
//! match, and the lowest bit is the first of them (Lakshman and Stiliadis, SIGCOMM 1998). The cost
//! grows by one bit per rule and field.
//!
//! All tables are in one value of one map: the kernel takes them in one copy, and the program reads
//! them without a lookup.

mod code;
mod rows;

use std::collections::BTreeMap;
use std::rc::Rc;

use super::action::{Asked, Effect, NO_CLASS, NO_DSCP, NO_PRIORITY, Value, octets};
use super::assembler::Size;
use super::chain::is_short;
use super::meter::{Metering, NUMBERS, numbers};
use crate::policy::Family;
use crate::rules::{Action, Field, RuleError, RuleSet};

/// The tables of families with many rules.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) content: Vec<u8>,
    families: BTreeMap<Family, Rc<FamilyTables>>,
    /// Table of the lowest bit of a word by the upper six bits of its product with [`DE_BRUIJN`].
    bits_at: u32,
    /// The combined effect of the actions, read from records.
    effect: Option<Effect>,
    /// The last action's record.
    last_record: u32,
}

/// The tables of one family.
#[derive(Debug)]
struct FamilyTables {
    dimensions: Vec<Dimension>,
    rules: usize,
    /// For each rule the filter's slot and the position of the action's record.
    rules_at: u32,
    /// Whether a rule tests nothing of IP, so that packets without a valid header can match it.
    any_beside: bool,
}

/// A field and its rows.
#[derive(Debug)]
struct Dimension {
    field: Field,
    lookup: Lookup,
    /// The row of packets without the field.
    absent: u32,
}

/// How to find the row of a value.
#[derive(Debug)]
enum Lookup {
    /// Row numbers by value, the last for packets without the field.
    Direct {
        at: u32,
        /// The highest index.
        last: u32,
        /// Whether entries are 32-bit row positions instead of 16-bit row numbers.
        wide: bool,
        rows_at: u32,
    },
    /// For 32 bits: first the upper 16, then 8, then 8; entries with the highest bit set point to
    /// the next level.
    Levels { at: u32, levels: u32 },
    /// The last key not above the value, among sorted keys whose number is a power of two.
    Search { keys_at: u32, rows_at: u32, steps: u32, key: SearchKey },
}

/// The keys of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SearchKey {
    /// Numbers of 32 bits.
    Word,
    /// 64-bit numbers, or the upper half of addresses that differ only there.
    Double,
    /// IPv6 addresses, the upper half first.
    Address,
}

impl Tables {
    /// The tables of the families that need any.
    pub(super) fn new(rules: &RuleSet) -> Result<Self, RuleError> {
        let mut many = Family::ALL.to_vec();
        many.retain(|family| !is_short(rules.family(*family)));
        if many.is_empty() {
            return Ok(Self::default());
        }
        let mut content = Content::default();
        let bits_at = content.append(&lowest_bits());
        let records = append(&mut content, &rules.actions);
        let mut tables = Self {
            bits_at,
            effect: Some(effect(&rules.actions)),
            last_record: records.last().copied().unwrap_or(0),
            ..Self::default()
        };
        for family in many {
            let of_family = rules.family(family);
            let mut entries = Vec::with_capacity(8 * of_family.len());
            for rule in of_family {
                let (_, slot) = rules.filters[rule.filter];
                entries.extend(slot.0.to_ne_bytes());
                entries.extend(records[rule.action].to_ne_bytes());
            }
            let rules_at = content.append(&entries);
            let dimensions = rows::dimensions(&mut content, of_family, family)?;
            let any_beside = (of_family.iter())
                .any(|rule| rule.conditions.iter().all(|(field, _)| field.is_beside_ip()));
            let of_family =
                FamilyTables { dimensions, rules: of_family.len(), rules_at, any_beside };
            tables.families.insert(family, Rc::new(of_family));
        }
        tables.content = content.finish()?;
        Ok(tables)
    }

    pub(super) fn has(&self, family: Family) -> bool {
        self.families.contains_key(&family)
    }

    /// The tables of a family while its code is being written.
    fn of_family(&self, family: Family) -> Option<Rc<FamilyTables>> {
        self.families.get(&family).cloned()
    }
}

impl FamilyTables {
    /// Words of 64 rules.
    fn words(&self) -> usize {
        self.rules.div_ceil(64)
    }
}

/// Its six-bit windows all differ, so each power of two shifts another one into the upper bits.
const DE_BRUIJN: u64 = 0x03f7_9d71_b4cb_0a89;

fn lowest_bits() -> [u8; 64] {
    let mut bits = [0; 64];
    for bit in 0..64u8 {
        bits[(DE_BRUIJN << bit >> 58) as usize] = bit;
    }
    bits
}

// The bytes of all tables.

/// Most bytes; the verifier's bound on offsets is twice that.
const MAX_BYTES: usize = 256 << 20;

/// A growing buffer; each part starts at a multiple of eight.
#[derive(Debug, Default)]
struct Content(Vec<u8>);

impl Content {
    /// Appends bytes and returns their position.
    fn append(&mut self, bytes: &[u8]) -> u32 {
        let at = self.reserve(0);
        self.0.extend_from_slice(bytes);
        at
    }

    /// Appends that many zeros and returns their position.
    fn reserve(&mut self, bytes: usize) -> u32 {
        let at = self.0.len().next_multiple_of(8);
        self.0.resize(at + bytes, 0);
        // A buffer that is too large is refused at the end.
        at as u32
    }

    fn put_u32(&mut self, at: u32, value: u32) {
        let at = at as usize;
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }

    /// # Errors
    /// [`RuleError::TooLarge`].
    fn check(&self) -> Result<(), RuleError> {
        if self.0.len() > MAX_BYTES { Err(RuleError::TooLarge { most: MAX_BYTES }) } else { Ok(()) }
    }

    fn finish(mut self) -> Result<Vec<u8>, RuleError> {
        self.reserve(0);
        self.check()?;
        Ok(self.0)
    }
}

// Effects of actions as records in the tables.

/// Offsets in a record.
const SLOT: i16 = 0;
const CLASS: i16 = 4;
const DSCP: i16 = 8;
const VLAN_PRIORITY: i16 = 11;
const DROP: i16 = 12;
const DROP_RED: i16 = 13;
const METER: i16 = 16;

/// Appends a record for each action and returns their positions.
fn append(content: &mut Content, actions: &[Action]) -> Vec<u32> {
    let record = |action: &Action| {
        let mut bytes = Vec::with_capacity(METER as usize + 8 * NUMBERS);
        bytes.extend(action.slot.0.to_ne_bytes());
        bytes.extend(action.class.unwrap_or(NO_CLASS).to_ne_bytes());
        bytes.extend(octets(action).map(|octet| octet.unwrap_or(NO_DSCP as u8)));
        bytes.push(action.vlan_priority.unwrap_or(NO_PRIORITY as u8));
        let drop_red = action.meter.is_some_and(|meter| meter.drop_red);
        bytes.extend([u8::from(action.drop), u8::from(drop_red), 0, 0]);
        let meter = action.meter.map_or([0; NUMBERS], |meter| numbers(&meter));
        bytes.extend(meter.iter().flat_map(|number| number.to_ne_bytes()));
        content.append(&bytes)
    };
    actions.iter().map(record).collect()
}

/// The combined effect of the actions.
fn effect(actions: &[Action]) -> Effect {
    let asked = |has: &dyn Fn(&Action) -> bool, size, offset, none| {
        let value = Value::Recorded(size, offset);
        match actions.iter().filter(|action| has(action)).count() {
            0 => Asked::Never,
            count if count == actions.len() => Asked::Always(value),
            _ => Asked::Unless(value, none),
        }
    };
    let metered = actions.iter().filter(|action| action.meter.is_some());
    let meter = (metered.count() > 0).then(|| {
        Metering::with(std::array::from_fn(|number| {
            Value::Recorded(Size::Double, METER + 8 * number as i16)
        }))
    });
    Effect {
        slot: Value::Recorded(Size::Word, SLOT),
        dscp: std::array::from_fn(|colour| {
            let has = |action: &Action| octets(action)[colour].is_some();
            asked(&has, Size::Byte, DSCP + colour as i16, NO_DSCP)
        }),
        vlan_priority: asked(
            &|action| action.vlan_priority.is_some(),
            Size::Byte,
            VLAN_PRIORITY,
            NO_PRIORITY,
        ),
        class: asked(&|action| action.class.is_some(), Size::Word, CLASS, NO_CLASS),
        drop: asked(&|action| action.drop, Size::Byte, DROP, 0),
        drop_red: asked(
            &|action| action.meter.is_some_and(|meter| meter.drop_red),
            Size::Byte,
            DROP_RED,
            0,
        ),
        meter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_is_found_by_the_product() {
        let table = lowest_bits();
        for bit in 0..64 {
            let product = (1u64 << bit).wrapping_mul(DE_BRUIJN);
            assert_eq!(u64::from(table[(product >> 58) as usize]), bit);
        }
    }
}

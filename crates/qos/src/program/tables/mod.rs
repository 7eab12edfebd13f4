//! Code for many rules: for each field a table maps its values to a row, a bitmap of the rules that
//! a packet with that value can still match. The rows of all fields combined leave the rules that
//! match, and the lowest bit is the first of them (Lakshman and Stiliadis, SIGCOMM 1998). The cost
//! grows by one bit per rule and field.
//!
//! All tables are in one value of one map: the kernel takes them in one copy, and the program reads
//! them without a lookup.

mod code;
mod content;
mod lookup;
mod record;
mod rows;

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::policy::Family;
use crate::rules::{Field, RuleSet};

use super::action::Effect;
use super::chain::is_short;
use crate::rules::RuleError;
use content::Content;

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
        let records = record::append(&mut content, &rules.actions);
        let mut tables = Self {
            bits_at,
            effect: Some(record::effect(&rules.actions)),
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

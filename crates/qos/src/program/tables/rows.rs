//! Rows of rules and the values that have them.

use std::collections::HashMap;

use crate::policy::Family;
use crate::rules::{Field, Rule, RuleError};

use super::{Content, Dimension, Lookup, SearchKey};

/// Ranges of values, each starting at the value given, with the position and number of their row.
type Steps = Vec<(u128, TableRow)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TableRow {
    number: u32,
    at: u32,
}

/// The tables of all fields that the rules test.
pub(super) fn dimensions(
    content: &mut Content,
    rules: &[Rule],
    family: Family,
) -> Result<Vec<Dimension>, RuleError> {
    let mut fields: Vec<Field> =
        (rules.iter()).flat_map(|rule| rule.conditions.iter().map(|(field, _)| *field)).collect();
    fields.sort_unstable();
    fields.dedup();
    let dimension = |field| {
        let rows = FieldRows::new(content, rules, field, family)?;
        let absent = rows.absent.at;
        let lookup = match (field, family) {
            (Field::Source | Field::Destination, Family::V4) => levels(content, &rows.steps),
            (Field::Source | Field::Destination, _) => addresses(content, &rows.steps),
            (Field::Cgroup(_) | Field::SourceMac | Field::DestinationMac, _) => {
                search(content, &rows.steps, SearchKey::Double)
            }
            (
                Field::FlowLabel | Field::Length | Field::Uid | Field::Incoming | Field::Mark(_),
                _,
            ) => search(content, &rows.steps, SearchKey::Word),
            _ => direct(content, &rows, field.max(family) as u32),
        };
        content.check()?;
        Ok(Dimension { field, lookup, absent })
    };
    fields.into_iter().map(dimension).collect()
}

/// The rows of a field.
struct FieldRows {
    steps: Steps,
    /// The row of the rules that do not test the field.
    absent: TableRow,
    /// Position of the first row; the others follow.
    at: u32,
    count: usize,
}

impl FieldRows {
    fn new(
        content: &mut Content,
        rules: &[Rule],
        field: Field,
        family: Family,
    ) -> Result<Self, RuleError> {
        let highest = field.max(family);
        let mut bits = vec![0u64; rules.len().div_ceil(64)];
        // The bit of a rule changes at the start of each range and after its end.
        let mut changes = Vec::new();
        for (number, rule) in rules.iter().enumerate() {
            match rule.condition(field) {
                None => flip(&mut bits, number),
                Some(ranges) => changes.extend(
                    (ranges.as_slice().iter())
                        .flat_map(|(first, last)| [Some(*first), last.checked_add(1)])
                        .flatten()
                        .filter(|value| *value <= highest)
                        .map(|value| (value, number)),
                ),
            }
        }
        changes.sort_unstable();
        let mut known = KnownRows::new(content.reserve(0), bits.len());
        let absent = known.row(content, &bits);
        let mut steps: Steps = vec![(0, absent)];
        for of_value in changes.chunk_by(|one, other| one.0 == other.0) {
            for (_, number) in of_value {
                flip(&mut bits, *number);
            }
            let (value, row) = (of_value[0].0, known.row(content, &bits));
            content.check()?;
            match steps.last_mut() {
                Some(last) if last.0 == value => last.1 = row,
                Some(last) if last.1 == row => {}
                _ => steps.push((value, row)),
            }
        }
        Ok(Self { steps, absent, at: known.at, count: known.rows.len() })
    }
}

fn flip(bits: &mut [u64], number: usize) {
    bits[number / 64] ^= 1 << (number % 64);
}

/// Known rows, so that none is stored twice.
struct KnownRows {
    rows: HashMap<Box<[u64]>, u32>,
    at: u32,
    words: usize,
}

impl KnownRows {
    fn new(at: u32, words: usize) -> Self {
        Self { rows: HashMap::new(), at, words }
    }

    fn row(&mut self, content: &mut Content, bits: &[u64]) -> TableRow {
        let next = self.rows.len() as u32;
        let number = match self.rows.get(bits) {
            Some(number) => *number,
            None => {
                self.rows.insert(bits.into(), next);
                let bytes: Vec<u8> = bits.iter().flat_map(|word| word.to_ne_bytes()).collect();
                content.append(&bytes);
                next
            }
        };
        let at = self.at + number * 8 * self.words as u32;
        TableRow { number, at }
    }
}

/// A table with an entry for each value and one for packets without the field.
fn direct(content: &mut Content, rows: &FieldRows, highest: u32) -> Lookup {
    let wide = rows.count > 1 << 16;
    let mut bytes = Vec::with_capacity(4 * (highest as usize + 2));
    let mut put = |row: TableRow, count: usize| {
        if wide {
            bytes.extend(row.at.to_ne_bytes().repeat(count))
        } else {
            bytes.extend((row.number as u16).to_ne_bytes().repeat(count))
        }
    };
    let ends =
        (rows.steps.iter().skip(1)).map(|(value, _)| *value).chain([u128::from(highest) + 1]);
    for ((from, row), end) in rows.steps.iter().zip(ends) {
        put(*row, (end - from) as usize);
    }
    put(rows.absent, 1);
    Lookup::Direct { at: content.append(&bytes), last: highest + 1, wide, rows_at: rows.at }
}

/// A table of the upper 16 bits, with more tables of 8 bits where the lower bits matter.
fn levels(content: &mut Content, steps: &[(u128, TableRow)]) -> Lookup {
    let at = content.reserve(4 << 16);
    let levels = fill_level(content, at, 0, 16, steps);
    Lookup::Levels { at, levels }
}

/// Fills the entries of a table, each for 2^`bits` values from `first` on; returns the number of
/// levels from here.
fn fill_level(
    content: &mut Content,
    at: u32,
    first: u64,
    bits: u32,
    mut steps: &[(u128, TableRow)],
) -> u32 {
    let entries: u64 = if bits == 16 { 1 << 16 } else { 256 };
    let mut levels = 1;
    for entry in 0..entries {
        let from = first + (entry << bits);
        let end = u128::from(from + (1 << bits));
        // The step in which the entry starts, and those inside it.
        let begun = steps.partition_point(|(value, _)| *value <= u128::from(from)) - 1;
        steps = &steps[begun..];
        let within = steps.partition_point(|(value, _)| *value < end);
        let value = match within {
            1 => steps[0].1.at,
            _ => {
                let next = content.reserve(4 * 256);
                let below = fill_level(content, next, from, bits - 8, &steps[..within]);
                levels = levels.max(1 + below);
                NEXT_LEVEL | next
            }
        };
        content.put_u32(at + 4 * entry as u32, value);
    }
    levels
}

/// IPv6 addresses: if no step is inside a 64-bit network, the upper half suffices.
fn addresses(content: &mut Content, steps: &[(u128, TableRow)]) -> Lookup {
    if steps.iter().any(|(value, _)| *value as u64 != 0) {
        return search(content, steps, SearchKey::Address);
    }
    let upper: Steps = steps.iter().map(|(value, row)| (value >> 64, *row)).collect();
    search(content, &upper, SearchKey::Double)
}

fn search(content: &mut Content, steps: &[(u128, TableRow)], key: SearchKey) -> Lookup {
    let count = steps.len().next_power_of_two();
    let (_, last) = steps[steps.len() - 1];
    let (mut keys, mut rows) = (Vec::new(), Vec::new());
    let filled = steps.iter().copied();
    // The last key is followed by the highest possible ones, which lead to the same row.
    let filling = std::iter::repeat_n((u128::MAX, last), count - steps.len());
    for (value, row) in filled.chain(filling) {
        match key {
            SearchKey::Word => keys.extend((value as u32).to_ne_bytes()),
            SearchKey::Double => keys.extend((value as u64).to_ne_bytes()),
            SearchKey::Address => {
                keys.extend(((value >> 64) as u64).to_ne_bytes());
                keys.extend((value as u64).to_ne_bytes());
            }
        }
        rows.extend(row.at.to_ne_bytes());
    }
    Lookup::Search {
        keys_at: content.append(&keys),
        rows_at: content.append(&rows),
        steps: count.ilog2(),
        key,
    }
}

/// Marks entries that are not rows.
pub(super) const NEXT_LEVEL: u32 = 1 << 31;

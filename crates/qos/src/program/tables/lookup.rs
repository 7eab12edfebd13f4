//! Writes the code that finds the row of a value.

use crate::policy::Family;
use crate::rules::Field;

use super::super::assembler::{Condition, Operation, Register, Size};
use super::super::generator::{Generator, TABLES};
use super::rows::NEXT_LEVEL;
use super::{Dimension, Lookup, SearchKey};

use Condition::{Above, AtMost};
use Operation::{Add, And, Mul, Negate, Or, ShiftLeft, ShiftRight, Sub, Xor};
use Register::{R0, R1, R2, R3, R4, R5, R7, R8, R9};
use Size::{Double, Half, Word};

impl Generator<'_> {
    /// Loads into `R0` the position of the row for the packet's value of a field. Changes all
    /// registers but `R6` and `R7`.
    pub(super) fn look_up(&mut self, dimension: &Dimension, family: Family, words: usize) {
        match dimension.lookup {
            Lookup::Direct { at, last, wide, rows_at } => {
                self.value(dimension.field, family);
                self.direct(at, last, wide);
                if !wide {
                    self.code.operate_with(Mul, R0, 8 * words as i32);
                    self.code.operate_with(Add, R0, rows_at as i32);
                }
            }
            Lookup::Levels { at, levels } => {
                self.value(dimension.field, family);
                self.levels(at, levels);
            }
            Lookup::Search { keys_at, rows_at, steps, key } => {
                self.sought(dimension.field, family, key);
                self.search(keys_at, steps, key);
                // From the position of a key to that of its row.
                match key.log_bytes() - 2 {
                    0 => {}
                    more => self.code.operate_with(ShiftRight, R2, more as i32),
                }
                self.entry(R0, rows_at, R2);
                self.code.load(Word, R0, R0, 0);
            }
        }
    }

    /// Loads into `to` the address `offset` bytes after a position in the tables.
    pub(super) fn entry(&mut self, to: Register, at: u32, offset: Register) {
        let map = self.map(TABLES);
        self.code.map_value(to, map, at);
        self.code.operate(Add, to, offset);
    }

    fn direct(&mut self, at: u32, last: u32, wide: bool) {
        let unmatched = self.unmatched;
        self.code.branch_with(Above, R0, last as i32, unmatched);
        let (size, shift) = if wide { (Word, 2) } else { (Half, 1) };
        self.code.operate_with(ShiftLeft, R0, shift);
        self.entry(R1, at, R0);
        self.code.load(size, R0, R1, 0);
    }

    fn levels(&mut self, at: u32, levels: u32) {
        let found = self.code.label();
        let last_table = self.tables.content.len() as i32 - 4 * 256;
        let unmatched = self.unmatched;
        self.code.copy(R1, R0);
        self.code.operate_with(ShiftRight, R0, 16);
        self.code.operate_with(ShiftLeft, R0, 2);
        self.entry(R2, at, R0);
        self.code.load(Word, R0, R2, 0);
        for shift in [8, 0].into_iter().take(levels as usize - 1) {
            self.code.branch_with(AtMost, R0, !NEXT_LEVEL as i32, found);
            self.code.operate32_with(And, R0, !NEXT_LEVEL as i32);
            self.code.branch_with(Above, R0, last_table, unmatched);
            self.code.copy(R2, R1);
            if shift > 0 {
                self.code.operate_with(ShiftRight, R2, shift);
            }
            self.code.operate_with(And, R2, 0xff);
            self.code.operate_with(ShiftLeft, R2, 2);
            self.code.operate(Add, R0, R2);
            self.entry(R2, 0, R0);
            self.code.load(Word, R0, R2, 0);
        }
        self.code.bind(found);
    }

    /// Loads the value to search for into `R1`, or its upper half, with the lower in `R8`.
    fn sought(&mut self, field: Field, family: Family, key: SearchKey) {
        match field {
            Field::Cgroup(level) => self.group(level),
            Field::Source | Field::Destination => {
                let at = if field == Field::Source { 8 } else { 24 };
                if key == SearchKey::Address {
                    self.code.load(Double, R8, R7, at + 8);
                    self.code.swap(R8, 64);
                }
                self.code.load(Double, R0, R7, at);
                self.code.swap(R0, 64);
            }
            _ => self.value(field, family),
        }
        self.code.copy(R1, R0);
    }

    /// Loads into `R2` the position of the last key not above `R1` (and `R8`). It has no branches:
    /// those of a search go either way equally often, which the processor cannot predict.
    fn search(&mut self, keys_at: u32, steps: u32, key: SearchKey) {
        self.code.set(R2, 0);
        let map = self.map(TABLES);
        self.code.map_value(R3, map, keys_at);
        for step in (0..steps).rev() {
            let shift = step + key.log_bytes();
            self.code.copy(R4, R3);
            self.code.operate(Add, R4, R2);
            self.code.operate_with(Add, R4, 1 << shift);
            match key {
                SearchKey::Word => self.below_word(),
                SearchKey::Double => {
                    self.code.load(Double, R0, R4, 0);
                    self.borrow(R4, R1, None);
                }
                SearchKey::Address => {
                    self.code.load(Double, R0, R4, 8);
                    self.borrow(R5, R8, None);
                    self.code.load(Double, R0, R4, 0);
                    self.borrow(R4, R1, Some(R5));
                }
            }
            // R4 is 1 if the value is below the key; then it is not in this half.
            self.code.operate_with(Xor, R4, 1);
            self.code.operate_with(ShiftLeft, R4, shift as i32);
            self.code.operate(Add, R2, R4);
        }
    }

    /// Sets `R4` to 1 if `R1` is below the 32 bits at `R4`, otherwise to 0.
    fn below_word(&mut self) {
        self.code.load(Word, R0, R4, 0);
        self.code.copy(R4, R1);
        self.code.operate(Sub, R4, R0);
        self.code.operate_with(ShiftRight, R4, 63);
    }

    /// Sets `to` to 1 if `value` − `R0`, less the borrow of the lower halves, borrows; otherwise to
    /// 0. Changes `R0`, `R9`.
    fn borrow(&mut self, to: Register, value: Register, below: Option<Register>) {
        // (!v & k) | ((!v | k) & (v - k - borrow)), its highest bit.
        self.code.copy(to, value);
        self.code.operate_with(Xor, to, -1);
        self.code.copy(R9, to);
        self.code.operate(Or, R9, R0);
        self.code.operate(And, to, R0);
        self.code.operate_with(Negate, R0, 0);
        self.code.operate(Add, R0, value);
        if let Some(below) = below {
            self.code.operate(Sub, R0, below);
        }
        self.code.operate(And, R9, R0);
        self.code.operate(Or, to, R9);
        self.code.operate_with(ShiftRight, to, 63);
    }
}

impl SearchKey {
    fn log_bytes(self) -> u32 {
        match self {
            Self::Word => 2,
            Self::Double => 3,
            Self::Address => 4,
        }
    }
}

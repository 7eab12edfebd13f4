//! Writes the code that uses the tables: finds the row of each value, and the first rule in all of
//! them.

use Condition::{Above, AtLeast, AtMost, NotEqual};
use Operation::{Add, And, Mul, Negate, Or, ShiftLeft, ShiftRight, Sub, Xor};
use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use Size::{Byte, Double, Half, Word};

use super::super::assembler::{Condition, Operation, Register, Size};
use super::super::frame::{StackSlot, context, wide};
use super::super::generator::{Generator, Layer, TABLES};
use super::rows::NEXT_LEVEL;
use super::{DE_BRUIJN, Dimension, FamilyTables, Lookup, SearchKey};
use crate::policy::Family;
use crate::rules::Field;

/// Registers for row addresses; the other rows are on the stack.
const IN_REGISTERS: [Register; 6] = [R1, R2, R3, R4, R5, R8];

impl Generator<'_> {
    pub(in crate::program) fn ask_tables(&mut self, family: Family, layer: Layer) {
        let unmatched = self.unmatched;
        let Some(tables) = self.tables.of_family(family) else {
            return;
        };
        if layer == Layer::None && !tables.any_beside {
            self.code.jump(unmatched);
        } else {
            self.find_rows(&tables, family, layer);
            self.meet_rows(&tables);
            if self.needs(family).track && layer != Layer::None {
                self.remember(family);
            }
            self.take_from_tables_of(&tables, family, layer);
        }
    }

    /// The rule whose number is in `R9` matches.
    pub(in crate::program) fn take_from_tables(&mut self, family: Family, layer: Layer) {
        if let Some(tables) = self.tables.of_family(family) {
            self.take_from_tables_of(&tables, family, layer);
        }
    }

    /// Stores the position of each field's row on the stack.
    fn find_rows(&mut self, tables: &FamilyTables, family: Family, layer: Layer) {
        for (number, dimension) in tables.dimensions.iter().enumerate() {
            if layer == Layer::None && !dimension.field.is_beside_ip() {
                self.code.set(R0, dimension.absent.into());
            } else {
                self.look_up(dimension, family, tables.words());
            }
            self.code.store(Word, R10, wide(number) + 4, R0);
        }
    }

    /// Loads into `R9` the number of the first rule that is in all rows; if there is none, the
    /// search is over.
    fn meet_rows(&mut self, tables: &FamilyTables) {
        self.rows(tables);
        let count = tables.dimensions.len();
        let hit = self.code.label();
        let mut hits = Vec::new();
        for word in 0..tables.words() {
            if count == 0 {
                // No rule tests anything: the first matches everything.
                self.code.set(R0, 1);
            }
            for number in 0..count {
                let to = if number == 0 { R0 } else { R9 };
                self.word(number, to, 8 * word as i16);
                if number > 0 {
                    self.code.operate(And, R0, R9);
                }
            }
            let found = self.code.label();
            self.code.branch_with(NotEqual, R0, 0, found);
            hits.push((word, found));
        }
        self.code.jump(self.unmatched);
        for (word, found) in hits {
            self.code.bind(found);
            self.put_constant(StackSlot::Rule, 64 * word as u32);
            self.code.jump(hit);
        }
        self.code.bind(hit);
        // The lowest bit multiplied by the constant.
        self.code.copy(R1, R0);
        self.code.operate_with(Negate, R1, 0);
        self.code.operate(And, R0, R1);
        self.code.set(R1, DE_BRUIJN);
        self.code.operate(Mul, R0, R1);
        self.code.operate_with(ShiftRight, R0, 58);
        self.entry(R1, self.tables.bits_at, R0);
        self.code.load(Byte, R9, R1, 0);
        self.take(R0, StackSlot::Rule);
        self.code.operate(Add, R9, R0);
    }

    /// Converts positions to addresses.
    fn rows(&mut self, tables: &FamilyTables) {
        let last = (self.tables.content.len() - 8 * tables.words()) as i32;
        let unmatched = self.unmatched;
        let map = self.map(TABLES);
        self.code.map_value(R0, map, 0);
        // Rows that return to the stack come first, while a register is free.
        for number in (0..tables.dimensions.len()).rev() {
            let register = IN_REGISTERS.get(number).copied();
            let row = register.unwrap_or(R9);
            self.code.load(Word, row, R10, wide(number) + 4);
            self.code.branch_with(Above, row, last, unmatched);
            self.code.operate(Add, row, R0);
            if register.is_none() {
                self.code.store(Double, R10, wide(number), row);
            }
        }
    }

    /// Loads a word of a row.
    fn word(&mut self, number: usize, to: Register, offset: i16) {
        match IN_REGISTERS.get(number) {
            Some(row) => self.code.load(Double, to, *row, offset),
            None => {
                self.code.load(Double, R9, R10, wide(number));
                self.code.load(Double, to, R9, offset);
            }
        }
    }

    /// Jumps to the action of the rule in `R9`.
    fn take_from_tables_of(&mut self, tables: &FamilyTables, family: Family, layer: Layer) {
        let unmatched = self.unmatched;
        self.code.branch_with(AtLeast, R9, tables.rules as i32, unmatched);
        let (taken, is_new) = self.taken(family, layer);
        if !is_new {
            self.code.jump(taken);
            return;
        }
        self.code.bind(taken);
        if self.observed {
            self.code.copy(R0, R9);
            self.code.operate_with(Add, R0, 1);
            self.code.store(Word, R6, context::CB[0], R0);
        }
        self.code.operate_with(ShiftLeft, R9, 3);
        self.entry(R1, tables.rules_at, R9);
        self.code.load(Word, R0, R1, 0);
        self.put(StackSlot::Filter, R0);
        self.code.load(Word, R8, R1, 4);
        let last = self.tables.last_record as i32;
        self.code.branch_with(Above, R8, last, unmatched);
        let map = self.map(TABLES);
        self.code.map_value(R0, map, 0);
        self.code.operate(Add, R8, R0);
        if let Some(effect) = self.tables.effect.clone() {
            self.act(layer, &effect);
        }
    }

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

//! Writes the code that uses the tables.

use crate::policy::Family;

use super::super::assembler::{Condition, Operation, Register, Size};
use super::super::frame::{StackSlot, context, wide};
use super::super::generator::{Generator, Layer, TABLES};
use super::{DE_BRUIJN, FamilyTables};

use Condition::{Above, AtLeast, NotEqual};
use Operation::{Add, And, Mul, Negate, ShiftLeft, ShiftRight};
use Register::{R0, R1, R2, R3, R4, R5, R6, R8, R9, R10};
use Size::{Byte, Double, Word};

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
}

//! Code for few rules: they are tested in sequence, each condition with a comparison or two.

use crate::policy::Family;
use crate::rules::{Field, Ranges, Rule};

use super::assembler::{Condition, Helper, Label, Operation, Register, Size};
use super::frame::{StackSlot, context, mac, wide};
use super::generator::{Generator, Layer};

use Condition::{Above, Below, NotEqual};
use Operation::{And, Or, ShiftRight, Sub};
use Register::{R0, R1, R2, R6, R7, R9, R10};
use Size::{Byte, Double, Half, Word};

/// Most rules in a chain.
const MAX_RULES: usize = 16;
/// Most ranges in the conditions of a chain.
const MAX_RANGES: usize = 64;

/// Whether the rules are few enough for a chain.
pub(super) fn is_short(rules: &[Rule]) -> bool {
    let conditions = rules.iter().flat_map(|rule| &rule.conditions);
    let ranges: usize = conditions.map(|(_, ranges)| ranges.as_slice().len()).sum();
    rules.len() <= MAX_RULES && ranges <= MAX_RANGES
}

impl Generator<'_> {
    pub(super) fn ask_chain(&mut self, family: Family, layer: Layer) {
        self.load_groups(family);
        let rules = self.rules.family(family);
        for (number, rule) in rules.iter().enumerate() {
            let mut fields = rule.conditions.iter().map(|(field, _)| *field);
            if layer == Layer::None && !fields.all(Field::is_beside_ip) {
                continue;
            }
            let next = self.code.label();
            for (field, ranges) in &rule.conditions {
                self.condition(*field, ranges, family, next);
            }
            self.matched(family, layer, number);
            self.code.bind(next);
        }
        self.code.jump(self.unmatched);
    }

    /// Loads the control group ids at the levels that rules test.
    fn load_groups(&mut self, family: Family) {
        for (number, level) in self.group_levels(family).into_iter().enumerate() {
            self.group(level);
            self.code.store(Double, R10, wide(number), R0);
        }
    }

    fn group_levels(&self, family: Family) -> Vec<u8> {
        let level = |field| match field {
            Field::Cgroup(level) => Some(level),
            _ => None,
        };
        self.needs(family).fields().filter_map(level).collect()
    }

    /// Loads the id of the control group at a level into `R0`; 0 if there is none.
    pub(super) fn group(&mut self, level: u8) {
        self.code.copy(R1, R6);
        self.code.set(R2, level.into());
        self.code.call(Helper::AncestorCgroup);
    }

    /// The rule with that number matches.
    fn matched(&mut self, family: Family, layer: Layer, number: usize) {
        if self.needs(family).track && layer != Layer::None {
            self.code.set(R9, number as u64);
            self.remember(family);
        }
        self.take_rule(family, layer, number);
    }

    fn take_rule(&mut self, family: Family, layer: Layer, number: usize) {
        self.observe_rule(number);
        let rule = &self.rules.family(family)[number];
        let (_, slot) = self.rules.filters[rule.filter];
        self.put_constant(StackSlot::Filter, slot.0);
        let action = self.action(layer, rule.action);
        self.code.jump(action);
    }

    /// The rule whose number is in `R9` matches.
    pub(super) fn take_by_number(&mut self, family: Family, layer: Layer) {
        if self.tables.has(family) {
            self.take_from_tables(family, layer);
            return;
        }
        for number in 0..self.rules.family(family).len() {
            let other = self.code.label();
            self.code.branch_with(NotEqual, R9, number as i32, other);
            self.take_rule(family, layer, number);
            self.code.bind(other);
        }
        self.code.jump(self.unmatched);
    }

    /// Jumps to `otherwise` unless the field's value is in the set.
    fn condition(&mut self, field: Field, ranges: &Ranges, family: Family, otherwise: Label) {
        let ranges =
            Ranges::new([(0, field.max(family))]).and_then(|all| ranges.intersection(&all));
        let Some(ranges) = ranges else {
            self.code.jump(otherwise);
            return;
        };
        match (field, family) {
            (Field::Source | Field::Destination, Family::V6) => {
                self.each(&ranges, otherwise, |code, range, way| {
                    code.address_v6(field, range, way);
                });
            }
            (Field::Source | Field::Destination, _) => {
                self.each(&ranges, otherwise, |code, range, way| {
                    code.address_v4(field, range, way);
                });
            }
            (Field::Cgroup(level), _) => {
                let levels = self.group_levels(family);
                let number = levels.iter().position(|asked| *asked == level);
                let at = wide(number.expect("its level is asked for"));
                self.each(&ranges, otherwise, |code, range, way| {
                    code.double_in(at, range, way);
                });
            }
            (Field::SourceMac | Field::DestinationMac, _) => {
                self.each(&ranges, otherwise, |code, range, way| {
                    code.double_in(mac(field), range, way);
                });
            }
            _ => self.small(field, &ranges, family, otherwise),
        }
    }

    /// Tries the ranges in turn; `test` jumps to its label unless the value is in its range.
    fn each(
        &mut self,
        ranges: &Ranges,
        otherwise: Label,
        mut test: impl FnMut(&mut Self, (u128, u128), Label),
    ) {
        let found = self.code.label();
        let (last, before) = (ranges.as_slice().split_last()).expect("a set is not empty");
        for range in before {
            let next = self.code.label();
            test(self, *range, next);
            self.code.jump(found);
            self.code.bind(next);
        }
        test(self, *last, otherwise);
        self.code.bind(found);
    }

    /// Tests a field of at most 32 bits.
    fn small(&mut self, field: Field, ranges: &Ranges, family: Family, otherwise: Label) {
        if let Some((mask, value)) = masked(ranges).filter(|_| field == Field::TcpFlags) {
            self.value(field, family);
            self.code.operate32_with(And, R0, mask as i32);
            self.code.branch32_with(NotEqual, R0, value, otherwise);
            return;
        }
        self.each(ranges, otherwise, |code, (first, last), way| {
            code.value(field, family);
            code.in_range(first as u32, last as u32, way);
        });
    }

    /// Jumps to `way` unless the number in `R0` is in the range; changes `R0`.
    fn in_range(&mut self, first: u32, last: u32, way: Label) {
        if first == last {
            self.code.branch32_with(NotEqual, R0, first, way);
            return;
        }
        if first > 0 {
            self.code.operate32_with(Sub, R0, first as i32);
        }
        self.code.branch32_with(Above, R0, last - first, way);
    }

    fn double_in(&mut self, at: i16, (first, last): (u128, u128), way: Label) {
        self.code.load(Double, R0, R10, at);
        self.code.set(R1, first as u64);
        self.code.branch(Below, R0, R1, way);
        self.code.set(R1, last as u64);
        self.code.branch(Above, R0, R1, way);
    }

    fn address_v4(&mut self, field: Field, (first, last): (u128, u128), way: Label) {
        let (first, last) = (first as u32, last as u32);
        let host_bits = first ^ last;
        let is_prefix = host_bits.wrapping_add(1).is_power_of_two() || host_bits == u32::MAX;
        if !is_prefix || first & host_bits != 0 {
            self.value(field, Family::V4);
            self.in_range(first, last, way);
            return;
        }
        if host_bits == u32::MAX {
            return;
        }
        let offset = if field == Field::Source { 12 } else { 16 };
        self.code.load(Word, R0, R7, offset);
        self.masked_word(first, !host_bits, way);
    }

    /// Jumps to `way` unless the word in `R0` (network order) equals `bits` under the mask.
    fn masked_word(&mut self, bits: u32, mask: u32, way: Label) {
        if mask != u32::MAX {
            self.code.operate32_with(And, R0, mask.to_be() as i32);
        }
        self.code.branch32_with(NotEqual, R0, bits.to_be(), way);
    }

    fn address_v6(&mut self, field: Field, (first, last): (u128, u128), way: Label) {
        let offset = if field == Field::Source { 8 } else { 24 };
        let host_bits = first ^ last;
        let is_prefix = host_bits == u128::MAX || (host_bits + 1).is_power_of_two();
        if !is_prefix || first & host_bits != 0 {
            self.between_v6(offset, first, last, way);
            return;
        }
        for word in 0..4 {
            let of = |number: u128| (number >> (96 - 32 * word)) as u32;
            if of(!host_bits) != 0 {
                self.code.load(Word, R0, R7, offset + 4 * word as i16);
                self.masked_word(of(first), of(!host_bits), way);
            }
        }
    }

    /// Tests a range that is not a prefix.
    fn between_v6(&mut self, offset: i16, first: u128, last: u128, way: Label) {
        let [above_first, below_last] = std::array::from_fn(|_| self.code.label());
        let halves = |number: u128| [(number >> 64) as u64, number as u64];
        let ([first_high, first_low], [last_high, last_low]) = (halves(first), halves(last));
        self.half_v6(offset, first_high);
        self.code.branch(Below, R0, R1, way);
        self.code.branch(Above, R0, R1, above_first);
        self.half_v6(offset + 8, first_low);
        self.code.branch(Below, R0, R1, way);
        self.code.bind(above_first);
        self.half_v6(offset, last_high);
        self.code.branch(Above, R0, R1, way);
        self.code.branch(Below, R0, R1, below_last);
        self.half_v6(offset + 8, last_low);
        self.code.branch(Above, R0, R1, way);
        self.code.bind(below_last);
    }

    /// Loads half an address into `R0` and its comparison value into `R1`.
    fn half_v6(&mut self, offset: i16, with: u64) {
        self.code.load(Double, R0, R7, offset);
        self.code.swap(R0, 64);
        self.code.set(R1, with);
    }

    /// Loads a field of at most 32 bits into `R0`; a value out of its range if the packet lacks it.
    pub(super) fn value(&mut self, field: Field, family: Family) {
        match field {
            Field::Source => self.network_word(12),
            Field::Destination => self.network_word(16),
            Field::Protocol if family == Family::V4 => self.code.load(Byte, R0, R7, 9),
            Field::Protocol => self.take(R0, StackSlot::Protocol),
            Field::SourcePort => self.take(R0, StackSlot::SourcePort),
            Field::DestinationPort => self.take(R0, StackSlot::DestinationPort),
            Field::Dscp => self.dscp(family),
            Field::Ecn => self.ecn(family),
            Field::IcmpType => self.take(R0, StackSlot::IcmpType),
            Field::IcmpCode => self.take(R0, StackSlot::IcmpCode),
            Field::TcpFlags => self.take(R0, StackSlot::TcpFlags),
            Field::FlowLabel => {
                self.network_word(0);
                self.code.operate_with(And, R0, 0xf_ffff);
            }
            Field::Vlan => self.vlan(),
            Field::EtherType => self.take(R0, StackSlot::EtherType),
            Field::Length => self.take(R0, StackSlot::Length),
            Field::Uid => self.take(R0, StackSlot::Uid),
            Field::Incoming => self.context(R0, context::INCOMING),
            Field::Mark(mask) => {
                self.context(R0, context::MARK);
                self.code.operate32_with(And, R0, mask as i32);
            }
            Field::SourceMac | Field::DestinationMac => {
                self.code.load(Double, R0, R10, mac(field));
            }
            Field::Cgroup(_) => unreachable!("ids of control groups have 64 bits"),
        }
    }

    fn network_word(&mut self, offset: i16) {
        self.code.load(Word, R0, R7, offset);
        self.code.swap(R0, 32);
    }

    /// Loads the code point into `R0`.
    pub(super) fn dscp(&mut self, family: Family) {
        match family {
            Family::V4 => {
                self.code.load(Byte, R0, R7, 1);
                self.code.operate_with(ShiftRight, R0, 2);
            }
            _ => {
                self.code.load(Half, R0, R7, 0);
                self.code.swap(R0, 16);
                self.code.operate_with(ShiftRight, R0, 6);
                self.code.operate_with(And, R0, 0x3f);
            }
        }
    }

    fn ecn(&mut self, family: Family) {
        self.code.load(Byte, R0, R7, 1);
        if family == Family::V6 {
            self.code.operate_with(ShiftRight, R0, 4);
        }
        self.code.operate_with(And, R0, 3);
    }

    /// Loads the VLAN id, or 4096 without a tag: the tag's 17th bit moves to the 13th.
    fn vlan(&mut self) {
        if !self.looks_at_tag() {
            self.code.set(R0, 0x1000);
            return;
        }
        self.take(R0, StackSlot::Tci);
        self.code.copy(R1, R0);
        self.code.operate_with(ShiftRight, R1, 4);
        self.code.operate_with(And, R1, 0x1000);
        self.code.operate_with(And, R0, 0xfff);
        self.code.operate(Or, R0, R1);
    }
}

/// Mask and value if the set of bytes can be tested as `number & mask == value`. The mask includes
/// all bits above the byte, which are not set.
fn masked(ranges: &Ranges) -> Option<(u32, u32)> {
    let numbers = || (0..=255u32).filter(|number| ranges.contains((*number).into()));
    let all = numbers().fold(0xff, |all, number| all & number);
    let any = numbers().fold(0, |any, number| any | number);
    let free = all ^ any;
    (numbers().count() == 1 << free.count_ones()).then_some((!free, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_flags_are_found_again_in_their_numbers() {
        let set = |mask: u32, value: u32| {
            let numbers = (0..=255u32).filter(|number| number & mask == value);
            Ranges::new(numbers.map(|number| (number.into(), number.into()))).unwrap()
        };
        // SYN and not ACK.
        assert_eq!(masked(&set(0x12, 0x02)), Some((0xffff_ff12, 0x02)));
        assert_eq!(masked(&set(0xff, 0x10)), Some((0xffff_ffff, 0x10)));
        let other = Ranges::new([(1, 3)]).unwrap();
        assert_eq!(masked(&other), None);
    }
}

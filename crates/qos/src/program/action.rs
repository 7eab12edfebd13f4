//! What happens to a packet that a rule matches: it is counted, coloured, dropped or marked.

use crate::policy::Family;
use crate::rules::Action;

use super::assembler::{Condition, Helper, Label, Operation, Register, Size};
use super::frame::{NO_HALF, StackSlot, context};
use super::generator::{COUNTERS, Generator, Layer};

use Condition::{Above, Equal, NotEqual};
use Operation::{Add, And, Or, ShiftLeft, ShiftRight, Xor};
use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8};
use Size::{Byte, Double, Half, Word};

/// A number of an action: a constant of the program, or read from the action's record at `R8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    Known(u64),
    /// In the record, of this size at this offset.
    Recorded(Size, i16),
}

/// Whether packets get a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Never,
    Always(Value),
    /// Unless the value equals this number.
    Unless(Value, u32),
}

/// The effect of one action, or of any of several.
#[derive(Debug, Clone)]
pub(super) struct Effect {
    /// The policy's slot for counting.
    pub(super) slot: Value,
    /// The octet of the code point for each colour; an odd number for none.
    pub(super) dscp: [Asked; 3],
    pub(super) vlan_priority: Asked,
    pub(super) class: Asked,
    /// Non-zero if packets are dropped.
    pub(super) drop: Asked,
    /// Non-zero if red packets are dropped.
    pub(super) drop_red: Asked,
    pub(super) meter: Option<super::meter::Metering>,
}

/// Stands for no code point.
pub(super) const NO_DSCP: u32 = 1;
/// Stands for no VLAN priority.
pub(super) const NO_PRIORITY: u32 = 0xff;
/// Stands for no class: a minor number of 0xffff is that of a queueing discipline's root.
pub(super) const NO_CLASS: u32 = u32::MAX;

impl Effect {
    /// The effect of one action.
    pub(super) fn new(action: &Action) -> Self {
        let known = |number: Option<u64>| match number {
            Some(number) => Asked::Always(Value::Known(number)),
            None => Asked::Never,
        };
        let when = |holds: bool| known(holds.then_some(1));
        Self {
            slot: Value::Known(action.slot.0.into()),
            dscp: octets(action).map(|octet| known(octet.map(u64::from))),
            vlan_priority: known(action.vlan_priority.map(u64::from)),
            class: known(action.class.map(u64::from)),
            drop: when(action.drop),
            drop_red: when(action.meter.is_some_and(|meter| meter.drop_red)),
            meter: action.meter.map(|meter| super::meter::Metering::new(&meter)),
        }
    }
}

/// The octets of the code points for green, yellow and red packets.
pub(super) fn octets(action: &Action) -> [Option<u8>; 3] {
    let colours = action.meter.map_or([None; 3], |meter| meter.colours);
    colours.map(|colour| colour.or(action.dscp).map(|dscp| dscp.octet()))
}

impl Generator<'_> {
    /// Writes the code of the actions that chains of rules jump to.
    pub(super) fn code_of_actions(&mut self) {
        for ((layer, action), label) in self.asked_actions() {
            self.code.bind(label);
            let effect = Effect::new(&self.rules.actions[action]);
            self.act(layer, &effect);
        }
    }

    /// Writes the whole effect in its defined order, except for counting, which depends on the
    /// outcome.
    pub(super) fn act(&mut self, layer: Layer, effect: &Effect) {
        let dropped = self.code.label();
        if let Some(metering) = &effect.meter {
            self.meter(layer, effect, metering);
        }
        self.if_asked(effect.drop, dropped);
        if effect.drop_red != Asked::Never {
            let kept = self.code.label();
            self.take(R0, StackSlot::Colour);
            self.code.branch_with(NotEqual, R0, 2, kept);
            self.if_asked(effect.drop_red, dropped);
            self.code.bind(kept);
        }
        self.count(effect, false);
        self.mark(layer, effect);
        self.change_tag(effect.vlan_priority);
        self.classify(effect.class);
        self.code.jump(self.done);
        self.code.bind(dropped);
        self.count(effect, true);
        self.code.set(R0, SHOT);
        self.code.exit();
    }

    pub(super) fn number(&mut self, to: Register, value: Value) {
        match value {
            Value::Known(number) => self.code.set(to, number),
            Value::Recorded(size, offset) => self.code.load(size, to, R8, offset),
        }
    }

    fn if_asked(&mut self, asked: Asked, way: Label) {
        match asked {
            Asked::Never => {}
            Asked::Always(_) => self.code.jump(way),
            Asked::Unless(value, none) => {
                self.number(R0, value);
                self.code.branch32_with(NotEqual, R0, none, way);
            }
        }
    }

    /// Loads the value into `R0`, or jumps to `otherwise`. Returns whether there can be one.
    fn asked(&mut self, asked: Asked, otherwise: Label) -> bool {
        match asked {
            Asked::Never => return false,
            Asked::Always(value) => self.number(R0, value),
            Asked::Unless(value, none) => {
                self.number(R0, value);
                self.code.branch32_with(Equal, R0, none, otherwise);
            }
        }
        true
    }

    /// Counts the packet for its filter and its policy.
    fn count(&mut self, effect: &Effect, dropped: bool) {
        self.take(R0, StackSlot::Filter);
        self.count_in_slot(effect, dropped);
        self.number(R0, effect.slot);
        self.count_in_slot(effect, dropped);
    }

    /// Counts in slot `R0`. Only this CPU writes there, and nothing that sends packets interrupts
    /// it.
    fn count_in_slot(&mut self, effect: &Effect, dropped: bool) {
        let [none, several] = std::array::from_fn(|_| self.code.label());
        self.put(StackSlot::Segments, R0);
        self.find(COUNTERS, StackSlot::Segments.offset(), none);
        // Packets on the wire; at least one.
        self.context(R1, context::SEGMENTS);
        self.code.branch_with(NotEqual, R1, 0, several);
        self.code.set(R1, 1);
        self.code.bind(several);
        self.context(R2, context::WIRE_LENGTH);
        self.add(R0, 0, R1);
        self.add(R0, 8, R2);
        if dropped {
            self.add(R0, 16, R1);
            self.add(R0, 24, R2);
        }
        if effect.meter.is_some() {
            let uncoloured = self.code.label();
            self.take(R2, StackSlot::Colour);
            self.code.branch_with(Above, R2, 2, uncoloured);
            self.code.operate_with(ShiftLeft, R2, 3);
            self.code.operate(Add, R0, R2);
            self.add(R0, 32, R1);
            self.code.bind(uncoloured);
        }
        self.code.bind(none);
    }

    /// Adds to a 64-bit number in memory.
    fn add(&mut self, base: Register, offset: i16, number: Register) {
        self.code.load(Double, R3, base, offset);
        self.code.operate(Add, R3, number);
        self.code.store(Double, base, offset, R3);
    }

    /// Writes the code point for the packet's colour.
    fn mark(&mut self, layer: Layer, effect: &Effect) {
        let (Layer::V4 | Layer::V6, [green, yellow, red]) = (layer, effect.dscp) else {
            return;
        };
        if [green, yellow, red].iter().all(|asked| *asked == Asked::Never) {
            return;
        }
        let [written, unmarked] = std::array::from_fn(|_| self.code.label());
        if effect.meter.is_some() {
            self.take(R1, StackSlot::Colour);
            for (colour, asked) in [(1, yellow), (2, red)] {
                let other = self.code.label();
                self.code.branch_with(NotEqual, R1, colour, other);
                if self.asked(asked, unmarked) {
                    self.code.jump(written);
                } else {
                    self.code.jump(unmarked);
                }
                self.code.bind(other);
            }
        }
        if !self.asked(green, unmarked) {
            self.code.jump(unmarked);
        }
        self.code.bind(written);
        match layer {
            Layer::V4 => self.mark_v4(unmarked),
            _ => self.mark_v6(unmarked),
        }
        self.code.bind(unmarked);
    }

    /// Writes the octet in `R0` as the code point and updates the checksum by RFC 1624, equation 3,
    /// which holds in any byte order.
    fn mark_v4(&mut self, same: Label) {
        // Position of the octet in the header's first 16 bits.
        let (shift, rest) = if cfg!(target_endian = "little") { (8, 0x00ff) } else { (0, 0xff00) };
        self.code.load(Byte, R1, R7, 1);
        self.code.copy(R2, R1);
        self.code.operate_with(And, R2, 3);
        self.code.operate(Or, R2, R0);
        self.code.branch(Equal, R1, R2, same);
        self.code.load(Half, R4, R7, 0);
        self.code.copy(R5, R2);
        self.code.operate_with(ShiftLeft, R5, shift);
        self.code.copy(R3, R4);
        self.code.operate_with(And, R3, rest);
        self.code.operate(Or, R5, R3);
        self.code.operate_with(Xor, R4, 0xffff);
        self.code.load(Half, R3, R7, 10);
        self.code.operate_with(Xor, R3, 0xffff);
        self.code.operate(Add, R3, R4);
        self.code.operate(Add, R3, R5);
        for _ in 0..2 {
            self.code.copy(R4, R3);
            self.code.operate_with(ShiftRight, R4, 16);
            self.code.operate_with(And, R3, 0xffff);
            self.code.operate(Add, R3, R4);
        }
        self.code.operate_with(Xor, R3, 0xffff);
        self.code.store(Half, R7, 10, R3);
        self.code.store(Byte, R7, 1, R2);
    }

    /// Writes the octet in `R0` as the code point: the lower half of the first byte and the upper
    /// bits of the second.
    fn mark_v6(&mut self, same: Label) {
        self.code.load(Half, R1, R7, 0);
        self.code.copy(R2, R1);
        self.code.swap(R2, 16);
        self.code.operate_with(And, R2, 0xf03f);
        self.code.operate_with(ShiftLeft, R0, 4);
        self.code.operate(Or, R2, R0);
        self.code.swap(R2, 16);
        self.code.branch(Equal, R1, R2, same);
        self.code.store(Half, R7, 0, R2);
        if self.target.ingress {
            // The checksum of a device covers this header too.
            self.code.operate_with(Xor, R1, 0xffff);
            self.code.operate(Add, R2, R1);
            self.code.copy(R1, R6);
            self.code.call(Helper::ChecksumUpdate);
        }
    }

    /// Gives the outermost tag a priority; an untagged packet gets a tag of VLAN 0. The old tag is
    /// popped before the new one is pushed, as otherwise there would be two.
    fn change_tag(&mut self, priority: Asked) {
        let [same, untagged, push] = std::array::from_fn(|_| self.code.label());
        if !self.asked(priority, same) {
            return;
        }
        self.code.operate_with(ShiftLeft, R0, 13);
        self.code.copy(R7, R0);
        self.take(R1, StackSlot::Tci);
        self.code.branch_with(Equal, R1, NO_HALF as i32, untagged);
        self.code.copy(R2, R1);
        self.code.operate_with(And, R1, 0x1fff);
        self.code.operate(Or, R7, R1);
        self.code.branch(Equal, R7, R2, same);
        self.code.copy(R1, R6);
        self.code.call(Helper::VlanPop);
        self.take(R2, StackSlot::Tpid);
        self.code.jump(push);
        self.code.bind(untagged);
        self.code.set(R2, u64::from(0x8100_u16.to_be()));
        self.code.bind(push);
        self.code.copy(R1, R6);
        self.code.copy(R3, R7);
        self.code.call(Helper::VlanPush);
        self.code.bind(same);
    }

    fn classify(&mut self, class: Asked) {
        let none = self.code.label();
        if self.asked(class, none) {
            self.code.store(Word, R6, context::PRIORITY, R0);
        }
        self.code.bind(none);
    }

    /// The family whose header `R7` points to.
    pub(super) fn family_of(layer: Layer) -> Option<Family> {
        match layer {
            Layer::V4 => Some(Family::V4),
            Layer::V6 => Some(Family::V6),
            Layer::None => None,
        }
    }
}

/// `TC_ACT_SHOT`.
const SHOT: u64 = 2;

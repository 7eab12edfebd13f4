//! An assembler for eBPF (RFC 9669) with labels. It removes unreachable code, which the verifier
//! refuses, and splits jumps that are too far into two.

use super::Reference;

/// A register. `R10` is the frame pointer; calls clobber `R1` to `R5` and return in `R0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// Size of a load or store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    Byte = 0x10,
    Half = 0x08,
    Word = 0x00,
    Double = 0x18,
}

/// Arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Negate = 0x80,
    Xor = 0xa0,
    Move = 0xb0,
}

/// Unsigned comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    Equal = 0x10,
    Above = 0x20,
    AtLeast = 0x30,
    /// Any bit set in both.
    Bits = 0x40,
    NotEqual = 0x50,
    Below = 0xa0,
    AtMost = 0xb0,
}

/// A position in the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Label(usize);

/// Instructions under construction.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    items: Vec<Item>,
    /// The item at which each label stands.
    labels: Vec<Option<usize>>,
}

/// The finished code.
#[derive(Debug)]
pub(super) struct Assembled {
    pub(super) instructions: Vec<[u8; 8]>,
    pub(super) references: Vec<Reference>,
}

/// One instruction, or a pair that loads 64 bits.
#[derive(Debug, Clone, Copy)]
struct Item {
    code: u8,
    destination: Register,
    source: u8,
    offset: i16,
    immediate: i32,
    second: Option<i32>,
    target: Option<Label>,
    map: Option<(usize, Option<u32>)>,
}

impl Assembler {
    /// A new label, placed later by [`Assembler::bind`].
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places the label here.
    pub(super) fn bind(&mut self, label: Label) {
        debug_assert!(self.labels[label.0].is_none(), "bound twice");
        self.labels[label.0] = Some(self.items.len());
    }

    /// A new label placed here.
    pub(super) fn here(&mut self) -> Label {
        let label = self.label();
        self.bind(label);
        label
    }

    pub(super) fn copy(&mut self, to: Register, from: Register) {
        self.operate(Operation::Move, to, from);
    }

    /// Loads any constant, with one instruction if it fits.
    pub(super) fn set(&mut self, to: Register, value: u64) {
        if let Ok(small) = i32::try_from(value as i64) {
            self.operate_with(Operation::Move, to, small);
        } else if let Ok(word) = u32::try_from(value) {
            self.operate32_with(Operation::Move, to, word as i32);
        } else {
            let item = self.push(LOAD_64, to, 0, 0, value as u32 as i32);
            item.second = Some((value >> 32) as u32 as i32);
        }
    }

    /// A 64-bit operation with another register.
    pub(super) fn operate(&mut self, operation: Operation, to: Register, with: Register) {
        self.push(ALU64 | FROM_REGISTER | operation as u8, to, with as u8, 0, 0);
    }

    /// A 64-bit operation with a sign-extended constant.
    pub(super) fn operate_with(&mut self, operation: Operation, to: Register, with: i32) {
        self.push(ALU64 | operation as u8, to, 0, 0, with);
    }

    /// A 32-bit operation with a constant; the upper bits become zero.
    pub(super) fn operate32_with(&mut self, operation: Operation, to: Register, with: i32) {
        self.push(ALU32 | operation as u8, to, 0, 0, with);
    }

    /// Converts between network and host order; higher bits become zero.
    pub(super) fn swap(&mut self, register: Register, bits: i32) {
        self.push(ALU32 | FROM_REGISTER | 0xd0, register, 0, 0, bits);
    }

    pub(super) fn load(&mut self, size: Size, to: Register, base: Register, offset: i16) {
        self.push(LOAD | size as u8, to, base as u8, offset, 0);
    }

    pub(super) fn store(&mut self, size: Size, base: Register, offset: i16, from: Register) {
        self.push(STORE | size as u8, base, from as u8, offset, 0);
    }

    pub(super) fn store_constant(&mut self, size: Size, base: Register, offset: i16, value: i32) {
        self.push(STORE_CONSTANT | size as u8, base, 0, offset, value);
    }

    /// Stores `new` in the 32 bits at `base` if they equal `R0`; `R0` gets the old value.
    pub(super) fn compare_exchange32(&mut self, base: Register, offset: i16, new: Register) {
        self.push(ATOMIC32, base, new as u8, offset, 0xf1);
    }

    /// Exchanges the 32 bits at `base` with the register; a full barrier.
    pub(super) fn exchange32(&mut self, base: Register, offset: i16, value: Register) {
        self.push(ATOMIC32, base, value as u8, offset, 0xe1);
    }

    /// Loads the address of a map.
    pub(super) fn map(&mut self, to: Register, map: usize) {
        let item = self.push(LOAD_64, to, PSEUDO_MAP, 0, 0);
        (item.second, item.map) = (Some(0), Some((map, None)));
    }

    /// Loads an address inside the value of a map with one entry.
    pub(super) fn map_value(&mut self, to: Register, map: usize, offset: u32) {
        let item = self.push(LOAD_64, to, PSEUDO_MAP_VALUE, 0, 0);
        (item.second, item.map) = (Some(offset as i32), Some((map, Some(offset))));
    }

    pub(super) fn jump(&mut self, to: Label) {
        self.push(JUMP, Register::R0, 0, 0, 0).target = Some(to);
    }

    /// Branches on a 64-bit comparison of two registers.
    pub(super) fn branch(
        &mut self,
        condition: Condition,
        left: Register,
        right: Register,
        to: Label,
    ) {
        let code = JUMP | FROM_REGISTER | condition as u8;
        self.push(code, left, right as u8, 0, 0).target = Some(to);
    }

    /// Branches on a 64-bit comparison with a sign-extended constant.
    pub(super) fn branch_with(
        &mut self,
        condition: Condition,
        left: Register,
        right: i32,
        to: Label,
    ) {
        self.push(JUMP | condition as u8, left, 0, 0, right).target = Some(to);
    }

    /// Branches on a 32-bit comparison with a constant.
    pub(super) fn branch32_with(
        &mut self,
        condition: Condition,
        left: Register,
        right: u32,
        to: Label,
    ) {
        self.push(JUMP32 | condition as u8, left, 0, 0, right as i32).target = Some(to);
    }

    pub(super) fn call(&mut self, helper: Helper) {
        self.push(CALL, Register::R0, 0, 0, helper as i32);
    }

    pub(super) fn exit(&mut self) {
        self.push(EXIT, Register::R0, 0, 0, 0);
    }

    fn push(
        &mut self,
        code: u8,
        destination: Register,
        source: u8,
        offset: i16,
        immediate: i32,
    ) -> &mut Item {
        let item = Item::new(code, destination, source, offset, immediate);
        self.items.push(item);
        self.items.last_mut().expect("one was pushed")
    }
}

/// Kernel functions (`enum bpf_func_id`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Helper {
    MapLookup = 1,
    MapUpdate = 2,
    KtimeGetNs = 5,
    VlanPush = 18,
    VlanPop = 19,
    LoadBytes = 26,
    PullData = 39,
    ChecksumUpdate = 40,
    SocketUid = 47,
    AncestorCgroup = 83,
}

impl Assembler {
    /// The code in the kernel's format.
    pub(super) fn finish(mut self) -> Assembled {
        self.remove_unreachable();
        while self.remove_jumps_to_next() {}
        while self.lengthen_one() {}
        self.encode()
    }

    fn place(&self, label: Label) -> usize {
        self.labels[label.0].expect("each label that is jumped to is bound")
    }

    fn remove_unreachable(&mut self) {
        let mut reached = vec![false; self.items.len()];
        let mut open = vec![0];
        while let Some(at) = open.pop() {
            if at >= self.items.len() || std::mem::replace(&mut reached[at], true) {
                continue;
            }
            let item = &self.items[at];
            open.extend(item.target.map(|label| self.place(label)));
            if !matches!(item.code, JUMP | EXIT) {
                open.push(at + 1);
            }
        }
        self.keep(&reached);
    }

    /// Removes jumps to the next instruction; returns whether there were any.
    fn remove_jumps_to_next(&mut self) -> bool {
        let kept: Vec<bool> = (self.items.iter().enumerate())
            .map(|(at, item)| {
                item.code != JUMP || item.target.map(|label| self.place(label)) != Some(at + 1)
            })
            .collect();
        let all = kept.iter().all(|kept| *kept);
        self.keep(&kept);
        !all
    }

    fn keep(&mut self, kept: &[bool]) {
        let mut places = Vec::with_capacity(kept.len() + 1);
        let mut count = 0;
        for kept in kept {
            places.push(count);
            count += usize::from(*kept);
        }
        places.push(count);
        for label in self.labels.iter_mut().flatten() {
            *label = places[*label];
        }
        let mut kept = kept.iter();
        self.items.retain(|_| *kept.next().expect("one for each"));
    }

    /// Start of each item, counted in instructions, and the end.
    fn starts(&self) -> Vec<i64> {
        let mut starts = vec![0];
        for item in &self.items {
            starts.push(starts[starts.len() - 1] + 1 + i64::from(item.second.is_some()));
        }
        starts
    }

    /// Turns one conditional jump that is too far into a near one over an unconditional long jump
    /// (`gotol`).
    fn lengthen_one(&mut self) -> bool {
        let starts = self.starts();
        let far = (self.items.iter().enumerate()).position(|(at, item)| {
            let target = item.target.filter(|_| item.code != JUMP);
            target.is_some_and(|label| {
                i16::try_from(starts[self.place(label)] - starts[at + 1]).is_err()
            })
        });
        let Some(at) = far else { return false };
        // if … goto near; goto over; near: goto target; over:
        for label in self.labels.iter_mut().flatten() {
            *label += if *label > at { 2 } else { 0 };
        }
        let target = self.items[at].target;
        let (near, over) = (self.label(), self.label());
        (self.labels[near.0], self.labels[over.0]) = (Some(at + 2), Some(at + 3));
        self.items[at].target = Some(near);
        let jump = |target| Item { target, ..Item::new(JUMP, Register::R0, 0, 0, 0) };
        self.items.splice(at + 1..at + 1, [jump(Some(over)), jump(target)]);
        true
    }

    fn encode(&self) -> Assembled {
        let starts = self.starts();
        let mut assembled = Assembled {
            instructions: Vec::with_capacity(starts[self.items.len()] as usize),
            references: Vec::new(),
        };
        for (at, item) in self.items.iter().enumerate() {
            let mut item = *item;
            if let Some(label) = item.target {
                let distance = starts[self.place(label)] - starts[at + 1];
                match i16::try_from(distance) {
                    Ok(near) => item.offset = near,
                    Err(_) => (item.code, item.immediate) = (LONG_JUMP, distance as i32),
                }
            }
            if let Some((map, value_offset)) = item.map {
                assembled.references.push(Reference {
                    instruction: assembled.instructions.len(),
                    map,
                    value_offset,
                });
            }
            assembled.instructions.push(item.bytes());
            if let Some(second) = item.second {
                let [a, b, c, d] = second.to_ne_bytes();
                assembled.instructions.push([0, 0, 0, 0, a, b, c, d]);
            }
        }
        assembled
    }
}

impl Item {
    fn new(code: u8, destination: Register, source: u8, offset: i16, immediate: i32) -> Self {
        Self { code, destination, source, offset, immediate, second: None, target: None, map: None }
    }
    /// `struct bpf_insn`.
    fn bytes(&self) -> [u8; 8] {
        let destination = self.destination as u8;
        let registers = if cfg!(target_endian = "little") {
            destination | self.source << 4
        } else {
            destination << 4 | self.source
        };
        let [e, f] = self.offset.to_ne_bytes();
        let [a, b, c, d] = self.immediate.to_ne_bytes();
        [self.code, registers, e, f, a, b, c, d]
    }
}

const LOAD_64: u8 = 0x18;
const LOAD: u8 = 0x61;
const STORE: u8 = 0x63;
const STORE_CONSTANT: u8 = 0x62;
const ATOMIC32: u8 = 0xc3;
const ALU32: u8 = 0x04;
const ALU64: u8 = 0x07;
const JUMP: u8 = 0x05;
const JUMP32: u8 = 0x06;
/// `gotol`.
const LONG_JUMP: u8 = 0x06;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const FROM_REGISTER: u8 = 0x08;
const PSEUDO_MAP: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn exit_with(code: &mut Assembler, value: u64) {
        code.set(Register::R0, value);
        code.exit();
    }

    #[test]
    fn what_nothing_reaches_is_not_there() {
        let mut code = Assembler::default();
        let (end, dead) = (code.label(), code.label());
        code.jump(end);
        code.bind(dead);
        exit_with(&mut code, 1);
        code.jump(dead);
        code.bind(end);
        exit_with(&mut code, 2);
        let done = code.finish().instructions;
        assert_eq!(done.len(), 2);
        assert_eq!(done[0][4], 2);
    }

    #[test]
    fn a_branch_that_is_too_far_goes_over_a_long_jump() {
        let mut code = Assembler::default();
        let far = code.label();
        code.branch_with(Condition::Bits, Register::R1, 1, far);
        for _ in 0..40_000 {
            code.set(Register::R0, 5);
        }
        code.exit();
        code.bind(far);
        exit_with(&mut code, 2);
        let done = code.finish().instructions;
        assert_eq!(done.len(), 3 + 40_001 + 2);
        let [first, over, long] = [done[0], done[1], done[2]];
        assert_eq!((first[0], first[2]), (JUMP | Condition::Bits as u8, 1));
        assert_eq!((over[0], over[2]), (JUMP, 1));
        let distance = i32::from_ne_bytes([long[4], long[5], long[6], long[7]]);
        assert_eq!((long[0], distance), (LONG_JUMP, 40_001));
    }

    #[test]
    fn constants_take_the_shortest_form_that_holds_them() {
        let lengths = [0, 7, u64::MAX, 0x8000_0000, 1 << 40].map(|value| {
            let mut code = Assembler::default();
            code.set(Register::R3, value);
            code.exit();
            code.finish().instructions.len() - 1
        });
        assert_eq!(lengths, [1, 1, 1, 1, 2]);
    }

    #[test]
    fn references_name_the_instruction_behind_pairs() {
        let mut code = Assembler::default();
        code.set(Register::R1, 1 << 40);
        code.map(Register::R1, 1);
        code.map_value(Register::R2, 0, 64);
        code.exit();
        let references = code.finish().references;
        let expected = [(2, 1, None), (4, 0, Some(64))];
        assert_eq!(references.len(), 2);
        for (reference, (instruction, map, value_offset)) in references.iter().zip(expected) {
            let expected = Reference { instruction, map, value_offset };
            assert_eq!(*reference, expected);
        }
    }
}

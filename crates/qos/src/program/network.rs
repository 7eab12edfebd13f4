//! Parses IPv4 and IPv6 headers, and the transport's: ports, ICMP, TCP flags, and the segment
//! length of an offloaded packet.
//!
//! Most packets are read directly. Unusual ones (options, extension headers, fragments, headers
//! that are outside the packet's linear part or missing) take a slower path that asks the kernel
//! for bytes.

use Condition::{Above, AtLeast, Bits, Equal, NotEqual};
use Operation::{Add, And, ShiftLeft, ShiftRight, Sub};
use Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};
use Size::{Byte, Double, Half, Word};

use super::assembler::{Condition, Helper, Label, Operation, Register, Size};
use super::frame::{
    BUFFER, FIRST, FRAGMENT_KEY, LATER, NO_BYTE, NO_HALF, NO_LENGTH, StackSlot, context,
};
use super::generator::{FRAGMENTS, Generator, Layer, Needs};
use crate::packet::{EXTENSIONS, icmp};
use crate::policy::Family;
use crate::policy::words::{PROTOCOLS_WITH_PORTS, TCP, UDP};
use crate::rules::Field;

impl Generator<'_> {
    /// Handles an IPv4 header (RFC 791) at `R7`.
    pub(super) fn v4(&mut self) {
        let needs = self.needs(Family::V4);
        let [wrong, odd, slow, asked] = std::array::from_fn(|_| self.code.label());
        self.within(20, wrong);
        self.code.load(Byte, R1, R7, 0);
        if needs.transport() || needs.track {
            self.begin(&needs, Family::V4);
            self.code.branch_with(NotEqual, R1, 0x45, odd);
            self.code.load(Half, R2, R7, 6);
            self.code.branch_with(Bits, R2, i32::from(0x3fff_u16.to_be()), slow);
            self.code.load(Byte, R1, R7, 9);
            self.transport(&needs, Family::V4, 20, slow);
            self.code.jump(asked);
            self.code.bind(odd);
            self.check_v4(wrong);
            self.code.bind(slow);
            self.slow_v4(&needs, asked);
        } else {
            self.check_v4(wrong);
        }
        self.code.bind(asked);
        self.ask(Family::V4, Layer::V4);
        self.code.bind(wrong);
        self.ask(Family::V4, Layer::None);
    }

    /// Jumps to `wrong` unless the first byte, in `R1`, says version 4 and at least 5 words.
    fn check_v4(&mut self, wrong: Label) {
        self.code.operate32_with(Sub, R1, 0x45);
        self.code.branch32_with(Above, R1, 0x0a, wrong);
    }

    /// Handles packets with options, fragments, and those whose transport header is elsewhere.
    fn slow_v4(&mut self, needs: &Needs, asked: Label) {
        self.offset_of_network();
        self.code.load(Byte, R1, R7, 0);
        self.code.operate_with(And, R1, 0x0f);
        self.code.operate_with(ShiftLeft, R1, 2);
        self.code.operate(Add, R9, R1);
        self.code.load(Byte, R8, R7, 9);
        self.code.load(Half, R2, R7, 6);
        self.code.swap(R2, 16);
        let (whole, first) = (self.code.label(), self.code.label());
        self.code.operate_with(And, R2, 0x3fff);
        self.code.branch_with(Equal, R2, 0, whole);
        if needs.track {
            self.key_v4();
        }
        self.code.operate_with(And, R2, 0x1fff);
        self.code.branch_with(Equal, R2, 0, first);
        if needs.track {
            self.remembered(Family::V4, Layer::V4);
        }
        self.code.jump(asked);
        self.code.bind(first);
        if needs.track {
            self.put_constant(StackSlot::Fragment, FIRST as u32);
        }
        self.code.bind(whole);
        self.slow_transport(needs, Family::V4);
        self.code.jump(asked);
    }

    /// Sets the fields of a packet to their initial values.
    fn begin(&mut self, needs: &Needs, family: Family) {
        self.no_transport(needs);
        if needs.track {
            self.put_constant(StackSlot::Fragment, 0);
        }
        if needs.has(Field::Length) {
            let plain = self.code.label();
            let offset = if family == Family::V4 { 2 } else { 4 };
            self.code.load(Half, R2, R7, offset);
            self.code.swap(R2, 16);
            if family == Family::V6 {
                self.code.operate_with(Add, R2, 40);
            }
            self.put(StackSlot::Length, R2);
            self.context(R0, context::SEGMENT_SIZE);
            self.code.branch_with(Equal, R0, 0, plain);
            self.put_constant(StackSlot::Length, NO_LENGTH);
            self.code.bind(plain);
        }
    }

    /// Sets `R9` to the offset of `R7` in the packet.
    fn offset_of_network(&mut self) {
        self.code.copy(R9, R7);
        self.context(R0, context::DATA);
        self.code.operate(Sub, R9, R0);
    }

    /// Handles an IPv6 header (RFC 8200) at `R7`.
    pub(super) fn v6(&mut self) {
        let needs = self.needs(Family::V6);
        let [wrong, slow, asked, walk] = std::array::from_fn(|_| self.code.label());
        self.within(40, wrong);
        self.code.load(Byte, R1, R7, 0);
        self.code.operate_with(And, R1, 0xf0);
        self.code.branch_with(NotEqual, R1, 0x60, wrong);
        if needs.transport() || needs.track || needs.has(Field::Protocol) {
            self.begin(&needs, Family::V6);
            self.code.load(Byte, R1, R7, 6);
            self.if_in(R1, &EXTENSIONS, walk);
            self.put(StackSlot::Protocol, R1);
            self.transport(&needs, Family::V6, 40, slow);
            self.code.jump(asked);
            self.code.bind(slow);
            self.code.bind(walk);
            self.walk(&needs, asked);
        }
        self.code.bind(asked);
        self.ask(Family::V6, Layer::V6);
        self.code.bind(wrong);
        self.ask(Family::V6, Layer::None);
    }

    /// Skips extension headers: `R8` is the number of the next header, `R9` its position.
    fn walk(&mut self, needs: &Needs, asked: Label) {
        let [ended, known] = std::array::from_fn(|_| self.code.label());
        self.code.load(Byte, R8, R7, 6);
        self.offset_of_network();
        self.code.operate_with(Add, R9, 40);
        for _ in 0..MAX_EXTENSIONS {
            let extension = self.code.label();
            self.if_in(R8, &EXTENSIONS, extension);
            self.code.jump(known);
            self.code.bind(extension);
            self.load_bytes(8, ended);
            self.step(needs, asked);
        }
        self.code.bind(ended);
        // Still an extension: the upper layer is unknown.
        let nothing = self.code.label();
        self.if_in(R8, &EXTENSIONS, nothing);
        self.code.bind(known);
        self.put(StackSlot::Protocol, R8);
        self.slow_transport(needs, Family::V6);
        self.code.jump(asked);
        self.code.bind(nothing);
        self.put_constant(StackSlot::Protocol, NO_BYTE);
        self.code.jump(asked);
    }

    /// Skips one header, whose first eight bytes are in the buffer.
    fn step(&mut self, needs: &Needs, asked: Label) {
        let [fragment, authentication, next] = std::array::from_fn(|_| self.code.label());
        self.code.load(Byte, R1, R10, BUFFER + 1);
        self.code.branch_with(Equal, R8, FRAGMENT.into(), fragment);
        self.code.branch_with(Equal, R8, AUTHENTICATION.into(), authentication);
        self.code.operate_with(Add, R1, 1);
        self.code.operate_with(ShiftLeft, R1, 3);
        self.code.jump(next);
        self.code.bind(authentication);
        // RFC 4302, 2.2: counted in four bytes, less two.
        self.code.operate_with(Add, R1, 2);
        self.code.operate_with(ShiftLeft, R1, 2);
        self.code.jump(next);
        self.code.bind(fragment);
        self.fragment_header(needs, asked);
        self.code.set(R1, 8);
        self.code.bind(next);
        self.code.load(Byte, R8, R10, BUFFER);
        self.code.operate(Add, R9, R1);
    }

    /// RFC 8200, 4.5. A later fragment continues from here.
    fn fragment_header(&mut self, needs: &Needs, asked: Label) {
        let [whole, first] = std::array::from_fn(|_| self.code.label());
        if needs.track {
            self.put_constant(StackSlot::Fragment, 0);
        }
        self.code.load(Half, R2, R10, BUFFER + 2);
        self.code.swap(R2, 16);
        self.code.operate_with(And, R2, 0xfff9);
        self.code.branch_with(Equal, R2, 0, whole);
        if needs.track {
            self.key_v6();
        }
        self.code.operate_with(And, R2, 0xfff8);
        self.code.branch_with(Equal, R2, 0, first);
        self.code.load(Byte, R8, R10, BUFFER);
        self.later_v6(needs, asked);
        self.code.bind(first);
        if needs.track {
            self.put_constant(StackSlot::Fragment, FIRST as u32);
        }
        self.code.bind(whole);
    }

    /// Handles a later fragment of IPv6, which has a protocol but no transport header.
    fn later_v6(&mut self, needs: &Needs, asked: Label) {
        let [extension, known] = std::array::from_fn(|_| self.code.label());
        self.if_in(R8, &EXTENSIONS, extension);
        self.put(StackSlot::Protocol, R8);
        self.code.jump(known);
        self.code.bind(extension);
        self.put_constant(StackSlot::Protocol, NO_BYTE);
        self.code.bind(known);
        if needs.track {
            self.remembered(Family::V6, Layer::V6);
        }
        self.code.jump(asked);
    }

    /// Stores the key that all fragments of the packet share.
    fn key_v4(&mut self) {
        for word in [0, 4, 8, 16, 20, 24] {
            self.key_constant(word, 0);
        }
        for (from, to) in [(12, 12), (16, 28)] {
            self.code.load(Word, R1, R7, from);
            self.key(Word, to, R1);
        }
        self.code.load(Half, R1, R7, 4);
        self.key(Word, 32, R1);
        self.key_constant(36, 4);
        self.key(Byte, 37, R8);
    }

    fn key_v6(&mut self) {
        for (from, to) in [(8, 0), (16, 8), (24, 16), (32, 24)] {
            self.code.load(Double, R1, R7, from);
            self.key(Double, to, R1);
        }
        self.code.load(Word, R1, R10, BUFFER + 4);
        self.key(Word, 32, R1);
        self.key_constant(36, 6);
    }

    fn key(&mut self, size: Size, at: i16, value: Register) {
        self.code.store(size, R10, FRAGMENT_KEY + at, value);
    }

    fn key_constant(&mut self, at: i16, value: i32) {
        self.code.store_constant(Word, R10, FRAGMENT_KEY + at, value);
    }

    /// A later fragment gets the rule of the first, if known; otherwise it continues here.
    fn remembered(&mut self, family: Family, layer: Layer) {
        let unknown = self.code.label();
        self.put_constant(StackSlot::Fragment, LATER as u32);
        self.find(FRAGMENTS, FRAGMENT_KEY, unknown);
        self.code.load(Word, R9, R0, 0);
        let rules = self.rules.family(family).len();
        self.code.branch_with(AtLeast, R9, rules as i32, unknown);
        self.take_by_number(family, layer);
        self.code.bind(unknown);
    }

    /// Remembers the rule in `R9` if this is a first fragment.
    pub(super) fn remember(&mut self, family: Family) {
        if !self.needs(family).track {
            return;
        }
        let other = self.code.label();
        self.take(R0, StackSlot::Fragment);
        self.code.branch_with(NotEqual, R0, FIRST, other);
        self.put(StackSlot::Rule, R9);
        let map = self.map(FRAGMENTS);
        self.code.map(R1, map);
        self.address(R2, R10, FRAGMENT_KEY);
        self.address(R3, R10, StackSlot::Rule.offset());
        self.code.set(R4, 0);
        self.code.call(Helper::MapUpdate);
        self.code.bind(other);
    }

    /// Copies `bytes` of the packet from `R9` on into the buffer; jumps to `otherwise` if they do
    /// not exist.
    pub(super) fn load_bytes(&mut self, bytes: u64, otherwise: Label) {
        self.code.copy(R1, R6);
        self.code.copy(R2, R9);
        self.address(R3, R10, BUFFER);
        self.code.set(R4, bytes);
        self.code.call(Helper::LoadBytes);
        self.code.branch_with(NotEqual, R0, 0, otherwise);
    }

    /// Jumps to `way` if the register's number is in the list. Uses one branch for numbers below
    /// 64; changes `R3`.
    pub(super) fn if_in(&mut self, number: Register, list: &[u8], way: Label) {
        let (high, out) = (self.code.label(), self.code.label());
        let low: u64 = (list.iter().filter(|number| **number < 64)).map(|number| 1 << number).sum();
        self.code.branch_with(Above, number, 63, high);
        self.code.set(R3, low);
        self.code.operate(ShiftRight, R3, number);
        self.code.branch_with(Bits, R3, 1, way);
        self.code.jump(out);
        self.code.bind(high);
        for number_in in list.iter().filter(|number| **number >= 64) {
            self.code.branch_with(Equal, number, (*number_in).into(), way);
        }
        self.code.bind(out);
    }

    /// Sets the fields of a packet without a transport header.
    pub(super) fn no_transport(&mut self, needs: &Needs) {
        for (field, slot, none) in FIELDS {
            if needs.has(field) {
                self.put_constant(slot, none);
            }
        }
    }

    /// Reads the transport header `at` bytes after `R7`, by the protocol in `R1`; jumps to `slow`
    /// where direct access does not suffice.
    pub(super) fn transport(&mut self, needs: &Needs, family: Family, at: i16, slow: Label) {
        if needs.has(Field::Length) {
            self.context(R0, context::SEGMENT_SIZE);
            self.code.branch_with(NotEqual, R0, 0, slow);
        }
        if needs.ports() {
            let [with, without] = std::array::from_fn(|_| self.code.label());
            self.if_in(R1, &PROTOCOLS_WITH_PORTS, with);
            self.code.jump(without);
            self.code.bind(with);
            self.within(at + 4, slow);
            self.ports(needs, R7, at);
            self.code.bind(without);
        }
        if needs.icmp()
            && let Some(icmp) = icmp(family)
        {
            let without = self.code.label();
            self.code.branch_with(NotEqual, R1, icmp.into(), without);
            self.within(at + 2, slow);
            self.icmp(needs, R7, at);
            self.code.bind(without);
        }
        if needs.has(Field::TcpFlags) {
            let without = self.code.label();
            self.code.branch_with(NotEqual, R1, TCP.into(), without);
            self.within(at + 14, slow);
            self.flags(R7, at);
            self.code.bind(without);
        }
    }

    /// The same for the header at offset `R9`, by the protocol in `R8`, wherever the bytes are.
    pub(super) fn slow_transport(&mut self, needs: &Needs, family: Family) {
        if needs.ports() {
            let [with, without] = std::array::from_fn(|_| self.code.label());
            self.if_in(R8, &PROTOCOLS_WITH_PORTS, with);
            self.code.jump(without);
            self.code.bind(with);
            self.load_bytes(4, without);
            self.ports(needs, R10, BUFFER);
            self.code.bind(without);
        }
        if needs.icmp()
            && let Some(icmp) = icmp(family)
        {
            let without = self.code.label();
            self.code.branch_with(NotEqual, R8, icmp.into(), without);
            self.load_bytes(2, without);
            self.icmp(needs, R10, BUFFER);
            self.code.bind(without);
        }
        if needs.has(Field::TcpFlags) || needs.has(Field::Length) {
            self.slow_tcp(needs);
        }
    }

    fn slow_tcp(&mut self, needs: &Needs) {
        let [other, cut, udp, done] = std::array::from_fn(|_| self.code.label());
        self.code.branch_with(NotEqual, R8, TCP.into(), other);
        self.load_bytes(14, cut);
        if needs.has(Field::TcpFlags) {
            self.flags(R10, BUFFER);
        }
        if needs.has(Field::Length) {
            // The header's length in words, in the upper half of its byte.
            self.code.load(Byte, R2, R10, BUFFER + 12);
            self.code.operate_with(ShiftRight, R2, 4);
            self.code.operate_with(ShiftLeft, R2, 2);
            self.code.jump(udp);
        }
        self.code.bind(other);
        if needs.has(Field::Length) {
            self.code.set(R2, 8);
            self.code.branch_with(NotEqual, R8, UDP.into(), cut);
            self.code.bind(udp);
            self.segment(done);
        }
        self.code.bind(done);
        self.code.bind(cut);
    }

    /// Finds the length of a segment of an offloaded packet with `R2` bytes of transport header.
    fn segment(&mut self, done: Label) {
        self.context(R1, context::SEGMENT_SIZE);
        self.code.branch_with(Equal, R1, 0, done);
        self.code.operate(Add, R1, R2);
        self.code.operate(Add, R1, R9);
        self.context(R2, context::DATA);
        self.code.copy(R0, R7);
        self.code.operate(Sub, R0, R2);
        self.code.operate(Sub, R1, R0);
        self.put(StackSlot::Length, R1);
    }

    fn ports(&mut self, needs: &Needs, base: Register, at: i16) {
        for (field, slot, offset) in [
            (Field::SourcePort, StackSlot::SourcePort, 0),
            (Field::DestinationPort, StackSlot::DestinationPort, 2),
        ] {
            if needs.has(field) {
                self.code.load(Half, R2, base, at + offset);
                self.code.swap(R2, 16);
                self.put(slot, R2);
            }
        }
    }

    fn icmp(&mut self, needs: &Needs, base: Register, at: i16) {
        for (field, slot, offset) in
            [(Field::IcmpType, StackSlot::IcmpType, 0), (Field::IcmpCode, StackSlot::IcmpCode, 1)]
        {
            if needs.has(field) {
                self.code.load(Byte, R2, base, at + offset);
                self.put(slot, R2);
            }
        }
    }

    fn flags(&mut self, base: Register, at: i16) {
        self.code.load(Byte, R2, base, at + 13);
        self.put(StackSlot::TcpFlags, R2);
    }
}

const MAX_EXTENSIONS: usize = 8;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;

/// Fields of the transport header and the values that stand for none.
const FIELDS: [(Field, StackSlot, u32); 5] = [
    (Field::SourcePort, StackSlot::SourcePort, NO_HALF),
    (Field::DestinationPort, StackSlot::DestinationPort, NO_HALF),
    (Field::IcmpType, StackSlot::IcmpType, NO_BYTE),
    (Field::IcmpCode, StackSlot::IcmpCode, NO_BYTE),
    (Field::TcpFlags, StackSlot::TcpFlags, NO_BYTE),
];

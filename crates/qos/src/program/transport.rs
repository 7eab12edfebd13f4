//! Reads headers above IP: ports, ICMP, TCP flags, and the segment length of an offloaded packet.

use crate::packet::icmp;
use crate::policy::Family;
use crate::policy::words::{PROTOCOLS_WITH_PORTS, TCP, UDP};
use crate::rules::Field;

use super::assembler::{Condition, Label, Operation, Register, Size};
use super::frame::{BUFFER, NO_BYTE, NO_HALF, StackSlot, context};
use super::generator::{Generator, Needs};

use Condition::{Equal, NotEqual};
use Operation::{Add, ShiftLeft, ShiftRight, Sub};
use Register::{R0, R1, R2, R7, R8, R9, R10};
use Size::{Byte, Half};

impl Generator<'_> {
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

/// Fields of the transport header and the values that stand for none.
const FIELDS: [(Field, StackSlot, u32); 5] = [
    (Field::SourcePort, StackSlot::SourcePort, NO_HALF),
    (Field::DestinationPort, StackSlot::DestinationPort, NO_HALF),
    (Field::IcmpType, StackSlot::IcmpType, NO_BYTE),
    (Field::IcmpCode, StackSlot::IcmpCode, NO_BYTE),
    (Field::TcpFlags, StackSlot::TcpFlags, NO_BYTE),
];

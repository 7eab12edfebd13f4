//! The frame of a program: the layout of its stack and of the kernel's packet context, and the code
//! that finds the network layer.
//!
//! 32-bit numbers are at offsets of four more than a multiple of eight. There the verifier forgets
//! the range of a stored value, so a loaded value may be anything: it does not carry the outcome of
//! one comparison through all later ones, and a chain of rules is verified in linear time. It also
//! makes paths equal that differ only in constants.

use Condition::{AtLeast, AtMost, Equal, NotEqual};
use Operation::{Add, ShiftLeft, ShiftRight, Sub};
use Register::{R0, R1, R2, R3, R6, R7, R8, R10};
use Size::{Double, Half};

use super::assembler::{Condition, Helper, Label, Operation, Register, Size};
use super::generator::{Generator, Layer};
use crate::packet::LinkType;
use crate::policy::Family;
use crate::rules::Field;

/// A 32-bit number on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StackSlot {
    Protocol,
    SourcePort,
    DestinationPort,
    IcmpType,
    IcmpCode,
    TcpFlags,
    /// Tag control information of the outermost VLAN tag.
    Tci,
    /// Its EtherType, in network order.
    Tpid,
    EtherType,
    Length,
    Uid,
    /// 0 for whole packets, [`FIRST`], [`LATER`].
    Fragment,
    /// The filter's slot for counting.
    Filter,
    Colour,
    /// The colour of the packet on arrival.
    Precolour,
    /// The rule that matched.
    Rule,
    /// Segments, for the counters.
    Segments,
}

impl StackSlot {
    /// Its offset from the frame pointer.
    pub(super) const fn offset(self) -> i16 {
        -4 - 8 * (self as i16)
    }
}

/// A first fragment.
pub(super) const FIRST: i32 = 1;
/// A later fragment.
pub(super) const LATER: i32 = 2;

/// Buffer of 16 bytes for packet data the program cannot access directly.
pub(super) const BUFFER: i16 = -8 * 17 - 16;
/// Key of a fragmented packet: source and destination (16 bytes each), id (4), protocol, family, 2
/// bytes.
pub(super) const FRAGMENT_KEY: i16 = BUFFER - 40;
/// Addresses of the Ethernet header, 64 bits each.
pub(super) const fn mac(field: Field) -> i16 {
    match field {
        Field::SourceMac => FRAGMENT_KEY - 8,
        _ => FRAGMENT_KEY - 16,
    }
}
/// 64-bit numbers: addresses of table rows, or control group ids.
pub(super) const fn wide(number: usize) -> i16 {
    FRAGMENT_KEY - 24 - 8 * number as i16
}

/// Values of absent fields, outside their ranges.
pub(super) const NO_BYTE: u32 = 1 << 8;
pub(super) const NO_HALF: u32 = 1 << 16;
pub(super) const NO_LENGTH: u32 = u32::MAX;
pub(super) const NO_MAC: u64 = 1 << 48;

/// Offsets in `struct __sk_buff`.
pub(super) mod context {
    pub(in crate::program) const LENGTH: i16 = 0;
    pub(in crate::program) const MARK: i16 = 8;
    pub(in crate::program) const PROTOCOL: i16 = 16;
    pub(in crate::program) const VLAN_PRESENT: i16 = 20;
    pub(in crate::program) const VLAN_TCI: i16 = 24;
    pub(in crate::program) const VLAN_PROTOCOL: i16 = 28;
    pub(in crate::program) const PRIORITY: i16 = 32;
    pub(in crate::program) const INCOMING: i16 = 36;
    pub(in crate::program) const CB: [i16; 5] = [48, 52, 56, 60, 64];
    pub(in crate::program) const DATA: i16 = 76;
    pub(in crate::program) const DATA_END: i16 = 80;
    pub(in crate::program) const WIRE_LENGTH: i16 = 160;
    pub(in crate::program) const SEGMENTS: i16 = 164;
    pub(in crate::program) const SEGMENT_SIZE: i16 = 176;
}

// The network layer.

/// Where frames of each family continue.
struct Ways {
    v4: Label,
    v6: Label,
    /// With the EtherType in `R1`, in network order.
    other: Label,
    /// With the EtherType in its slot.
    asked: Label,
}

impl Generator<'_> {
    /// Finds the network layer and continues with the code of each family.
    pub(super) fn link_layer(&mut self) {
        let ways = Ways {
            v4: self.way(Family::V4),
            v6: self.way(Family::V6),
            other: self.way(Family::Other),
            asked: self.way(Family::Other),
        };
        if self.looks_at_tag() {
            self.tag_beside();
        }
        for field in MACS {
            if self.asks_for(field) {
                self.code.set(R0, NO_MAC);
                self.code.store(Double, R10, mac(field), R0);
            }
        }
        self.look();
        match self.target.link {
            LinkType::Ethernet => self.ethernet(&ways),
            LinkType::RawIp => self.raw(&ways),
        }
        if ways.other != self.unmatched {
            self.code.bind(ways.other);
            self.code.swap(R1, 16);
            self.put(StackSlot::EtherType, R1);
            self.code.bind(ways.asked);
            self.ask(Family::Other, Layer::None);
        }
        if ways.v4 != self.unmatched {
            self.code.bind(ways.v4);
            self.v4();
        }
        if ways.v6 != self.unmatched {
            self.code.bind(ways.v6);
            self.v6();
        }
    }

    /// A label for a family's code; a family without rules is skipped.
    fn way(&mut self, family: Family) -> Label {
        if self.rules.family(family).is_empty() { self.unmatched } else { self.code.label() }
    }

    /// Reads the tag that the kernel keeps beside the bytes.
    fn tag_beside(&mut self) {
        let none = self.code.label();
        self.put_constant(StackSlot::Tci, NO_HALF);
        self.put_constant(StackSlot::Tpid, 0);
        self.context(R0, context::VLAN_PRESENT);
        self.code.branch_with(Equal, R0, 0, none);
        self.context(R0, context::VLAN_TCI);
        self.put(StackSlot::Tci, R0);
        self.context(R0, context::VLAN_PROTOCOL);
        self.put(StackSlot::Tpid, R0);
        self.code.bind(none);
    }

    /// Sets `R7` and `R8` to the packet's data and end, with the headers inside.
    fn look(&mut self) {
        let link = match self.target.link {
            LinkType::Ethernet => 14 + 2 * 4,
            LinkType::RawIp => 0,
        };
        let network = if self.rules.v6.is_empty() { 20 } else { 40 };
        let window = link + network;
        let enough = self.code.label();
        self.data();
        self.address(R0, R7, window);
        self.code.branch(AtMost, R0, R8, enough);
        // A short packet, or one whose headers are in fragments of its buffer.
        self.context(R2, context::LENGTH);
        self.code.copy(R3, R8);
        self.code.operate(Sub, R3, R7);
        self.code.branch(AtLeast, R3, R2, enough);
        let short = self.code.label();
        self.code.branch_with(AtMost, R2, window.into(), short);
        self.code.set(R2, window as u64);
        self.code.bind(short);
        self.code.copy(R1, R6);
        self.code.call(Helper::PullData);
        self.data();
        self.code.bind(enough);
    }

    fn data(&mut self) {
        self.context(R7, context::DATA);
        self.context(R8, context::DATA_END);
    }

    fn ethernet(&mut self, ways: &Ways) {
        let cut = self.code.label();
        self.within(14, cut);
        self.macs();
        self.code.load(Half, R1, R7, 12);
        self.code.operate_with(Add, R7, 14);
        let tagged = self.code.label();
        self.by_type(ways, Some(tagged));
        self.code.jump(ways.other);
        self.code.bind(tagged);
        let again = self.code.label();
        self.tag(ways, Some(again));
        self.code.bind(again);
        self.tag(ways, None);
        self.code.bind(cut);
        self.put_constant(StackSlot::EtherType, NO_HALF);
        self.code.jump(ways.asked);
    }

    /// Reads those addresses of the Ethernet header at `R7` that rules test.
    fn macs(&mut self) {
        // Eight bytes that start or end with the six of the address.
        let places = [(0, None), (4, Some(16))];
        for (field, (at, front)) in MACS.into_iter().zip(places) {
            if !self.asks_for(field) {
                continue;
            }
            self.code.load(Double, R0, R7, at);
            self.code.swap(R0, 64);
            if let Some(bits) = front {
                self.code.operate_with(ShiftLeft, R0, bits);
            }
            self.code.operate_with(ShiftRight, R0, 16);
            self.code.store(Double, R10, mac(field), R0);
        }
    }

    /// Jumps by the EtherType in `R1`, or falls through.
    fn by_type(&mut self, ways: &Ways, tagged: Option<Label>) {
        let families = [(ETHERTYPE_V4, ways.v4), (ETHERTYPE_V6, ways.v6)];
        let tags = [VLAN, SERVICE_VLAN].map(|number| tagged.map(|way| (number, way)));
        for (number, way) in families.into_iter().chain(tags.into_iter().flatten()) {
            self.code.branch_with(Equal, R1, number.to_be().into(), way);
        }
    }

    /// Skips the tag at `R7`, whose own EtherType is in `R1`.
    fn tag(&mut self, ways: &Ways, again: Option<Label>) {
        self.within(4, ways.other);
        if self.looks_at_tag() {
            let known = self.code.label();
            self.take(R0, StackSlot::Tci);
            self.code.branch_with(NotEqual, R0, NO_HALF as i32, known);
            self.code.load(Half, R0, R7, 0);
            self.code.swap(R0, 16);
            self.put(StackSlot::Tci, R0);
            self.put(StackSlot::Tpid, R1);
            self.code.bind(known);
        }
        self.code.load(Half, R1, R7, 2);
        self.code.operate_with(Add, R7, 4);
        self.by_type(ways, again);
        self.code.jump(ways.other);
    }

    fn raw(&mut self, ways: &Ways) {
        self.context(R1, context::PROTOCOL);
        self.by_type(ways, None);
        self.code.jump(ways.other);
    }
}

const MACS: [Field; 2] = [Field::DestinationMac, Field::SourceMac];
const ETHERTYPE_V4: u16 = 0x0800;
const ETHERTYPE_V6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;

//! Layout of the program's stack and of the kernel's packet context.
//!
//! 32-bit numbers are at offsets of four more than a multiple of eight. There the verifier forgets
//! the range of a stored value, so a loaded value may be anything: it does not carry the outcome of
//! one comparison through all later ones, and a chain of rules is verified in linear time. It also
//! makes paths equal that differ only in constants.

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

//! What the program keeps on its stack, and where the kernel keeps what it knows of a packet.
//!
//! Numbers of 32 bits stand at offsets that are four more than a multiple of eight. There the
//! verifier forgets what it knew of a value that is stored, so what is loaded is any number:
//! comparisons with one field are not followed through all those that come after, and a chain of
//! rules is verified in linear time. It also makes paths equal that differ in constants only.

use crate::rules::Field;

/// A number of 32 bits on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
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
    /// Where the filter counts.
    Filter,
    Colour,
    /// The colour that the packet came with.
    Precolour,
    /// The rule that took it.
    Rule,
    /// Segments, for the counters.
    Segments,
}

impl Slot {
    /// Its offset from the frame pointer.
    pub(super) const fn offset(self) -> i16 {
        -4 - 8 * (self as i16)
    }
}

/// A first fragment.
pub(super) const FIRST: i32 = 1;
/// Another.
pub(super) const LATER: i32 = 2;

/// Bytes of packets that are not where the program can look: 16.
pub(super) const BUFFER: i16 = -8 * 17 - 16;
/// What all fragments of a packet share: source and destination (16 bytes each), id (4), protocol,
/// family, 2 bytes.
pub(super) const FRAGMENT_KEY: i16 = BUFFER - 40;
/// Addresses of the Ethernet header, 64 bits each.
pub(super) const fn mac(field: Field) -> i16 {
    match field {
        Field::SourceMac => FRAGMENT_KEY - 8,
        _ => FRAGMENT_KEY - 16,
    }
}
/// Sixty-four bits each: where rows of tables are, or ids of control groups.
pub(super) const fn wide(number: usize) -> i16 {
    FRAGMENT_KEY - 24 - 8 * number as i16
}

/// Values that fields have where a packet has none: outside their ranges.
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

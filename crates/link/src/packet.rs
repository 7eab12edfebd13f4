//! Descriptors of the packets that enter and leave a link, without their bytes.

use linerate_units::{Ecn, Nanos};

/// A packet offered to a link. Offloaded frames are split into their segments first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// The caller's handle for the bytes; the link only returns it.
    pub id: u64,
    /// Length from the IP header, bytes; the link's framing adds the rest.
    pub ip_bytes: u32,
    /// The packet's ECN codepoint.
    pub ecn: Ecn,
}

/// The link's immediate decision on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The packet is accepted; a [`Delivery`] will report its fate.
    Accepted,
    /// The packet does not fit and is not delivered; a router answers with this MTU, in bytes from
    /// the IP header.
    TooBig {
        /// The link's MTU.
        mtu: u32,
    },
    /// The packet is not delivered.
    Dropped(DropCause),
}

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropCause {
    /// Larger than the MTU.
    Mtu,
    /// Above the policer's rate and burst.
    Policer,
    /// Lost by the loss model.
    Loss,
    /// The queue was full.
    Queue,
    /// CoDel signalled congestion.
    Aqm,
}

/// The fate of an accepted packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// The handle given with the packet.
    pub id: u64,
    /// Time of the event, not after the `now` of the poll.
    pub at: Nanos,
    /// The event.
    pub fate: Fate,
    /// Whether this is the last event for `id`, so that its bytes may be freed.
    pub is_last: bool,
}

/// What happens to a packet that the link has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrives at the far end.
    Arrived {
        /// Whether this is the copy of a packet that has just arrived.
        is_duplicate: bool,
        /// Whether to set the ECN field to CE first.
        mark_ce: bool,
        /// The damage to make to this copy first.
        corruption: Option<Corruption>,
    },
    /// It was dropped after it had been accepted.
    Dropped(DropCause),
}

/// One bit to be flipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corruption {
    /// Index of the bit, from the most significant bit of the first byte of the IP header.
    pub bit: u32,
    /// Where the damage happened.
    pub place: CorruptionPlace,
}

/// Which checksums can detect the damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CorruptionPlace {
    /// On the wire, after the checksums were computed: the receiver can detect it.
    #[default]
    Wire,
    /// On the wire, but only in the payload of TCP or UDP: only their checksum can detect it.
    Payload,
    /// In the host, before the checksums were computed: they must be corrected, so that nothing can
    /// detect it.
    Host,
}

/// Counters of a link, in packets. At any time `offered = delivered − duplicated + dropped.total()
/// + in flight`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets given to the link.
    pub offered: u64,
    /// Arrivals at the far end, including copies.
    pub delivered: u64,
    /// Bytes of these arrivals, from the IP header.
    pub delivered_bytes: u64,
    /// These arrivals by their length.
    pub sizes: SizeCounts,
    /// Copies that the link made.
    pub duplicated: u64,
    /// Arrivals with a flipped bit.
    pub corrupted: u64,
    /// Packets that arrived after one that was sent later (RFC 4737, section 3.3); copies do not
    /// count.
    pub reordered: u64,
    /// Packets that CoDel marked, or found marked, instead of dropping them.
    pub marked: u64,
    /// Packets dropped, by cause.
    pub dropped: DropCounts,
}

/// Packets by their length in bytes, from the IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SizeCounts {
    /// Below 128: acknowledgements without data, and very small messages.
    pub below_128: u64,
    /// 128 to 511.
    pub from_128: u64,
    /// 512 to 1535: the default segments of RFC 879 (536 bytes), up to those of Ethernet.
    pub from_512: u64,
    /// 1536 or more.
    pub from_1536: u64,
}

impl SizeCounts {
    /// The sum.
    pub fn total(&self) -> u64 {
        self.below_128 + self.from_128 + self.from_512 + self.from_1536
    }

    pub(super) fn count(&mut self, ip_bytes: u32) {
        *match ip_bytes {
            0..128 => &mut self.below_128,
            128..512 => &mut self.from_128,
            512..1536 => &mut self.from_512,
            1536.. => &mut self.from_1536,
        } += 1;
    }
}

/// Packets dropped, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DropCounts {
    /// By the MTU, answered or not.
    pub mtu: u64,
    /// By the policer.
    pub policer: u64,
    /// By the loss model.
    pub loss: u64,
    /// By the full queue.
    pub queue: u64,
    /// By CoDel.
    pub aqm: u64,
}

impl DropCounts {
    /// The sum.
    pub fn total(&self) -> u64 {
        self.mtu + self.policer + self.loss + self.queue + self.aqm
    }

    pub(super) fn count(&mut self, cause: DropCause) {
        *match cause {
            DropCause::Mtu => &mut self.mtu,
            DropCause::Policer => &mut self.policer,
            DropCause::Loss => &mut self.loss,
            DropCause::Queue => &mut self.queue,
            DropCause::Aqm => &mut self.aqm,
        } += 1;
    }
}

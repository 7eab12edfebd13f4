//! What goes into a link and what comes out: descriptors of packets, never their bytes.

use linerate_units::{Ecn, Nanos};

/// A packet offered to a link. Segmentation-offload frames are cut to their segments first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// The caller's handle of the bytes; the link only gives it back.
    pub id: u64,
    /// Length from the IP header on; what the wire adds is the link's framing.
    pub ip_bytes: u32,
    /// The packet's ECN codepoint.
    pub ecn: Ecn,
}

/// What the link does with a packet at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The link has it; a [`Delivery`] will tell its fate.
    Accepted,
    /// It does not fit; a router answers with this MTU, in bytes from the IP header on. It will not
    /// be delivered.
    TooBig {
        /// The link's MTU.
        mtu: u32,
    },
    /// It will not be delivered.
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
    /// When it happened; not after the `now` of the poll that tells it.
    pub at: Nanos,
    /// What happened.
    pub fate: Fate,
    /// Whether this is the last word on `id`, so that its bytes may be freed.
    pub is_last: bool,
}

/// What becomes of a packet that the link had accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrives at the far end.
    Arrived {
        /// This is the copy of a packet that has just arrived.
        is_duplicate: bool,
        /// Set the ECN field to CE first.
        mark_ce: bool,
        /// Damage this copy first.
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

/// Whether checksums can see the damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CorruptionPlace {
    /// On the wire, after the checksums were computed: the receiver can tell.
    #[default]
    Wire,
    /// On the wire, but only in the payload of TCP or UDP: their checksum can tell, and nothing
    /// else can.
    Payload,
    /// In the host, before the checksums were computed: they are to be made right again, and
    /// nothing can tell.
    Host,
}

/// What a link did so far, in packets. At any time
/// `offered = delivered − duplicated + dropped.total() + in flight`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets given to the link.
    pub offered: u64,
    /// Arrivals at the far end, copies included.
    pub delivered: u64,
    /// Bytes of these arrivals, from the IP header on.
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

/// Packets by their length in bytes, from the IP header on.
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
    /// All of them.
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
    /// All drops.
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

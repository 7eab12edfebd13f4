//! TCP segments in fragments of IP packets: their lengths are put together, and the first one's
//! data is kept until then.

use linerate_units::Nanos;

use crate::segment::{Fragment, PacketId, Segment};

/// Packets whose fragments were seen in part.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    open: Vec<OpenPacket>,
    /// Fragments of packets that have never been complete.
    pub(crate) left_out: u64,
}

#[derive(Debug)]
struct OpenPacket {
    id: PacketId,
    at: Nanos,
    /// The first fragment, with its data beside it.
    head: Option<Fragment<'static>>,
    kept: Vec<u8>,
    /// Length of the whole payload, bytes.
    length: Option<u32>,
    /// Bytes seen.
    bytes: u32,
    fragments: u64,
    is_complete: bool,
}

impl Fragments {
    /// Adds a fragment. Returns the segment that it completes, at its own time, and apart from it
    /// what was kept of its data.
    pub(crate) fn add(&mut self, this: &Fragment<'_>) -> Option<(Segment<'static>, Vec<u8>)> {
        let mut packet = self.take(this);
        packet.fragments += 1;
        packet.bytes = packet.bytes.saturating_add(this.end - this.start);
        if let Some(head) = this.head.filter(|_| packet.head.is_none()) {
            packet.head = Some(Fragment { head: Some(Segment { kept: &[], ..head }), ..*this });
            packet.kept = head.kept.to_vec();
        }
        packet.length = packet.length.or(this.is_last.then_some(this.end));
        let is_new = !packet.is_complete;
        let whole = packet.head.zip(packet.length.filter(|length| packet.bytes >= *length));
        packet.is_complete |= whole.is_some();
        let kept = if packet.is_complete { std::mem::take(&mut packet.kept) } else { Vec::new() };
        if self.open.len() == MAX_OPEN {
            let oldest = self.open.remove(0);
            self.give_up(&oldest);
        }
        self.open.push(packet);
        let (first, length) = whole.filter(|_| is_new)?;
        let head = first.head?;
        let payload = head.payload.saturating_add(length).saturating_sub(first.end);
        Some((Segment { at: this.at, payload, ..head }, kept))
    }

    /// The packet of a fragment: the one begun, unless that was long ago or another with the same
    /// identification begins.
    fn take(&mut self, this: &Fragment<'_>) -> OpenPacket {
        let place = self.open.iter().position(|open| open.id == this.packet);
        let begun = place.map(|place| self.open.remove(place));
        let is_same = |open: &OpenPacket| {
            let number = |it: &Fragment<'_>| it.head.map(|head| (head.seq, head.ack, head.source));
            let is_other = open.head.is_some_and(|head| number(&head) != number(this));
            this.at.0.abs_diff(open.at.0) < LONGEST.0 && !(this.head.is_some() && is_other)
        };
        match begun {
            Some(open) if is_same(&open) => open,
            other => {
                other.iter().for_each(|open| self.give_up(open));
                OpenPacket {
                    id: this.packet,
                    at: this.at,
                    head: None,
                    kept: Vec::new(),
                    length: None,
                    bytes: 0,
                    fragments: 0,
                    is_complete: false,
                }
            }
        }
    }

    fn give_up(&mut self, packet: &OpenPacket) {
        self.left_out += if packet.is_complete { 0 } else { packet.fragments };
    }

    /// Fragments of packets that were never complete, at the end.
    pub(crate) fn finish(mut self) -> u64 {
        let open = std::mem::take(&mut self.open);
        open.iter().for_each(|packet| self.give_up(packet));
        self.left_out
    }
}

/// Packets that are open at a time: routers send the fragments of one after each other.
const MAX_OPEN: usize = 64;
/// Fragments of a packet come within this time; identifications may repeat after it.
const LONGEST: Nanos = Nanos(1_000_000_000);

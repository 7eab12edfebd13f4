//! Packets that a capture has more than once, and the order of sending that IP identifications tell.

use linerate_units::Nanos;

use crate::segment::{Segment, mixed};

/// The last packets of a direction.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    contents: Vec<u64>,
    recorded: Vec<Recorded>,
    next: usize,
    last: (u16, u64),
    /// Different packets came with the same identification: then it tells nothing.
    ids_repeat: bool,
}

/// Where and when a packet was recorded first.
#[derive(Debug, Clone, Copy)]
struct Recorded {
    place: u64,
    at: Nanos,
}

impl Copies {
    /// Whether the packet was recorded a moment before, on another interface or on the other side
    /// of a router: the same TCP header with the same IP identification or, where there is none,
    /// with another hop limit or other Ethernet addresses.
    pub(crate) fn has(&mut self, segment: &Segment<'_>) -> bool {
        let content = content(segment);
        let (id, before) = std::mem::replace(&mut self.last, (segment.ip_id, content));
        self.ids_repeat |= id == segment.ip_id && id != 0 && before != content;
        let has_id = segment.ip_id != 0 && !self.ids_repeat;
        let this = Recorded { place: segment.place, at: segment.at };
        let found = self.contents.iter().position(|known| *known == content);
        let is_copy = found.is_some_and(|place| {
            let first = self.recorded[place];
            this.at.0.abs_diff(first.at.0) < LATEST.0 && (has_id || first.place != this.place)
        });
        if !is_copy {
            self.keep(found, content, this);
        }
        is_copy
    }

    /// Keeps a packet in place of the one with the same content, or of the oldest.
    fn keep(&mut self, found: Option<usize>, content: u64, this: Recorded) {
        if found.is_none() && self.contents.len() < REMEMBERED {
            self.contents.push(content);
            self.recorded.push(this);
            return;
        }
        let place = found.unwrap_or_else(|| {
            self.next = (self.next + 1) % REMEMBERED;
            self.next
        });
        self.contents[place] = content;
        self.recorded[place] = this;
    }
}

fn content(segment: &Segment<'_>) -> u64 {
    let word = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    let (value, echo) = segment.options.timestamps.unwrap_or_default();
    let (from, to) = segment.options.sack[0].unwrap_or_default();
    let rest = word(segment.payload, u32::from(segment.window) << 16 | u32::from(segment.ip_id));
    let numbers = [word(segment.seq, segment.ack), word(value, echo), word(from, to), rest];
    mixed(numbers, segment.flags.into())
}

/// Whether a direction's IP identifications ascend, so that they tell the order of sending.
#[derive(Debug, Default)]
pub(crate) struct SendingOrder {
    last: u16,
    ascending: u32,
    other: u32,
}

impl SendingOrder {
    /// A segment of new data came in order.
    pub(crate) fn add(&mut self, id: u16) {
        let step = id.wrapping_sub(std::mem::replace(&mut self.last, id));
        if (1..FURTHEST_STEP).contains(&step) {
            self.ascending += 1;
        } else {
            self.other += 1;
        }
    }

    /// Whether the packet with identification `id` was sent before another; `None` if
    /// identifications do not tell.
    pub(crate) fn is_before(&self, id: u16, other: u16) -> Option<bool> {
        let ascends = self.ascending >= FEWEST_STEPS && self.other * 10 <= self.ascending;
        (ascends && id != other).then(|| (id.wrapping_sub(other) as i16) < 0)
    }
}

/// Packets of a direction that are remembered: more than are usually in a router's queue between.
const REMEMBERED: usize = 64;
/// A copy comes this soon; the shortest timeout of a retransmission is longer (RFC 1122 lets it
/// have the same identification).
const LATEST: Nanos = Nanos(150_000_000);
/// Packets of other connections between two of one, whose sender counts all of them.
const FURTHEST_STEP: u16 = 4096;
/// Identifications drawn at random ascend so far by chance in one of 16: never as often as this.
const FEWEST_STEPS: u32 = 8;

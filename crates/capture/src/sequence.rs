//! Sequence numbers without their wrap, and the gaps between them.

use linerate_units::Nanos;

/// The sequence number nearest to `near`, which it continues; 0 is the beginning of all.
pub(crate) fn unwrap(seq: u32, near: u64) -> u64 {
    let near = if near == 0 {
        BEGIN + u64::from(seq)
    } else {
        near
    };
    near.saturating_add_signed(i64::from(seq.wrapping_sub(near as u32) as i32))
}

/// Bytes that were jumped over.
#[derive(Debug, Clone, Copy)]
struct Hole {
    start: u64,
    end: u64,
    at: Nanos,
    value: Option<u32>,
}

/// The gaps of a direction, in order, a bounded number of them.
#[derive(Debug, Default)]
pub(crate) struct Holes(Vec<Hole>);

impl Holes {
    /// A segment that was sent with this timestamp jumped over these bytes.
    pub(crate) fn open(&mut self, start: u64, end: u64, at: Nanos, value: Option<u32>) {
        if self.0.len() < MAX_HOLES {
            self.0.push(Hole {
                start,
                end,
                at,
                value,
            });
        }
    }

    /// These bytes came. Whether they are late and were not sent again: by the sender's clock, or
    /// where that stands still, by the time since they were jumped over.
    pub(crate) fn fill(
        &mut self,
        start: u64,
        end: u64,
        at: Nanos,
        value: Option<u32>,
        late: Nanos,
    ) -> bool {
        let Some(place) = self.0.iter().position(|h| h.start < end && start < h.end) else {
            return false;
        };
        let hole = self.0.remove(place);
        let rest = [
            (hole.start, start.min(hole.end)),
            (end.max(hole.start), hole.end),
        ];
        for (start, end) in rest.into_iter().rev().filter(|(start, end)| start < end) {
            self.0.insert(place, Hole { start, end, ..hole });
        }
        let order = value
            .zip(hole.value)
            .map(|(this, later)| this.wrapping_sub(later) as i32);
        match order {
            Some(order) if order != 0 => order < 0,
            _ => at - hole.at < late,
        }
    }

    /// Bytes of gaps that the peer has and the capture has not.
    pub(crate) fn acknowledged(&mut self, ack: u64) -> u64 {
        let mut missing = 0;
        while let Some(hole) = self.0.first_mut().filter(|hole| hole.start < ack) {
            let end = hole.end.min(ack);
            missing += end - hole.start;
            hole.start = end;
            if hole.start == hole.end {
                self.0.remove(0);
            }
        }
        missing
    }
}

/// Room below for what was sent before the first segment that was seen.
const BEGIN: u64 = 1 << 32;
const MAX_HOLES: usize = 256;

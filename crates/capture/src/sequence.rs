//! Sequence numbers without wrap-around, and the gaps between them.

use linerate_units::Nanos;

/// The 64-bit number nearest to `near` that ends in `seq`; `near` 0 starts a new count.
pub(crate) fn unwrap(seq: u32, near: u64) -> u64 {
    let near = if near == 0 { BEGIN + u64::from(seq) } else { near };
    near.saturating_add_signed(i64::from(seq.wrapping_sub(near as u32) as i32))
}

/// Bytes that were skipped.
#[derive(Debug, Clone, Copy)]
struct Hole {
    start: u64,
    end: u64,
    at: Nanos,
    value: Option<u32>,
}

/// The gaps of a direction in order, a bounded number of them.
#[derive(Debug, Default)]
pub(crate) struct Holes(Vec<Hole>);

impl Holes {
    /// A segment sent with timestamp `value` skipped these bytes.
    pub(crate) fn open(&mut self, start: u64, end: u64, at: Nanos, value: Option<u32>) {
        if self.0.len() < MAX_HOLES {
            self.0.push(Hole { start, end, at, value });
        }
    }

    /// These bytes arrived. Returns whether they are merely late and not retransmitted: judged by
    /// the sender's timestamps or, where these are equal, by the time since they were skipped.
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
        let rest = [(hole.start, start.min(hole.end)), (end.max(hole.start), hole.end)];
        for (start, end) in rest.into_iter().rev().filter(|(start, end)| start < end) {
            self.0.insert(place, Hole { start, end, ..hole });
        }
        match value.zip(hole.value) {
            Some((this, later)) if this != later => (this.wrapping_sub(later) as i32) < 0,
            _ => at - hole.at < late,
        }
    }

    /// Removes gaps below `ack`; returns how many bytes the peer received that the capture missed.
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

/// Leaves room for data sent before the first segment seen.
const BEGIN: u64 = 1 << 32;
const MAX_HOLES: usize = 256;

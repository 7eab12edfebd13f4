//! What was sent again, and why; sequence numbers without wrap-around, and the gaps between them.

use linerate_units::Nanos;

use super::segment::Segment;

/// A retransmission.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retransmission {
    pub(crate) at: Nanos,
    pub(crate) start: u64,
    /// It is the last data sent so far.
    pub(crate) is_last: bool,
    /// Sequence number after the highest byte sent.
    pub(crate) highest: u64,
    pub(crate) segments: u64,
    pub(crate) bytes: u64,
    /// Bytes in flight.
    pub(crate) flight: u64,
    pub(crate) value: Option<u32>,
    /// The peer had acknowledged it before.
    pub(crate) is_acked: bool,
}

/// Retransmissions of a direction, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retransmitted {
    /// Segments of all kinds.
    pub segments: u64,
    /// Bytes.
    pub bytes: u64,
    /// Segments after duplicate acknowledgements or SACKs.
    pub fast: u64,
    /// Tail loss probes (RFC 8985, 7).
    pub probes: u64,
    /// Segments the peer already had: it had acknowledged them, reports them (DSACK) or acknowledges
    /// the first copy (timestamps, RFC 3522).
    pub spurious: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Time without progress before timeouts.
    pub waited: Nanos,
    /// Loss episodes, each of which made the sender slow down.
    pub episodes: u64,
}

impl Retransmitted {
    /// The difference from an earlier count.
    pub fn since(&self, then: &Self) -> Self {
        Self {
            segments: self.segments - then.segments,
            bytes: self.bytes - then.bytes,
            fast: self.fast - then.fast,
            probes: self.probes - then.probes,
            spurious: self.spurious - then.spurious,
            timeouts: self.timeouts - then.timeouts,
            waited: self.waited - then.waited,
            episodes: self.episodes - then.episodes,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecoveryKind {
    Fast,
    Timeout,
}

/// An episode of repair; it ends when everything in flight at its start is acknowledged.
#[derive(Debug, Clone, Copy)]
struct Episode {
    kind: RecoveryKind,
    until: u64,
    first: u64,
    value: Option<u32>,
}

/// Follows losses and their repair.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    episode: Option<Episode>,
    /// The last finished episode.
    before: Option<Episode>,
    duplicates: u32,
    /// Highest byte reported by a SACK.
    pub(crate) sacked: u64,
    /// Last time that new data was sent or acknowledged.
    progress: Nanos,
    acked: u64,
    /// Spurious segments that are counted, and which a DSACK may still report.
    unreported: u64,
    /// Timeouts since the last acknowledgement of any kind.
    pub(crate) unanswered: u64,
    pub(crate) counts: Retransmitted,
    /// Bytes in flight at the start of the first episodes.
    pub(crate) flights: Vec<u64>,
}

impl Recovery {
    pub(crate) fn is_on(&self) -> bool {
        self.episode.is_some()
    }

    pub(crate) fn sent(&mut self, at: Nanos) {
        self.progress = at;
    }

    /// A segment skipped these bytes, which were lost before the capture. If they follow directly
    /// on the end of an episode, they were in flight with it and belong to it.
    pub(crate) fn jump(&mut self, from: u64, to: u64) {
        let is_of = |episode: &Episode| episode.until == from;
        if let Some(episode) = self.episode.or(self.before).filter(is_of) {
            self.episode = Some(Episode { until: to, ..episode });
            // The last flight is that of this episode, unless there were too many to keep.
            if self.flights.len() as u64 == self.counts.episodes
                && let Some(flight) = self.flights.last_mut()
            {
                *flight += to - from;
            }
        }
    }

    pub(crate) fn handle_retransmission(&mut self, again: Retransmission) {
        self.counts.segments += again.segments;
        self.counts.bytes += again.bytes;
        if again.is_acked {
            self.counts.spurious += again.segments;
            self.unreported += again.segments;
            return;
        }
        let silent = again.at - self.progress;
        let is_told = self.duplicates >= 3 || self.sacked > again.start;
        let is_timeout = silent >= SHORTEST_TIMEOUT && again.start <= self.acked.max(1);
        self.progress = again.at;
        let kind = match self.episode {
            Some(episode) if is_timeout && again.start == episode.first => {
                self.time_out(silent);
                RecoveryKind::Timeout
            }
            Some(episode) => episode.kind,
            None if is_timeout && !is_told => RecoveryKind::Timeout,
            None if again.is_last && !is_told => {
                self.counts.probes += again.segments;
                return;
            }
            None => RecoveryKind::Fast,
        };
        if kind == RecoveryKind::Fast {
            self.counts.fast += again.segments;
        }
        if self.episode.is_none() {
            self.begin(kind, silent, again);
        }
    }

    fn begin(&mut self, kind: RecoveryKind, silent: Nanos, again: Retransmission) {
        self.counts.episodes += 1;
        if kind == RecoveryKind::Timeout {
            self.time_out(silent);
        }
        if self.flights.len() < MAX_FLIGHTS {
            self.flights.push(again.flight);
        }
        self.episode =
            Some(Episode { kind, until: again.highest, first: again.start, value: again.value });
    }

    fn time_out(&mut self, silent: Nanos) {
        self.counts.timeouts += 1;
        self.counts.waited = self.counts.waited + silent;
        self.unanswered += 1;
    }

    pub(crate) fn handle_ack(
        &mut self,
        segment: &Segment<'_>,
        ack: u64,
        next: u64,
        is_duplicate: bool,
        mss: u32,
    ) {
        self.unanswered = 0;
        let spurious = self.handle_sack(segment, ack, next, mss);
        if is_duplicate && !spurious {
            self.duplicates += 1;
        }
        if ack <= self.acked {
            return;
        }
        self.acked = ack;
        self.progress = segment.at;
        self.duplicates = 0;
        let Some(episode) = &mut self.episode else {
            return;
        };
        // It acknowledges the first copy, so the retransmission was spurious.
        let echo = segment.options.timestamps.map(|(_, echo)| echo);
        if let Some((sent, echo)) = episode.value.take().zip(echo)
            && ack > episode.first
            && (echo.wrapping_sub(sent) as i32) < 0
            && segment.options.sack[0].is_none()
            && !spurious
        {
            self.counts.spurious += 1;
        }
        if ack >= episode.until {
            self.before = self.episode.take();
        }
    }

    /// Returns whether it reports a duplicate (DSACK, RFC 2883).
    fn handle_sack(&mut self, segment: &Segment<'_>, ack: u64, next: u64, mss: u32) -> bool {
        let block = |place: usize| {
            let (start, end) = segment.options.sack[place]?;
            let start = unwrap_seq(start, next.max(1));
            Some((start, unwrap_seq(end, start.max(1)).max(start)))
        };
        let Some((start, end)) = block(0) else {
            return false;
        };
        let inside = block(1).is_some_and(|(from, to)| from <= start && end <= to && ack < start);
        let is_duplicate = end <= ack || inside;
        if is_duplicate {
            let bytes = (end - start).min(MAX_DUPLICATED);
            let segments = bytes.div_ceil(u64::from(mss.max(1)));
            let known = segments.min(self.unreported);
            self.unreported -= known;
            self.counts.spurious += segments - known;
        }
        let told = (0..4).filter_map(block).filter(|(_, end)| *end > ack);
        let highest = told.map(|(_, end)| end.min(next)).max().unwrap_or(0);
        self.sacked = self.sacked.max(highest);
        is_duplicate
    }
}

/// Linux waits at least 200 ms (`TCP_RTO_MIN`), less what its clock rounds off.
const SHORTEST_TIMEOUT: Nanos = Nanos(180_000_000);
const MAX_FLIGHTS: usize = 256;
/// Most bytes one DSACK may report.
const MAX_DUPLICATED: u64 = 1 << 20;

// Sequence numbers without wrap-around, and the gaps between them.

/// The 64-bit number nearest to `near` that ends in `seq`; `near` 0 starts a new count.
pub(crate) fn unwrap_seq(seq: u32, near: u64) -> u64 {
    let near = if near == 0 { BEGIN + u64::from(seq) } else { near };
    near.saturating_add_signed(i64::from(seq.wrapping_sub(near as u32) as i32))
}

/// Bytes that were skipped.
#[derive(Debug, Clone, Copy)]
struct Hole {
    start: u64,
    end: u64,
    by: Skipping,
}

/// The segment that skipped bytes: when it came, and its place in the order of sending.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Skipping {
    pub(crate) at: Nanos,
    pub(crate) value: Option<u32>,
    pub(crate) ip_id: u16,
}

/// The gaps of a direction in order, a bounded number of them.
#[derive(Debug, Default)]
pub(crate) struct Holes(Vec<Hole>);

impl Holes {
    /// A segment skipped these bytes.
    pub(crate) fn open(&mut self, start: u64, end: u64, by: Skipping) {
        if self.0.len() < MAX_HOLES {
            self.0.push(Hole { start, end, by });
        }
    }

    /// These bytes arrived. Returns how many of them were missing, and the segment that had skipped
    /// the first of them.
    pub(crate) fn fill(&mut self, start: u64, end: u64) -> Option<(u64, Skipping)> {
        let place = self.0.iter().position(|h| h.start < end && start < h.end)?;
        let hole = self.0.remove(place);
        let rest = [(hole.start, start.min(hole.end)), (end.max(hole.start), hole.end)];
        let mut missing = hole.end - hole.start;
        for (from, to) in rest.into_iter().rev().filter(|(from, to)| from < to) {
            missing -= to - from;
            self.0.insert(place, Hole { start: from, end: to, ..hole });
        }
        let beyond = if hole.end < end { self.fill(hole.end, end) } else { None };
        Some((missing + beyond.map_or(0, |(bytes, _)| bytes), hole.by))
    }

    /// Moves what is below `ack` to `missed`: the peer received it and the capture did not. Returns
    /// its bytes.
    pub(crate) fn acknowledged(&mut self, ack: u64, missed: &mut Self) -> u64 {
        let mut missing = 0;
        while let Some(hole) = self.0.first_mut().filter(|hole| hole.start < ack) {
            let end = hole.end.min(ack);
            missing += end - hole.start;
            missed.forget();
            missed.open(hole.start, end, hole.by);
            hole.start = end;
            if hole.start == hole.end {
                self.0.remove(0);
            }
        }
        missing
    }

    /// Forgets the first of so many gaps that no more would fit.
    pub(crate) fn forget(&mut self) {
        if self.0.len() == MAX_HOLES {
            self.0.drain(..MAX_HOLES / 2);
        }
    }
}

/// Leaves room for data sent before the first segment seen.
const BEGIN: u64 = 1 << 32;
const MAX_HOLES: usize = 256;

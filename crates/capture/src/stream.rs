//! The bytes that one end sends, and what comes back for them.

use std::collections::VecDeque;

use linerate_units::Nanos;

use crate::dissect::{ECE, FIN, SYN, Segment};
use crate::evenness::Course;
use crate::readings::{Readings, Round};
use crate::recovery::Recovery;
use crate::rtt::{Echo, Facts, Rtt};
use crate::sequence::{Holes, unwrap};

/// What the sender knew of its peer when it sent, as far as the capture tells.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    acked: u64,
    /// First byte beyond the window.
    edge: u64,
}

/// An acknowledgement that is on its way from the capture to the sender.
#[derive(Debug, Clone, Copy)]
struct OnItsWay {
    arrives: Nanos,
    value: Option<u32>,
    known: Known,
}

/// Sent and not yet acknowledged.
#[derive(Debug, Clone, Copy)]
struct Outstanding {
    end: u64,
    at: Nanos,
    is_retransmitted: bool,
}

/// One direction of a connection, followed segment by segment.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// First byte that the handshake leaves to the data.
    base: u64,
    /// First byte seen.
    first: Option<u64>,
    /// End of the highest byte seen.
    pub(crate) next: u64,
    /// Highest acknowledgement that passed the capture.
    seen_ack: u64,
    first_ack: Option<u64>,
    known: Known,
    on_their_way: VecDeque<OnItsWay>,
    outstanding: VecDeque<Outstanding>,
    holes: Holes,
    pub(crate) recovery: Recovery,
    pub(crate) rtt: Rtt,
    pub(crate) echo: Echo,
    pub(crate) readings: Readings,
    pub(crate) course: Course,
    /// The last new frame was of whole segments: the writer had more, most likely.
    has_more: bool,
    last_ack: Option<Nanos>,
    round: Round,
    /// Time up to which it is known what the sender did.
    pub(crate) until: Option<Nanos>,
    /// Sequence number, payload and IP's number of the last frame.
    last: Option<(u32, u32, u16)>,
    pub(crate) counts: Counts,
    /// Times with something outstanding, and with nothing although the window was open.
    pub(crate) busy: Nanos,
    pub(crate) idle: Nanos,
    pub(crate) window_limited: Nanos,
    pub(crate) zero_window: Nanos,
    /// First segment with data.
    pub(crate) began: Option<Nanos>,
    pub(crate) window: Window,
    pub(crate) sent_fin: bool,
}

/// What is counted of a direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments with data, those of offloaded frames each for itself.
    pub segments: u64,
    /// Frames with data.
    pub frames: u64,
    /// Acknowledgements that came back.
    pub acks: u64,
    /// Largest payload of a frame, bytes.
    pub largest_bytes: u32,
    /// Bytes that were acknowledged and are not in the capture.
    pub missing_bytes: u64,
    /// Segments that arrived after a later one, and were sent before it.
    pub reordered: u64,
    /// Frames that are in the capture twice.
    pub duplicated_frames: u64,
    /// Segments marked as having met congestion, or acknowledgements that tell of one.
    pub marked: u64,
    /// Times that the peer closed its window.
    pub zero_windows: u64,
}

/// The window that the peer offers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Window {
    /// Shift, once both ends' SYNs have told it.
    pub(crate) scale: Option<u8>,
    pub(crate) now: u64,
    pub(crate) largest: u64,
    is_zero: bool,
}

impl Stream {
    /// A segment of the sender. Whether its bytes are new.
    pub(crate) fn handle_data(&mut self, segment: &Segment, facts: &Facts) {
        let start = unwrap(segment.seq, self.near());
        self.sent_fin |= segment.flags & FIN != 0;
        if segment.payload == 0 || self.is_probe(start, segment.payload) {
            return;
        }
        if self.is_copy(segment) {
            self.counts.duplicated_frames += 1;
            return;
        }
        if self.near() > 0 && start > self.near() + LARGEST_JUMP {
            return;
        }
        self.learn(segment, facts);
        self.count(segment, facts);
        let first = *self.first.get_or_insert(start);
        if self.next == 0 {
            self.next = start;
            self.known.acked = self.known.acked.max(start);
        }
        if self.began.is_none() {
            self.began = Some(segment.at);
            self.until = Some(segment.at);
            self.round = Round::new(segment.at);
        }
        let end = start + u64::from(segment.payload);
        if end <= self.next || start < self.next {
            self.handle_old(start.max(first), end.min(self.next), segment, facts);
        }
        if end > self.next {
            self.handle_new(start, end, segment, facts);
        }
        self.mark_full(facts);
    }

    fn handle_new(&mut self, start: u64, end: u64, segment: &Segment, facts: &Facts) {
        if start > self.next {
            self.recovery.jump(self.next, start);
            self.holes
                .open(self.next, start, segment.at, value(segment));
        }
        self.next = end;
        self.has_more = segment.payload.is_multiple_of(facts.mss.max(1));
        let since_ack = self.last_ack.map(|last| segment.at - last);
        self.course
            .add(segment.at, end - start, since_ack, self.has_more);
        if self.outstanding.len() < MAX_OUTSTANDING {
            self.outstanding.push_back(Outstanding {
                end,
                at: segment.at,
                is_retransmitted: false,
            });
        }
        self.recovery.sent(segment.at);
    }

    /// Bytes below the highest: sent again, or late.
    fn handle_old(&mut self, start: u64, end: u64, segment: &Segment, facts: &Facts) {
        let bytes = end.saturating_sub(start);
        if bytes == 0 {
            return;
        }
        let late = self
            .rtt
            .smallest()
            .map_or(LATE, |rtt| Nanos(rtt.0 / 2).min(LATE));
        if self
            .holes
            .fill(start, end, segment.at, value(segment), late)
        {
            self.counts.reordered += 1;
            return;
        }
        let from = self.outstanding.partition_point(|sent| sent.end <= start);
        for sent in self.outstanding.iter_mut().skip(from) {
            sent.is_retransmitted = true;
            if sent.end >= end {
                break;
            }
        }
        let flight = self.next.saturating_sub(self.known.acked);
        let again = crate::recovery::Again {
            at: segment.at,
            start,
            is_last: end == self.next,
            highest: self.next,
            segments: segments(bytes, facts.mss),
            bytes,
            flight,
            value: value(segment),
        };
        self.recovery.handle_again(again);
    }

    /// An acknowledgement of the peer.
    pub(crate) fn handle_ack(&mut self, segment: &Segment, facts: &Facts, is_pure: bool) {
        let near = self.near();
        let ack = unwrap(segment.ack, near);
        if near > 0 && ack > near + LARGEST_JUMP {
            return;
        }
        self.first_ack.get_or_insert(ack);
        self.counts.acks += 1;
        self.last_ack = Some(segment.at);
        self.counts.marked += u64::from(segment.flags & ECE != 0);
        self.offer(segment);
        let advances = ack > self.seen_ack;
        if advances {
            self.acknowledge(ack, segment, facts);
        }
        let is_duplicate = is_pure && !advances && ack == self.seen_ack && ack < self.next;
        self.recovery
            .handle_ack(segment, ack, self.next, is_duplicate, facts.mss);
        let known = Known {
            acked: ack,
            edge: ack + self.window.now,
        };
        self.release_later(segment, known, facts);
    }

    fn acknowledge(&mut self, ack: u64, segment: &Segment, facts: &Facts) {
        let mut newest = None;
        while let Some(sent) = self.outstanding.front().filter(|sent| sent.end <= ack) {
            newest = Some(*sent);
            self.outstanding.pop_front();
        }
        // What was told of before arrived before.
        let is_timed = |sent: &Outstanding| {
            !sent.is_retransmitted && !self.recovery.is_on() && sent.end > self.recovery.sacked
        };
        if let Some(sent) = newest.filter(is_timed) {
            self.rtt.sample(segment.at - sent.at, self.echo.now(facts));
        }
        self.counts.missing_bytes += self.holes.acknowledged(ack);
        // The capture lost what this acknowledges, unless it is a FIN, which counts for one.
        if ack > self.next + 1 && self.next > 0 {
            self.counts.missing_bytes += ack - self.next;
            self.next = ack;
        }
        self.seen_ack = ack;
    }

    /// What the peer offers from here on; that of a SYN is not scaled (RFC 7323, 2.2).
    fn offer(&mut self, segment: &Segment) {
        let window = &mut self.window;
        let scale = window.scale.filter(|_| segment.flags & SYN == 0);
        window.now = u64::from(segment.window) << scale.unwrap_or(0);
        window.largest = window.largest.max(window.now);
        let is_zero = segment.window == 0;
        self.counts.zero_windows += u64::from(is_zero && !window.is_zero);
        window.is_zero = is_zero;
    }

    /// The sender learns of it at once, or when it gets there.
    fn release_later(&mut self, segment: &Segment, known: Known, facts: &Facts) {
        if facts.is_at_sender || self.on_their_way.len() >= MAX_ON_THEIR_WAY {
            self.on_their_way.clear();
            return self.release(known, segment.at, facts);
        }
        let way = self.echo.way(facts);
        self.echo.handle_ack(segment);
        self.on_their_way.push_back(OnItsWay {
            arrives: segment.at + way,
            value: value(segment),
            known,
        });
    }

    /// What the sender knew when it sent this: what it echoes, or what has had the time to get
    /// there.
    fn learn(&mut self, segment: &Segment, facts: &Facts) {
        let echoed = segment.options.timestamps.map(|(_, echo)| echo);
        self.echo.handle_data(segment, facts);
        while let Some(ack) = self.on_their_way.front().copied() {
            let echoed = echoed.zip(ack.value);
            let ticks = echoed.map(|(echo, value)| echo.wrapping_sub(value) as i32);
            // Those of one tick of its clock cannot be told apart but by the time.
            let is_known = match ticks {
                Some(ticks) if ticks != 0 => ticks > 0,
                _ => segment.at >= ack.arrives,
            };
            if !is_known {
                break;
            }
            self.on_their_way.pop_front();
            self.release(ack.known, ack.arrives.min(segment.at), facts);
        }
        self.advance(segment.at, facts);
    }

    fn release(&mut self, known: Known, at: Nanos, facts: &Facts) {
        self.advance(at, facts);
        self.known.acked = self.known.acked.max(known.acked);
        self.known.edge = self.known.edge.max(known.edge);
        // A window can shrink, too: its peer is told what is free now.
        if known.acked >= self.known.acked {
            self.known.edge = known.edge;
        }
    }

    /// Counts the time that passed with what was known.
    fn advance(&mut self, at: Nanos, facts: &Facts) {
        let Some(until) = self.until.filter(|until| at > *until) else {
            return;
        };
        let passed = at - until;
        self.until = Some(at);
        let outstanding = self.next.saturating_sub(self.known.acked) > 0;
        let open = self.known.edge.saturating_sub(self.next) > 0 || self.window.scale.is_none();
        // A pause after whole segments is the sender's own: a writer's last one is shorter.
        let paced = open && self.has_more && passed < PAUSE;
        if outstanding || paced {
            self.busy = self.busy + passed;
            self.round.busy = self.round.busy + passed;
        } else if open {
            self.idle = self.idle + passed;
            self.round.idle = self.round.idle + passed;
        } else {
            self.zero_window = self.zero_window + passed;
            self.busy = self.busy + passed;
            self.round.busy = self.round.busy + passed;
            self.round.is_full = true;
        }
        let rtt = self
            .rtt
            .smoothed()
            .map_or(SHORTEST_ROUND, |rtt| rtt.max(SHORTEST_ROUND));
        if at - self.round.began >= rtt {
            self.close_round(at, facts);
        }
    }

    fn close_round(&mut self, at: Nanos, facts: &Facts) {
        let round = std::mem::replace(&mut self.round, Round::new(at));
        if round.is_full {
            self.window_limited = self.window_limited + round.busy;
        }
        let echo = self.echo.take_step(facts);
        self.readings.add(
            &round,
            at,
            crate::readings::Now {
                bytes: self.delivered(),
                rtt: self.rtt.take_step(echo),
                window: self.window.now,
                retransmitted: self.recovery.counts,
                is_repairing: self.recovery.is_on(),
            },
        );
    }

    /// The window is full when not one more segment fits.
    fn mark_full(&mut self, facts: &Facts) {
        let flight = self.next.saturating_sub(self.known.acked);
        self.round.peak = self.round.peak.max(flight);
        let is_told = self.window.scale.is_some() && self.known.edge > 0;
        self.round.is_full |= is_told && self.next + u64::from(facts.mss) > self.known.edge;
    }

    fn count(&mut self, segment: &Segment, facts: &Facts) {
        let counts = &mut self.counts;
        counts.frames += 1;
        counts.segments += segments(segment.payload.into(), facts.mss);
        counts.largest_bytes = counts.largest_bytes.max(segment.payload);
        counts.marked += u64::from(segment.is_marked);
    }

    /// A sequence number near which all others are; 0 before the first.
    fn near(&self) -> u64 {
        if self.next > 0 {
            self.next
        } else {
            self.seen_ack.max(self.base)
        }
    }

    /// The sender's SYN.
    pub(crate) fn synchronise(&mut self, seq: u32) {
        if self.near() == 0 {
            self.base = unwrap(seq.wrapping_add(1), 0);
            self.known.acked = self.base;
        }
    }

    /// A probe of a silent connection: a byte that the peer has already.
    fn is_probe(&self, start: u64, payload: u32) -> bool {
        payload == 1 && self.next > 0 && start + 1 == self.next && self.seen_ack >= self.next
    }

    /// The same frame, captured on another interface as well.
    fn is_copy(&mut self, segment: &Segment) -> bool {
        let this = (segment.seq, segment.payload, segment.ip_id);
        let before = self.last.replace(this);
        before == Some(this) && segment.ip_id != 0
    }

    /// The capture is over.
    pub(crate) fn finish(&mut self, at: Nanos, facts: &Facts) {
        while let Some(ack) = self.on_their_way.pop_front() {
            self.release(ack.known, ack.arrives.min(at), facts);
        }
        if let Some(until) = self.until {
            self.close_round(until, facts);
        }
    }

    /// Payload that the peer has acknowledged so far, bytes; where no acknowledgement is seen, what
    /// was sent.
    fn delivered(&self) -> u64 {
        match (self.first, self.first_ack) {
            (Some(first), Some(_)) => self.seen_ack.saturating_sub(first).min(self.bytes()),
            _ => self.bytes(),
        }
    }

    /// Payload that went this way, bytes: what was acknowledged of it, where that is known.
    pub(crate) fn bytes(&self) -> u64 {
        let sent = self
            .first
            .map_or(0, |first| self.next.saturating_sub(first));
        let told = self
            .first_ack
            .map_or(0, |first| self.seen_ack.saturating_sub(first));
        if self.first.is_some() { sent } else { told }
    }
}

/// A frame of an offload is several.
fn segments(bytes: u64, mss: u32) -> u64 {
    bytes.div_ceil(u64::from(mss.max(1)))
}

fn value(segment: &Segment) -> Option<u32> {
    segment.options.timestamps.map(|(value, _)| value)
}

/// Sequence numbers do not jump further: the largest window is 1 GiB (RFC 7323, 2.3).
const LARGEST_JUMP: u64 = 1 << 30;
/// Segments of a direction that are waited for at once; those beyond give no RTT.
const MAX_OUTSTANDING: usize = 4096;
const MAX_ON_THEIR_WAY: usize = 1024;
/// What comes later than this behind the one after it is no reordering of the path.
const LATE: Nanos = Nanos(3_000_000);
/// Nobody paces so slowly.
const PAUSE: Nanos = Nanos(250_000_000);
/// Of hosts on one machine.
const SHORTEST_ROUND: Nanos = Nanos(100_000);

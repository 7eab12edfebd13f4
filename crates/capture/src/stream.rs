//! One direction of a connection: the bytes one end sends and their acknowledgements.

use std::collections::VecDeque;

use linerate_units::Nanos;

use crate::evenness::Course;
use crate::frames::{ECE, FIN, SYN, Segment};
use crate::recovery::{Holes, Recovery, Retransmission, unwrap_seq};
use crate::rtt::{Echo, Facts, Now, Readings, Round, Rtt};

/// What the sender knew of its peer when it sent, as far as the capture tells.
#[derive(Debug, Clone, Copy, Default)]
struct KnownWindow {
    acked: u64,
    /// First byte after the window.
    edge: u64,
}

/// An acknowledgement on its way from the capture to the sender.
#[derive(Debug, Clone, Copy)]
struct OnItsWay {
    arrives: Nanos,
    value: Option<u32>,
    known: KnownWindow,
}

/// A segment sent and not yet acknowledged.
#[derive(Debug, Clone, Copy)]
struct Outstanding {
    end: u64,
    at: Nanos,
    is_retransmitted: bool,
}

/// One direction of a connection, followed segment by segment.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Number of the first data byte, from the handshake.
    base: u64,
    /// First byte seen.
    first: Option<u64>,
    /// Number after the highest byte seen.
    pub(crate) next: u64,
    /// Highest acknowledgement that passed the capture.
    seen_ack: u64,
    first_ack: Option<u64>,
    known: KnownWindow,
    on_their_way: VecDeque<OnItsWay>,
    outstanding: VecDeque<Outstanding>,
    holes: Holes,
    pub(crate) recovery: Recovery,
    pub(crate) rtt: Rtt,
    pub(crate) echo: Echo,
    pub(crate) readings: Readings,
    pub(crate) course: Course,
    /// The last new frame consisted of whole segments, so the writer probably had more.
    has_more: bool,
    last_ack: Option<Nanos>,
    round: Round,
    /// Time up to which the sender's state is accounted for.
    pub(crate) until: Option<Nanos>,
    /// Sequence number, payload and IP identification of the last frame.
    last: Option<(u32, u32, u16)>,
    pub(crate) counts: Counts,
    /// Time with no data outstanding although the window was open.
    pub(crate) idle: Nanos,
    /// Time of the first segment with data.
    pub(crate) began: Option<Nanos>,
    pub(crate) window: Window,
    pub(crate) sent_fin: bool,
}

/// Counters of a direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments with data, counting each segment of an offloaded frame.
    pub segments: u64,
    /// Frames with data.
    pub frames: u64,
    /// Acknowledgements that came back.
    pub acks: u64,
    /// Largest payload of a frame, bytes.
    pub largest_bytes: u32,
    /// Bytes acknowledged but missing from the capture.
    pub missing_bytes: u64,
    /// Segments overtaken by a later one.
    pub reordered: u64,
    /// Segments with a congestion mark, or acknowledgements that echo one (ECN).
    pub marked: u64,
}

/// The window the peer offers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Window {
    /// Shift, once it is known from both ends' SYNs.
    pub(crate) scale: Option<u8>,
    pub(crate) now: u64,
    pub(crate) largest: u64,
}

impl Stream {
    /// Handles a segment of the sender.
    pub(crate) fn handle_data(&mut self, segment: &Segment, facts: &Facts) {
        let start = unwrap_seq(segment.seq, self.near());
        self.sent_fin |= segment.flags & FIN != 0;
        let is_empty = segment.payload == 0 || self.is_probe(start, segment.payload);
        if is_empty || self.is_copy(segment) {
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
            let value = value(segment);
            self.holes.open(self.next, start, segment.at, value);
        }
        self.next = end;
        self.has_more = segment.payload.is_multiple_of(facts.mss.max(1));
        let since_ack = self.last_ack.map(|last| segment.at - last);
        self.course.add(segment.at, end - start, since_ack, self.has_more);
        if self.outstanding.len() < MAX_OUTSTANDING {
            self.outstanding.push_back(Outstanding {
                end,
                at: segment.at,
                is_retransmitted: false,
            });
        }
        self.recovery.sent(segment.at);
    }

    /// Bytes below the highest: retransmitted or late.
    fn handle_old(&mut self, start: u64, end: u64, segment: &Segment, facts: &Facts) {
        let bytes = end.saturating_sub(start);
        if bytes == 0 {
            return;
        }
        let rtt = self.rtt.smallest();
        let late = rtt.map_or(LATE, |rtt| Nanos(rtt.0 / 2).min(LATE));
        let value = value(segment);
        if self.holes.fill(start, end, segment.at, value, late) {
            return self.counts.reordered += 1;
        }
        let from = self.outstanding.partition_point(|sent| sent.end <= start);
        for sent in self.outstanding.iter_mut().skip(from) {
            sent.is_retransmitted = true;
            if sent.end >= end {
                break;
            }
        }
        self.recovery.handle_retransmission(Retransmission {
            at: segment.at,
            start,
            is_last: end == self.next,
            highest: self.next,
            segments: segments(bytes, facts.mss),
            bytes,
            flight: self.flight(),
            value,
        });
    }

    /// An acknowledgement of the peer.
    pub(crate) fn handle_ack(&mut self, segment: &Segment, facts: &Facts, is_pure: bool) {
        let near = self.near();
        let ack = unwrap_seq(segment.ack, near);
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
        self.recovery.handle_ack(segment, ack, self.next, is_duplicate, facts.mss);
        let known = KnownWindow { acked: ack, edge: ack + self.window.now };
        self.release_later(segment, known, facts);
    }

    fn acknowledge(&mut self, ack: u64, segment: &Segment, facts: &Facts) {
        let mut newest = None;
        while let Some(sent) = self.outstanding.front().filter(|sent| sent.end <= ack) {
            newest = Some(*sent);
            self.outstanding.pop_front();
        }
        // Data reported by an earlier SACK arrived earlier and gives no sample.
        let is_timed = |sent: &Outstanding| {
            !sent.is_retransmitted && !self.recovery.is_on() && sent.end > self.recovery.sacked
        };
        if let Some(sent) = newest.filter(is_timed) {
            self.rtt.sample(segment.at - sent.at, self.echo.now(facts));
        }
        self.counts.missing_bytes += self.holes.acknowledged(ack);
        // The capture missed what this acknowledges, unless it is a FIN, which counts as one byte.
        if ack > self.next + 1 && self.next > 0 {
            self.counts.missing_bytes += ack - self.next;
            self.next = ack;
        }
        self.seen_ack = ack;
    }

    /// Notes the window offered; that of a SYN is not scaled (RFC 7323, 2.2).
    fn offer(&mut self, segment: &Segment) {
        let window = &mut self.window;
        let scale = window.scale.filter(|_| segment.flags & SYN == 0);
        window.now = u64::from(segment.window) << scale.unwrap_or(0);
        window.largest = window.largest.max(window.now);
    }

    /// The sender learns of an acknowledgement at once or when it arrives there.
    fn release_later(&mut self, segment: &Segment, known: KnownWindow, facts: &Facts) {
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

    /// Works out which acknowledgements the sender had when it sent this segment: those it echoes
    /// or those that had time to arrive.
    fn learn(&mut self, segment: &Segment, facts: &Facts) {
        let echoed = segment.options.timestamps.map(|(_, echo)| echo);
        self.echo.handle_data(segment, facts);
        while let Some(ack) = self.on_their_way.front().copied() {
            let echoed = echoed.zip(ack.value);
            let ticks = echoed.map(|(echo, value)| echo.wrapping_sub(value) as i32);
            // Within one tick of the clock only the time tells.
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

    fn release(&mut self, known: KnownWindow, at: Nanos, facts: &Facts) {
        self.advance(at, facts);
        self.known.acked = self.known.acked.max(known.acked);
        self.known.edge = self.known.edge.max(known.edge);
        // A window may also shrink: the newest acknowledgement says what is free now.
        if known.acked >= self.known.acked {
            self.known.edge = known.edge;
        }
    }

    /// Accounts for the time until `at` with what the sender knew.
    fn advance(&mut self, at: Nanos, facts: &Facts) {
        let Some(until) = self.until.filter(|until| at > *until) else {
            return;
        };
        let passed = at - until;
        self.until = Some(at);
        let outstanding = self.flight() > 0;
        let open = self.known.edge.saturating_sub(self.next) > 0 || self.window.scale.is_none();
        // A short pause after whole segments is the sender's pacing: a writer that stops ends with
        // a short segment.
        let paced = open && self.has_more && passed < PAUSE;
        let is_busy = outstanding || paced;
        if !is_busy && open {
            self.idle = self.idle + passed;
            self.round.idle = self.round.idle + passed;
        }
        self.round.is_full |= !is_busy && !open;
        let rtt = self.rtt.smoothed().unwrap_or_default();
        if at - self.round.began >= rtt.max(SHORTEST_ROUND) {
            self.close_round(at, facts);
        }
    }

    fn close_round(&mut self, at: Nanos, facts: &Facts) {
        let round = std::mem::replace(&mut self.round, Round::new(at));
        let echo = self.echo.take_step(facts);
        let now = Now {
            bytes: self.delivered(),
            rtt: self.rtt.take_step(echo),
            window: self.window.now,
            retransmitted: self.recovery.counts,
            is_repairing: self.recovery.is_on(),
        };
        self.readings.add(&round, at, now);
    }

    /// The window is full when not one more segment fits into it.
    fn mark_full(&mut self, facts: &Facts) {
        self.round.peak = self.round.peak.max(self.flight());
        let is_told = self.window.scale.is_some() && self.known.edge > 0;
        self.round.is_full |= is_told && self.next + u64::from(facts.mss) > self.known.edge;
    }

    /// Bytes in flight, as far as the sender knew.
    fn flight(&self) -> u64 {
        self.next.saturating_sub(self.known.acked)
    }

    fn count(&mut self, segment: &Segment, facts: &Facts) {
        let counts = &mut self.counts;
        counts.frames += 1;
        counts.segments += segments(segment.payload.into(), facts.mss);
        counts.largest_bytes = counts.largest_bytes.max(segment.payload);
        counts.marked += u64::from(segment.is_marked);
    }

    /// Reference for `unwrap_seq`; 0 before the first number.
    fn near(&self) -> u64 {
        if self.next > 0 { self.next } else { self.seen_ack.max(self.base) }
    }

    /// Notes the sequence number of the sender's SYN.
    pub(crate) fn synchronise(&mut self, seq: u32) {
        if self.near() == 0 {
            self.base = unwrap_seq(seq.wrapping_add(1), 0);
            self.known.acked = self.base;
        }
    }

    /// A keep-alive probe: one byte that the peer already has.
    fn is_probe(&self, start: u64, payload: u32) -> bool {
        payload == 1 && self.next > 0 && start + 1 == self.next && self.seen_ack >= self.next
    }

    /// Whether the segment is a frame captured on a second interface.
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

    /// Payload the peer has acknowledged so far, or, if no acknowledgement was seen, what was sent,
    /// bytes.
    fn delivered(&self) -> u64 {
        match (self.first, self.first_ack) {
            (Some(first), Some(_)) => self.seen_ack.saturating_sub(first).min(self.bytes()),
            _ => self.bytes(),
        }
    }

    /// Payload sent; if none was seen, what the peer acknowledged, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        match (self.first, self.first_ack) {
            (Some(first), _) => self.next.saturating_sub(first),
            (None, Some(first)) => self.seen_ack.saturating_sub(first),
            (None, None) => 0,
        }
    }
}

/// The number of segments in an offloaded frame.
fn segments(bytes: u64, mss: u32) -> u64 {
    bytes.div_ceil(u64::from(mss.max(1)))
}

fn value(segment: &Segment) -> Option<u32> {
    segment.options.timestamps.map(|(value, _)| value)
}

/// Sequence numbers jump less than the largest window, 1 GiB (RFC 7323, 2.3).
const LARGEST_JUMP: u64 = 1 << 30;
/// Outstanding segments tracked per direction; more give no RTT samples.
const MAX_OUTSTANDING: usize = 4096;
const MAX_ON_THEIR_WAY: usize = 1024;
/// A segment overtaken by more than this is not reordering.
const LATE: Nanos = Nanos(3_000_000);
/// Longest pause that can be pacing.
const PAUSE: Nanos = Nanos(250_000_000);
/// Lower limit, for hosts on the same machine.
const SHORTEST_ROUND: Nanos = Nanos(100_000);

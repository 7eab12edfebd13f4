//! One direction of a connection: the bytes one end sends and their acknowledgements.

use std::collections::VecDeque;

use linerate_units::Nanos;

use crate::copies::SendingOrder;
use crate::evenness::Course;
use crate::recovery::{Holes, Recovery, Retransmission, Skipping, unwrap_seq};
use crate::rtt::{Echo, Facts, Now, Readings, Round, Rtt};
use crate::segment::{ACK, ECE, FIN, SYN, Segment};

/// What the sender knew of its peer when it sent, as far as the capture tells.
#[derive(Debug, Clone, Copy, Default)]
struct KnownWindow {
    acked: u64,
    /// First byte after the window.
    edge: u64,
    /// A window of zero, which needs no scale.
    is_closed: bool,
    /// It came with data of the peer.
    is_with_data: bool,
    /// It waited for that data.
    is_late: bool,
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

/// The times of a direction by what the sender did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    /// With nothing outstanding although the window was open.
    pub(crate) idle: Nanos,
    /// The part of it that the peer ended with data of its own.
    pub(crate) asked: Nanos,
    /// The peer offered no window.
    pub(crate) closed: Nanos,
    /// With data in flight.
    pub(crate) in_flight: Nanos,
}

impl Times {
    fn add(&mut self, other: Self) {
        self.idle = self.idle + other.idle;
        self.asked = self.asked + other.asked;
        self.closed = self.closed + other.closed;
        self.in_flight = self.in_flight + other.in_flight;
    }
}

/// One direction of a connection, followed segment by segment.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Number of the first data byte, from the handshake.
    base: u64,
    /// First byte seen.
    first: Option<u64>,
    /// Number after the highest byte seen.
    next: u64,
    /// Number of its FIN, which is no byte.
    fin: Option<u64>,
    /// End of a byte beyond a closed window, which the peer may not have taken.
    probe: Option<u64>,
    /// Highest acknowledgement that passed the capture.
    seen_ack: u64,
    first_ack: Option<u64>,
    known: KnownWindow,
    on_their_way: VecDeque<OnItsWay>,
    outstanding: VecDeque<Outstanding>,
    holes: Holes,
    /// Bytes that were acknowledged without having been seen.
    missed: Holes,
    order: SendingOrder,
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
    until: Option<Nanos>,
    /// Times since the last progress, which count if there is another.
    pending: Times,
    pub(crate) counts: Counts,
    pub(crate) times: Times,
    /// Time of the first segment with data; if none was seen, of the first acknowledgement of some.
    pub(crate) began: Option<Nanos>,
    /// Last time that new data was sent or acknowledged.
    pub(crate) progress: Nanos,
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
    /// Frames of new data in the order of sending.
    pub new_frames: u64,
    /// Frames of new data sent while nothing was in flight.
    pub alone: u64,
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
    /// Times that the peer's window closed.
    pub zero_windows: u64,
    /// Bytes sent to probe a closed window.
    pub window_probes: u64,
}

/// The window the peer offers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Window {
    /// Shift, once it is known from both ends' SYNs.
    pub(crate) scale: Option<u8>,
    pub(crate) now: u64,
    pub(crate) largest: u64,
    is_closed: bool,
}

impl Stream {
    /// Handles a segment of the sender.
    pub(crate) fn handle_data(&mut self, segment: &Segment<'_>, facts: &Facts) {
        let [start, end] = self.bytes_of(segment);
        if self.near() > 0 && start > self.near() + LARGEST_JUMP {
            return;
        }
        if segment.flags & FIN != 0 {
            self.sent_fin = true;
            self.fin = Some(end);
        }
        if segment.payload == 0 || self.is_keep_alive(start, segment.payload) {
            return;
        }
        self.learn(segment, facts);
        if self.is_window_probe(start, segment.payload) {
            self.counts.window_probes += 1;
            self.probe = Some(end);
            return self.go_on(segment.at, facts);
        }
        self.count(segment, facts);
        self.begin(start, segment.at);
        if end <= self.next || start < self.next {
            let first = self.first.unwrap_or(start);
            self.handle_old(start.max(first), end.min(self.next), segment, facts);
        }
        if end > self.next {
            self.handle_new(start, end, segment, facts);
        }
        self.mark_full(facts);
    }

    /// Whether a segment of the sender has data or an end that was not seen yet.
    pub(crate) fn is_beyond(&self, segment: &Segment<'_>) -> bool {
        let end = unwrap_seq(segment.seq, self.near()) + u64::from(segment.payload);
        segment.payload > 0 && end > self.next || segment.flags & FIN != 0 && !self.sent_fin
    }

    /// Whether a segment of the peer acknowledges what none before it did.
    pub(crate) fn is_acknowledged_by(&self, segment: &Segment<'_>) -> bool {
        segment.flags & ACK != 0 && unwrap_seq(segment.ack, self.near()) > self.seen_ack
    }

    /// The first segment with data. What the handshake shows to be before it was overtaken.
    fn begin(&mut self, start: u64, at: Nanos) {
        if self.first.is_none() {
            let is_later = self.base > 0 && start > self.base && start < self.base + LARGEST_JUMP;
            let first = if is_later { self.base } else { start };
            self.first = Some(first);
            self.next = first;
            self.known.acked = self.known.acked.max(first);
        }
        if self.until.is_none() {
            self.began = Some(at);
            self.until = Some(at);
            self.progress = at;
            self.round = Round::new(at);
        }
    }

    fn handle_new(&mut self, start: u64, end: u64, segment: &Segment<'_>, facts: &Facts) {
        if start > self.next {
            self.recovery.jump(self.next, start);
            let value = value(segment);
            let by = Skipping { at: segment.at, value, ip_id: segment.ip_id };
            self.holes.open(self.next, start, by);
        }
        self.counts.new_frames += 1;
        self.counts.alone += u64::from(self.flight() == 0);
        self.order.add(segment.ip_id);
        self.echo.handle_new(end, segment.at);
        let from = self.next.max(start);
        self.next = end;
        self.has_more = segment.payload.is_multiple_of(facts.mss.max(1));
        let since_ack = self.last_ack.map(|last| segment.at - last);
        self.course.add(segment.at, end - from, since_ack, self.has_more);
        // An acknowledgement that was recorded before its data tells no round trip.
        if self.outstanding.len() < MAX_OUTSTANDING && end > self.seen_ack {
            self.outstanding.push_back(Outstanding {
                end,
                at: segment.at,
                is_retransmitted: false,
            });
        }
        self.recovery.sent(segment.at);
        self.go_on(segment.at, facts);
    }

    /// Bytes below the highest: retransmitted, late, or recorded after their acknowledgement.
    fn handle_old(&mut self, start: u64, end: u64, segment: &Segment<'_>, facts: &Facts) {
        let bytes = end.saturating_sub(start);
        if bytes == 0 {
            return;
        }
        if let Some((seen, _)) = self.missed.fill(start, end) {
            return self.counts.missing_bytes -= seen.min(self.counts.missing_bytes);
        }
        let skipped = self.holes.fill(start, end);
        if skipped.is_some_and(|(_, by)| self.is_late(segment, by, facts)) {
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
            value: value(segment),
            is_acked: end <= self.seen_ack,
        });
    }

    /// Whether a segment that fills a gap is merely late and not retransmitted: the sender's
    /// timestamps say so or, where these are equal, IP identifications or the time since it was
    /// overtaken.
    fn is_late(&self, segment: &Segment<'_>, by: Skipping, facts: &Facts) -> bool {
        let by_value = value(segment).zip(by.value).filter(|(this, later)| this != later);
        if let Some((this, later)) = by_value {
            return (this.wrapping_sub(later) as i32) < 0;
        }
        let by_id = self.order.is_before(segment.ip_id, by.ip_id);
        by_id.unwrap_or_else(|| {
            let rtt = self.rtt.smallest(facts);
            let latest = rtt.map_or(LATE, |rtt| Nanos(rtt.0 / 2).min(LATE));
            segment.at - by.at < latest
        })
    }

    /// An acknowledgement of the peer.
    pub(crate) fn handle_ack(&mut self, segment: &Segment<'_>, facts: &Facts, is_pure: bool) {
        let near = self.near();
        let told = unwrap_seq(segment.ack, near);
        if near > 0 && told > near + LARGEST_JUMP {
            return;
        }
        let ack = self.fin.map_or(told, |fin| if told == fin + 1 { fin } else { told });
        self.first_ack.get_or_insert(ack);
        self.counts.acks += 1;
        self.counts.marked += u64::from(segment.flags & ECE != 0);
        self.offer(segment);
        let advances = ack > self.seen_ack;
        let is_late = advances && self.acknowledge(ack, segment, is_pure);
        self.last_ack = Some(segment.at);
        let is_duplicate = is_pure && !advances && ack == self.seen_ack && ack < self.next;
        self.recovery.handle_ack(segment, ack, self.next, is_duplicate, facts.mss);
        let edge = ack + self.window.now;
        let known = KnownWindow {
            acked: ack,
            edge,
            is_closed: self.window.is_closed,
            is_with_data: segment.payload > 0,
            is_late,
        };
        self.echo.handle_ack(segment, self.window.scale.map(|_| edge));
        self.release_later(segment, known, facts);
    }

    /// Returns whether the acknowledgement may have waited for data to go with.
    fn acknowledge(&mut self, ack: u64, segment: &Segment<'_>, is_pure: bool) -> bool {
        let mut newest = None;
        while let Some(sent) = self.outstanding.front().filter(|sent| sent.end <= ack) {
            newest = Some(*sent);
            self.outstanding.pop_front();
        }
        // Data reported by an earlier SACK arrived earlier and gives no sample.
        let is_timed = |sent: &Outstanding| {
            !sent.is_retransmitted && !self.recovery.is_on() && sent.end > self.recovery.sacked
        };
        let mut is_late = false;
        if let Some(sent) = newest.filter(is_timed) {
            // It cannot have waited for longer than since the peer's segment before it, which did
            // not acknowledge this.
            let seen = segment.at - sent.at;
            let since = self.last_ack.map_or(u64::MAX, |last| (segment.at - last).0);
            is_late = !is_pure && since > seen.0 / MOST_WAITED;
            self.rtt.sample(seen, !is_late);
        }
        self.counts.missing_bytes += self.holes.acknowledged(ack, &mut self.missed);
        if self.next > 0 && ack > self.next {
            self.acknowledge_unseen(ack, segment.at);
        }
        if self.first.is_none() && self.seen_ack > 0 {
            self.began.get_or_insert(segment.at);
            self.progress = segment.at;
        }
        self.seen_ack = ack;
        is_late
    }

    /// Acknowledged bytes that were not seen: the capture missed them, or recorded them later. A
    /// single one may be an unseen FIN.
    fn acknowledge_unseen(&mut self, ack: u64, at: Nanos) {
        if let Some(probe) = self.probe.filter(|end| (self.next..=ack).contains(end)) {
            self.next = probe;
        }
        if ack <= self.next + 1 {
            return;
        }
        self.missed.forget();
        self.missed.open(self.next, ack, Skipping { at, ..Skipping::default() });
        self.counts.missing_bytes += ack - self.next;
        self.next = ack;
    }

    /// Notes the window offered; that of a SYN is not scaled (RFC 7323, 2.2).
    fn offer(&mut self, segment: &Segment<'_>) {
        let window = &mut self.window;
        let scale = window.scale.filter(|_| segment.flags & SYN == 0);
        window.now = u64::from(segment.window) << scale.unwrap_or(0);
        window.largest = window.largest.max(window.now);
        let is_closed = segment.window == 0 && segment.flags & SYN == 0;
        self.counts.zero_windows += u64::from(is_closed && !window.is_closed);
        window.is_closed = is_closed;
    }

    /// The sender learns of an acknowledgement at once or when it arrives there.
    fn release_later(&mut self, segment: &Segment<'_>, known: KnownWindow, facts: &Facts) {
        if facts.is_at_sender || self.on_their_way.len() >= MAX_ON_THEIR_WAY {
            self.release_all(segment.at, facts);
            return self.release(known, segment.at, facts);
        }
        self.on_their_way.push_back(OnItsWay {
            arrives: segment.at + facts.way(),
            value: value(segment),
            known,
        });
    }

    fn release_all(&mut self, latest: Nanos, facts: &Facts) {
        while let Some(ack) = self.on_their_way.pop_front() {
            self.release(ack.known, ack.arrives.min(latest), facts);
        }
    }

    /// Works out which acknowledgements the sender had when it sent this segment: those it echoes
    /// or those that had time to arrive.
    fn learn(&mut self, segment: &Segment<'_>, facts: &Facts) {
        let echoed = segment.options.timestamps.map(|(_, echo)| echo);
        self.echo.handle_data(segment);
        while let Some(ack) = self.on_their_way.front().copied() {
            let pair = echoed.zip(ack.value);
            let ticks = pair.map(|(echo, value)| echo.wrapping_sub(value) as i32);
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
        self.advance(segment.at, None, facts);
    }

    fn release(&mut self, known: KnownWindow, at: Nanos, facts: &Facts) {
        self.advance(at, Some(known), facts);
        let is_progress = known.acked > self.known.acked;
        self.known.acked = self.known.acked.max(known.acked);
        self.known.edge = self.known.edge.max(known.edge);
        // A window may also shrink: the newest acknowledgement says what is free now.
        if known.acked >= self.known.acked {
            self.known.edge = known.edge;
            self.known.is_closed = known.is_closed;
        }
        if is_progress {
            self.go_on(at, facts);
        }
    }

    /// Accounts for the time until `at`, when `by` arrived or, without it, data was sent, with what
    /// the sender knew.
    fn advance(&mut self, at: Nanos, by: Option<KnownWindow>, facts: &Facts) {
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
        let times = &mut self.pending;
        if outstanding {
            // What was acknowledged late had arrived before.
            let longest = facts.shortest().filter(|_| by.is_some_and(|ack| ack.is_late));
            let in_flight = longest.unwrap_or(passed).min(passed);
            times.in_flight = times.in_flight + in_flight;
            times.idle = times.idle + (passed - in_flight);
            times.asked = times.asked + (passed - in_flight);
        } else if self.known.is_closed {
            times.closed = times.closed + passed;
        } else if open && !paced {
            times.idle = times.idle + passed;
            let asked = if by.is_some_and(|ack| ack.is_with_data) { passed } else { Nanos::ZERO };
            times.asked = times.asked + asked;
        }
        self.round.is_full |= !outstanding && (self.known.is_closed || !open);
    }

    /// New data was sent or acknowledged: the time since the last progress belongs to the transfer.
    fn go_on(&mut self, at: Nanos, facts: &Facts) {
        let Some(until) = self.until else {
            return;
        };
        let pending = std::mem::take(&mut self.pending);
        self.times.add(pending);
        self.round.idle = self.round.idle + pending.idle;
        self.round.closed = self.round.closed + pending.closed;
        self.progress = self.progress.max(at);
        let rtt = self.rtt.smoothed(facts).unwrap_or_default();
        if until - self.round.began >= rtt.max(SHORTEST_ROUND) {
            self.close_round(until);
        }
    }

    fn close_round(&mut self, at: Nanos) {
        let round = std::mem::replace(&mut self.round, Round::new(at));
        let now = Now {
            bytes: self.delivered(),
            rtt: self.rtt.take_step(),
            echo: self.echo.take_step(),
            lead: self.echo.stamps.take_step(),
            window: self.window.now,
            retransmitted: self.recovery.counts,
            is_repairing: self.recovery.is_on(),
        };
        self.readings.add(&round, at, now);
    }

    /// The window is full when there is room for no more than what senders leave: up to three
    /// segments (as T-RAT has it, Zhang et al. 2002) of a large one, and less than a whole one.
    fn mark_full(&mut self, facts: &Facts) {
        self.round.peak = self.round.peak.max(self.flight());
        let is_told = self.window.scale.is_some() && self.known.edge > 0;
        let mss = u64::from(facts.mss);
        let window = self.known.edge.saturating_sub(self.known.acked);
        let left = (window / PART_LEFT).clamp(mss, 3 * mss);
        self.round.is_full |= is_told && self.next + left > self.known.edge;
    }

    /// Bytes in flight, as far as the sender knew.
    fn flight(&self) -> u64 {
        self.next.saturating_sub(self.known.acked)
    }

    fn count(&mut self, segment: &Segment<'_>, facts: &Facts) {
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
        if self.base == 0 && self.first.is_none() {
            self.base = unwrap_seq(seq.wrapping_add(1), self.near());
            self.known.acked = self.known.acked.max(self.base);
        }
    }

    /// A keep-alive probe: one byte that the peer already has.
    fn is_keep_alive(&self, start: u64, payload: u32) -> bool {
        payload == 1 && self.next > 0 && start + 1 == self.next && self.seen_ack >= self.next
    }

    /// One new byte beyond a closed window.
    fn is_window_probe(&self, start: u64, payload: u32) -> bool {
        payload == 1 && self.window.is_closed && self.next > 0 && start == self.next
    }

    /// The capture is over.
    pub(crate) fn finish(&mut self, facts: &Facts) {
        self.release_all(Nanos(u64::MAX), facts);
        if self.until.is_some() {
            self.close_round(self.progress.max(self.round.began));
        }
    }

    /// The bytes of a segment of the sender: number of the first, and after the last. A SYN takes
    /// the number before its data (TCP Fast Open, RFC 7413).
    pub(crate) fn bytes_of(&self, segment: &Segment<'_>) -> [u64; 2] {
        let is_syn = segment.flags & SYN != 0;
        let start = unwrap_seq(segment.seq.wrapping_add(u32::from(is_syn)), self.near());
        [start, start + u64::from(segment.payload)]
    }

    /// Number after the highest byte seen, and of the first that the peer has not acknowledged.
    pub(crate) fn edges(&self) -> [u64; 2] {
        [self.next, self.seen_ack]
    }

    /// Time with nothing outstanding, and with a closed window.
    pub(crate) fn held(&self) -> [Nanos; 2] {
        [self.times.idle, self.times.closed]
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

    /// Whether its data was seen itself, and not only the acknowledgements of some.
    pub(crate) fn is_seen(&self) -> bool {
        self.first.is_some() || self.bytes() == 0
    }

    /// Timeouts that nothing answered, while data was outstanding.
    pub(crate) fn unanswered(&self) -> u64 {
        let is_outstanding = self.first_ack.is_some() && self.next > self.seen_ack;
        if is_outstanding { self.recovery.unanswered } else { 0 }
    }
}

/// The number of segments in an offloaded frame.
fn segments(bytes: u64, mss: u32) -> u64 {
    bytes.div_ceil(u64::from(mss.max(1)))
}

fn value(segment: &Segment<'_>) -> Option<u32> {
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
/// The part of a round trip that its acknowledgement may have waited.
const MOST_WAITED: u64 = 8;
/// The part of a window that a sender leaves: what a ceiling from windows may be wrong by.
const PART_LEFT: u64 = 10;

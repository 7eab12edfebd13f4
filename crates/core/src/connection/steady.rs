//! The part of a connection of a capture that is explained, everything after slow start; and what
//! holds its sender back that no single packet shows.

use crate::capture::{Evenness, Flow, Reading, Retransmitted, Sent, Side};

/// A direction from the end of its slow start on, or all of it if that end is not seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steady<'a> {
    pub(super) sent: &'a Sent,
    pub(super) readings: &'a [Reading],
    before: Option<&'a Reading>,
}

impl<'a> Steady<'a> {
    /// Leaves out the first third, if by its end as much was in flight as later.
    pub(super) fn new(sent: &'a Sent) -> Self {
        let all = &sent.readings;
        let whole = Self::whole(sent);
        let third = all.partition_point(|reading| {
            let began = all[0].at - all[0].length;
            (reading.at - began).0 < sent.lasted.0 / 3
        });
        let usual = whole.flight(0.5).unwrap_or(0);
        let reached = all.iter().position(|r| r.in_flight * 10 >= usual * 7);
        let is_settled = third > 0 && reached.is_some_and(|at| at < third);
        match all.split_at_checked(third) {
            Some((left_out, later)) if is_settled && later.len() >= FEWEST_READINGS => {
                Self { sent, readings: later, before: left_out.last() }
            }
            _ => whole,
        }
    }

    /// All of it.
    pub(super) fn whole(sent: &'a Sent) -> Self {
        Self { sent, readings: &sent.readings, before: None }
    }

    /// Its beginning, seconds after the first data; `None` if nothing is left out.
    pub(super) fn begins_s(&self) -> Option<f64> {
        let (first, before) = (self.sent.readings.first()?, self.before?);
        let began = first.at - first.length;
        Some((before.at - began).0 as f64 / 1e9)
    }

    pub(super) fn bytes(&self) -> u64 {
        let last = self.readings.last().map_or(0, |last| last.bytes);
        last.saturating_sub(self.bytes_before())
    }

    pub(super) fn bytes_before(&self) -> u64 {
        self.before.map_or(0, |before| before.bytes)
    }

    pub(super) fn seconds(&self) -> f64 {
        self.time(|_| 1.0)
    }

    /// Payload bits per second.
    pub(super) fn throughput_bps(&self) -> f64 {
        let seconds = self.seconds();
        if seconds > 0.0 { self.bytes() as f64 * 8.0 / seconds } else { 0.0 }
    }

    /// The sum of a share of the time of each reading, seconds.
    pub(super) fn time(&self, share: impl Fn(&Reading) -> f64) -> f64 {
        let times = self.readings.iter().map(|r| r.length.0 as f64 * share(r));
        times.sum::<f64>() / 1e9
    }

    pub(super) fn retransmitted(&self) -> Retransmitted {
        match (self.readings.last(), self.before) {
            (Some(last), Some(before)) => last.retransmitted.since(&before.retransmitted),
            _ => self.sent.retransmitted,
        }
    }

    /// Bytes in flight when losses came.
    pub(super) fn loss_flights(&self) -> &'a [u64] {
        let before = self.before.map_or(0, |b| b.retransmitted.episodes) as usize;
        self.sent.loss_flights.get(before..).unwrap_or_default()
    }

    /// The quantile of the bytes in flight at this share of the readings.
    pub(super) fn flight(&self, share: f64) -> Option<u64> {
        super::capture::quantile(self.flights(), share)
    }

    /// The windows that the receiver offered, bytes.
    pub(super) fn windows(&self) -> Vec<u64> {
        self.readings.iter().map(|reading| reading.window).collect()
    }

    pub(super) fn flights(&self) -> Vec<u64> {
        let flights = self.readings.iter().map(|reading| reading.in_flight);
        flights.filter(|bytes| *bytes > 0).collect()
    }

    /// Round trips of the readings, µs.
    pub(super) fn rtts_us(&self) -> Vec<u64> {
        let rtts = self.readings.iter().filter_map(|r| Some(r.rtt?.0 / 1000));
        rtts.collect()
    }
}

impl Steady<'_> {
    /// Mean of all round trips; 0 without any.
    pub(super) fn mean_rtt_ns(&self) -> f64 {
        let timed = self.readings.iter().filter_map(|r| Some((r.rtt?.0 as f64, r.rtt_samples)));
        let (mut sum, mut count) = (0.0_f64, 0_u64);
        for (rtt, samples) in timed {
            sum += rtt * samples as f64;
            count += samples;
        }
        sum / count.max(1) as f64
    }
}

/// Fewest readings of the part that is explained.
const FEWEST_READINGS: usize = 6;

// Limits that no single packet shows, but all of them together: a clock that paces the sender, a
// writer with a clock of its own, or a full buffer.

/// What holds a sender back, if nothing else does.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) enum Held {
    /// A clock keeps it at this rate, payload bits/s.
    Paced(u64),
    /// A buffer: the sender grew to this many bytes in flight and kept to them.
    Full(u64),
    /// Its program, which writes no faster.
    Written,
    #[default]
    Unknown,
}

/// What holds the sender back; unknown if losses, a queue, a full window or an idle writer explain
/// it.
pub(super) fn what_holds(flow: &Flow, side: Side, steady: &Steady<'_>) -> Held {
    let again = steady.retransmitted();
    let is_busy = steady.sent.idle.0 * 10 <= steady.sent.lasted.0;
    let full = steady.time(|r| f64::from(r.full) / f64::from(r.rounds.max(1)));
    let has_room = full * 4.0 <= steady.seconds();
    let lost = again.segments - again.spurious.min(again.segments);
    let segments = steady.bytes() / u64::from(steady.sent.mss.max(1));
    // Reordering makes a sender slow down, too.
    let disturbed = lost + steady.sent.counts.reordered;
    let is_lossless = disturbed * 1000 <= segments && again.episodes < SEVERAL;
    let Some(even) = steady.sent.evenness else {
        return Held::Unknown;
    };
    if !(is_busy && has_room && is_lossless) || waits_for_each(steady.sent) {
        return Held::Unknown;
    }
    let at_sender = flow.near == Some(side);
    if is_paced(&even, at_sender, steady) {
        return Held::Paced(steady.throughput_bps() as u64);
    }
    if is_queued(steady, STANDING) || steady.begins_s().is_none() {
        return Held::Unknown;
    }
    let blocks = even.low >= 1.0 / WRITTEN && even.high <= WRITTEN;
    let frames = at_sender && even.even >= EACH_WRITTEN;
    if (blocks || frames) && even.whole < ALL_WHOLE {
        return Held::Written;
    }
    if even.even < LINK && keeps_its_flight(steady) {
        let in_flight = steady.throughput_bps() / 8e9 * steady.mean_rtt_ns();
        return Held::Full(in_flight as u64);
    }
    Held::Unknown
}

/// Whether the sender has one segment in flight at a time, and waits for its acknowledgement for
/// most of the time: that looks as even as a clock.
fn waits_for_each(sent: &Sent) -> bool {
    sent.counts.alone as f64 >= ALL_ALONE * sent.counts.new_frames as f64
        && sent.in_flight.0 * 2 >= sent.lasted.0
}

/// At the sender each frame leaves when a clock says so, and not with an acknowledgement; what
/// waited in a queue of its host left when a shaper let it. Elsewhere the frames of a moment come
/// at the rate of a link that is faster than the clock; where they do not, it may be that link
/// which keeps the rate, unless it has no queue. Of a writer's frames some are short.
fn is_paced(even: &Evenness, at_sender: bool, steady: &Steady<'_>) -> bool {
    let whole = even.whole >= WHOLE;
    let clock = even.even >= CLOCK && even.own >= OWN;
    if at_sender {
        return whole && clock && !(is_queued(steady, STANDING) && queues_a_burst(steady));
    }
    let within = |low, high| even.low >= low && even.high <= high;
    let link_is_faster = even.fast >= FAST && !is_always_queued(steady, STANDING);
    whole
        && ((within(0.7, 1.3) && link_is_faster)
            || ((within(SLOWEST, FASTEST) || clock) && !is_queued(steady, SHORT)))
}

/// Whether a sender keeps a pace through losses as BBR does: one whose window is halved does not.
pub(super) fn is_paced_through_losses(even: &Evenness, at_sender: bool) -> bool {
    if at_sender {
        return even.even >= LINK && even.own >= OWN;
    }
    even.low >= THROUGH_LOSSES && even.high <= 1.4
}

/// The round trip is longer than the shortest, by what hosts do not make themselves.
fn is_queued(steady: &Steady<'_>, ratio: f64) -> bool {
    let mean = steady.mean_rtt_ns();
    let least = steady.sent.rtt_min.map_or(0.0, |rtt| rtt.0 as f64);
    mean >= ratio * least && mean - least >= QUEUE_NS
}

/// The same for all but a quarter of the time: an acknowledgement that a receiver delays is no
/// queue.
fn is_always_queued(steady: &Steady<'_>, ratio: f64) -> bool {
    let short = super::capture::quantile(steady.rtts_us(), 0.25).map_or(0.0, |us| us as f64 * 1e3);
    let least = steady.sent.rtt_min.map_or(0.0, |rtt| rtt.0 as f64);
    short >= ratio * least && short - least >= QUEUE_NS
}

/// What the round trip is longer by, times the rate, waits in the mean (Little's law): more than
/// the two segments that leave at once.
fn queues_a_burst(steady: &Steady<'_>) -> bool {
    let least = steady.sent.rtt_min.map_or(0.0, |rtt| rtt.0 as f64);
    let waiting = (steady.mean_rtt_ns() - least) / 8e9 * steady.throughput_bps();
    waiting > 2.0 * f64::from(steady.sent.mss)
}

/// Slow start ended at what is in flight since then.
fn keeps_its_flight(steady: &Steady<'_>) -> bool {
    let median = |from, to| {
        let flights = steady.flights();
        let part = flights.get(flights.len() * from / 2..flights.len() * to / 2);
        super::capture::quantile(part.unwrap_or_default().to_vec(), 0.5)
    };
    let (Some(low), Some(usual)) = (steady.flight(0.25), steady.flight(0.5)) else {
        return false;
    };
    let (Some(early), Some(late)) = (median(0, 1), median(1, 2)) else {
        return false;
    };
    let first = steady.sent.readings.first().map_or(0, |first| first.in_flight);
    let is_steady = early.min(late) as f64 >= STAYS * early.max(late) as f64;
    steady.flights().len() >= FEWEST_FLIGHTS
        && is_steady
        && low as f64 >= STAYS * usual as f64
        && (first as f64) < GREW * usual as f64
}

/// Share of the frames that leave alone of a sender that waits for each: all but some at the start.
const ALL_ALONE: f64 = 0.9;
/// Share of whole segments among the frames of a paced sender: all but the ends of writes.
const WHOLE: f64 = 0.9;
/// Share of whole segments of a sender that always has more to send.
const ALL_WHOLE: f64 = 0.985;
/// Share of the time in which each frame takes its part of the rate: 0.93 and more of a socket's
/// pacing limit, up to 0.89 of BBR, which probes, 0.65 of evenly written messages, 0.2 of windows
/// and buffers.
const CLOCK: f64 = 0.91;
/// From which on it is a clock or a link that keeps the rate, of whatever kind.
const LINK: f64 = 0.5;
/// Share of the time that ended with a frame of its own clock: 0.6 and more where a clock paces,
/// 0.13 at most where acknowledgements let frames go.
const OWN: f64 = 0.5;
/// Rates over 16 frames of a paced sender, over their mean (BBR below its limit drains for a round
/// in eight).
const SLOWEST: f64 = 0.8;
const FASTEST: f64 = 1.2;
/// Fastest rate over the mean of a writer that writes by a clock.
const WRITTEN: f64 = 1.1;
/// Share of the time in which each frame of such a writer takes its part: 0.36 to 0.65, up to 0.12
/// behind a buffer.
const EACH_WRITTEN: f64 = 0.3;
/// The same at a policer that BBR meets: 0.66 to 1.38; of windows that are halved 0.25 to 2 and
/// more.
const THROUGH_LOSSES: f64 = 0.65;
/// Share of the bytes that came at the rate of a link which is faster.
const FAST: f64 = 0.3;
/// Mean over smallest round trip with a queue.
const STANDING: f64 = 1.5;
const SHORT: f64 = 1.1;
const QUEUE_NS: f64 = 1e6;
/// The lower quartile of what is in flight over its median, one half of the time over the other.
const STAYS: f64 = 0.75;
/// The first flight over the later ones.
const GREW: f64 = 0.9;
const FEWEST_FLIGHTS: usize = 10;
/// Losses that came so often are a pattern, however few they are.
const SEVERAL: u64 = 10;

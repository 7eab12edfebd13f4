//! Round-trip times seen at the capture, to the receiver and back, to the sender and back; and the
//! readings of a direction over time.

use std::collections::VecDeque;

use linerate_units::Nanos;

use super::frames::Segment;
use crate::recovery::Retransmitted;

/// Facts of a connection that its directions need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    /// Largest payload of a segment, bytes.
    pub(crate) mss: u32,
    /// Round trip between capture and sender in the handshake; zero next to the sender.
    pub(crate) to_sender: Option<Nanos>,
    pub(crate) is_at_sender: bool,
}

/// From data to its acknowledgement, plus the round trip from the capture to the sender.
#[derive(Debug, Default)]
pub(crate) struct Rtt {
    /// Smallest sample seen at the capture itself.
    pub(crate) near_min: Option<Nanos>,
    pub(crate) samples: u64,
    smallest: Option<Nanos>,
    /// Smallest of data alone: the packets of a handshake are shorter.
    pub(crate) of_data: Option<Nanos>,
    smoothed: f64,
    step_sum: u64,
    step_count: u64,
}

impl Rtt {
    /// Adds a sample `seen` at the capture; `rest` is the round trip from here to the sender.
    pub(crate) fn sample(&mut self, seen: Nanos, rest: Nanos) {
        let all = seen + rest;
        lower(&mut self.near_min, seen);
        lower(&mut self.smallest, all);
        lower(&mut self.of_data, all);
        self.samples += 1;
        self.step_sum = self.step_sum.saturating_add(seen.0);
        self.step_count += 1;
        // RFC 6298, 2.
        let ns = all.0 as f64;
        let weight = if self.samples == 1 { 1.0 } else { 1.0 / 8.0 };
        self.smoothed += (ns - self.smoothed) * weight;
    }

    /// Adds the sample of the handshake.
    pub(crate) fn handshake(&mut self, all: Nanos) {
        lower(&mut self.smallest, all);
    }

    pub(crate) fn smallest(&self) -> Option<Nanos> {
        self.smallest
    }

    pub(crate) fn smoothed(&self) -> Option<Nanos> {
        (self.samples > 0).then_some(Nanos(self.smoothed as u64))
    }

    /// Mean and number of the samples since the last step, with `rest` added to the mean.
    pub(crate) fn take_step(&mut self, rest: Nanos) -> Option<(Nanos, u64)> {
        let (sum, count) = (self.step_sum, self.step_count);
        (self.step_sum, self.step_count) = (0, 0);
        Some((Nanos(sum.checked_div(count)?) + rest, count))
    }
}

/// From an acknowledgement to the data it triggers: the sender echoes its timestamp.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    waiting: VecDeque<(u32, Nanos)>,
    step_min: Option<Nanos>,
    step_sum: u64,
    step_count: u64,
    last: Option<Nanos>,
    pub(crate) smallest: Option<Nanos>,
    pub(crate) samples: u64,
    stamps: Stamps,
}

/// How long data waited between being stamped by its sender and passing the capture: in the queue
/// of the sender's own host or of a link on the way.
#[derive(Debug, Default)]
struct Stamps {
    first: Option<(u32, Nanos)>,
    /// Smallest lead of the capture's clock over the stamps since the first, ns.
    least: i64,
    step_sum: i64,
    step_count: i64,
    last: Option<Nanos>,
    /// The stamps do not tick in milliseconds.
    is_other: bool,
}

impl Stamps {
    fn handle_data(&mut self, segment: &Segment) {
        let Some((value, _)) = segment.options.timestamps else {
            return;
        };
        let (first, began) = *self.first.get_or_insert((value, segment.at));
        let passed = (segment.at - began).0.min(MAX_PASSED_NS) as i64;
        let ticks = i64::from(value.wrapping_sub(first) as i32);
        let ahead = passed - ticks.saturating_mul(TICK_NS);
        self.is_other |= ahead.abs() > passed / 4 + FURTHEST_NS;
        self.least = self.least.min(ahead);
        let wait = ahead - self.least - TICK_NS / 2 - passed / CLOCKS_APART;
        self.step_sum = self.step_sum.saturating_add(wait.max(0));
        self.step_count += 1;
    }

    /// Mean since the last step.
    fn wait(&self) -> Option<Nanos> {
        let mean = self.step_sum.checked_div(self.step_count).map(|ns| Nanos(ns.unsigned_abs()));
        mean.or(self.last).filter(|_| !self.is_other)
    }

    fn take_step(&mut self) {
        self.last = self.wait();
        (self.step_sum, self.step_count) = (0, 0);
    }
}

impl Echo {
    pub(crate) fn handle_ack(&mut self, segment: &Segment) {
        let Some((value, _)) = segment.options.timestamps else {
            return;
        };
        let is_new = self.waiting.back().is_none_or(|(last, _)| *last != value);
        if is_new && self.waiting.len() < MAX_WAITING {
            self.waiting.push_back((value, segment.at));
        }
    }

    pub(crate) fn handle_data(&mut self, segment: &Segment, facts: &Facts) {
        self.stamps.handle_data(segment);
        if facts.is_at_sender {
            return;
        }
        let Some((_, echo)) = segment.options.timestamps else {
            return;
        };
        while let Some((value, at)) = self.waiting.front().copied() {
            if (echo.wrapping_sub(value) as i32) < 0 {
                break;
            }
            self.waiting.pop_front();
            if value == echo {
                let way = segment.at - at;
                self.samples += 1;
                let least = lower(&mut self.step_min, way);
                // Data that comes much later was not triggered by this acknowledgement.
                if way.0 <= least.0.saturating_mul(2) {
                    self.step_sum = self.step_sum.saturating_add(way.0);
                    self.step_count += 1;
                }
                lower(&mut self.smallest, way);
            }
        }
    }

    /// Current round trip between capture and sender.
    pub(crate) fn now(&self, facts: &Facts) -> Nanos {
        let wait = self.stamps.wait();
        if facts.is_at_sender {
            return wait.unwrap_or_default();
        }
        // A sender that paces echoes late, so this uses the way and the measured wait instead.
        if let Some(wait) = wait {
            return self.way(facts) + wait;
        }
        let mean = self.step_sum.checked_div(self.step_count).map(Nanos);
        let measured = mean.or(self.last);
        measured.or(facts.to_sender).unwrap_or_default()
    }

    /// Smallest time an acknowledgement takes to the sender.
    pub(crate) fn way(&self, facts: &Facts) -> Nanos {
        let least = self.smallest.into_iter().chain(facts.to_sender).min();
        least.unwrap_or_default()
    }

    /// Ends a step: its mean, or that of the last step that had one.
    pub(crate) fn take_step(&mut self, facts: &Facts) -> Nanos {
        let now = self.now(facts);
        if self.step_min.take().is_some() {
            self.last = Some(now);
        }
        (self.step_sum, self.step_count) = (0, 0);
        self.stamps.take_step();
        now
    }
}

/// The lower of the two, which is kept.
fn lower(least: &mut Option<Nanos>, value: Nanos) -> Nanos {
    *least.insert(least.map_or(value, |least| least.min(value)))
}

const MAX_WAITING: usize = 1024;
/// Linux stamps in milliseconds (`TCP_TS_HZ`).
const TICK_NS: i64 = 1_000_000;
/// Longest queue that is believed.
const FURTHEST_NS: i64 = 2_000_000_000;
/// Clocks drift apart by less than 200 ppm.
const CLOCKS_APART: i64 = 5000;
/// Stamps wrap after 24 days.
const MAX_PASSED_NS: u64 = 1_000_000_000_000_000;

// Readings of a direction over time: a bounded number, in steps that grow longer.

/// One round trip of a sender.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Round {
    pub(crate) began: Nanos,
    pub(crate) idle: Nanos,
    /// Most bytes in flight.
    pub(crate) peak: u64,
    /// The window was full.
    pub(crate) is_full: bool,
}

impl Round {
    pub(crate) fn new(began: Nanos) -> Self {
        Self { began, ..Self::default() }
    }
}

/// The state at the end of a round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) bytes: u64,
    /// Mean and number of samples.
    pub(crate) rtt: Option<(Nanos, u64)>,
    pub(crate) window: u64,
    pub(crate) retransmitted: Retransmitted,
    pub(crate) is_repairing: bool,
}

/// One step of a direction.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Reading {
    /// End of the step.
    pub at: Nanos,
    /// Its duration.
    pub length: Nanos,
    /// Payload so far, bytes.
    pub bytes: u64,
    /// Mean round-trip time of the step; absent without samples.
    pub rtt: Option<Nanos>,
    /// Samples in that mean.
    pub rtt_samples: u64,
    /// Most bytes in flight per round trip, averaged over the step.
    pub in_flight: u64,
    /// Window offered at the end of the step, bytes.
    pub window: u64,
    /// Retransmissions so far.
    pub retransmitted: Retransmitted,
    /// Round trips in the step.
    pub rounds: u32,
    /// Round trips with a full window.
    pub full: u32,
    /// Time with nothing outstanding and an open window.
    pub idle: Nanos,
    /// Whether losses were being repaired.
    pub is_repairing: bool,
}

/// Readings in steps of 10 ms that double whenever there would be too many.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    pub(crate) list: Vec<Reading>,
    open: Reading,
    doublings: u32,
    began: Option<Nanos>,
}

impl Readings {
    pub(crate) fn add(&mut self, round: &Round, at: Nanos, now: Now) {
        let began = *self.began.get_or_insert(round.began);
        let open = &mut self.open;
        let rounds = u64::from(open.rounds);
        open.in_flight = (open.in_flight * rounds + round.peak) / (rounds + 1);
        open.rounds += 1;
        open.full += u32::from(round.is_full);
        open.idle = open.idle + round.idle;
        if let Some((rtt, samples)) = now.rtt {
            open.add_rtt(Some(rtt), samples);
        }
        open.is_repairing |= now.is_repairing;
        (open.at, open.bytes) = (at, now.bytes);
        (open.window, open.retransmitted) = (now.window, now.retransmitted);
        let since = self.list.last().map_or(began, |last| last.at);
        open.length = at - since;
        if open.length >= Nanos(STEP.0 << self.doublings) {
            self.list.push(std::mem::take(open));
            if self.list.len() == MAX_READINGS {
                self.halve();
            }
        }
    }

    /// Merges pairs of readings.
    fn halve(&mut self) {
        let pairs = self.list.chunks(2).map(|pair| match pair {
            [first, second] => first.and(second),
            rest => rest[0],
        });
        self.list = pairs.collect();
        self.doublings = (self.doublings + 1).min(40);
    }

    /// All readings, including the unfinished step.
    pub(crate) fn finish(mut self) -> Vec<Reading> {
        if self.open.rounds > 0 {
            self.list.push(self.open);
        }
        self.list
    }
}

impl Reading {
    fn and(&self, next: &Self) -> Self {
        let rounds = self.rounds + next.rounds;
        let flights =
            self.in_flight * u64::from(self.rounds) + next.in_flight * u64::from(next.rounds);
        let mut both = *next;
        both.add_rtt(self.rtt, self.rtt_samples);
        Self {
            length: self.length + next.length,
            in_flight: flights / u64::from(rounds.max(1)),
            rounds,
            full: self.full + next.full,
            idle: self.idle + next.idle,
            is_repairing: self.is_repairing || next.is_repairing,
            ..both
        }
    }

    /// Adds a mean of so many samples.
    fn add_rtt(&mut self, rtt: Option<Nanos>, samples: u64) {
        let sum = |rtt: Option<Nanos>, samples: u64| {
            u128::from(rtt.unwrap_or_default().0) * u128::from(samples)
        };
        let all = sum(self.rtt, self.rtt_samples) + sum(rtt, samples);
        self.rtt_samples += samples;
        let mean = all.checked_div(self.rtt_samples.into());
        self.rtt = mean.map(|mean| Nanos(u64::try_from(mean).unwrap_or(u64::MAX)));
    }
}

const STEP: Nanos = Nanos(10_000_000);
const MAX_READINGS: usize = 512;

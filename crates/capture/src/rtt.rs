//! Round-trip times seen at the capture, to the receiver and back, to the sender and back; and the
//! readings of a direction over time.

use std::collections::VecDeque;

use linerate_units::Nanos;

use super::segment::Segment;
use crate::recovery::Retransmitted;
use crate::stamps::{Lead, Stamps};

/// Facts of a connection that its directions need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    /// Largest payload of a segment, bytes.
    pub(crate) mss: u32,
    /// Shortest time in which the sender answered something that passed the capture.
    pub(crate) to_sender: Option<Nanos>,
    /// The same of the receiver.
    pub(crate) to_receiver: Option<Nanos>,
    pub(crate) is_at_sender: bool,
}

impl Facts {
    /// Shortest time an acknowledgement takes to the sender, and its answer back.
    pub(crate) fn way(&self) -> Nanos {
        self.to_sender.filter(|_| !self.is_at_sender).unwrap_or_default()
    }

    /// Shortest round trip between both ends.
    pub(crate) fn shortest(&self) -> Option<Nanos> {
        Some(self.to_receiver? + self.way())
    }
}

/// From data to its acknowledgement, as seen at the capture.
#[derive(Debug, Default)]
pub(crate) struct Rtt {
    smallest: Option<Nanos>,
    /// Smallest time from data to its acknowledgement, though that may have waited.
    pub(crate) bound: Option<Nanos>,
    pub(crate) samples: u64,
    smoothed: f64,
    step_sum: u64,
    step_count: u64,
}

impl Rtt {
    /// Data was acknowledged after `seen`. An acknowledgement that may have waited for data to go
    /// with is no sample.
    pub(crate) fn sample(&mut self, seen: Nanos, is_prompt: bool) {
        lower(&mut self.bound, seen);
        if !is_prompt {
            return;
        }
        lower(&mut self.smallest, seen);
        self.samples += 1;
        self.step_sum = self.step_sum.saturating_add(seen.0);
        self.step_count += 1;
        // RFC 6298, 2.
        let ns = seen.0 as f64;
        let weight = if self.samples == 1 { 1.0 } else { 1.0 / 8.0 };
        self.smoothed += (ns - self.smoothed) * weight;
    }

    /// Smallest time from data to an acknowledgement that did not wait, as seen at the capture.
    pub(crate) fn prompt(&self) -> Option<Nanos> {
        self.smallest
    }

    /// Smallest round trip between both ends.
    pub(crate) fn smallest(&self, facts: &Facts) -> Option<Nanos> {
        let of_data = self.smallest.map(|seen| seen + facts.way());
        of_data.or_else(|| facts.shortest())
    }

    pub(crate) fn smoothed(&self, facts: &Facts) -> Option<Nanos> {
        let of_data = Nanos(self.smoothed as u64) + facts.way();
        if self.samples > 0 { Some(of_data) } else { facts.shortest() }
    }

    /// Mean and number of the samples since the last step.
    pub(crate) fn take_step(&mut self) -> Option<(Nanos, u64)> {
        let (sum, count) = (self.step_sum, self.step_count);
        (self.step_sum, self.step_count) = (0, 0);
        Some((Nanos(sum.checked_div(count)?), count))
    }
}

/// From an acknowledgement to the data that it lets go: the sender echoes its timestamp or, without
/// timestamps, had no room in the window before.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    waiting: VecDeque<(u32, Nanos)>,
    /// The value of the last acknowledgement.
    newest: Option<u32>,
    /// Ends of windows, and when they passed.
    edges: VecDeque<(u64, Nanos)>,
    furthest: u64,
    /// The smallest times from a window to the data that needed it, in order.
    after_edges: Vec<Nanos>,
    step_min: Option<Nanos>,
    step_sum: u64,
    step_count: u64,
    echoed: Option<Nanos>,
    pub(crate) samples: u64,
    pub(crate) stamps: Stamps,
}

impl Echo {
    /// An acknowledgement, whose window ends at `edge` if that is known.
    pub(crate) fn handle_ack(&mut self, segment: &Segment<'_>, edge: Option<u64>) {
        if let Some((value, _)) = segment.options.timestamps {
            // What is in flight may echo a value that came before, too.
            let is_new = self.newest.replace(value) != Some(value);
            if is_new && self.waiting.len() < MAX_WAITING {
                self.waiting.push_back((value, segment.at));
            }
        } else if let Some(edge) = edge.filter(|edge| *edge > self.furthest) {
            self.furthest = edge;
            if self.edges.len() < MAX_WAITING {
                self.edges.push_back((edge, segment.at));
            }
        }
    }

    /// New data up to `end`, which the first window that reaches so far let go.
    pub(crate) fn handle_new(&mut self, end: u64, at: Nanos) {
        let mut had_no_room = false;
        while self.edges.front().is_some_and(|(edge, _)| *edge < end) {
            self.edges.pop_front();
            had_no_room = true;
        }
        if let Some((_, window_at)) = self.edges.front().filter(|_| had_no_room) {
            let after = at - *window_at;
            let place = self.after_edges.partition_point(|known| *known < after);
            if place < FEWEST_AFTER_EDGES {
                self.after_edges.truncate(FEWEST_AFTER_EDGES - 1);
                self.after_edges.insert(place, after);
            }
        }
    }

    pub(crate) fn handle_data(&mut self, segment: &Segment<'_>) {
        self.stamps.handle_data(segment);
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
                lower(&mut self.echoed, way);
            }
        }
    }

    /// Smallest time from an acknowledgement to the data that echoes it.
    pub(crate) fn smallest(&self) -> Option<Nanos> {
        self.echoed
    }

    /// Smallest time from a window to the data that needed it: the sender is no farther than that.
    /// The capture may have missed the acknowledgement that let it go; a few times tell.
    pub(crate) fn after_edge(&self) -> Option<Nanos> {
        self.after_edges.get(FEWEST_AFTER_EDGES - 1).copied()
    }

    /// Ends a step: sum and number of its echoes.
    pub(crate) fn take_step(&mut self) -> (u64, u64) {
        self.step_min = None;
        (std::mem::take(&mut self.step_sum), std::mem::take(&mut self.step_count))
    }
}

/// The lower of the two, which is kept.
fn lower(least: &mut Option<Nanos>, value: Nanos) -> Nanos {
    *least.insert(least.map_or(value, |least| least.min(value)))
}

const MAX_WAITING: usize = 1024;
const FEWEST_AFTER_EDGES: usize = 4;

// Readings of a direction over time: a bounded number, in steps that grow longer.

/// One round trip of a sender.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Round {
    pub(crate) began: Nanos,
    pub(crate) idle: Nanos,
    /// Most bytes in flight.
    pub(crate) peak: u64,
    /// Time in which the window was closed.
    pub(crate) closed: Nanos,
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
    /// Mean and number of samples at the capture.
    pub(crate) rtt: Option<(Nanos, u64)>,
    /// Sum and number of the times from the capture to the sender and back.
    pub(crate) echo: (u64, u64),
    pub(crate) lead: Lead,
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
    /// Time in which the peer offered no window.
    pub closed: Nanos,
    /// Whether losses were being repaired.
    pub is_repairing: bool,
}

/// A reading, with the sums of what is only known at the end.
#[derive(Debug, Clone, Copy, Default)]
struct Step {
    /// With the round trip as seen at the capture.
    reading: Reading,
    echo: (u64, u64),
    lead: Lead,
}

/// Readings in steps of 10 ms that double whenever there would be too many.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    list: Vec<Step>,
    open: Step,
    doublings: u32,
    began: Option<Nanos>,
}

impl Readings {
    pub(crate) fn add(&mut self, round: &Round, at: Nanos, now: Now) {
        let began = *self.began.get_or_insert(round.began);
        let since = self.list.last().map_or(began, |last| last.reading.at);
        self.open.lead.add(now.lead);
        self.open.echo = plus(self.open.echo, now.echo);
        let open = &mut self.open.reading;
        let rounds = u64::from(open.rounds);
        open.in_flight = (open.in_flight * rounds + round.peak) / (rounds + 1);
        open.rounds += 1;
        open.full += u32::from(round.is_full);
        open.idle = open.idle + round.idle;
        open.closed = open.closed + round.closed;
        if let Some((rtt, samples)) = now.rtt {
            open.add_rtt(Some(rtt), samples);
        }
        open.is_repairing |= now.is_repairing;
        (open.at, open.bytes) = (at, now.bytes);
        (open.window, open.retransmitted) = (now.window, now.retransmitted);
        open.length = at - since;
        if open.length >= Nanos(STEP.0 << self.doublings) {
            self.list.push(std::mem::take(&mut self.open));
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

    /// All readings, including the unfinished step, with round trips as the sender saw them: beside
    /// what was seen at the capture, the way to the sender and back, and the wait of its data in
    /// queues before the capture.
    pub(crate) fn finish(mut self, stamps: &Stamps, facts: &Facts) -> Vec<Reading> {
        if self.open.reading.rounds > 0 {
            self.list.push(self.open);
        }
        let way = facts.way();
        let rest = |step: &Step| match stamps.wait(&step.lead) {
            Some(wait) => way + wait,
            None if facts.is_at_sender => way,
            None => step.echo.0.checked_div(step.echo.1).map_or(way, |mean| way.max(Nanos(mean))),
        };
        let with_rest = |step: &Step| Reading {
            rtt: step.reading.rtt.map(|seen| seen + rest(step)),
            ..step.reading
        };
        self.list.iter().map(with_rest).collect()
    }
}

impl Step {
    fn and(&self, next: &Self) -> Self {
        let mut lead = self.lead;
        lead.add(next.lead);
        Self { reading: self.reading.and(&next.reading), echo: plus(self.echo, next.echo), lead }
    }
}

fn plus(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    (one.0.saturating_add(other.0), one.1.saturating_add(other.1))
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
            closed: self.closed + next.closed,
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

//! A direction over time: a bounded number of readings in steps that grow longer.

use linerate_units::Nanos;

use crate::recovery::Retransmitted;

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

//! Propagation to the far end: delay, jitter, and packets that are held back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Purpose;
use super::spec::{Distribution, Jitter, Reorder};
use linerate_units::{Dice, Nanos};

/// A packet in propagation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Travelling {
    // Arrivals are ordered by these fields: by time, then by position.
    pub(super) due: Nanos,
    pub(super) order: u64,
    pub(super) id: u64,
    pub(super) ip_bytes: u32,
    pub(super) mark_ce: bool,
}

/// All packets in propagation, by time of arrival.
#[derive(Debug, Clone)]
pub(super) struct DelayLine {
    delay: Nanos,
    jitter: Option<Jitter>,
    reorder: Option<Reorder>,
    jitter_dice: Dice,
    reorder_dice: Dice,
    /// Arrival time of the last packet that was not held back.
    last_due: Nanos,
    travelling: BinaryHeap<Reverse<Travelling>>,
}

impl DelayLine {
    pub(super) fn new(
        delay: Nanos,
        jitter: Option<Jitter>,
        reorder: Option<Reorder>,
        seed: u64,
    ) -> Self {
        Self {
            delay,
            jitter,
            reorder,
            jitter_dice: Purpose::Jitter.dice(seed),
            reorder_dice: Purpose::Reorder.dice(seed),
            last_due: Nanos::ZERO,
            travelling: BinaryHeap::new(),
        }
    }

    /// Adds a packet that leaves at its `due` field, which becomes the time of its arrival.
    ///
    /// Jitter alone never changes the order: a packet waits for the one before it. A packet that is
    /// held back neither waits for others nor delays them, so that it alone is late.
    pub(super) fn send(&mut self, mut packet: Travelling) {
        let due = packet.due + self.draw_delay();
        self.last_due = self.last_due.max(due);
        packet.due = self.last_due;
        if let Some(reorder) = self.reorder
            && self.reorder_dice.chance(reorder.percent / 100.0)
        {
            packet.due = packet.due + reorder.hold_back;
        }
        self.travelling.push(Reverse(packet));
    }

    /// The next packet that has arrived by `now`.
    pub(super) fn arrive(&mut self, now: Nanos) -> Option<Travelling> {
        self.next_due().filter(|due| *due <= now)?;
        self.travelling.pop().map(|Reverse(packet)| packet)
    }

    pub(super) fn next_due(&self) -> Option<Nanos> {
        self.travelling.peek().map(|Reverse(packet)| packet.due)
    }

    /// Minimum propagation time.
    pub(super) fn least_delay(&self) -> Nanos {
        self.delay - self.jitter.map_or(Nanos::ZERO, |jitter| jitter.reach())
    }

    pub(super) fn len(&self) -> usize {
        self.travelling.len()
    }

    fn draw_delay(&mut self) -> Nanos {
        let Some(jitter) = self.jitter else {
            return self.delay;
        };
        let deviation = match jitter.distribution {
            Distribution::Uniform => 2.0 * self.jitter_dice.unit() - 1.0,
            Distribution::Normal => self.jitter_dice.normal(),
        };
        let offset = Nanos((deviation.abs() * jitter.size.0 as f64) as u64);
        match deviation < 0.0 {
            true => self.delay - offset,
            false => self.delay + offset,
        }
    }
}

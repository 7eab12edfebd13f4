//! Loss, and propagation to the far end: delay, jitter, and packets that are held back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use linerate_units::{Dice, Nanos};

use super::Purpose;
use super::spec::{Distribution, Jitter, Loss, Reorder};

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

// Loss models.

/// A loss model with its state.
#[derive(Debug, Clone)]
pub(super) struct LossProcess {
    model: Option<Loss>,
    dice: Dice,
    /// Gilbert–Elliott: whether the channel is bad.
    is_bad: bool,
    /// Periodic: number of packets since the last loss.
    since_loss: u64,
}

impl LossProcess {
    /// Makes a process whose channel is good.
    pub(super) fn new(model: Option<Loss>, seed: u64) -> Self {
        Self { model, dice: Purpose::Loss.dice(seed), is_bad: false, since_loss: 0 }
    }

    /// Whether the next packet is lost.
    pub(super) fn is_lost(&mut self) -> bool {
        match self.model {
            None => false,
            Some(Loss::Random { percent }) => self.dice.chance(percent / 100.0),
            Some(Loss::Every { nth }) => {
                self.since_loss += 1;
                let is_lost = self.since_loss >= nth;
                if is_lost {
                    self.since_loss = 0;
                }
                is_lost
            }
            Some(Loss::GilbertElliott {
                enter_percent,
                leave_percent,
                bad_loss_percent,
                good_loss_percent,
            }) => {
                let (loss, change) = if self.is_bad {
                    (bad_loss_percent, leave_percent)
                } else {
                    (good_loss_percent, enter_percent)
                };
                let is_lost = self.dice.chance(loss / 100.0);
                // The state changes after the packet, so that a bad state lasts 1/r packets on
                // average.
                self.is_bad ^= self.dice.chance(change / 100.0);
                is_lost
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: usize = 200_000;

    fn fates(model: Loss, seed: u64) -> Vec<bool> {
        let mut process = LossProcess::new(Some(model), seed);
        (0..PACKETS).map(|_| process.is_lost()).collect()
    }

    fn lost(fates: &[bool]) -> f64 {
        fates.iter().filter(|is_lost| **is_lost).count() as f64
    }

    #[test]
    fn random_loss_is_within_binomial_bounds() {
        for (seed, percent) in [(1, 0.1), (2, 1.0), (3, 10.0), (4, 50.0), (5, 99.0)] {
            let p = percent / 100.0;
            let mean = PACKETS as f64 * p;
            let deviation = (mean * (1.0 - p)).sqrt();
            let lost = lost(&fates(Loss::Random { percent }, seed));
            assert!((lost - mean).abs() < 4.0 * deviation, "{percent} %: {lost}");
        }
        assert_eq!(lost(&fates(Loss::Random { percent: 0.0 }, 6)), 0.0);
        assert_eq!(lost(&fates(Loss::Random { percent: 100.0 }, 7)), PACKETS as f64);
    }

    #[test]
    fn every_nth_packet_is_lost() {
        let fates = fates(Loss::Every { nth: 7 }, 0);
        assert!(fates.iter().enumerate().all(|(i, lost)| *lost == (i % 7 == 6)));
    }

    #[test]
    fn gilbert_elliott_bursts_last_one_over_r_and_take_p_over_p_plus_r() {
        for (seed, p, r) in [(1, 1.0, 25.0), (2, 0.5, 10.0), (3, 5.0, 50.0)] {
            let fates = fates(Loss::gilbert(p, r), seed);
            let bursts = fates.chunk_by(|a, b| a == b).filter(|run| run[0]).count() as f64;
            // Lengths are geometric with variance (1−r)/r², their mean's error that over the number
            // of bursts.
            let r = r / 100.0;
            let length_error = ((1.0 - r) / (r * r) / bursts).sqrt();
            let mean_length = lost(&fates) / bursts;
            assert!((mean_length - 1.0 / r).abs() < 4.0 * length_error, "r={r}: {mean_length}");
            let share = lost(&fates) / PACKETS as f64;
            let expected = p / 100.0 / (p / 100.0 + r);
            let share_error = expected * (2.0 / (r * bursts)).sqrt();
            assert!((share - expected).abs() < 4.0 * share_error, "p={p}: {share}");
        }
    }

    #[test]
    fn gilbert_elliott_loses_in_both_states_as_told() {
        let model = Loss::GilbertElliott {
            enter_percent: 50.0,
            leave_percent: 50.0,
            bad_loss_percent: 60.0,
            good_loss_percent: 20.0,
        };
        let share = lost(&fates(model, 11)) / PACKETS as f64;
        // Half the time in each state, and the states are independent: binomial with p = 0.4.
        let deviation = (0.4 * 0.6 / PACKETS as f64).sqrt();
        assert!((share - 0.4).abs() < 4.0 * deviation, "{share}");
    }
}

//! The time at which a paced sender sends its next unit.

use crate::units::BitRate;

/// Spreads units of any size evenly at a rate. Due times follow from the total sent, so that
/// rounding never accumulates. A sender that has fallen behind by up to [`MAX_LAG_NS`] catches up
/// at twice its rate, in bursts of [`MAX_BURST_NS`] at most; the rest of a longer stall it forgets.
#[derive(Debug, Clone)]
pub struct Pacer {
    rate_bps: u64,
    epoch_ns: u64,
    sent_bits: u128,
    /// However late the sender is: no unit before half of the last one's time is over.
    earliest_ns: u64,
}

/// What a sender makes up for, and more than a busy host keeps a thread off its CPUs: a longer
/// stall made up would be another workload.
pub const MAX_LAG_NS: u64 = 50_000_000;
/// What a sender that wakes up late may send at once, in time at its rate: one that woke up for
/// each unit would be late again where the host is busy.
pub const MAX_BURST_NS: u64 = 4_000_000;

impl Pacer {
    /// The first unit is due at `start_ns`. A rate of zero counts as 1 bit/s.
    pub fn new(rate: BitRate, start_ns: u64) -> Self {
        Self { rate_bps: rate.0.max(1), epoch_ns: start_ns, sent_bits: 0, earliest_ns: start_ns }
    }

    /// When the next unit is due, ns.
    #[inline]
    pub fn due_ns(&self) -> u64 {
        self.planned_ns().max(self.earliest_ns)
    }

    /// How many units of `bytes` are due at `now_ns` and may be sent at once: one, or what a late
    /// sender lacks, within [`MAX_BURST_NS`].
    #[inline]
    pub fn due_units(&self, bytes: u64, now_ns: u64) -> u64 {
        let late_ns = now_ns.saturating_sub(self.planned_ns()).min(MAX_BURST_NS);
        1 + late_ns / self.time_ns(u128::from(bytes) * 8).max(1)
    }

    /// A unit of `bytes` was sent at `now_ns`, at or after it was due.
    #[inline]
    pub fn sent(&mut self, bytes: u64, now_ns: u64) {
        let lag = now_ns.saturating_sub(self.planned_ns());
        self.epoch_ns += lag.saturating_sub(MAX_LAG_NS);
        let bits = u128::from(bytes) * 8;
        self.sent_bits += bits;
        self.earliest_ns = now_ns.saturating_add(self.time_ns(bits) / 2);
    }

    fn planned_ns(&self) -> u64 {
        self.epoch_ns.saturating_add(self.time_ns(self.sent_bits))
    }

    fn time_ns(&self, bits: u128) -> u64 {
        u64::try_from(bits * 1_000_000_000 / u128::from(self.rate_bps)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pacer_never_exceeds_rate(
            rate in 1_000u64..10_000_000_000, bytes in 1u64..70_000,
            jitter in prop::collection::vec(0u64..5_000_000, 1..200),
        ) {
            let mut pacer = Pacer::new(BitRate(rate), 1_000);
            let mut now = 1_000;
            let mut departures = Vec::new();
            for late in jitter {
                now = pacer.due_ns().max(now) + late;
                departures.push(now);
                pacer.sent(bytes, now);
            }
            // Over any window the units sent, the first not counted, fit the rate plus the allowed
            // lag.
            for (i, first) in departures.iter().enumerate() {
                for (sent, last) in departures[i..].iter().enumerate() {
                    let bits = sent as u128 * u128::from(bytes) * 8;
                    let time = u128::from(last - first + MAX_LAG_NS + 1);
                    prop_assert!(bits * 1_000_000_000 <= (time + 1) * u128::from(rate) + u128::from(bytes) * 8 * 1_000_000_000);
                }
            }
        }

        #[test]
        fn a_punctual_sender_gets_the_rate_exactly(
            rate in 8_000u64..1_000_000_000, bytes in 1u64..2_000,
        ) {
            let mut pacer = Pacer::new(BitRate(rate), 0);
            for _ in 0..1000 {
                let due = pacer.due_ns();
                pacer.sent(bytes, due);
            }
            let expected = 1000u128 * u128::from(bytes) * 8_000_000_000 / u128::from(rate);
            prop_assert!(u128::from(pacer.due_ns()).abs_diff(expected) <= 1);
        }
    }

    #[test]
    fn a_short_stall_is_made_up_at_twice_the_rate() {
        // A unit of 1000 bytes a millisecond; the eleventh is 9 ms late.
        let mut pacer = Pacer::new(BitRate(8_000_000), 0);
        let mut departures = Vec::new();
        for unit in 0..30 {
            let now = pacer.due_ns() + if unit == 10 { 9_000_000 } else { 0 };
            departures.push(now);
            pacer.sent(1000, now);
        }
        assert_eq!(departures[29], 29_000_000);
        let gaps = departures.windows(2).map(|pair| pair[1] - pair[0]);
        assert_eq!(gaps.min(), Some(500_000));
    }

    #[test]
    fn a_sender_that_wakes_up_late_each_time_still_has_its_rate() {
        // 100 Mbit/s in units of 1250 bytes, 0.1 ms each; every sleep is a millisecond too long.
        let mut pacer = Pacer::new(BitRate(100_000_000), 0);
        let (mut now, mut sent) = (0, 0);
        while now < 1_000_000_000 {
            now = pacer.due_ns().max(now) + 1_000_000;
            let units = pacer.due_units(1250, now);
            assert!(units <= 1 + MAX_BURST_NS / 100_000);
            pacer.sent(units * 1250, now);
            sent += units;
        }
        assert!((9_950..=10_020).contains(&sent), "{sent}");
    }

    #[test]
    fn of_a_long_stall_the_bound_is_made_up() {
        let mut pacer = Pacer::new(BitRate(8_000_000), 0);
        pacer.sent(1000, 0);
        let mut now = 1_000_000_000;
        for _ in 0..100 {
            pacer.sent(1000, now);
            now = pacer.due_ns();
        }
        assert_eq!(now, 1_000_000_000 + 100_000_000 - MAX_LAG_NS);
    }
}

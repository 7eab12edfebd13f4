//! When the next unit of a paced sender is due.

use crate::units::BitRate;

/// Spreads units of any size evenly at a rate. Due times follow from the total sent, so that
/// rounding never accumulates; a sender that falls behind by more than `max_lag` forgets the rest
/// instead of making it up in a burst.
#[derive(Debug, Clone)]
pub struct Pacer {
    rate_bps: u64,
    epoch_ns: u64,
    sent_bits: u128,
    max_lag_ns: u64,
}

/// Behind by more than this, a sender has stalled: a burst to catch up would be another workload.
pub const DEFAULT_MAX_LAG_NS: u64 = 2_000_000;

impl Pacer {
    /// The first unit is due at `start_ns`. A rate of zero counts as 1 bit/s.
    pub fn new(rate: BitRate, start_ns: u64) -> Self {
        Self::with_max_lag(rate, start_ns, DEFAULT_MAX_LAG_NS)
    }

    /// As [`Pacer::new`] with another patience; `u64::MAX` makes up for every stall, as an open
    /// loop must.
    pub fn with_max_lag(rate: BitRate, start_ns: u64, max_lag_ns: u64) -> Self {
        Self {
            rate_bps: rate.0.max(1),
            epoch_ns: start_ns,
            sent_bits: 0,
            max_lag_ns,
        }
    }

    /// When the next unit is due, ns.
    #[inline]
    pub fn due_ns(&self) -> u64 {
        let since = self.sent_bits * 1_000_000_000 / u128::from(self.rate_bps);
        self.epoch_ns
            .saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }

    /// A unit of `bytes` was sent at `now_ns`, at or after it was due.
    #[inline]
    pub fn sent(&mut self, bytes: u64, now_ns: u64) {
        let lag = now_ns.saturating_sub(self.due_ns());
        if lag > self.max_lag_ns {
            self.epoch_ns += lag - self.max_lag_ns;
        }
        self.sent_bits += u128::from(bytes) * 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pacer_never_exceeds_rate(rate in 1_000u64..10_000_000_000, bytes in 1u64..70_000, jitter in prop::collection::vec(0u64..5_000_000, 1..200)) {
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
                    let time = u128::from(last - first + DEFAULT_MAX_LAG_NS + 1);
                    prop_assert!(bits * 1_000_000_000 <= (time + 1) * u128::from(rate) + u128::from(bytes) * 8 * 1_000_000_000);
                }
            }
        }

        #[test]
        fn a_punctual_sender_gets_the_rate_exactly(rate in 8_000u64..1_000_000_000, bytes in 1u64..2_000) {
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
    fn a_stall_is_not_made_up_by_a_burst() {
        let mut pacer = Pacer::new(BitRate(8_000_000), 0);
        pacer.sent(1000, 0);
        pacer.sent(1000, 1_000_000_000);
        assert!(pacer.due_ns() >= 999_000_000);
    }
}

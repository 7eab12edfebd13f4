//! The two meters (RFC 2697, RFC 2698), in whole numbers.

use linerate_core::units::Dscp;

use crate::policy::Meter;
use crate::rules::{Bucket, Buckets, UNITS_PER_BYTE};

use super::Colour;

/// State of a meter: the tokens that its buckets lack, so that a new meter with full buckets is all
/// zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MeterState {
    /// Time at which the buckets were last filled.
    pub last_ns: u64,
    /// Tokens that the committed bucket lacks.
    pub committed: u64,
    /// Tokens that the excess bucket (RFC 2697) or the peak bucket (RFC 2698) lacks.
    pub second: u64,
}

impl MeterState {
    /// Colours a packet of `bytes`, at most `MAX_METERED_BYTES`.
    pub fn colour(
        &mut self,
        buckets: &Buckets,
        precolour: Colour,
        bytes: u32,
        now_ns: u64,
    ) -> Colour {
        let elapsed = now_ns.saturating_sub(self.last_ns);
        self.last_ns = self.last_ns.max(now_ns);
        let cost = u64::from(bytes) * UNITS_PER_BYTE;
        match buckets {
            Buckets::SingleRate { committed, excess_depth } => {
                let gain = committed.gain(elapsed);
                // RFC 2697, 3: what the committed bucket cannot hold goes to the excess bucket.
                let over = gain.saturating_sub(self.committed);
                self.committed = self.committed.saturating_sub(gain);
                self.second = self.second.saturating_sub(over);
                self.take_single(committed.depth, *excess_depth, precolour, cost)
            }
            Buckets::TwoRate { committed, peak } => {
                self.committed = self.committed.saturating_sub(committed.gain(elapsed));
                self.second = self.second.saturating_sub(peak.gain(elapsed));
                self.take_two(committed.depth, peak.depth, precolour, cost)
            }
        }
    }

    /// RFC 2697, 3.1 and 3.2; colour-blind is colour-aware with all packets green.
    fn take_single(&mut self, depth: u64, excess: u64, precolour: Colour, cost: u64) -> Colour {
        if precolour == Colour::Green && self.committed + cost <= depth {
            self.committed += cost;
            return Colour::Green;
        }
        if precolour <= Colour::Yellow && self.second + cost <= excess {
            self.second += cost;
            return Colour::Yellow;
        }
        Colour::Red
    }

    /// RFC 2698, 3.1 and 3.2.
    fn take_two(&mut self, depth: u64, peak: u64, precolour: Colour, cost: u64) -> Colour {
        if precolour == Colour::Red || self.second + cost > peak {
            return Colour::Red;
        }
        self.second += cost;
        if precolour == Colour::Yellow || self.committed + cost > depth {
            return Colour::Yellow;
        }
        self.committed += cost;
        Colour::Green
    }
}

impl Bucket {
    /// The tokens that come in `elapsed` nanoseconds, at most a full bucket.
    fn gain(&self, elapsed: u64) -> u64 {
        self.rate * elapsed.min(self.full_ns)
    }
}

/// The colour that a packet comes with, by its code point (RFC 2697 and 2698 leave the encoding
/// open).
pub(super) fn precolour(meter: &Meter, dscp: Option<u128>) -> Colour {
    let number = |code: Dscp| u128::from(code.octet() >> 2);
    let [_, yellow, red] = meter.colours.map(|code| code.map(number));
    match dscp {
        None => Colour::Green,
        came if came == red => Colour::Red,
        came if came == yellow => Colour::Yellow,
        _ => Colour::Green,
    }
}

#[cfg(test)]
mod tests {
    use linerate_core::units::{BitRate, ByteCount};

    use super::Colour::{Green, Red, Yellow};
    use super::*;
    use crate::policy::MeterKind;

    /// 8 Mbit/s is a byte in a microsecond.
    const BYTE_NS: u64 = 1000;
    const RATE: BitRate = BitRate(8_000_000);

    fn buckets(kind: MeterKind) -> Buckets {
        let meter = Meter { kind, colour_aware: false, colours: [None; 3], drop_red: false };
        meter.buckets()
    }

    fn single(committed: u64, excess: u64) -> Buckets {
        buckets(MeterKind::SingleRate {
            committed: RATE,
            committed_burst: ByteCount(committed),
            excess_burst: ByteCount(excess),
        })
    }

    fn two(committed: u64, peak: u64) -> Buckets {
        buckets(MeterKind::TwoRate {
            committed: RATE,
            committed_burst: ByteCount(committed),
            peak: BitRate(2 * RATE.0),
            peak_burst: ByteCount(peak),
        })
    }

    /// The colours of packets (precolour, bytes, time in µs).
    fn colours(buckets: &Buckets, packets: &[(Colour, u32, u64)]) -> Vec<Colour> {
        let mut state = MeterState::default();
        let colour = |&(precolour, bytes, at): &(Colour, u32, u64)| {
            state.colour(buckets, precolour, bytes, at * BYTE_NS)
        };
        packets.iter().map(colour).collect()
    }

    #[test]
    fn single_rate_spends_the_committed_burst_then_the_excess_burst() {
        let packets = [
            (Green, 1000, 1),
            (Green, 501, 1),
            (Green, 1499, 1),
            (Green, 501, 1),
            (Green, 500, 1),
            (Green, 1, 1),
            // A microsecond later there is one byte more, to the nanosecond.
            (Green, 2, 2),
            (Green, 1, 2),
        ];
        let seen = colours(&single(1500, 2000), &packets);
        assert_eq!(seen, [Green, Yellow, Yellow, Red, Green, Red, Red, Green]);
    }

    #[test]
    fn the_excess_bucket_gets_what_the_committed_one_cannot_hold() {
        let packets = [
            (Green, 1000, 1),
            (Green, 2000, 1),
            // 1500 bytes: 1000 for the committed bucket, 500 for the excess bucket.
            (Yellow, 501, 1501),
            (Yellow, 500, 1501),
            (Green, 1000, 1501),
        ];
        assert_eq!(colours(&single(1000, 2000), &packets), [Green, Yellow, Red, Yellow, Green]);
    }

    #[test]
    fn single_rate_never_betters_a_colour() {
        let packets = [(Red, 1, 1), (Yellow, 2000, 1), (Yellow, 1, 1), (Green, 1000, 1)];
        assert_eq!(colours(&single(1000, 2000), &packets), [Red, Yellow, Red, Green]);
    }

    #[test]
    fn two_rates_ask_the_peak_bucket_first_and_red_costs_nothing() {
        let packets = [
            (Green, 3001, 1),
            (Green, 1000, 1),
            (Green, 1, 1),
            (Green, 2000, 1),
            (Green, 1999, 1),
            (Green, 1, 1),
            // 100 µs: 200 bytes of peak, 100 committed.
            (Green, 100, 101),
            (Green, 100, 101),
            (Green, 1, 101),
        ];
        let expected = [Red, Green, Yellow, Red, Yellow, Red, Green, Yellow, Red];
        assert_eq!(colours(&two(1000, 3000), &packets), expected);
    }

    #[test]
    fn two_rates_never_better_a_colour() {
        let packets = [(Red, 1, 1), (Yellow, 2000, 1), (Green, 1000, 1), (Green, 1, 1)];
        assert_eq!(colours(&two(1000, 3000), &packets), [Red, Yellow, Green, Red]);
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let packets = [(Green, 1000, 5000), (Green, 1, 1), (Green, 1, 5000), (Green, 1, 5001)];
        assert_eq!(colours(&single(1000, 0), &packets), [Green, Red, Red, Green]);
    }

    #[test]
    fn the_greatest_constants_stay_within_64_bits() {
        let most = ByteCount(u64::MAX);
        let kind = MeterKind::SingleRate {
            committed: BitRate(u64::MAX),
            committed_burst: most,
            excess_burst: most,
        };
        let buckets = buckets(kind);
        let mut state = MeterState::default();
        for at in [1, 2, u64::MAX / 2, u64::MAX] {
            for expected in [Green, Yellow, Red] {
                let bytes = crate::rules::MAX_METERED_BYTES;
                let colour = state.colour(&buckets, Green, bytes, at);
                assert!(at == 2 || colour == expected, "{colour:?} at {at}");
            }
        }
        let still = self::buckets(MeterKind::SingleRate {
            committed: BitRate(0),
            committed_burst: ByteCount(1),
            excess_burst: ByteCount(0),
        });
        assert_eq!(colours(&still, &[(Green, 1, 1), (Green, 1, u64::MAX / 1000)]), [Green, Red]);
    }
}

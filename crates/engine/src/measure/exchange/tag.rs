//! Which request a UDP answer belongs to, and how long to wait for it.

use std::time::Duration;

use linerate_core::plan::ExchangeTest;
use linerate_core::wire::STAMP_ANSWERED_AT;

/// Longest wait without looking at the stop flag and at overdue requests.
pub(super) const SLICE: Duration = Duration::from_millis(20);

/// A sequence number in the first bytes of a request, which the response repeats, big-endian: 8
/// bytes, or as many as the shorter of the two has. In STAMP's packets it has 4 bytes, and the
/// response repeats it behind its own fields.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tag {
    bytes: usize,
    /// Its offset in a response.
    at: usize,
}

impl Tag {
    pub(super) fn new(test: &ExchangeTest) -> Self {
        if test.stamp {
            return Self { bytes: 4, at: STAMP_ANSWERED_AT };
        }
        let shorter = test.request_bytes.min(test.response_bytes);
        Self { bytes: shorter.min(8) as usize, at: 0 }
    }

    pub(super) fn bytes(self) -> usize {
        self.bytes
    }

    /// The bits of a number that the tag holds.
    fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes)
    }

    /// Most requests in flight: half of all numbers, so that a late answer is not taken for that of
    /// the next request with its number.
    pub(super) fn most_under_way(self) -> u64 {
        self.mask() / 2 + 1
    }

    #[inline]
    pub(super) fn write(self, sequence: u64, datagram: &mut [u8]) {
        datagram[..self.bytes].copy_from_slice(&sequence.to_be_bytes()[8 - self.bytes..]);
    }

    /// The number in `datagram`, modulo what the tag holds.
    #[inline]
    pub(super) fn read(self, datagram: &[u8]) -> u64 {
        datagram[self.at..self.at + self.bytes]
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    #[inline]
    pub(super) fn is(self, sequence: u64, datagram: &[u8]) -> bool {
        self.read(datagram) == sequence & self.mask()
    }
}

/// How long an answer is waited for: 20 times the running mean of the round trips, at least 200 ms.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Patience {
    rtt_ns: u64,
}

impl Patience {
    #[inline]
    pub(super) fn learn(&mut self, rtt_ns: u64) {
        self.rtt_ns = if self.rtt_ns == 0 {
            rtt_ns
        } else {
            // The weight of RFC 6298, section 2.
            self.rtt_ns - self.rtt_ns / 8 + rtt_ns / 8
        };
    }

    pub(super) fn limit_ns(self) -> u64 {
        self.rtt_ns.saturating_mul(20).max(200_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_tells_its_number_from_all_others_in_flight() {
        for bytes in 1..=8 {
            let tag = Tag { bytes, at: 0 };
            let mut datagram = [0; 8];
            for sequence in [0, 1, 255, 256, 0x1234_5678_9abc_def0] {
                tag.write(sequence, &mut datagram);
                assert!(tag.is(sequence, &datagram));
                assert!(!tag.is(sequence + 1, &datagram));
                assert!(!tag.is(sequence + tag.most_under_way(), &datagram));
            }
        }
        assert_eq!(Tag { bytes: 1, at: 0 }.most_under_way(), 128);
    }

    #[test]
    fn patience_follows_the_round_trips_but_never_below_200_ms() {
        let mut patience = Patience::default();
        assert_eq!(patience.limit_ns(), 200_000_000);
        (0..100).for_each(|_| patience.learn(50_000));
        assert_eq!(patience.limit_ns(), 200_000_000);
        (0..100).for_each(|_| patience.learn(100_000_000));
        assert!((1_900_000_000..=2_000_000_000).contains(&patience.limit_ns()));
    }
}

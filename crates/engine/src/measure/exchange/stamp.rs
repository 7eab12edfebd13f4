//! STAMP's test packets (RFC 8762) as the requests and responses of `rr`. The kernel stamps each
//! arrival, so that the time until a thread gets a CPU is part of no delay.

use linerate_core::one_way::Probe;
use linerate_core::wire::{StampAnswer, StampArrival, reflect};
use linerate_sys::socket::Arrival;

use crate::clock::{nanos, since_1970_ns};

/// When a packet arrived, ns since 1970.
pub(super) fn arrived_ns(arrival: &Arrival) -> u64 {
    arrival.at.map_or_else(since_1970_ns, nanos)
}

/// The delays that an answer shows which arrived at `arrived_ns`.
pub(super) fn probe(answer: &StampAnswer, arrived_ns: u64) -> Probe {
    let (received, answered) = (answer.received_ns, answer.sent_ns);
    Probe::new(answer.request_sent_ns, received, answered, arrived_ns)
}

/// Turns a request into its answer, in place; false if the packet is no request, or too short for
/// an answer.
pub(crate) fn answer(packet: &mut [u8], arrival: &Arrival, count: Option<u32>) -> bool {
    let came =
        StampArrival { received_ns: arrived_ns(arrival), ttl: arrival.ttl.unwrap_or(u8::MAX) };
    reflect(packet, came, count, since_1970_ns())
}

/// The delays that the answers of a flow show, of at most [`MAX_PROBES`] answers, evenly spread;
/// and how many packets were lost each way between the first answer and the last.
#[derive(Debug)]
pub(super) struct Delays {
    probes: Vec<Probe>,
    /// One answer in so many is kept.
    every: u64,
    answers: u64,
    /// Sequence numbers of the request and of the reflector, in the first answer and in the latest.
    first: (u32, u32),
    last: (u32, u32),
    /// The reflector counts by itself and does not only repeat the sequence numbers of requests.
    counts: bool,
}

/// Enough for the 99.9 % quantile.
const MAX_PROBES: usize = 1 << 16;

impl Delays {
    /// For a flow whose reflector is known to count by itself, or not.
    pub(super) fn new(counts: bool) -> Self {
        Self { probes: Vec::new(), every: 1, answers: 0, first: (0, 0), last: (0, 0), counts }
    }

    pub(super) fn answered(&mut self, answer: &StampAnswer, probe: Probe) {
        let numbers = (answer.request_sequence, answer.sequence);
        self.counts |= numbers.0 != numbers.1;
        if self.answers == 0 {
            (self.first, self.last) = (numbers, numbers);
        }
        if self.since_first(numbers.0) > self.since_first(self.last.0) {
            self.last = numbers;
        }
        self.answers += 1;
        if self.answers.is_multiple_of(self.every) {
            self.probes.push(probe);
        }
        if self.probes.len() == MAX_PROBES {
            self.every *= 2;
            let mut others = [true, false].into_iter().cycle();
            self.probes.retain(|_| others.next() == Some(true));
        }
    }

    fn since_first(&self, request: u32) -> u32 {
        request.wrapping_sub(self.first.0)
    }

    /// The probes, and the losses each way.
    pub(super) fn end(self) -> (Vec<Probe>, LostEachWay) {
        if self.answers == 0 {
            return (self.probes, LostEachWay::default());
        }
        let requests = u64::from(self.since_first(self.last.0)) + 1;
        let arrived = u64::from(self.last.1.wrapping_sub(self.first.1)) + 1;
        let lost = LostEachWay {
            up: requests.saturating_sub(arrived),
            down: arrived.saturating_sub(self.answers),
            // Numbers that only repeat those of the requests do not tell the directions apart.
            is_unknown: !self.counts && self.answers < requests,
        };
        (self.probes, lost)
    }
}

/// Requests and answers that were lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LostEachWay {
    up: u64,
    down: u64,
    is_unknown: bool,
}

impl LostEachWay {
    pub(crate) fn merge(&mut self, other: Self) {
        self.up += other.up;
        self.down += other.down;
        self.is_unknown |= other.is_unknown;
    }

    /// Losses up and down, if the reflector's numbers tell them apart.
    pub(crate) fn known(self) -> Option<(u64, u64)> {
        (!self.is_unknown).then_some((self.up, self.down))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Losses shown by answers with these sequence numbers of the request and of the reflector.
    fn lost(counts: bool, numbers: &[(u32, u32)]) -> Option<(u64, u64)> {
        let mut delays = Delays::new(counts);
        for &(request_sequence, sequence) in numbers {
            let answer = StampAnswer {
                sequence,
                sent_ns: 0,
                received_ns: 0,
                request_sequence,
                request_sent_ns: 0,
                request_ttl: 64,
            };
            delays.answered(&answer, probe(&answer, 1));
        }
        delays.end().1.known()
    }

    #[test]
    fn a_reflector_that_counts_shows_losses_by_direction() {
        assert_eq!(lost(false, &[(5, 5), (6, 6), (7, 7)]), Some((0, 0)));
        assert_eq!(lost(true, &[(5, 3), (6, 4), (9, 7)]), Some((0, 2)));
        assert_eq!(lost(false, &[(5, 3), (6, 4), (9, 5), (8, 4)]), Some((2, 0)));
        assert_eq!(lost(true, &[(u32::MAX, 1), (1, 2)]), Some((1, 0)));
        // One that repeats the requests' numbers does not show them.
        assert_eq!(lost(false, &[(5, 5), (7, 7)]), None);
        assert_eq!(lost(true, &[(5, 5), (7, 7)]), Some((0, 1)));
        assert_eq!(lost(false, &[]), Some((0, 0)));
    }

    #[test]
    fn of_too_many_probes_evenly_spread_ones_are_kept() {
        let mut delays = Delays::new(true);
        let answers = 5 * MAX_PROBES as u32 / 2;
        for sequence in 0..answers {
            let answer = StampAnswer {
                sequence,
                sent_ns: 0,
                received_ns: 0,
                request_sequence: sequence,
                request_sent_ns: u64::from(sequence),
                request_ttl: 64,
            };
            delays.answered(&answer, probe(&answer, 1));
        }
        let (probes, lost) = delays.end();
        assert!(probes.len() < MAX_PROBES && probes.len() > MAX_PROBES / 2 - 2);
        assert_eq!(lost.known(), Some((0, 0)));
        let gaps = probes.windows(2).map(|two| two[1].sent_ns - two[0].sent_ns);
        assert!(gaps.max() <= Some(8), "evenly");
    }
}

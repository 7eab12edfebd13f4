//! STAMP's test packets (RFC 8762) as the requests and responses of `rr`, with the kernel's time of
//! each arrival: what a thread waits for its turn is in no delay.

use std::io;
use std::net::UdpSocket;

use linerate_core::one_way::Probe;
use linerate_core::plan::ExchangeTest;
use linerate_core::wire::{StampAnswer, StampArrival, reflect};
use linerate_sys::socket::{self, Arrival};

use super::udp::{is_passing, send};
use crate::clock::{nanos, since_1970_ns};
use crate::measure::flow::Counters;
use crate::measure::shared::Shared;

/// When it arrived, ns since 1970.
pub(super) fn arrived_ns(arrival: &Arrival) -> u64 {
    arrival.at.map_or_else(since_1970_ns, nanos)
}

/// The delays that an answer tells, which arrived at that time.
pub(super) fn probe(answer: &StampAnswer, arrived_ns: u64) -> Probe {
    let (received, answered) = (answer.received_ns, answer.sent_ns);
    Probe::new(answer.request_sent_ns, received, answered, arrived_ns)
}

/// Makes an answer of a request in place; false if it is none, or too short for an answer.
pub(crate) fn answer(packet: &mut [u8], arrival: &Arrival, count: Option<u32>) -> bool {
    let came = StampArrival {
        received_ns: arrived_ns(arrival),
        ttl: arrival.ttl.unwrap_or(u8::MAX),
    };
    reflect(packet, came, count, since_1970_ns())
}

/// The endpoint's side of a flow: reflects and counts.
pub(super) fn respond(
    shared: &Shared,
    test: &ExchangeTest,
    socket: &UdpSocket,
    counters: &Counters,
) -> io::Result<()> {
    socket::note_arrivals(socket)?;
    // One byte more, so that a longer datagram is not taken for a request.
    let mut packet = vec![0; test.request_bytes as usize + 1];
    let (mut received, mut answered) = (0u32, 0);
    while !shared.stop.is_requested() {
        match socket::receive_from(socket, &mut packet) {
            // A late handshake of the flow's own beginning is no request.
            Ok(arrival) if arrival.length as u64 == test.request_bytes => {
                let packet = &mut packet[..arrival.length];
                let is_answer = answer(packet, &arrival, Some(received));
                received = received.wrapping_add(1);
                match send(socket, packet) {
                    Ok(()) => answered += u64::from(is_answer),
                    // No room: lost, as on any other hop.
                    Err(error) if is_passing(&error) => {}
                    Err(error) => return Err(error),
                }
                counters.set(answered * test.request_bytes, answered);
            }
            Ok(_) => {}
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What the answers of a flow tell: at most [`MAX_PROBES`] of them, evenly spread, and how many
/// were lost each way between the first answer and the last.
#[derive(Debug)]
pub(super) struct Delays {
    probes: Vec<Probe>,
    /// All but the last of so many are left out.
    every: u64,
    answers: u64,
    /// The numbers of the request and of the reflector: of the first answer and of the latest.
    first: (u32, u32),
    last: (u32, u32),
    /// The reflector's numbers are its own.
    counts: bool,
}

/// Enough for a quantile of a thousandth.
const MAX_PROBES: usize = 1 << 16;

impl Delays {
    /// Of a flow whose reflector is known to count, or not.
    pub(super) fn new(counts: bool) -> Self {
        Self {
            probes: Vec::new(),
            every: 1,
            answers: 0,
            first: (0, 0),
            last: (0, 0),
            counts,
        }
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

    /// The probes, and what is known of losses.
    pub(super) fn end(self) -> (Vec<Probe>, LostEachWay) {
        let requests = u64::from(self.since_first(self.last.0)) + 1;
        let arrived = u64::from(self.last.1.wrapping_sub(self.first.1)) + 1;
        let lost = LostEachWay {
            up: requests.saturating_sub(arrived),
            down: arrived.saturating_sub(self.answers),
            // Numbers that only repeat the requests' tell nothing.
            is_unknown: !self.counts && self.answers < requests,
        };
        (
            self.probes,
            if self.answers == 0 {
                LostEachWay::default()
            } else {
                lost
            },
        )
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

    /// Up and down, where the reflector tells.
    pub(crate) fn known(self) -> Option<(u64, u64)> {
        (!self.is_unknown).then_some((self.up, self.down))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers to these requests with these numbers of the reflector's.
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
    fn a_reflector_that_counts_tells_losses_apart() {
        assert_eq!(lost(false, &[(5, 5), (6, 6), (7, 7)]), Some((0, 0)));
        assert_eq!(lost(true, &[(5, 3), (6, 4), (9, 7)]), Some((0, 2)));
        assert_eq!(lost(false, &[(5, 3), (6, 4), (9, 5), (8, 4)]), Some((2, 0)));
        assert_eq!(lost(true, &[(u32::MAX, 1), (1, 2)]), Some((1, 0)));
        // One that repeats the requests' numbers does not.
        assert_eq!(lost(false, &[(5, 5), (7, 7)]), None);
        assert_eq!(lost(true, &[(5, 5), (7, 7)]), Some((0, 1)));
        assert_eq!(lost(false, &[]), Some((0, 0)));
    }

    #[test]
    fn many_probes_are_thinned_evenly() {
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

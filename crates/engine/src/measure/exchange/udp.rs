//! Requests and responses of `rr` on a UDP flow, linerate's own and STAMP's. Any of them may be
//! lost or late.

use std::collections::VecDeque;
use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use linerate_core::one_way::Probe;
use linerate_core::plan::{ExchangeTest, MAX_DEPTH};
use linerate_core::wire::{STAMP_ANSWERED_AT, StampAnswer, StampArrival, StampRequest, reflect};
use linerate_sys::poll::{self, Interest};
use linerate_sys::socket::{self, Arrival};

use super::Tally;
use super::pipeline::Requests;
use crate::clock::{nanos, now_ns, since_1970_ns};
use crate::retry::is_transient_for_datagrams;

/// Sends a datagram. An ICMP error that the kernel reports was caused by an earlier datagram.
pub(super) fn send(socket: &UdpSocket, datagram: &[u8]) -> io::Result<()> {
    loop {
        match socket::send(socket, datagram) {
            Ok(_) => return Ok(()),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Receives a datagram: its length and, with `stamp`, when and how it arrived.
pub(super) fn receive(
    socket: &UdpSocket,
    buffer: &mut [u8],
    stamp: bool,
) -> io::Result<(usize, Option<Arrival>)> {
    if !stamp {
        return Ok((socket::receive(socket, buffer)?, None));
    }
    let arrival = socket::receive_from(socket, buffer)?;
    Ok((arrival.length, Some(arrival)))
}

/// A request in flight. Its sequence number is `generation × slots + slot`, so that the number in
/// an answer leads to the slot. STAMP's numbers go up one by one; their slot is searched for.
#[derive(Clone, Copy, Default)]
struct RequestSlot {
    sequence: u64,
    start_ns: u64,
    sent_ns: u64,
    busy: bool,
}

pub(super) struct UdpRequests<'a> {
    socket: &'a UdpSocket,
    tag: Tag,
    /// For STAMP's packets: the session's number, and the sequence number of the next request.
    stamp: Option<(u16, u32)>,
    patience: Patience,
    request: Vec<u8>,
    response: Vec<u8>,
    /// Their number is a power of two, as the number of tags is.
    slots: Vec<RequestSlot>,
    /// The slot that has been free for longest is first, so that a tag repeats as late as possible.
    free: VecDeque<u32>,
    /// The slot whose request the kernel has not taken.
    unsent: Option<u32>,
    next_look_ns: u64,
}

impl<'a> UdpRequests<'a> {
    pub(super) fn new(socket: &'a UdpSocket, test: &ExchangeTest, flow: u32) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        if test.stamp {
            socket::note_arrivals(socket)?;
        }
        let tag = Tag::new(test);
        let depth = if test.rate_per_s.is_some() { MAX_DEPTH } else { test.depth };
        let slots = u64::from(depth.next_power_of_two()).min(tag.most_under_way()) as u32;
        Ok(Self {
            socket,
            tag,
            // No session has the number 0 (RFC 8972, 3).
            stamp: test.stamp.then_some((flow as u16 + 1, 0)),
            patience: Patience::default(),
            request: vec![0x5a; test.request_bytes as usize],
            // One byte more than a response has, so that a longer datagram is not taken for one. Of
            // a STAMP packet only the front has a meaning.
            response: vec![0; test.response_bytes as usize + 1],
            slots: (0..slots)
                .map(|slot| RequestSlot { sequence: slot.into(), ..RequestSlot::default() })
                .collect(),
            free: (0..slots).collect(),
            unsent: None,
            next_look_ns: 0,
        })
    }

    /// The slot of the request that `response` answers, if the request still waits.
    fn slot_of_response(&self) -> Option<usize> {
        let is_it = |slot: &RequestSlot| slot.busy && self.tag.is(slot.sequence, &self.response);
        if self.stamp.is_some() {
            return self.slots.iter().position(is_it);
        }
        let slot = self.tag.read(&self.response) as usize & (self.slots.len() - 1);
        is_it(&self.slots[slot]).then_some(slot)
    }

    fn release(&mut self, slot: usize) -> RequestSlot {
        let stride = self.slots.len() as u64;
        let entry = &mut self.slots[slot];
        let was = *entry;
        entry.busy = false;
        entry.sequence = entry.sequence.wrapping_add(stride);
        self.free.push_back(slot as u32);
        was
    }
}

impl Requests for UdpRequests<'_> {
    fn under_way(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn is_blocked(&self) -> bool {
        self.unsent.is_some()
    }

    fn has_number(&self) -> bool {
        !self.free.is_empty()
    }

    fn begin(&mut self, start_ns: u64, now_ns: u64) -> io::Result<()> {
        let slot = self.free.pop_front().expect("asked has_number before");
        let entry = &mut self.slots[slot as usize];
        (entry.start_ns, entry.sent_ns, entry.busy) = (start_ns, now_ns, true);
        if let Some((_, number)) = &mut self.stamp {
            // STAMP's numbers go up one by one, whichever slot is free.
            entry.sequence = u64::from(*number);
            *number = number.wrapping_add(1);
        }
        self.unsent = Some(slot);
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(slot) = self.unsent else {
            return Ok(());
        };
        let sequence = self.slots[slot as usize].sequence;
        match self.stamp {
            Some((session, _)) => {
                StampRequest { sequence: sequence as u32, sent_ns: since_1970_ns(), session }
                    .write(&mut self.request)
            }
            None => self.tag.write(sequence, &mut self.request),
        }
        match send(self.socket, &self.request) {
            Ok(()) => self.unsent = None,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn receive(&mut self, tally: &mut Tally<'_>) -> io::Result<bool> {
        let stamp = self.stamp.is_some();
        let (n, arrival) = match receive(self.socket, &mut self.response, stamp) {
            Ok(received) => received,
            Err(error) if is_transient_for_datagrams(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        // Reflectors may pad their answers to any length.
        let is_whole = match self.stamp {
            Some(_) => StampAnswer::read(&self.response[..n]).is_some(),
            None => n + 1 == self.response.len(),
        };
        if !is_whole {
            return Ok(true);
        }
        let Some(slot) = self.slot_of_response() else {
            return Ok(true);
        };
        let entry = self.slots[slot];
        let now = now_ns();
        self.patience.learn(now - entry.sent_ns);
        self.release(slot);
        tally.answered(entry.start_ns, now);
        if let Some(arrival) = arrival
            && let Some(answer) = StampAnswer::read(&self.response)
        {
            tally.stamped(entry.start_ns, &answer, arrived_ns(&arrival));
        }
        Ok(true)
    }

    fn expire(&mut self, now_ns: u64, tally: &mut Tally<'_>) {
        if now_ns < self.next_look_ns {
            return;
        }
        self.next_look_ns = now_ns + SLICE.as_nanos() as u64;
        let limit = self.patience.limit_ns();
        for slot in 0..self.slots.len() {
            let entry = self.slots[slot];
            if entry.busy && now_ns - entry.sent_ns > limit && self.unsent != Some(slot as u32) {
                tally.failed(self.release(slot).start_ns);
            }
        }
    }

    fn abandon(&mut self, tally: &mut Tally<'_>) {
        for entry in self.slots.iter().filter(|entry| entry.busy) {
            tally.abandoned(entry.start_ns);
        }
    }

    fn wait(&self, interest: Interest, timeout: Duration) -> io::Result<bool> {
        poll::wait_ready(self.socket, interest, timeout)
    }
}

// Tags: the request that a UDP answer belongs to, and how long to wait for it.

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

// STAMP's test packets (RFC 8762) as requests and responses. The kernel stamps each arrival, so
// that the time until a thread gets a CPU is part of no delay.

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

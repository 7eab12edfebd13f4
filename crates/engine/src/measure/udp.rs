//! The two ends of a UDP stream.
//!
//! The sender marks each datagram with its phase (warm-up or measured time) and a 64-bit sequence
//! number; the receiver counts the measured time alone. Other tools' datagrams have other marks, or
//! none. iperf3's carry no phase: its warm-up ends by the receiver's clock. Of datagrams without
//! marks only the length counts, and an empty one ends the flow.
//!
//! Without a rate the sender sends as fast as it can. With a rate it spaces single datagrams
//! evenly; where they would follow each other faster than a system call takes, it spaces small
//! batches. After a wait that was too long it sends all that has become due.

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use linerate_core::foreign::iperf3::Layout;
use linerate_core::pace::{MAX_BURST_NS, Pacer};
use linerate_core::plan::{Extent, MAX_TRAIN, StreamTest};
use linerate_core::session::message::{Train, UdpReceived, UdpSent};
use linerate_core::stats::{AddedDelay, Jitter, LatencyHistogram, SequenceTracker};
use linerate_core::units::BitRate;
use linerate_core::wire::{
    DATAGRAM_HEADER, DatagramHeader, HANDSHAKE_BYTES, Handshake, Pattern, Phase,
};
use linerate_sys::poll::wait_readable;
use linerate_sys::socket;
use linerate_sys::udp_batch::{BatchReceiver, BatchSender, Offload};

use super::flow::{FlowState, Marks, Shared, WorkerEnd};
use super::pause::{Pause, receive_buffer};
use crate::clock::{nanos, now_ns};
use crate::retry::is_transient_for_datagrams;

/// Datagrams of an unpaced call with offload: two to three full frames.
const BATCH: usize = 128;
/// Datagrams of an unpaced call without offload: one sendmmsg.
const PLAIN_BATCH: usize = 64;
/// Paced calls are at least this far apart: closer ones would no longer be evenly spaced.
const MIN_CALL_GAP_NS: u64 = 16_000;
/// A sleeping CPU wakes up late: where calls are closer than `SHORT_GAP_NS`, the sender spins for
/// the last part of each wait. With longer gaps that would use a CPU for little gain, and on a busy
/// host the scheduler would take the CPU from a sender that spins.
const SPIN: Duration = Duration::from_micros(120);
const SHORT_GAP_NS: u64 = 25_000;
/// Longest receiving call without a look at the stop flag.
const TIMEOUT: Duration = Duration::from_millis(50);
/// Receive buffer, bytes, as far as the host allows it: it holds what arrives while the receiver
/// has no CPU.
pub(crate) const RECEIVE_BUFFER: u32 = 4 << 20;
/// Calls that empty this buffer at the end; a peer that goes on sending gets no more.
const MAX_LAST_CALLS: u32 = 4096;
/// Largest UDP payload of a packet over IPv4 and of an offload frame, bytes.
const LARGEST: usize = 65_507;
/// Empty datagrams at the end of a flow without marks. A receiver that misses all of them has a
/// timeout.
const FAREWELLS: usize = 3;
/// Fewer datagrams during a pause do not make up for its cost.
const WORTH_A_PAUSE: u64 = 4;
/// After this many refused datagrams the peer is considered gone.
const MAX_REFUSED: u32 = 1000;

fn offload(test: &StreamTest) -> Offload {
    if test.offload { Offload::Segment } else { Offload::None }
}

/// Sends until the measured time is over, the count is sent, or the stop flag is set.
pub(crate) fn send(
    shared: &Shared,
    flow: &FlowState,
    test: &StreamTest,
    socket: &UdpSocket,
) -> io::Result<WorkerEnd> {
    linerate_sys::thread::wake_sharply();
    let gap_ns = test.rate_bps.map(|rate| gap_ns(test, rate));
    let per_call = datagrams_per_call(test, gap_ns);
    let most = gap_ns.map_or(per_call, |gap| most_per_call(per_call, gap));
    let mut sender = Sender {
        shared,
        flow,
        socket,
        batch: BatchSender::new(test.message_bytes as usize, most, offload(test)),
        per_call,
        most,
        spin: match gap_ns {
            Some(SHORT_GAP_NS..) => Duration::ZERO,
            _ => SPIN,
        },
        pattern: test.verify.then(|| Pattern::new(shared.test.seed)),
        message: test.message_bytes,
        sequence: 0,
        phase_began: 0,
        phase: Phase::WarmUp,
        refused: 0,
        gone: 0,
        gaps: LatencyHistogram::new(),
        last_call_ns: None,
    };
    sender.run(test.rate_bps)?;
    if shared.marks == Marks::None {
        // One of several is enough: a failure to send one is ignored.
        (0..FAREWELLS).for_each(|_| _ = socket.send(&[]));
    }
    Ok(sender.end())
}

/// Time from one datagram to the next.
fn gap_ns(test: &StreamTest, BitRate(bps): BitRate) -> u64 {
    test.message_bytes * 8 * 1_000_000_000 / bps.max(1)
}

/// Datagrams of one call: as the test says, else one where single datagrams are far enough apart.
fn datagrams_per_call(test: &StreamTest, gap_ns: Option<u64>) -> usize {
    if let Some(batch) = test.batch {
        return batch as usize;
    }
    match gap_ns {
        None if test.offload => BATCH,
        None => PLAIN_BATCH,
        Some(gap_ns) => {
            let datagrams = MIN_CALL_GAP_NS.div_ceil(gap_ns.max(1));
            datagrams.clamp(1, PLAIN_BATCH as u64) as usize
        }
    }
}

/// Datagrams of one call after a wait that was too long.
fn most_per_call(per_call: usize, gap_ns: u64) -> usize {
    let in_burst = 1 + MAX_BURST_NS / gap_ns.max(1);
    per_call.max(in_burst.min(PLAIN_BATCH as u64) as usize)
}

struct Sender<'a> {
    shared: &'a Shared,
    flow: &'a FlowState,
    socket: &'a UdpSocket,
    batch: BatchSender,
    per_call: usize,
    most: usize,
    spin: Duration,
    pattern: Option<Pattern>,
    message: u64,
    /// Datagrams sent in both phases.
    sequence: u64,
    /// Datagrams sent before this phase. Marks with a phase count within it.
    phase_began: u64,
    phase: Phase,
    refused: u64,
    gone: u32,
    gaps: LatencyHistogram,
    last_call_ns: Option<u64>,
}

impl Sender<'_> {
    fn run(&mut self, rate: Option<BitRate>) -> io::Result<()> {
        let test = &self.shared.test;
        let measured_ns = self.shared.began_ns + nanos(test.warm_up.0);
        let (end_ns, count) = match test.extent {
            Extent::Time(time) => (measured_ns + nanos(time.0), u64::MAX),
            Extent::Bytes(bytes) => (u64::MAX, bytes.0.div_ceil(self.message)),
            Extent::Count(count) => (u64::MAX, count),
        };
        let mut pacer = rate.map(|rate| Pacer::new(rate, now_ns()));
        loop {
            if let Some(pacer) = &pacer
                && !self.wait_until(pacer.due_ns().min(end_ns))
            {
                return Ok(());
            }
            let now = now_ns();
            if self.phase == Phase::WarmUp && now >= measured_ns {
                self.phase = Phase::Measured;
                self.phase_began = self.sequence;
                self.last_call_ns = None;
            }
            let left = match self.phase {
                Phase::WarmUp => u64::MAX,
                Phase::Measured => count - (self.sequence - self.phase_began),
            };
            if left == 0 || now >= end_ns || self.shared.stop.is_requested() {
                return Ok(());
            }
            let due = pacer.as_ref().map_or(0, |p| p.due_units(self.message, now));
            let wanted = due.clamp(self.per_call as u64, self.most as u64);
            let sent = self.call(now, left.min(wanted) as usize)?;
            if let Some(pacer) = &mut pacer {
                pacer.sent(sent * self.message, now);
                self.note_gap(now);
            }
        }
    }

    /// Sends up to `wanted` datagrams; the result is how many were sent.
    fn call(&mut self, now: u64, wanted: usize) -> io::Result<u64> {
        let message = self.message;
        let first = match self.shared.marks {
            Marks::Own | Marks::None => self.sequence - self.phase_began,
            Marks::Iperf3(_) => self.sequence,
        };
        for (sequence, datagram) in (first..).zip(self.batch.datagrams_mut().take(wanted)) {
            if let Some(pattern) = &self.pattern {
                pattern.fill(sequence.wrapping_mul(message), datagram);
            }
            match self.shared.marks {
                Marks::Own => {
                    DatagramHeader { phase: self.phase, sequence, sent_ns: now }.write(datagram)
                }
                // iperf3 counts from 1.
                Marks::Iperf3(layout) => layout.write(datagram, sequence + 1, now),
                Marks::None => {}
            }
        }
        let sent = match self.batch.send(self.socket, wanted) {
            Ok(sent) => sent as u64,
            Err(error) => self.refusal(error, wanted as u64)?,
        };
        self.sequence += sent;
        let counters = &self.flow.counters;
        counters.set(self.sequence * self.message, self.sequence);
        Ok(sent)
    }

    /// What a failed call means: a full queue is counted, a peer that is gone is an error, and in
    /// all other cases the call is made again.
    fn refusal(&mut self, error: io::Error, wanted: u64) -> io::Result<u64> {
        match error.kind() {
            io::ErrorKind::Interrupted => Ok(0),
            io::ErrorKind::WouldBlock => {
                self.refused += wanted;
                std::thread::sleep(Duration::from_micros(50));
                Ok(0)
            }
            // An ICMP error for an earlier datagram. At the end of a run the peer may be done
            // first.
            io::ErrorKind::ConnectionRefused if self.gone < MAX_REFUSED => {
                self.gone += 1;
                Ok(0)
            }
            _ if self.shared.stop.is_requested() => Ok(0),
            _ => Err(error),
        }
    }

    fn note_gap(&mut self, now: u64) {
        if self.phase == Phase::Measured {
            if let Some(last) = self.last_call_ns {
                self.gaps.record_ns(now - last);
            }
            self.last_call_ns = Some(now);
        }
    }

    /// False if the stop was requested.
    fn wait_until(&self, due_ns: u64) -> bool {
        let slept = |ns| self.flow.counters.add_paced_ns(ns);
        self.shared.stop.sleep_until(due_ns, self.spin, slept)
    }

    fn end(self) -> WorkerEnd {
        let measured = match self.phase {
            Phase::WarmUp => 0,
            Phase::Measured => self.sequence - self.phase_began,
        };
        let method = match (self.batch.offload(), self.per_call) {
            (Offload::Segment, 2..) => "udp_segment",
            (_, 1) => "send",
            (Offload::Segment | Offload::None, _) => "sendmmsg",
        };
        WorkerEnd {
            method,
            udp_sent: Some(UdpSent {
                sent: measured,
                omitted: match self.shared.marks {
                    Marks::Iperf3(_) => self.sequence - measured,
                    Marks::Own | Marks::None => 0,
                },
                refused: self.refused,
                gaps: self.gaps.summary().map(|_| self.gaps.buckets()),
            }),
            ..WorkerEnd::default()
        }
    }
}

/// Receives until the stop flag is set, or the flow is ended. What has arrived by then counts also
/// where this thread had no CPU meanwhile, unless it is a slow reader by its test.
pub(crate) fn receive(
    shared: &Shared,
    flow: &FlowState,
    test: &StreamTest,
    socket: &UdpSocket,
) -> io::Result<WorkerEnd> {
    let mut batch = prepare(shared, test, socket)?;
    let mut receiver = Receiver::new(shared, test);
    let mut pacer = test.read_rate_bps.map(|rate| Pacer::new(rate, now_ns()));
    let mut pause = receiver.pause();
    let mut calls = 0u64;
    let mut last_calls = if pacer.is_none() { MAX_LAST_CALLS } else { 0 };
    while !shared.stop.is_requested() || takes_rest(socket, &mut last_calls)? {
        match batch.receive(socket) {
            Ok(_) => {}
            Err(error) if is_transient_for_datagrams(&error) => continue,
            Err(error) => return Err(error),
        }
        let arrived = now_ns();
        flow.counters.set_begun(arrived);
        let (bytes, datagrams) = (receiver.bytes, receiver.datagrams);
        let goes_on = receiver.take(&batch, arrived);
        calls += 1;
        flow.counters.set(receiver.bytes, receiver.datagrams);
        let jitter_ns = receiver.jitter.ns().unwrap_or(0.0);
        let lost = receiver.tracker.counts().lost;
        flow.counters.set_loss(lost, jitter_ns as u64);
        if !goes_on {
            break;
        }
        flow.counters.touch(arrived);
        if let Some(pause) = &mut pause {
            pause.add(receiver.datagrams - datagrams, receiver.bytes - bytes);
            // Datagrams that wait already are received before a pause.
            let due = pause.due(arrived, || receive_buffer(socket)).filter(|_| !batch.is_full());
            due.into_iter().for_each(std::thread::sleep);
        }
        if let Some(pacer) = &mut pacer {
            pacer.sent(receiver.bytes - bytes, arrived);
            let slept = |ns| flow.counters.add_paced_ns(ns);
            (shared.stop).sleep_until(pacer.due_ns(), Duration::ZERO, slept);
        }
    }
    flow.counters.set_corrupted(receiver.corrupted);
    let is_joined = test.offload && receiver.datagrams > 2 * calls;
    let drops = socket::memory(socket).map_or(batch.socket_drops(), |memory| memory.drops.into());
    let is_marked = shared.marks != Marks::None;
    Ok(WorkerEnd {
        method: if is_joined { "udp_gro" } else { "recvmmsg" },
        udp_received: is_marked.then(|| receiver.end(drops, test.offload)),
        ..WorkerEnd::default()
    })
}

/// Whether something has arrived before the end that this thread has not taken yet.
fn takes_rest(socket: &UdpSocket, last_calls: &mut u32) -> io::Result<bool> {
    let is_one_left = *last_calls > 0;
    *last_calls = last_calls.saturating_sub(1);
    Ok(is_one_left && wait_readable(socket, Duration::ZERO)?)
}

fn prepare(shared: &Shared, test: &StreamTest, socket: &UdpSocket) -> io::Result<BatchReceiver> {
    if shared.test.options.receive_window_bytes.is_none() {
        // If the host allows less, the socket's drop counter shows the effect.
        let _ = socket::set_receive_buffer(socket, RECEIVE_BUFFER);
    }
    socket.set_read_timeout(Some(TIMEOUT))?;
    let offload = match shared.marks {
        Marks::None => Offload::Segment,
        // Each datagram needs its own arrival time.
        _ if test.train => Offload::None,
        _ => offload(test),
    };
    // A late answer of the flow's handshake may arrive, whatever the size of the datagrams.
    let longest = (test.message_bytes as usize).clamp(HANDSHAKE_BYTES, LARGEST);
    let batch = BatchReceiver::new(socket, longest, offload)?;
    if test.train {
        batch.note_arrivals(socket)?;
    }
    Ok(batch)
}

struct Receiver {
    marks: Marks,
    message: usize,
    pattern: Option<Pattern>,
    tracker: SequenceTracker,
    jitter: Jitter,
    delay: AddedDelay,
    /// What the socket had dropped when the measured time began.
    dropped_before: Option<u64>,
    /// Highest sequence number of iperf3's datagrams so far.
    highest: u64,
    /// Highest sequence number of the warm-up.
    omitted: u64,
    /// When the measured time begins by this end's clock, and whether it has.
    measured_ns: u64,
    is_measured: bool,
    /// Bytes and datagrams of both phases, for the live counters.
    bytes: u64,
    datagrams: u64,
    /// Calls of the sender: datagrams of one call have the same time stamp.
    calls: u64,
    malformed: u64,
    corrupted: u64,
    train: Option<TrainArrival>,
}

/// The arrival of a packet train.
struct TrainArrival {
    /// Sequence number of the first datagram.
    begin: u64,
    /// When it and those behind it arrived, none of them missing.
    at: Vec<Duration>,
}

impl TrainArrival {
    fn new(sequence: u64) -> Self {
        Self { begin: sequence, at: Vec::new() }
    }

    /// The train ends where a datagram is missing: up to there the narrowest link set the gaps,
    /// behind it what a queue or a bucket had room for.
    fn take(&mut self, sequence: u64, arrived: Duration) {
        let next = self.begin.saturating_add(self.at.len() as u64);
        if sequence == next && next - self.begin <= MAX_TRAIN {
            self.at.push(arrived);
        }
    }

    /// The pace is that of the second half: a shaper's bucket lets the first datagrams through as
    /// they are.
    fn train(&self) -> Option<Train> {
        let behind = self.at.len().checked_sub(1)?;
        let middle = behind / 2;
        let half = self.at[behind].saturating_sub(self.at[middle]);
        let times = behind as f64 / (behind - middle).max(1) as f64;
        Some(Train { datagrams: behind as u64, nanoseconds: nanos(half.mul_f64(times)) })
    }
}

impl Receiver {
    fn new(shared: &Shared, test: &StreamTest) -> Self {
        Self {
            marks: shared.marks,
            message: test.message_bytes as usize,
            pattern: test.verify.then(|| Pattern::new(shared.test.seed)),
            tracker: SequenceTracker::new(match shared.marks {
                Marks::Own | Marks::None => 0,
                Marks::Iperf3(_) => 1,
            }),
            jitter: Jitter::default(),
            delay: AddedDelay::default(),
            dropped_before: None,
            highest: 0,
            omitted: 0,
            measured_ns: shared.began_ns + nanos(shared.test.warm_up.0),
            is_measured: shared.test.warm_up.0.is_zero(),
            bytes: 0,
            datagrams: 0,
            calls: 0,
            malformed: 0,
            corrupted: 0,
            train: None,
        }
    }

    /// Pauses are worth it only with iperf3's clients, which send datagram by datagram.
    fn pause(&self) -> Option<Pause> {
        matches!(self.marks, Marks::Iperf3(_)).then(|| {
            // With the default timer slack pauses would be twice as long.
            linerate_sys::thread::wake_sharply();
            Pause::new(WORTH_A_PAUSE, now_ns())
        })
    }

    /// Counts the datagrams of a call; false if the flow is ended.
    fn take(&mut self, batch: &BatchReceiver, arrived: u64) -> bool {
        if !self.is_measured && arrived >= self.measured_ns {
            self.begin();
        }
        // The tracker gets consecutive sequence numbers as one run.
        let (mut first, mut run) = (0u64, 0u64);
        let mut last_sent = None;
        for datagram in batch.datagrams() {
            if self.marks == Marks::None {
                if datagram.bytes.is_empty() {
                    return false;
                }
                self.bytes += datagram.bytes.len() as u64;
                self.datagrams += 1;
                continue;
            }
            let Some(header) = self.header(datagram.bytes) else {
                continue;
            };
            self.bytes += datagram.bytes.len() as u64;
            self.datagrams += 1;
            if self.marks != Marks::Own || last_sent != Some(header.sent_ns) {
                self.calls += 1;
                last_sent = Some(header.sent_ns);
                let is_measured = header.phase == Phase::Measured;
                self.delay.on_packet(header.sent_ns, arrived, is_measured);
                if is_measured {
                    self.jitter.on_packet(header.sent_ns, arrived);
                    self.dropped_before.get_or_insert_with(|| batch.socket_drops());
                }
            }
            if header.phase == Phase::WarmUp {
                continue;
            }
            if let Some(arrived) = datagram.arrived {
                let train = self.train.get_or_insert_with(|| TrainArrival::new(header.sequence));
                train.take(header.sequence, arrived);
            }
            if run > 0 && header.sequence == first + run {
                run += 1;
            } else {
                self.tracker.in_order_run(first, run);
                (first, run) = (header.sequence, 1);
            }
            if let Some(pattern) = &self.pattern {
                self.corrupted += verify(pattern, &header, datagram.bytes);
            }
        }
        self.tracker.in_order_run(first, run);
        true
    }

    /// Begins the measured time of a flow whose marks have no phase.
    fn begin(&mut self) {
        self.is_measured = true;
        if let Marks::Iperf3(_) = self.marks {
            self.omitted = self.highest;
            self.tracker = SequenceTracker::new(self.highest + 1);
            self.malformed = 0;
        }
    }

    /// `None` for a datagram that is not part of this stream: it counts as malformed, unless it is
    /// a late handshake.
    fn header(&mut self, bytes: &[u8]) -> Option<DatagramHeader> {
        let header = match self.marks {
            Marks::Iperf3(layout) => self.iperf3_header(layout, bytes),
            Marks::Own | Marks::None => {
                DatagramHeader::read(bytes).filter(|_| bytes.len() == self.message)
            }
        };
        if header.is_none() && Handshake::decode(bytes).is_none() {
            self.malformed += 1;
        }
        header
    }

    fn iperf3_header(&mut self, layout: Layout, bytes: &[u8]) -> Option<DatagramHeader> {
        let (sequence, sent_ns) =
            layout.read(bytes, self.highest).filter(|(sequence, _)| *sequence < 1 << 55)?;
        self.highest = self.highest.max(sequence);
        Some(DatagramHeader {
            phase: if self.is_measured { Phase::Measured } else { Phase::WarmUp },
            sequence,
            sent_ns,
        })
    }

    fn end(self, drops: u64, offload: bool) -> UdpReceived {
        let counts = self.tracker.counts();
        // With offload the kernel counts dropped frames. A frame has as many datagrams as one call
        // of the sender had on average, if they fit.
        let fit = LARGEST as f64 / self.message as f64;
        let per_frame = match (offload, self.calls) {
            (true, 1..) => (self.datagrams as f64 / self.calls as f64).min(fit.floor().max(1.0)),
            _ => 1.0,
        };
        let measured_drops = drops.saturating_sub(self.dropped_before.unwrap_or(0));
        UdpReceived {
            received: counts.received,
            duplicated: counts.duplicated,
            reordered: counts.reordered,
            missing: Some((counts.lost, counts.loss_runs)),
            socket_drops: Some((measured_drops as f64 * per_frame).round() as u64),
            added_delay_ns: self.delay.mean_ns(),
            delay_growth: self.delay.growth().map(|it| (it.growth, it.error)),
            loss_spacing_variation: self.tracker.loss_spacing_variation(),
            jitter_ns: self.jitter.ns().unwrap_or(0.0),
            malformed: self.malformed,
            train: self.train.as_ref().and_then(TrainArrival::train),
            expected: match self.marks {
                Marks::Iperf3(_) => Some(counts.received + counts.lost),
                Marks::Own | Marks::None => None,
            },
            omitted: self.omitted,
        }
    }
}

fn verify(pattern: &Pattern, header: &DatagramHeader, bytes: &[u8]) -> u64 {
    let position = header.sequence.wrapping_mul(bytes.len() as u64);
    pattern.differences(position.wrapping_add(DATAGRAM_HEADER as u64), &bytes[DATAGRAM_HEADER..])
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use linerate_core::plan::{Protocol, Test, Traffic};
    use linerate_core::units::End;
    use linerate_testkit::eventually;

    use super::*;
    use crate::measure::source::FlowSource;

    fn train(arrivals: &[(u64, u64)]) -> Train {
        let mut train = TrainArrival::new(arrivals[0].0);
        for (sequence, us) in arrivals {
            train.take(*sequence, Duration::from_micros(*us));
        }
        train.train().unwrap()
    }

    #[test]
    fn a_train_ends_before_the_first_datagram_that_is_missing() {
        // What the queue had room for, and some that found room later.
        let found = train(&[(3, 100), (4, 220), (5, 340), (9, 400), (10, 401)]);
        assert_eq!((found.datagrams, found.nanoseconds), (2, 240_000));
        assert_eq!(train(&[(0, 7)]), Train { datagrams: 0, nanoseconds: 0 });
    }

    #[test]
    fn the_pace_of_a_train_is_that_of_its_second_half() {
        // A bucket of four.
        let found =
            train(&[(0, 0), (1, 1), (2, 2), (3, 3), (4, 103), (5, 203), (6, 303), (7, 403)]);
        assert_eq!((found.datagrams, found.nanoseconds), (7, 700_000));
    }

    /// Datagrams that a receiver counts which gets no CPU before the run is over.
    fn counted(read_rate_bps: Option<BitRate>) -> u64 {
        let [near, far] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        far.connect(near.local_addr().unwrap()).unwrap();
        let stream = StreamTest { read_rate_bps, ..StreamTest::new(100) };
        let test = Test {
            traffic: Traffic::Stream(stream.clone()),
            protocol: Protocol::Udp,
            ..Test::stream().resolve(7).unwrap()
        };
        let shared = Shared::alone(End::Server, &test, FlowSource::Bound);
        for sequence in 0..10 {
            let mut datagram = [0; 100];
            DatagramHeader { phase: Phase::Measured, sequence, sent_ns: 0 }.write(&mut datagram);
            far.send(&datagram).unwrap();
        }
        eventually("one has arrived", || wait_readable(&near, TIMEOUT).unwrap());
        shared.stop.request();
        let end = receive(&shared, &shared.flows[0], &stream, &near).unwrap();
        end.udp_received.unwrap().received
    }

    #[test]
    fn what_has_arrived_when_the_run_is_over_counts_unless_the_reader_is_to_be_slow() {
        assert!(counted(None) > 0);
        assert_eq!(counted(Some(BitRate(80))), 0);
    }
}

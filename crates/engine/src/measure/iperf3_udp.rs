//! The receiver of iperf3's datagrams: they carry no phase, so the warm-up ends by this end's
//! clock.

use std::io;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use linerate_core::foreign::iperf3::Layout;
use linerate_core::plan::StreamTest;
use linerate_core::session::message::UdpReceived;
use linerate_core::stats::{Jitter, SequenceTracker};
use linerate_sys::socket;
use linerate_sys::thread::wake_sharply;
use linerate_sys::udp_batch::BatchReceiver;

use super::rest::{Rest, receive_buffer};
use super::shared::{FlowState, Shared, WorkerEnd};
use super::udp::{RECEIVE_BUFFER, TIMEOUT, is_passing, offload};
use crate::clock::{nanos, now_ns};

/// Datagrams that come in a rest: fewer do not make up for it.
const WORTH_A_REST: u64 = 4;

/// Receives until the stop flag is set.
pub(super) fn receive(
    shared: &Shared,
    flow: &FlowState,
    test: &StreamTest,
    layout: Layout,
    socket: &UdpSocket,
) -> io::Result<WorkerEnd> {
    if shared.test.options.receive_window_bytes.is_none() {
        // Less than this is what the host allows, and is read back from the socket's drops.
        let _ = socket::set_receive_buffer(socket, RECEIVE_BUFFER);
    }
    socket.set_read_timeout(Some(TIMEOUT))?;
    // Else rests are twice as long.
    wake_sharply();
    let mut rest = Rest::new(WORTH_A_REST, now_ns());
    let mut batch = BatchReceiver::new(socket, test.message_bytes as usize, offload(test))?;
    let mut receiver = Receiver::new(layout);
    let measured_ns = shared.began_ns + nanos(shared.test.warm_up.0);
    let mut warming_up = shared.test.warm_up.0 > Duration::ZERO;
    while !shared.stop.is_requested() {
        match batch.receive(socket) {
            Ok(_) => {}
            Err(error) if is_passing(&error) => continue,
            Err(error) => return Err(error),
        }
        let arrived = now_ns();
        if warming_up && arrived >= measured_ns {
            warming_up = false;
            receiver.begin();
        }
        let (datagrams, bytes) = (receiver.datagrams, receiver.bytes);
        receiver.take(&batch, arrived);
        flow.counters.set(receiver.bytes, receiver.datagrams);
        flow.counters.touch(arrived);
        rest.add(receiver.datagrams - datagrams, receiver.bytes - bytes);
        if let Some(rest) = rest.due(arrived, || receive_buffer(socket)) {
            thread::sleep(rest);
        }
    }
    let drops = socket::memory(socket).map_or(batch.socket_drops(), |memory| memory.drops.into());
    Ok(WorkerEnd {
        method: "recvmmsg",
        udp_received: Some(receiver.end(drops)),
        ..WorkerEnd::default()
    })
}

struct Receiver {
    layout: Layout,
    tracker: SequenceTracker,
    jitter: Jitter,
    highest: u64,
    /// The highest of the warm-up.
    omitted: u64,
    /// Over both phases, for whoever looks on.
    bytes: u64,
    datagrams: u64,
    malformed: u64,
}

impl Receiver {
    fn new(layout: Layout) -> Self {
        Self {
            layout,
            tracker: SequenceTracker::new(1),
            jitter: Jitter::default(),
            highest: 0,
            omitted: 0,
            bytes: 0,
            datagrams: 0,
            malformed: 0,
        }
    }

    /// The warm-up is over.
    fn begin(&mut self) {
        self.omitted = self.highest;
        self.tracker.reset_from(self.highest + 1);
        self.jitter = Jitter::default();
        self.malformed = 0;
    }

    fn take(&mut self, batch: &BatchReceiver, arrived: u64) {
        // Numbers that follow one another are handed to the tracker in one piece.
        let (mut first, mut run) = (0u64, 0u64);
        for datagram in batch.datagrams() {
            let header = self.layout.read(datagram.bytes, self.highest);
            let Some((sequence, sent_ns)) = header.filter(|(sequence, _)| *sequence < 1 << 55)
            else {
                self.malformed += 1;
                continue;
            };
            self.bytes += datagram.bytes.len() as u64;
            self.datagrams += 1;
            self.highest = self.highest.max(sequence);
            self.jitter.on_packet(sent_ns, arrived);
            if run > 0 && sequence == first + run {
                run += 1;
            } else {
                self.tracker.in_order_run(first, run);
                (first, run) = (sequence, 1);
            }
        }
        self.tracker.in_order_run(first, run);
    }

    fn end(self, drops: u64) -> UdpReceived {
        let counts = self.tracker.counts();
        UdpReceived {
            received: counts.received,
            duplicated: counts.duplicated,
            reordered: counts.reordered,
            socket_drops: drops,
            jitter_ns: self.jitter.ns().unwrap_or(0.0),
            malformed: self.malformed,
            train: None,
            expected: Some(counts.received + counts.lost),
            omitted: self.omitted,
        }
    }
}

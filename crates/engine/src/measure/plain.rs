//! UDP as other tools send it: datagrams without a header of linerate's, which only their length
//! tells apart. An empty one ends the flow.

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use linerate_core::plan::{ExchangeTest, StreamTest};
use linerate_sys::udp_batch::{BatchReceiver, Offload};

use super::shared::{FlowState, Shared, WorkerEnd};
use super::udp;
use crate::clock::now_ns;

/// Longest wait without looking at the stop flag.
const SLICE: Duration = Duration::from_millis(20);
/// A receive buffer for the time that a receiver is off its CPU, bytes, as far as the host allows.
pub(crate) const RECEIVE_BUFFER: u32 = 4 << 20;
/// Empty datagrams at the end of a flow.
const FAREWELLS: usize = 3;
/// The longest datagram over IPv4.
const LARGEST: usize = 65_507;

/// Counts datagrams until an empty one comes or the stop flag is set.
///
/// # Errors
/// The socket cannot be read.
pub(crate) fn receive(
    shared: &Shared,
    flow: &FlowState,
    test: &StreamTest,
    socket: &UdpSocket,
) -> io::Result<WorkerEnd> {
    socket.set_read_timeout(Some(SLICE))?;
    let longest = (test.message_bytes as usize).clamp(1, LARGEST);
    let mut batch = BatchReceiver::new(socket, longest, Offload::Segment)?;
    let (mut bytes, mut datagrams, mut over) = (0, 0, false);
    while !over && !shared.stop.is_requested() {
        match batch.receive(socket) {
            Ok(_) => {}
            Err(error) if is_passing(&error) => continue,
            Err(error) => return Err(error),
        }
        for datagram in batch.datagrams() {
            if datagram.bytes.is_empty() {
                over = true;
                break;
            }
            bytes += datagram.bytes.len() as u64;
            datagrams += 1;
        }
        flow.counters.set(bytes, datagrams);
        if !over {
            flow.counters.touch(now_ns());
        }
    }
    flow.counters.set_done(now_ns());
    Ok(WorkerEnd {
        method: "recvmmsg",
        ..WorkerEnd::default()
    })
}

/// Sends as linerate sends its own, and then several empty datagrams: whoever misses them all has a
/// timer.
///
/// # Errors
/// The socket cannot be used, or nobody is there.
pub(crate) fn send(
    shared: &Shared,
    flow: &FlowState,
    test: &StreamTest,
    socket: &UdpSocket,
) -> io::Result<WorkerEnd> {
    let end = udp::send(shared, flow, test, socket)?;
    for _ in 0..FAREWELLS {
        // What does not go out now is one of several.
        let _ = socket.send(&[]);
    }
    Ok(end)
}

/// Answers each datagram that has the length of a request until an empty one comes or the stop flag
/// is set.
///
/// # Errors
/// The socket cannot be used.
pub(crate) fn respond(
    shared: &Shared,
    flow: &FlowState,
    test: &ExchangeTest,
    socket: &UdpSocket,
) -> io::Result<WorkerEnd> {
    socket.set_read_timeout(Some(SLICE))?;
    // One byte more, so that a longer datagram is not taken for a request.
    let mut request = vec![0; test.request_bytes as usize + 1];
    let response = vec![0x5a; test.response_bytes as usize];
    let mut answered = 0;
    while !shared.stop.is_requested() {
        match socket.recv(&mut request) {
            Ok(0) => break,
            Ok(n) if n as u64 == test.request_bytes => match socket.send(&response) {
                Ok(_) => {
                    answered += 1;
                    flow.counters.set(answered * test.request_bytes, answered);
                }
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            },
            Ok(_) => {}
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    flow.counters.set_done(now_ns());
    Ok(WorkerEnd::default())
}

/// Nothing came in time, a signal, no buffer, or ICMP's answer to a datagram of ours.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused
    )
}

//! The endpoint's side of `rr`: so many bytes back for so many received.

use std::io;
use std::net::{TcpStream, UdpSocket};

use linerate_core::plan::ExchangeTest;
use linerate_sys::socket;

use super::stamp;
use super::tag::{SLICE, Tag};
use super::udp::is_passing;
use crate::clock::now_ns;
use crate::measure::flow::{Counters, FlowSocket};
use crate::measure::quickack::QuickAck;
use crate::measure::shared::{FlowState, Marks, Shared, WorkerEnd};
use crate::measure::transfer::{Mover, PIECE, buffer};
use crate::stop::Stop;

/// The server: answers until the client closes or the stop flag is set.
///
/// # Errors
/// The connection was lost.
pub(crate) fn respond(
    shared: &Shared,
    flow: &FlowState,
    test: &ExchangeTest,
    socket: &FlowSocket,
) -> io::Result<WorkerEnd> {
    let (counters, stop) = (&flow.counters, &shared.stop);
    let result = match socket {
        FlowSocket::Tcp(stream) => {
            respond_tcp(test, stream, counters, stop, QuickAck::new(&shared.test))
        }
        FlowSocket::Udp(socket) => respond_udp(shared, test, socket, counters),
    };
    counters.set_done(now_ns());
    match result {
        Err(error) if !stop.is_requested() => Err(error),
        _ => Ok(WorkerEnd::default()),
    }
}

fn respond_tcp(
    test: &ExchangeTest,
    socket: &TcpStream,
    counters: &Counters,
    stop: &Stop,
    quickack: QuickAck,
) -> io::Result<()> {
    socket.set_nonblocking(test.spin)?;
    let mover = Mover {
        stop,
        spin: test.spin,
        patience: None,
        quickack,
    };
    let mut requests = buffer(PIECE);
    let responses = buffer(PIECE);
    let (mut bytes, mut answered, mut partial) = (0, 0, 0);
    while !stop.is_requested() {
        quickack.renew(socket);
        let n = match socket::receive(socket, &mut requests) {
            Ok(0) => break,
            Ok(n) => n as u64,
            Err(error) if is_passing(&error) => continue,
            Err(error) => return Err(error),
        };
        // Requests that arrived together are answered together.
        partial += n;
        let whole = partial / test.request_bytes;
        partial %= test.request_bytes;
        mover.send(
            socket,
            &responses,
            whole.saturating_mul(test.response_bytes),
        )?;
        bytes += n;
        answered += whole;
        counters.set(bytes, answered);
    }
    Ok(())
}

/// Another tool's client, whose requests have no marks, ends it by an empty datagram.
fn respond_udp(
    shared: &Shared,
    test: &ExchangeTest,
    socket: &UdpSocket,
    counters: &Counters,
) -> io::Result<()> {
    let is_unmarked = shared.marks == Marks::None;
    socket.set_nonblocking(test.spin)?;
    socket.set_read_timeout(Some(SLICE))?;
    if test.stamp {
        return stamp::respond(shared, test, socket, counters);
    }
    let tag = if is_unmarked {
        0
    } else {
        Tag::new(test).bytes()
    };
    // One byte more, so that a longer datagram is not taken for a request.
    let mut request = vec![0; test.request_bytes as usize + 1];
    let mut response = vec![0x5a; test.response_bytes as usize];
    let mut answered = 0;
    while !shared.stop.is_requested() {
        match socket::receive(socket, &mut request) {
            Ok(0) if is_unmarked => break,
            // A late handshake of the flow's own beginning is no request.
            Ok(n) if n as u64 != test.request_bytes => {}
            Ok(_) => {
                response[..tag].copy_from_slice(&request[..tag]);
                match super::udp::send(socket, &response) {
                    Ok(()) => answered += 1,
                    // No room: lost, as on any other hop.
                    Err(error) if is_passing(&error) => {}
                    Err(error) => return Err(error),
                }
                counters.set(answered * test.request_bytes, answered);
            }
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

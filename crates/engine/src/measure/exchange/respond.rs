//! The endpoint's side of `rr`: a response for each request.

use std::io;
use std::net::{TcpStream, UdpSocket};

use linerate_core::plan::ExchangeTest;
use linerate_sys::socket;

use super::stamp::answer;
use super::tag::{SLICE, Tag};
use super::udp;
use crate::clock::now_ns;
use crate::measure::flow::{Counters, FlowSocket};
use crate::measure::options::QuickAck;
use crate::measure::shared::{FlowState, Marks, Shared, WorkerEnd};
use crate::measure::transfer::{PIECE, buffer, send_unsent};
use crate::retry::is_transient_for_datagrams;
use crate::stop::Stop;

/// The endpoint's worker: answers until the client closes or the stop flag is set.
///
/// # Errors
/// The connection was lost.
pub(crate) fn respond(
    shared: &Shared,
    flow: &FlowState,
    test: &ExchangeTest,
    socket: &FlowSocket,
) -> io::Result<WorkerEnd> {
    let result = match socket {
        FlowSocket::Tcp(stream) => respond_tcp(shared, flow, test, stream),
        FlowSocket::Udp(socket) => respond_udp(shared, test, socket, &flow.counters),
    };
    ended(shared, flow, result)
}

/// The end of a responder: an error after the stop was requested is how a blocked call ends.
pub(super) fn ended(
    shared: &Shared,
    flow: &FlowState,
    result: io::Result<()>,
) -> io::Result<WorkerEnd> {
    flow.counters.set_done(now_ns());
    match result {
        Err(error) if !shared.stop.is_requested() => Err(error),
        _ => Ok(WorkerEnd::default()),
    }
}

fn respond_tcp(
    shared: &Shared,
    flow: &FlowState,
    test: &ExchangeTest,
    socket: &TcpStream,
) -> io::Result<()> {
    socket.set_nonblocking(test.spin)?;
    let mut responder = Responder::new(shared, flow, test, socket, PIECE);
    while !responder.answer_waiting()? {}
    Ok(())
}

/// Answers the requests of one TCP connection.
pub(super) struct Responder<'a> {
    socket: &'a TcpStream,
    test: &'a ExchangeTest,
    counters: &'a Counters,
    stop: &'a Stop,
    quickack: QuickAck,
    requests: Vec<u8>,
    responses: Vec<u8>,
    bytes: u64,
    answered: u64,
    /// Bytes of a request that has not arrived whole.
    partial: u64,
    /// Bytes of responses that the kernel has not taken.
    unsent: u64,
}

impl<'a> Responder<'a> {
    /// `room` is the least size of the buffers, bytes.
    pub(super) fn new(
        shared: &'a Shared,
        flow: &'a FlowState,
        test: &'a ExchangeTest,
        socket: &'a TcpStream,
        room: u64,
    ) -> Self {
        Self {
            socket,
            test,
            counters: &flow.counters,
            stop: &shared.stop,
            quickack: QuickAck::new(&shared.test),
            requests: buffer(test.request_bytes.max(room)),
            responses: buffer(test.response_bytes.max(room)),
            bytes: 0,
            answered: 0,
            partial: 0,
            unsent: 0,
        }
    }

    /// Answers all requests that have arrived; true when there is nothing more to answer. On a
    /// blocking socket it waits for the first of them.
    pub(super) fn answer_waiting(&mut self) -> io::Result<bool> {
        let mut more = true;
        loop {
            if self.stop.is_requested() {
                return Ok(true);
            }
            // While the client takes no responses, no requests are read from it.
            if !send_unsent(self.socket, &self.responses, &mut self.unsent)? || !more {
                return Ok(false);
            }
            self.quickack.renew(self.socket);
            match socket::receive(self.socket, &mut self.requests) {
                Ok(0) => return Ok(true),
                Ok(n) => {
                    self.count(n as u64);
                    // A read that did not fill the buffer has taken all; `epoll` reports the rest.
                    more = n == self.requests.len();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Requests that arrived together are answered together.
    fn count(&mut self, n: u64) {
        self.partial += n;
        let whole = self.partial / self.test.request_bytes;
        self.partial %= self.test.request_bytes;
        self.unsent += whole.saturating_mul(self.test.response_bytes);
        self.bytes += n;
        self.answered += whole;
        self.counters.set(self.bytes, self.answered);
    }
}

/// Answers datagrams with datagrams: STAMP's in place, others by repeating their tag. Another
/// tool's client, whose requests have no tag, ends the flow by an empty datagram.
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
        socket::note_arrivals(socket)?;
    }
    let tag = if is_unmarked { 0 } else { Tag::new(test).bytes() };
    // One byte more than a request has, so that a longer datagram is not taken for one.
    let mut request = vec![0; test.request_bytes as usize + 1];
    let mut response = vec![0x5a; test.response_bytes as usize];
    let (mut received, mut answered) = (0u32, 0);
    while !shared.stop.is_requested() {
        let (n, arrival) = match udp::receive(socket, &mut request, test.stamp) {
            Ok((0, _)) if is_unmarked => break,
            Ok(received) => received,
            Err(error) if is_transient_for_datagrams(&error) => continue,
            Err(error) => return Err(error),
        };
        // A late handshake from the flow's own beginning is no request.
        if n as u64 != test.request_bytes {
            continue;
        }
        let (datagram, is_answer) = match arrival {
            Some(arrival) => {
                let is_answer = answer(&mut request[..n], &arrival, Some(received));
                received = received.wrapping_add(1);
                (&request[..n], is_answer)
            }
            None => {
                response[..tag].copy_from_slice(&request[..tag]);
                (&response[..], true)
            }
        };
        match udp::send(socket, datagram) {
            Ok(()) => answered += u64::from(is_answer),
            // The send buffer is full: the answer is lost, as on any other hop.
            Err(error) if is_transient_for_datagrams(&error) => {}
            Err(error) => return Err(error),
        }
        counters.set(answered * test.request_bytes, answered);
    }
    Ok(())
}

//! The endpoint's side of `rr`, a response for each request; and either side of many connections
//! that share threads.

use std::net::{TcpStream, UdpSocket};
use std::ops::Range;
use std::time::Duration;
use std::{io, thread};

use linerate_core::plan::{ExchangeTest, Protocol, Test, Traffic};
use linerate_core::units::End;
use linerate_sys::poll::{Interest, Poller};
use linerate_sys::socket;

use super::super::flow::{FlowState, Marks, Shared, WorkerEnd};
use super::Tally;
use super::pipeline::{Pipeline, Step, TcpRequests};
use super::udp::{self, SLICE, Tag, answer};
use crate::clock::now_ns;
use crate::measure::flow::{Counters, FlowSocket};
use crate::measure::options::QuickAck;
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

// Many connections of `rr` in few threads.

/// The least size of a responder's buffers, bytes: room for some small requests that arrive
/// together.
const ROOM: u64 = 4096;

/// The flows of each thread, if a test's connections share threads at this end. A client's
/// connections do not where each sleeps until a time of its own (an open loop), or where they fetch
/// a page together.
pub(crate) fn thread_shares(side: End, test: &Test) -> Option<Vec<Range<usize>>> {
    let Traffic::Rr(exchange) = &test.traffic else {
        return None;
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let flows = test.flows() as usize;
    let fetches = exchange.video || exchange.objects.is_some();
    let fits = test.protocol != Protocol::Udp
        && test.options.busy_poll_us.is_none()
        && (side == End::Server || (exchange.rate_per_s.is_none() && !fetches));
    let bound = |thread: usize| flows * thread / threads;
    let ranges = || (0..threads).map(|thread| bound(thread)..bound(thread + 1));
    (fits && flows > threads).then(|| ranges().collect())
}

/// One end's part of the exchanges on all of `flows`; the result has the end of each flow.
///
/// A thread for each connection would be put to sleep and woken for every message. With more
/// connections than CPUs that costs more than the message. Here one call names all connections on
/// which something has arrived, and the thread sleeps only if there are none.
///
/// # Errors
/// The thread is out of descriptors.
pub(crate) fn exchange_on_all(
    shared: &Shared,
    flows: &[FlowState],
    test: &ExchangeTest,
) -> io::Result<Vec<io::Result<WorkerEnd>>> {
    let sockets: Vec<&TcpStream> = flows.iter().filter_map(connection).collect();
    if sockets.len() < flows.len() {
        return Err(io::ErrorKind::NotConnected.into());
    }
    let quickack = QuickAck::new(&shared.test);
    match shared.side {
        End::Client => {
            let mut tallies: Vec<Tally<'_>> =
                flows.iter().map(|flow| Tally::new(shared, flow, test)).collect();
            let members = sockets.iter().zip(&mut tallies).map(|(socket, tally)| {
                let requests = TcpRequests::new(socket, test, quickack)?;
                Ok(Pipeline::new(requests, tally, test, None))
            });
            let mut members = members.collect::<io::Result<Vec<_>>>()?;
            let ends = look_after(&sockets, &mut members, &shared.stop, test.spin)?;
            members.into_iter().for_each(Pipeline::finish);
            let tallies = tallies.into_iter().zip(ends);
            Ok(tallies.map(|(tally, end)| Ok(tally.end(end))).collect())
        }
        End::Server => {
            let members = sockets.iter().zip(flows).map(|(socket, flow)| {
                socket.set_nonblocking(true)?;
                Ok(Responder::new(shared, flow, test, socket, ROOM))
            });
            let mut members = members.collect::<io::Result<Vec<_>>>()?;
            let ends = look_after(&sockets, &mut members, &shared.stop, test.spin)?;
            let ends = flows.iter().zip(ends);
            Ok(ends.map(|(flow, end)| ended(shared, flow, end)).collect())
        }
    }
}

fn connection(flow: &FlowState) -> Option<&TcpStream> {
    match &flow.socket {
        Some(FlowSocket::Tcp(stream)) => Some(stream),
        Some(FlowSocket::Udp(_)) | None => None,
    }
}

/// One end's work on one connection.
trait Member {
    /// Handles all that has arrived; true when nothing is left to do.
    fn look(&mut self) -> io::Result<bool>;
}

/// Serves all connections until the last one is done; the result says how each ended.
fn look_after<M: Member>(
    sockets: &[&TcpStream],
    members: &mut [M],
    stop: &Stop,
    spin: bool,
) -> io::Result<Vec<io::Result<()>>> {
    let mut poller = Poller::new()?;
    for (number, socket) in (0..).zip(sockets) {
        poller.add_edge(socket, number, Interest::Either)?;
    }
    let timeout = if spin { Duration::ZERO } else { SLICE };
    let mut ends: Vec<Option<io::Result<()>>> = members.iter().map(|_| None).collect();
    let mut open = members.len();
    let mut look = |number: usize| {
        if ends[number].is_none()
            && let Some(end) = members[number].look().map(|done| done.then_some(())).transpose()
        {
            ends[number] = Some(end);
            open -= 1;
        }
        open
    };
    // First every connection begins.
    let mut left = sockets.len();
    for number in 0..sockets.len() {
        left = look(number);
    }
    while left > 0 {
        for number in poller.wait(timeout)? {
            left = look(number as usize);
        }
        if stop.is_requested() {
            left = (0..sockets.len()).map(&mut look).last().unwrap_or(0);
        }
    }
    Ok(ends.into_iter().map(|end| end.unwrap_or(Ok(()))).collect())
}

impl Member for Pipeline<'_, '_, TcpRequests<'_>> {
    fn look(&mut self) -> io::Result<bool> {
        loop {
            match self.step()? {
                Step::Over => return Ok(true),
                Step::Idle(_) => return Ok(false),
                Step::More => {}
            }
        }
    }
}

impl Member for Responder<'_> {
    fn look(&mut self) -> io::Result<bool> {
        self.answer_waiting()
    }
}

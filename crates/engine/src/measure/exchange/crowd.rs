//! Many connections of `rr` in few threads: each is looked at when something has come on it.
//!
//! A thread for each connection is put to sleep and woken for every message. With more connections
//! than CPUs that costs more than the message: here one call tells of all on which something has
//! come, and the thread sleeps only where that is none.

use std::io;
use std::net::TcpStream;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use linerate_core::plan::{ExchangeTest, Protocol, Test, Traffic};
use linerate_core::units::End;
use linerate_sys::poll::{Interest, Poller};
use linerate_sys::socket;

use super::pipeline::{Pipeline, Step};
use super::tag::SLICE;
use super::tally::Tally;
use super::tcp::TcpRequests;
use crate::clock::now_ns;
use crate::measure::flow::{Counters, FlowSocket};
use crate::measure::quickack::QuickAck;
use crate::measure::shared::{FlowState, Shared, WorkerEnd};
use crate::measure::transfer::buffer;
use crate::stop::Stop;

/// The flows of each thread, if a test's connections share threads at this end. Those of an open
/// loop do not: each of them sleeps to a time of its own; nor do those that fetch together.
pub(crate) fn shares(side: End, test: &Test) -> Option<Vec<Range<usize>>> {
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

/// One end's part of all exchanges on `flows`. The outer error is that of the thread's own means.
///
/// # Errors
/// Out of descriptors.
pub(crate) fn exchange(
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
            let tallies = flows.iter().map(|flow| Tally::new(shared, flow, test));
            let mut tallies: Vec<Tally<'_>> = tallies.collect();
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
                Responder::new(socket, test, &flow.counters, &shared.stop, quickack)
            });
            let mut members = members.collect::<io::Result<Vec<_>>>()?;
            let ends = look_after(&sockets, &mut members, &shared.stop, test.spin)?;
            let end = |(flow, end): (&FlowState, io::Result<()>)| {
                flow.counters.set_done(now_ns());
                match end {
                    Err(error) if !shared.stop.is_requested() => Err(error),
                    _ => Ok(WorkerEnd::default()),
                }
            };
            Ok(flows.iter().zip(ends).map(end).collect())
        }
    }
}

fn connection(flow: &FlowState) -> Option<&TcpStream> {
    match &flow.socket {
        Some(FlowSocket::Tcp(stream)) => Some(stream),
        Some(FlowSocket::Udp(_)) | None => None,
    }
}

/// What is done on a connection.
trait Member {
    /// Takes all that has come and sends what follows from it; true when there is nothing more to
    /// do.
    fn look(&mut self) -> io::Result<bool>;
}

/// Looks after all of them until the last is done; how each ended.
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
            && let Some(end) = members[number]
                .look()
                .map(|done| done.then_some(()))
                .transpose()
        {
            ends[number] = Some(end);
            open -= 1;
        }
        open
    };
    // All begin.
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

/// The endpoint's side of a connection.
struct Responder<'a> {
    socket: &'a TcpStream,
    test: &'a ExchangeTest,
    counters: &'a Counters,
    stop: &'a Stop,
    quickack: QuickAck,
    requests: Vec<u8>,
    responses: Vec<u8>,
    bytes: u64,
    answered: u64,
    /// Bytes of a request whose rest is to come.
    partial: u64,
    /// Bytes of responses that the kernel has not taken.
    unsent: u64,
}

impl<'a> Responder<'a> {
    /// Room for some small requests that came together.
    const ROOM: u64 = 4096;

    fn new(
        socket: &'a TcpStream,
        test: &'a ExchangeTest,
        counters: &'a Counters,
        stop: &'a Stop,
        quickack: QuickAck,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            test,
            counters,
            stop,
            quickack,
            requests: buffer(test.request_bytes.max(Self::ROOM)),
            responses: buffer(test.response_bytes.max(Self::ROOM)),
            bytes: 0,
            answered: 0,
            partial: 0,
            unsent: 0,
        })
    }

    /// Sends what is to be sent; false if the kernel does not take all of it.
    fn flush(&mut self) -> io::Result<bool> {
        while self.unsent > 0 {
            let length = self.unsent.min(self.responses.len() as u64) as usize;
            match socket::send(self.socket, &self.responses[..length]) {
                Ok(n) => self.unsent -= n as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Requests that arrived together are answered together.
    fn took(&mut self, n: u64) {
        self.partial += n;
        let whole = self.partial / self.test.request_bytes;
        self.partial %= self.test.request_bytes;
        self.unsent += whole.saturating_mul(self.test.response_bytes);
        self.bytes += n;
        self.answered += whole;
        self.counters.set(self.bytes, self.answered);
    }
}

impl Member for Responder<'_> {
    fn look(&mut self) -> io::Result<bool> {
        let mut more = true;
        loop {
            if self.stop.is_requested() {
                return Ok(true);
            }
            // Who takes no answers is not asked for more.
            if !self.flush()? || !more {
                return Ok(false);
            }
            self.quickack.renew(self.socket);
            match socket::receive(self.socket, &mut self.requests) {
                Ok(0) => return Ok(true),
                Ok(n) => {
                    self.took(n as u64);
                    // What comes after a read that was not filled is told of.
                    more = n == self.requests.len();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

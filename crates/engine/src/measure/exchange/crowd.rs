//! Many connections of `rr` in few threads.
//!
//! A thread for each connection would be put to sleep and woken for every message. With more
//! connections than CPUs that costs more than the message. Here one call names all connections on
//! which something has arrived, and the thread sleeps only if there are none.

use std::net::TcpStream;
use std::ops::Range;
use std::time::Duration;
use std::{io, thread};

use linerate_core::plan::{ExchangeTest, Protocol, Test, Traffic};
use linerate_core::units::End;
use linerate_sys::poll::{Interest, Poller};

use super::pipeline::{Pipeline, Step};
use super::respond::{Responder, ended};
use super::tag::SLICE;
use super::tally::Tally;
use super::tcp::TcpRequests;
use crate::measure::flow::FlowSocket;
use crate::measure::options::QuickAck;
use crate::measure::shared::{FlowState, Shared, WorkerEnd};
use crate::stop::Stop;

/// The least size of a responder's buffers, bytes: room for some small requests that arrive
/// together.
const ROOM: u64 = 4096;

/// The flows of each thread, if a test's connections share threads at this end. A client's
/// connections do not where each sleeps until a time of its own (an open loop), or where they fetch
/// a page together.
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

/// One end's part of the exchanges on all of `flows`; the result has the end of each flow.
///
/// # Errors
/// The thread is out of descriptors.
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

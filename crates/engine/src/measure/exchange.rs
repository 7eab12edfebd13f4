//! Request and response on open connections and UDP flows. Each flow has its own thread, except
//! where there are more connections than CPUs: those share threads, see [`crowd`].
//!
//! A closed loop with one request at a time is [`ping_pong`]: a send, a receive and one reading of
//! the clock. Several requests in flight, or an open loop, are [`pipeline`]. Both count in a
//! [`tally`].

pub(crate) mod crowd;
mod fetch;
mod ping_pong;
mod pipeline;
mod respond;
mod stamp;
mod tag;
mod tally;
mod tcp;
#[cfg(test)]
mod tests;
mod udp;

use std::io;

pub(crate) use fetch::Pages;
use linerate_core::open_loop::OpenLoop;
use linerate_core::plan::ExchangeTest;
pub(crate) use respond::respond;
pub(crate) use stamp::{LostEachWay, answer};
pub(super) use tally::Tally;

use self::fetch::Fetcher;
use self::pipeline::Pipeline;
use self::tcp::TcpRequests;
use self::udp::UdpRequests;
use super::flow::FlowSocket;
use super::options::QuickAck;
use super::shared::{FlowState, Shared, WorkerEnd};

/// A request that is due just before the run ends may still be sent for this long after it.
pub(super) const LAST_CALL_NS: u64 = 1_000_000;
/// A CPU wakes up late: a sleep ends this long before the next request is due, and the rest of the
/// wait is spent spinning.
pub(super) const SPIN_NS: u64 = 50_000;

/// The client's worker: sends requests until the time or the count is over, then waits for the
/// answers in flight.
///
/// # Errors
/// The socket cannot be used at all. A connection that ends later is reported with the figures.
pub(crate) fn request(
    shared: &Shared,
    flow: &FlowState,
    test: &ExchangeTest,
    socket: &FlowSocket,
) -> io::Result<WorkerEnd> {
    let mut tally = Tally::new(shared, flow, test);
    let schedule = schedule(shared, flow, test);
    // STAMP's packets have time stamps, which only the pipeline handles.
    let closed_alone = schedule.is_none() && test.depth == 1 && !test.stamp;
    let result = match socket {
        FlowSocket::Tcp(stream) if test.video => {
            Fetcher::new(stream, shared, test)?.video(&mut tally)
        }
        FlowSocket::Tcp(stream) if test.objects.is_some() => {
            let pages = shared.pages.as_ref().expect("a test of pages has them");
            Fetcher::new(stream, shared, test)?.pages(pages, &mut tally)
        }
        FlowSocket::Tcp(stream) if closed_alone => {
            let quickack = QuickAck::new(&shared.test);
            ping_pong::tcp(&mut tally, test, stream, &shared.stop, quickack)
        }
        FlowSocket::Udp(socket) if closed_alone => ping_pong::udp(&mut tally, test, socket),
        FlowSocket::Tcp(stream) => {
            let requests = TcpRequests::new(stream, test, QuickAck::new(&shared.test))?;
            Pipeline::new(requests, &mut tally, test, schedule).run()
        }
        FlowSocket::Udp(socket) => {
            let requests = UdpRequests::new(socket, test, flow.id)?;
            Pipeline::new(requests, &mut tally, test, schedule).run()
        }
    };
    Ok(tally.end(result))
}

/// This flow's share of an open loop.
pub(super) fn schedule(shared: &Shared, flow: &FlowState, test: &ExchangeTest) -> Option<OpenLoop> {
    let flows = shared.test.flows();
    test.rate_per_s
        .map(|rate| OpenLoop::new(rate, flow.id, flows, shared.test.seed, shared.began_ns))
}

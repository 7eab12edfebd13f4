//! Request and response on open connections and UDP flows. Each flow has its own thread, except
//! where there are more connections than CPUs: those share threads (`respond`).
//!
//! A closed loop with one request at a time is `ping_pong`: a send, a receive and one reading of
//! the clock. Several requests in flight, or an open loop, are `pipeline`. Both count in a
//! [`Tally`].

mod fetch;
mod ping_pong;
mod pipeline;
pub(crate) mod respond;
#[cfg(test)]
mod tests;
mod udp;

use std::io;
use std::time::Duration;

pub(crate) use fetch::Pages;
use linerate_core::open_loop::OpenLoop;
use linerate_core::plan::{ExchangeTest, Extent};
use linerate_core::stats::LatencyHistogram;
use linerate_core::wire::StampAnswer;
use pipeline::TcpRequests;
pub(crate) use respond::respond;
use udp::Delays;
pub(crate) use udp::{LostEachWay, answer};

use self::fetch::Fetcher;
use self::pipeline::Pipeline;
use self::udp::UdpRequests;
use super::flow::{FlowSocket, FlowState, Marks, Shared, WorkerEnd};
use super::options::QuickAck;
use crate::clock::{nanos, now_ns};
use crate::measure::flow::Counters;
use crate::measure::outcome::ExchangeOutcome;

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

// The transactions of a requesting worker, counted.

/// The measured time of a run, in ns of [`crate::clock`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) from_ns: u64,
    /// `u64::MAX` if the run does not end by time.
    pub(crate) to_ns: u64,
}

impl Window {
    fn new(shared: &Shared) -> Self {
        let from_ns = shared.began_ns.saturating_add(nanos(shared.test.warm_up.0));
        let to_ns = match shared.test.extent {
            Extent::Time(time) => from_ns.saturating_add(nanos(time.0)),
            Extent::Bytes(_) | Extent::Count(_) => u64::MAX,
        };
        Self { from_ns, to_ns }
    }

    #[inline]
    pub(crate) fn has(&self, at_ns: u64) -> bool {
        (self.from_ns..self.to_ns).contains(&at_ns)
    }
}

/// Counts the transactions of one flow, and says when no more are wanted.
pub(crate) struct Tally<'a> {
    shared: &'a Shared,
    counters: &'a Counters,
    request_bytes: u64,
    pub(crate) window: Window,
    to_begin: u64,
    completed: u64,
    pub(crate) outcome: ExchangeOutcome,
    /// Delays that STAMP's answers show.
    delays: Option<Delays>,
}

impl<'a> Tally<'a> {
    pub(crate) fn new(shared: &'a Shared, flow: &'a FlowState, test: &ExchangeTest) -> Self {
        Self {
            shared,
            counters: &flow.counters,
            request_bytes: test.request_bytes,
            window: Window::new(shared),
            to_begin: match shared.test.extent {
                Extent::Count(count) => count,
                Extent::Time(_) | Extent::Bytes(_) => u64::MAX,
            },
            completed: 0,
            outcome: ExchangeOutcome {
                // A page begins when the one before it is there.
                send_lag: (test.rate_per_s.filter(|_| test.objects.is_none()))
                    .map(|_| LatencyHistogram::new()),
                ..ExchangeOutcome::default()
            },
            delays: test.stamp.then(|| Delays::new(shared.marks == Marks::Own)),
        }
    }

    /// Whether the run still wants a request that starts at `now_ns`.
    #[inline]
    pub(crate) fn wants(&self, now_ns: u64) -> bool {
        self.to_begin > 0 && now_ns < self.window.to_ns && !self.is_stopped()
    }

    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.shared.stop.is_requested()
    }

    /// Sleeps until `due_ns`, or until the measured time ends or the stop is requested.
    pub(crate) fn sleep_until(&self, due_ns: u64) {
        let due_ns = due_ns.min(self.window.to_ns);
        (self.shared.stop).sleep_until(due_ns, Duration::ZERO, |_| ());
    }

    /// Requests that are still to be begun; `u64::MAX` if the run does not end by count.
    pub(crate) fn to_begin(&self) -> u64 {
        self.to_begin
    }

    /// Counts a request that was begun. It ends as answered, failed or abandoned.
    #[inline]
    pub(crate) fn begun(&mut self) {
        self.to_begin -= 1;
    }

    /// Records how late a request was sent: at `now_ns`, although it was due at `intended_ns` and
    /// possible from `possible_ns` on.
    pub(crate) fn lagged(&mut self, intended_ns: u64, possible_ns: u64, now_ns: u64) {
        if let Some(lag) = &mut self.outcome.send_lag
            && self.window.has(intended_ns)
        {
            lag.record_ns(now_ns.saturating_sub(possible_ns.max(intended_ns)));
        }
    }

    /// Counts the request of `start_ns`, whose response is complete.
    #[inline]
    pub(crate) fn answered(&mut self, start_ns: u64, now_ns: u64) {
        self.completed += 1;
        self.counters.set(self.completed * self.request_bytes, self.completed);
        if self.window.has(start_ns) {
            self.outcome.transactions += 1;
            self.outcome.latency.record_ns(now_ns - start_ns);
        }
    }

    /// Records the delays that the answer to the request of `start_ns` shows.
    fn stamped(&mut self, start_ns: u64, answer: &StampAnswer, arrived_ns: u64) {
        if let Some(delays) = &mut self.delays
            && self.window.has(start_ns)
        {
            delays.answered(answer, udp::probe(answer, arrived_ns));
        }
    }

    /// Counts the request of `start_ns`, which gets no response.
    pub(crate) fn failed(&mut self, start_ns: u64) {
        if self.window.has(start_ns) {
            self.outcome.failed += 1;
        }
    }

    /// The connection or the run ended with the request of `start_ns` in flight. Requests in flight
    /// when a run is interrupted have not failed.
    pub(crate) fn abandoned(&mut self, start_ns: u64) {
        if !self.is_stopped() || now_ns() >= self.window.to_ns {
            self.failed(start_ns);
        }
    }

    /// Counts the requests that `schedule` still has and that were due by now.
    pub(crate) fn not_sent(&mut self, schedule: &OpenLoop) {
        let until = self.window.to_ns.min(now_ns());
        let overdue = schedule.overdue(self.window.from_ns, until);
        self.outcome.not_sent = overdue.min(self.to_begin);
    }

    /// The figures of the flow. The error that ended it goes with them, unless the stop was
    /// requested: then an error is how a blocked call ends.
    pub(crate) fn end(mut self, result: io::Result<()>) -> WorkerEnd {
        let now = now_ns();
        self.counters.set_done(now);
        let measured = now.min(self.window.to_ns).saturating_sub(self.window.from_ns);
        self.outcome.seconds = measured as f64 / 1e9;
        if let Some(delays) = self.delays {
            (self.outcome.probes, self.outcome.lost) = delays.end();
        }
        WorkerEnd {
            error: result.err().filter(|_| !self.shared.stop.is_requested()),
            exchange: Some(self.outcome),
            ..WorkerEnd::default()
        }
    }
}

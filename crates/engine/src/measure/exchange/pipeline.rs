//! Several requests in flight, and those of a TCP connection: a closed loop keeps a fixed number of
//! them, an open loop begins each at its scheduled time.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::time::Duration;

use linerate_core::open_loop::OpenLoop;
use linerate_core::plan::{ExchangeTest, MAX_DEPTH};
use linerate_sys::poll::{self, Interest};
use linerate_sys::{socket, thread};

use super::udp::SLICE;
use super::{LAST_CALL_NS, SPIN_NS, Tally};
use crate::clock::now_ns;
use crate::measure::options::QuickAck;
use crate::measure::transfer::{buffer, send_unsent};
use crate::retry::is_transient;

/// Requests in flight on one non-blocking socket.
pub(super) trait Requests {
    fn under_way(&self) -> usize;

    /// Whether the kernel has not taken all of the requests that were begun.
    fn is_blocked(&self) -> bool;

    /// Whether one more request can be told from those in flight.
    fn has_number(&self) -> bool {
        true
    }

    /// Begins a request whose latency counts from `start_ns`.
    fn begin(&mut self, start_ns: u64, now_ns: u64) -> io::Result<()>;

    /// Sends as much of the begun requests as the kernel takes.
    fn flush(&mut self) -> io::Result<()>;

    /// Receives once; false if nothing more has arrived.
    fn receive(&mut self, tally: &mut Tally<'_>) -> io::Result<bool>;

    /// Gives up requests that are overdue.
    fn expire(&mut self, now_ns: u64, tally: &mut Tally<'_>);

    /// Gives up all requests.
    fn abandon(&mut self, tally: &mut Tally<'_>);

    fn wait(&self, interest: Interest, timeout: Duration) -> io::Result<bool>;
}

/// Next action of a connection after a step.
pub(super) enum Step {
    /// Nothing: the run is over.
    Over,
    /// More may have arrived.
    More,
    /// Nothing more had arrived at this time, ns.
    Idle(u64),
}

/// Drives [`Requests`] through a run.
pub(super) struct Pipeline<'a, 'b, R> {
    requests: R,
    tally: &'a mut Tally<'b>,
    depth: usize,
    schedule: Option<OpenLoop>,
    spin: bool,
    /// A request was due and could not be begun, because the peer left no room.
    held: bool,
    held_until_ns: u64,
}

impl<'a, 'b, R: Requests> Pipeline<'a, 'b, R> {
    pub(super) fn new(
        requests: R,
        tally: &'a mut Tally<'b>,
        test: &ExchangeTest,
        schedule: Option<OpenLoop>,
    ) -> Self {
        Self {
            requests,
            tally,
            depth: schedule.as_ref().map_or(test.depth, |_| MAX_DEPTH) as usize,
            schedule,
            spin: test.spin,
            held: false,
            held_until_ns: 0,
        }
    }

    /// Runs until the end of the run and the last answer.
    pub(super) fn run(mut self) -> io::Result<()> {
        if self.schedule.is_some() {
            // Where the kernel refuses this, the send lag shows it.
            thread::wake_sharply();
        }
        let result = self.turn_around();
        self.finish();
        result
    }

    /// Gives up the requests in flight.
    pub(super) fn finish(mut self) {
        self.requests.abandon(self.tally);
        if let Some(schedule) = &self.schedule {
            self.tally.not_sent(schedule);
        }
    }

    fn turn_around(&mut self) -> io::Result<()> {
        loop {
            match self.step()? {
                Step::Over => return Ok(()),
                Step::More => {}
                Step::Idle(now) => self.wait(now)?,
            }
        }
    }

    /// Takes what has arrived and begins what is due.
    pub(super) fn step(&mut self) -> io::Result<Step> {
        let more = self.requests.receive(self.tally)?;
        let now = now_ns();
        self.begin_due(now)?;
        let over = self.tally.is_stopped() || self.next_due(now).is_none();
        if over && (self.requests.under_way() == 0 || self.tally.is_stopped()) {
            return Ok(Step::Over);
        }
        self.requests.expire(now, self.tally);
        Ok(if more { Step::More } else { Step::Idle(now) })
    }

    /// When the next request is due, whether there is room for it or not; `None` after the last.
    fn next_due(&self, now: u64) -> Option<u64> {
        let end = self.tally.window.to_ns;
        let Some(schedule) = &self.schedule else {
            return self.tally.wants(now).then_some(now);
        };
        let due = schedule.due_ns();
        // Until the end of the run, even if no more requests are due: the whole time is measured.
        let in_time = now < end || (due < end && now < end.saturating_add(LAST_CALL_NS));
        let wanted = self.tally.to_begin() > 0 && in_time;
        wanted.then_some(due)
    }

    fn has_room(&self) -> bool {
        self.requests.under_way() < self.depth
            && self.requests.has_number()
            && !self.requests.is_blocked()
    }

    fn begin_due(&mut self, now: u64) -> io::Result<()> {
        if self.requests.is_blocked() {
            self.requests.flush()?;
        }
        while let Some(due) = self.next_due(now)
            && due <= now
        {
            if !self.has_room() {
                self.held = true;
                break;
            }
            if std::mem::take(&mut self.held) {
                self.held_until_ns = now;
            }
            self.tally.begun();
            self.tally.lagged(due, self.held_until_ns, now);
            self.requests.begin(due, now)?;
            if let Some(schedule) = &mut self.schedule {
                schedule.advance();
            }
        }
        self.requests.flush()
    }

    /// Sleeps until something arrives, there is room again, or the next request is almost due; for
    /// the last moment before that it spins.
    fn wait(&self, now: u64) -> io::Result<()> {
        let mut timeout = SLICE;
        if let Some(due) = self.next_due(now)
            && self.has_room()
        {
            timeout = timeout.min(Duration::from_nanos(due.saturating_sub(now + SPIN_NS)));
        }
        if self.spin || timeout.is_zero() {
            std::hint::spin_loop();
            return Ok(());
        }
        let interest =
            if self.requests.is_blocked() { Interest::Either } else { Interest::Readable };
        self.requests.wait(interest, timeout).map(drop)
    }
}

// Requests on a TCP connection, whose responses arrive in order.

pub(super) struct TcpRequests<'a> {
    socket: &'a TcpStream,
    request_bytes: u64,
    response_bytes: u64,
    payload: Vec<u8>,
    buffer: Vec<u8>,
    /// When each request in flight was started, the oldest first.
    starts: VecDeque<u64>,
    /// Bytes of begun requests that the kernel has not taken.
    unsent: u64,
    /// Bytes received of the oldest request's response.
    received: u64,
    quickack: QuickAck,
}

impl<'a> TcpRequests<'a> {
    pub(super) fn new(
        socket: &'a TcpStream,
        test: &ExchangeTest,
        quickack: QuickAck,
    ) -> io::Result<Self> {
        // Two blocking ends that both send would wait for each other for ever.
        socket.set_nonblocking(true)?;
        let depth = u64::from(test.rate_per_s.map_or(test.depth, |_| MAX_DEPTH));
        Ok(Self {
            socket,
            request_bytes: test.request_bytes,
            response_bytes: test.response_bytes,
            payload: buffer(test.request_bytes.saturating_mul(depth)),
            // One byte more than all responses in flight have, so that they do not fill it.
            buffer: buffer(test.response_bytes.saturating_mul(depth).saturating_add(1)),
            starts: VecDeque::with_capacity(depth as usize),
            unsent: 0,
            received: 0,
            quickack,
        })
    }
}

impl Requests for TcpRequests<'_> {
    fn under_way(&self) -> usize {
        self.starts.len()
    }

    fn is_blocked(&self) -> bool {
        self.unsent > 0
    }

    fn begin(&mut self, start_ns: u64, _: u64) -> io::Result<()> {
        self.starts.push_back(start_ns);
        self.unsent += self.request_bytes;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        send_unsent(self.socket, &self.payload, &mut self.unsent).map(drop)
    }

    fn receive(&mut self, tally: &mut Tally<'_>) -> io::Result<bool> {
        self.quickack.renew(self.socket);
        let n = match socket::receive(self.socket, &mut self.buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => n,
            Err(error) if is_transient(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        let now = now_ns();
        self.received += n as u64;
        while self.received >= self.response_bytes {
            self.received -= self.response_bytes;
            let Some(start) = self.starts.pop_front() else {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the peer sent more than was asked for",
                ));
            };
            tally.answered(start, now);
        }
        // After a read that did not fill the buffer, the caller waits for the next bytes.
        Ok(n == self.buffer.len())
    }

    /// TCP delivers every response or ends the connection: no request expires.
    fn expire(&mut self, _: u64, _: &mut Tally<'_>) {}

    fn abandon(&mut self, tally: &mut Tally<'_>) {
        self.starts.drain(..).for_each(|start| tally.abandoned(start));
    }

    fn wait(&self, interest: Interest, timeout: Duration) -> io::Result<bool> {
        poll::wait_ready(self.socket, interest, timeout)
    }
}

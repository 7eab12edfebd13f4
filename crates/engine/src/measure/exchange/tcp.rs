//! Requests in flight on a TCP connection, whose responses arrive in order.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::time::Duration;

use linerate_core::plan::{ExchangeTest, MAX_DEPTH};
use linerate_sys::poll::{self, Interest};
use linerate_sys::socket;

use super::pipeline::Requests;
use super::tally::Tally;
use crate::clock::now_ns;
use crate::measure::options::QuickAck;
use crate::measure::transfer::{buffer, send_unsent};
use crate::retry::is_transient;

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

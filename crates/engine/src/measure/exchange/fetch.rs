//! Requests on TCP that belong together: the chunks of a video, and the objects of a page.

use std::io;
use std::net::TcpStream;
use std::sync::{Condvar, Mutex, PoisonError};

use linerate_core::plan::ExchangeTest;
use linerate_core::video::Player;

use super::super::flow::Shared;
use super::Tally;
use super::udp::SLICE;
use crate::clock::{nanos, now, now_ns};
use crate::measure::options::QuickAck;
use crate::measure::transfer::{Mover, PIECE, buffer};
use crate::shares::lock;

/// One connection that fetches chunks or objects.
pub(super) struct Fetcher<'a> {
    mover: Mover<'a>,
    socket: &'a TcpStream,
    test: &'a ExchangeTest,
    payload: Vec<u8>,
    response: Vec<u8>,
}

impl<'a> Fetcher<'a> {
    pub(super) fn new(
        socket: &'a TcpStream,
        shared: &'a Shared,
        test: &'a ExchangeTest,
    ) -> io::Result<Self> {
        socket.set_nonblocking(test.spin)?;
        let mover = Mover {
            stop: &shared.stop,
            spin: test.spin,
            // A call blocks until the stop shuts the socket down.
            patience: None,
            quickack: QuickAck::new(&shared.test),
        };
        Ok(Self { mover, socket, test, payload: buffer(PIECE), response: buffer(PIECE) })
    }

    /// Sends this many requests at once and receives all of their responses.
    fn fetch(&mut self, requests: u64) -> io::Result<()> {
        let sent = requests * self.test.request_bytes;
        self.mover.send(self.socket, &self.payload, sent)?;
        let received = requests * self.test.response_bytes;
        self.mover.receive(self.socket, &mut self.response, received)
    }

    /// Plays a video until the end of the run; each chunk is a transaction.
    pub(super) fn video(mut self, tally: &mut Tally<'_>) -> io::Result<()> {
        let mut player = Player::new(now());
        let mut next = now_ns();
        let result = loop {
            tally.sleep_until(next);
            let start = now_ns();
            if !tally.wants(start) {
                break Ok(());
            }
            tally.begun();
            if let Err(error) = self.fetch(player.requests()) {
                tally.abandoned(start);
                break Err(error);
            }
            tally.answered(start, now_ns());
            next = nanos(player.handle_chunk(now()));
        };
        tally.outcome.video = Some(player.end(now(), self.test.response_bytes));
        result
    }

    /// Fetches objects of page after page, together with the other connections.
    pub(super) fn pages(mut self, pages: &Pages, tally: &mut Tally<'_>) -> io::Result<()> {
        while let Some(began_ns) = pages.next_object(tally) {
            let start = now_ns();
            if !tally.wants(start) {
                break;
            }
            tally.begun();
            if let Err(error) = self.fetch(1) {
                tally.abandoned(start);
                pages.end();
                return Err(error);
            }
            let done = now_ns();
            tally.answered(start, done);
            if pages.object_is_there(done) && tally.window.has(began_ns) {
                let pages = &mut tally.outcome.pages;
                pages.get_or_insert_default().record_ns(done - began_ns);
            }
        }
        pages.end();
        Ok(())
    }
}

/// The objects of a page that are still to be fetched. Connections take one object after the other,
/// as those of a browser do.
#[derive(Debug)]
pub(crate) struct Pages {
    objects: u32,
    /// From the beginning of one page to that of the next; 0 if they follow each other at once.
    every_ns: u64,
    state: Mutex<PageState>,
    next: Condvar,
}

#[derive(Debug)]
struct PageState {
    /// When the present page begins.
    began_ns: u64,
    taken: u32,
    there: u32,
    is_over: bool,
}

impl Pages {
    pub(crate) fn new(objects: u32, rate_per_s: Option<f64>, began_ns: u64) -> Self {
        Self {
            objects,
            every_ns: rate_per_s.map_or(0, |rate| (1e9 / rate) as u64),
            state: Mutex::new(PageState { began_ns, taken: 0, there: 0, is_over: false }),
            next: Condvar::new(),
        }
    }

    /// Waits for an object to fetch; the result is when its page begins, or `None` after the last.
    fn next_object(&self, tally: &Tally<'_>) -> Option<u64> {
        let began_ns = {
            let mut state = lock(&self.state);
            while state.taken == self.objects && !state.is_over {
                if tally.is_stopped() || now_ns() >= tally.window.to_ns {
                    return None;
                }
                let waited = self.next.wait_timeout(state, SLICE);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            if state.is_over {
                return None;
            }
            state.taken += 1;
            state.began_ns
        };
        tally.sleep_until(began_ns);
        Some(began_ns)
    }

    /// Counts an object that has arrived. True if it was the page's last one: then the next page
    /// begins.
    fn object_is_there(&self, now_ns: u64) -> bool {
        let mut state = lock(&self.state);
        state.there += 1;
        let is_whole = state.there == self.objects;
        if is_whole {
            state.began_ns = now_ns.max(state.began_ns + self.every_ns);
            (state.taken, state.there) = (0, 0);
            self.next.notify_all();
        }
        is_whole
    }

    /// Ends all pages, because a connection has ended: a page that lacks an object is never whole.
    fn end(&self) {
        lock(&self.state).is_over = true;
        self.next.notify_all();
    }
}

//! The door of another tool's own port: a connection waits here until its client says something,
//! and costs no thread.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use linerate_core::session::GREETING_TIMEOUT;
use linerate_sys::poll::Poller;

use crate::stop::Stop;

/// Connections that have said nothing yet; beyond that the oldest goes.
const MAX_PENDING: usize = 1024;
/// Connections that are taken in one go.
const BURST: usize = 64;
/// Longest wait without looking at the stop flag.
const TICK: Duration = Duration::from_millis(50);

/// Who is let in, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// With the first byte.
    Spoken,
    /// At once: the client is there to listen.
    AtOnce,
}

/// Connections to other tools' ports.
pub(super) struct Lobby {
    listeners: Vec<TcpListener>,
    admission: Admission,
    poller: Poller,
    pending: BTreeMap<u64, Pending>,
    next_number: u64,
}

struct Pending {
    stream: TcpStream,
    peer: SocketAddr,
    deadline: Instant,
}

impl Lobby {
    /// # Errors
    /// No descriptors.
    pub(super) fn new(listeners: Vec<TcpListener>, admission: Admission) -> io::Result<Self> {
        let poller = Poller::new()?;
        for (number, listener) in (0..).zip(&listeners) {
            listener.set_nonblocking(true)?;
            poller.add(listener, number)?;
        }
        Ok(Self {
            next_number: listeners.len() as u64,
            listeners,
            admission,
            poller,
            pending: BTreeMap::new(),
        })
    }

    /// Hands each client to `take` until `stop` is requested.
    pub(super) fn run(mut self, stop: &Stop, mut take: impl FnMut(TcpStream, SocketAddr)) {
        while !stop.is_requested() {
            let ready: Vec<u64> = match self.poller.wait(TICK) {
                Ok(ready) => ready.collect(),
                Err(_) => return,
            };
            for number in ready {
                if number < self.listeners.len() as u64 {
                    self.accept(number as usize, &mut take);
                } else if let Some(pending) = self.pending.remove(&number)
                    && self.poller.remove(&pending.stream).is_ok()
                {
                    take(pending.stream, pending.peer);
                }
            }
            let now = Instant::now();
            self.pending.retain(|_, pending| pending.deadline > now);
        }
    }

    fn accept(&mut self, listener: usize, take: &mut impl FnMut(TcpStream, SocketAddr)) {
        for _ in 0..BURST {
            match self.listeners[listener].accept() {
                Ok((stream, peer)) if self.admission == Admission::AtOnce => take(stream, peer),
                Ok((stream, peer)) => self.keep(stream, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    // Out of descriptors: the oldest that has said nothing yet makes room.
                    if self.pending.pop_first().is_none() {
                        thread::sleep(Duration::from_millis(10));
                    }
                    return;
                }
            }
        }
    }

    fn keep(&mut self, stream: TcpStream, peer: SocketAddr) {
        let number = self.next_number;
        self.next_number += 1;
        if self.poller.add(&stream, number).is_err() {
            return;
        }
        let deadline = Instant::now() + GREETING_TIMEOUT;
        let pending = Pending {
            stream,
            peer,
            deadline,
        };
        self.pending.insert(number, pending);
        if self.pending.len() > MAX_PENDING {
            self.pending.pop_first();
        }
    }
}

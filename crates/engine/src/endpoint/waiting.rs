//! Watches the listening sockets, and the accepted connections that have not sent their hello yet.
//! Each of those has a deadline; their number is limited, and they have no threads.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use linerate_sys::poll::Poller;
use linerate_sys::proc::limits::descriptor_limit;

use super::crr_listener::{KEPT_TICK, Listeners};
use crate::stop::Stop;

/// Most connections that wait, and for how many descriptors of this process there may be one; one
/// more closes the oldest.
const MAX_WAITING: u64 = 1024;
const DESCRIPTORS: u64 = 32;
/// Most connections that are accepted at once, before other sockets have their turn.
const BURST: usize = 64;
/// Numbers that no socket has: the stop's bell, the crr listener's bell, and the crr listener.
const STOP: u64 = u64::MAX;
const BELL: u64 = STOP - 1;
const DOOR: u64 = STOP - 2;

/// The watched sockets, each with a number; listeners have the numbers from 0 on.
pub(super) struct Waiting<C> {
    listeners: Arc<Listeners>,
    /// Set while a test has the crr listener: how many connections its flows had accepted at the
    /// last look.
    away: Option<u64>,
    poller: Poller,
    next: u64,
    max_waiting: usize,
    /// Connections with their deadlines, the oldest first.
    connections: BTreeMap<u64, (Instant, C)>,
}

impl<C: AsFd> Waiting<C> {
    /// A request to `stop` ends a wait.
    ///
    /// # Errors
    /// No descriptors.
    pub(super) fn new(listeners: Arc<Listeners>, stop: &Stop) -> io::Result<Self> {
        let mut waiting = Self {
            listeners: Arc::clone(&listeners),
            away: None,
            poller: Poller::new()?,
            next: 0,
            max_waiting: MAX_WAITING.min(descriptor_limit().soft / DESCRIPTORS) as usize,
            connections: BTreeMap::new(),
        };
        waiting.poller.add(stop.bell()?, STOP)?;
        waiting.poller.add(listeners.bell(), BELL)?;
        for listener in &listeners.sockets {
            listener.set_nonblocking(true)?;
            waiting.watch(listener)?;
        }
        Ok(waiting)
    }

    /// Watches one more socket, under the next number.
    ///
    /// # Errors
    /// The kernel's limit is reached.
    pub(super) fn watch(&mut self, socket: &impl AsFd) -> io::Result<u64> {
        self.poller.add(socket, self.next)?;
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Waits up to `longest` for sockets that are ready; the result has their numbers. Connections
    /// that are overdue are closed.
    ///
    /// # Errors
    /// None that a caller can mend.
    pub(super) fn wait(&mut self, longest: Duration) -> io::Result<Vec<u64>> {
        let now = Instant::now();
        self.connections.retain(|_, (until, _)| *until > now);
        let tick = self.tick(now, longest);
        let mut ready: Vec<u64> = self.poller.wait(tick)?.collect();
        if ready.contains(&BELL) {
            self.listeners.bell().read_exact(&mut [0])?;
        }
        ready.extend(self.looks_in().then_some(DOOR));
        Ok(ready)
    }

    fn tick(&self, now: Instant, longest: Duration) -> Duration {
        if self.away.is_some() {
            return KEPT_TICK;
        }
        let deadlines = self.connections.values().map(|(until, _)| *until);
        let left = deadlines.min().map(|first| first - now);
        left.map_or(longest, |left| left.min(longest))
    }

    /// Whether the acceptor must look at the crr listener: all flows are busy, and slow.
    fn looks_in(&mut self) -> bool {
        let taken = self.listeners.taken();
        let kept = self.listeners.crr_listener().map(|_| taken);
        let before = std::mem::replace(&mut self.away, kept);
        let slow = before.is_some_and(|before| taken - before < BURST as u64);
        self.away.is_some() && slow && !self.listeners.is_awaited()
    }

    /// Accepts connections at the listener of this number, if it is a listener's.
    pub(super) fn accept(&mut self, number: u64) -> Vec<(TcpStream, SocketAddr)> {
        let mut accepted = Vec::new();
        if number == DOOR {
            return self.listeners.accept_at_door(BURST);
        }
        let Some(listener) = self.listeners.sockets.get(number as usize) else {
            return accepted;
        };
        while accepted.len() < self.max_waiting.min(BURST) {
            match listener.accept() {
                Ok(connection) => accepted.push(connection),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    // Out of descriptors: the oldest connection without a hello is closed.
                    if self.connections.pop_first().is_none() {
                        thread::sleep(Duration::from_millis(10));
                    }
                    break;
                }
            }
        }
        accepted
    }

    /// Keeps a connection for `time` at most. One that cannot be watched is closed.
    pub(super) fn keep(&mut self, connection: C, time: Duration) {
        if let Ok(number) = self.watch(&connection) {
            let until = Instant::now() + time;
            self.connections.insert(number, (until, connection));
            if self.connections.len() > self.max_waiting {
                self.connections.pop_first();
            }
        }
    }

    /// Takes out the connection of this number if `look` finds something; else it stays.
    pub(super) fn take<T>(
        &mut self,
        number: u64,
        look: impl FnOnce(&mut C) -> Option<T>,
    ) -> Option<(C, T)> {
        let found = look(&mut self.connections.get_mut(&number)?.1)?;
        let (_, connection) = self.connections.remove(&number)?;
        // The next owner watches the connection itself.
        self.poller.remove(&connection).ok()?;
        Some((connection, found))
    }
}

//! Watches the listening sockets, and the connections to them that have not said yet what they are:
//! each has a deadline, and all together have few places and no thread.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use linerate_sys::poll::Poller;

use super::door::{KEPT_TICK, Listeners};

/// Connections that wait; beyond that the oldest goes.
const MAX_WAITING: usize = 1024;
/// Connections that are taken in one go: the others have their turn too.
const BURST: usize = 64;
/// Longest wait without looking at the stop flag.
const TICK: Duration = Duration::from_millis(50);

/// Listeners have the numbers from 0 on.
pub(super) struct Waiting<C> {
    listeners: Arc<Listeners>,
    /// The flows of a test take the connections, of which they had taken so many at the last look.
    away: Option<u64>,
    poller: Poller,
    next: u64,
    /// The oldest first, each with its deadline.
    connections: BTreeMap<u64, (Instant, C)>,
}

impl<C: AsFd> Waiting<C> {
    /// # Errors
    /// No descriptors.
    pub(super) fn new(listeners: Arc<Listeners>) -> io::Result<Self> {
        let mut waiting = Self {
            listeners: Arc::clone(&listeners),
            away: None,
            poller: Poller::new()?,
            next: 0,
            connections: BTreeMap::new(),
        };
        for listener in &listeners.sockets {
            listener.set_nonblocking(true)?;
            waiting.watch(listener)?;
        }
        Ok(waiting)
    }

    /// Watches one more socket, by the next number.
    ///
    /// # Errors
    /// The kernel's limit is reached.
    pub(super) fn watch(&mut self, socket: &impl AsFd) -> io::Result<u64> {
        self.poller.add(socket, self.next)?;
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Those that have something now, or after a while; connections that are overdue are dropped.
    ///
    /// # Errors
    /// None that a caller can mend.
    pub(super) fn wait(&mut self) -> io::Result<Vec<u64>> {
        let now = Instant::now();
        self.connections.retain(|_, (until, _)| *until > now);
        let mut ready: Vec<u64> = self.poller.wait(self.tick())?.collect();
        ready.extend(self.look_in()?);
        Ok(ready)
    }

    fn tick(&self) -> Duration {
        if self.away.is_some() { KEPT_TICK } else { TICK }
    }

    /// Leaves the listeners to a test's flows while they are theirs; those that must be looked at
    /// because the flows are all busy, and slow.
    fn look_in(&mut self) -> io::Result<Range<u64>> {
        let listeners = &self.listeners.sockets;
        let kept = self.listeners.is_kept();
        let taken = self.listeners.taken();
        let before = std::mem::replace(&mut self.away, kept.then_some(taken));
        if kept != before.is_some() {
            for (number, listener) in (0..).zip(listeners) {
                if kept {
                    self.poller.remove(listener)?;
                } else {
                    self.poller.add(listener, number)?;
                }
            }
        }
        let slow = before.is_some_and(|before| taken - before < BURST as u64);
        let must = kept && slow && !self.listeners.is_awaited();
        Ok(0..if must { listeners.len() as u64 } else { 0 })
    }

    /// New connections to the listener of that number; none if it is none of a listener.
    pub(super) fn accept(&mut self, number: u64) -> Vec<(TcpStream, SocketAddr)> {
        let mut accepted = Vec::new();
        let Some(listener) = self.listeners.sockets.get(number as usize) else {
            return accepted;
        };
        while accepted.len() < BURST {
            match listener.accept() {
                Ok(connection) => accepted.push(connection),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    // Out of descriptors: the oldest that has said nothing yet makes room.
                    if self.connections.pop_first().is_none() {
                        thread::sleep(Duration::from_millis(10));
                    }
                    break;
                }
            }
        }
        accepted
    }

    /// Keeps a connection for `time` at most. One that cannot be watched is dropped.
    pub(super) fn keep(&mut self, connection: C, time: Duration) {
        if let Ok(number) = self.watch(&connection) {
            let until = Instant::now() + time;
            self.connections.insert(number, (until, connection));
            if self.connections.len() > MAX_WAITING {
                self.connections.pop_first();
            }
        }
    }

    /// The connection of that number, once `look` finds something; until then it stays.
    pub(super) fn take<T>(
        &mut self,
        number: u64,
        look: impl FnOnce(&mut C) -> Option<T>,
    ) -> Option<(C, T)> {
        let found = look(&mut self.connections.get_mut(&number)?.1)?;
        let (_, connection) = self.connections.remove(&number)?;
        // Whoever takes it over watches it in his own way.
        self.poller.remove(&connection).ok()?;
        Some((connection, found))
    }
}

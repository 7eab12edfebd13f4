//! One port of the endpoint, reached from one address of this host: which local port is next, and
//! how many connections may be begun. And which of the open connections carries the next request.

use std::collections::VecDeque;
use std::net::SocketAddr;

use linerate_core::units::SplitMix64;

/// A listener, reached from one source address. Two connections to it never have the same local
/// port.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) peer: SocketAddr,
    source: SocketAddr,
    /// How many more connections it may have.
    room: u64,
    ports: Ports,
    /// Number of connections that were begun, and of those that the endpoint is known to have
    /// accepted, which it does in order.
    begun: u64,
    taken: u64,
    /// Most connections that may be begun and not be accepted; `None`: no limit, because the
    /// endpoint does not tell.
    window: Option<u64>,
}

impl Destination {
    pub(super) fn new(
        (source, peer): (SocketAddr, SocketAddr),
        room: u64,
        range: (u16, u16),
        start: u64,
        window: Option<u64>,
    ) -> Self {
        Self {
            peer,
            source,
            room,
            ports: Ports::new(range, start),
            begun: 0,
            taken: 0,
            window: window.map(|window| window.max(1)),
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.room > 0
    }

    pub(super) fn is_open(&self) -> bool {
        self.window.is_none_or(|window| self.begun - self.taken < window)
    }

    /// The next local address, if one is free.
    pub(super) fn next_source(&mut self) -> Option<SocketAddr> {
        let port = self.ports.take()?;
        let mut source = self.source;
        source.set_port(port);
        Some(source)
    }

    /// Gives back a port that was not used after all.
    pub(super) fn leave(&mut self, port: u16) {
        self.ports.give(port);
    }

    /// Counts a connection that is begun. The result is its number if the endpoint is to answer
    /// when it has accepted it, else 0.
    pub(super) fn begin(&mut self, last: bool) -> u64 {
        self.begun += 1;
        self.room -= 1;
        let asks = self.window.is_some_and(|window| {
            let every = (window / 4).clamp(1, ASK_EVERY);
            last || self.begun.is_multiple_of(every)
        });
        if asks { self.begun } else { 0 }
    }

    /// Records that the connection of this number and all before it were accepted, or have failed.
    pub(super) fn take(&mut self, number: u64) {
        self.taken = self.taken.max(number.min(self.begun));
    }

    /// Frees the port and the place of a connection that is closed.
    pub(super) fn give_back(&mut self, port: u16) {
        self.ports.give(port);
        self.room += 1;
    }
}

/// The local ports that are in use; this takes 8 KiB.
#[derive(Debug)]
pub(super) struct Ports {
    used: Box<[u64; 1024]>,
    first: u32,
    count: u32,
    next: u32,
}

impl Ports {
    /// The ports of a range (first and last), beginning at the place `start`, modulo its length.
    pub(super) fn new((first, last): (u16, u16), start: u64) -> Self {
        let (first, last) = (u32::from(first.max(1)), u32::from(last));
        let count = (last + 1).saturating_sub(first);
        Self {
            used: Box::new([0; 1024]),
            first,
            count,
            next: (start % u64::from(count.max(1))) as u32,
        }
    }

    /// The next port that is free.
    pub(super) fn take(&mut self) -> Option<u16> {
        for _ in 0..self.count {
            let port = self.first + self.next;
            self.next = (self.next + 1) % self.count;
            let (word, bit) = (port as usize / 64, 1 << (port % 64));
            if self.used[word] & bit == 0 {
                self.used[word] |= bit;
                return u16::try_from(port).ok();
            }
        }
        None
    }

    pub(super) fn give(&mut self, port: u16) {
        self.used[usize::from(port) / 64] &= !(1 << (port % 64));
    }
}

/// One connection in so many asks for an answer, which costs both ends as much as half a
/// connection.
const ASK_EVERY: u64 = 64;

// Requests over some of the connections: which is next, and when.

/// A load in progress.
#[derive(Debug)]
pub(super) struct CapacityLoad {
    /// Connections that can take a request.
    idle: VecDeque<u32>,
    began: u64,
    until: u64,
    /// Time between two requests, ns; `None`: a request whenever a connection is idle.
    gap_ns: Option<f64>,
    sent: u64,
    under_way: u64,
    /// When a request was last due while no connection was idle.
    blocked: Option<u64>,
    /// Requests that were sent late, because no connection was idle.
    pub(super) late: u64,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Send a request on this connection; it was due at `due`.
    Send { slot: u32, due: u64 },
    /// Do nothing before this time, unless an answer arrives.
    Wait(u64),
    /// The load is over; this is how long it took, ns.
    Over(u64),
}

impl CapacityLoad {
    /// A load on `connections` of these slots, drawn at random.
    pub(super) fn new(
        mut slots: Vec<u32>,
        connections: u64,
        (began, seconds): (u64, f64),
        per_s: Option<f64>,
        random: &mut SplitMix64,
    ) -> Self {
        let count = usize::try_from(connections).unwrap_or(usize::MAX);
        draw(&mut slots, count, random);
        slots.truncate(count);
        Self {
            idle: slots.into(),
            began,
            until: began + (seconds * 1e9) as u64,
            gap_ns: per_s.map(|rate| 1e9 / rate),
            sent: 0,
            under_way: 0,
            blocked: None,
            late: 0,
        }
    }

    pub(super) fn members(&self) -> impl Iterator<Item = u32> + '_ {
        self.idle.iter().copied()
    }

    pub(super) fn next(&mut self, now: u64) -> Turn {
        if now >= self.until {
            return match self.under_way {
                0 => Turn::Over(now - self.began),
                _ => Turn::Wait(now + LOOK_AGAIN),
            };
        }
        let due = match self.gap_ns {
            Some(gap) => self.began + (gap * self.sent as f64) as u64,
            None => now,
        };
        if due > now {
            return Turn::Wait(due.min(self.until));
        }
        let Some(slot) = self.idle.pop_front() else {
            self.blocked = Some(now);
            return Turn::Wait(self.until);
        };
        let waited = self.blocked.is_some_and(|blocked| due <= blocked);
        self.late += u64::from(self.gap_ns.is_some() && waited);
        self.sent += 1;
        self.under_way += 1;
        Turn::Send { slot, due }
    }

    /// Handles the answer on a connection.
    pub(super) fn answered(&mut self, slot: u32) {
        self.under_way -= 1;
        self.idle.push_back(slot);
    }

    /// Handles the loss of a connection with a request in flight.
    pub(super) fn lost(&mut self) {
        self.under_way -= 1;
    }

    pub(super) fn stop(&mut self, now: u64) {
        self.until = self.until.min(now);
    }
}

/// Brings `count` of the entries, drawn without replacement, to the front.
fn draw<T>(entries: &mut [T], count: usize, random: &mut SplitMix64) {
    for at in 0..count.min(entries.len()) {
        let left = (entries.len() - at) as u64;
        entries.swap(at, at + random.below(left) as usize);
    }
}

/// Time between two looks for the last answers, ns; others are events.
const LOOK_AGAIN: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_port_is_given_once_and_again_when_it_is_free() {
        let mut ports = Ports::new((1024, 1123), 1_000_003);
        let all: HashSet<u16> = std::iter::from_fn(|| ports.take()).collect();
        assert_eq!(all, (1024..=1123).collect());
        ports.give(1100);
        assert_eq!(ports.take(), Some(1100));
        assert_eq!(Ports::new((5, 4), 0).take(), None);
        assert_eq!(Ports::new((65_535, 65_535), 9).take(), Some(65_535));
    }

    #[test]
    fn a_destination_that_stops_at_its_window_has_asked_by_then() {
        let ends = ("198.18.0.1:0".parse().unwrap(), "198.18.0.2:7".parse().unwrap());
        for window in [1, 3, 100, 1000] {
            let mut destination =
                Destination::new(ends, 1_000_000, (1024, 65_535), 0, Some(window));
            let mut asked = 0;
            for _ in 0..100 {
                while destination.is_open() {
                    asked = asked.max(destination.begin(false));
                }
                let before = destination.taken;
                destination.take(asked);
                assert!(destination.taken > before, "nothing would ever open it again");
            }
        }
    }

    const SECOND: u64 = 1_000_000_000;

    fn load(per_s: Option<f64>) -> CapacityLoad {
        CapacityLoad::new((0..10).collect(), 2, (0, 1.0), per_s, &mut SplitMix64::new(1))
    }

    #[test]
    fn a_closed_loop_sends_after_each_answer() {
        let mut load = load(None);
        let Turn::Send { slot, .. } = load.next(5) else {
            panic!("two are idle");
        };
        assert!(matches!(load.next(5), Turn::Send { .. }));
        assert_eq!(load.next(5), Turn::Wait(SECOND));
        load.answered(slot);
        assert_eq!(load.next(6), Turn::Send { slot, due: 6 });
        load.lost();
        load.answered(slot);
        assert_eq!(load.next(SECOND), Turn::Over(SECOND));
        assert_eq!(load.late, 0);
    }

    #[test]
    fn an_open_loop_keeps_its_schedule_and_counts_late_requests() {
        let mut load = load(Some(10.0));
        let tenth = SECOND / 10;
        assert!(matches!(load.next(0), Turn::Send { due: 0, .. }));
        assert_eq!(load.next(0), Turn::Wait(tenth));
        let Turn::Send { slot, due } = load.next(tenth + 3) else {
            panic!("one is due");
        };
        assert_eq!(due, tenth);
        assert!(matches!(load.next(3 * tenth), Turn::Wait(_)), "none is idle");
        load.answered(slot);
        assert_eq!(load.next(3 * tenth + 1), Turn::Send { slot, due: 2 * tenth });
        assert_eq!(load.late, 1);
    }

    #[test]
    fn a_seed_always_draws_the_same_entries_and_none_twice() {
        let drawn = |seed| {
            let mut entries: Vec<u32> = (0..100).collect();
            draw(&mut entries, 30, &mut SplitMix64::new(seed));
            entries.truncate(30);
            entries
        };
        let mut first = drawn(7);
        assert_eq!(first, drawn(7));
        assert_ne!(first, drawn(8));
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), 30);
    }
}

//! One port of the endpoint, reached from one address of this host: which local port is next, and
//! how many connections may be begun.

use std::net::SocketAddr;

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

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
}

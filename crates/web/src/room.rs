//! Which connections stay, and how many pages are under way: no address can take all of either.
//!
//! A connection is idle unless its page is being made: it has yet to send a whole request, or to
//! read its answer. An idle connection has a deadline, and makes room for a new one before it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use linerate_units::one_host;

/// Time for a whole request.
const REQUEST: Duration = Duration::from_secs(10);
/// Time to read an answer.
const ANSWER: Duration = Duration::from_secs(60);

/// The connections, each with the task `T` that serves it, and the pages.
pub(crate) struct Room<T> {
    max_connections: usize,
    max_pages: usize,
    next: u64,
    connections: HashMap<u64, RoomConnection<T>>,
    /// The address of each page that is under way, of a connection that has gone too.
    pages: Vec<IpAddr>,
}

struct RoomConnection<T> {
    address: IpAddr,
    /// Its deadline, while it is idle.
    until: Option<Instant>,
    task: T,
}

/// The most that one address may have of `all`: a quarter at least stays for others.
fn share_of_one(all: usize) -> usize {
    all - all.div_ceil(4)
}

impl<T> Room<T> {
    /// For a process that may open so many descriptors: connections take a quarter of them, and
    /// pages half of the connections at most, so that some connections are always idle.
    pub(crate) fn new(descriptors: usize) -> Self {
        let max_connections = (descriptors / 4).clamp(4, 256);
        Self {
            max_connections,
            max_pages: (max_connections / 2).min(16),
            next: 0,
            connections: HashMap::new(),
            pages: Vec::new(),
        }
    }

    /// Takes out the connection that is to be closed before one more of `newcomer` is served.
    pub(crate) fn make_room(&mut self, newcomer: IpAddr) -> Option<T> {
        let newcomer = one_host(newcomer);
        let there = self.connections.values();
        let of_one = there.filter(|it| it.address == newcomer).count();
        let is_full = self.connections.len() >= self.max_connections
            || of_one >= share_of_one(self.max_connections);
        if is_full { self.take_idle(Some(newcomer)) } else { None }
    }

    /// Takes out the idle connection of the busiest address, with `newcomer` counted, that is
    /// nearest to its deadline.
    pub(crate) fn take_idle(&mut self, newcomer: Option<IpAddr>) -> Option<T> {
        let mut counts = HashMap::<IpAddr, usize>::new();
        let there = self.connections.values().map(|it| it.address);
        for address in there.chain(newcomer) {
            *counts.entry(address).or_default() += 1;
        }
        let all = self.connections.iter();
        let idle = all.filter_map(|(id, it)| Some((counts[&it.address], Reverse(it.until?), *id)));
        let (_, _, id) = idle.max_by_key(|(count, until, id)| (*count, *until, Reverse(*id)))?;
        self.connections.remove(&id).map(|it| it.task)
    }

    /// Keeps a connection; `serve` starts its task, which gets its number.
    pub(crate) fn keep(&mut self, peer: IpAddr, now: Instant, serve: impl FnOnce(u64) -> T) {
        self.next += 1;
        let connection = RoomConnection {
            address: one_host(peer),
            until: Some(now + REQUEST),
            task: serve(self.next),
        };
        self.connections.insert(self.next, connection);
    }

    /// The connection of this number has ended.
    pub(crate) fn leave(&mut self, id: u64) {
        self.connections.remove(&id);
    }

    /// Counts a page of this connection as under way; false if there are too many.
    pub(crate) fn begin_page(&mut self, id: u64) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else {
            return false;
        };
        let of_one = self.pages.iter().filter(|it| **it == connection.address);
        let has_room =
            self.pages.len() < self.max_pages && of_one.count() < share_of_one(self.max_pages);
        if has_room {
            connection.until = None;
            self.pages.push(connection.address);
        }
        has_room
    }

    /// A page of this address is done.
    pub(crate) fn end_page(&mut self, peer: IpAddr) {
        let address = one_host(peer);
        if let Some(at) = self.pages.iter().position(|it| *it == address) {
            self.pages.swap_remove(at);
        }
    }

    /// The answer of this connection is to be read from now on.
    pub(crate) fn answer(&mut self, id: u64, now: Instant) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.until = Some(now + ANSWER);
        }
    }

    /// Takes out the connections whose deadline is over.
    pub(crate) fn take_overdue(&mut self, now: Instant) -> Vec<T> {
        let is_over =
            |_: &u64, it: &mut RoomConnection<T>| it.until.is_some_and(|until| until <= now);
        let over = self.connections.extract_if(is_over);
        over.map(|(_, it)| it.task).collect()
    }

    /// Whether nothing has a deadline.
    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 0, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 0, 2));

    fn enter(room: &mut Room<u64>, peer: IpAddr, now: Instant) -> Option<u64> {
        let gone = room.make_room(peer);
        room.keep(peer, now, |id| id);
        gone
    }

    #[test]
    fn a_newcomer_gets_the_place_of_an_idle_connection_of_the_busiest_address() {
        let (mut room, now) = (Room::new(64), Instant::now());
        // One address has three quarters of 16 places, and then those of its own oldest.
        let gone: Vec<_> = (0..500).filter_map(|_| enter(&mut room, HERE, now)).collect();
        assert_eq!(gone, (1..=488).collect::<Vec<_>>());
        // Others come in beside it, and then in its place.
        let gone: Vec<_> = (0..8).filter_map(|_| enter(&mut room, THERE, now)).collect();
        assert_eq!(gone, [489, 490, 491, 492]);
        let third = IpAddr::from([198, 18, 0, 3]);
        for _ in 0..16 {
            enter(&mut room, third, now);
            let of = |address| room.connections.values().filter(|it| it.address == address).count();
            assert!(of(HERE) >= 5 && of(THERE) >= 5 && room.connections.len() == 16);
        }
    }

    #[test]
    fn a_connection_whose_page_is_made_stays_and_some_are_always_idle() {
        for descriptors in [0, 16, 64, 1024, usize::MAX] {
            let (mut room, now) = (Room::new(descriptors), Instant::now());
            let mut begun = Vec::new();
            for _ in 0..2000 {
                let gone = enter(&mut room, HERE, now);
                assert!(gone.is_none_or(|id| !begun.contains(&id)));
                if room.begin_page(room.next) {
                    begun.push(room.next);
                }
            }
            assert!(room.connections.len() <= share_of_one(room.max_connections));
            assert_eq!(begun.len(), share_of_one(room.max_pages));
            enter(&mut room, THERE, now);
            assert!(room.begin_page(room.next), "a quarter of the pages is for others");
            room.end_page(HERE);
            enter(&mut room, HERE, now);
            assert!(room.begin_page(room.next));
        }
    }

    #[test]
    fn requests_and_answers_have_deadlines_and_pages_have_none() {
        let (mut room, now) = (Room::new(64), Instant::now());
        for _ in 0..2 {
            enter(&mut room, HERE, now);
        }
        assert!(room.begin_page(2));
        assert!(room.take_overdue(now + REQUEST - Duration::from_millis(1)).is_empty());
        assert_eq!(room.take_overdue(now + REQUEST), [1]);
        let late = now + 10 * ANSWER;
        assert!(room.take_overdue(late).is_empty());
        room.answer(2, late);
        assert!(room.take_overdue(late + ANSWER - Duration::from_millis(1)).is_empty());
        assert_eq!(room.take_overdue(late + ANSWER), [2]);
        assert!(room.is_empty() && !room.begin_page(2));
    }
}

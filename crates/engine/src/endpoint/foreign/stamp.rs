//! A session-reflector at a port of its own, for senders of STAMP (RFC 8762) and of TWAMP's light
//! mode. It answers the peers of sessions and the networks that the owner names, and nobody else;
//! an answer is as long as what it answers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use linerate_core::lab::Prefix;
use linerate_core::wire::{STAMP_PORT, StampRequest};
use linerate_sys::poll::Poller;
use linerate_sys::socket::{self, Arrival};

use crate::clock::now_ns;
use crate::endpoint::session::Context;
use crate::measure::exchange::answer;

/// Longest wait without looking at the stop flag.
const TICK: Duration = Duration::from_millis(100);
/// Datagrams that are taken in one go.
const BURST: usize = 64;
/// Largest request: what an Ethernet without jumbo frames carries, and more is no delay's.
const MAX_REQUEST: usize = 1500;
/// Answers in a second: a hundred senders of a hundred packets.
const MAX_A_SECOND: u32 = 10_000;
/// Sessions that are counted; others are answered by a reflector without state.
const MAX_SESSIONS: usize = 1024;
/// A session that is silent for so long is over.
const SILENT_NS: u64 = 60_000_000_000;

/// A sender and its session's number.
type Session = (SocketAddr, u16);

/// Those that are counted.
#[derive(Default)]
struct Sessions {
    /// How many requests came, and when the latest.
    seen: HashMap<Session, (u32, u64)>,
    /// None falls silent before.
    next_end_ns: u64,
}

struct Reflector<'a> {
    context: &'a Context,
    allowed: &'a [Prefix],
    sessions: Sessions,
    /// When the second began, and the answers in it.
    second: (u64, u32),
}

/// Reflects until the endpoint stops.
pub(super) fn serve(context: &Arc<Context>, sockets: Vec<UdpSocket>, allowed: &[Prefix]) {
    let Ok(mut poller) = Poller::new() else {
        return;
    };
    for (number, socket) in (0..).zip(&sockets) {
        if socket.set_nonblocking(true).is_err() || poller.add(socket, number).is_err() {
            return;
        }
    }
    let mut reflector = Reflector {
        context,
        allowed,
        sessions: Sessions::default(),
        second: (0, 0),
    };
    while !context.stop.is_requested() {
        let ready: Vec<u64> = match poller.wait(TICK) {
            Ok(ready) => ready.collect(),
            Err(_) => return,
        };
        for number in ready {
            reflector.take(&sockets[number as usize]);
        }
    }
}

impl Reflector<'_> {
    fn take(&mut self, socket: &UdpSocket) {
        // One byte more, so that a longer datagram is not answered by its beginning.
        let mut packet = [0; MAX_REQUEST + 1];
        for _ in 0..BURST {
            let Ok(arrival) = socket::receive_from(socket, &mut packet) else {
                return;
            };
            let Some(local) = arrival.to.or_else(|| socket.local_addr().ok()) else {
                return;
            };
            let packet = &mut packet[..arrival.length];
            if self.answers(&arrival, local) && self.is_in_time() && self.reflect(packet, &arrival)
            {
                // Lost like any datagram.
                let _ = socket::send_from(socket, packet, arrival.from, local);
            }
        }
    }

    /// A request that comes from a reflector's port is another reflector's answer: the two would
    /// never end.
    fn answers(&self, arrival: &Arrival, local: SocketAddr) -> bool {
        let (peer, port) = (arrival.from.ip().to_canonical(), arrival.from.port());
        arrival.length <= MAX_REQUEST
            && port != STAMP_PORT
            && port != local.port()
            && self.knows(peer)
    }

    fn knows(&self, peer: IpAddr) -> bool {
        let is_allowed = self.allowed.iter().any(|network| network.contains(peer));
        is_allowed || self.context.registry.has_peer(peer)
    }

    fn is_in_time(&mut self) -> bool {
        let now = now_ns();
        if now - self.second.0 >= 1_000_000_000 {
            self.second = (now, 0);
        }
        self.second.1 += 1;
        self.second.1 <= MAX_A_SECOND
    }

    fn reflect(&mut self, packet: &mut [u8], arrival: &Arrival) -> bool {
        let Some(request) = StampRequest::read(packet) else {
            return false;
        };
        let session = (arrival.from, request.session);
        let count = self.sessions.count(session, now_ns());
        answer(packet, arrival, count)
    }
}

impl Sessions {
    /// How many requests of the session came before this one; `None` of one that has no place.
    fn count(&mut self, session: Session, now: u64) -> Option<u32> {
        if self.seen.len() >= MAX_SESSIONS && now >= self.next_end_ns {
            self.forget_silent(now);
        }
        let is_full = self.seen.len() >= MAX_SESSIONS;
        let (next, latest) = match self.seen.entry(session) {
            Entry::Vacant(_) if is_full => return None,
            Entry::Vacant(place) => place.insert((0, now)),
            Entry::Occupied(place) => place.into_mut(),
        };
        // One that falls silent begins anew.
        if now - *latest >= SILENT_NS {
            *next = 0;
        }
        *latest = now;
        let count = *next;
        *next = next.wrapping_add(1);
        Some(count)
    }

    /// Makes room. Who sends only puts its end off, so that nothing is to be had by looking again
    /// before the first of them.
    fn forget_silent(&mut self, now: u64) {
        self.seen.retain(|_, (_, latest)| now - *latest < SILENT_NS);
        let oldest = self.seen.values().map(|(_, latest)| *latest).min();
        self.next_end_ns = oldest.map_or(0, |latest| latest + SILENT_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(number: usize) -> Session {
        (([127, 0, 0, 1], 1_024).into(), number as u16)
    }

    #[test]
    fn a_full_table_takes_a_new_session_when_one_has_fallen_silent_and_is_not_searched_before() {
        let mut sessions = Sessions::default();
        for number in 0..MAX_SESSIONS {
            assert_eq!(sessions.count(sender(number), number as u64), Some(0));
        }
        let late = sender(MAX_SESSIONS);
        assert_eq!(sessions.count(late, 5_000), None);
        assert_eq!(sessions.next_end_ns, SILENT_NS);
        // The first goes on, so that the second is the first to end.
        assert_eq!(sessions.count(sender(0), 6_000), Some(1));
        assert_eq!(sessions.count(late, SILENT_NS), None);
        assert_eq!(sessions.next_end_ns, SILENT_NS + 1);
        assert_eq!(sessions.count(late, SILENT_NS + 1), Some(0));
        assert_eq!(sessions.count(late, SILENT_NS + 1), Some(1));
        assert_eq!(sessions.count(sender(1), SILENT_NS + 1), None);
        // One that was silent for as long and is there yet begins anew.
        assert_eq!(sessions.count(sender(0), 2 * SILENT_NS), Some(0));
    }
}

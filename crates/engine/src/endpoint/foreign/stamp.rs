//! A session-reflector on a port of its own, for senders of STAMP (RFC 8762) and TWAMP Light. It
//! answers the peers of sessions and the networks that the owner names, and nobody else, and no
//! answer of another reflector. An answer is as long as its request.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_core::lab::Prefix;
use linerate_core::wire::StampRequest;
use linerate_sys::socket::{self, Arrival};

use super::super::clients::{GuessCounts, PerSecond};
use super::ports::watch_datagrams;
use crate::clock::now_ns;
use crate::endpoint::clients::share_of_one;
use crate::endpoint::session::Context;
use crate::measure::exchange::answer;

/// Most datagrams that are taken at once from a socket.
const BURST: usize = 64;
/// Largest request, bytes: what Ethernet carries without jumbo frames.
const MAX_REQUEST: usize = 1500;
/// Most answers in a second: those to a hundred senders of a hundred packets each. One address gets
/// its share of them.
const MAX_A_SECOND: u32 = 10_000;
/// Ports below this are those of other services (RFC 6335, 6), reflectors of STAMP among them.
const FIRST_SENDERS_PORT: u16 = 1024;
/// Most sessions that are counted; others are answered as by a stateless reflector.
const MAX_SESSIONS: usize = 1024;
/// A session that is silent for this long is over.
const SILENT_NS: u64 = 60_000_000_000;

/// A sender and the number of its session.
type Session = (SocketAddr, u16);

/// The sessions that are counted.
#[derive(Default)]
struct Sessions {
    /// How many requests of a session have arrived, and when the latest did.
    seen: HashMap<Session, (u32, u64)>,
    /// No session ends before this time.
    next_end_ns: u64,
}

struct Reflector<'a> {
    context: &'a Context,
    allowed: &'a [Prefix],
    sessions: Sessions,
    answers: PerSecond,
    /// The requests of each address.
    requests: GuessCounts,
}

/// Reflects until the endpoint stops.
pub(super) fn serve(context: &Arc<Context>, sockets: &[UdpSocket], allowed: &[Prefix]) {
    let mut reflector = Reflector {
        context,
        allowed,
        sessions: Sessions::default(),
        answers: PerSecond::default(),
        requests: GuessCounts::within(Duration::from_secs(1)),
    };
    watch_datagrams(sockets, &context.stop, |ready| {
        ready.into_iter().for_each(|socket| reflector.take(socket));
    });
}

impl Reflector<'_> {
    fn take(&mut self, socket: &UdpSocket) {
        let now = Instant::now();
        self.requests.take_over(now);
        // One byte more than the largest request, so that a longer one is not answered.
        let mut packet = [0; MAX_REQUEST + 1];
        for _ in 0..BURST {
            let Ok(arrival) = socket::receive_from(socket, &mut packet) else {
                return;
            };
            let Some(local) = arrival.to.or_else(|| socket.local_addr().ok()) else {
                return;
            };
            let packet = &mut packet[..arrival.length];
            if self.may_answer(&arrival, local)
                && self.requests.note(arrival.from.ip(), now) <= share_of_one(MAX_A_SECOND.into())
                && self.answers.admits(MAX_A_SECOND)
                && self.reflect(packet, &arrival)
            {
                // If this fails, the answer is lost like any datagram.
                let _ = socket::send_from(socket, packet, arrival.from, local);
            }
        }
    }

    /// A packet from a port of another service, such as a reflector's, is an answer: the two would
    /// answer each other for ever.
    fn may_answer(&self, arrival: &Arrival, local: SocketAddr) -> bool {
        let (peer, port) = (arrival.from.ip().to_canonical(), arrival.from.port());
        arrival.length <= MAX_REQUEST
            && port >= FIRST_SENDERS_PORT
            && port != local.port()
            && self.knows(peer)
    }

    fn knows(&self, peer: IpAddr) -> bool {
        let is_allowed = self.allowed.iter().any(|network| network.contains(peer));
        is_allowed || self.context.registry.has_peer(peer)
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
    /// How many requests of the session came before this one; `None` if there is no place to count
    /// them.
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
        // A session that was silent for a minute begins anew.
        if now - *latest >= SILENT_NS {
            *next = 0;
        }
        *latest = now;
        let count = *next;
        *next = next.wrapping_add(1);
        Some(count)
    }

    /// Forgets silent sessions. A request only postpones the end of its session, so that the next
    /// search is of no use before the first of the others ends.
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
    fn a_full_table_takes_a_new_session_as_soon_as_another_has_ended() {
        let mut sessions = Sessions::default();
        for number in 0..MAX_SESSIONS {
            assert_eq!(sessions.count(sender(number), number as u64), Some(0));
        }
        let late = sender(MAX_SESSIONS);
        assert_eq!(sessions.count(late, 5_000), None);
        assert_eq!(sessions.next_end_ns, SILENT_NS);
        // The first session goes on, so that the second one ends first.
        assert_eq!(sessions.count(sender(0), 6_000), Some(1));
        assert_eq!(sessions.count(late, SILENT_NS), None);
        assert_eq!(sessions.next_end_ns, SILENT_NS + 1);
        assert_eq!(sessions.count(late, SILENT_NS + 1), Some(0));
        assert_eq!(sessions.count(late, SILENT_NS + 1), Some(1));
        assert_eq!(sessions.count(sender(1), SILENT_NS + 1), None);
        // A session that was silent for a minute and is still in the table begins anew.
        assert_eq!(sessions.count(sender(0), 2 * SILENT_NS), Some(0));
    }
}

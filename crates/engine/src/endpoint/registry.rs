//! Which session a data connection or a UDP flow belongs to, linerate's or iperf3's, and the
//! challenge that a UDP flow answers first.

use std::collections::{HashMap, HashSet, hash_map};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};

use linerate_core::foreign::iperf3::{Cookie, Greeting};
use linerate_core::wire::{HANDSHAKE_BYTES, Handshake, HandshakeStep, Token};
use linerate_sys::socket;

use super::foreign::iperf3::Turns;
use crate::measure::flow::{Flow, FlowSocket};
use crate::shares::lock;

/// Most connections that wait for their session to take them; `crr` opens many a second.
const INBOX: usize = 1024;

/// What the data connections of a session begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SessionName {
    Token(Token),
    Cookie(Cookie),
}

/// The sessions that are open, by name.
#[derive(Clone, Default)]
pub(crate) struct Registry(Arc<Mutex<HashMap<SessionName, RegisteredSession>>>);

struct RegisteredSession {
    /// The address of the control connection. Data connections must come from it, or from the one
    /// that the test names.
    peer: IpAddr,
    /// The endpoint has admitted the client.
    is_admitted: bool,
    /// Set while a test takes flows.
    inbox: Option<Inbox>,
}

struct Inbox {
    flows: u32,
    /// Another address of the client's host, from which the data connections come. The handshake
    /// of TCP proves it; a test of datagrams has none.
    source: Option<IpAddr>,
    sender: SyncSender<Flow>,
    /// UDP flows that have their socket. A second socket for the same peer would take the datagrams
    /// from the first.
    bound: HashSet<u32>,
    /// Number of the next flow whose client does not number it.
    next: u32,
}

/// A session's entry in the registry. When it is dropped, the session's name is no longer valid.
pub(crate) struct Registration {
    registry: Registry,
    name: SessionName,
}

impl Registry {
    fn entries(&self) -> MutexGuard<'_, HashMap<SessionName, RegisteredSession>> {
        lock(&self.0)
    }

    /// An entry for a session; `None` if there is one of that name.
    pub(crate) fn register(&self, name: SessionName, peer: IpAddr) -> Option<Registration> {
        let mut entries = self.entries();
        let hash_map::Entry::Vacant(place) = entries.entry(name) else {
            return None;
        };
        place.insert(RegisteredSession {
            peer: peer.to_canonical(),
            is_admitted: false,
            inbox: None,
        });
        Some(Registration { registry: self.clone(), name })
    }

    /// Whether there is a session of that name.
    pub(crate) fn has(&self, name: SessionName) -> bool {
        self.entries().contains_key(&name)
    }

    /// Whether a client with a control connection from this address is admitted.
    pub(crate) fn has_peer(&self, peer: IpAddr) -> bool {
        let is_it = |entry: &RegisteredSession| entry.is_admitted && entry.peer == peer;
        self.entries().values().any(is_it)
    }

    /// Whether a flow may be bound: the name is valid for this address, and the test still lacks
    /// the flow, or any flow if it has no number.
    pub(crate) fn expects(&self, name: SessionName, flow: Option<u32>, from: IpAddr) -> bool {
        let mut entries = self.entries();
        let entry = entries.get_mut(&name);
        entry.is_some_and(|entry| entry.inbox_for(flow, from).is_some())
    }

    /// Hands a flow to its session, unless the session does not expect it or too many are waiting.
    /// One without a number gets the next.
    pub(crate) fn deliver(
        &self,
        name: SessionName,
        from: IpAddr,
        flow: Option<u32>,
        socket: FlowSocket,
    ) {
        let mut entries = self.entries();
        let entry = entries.get_mut(&name);
        if let Some((inbox, id)) = entry.and_then(|entry| entry.inbox_for(flow, from)) {
            inbox.next = id + 1;
            if let FlowSocket::Udp(_) = socket {
                inbox.bound.insert(id);
            }
            // A flow for which there is no room is closed.
            let _ = inbox.sender.try_send(Flow { id, socket });
        }
    }
}

impl RegisteredSession {
    /// The inbox of the test that expects this flow from this address, and the flow's number.
    fn inbox_for(&mut self, flow: Option<u32>, from: IpAddr) -> Option<(&mut Inbox, u32)> {
        let inbox = self.inbox.as_mut()?;
        let id = flow.unwrap_or(inbox.next);
        let is_expected = inbox.source.unwrap_or(self.peer) == from.to_canonical()
            && id < inbox.flows
            && !inbox.bound.contains(&id);
        is_expected.then_some((inbox, id))
    }
}

impl Registration {
    fn change(&self, change: impl FnOnce(&mut RegisteredSession)) {
        if let Some(entry) = self.registry.entries().get_mut(&self.name) {
            change(entry);
        }
    }

    /// Takes flows 0 to `flows` − 1 from now on, from `source` if the test names one. Flows of the
    /// last test that still wait are dropped.
    pub(crate) fn open(&self, flows: u32, source: Option<IpAddr>) -> Receiver<Flow> {
        let (sender, receiver) = sync_channel(INBOX);
        let inbox = Inbox { flows, source, sender, bound: HashSet::new(), next: 0 };
        self.change(|entry| entry.inbox = Some(inbox));
        receiver
    }

    /// The endpoint has admitted the client.
    pub(crate) fn admit(&self) {
        self.change(|entry| entry.is_admitted = true);
    }

    /// Takes no more flows.
    pub(crate) fn close(&self) {
        self.change(|entry| entry.inbox = None);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.entries().remove(&self.name);
    }
}

// UDP at the endpoint's port. No datagram of a test is sent to an address that has not answered a
// challenge.

/// The unconnected UDP sockets on the endpoint's port.
pub(super) struct UdpChallenges {
    /// With the numbers under which they are watched.
    sockets: Vec<(u64, UdpSocket)>,
    registry: Registry,
    turns: Turns,
    /// SipHash with random keys: a cookie can be checked without having been stored.
    secret: RandomState,
}

impl UdpChallenges {
    pub(super) fn new(registry: Registry, turns: Turns) -> Self {
        Self { sockets: Vec::new(), registry, turns, secret: RandomState::new() }
    }

    pub(super) fn add(&mut self, number: u64, socket: UdpSocket) {
        // If this fails, the route chooses the source address of an answer.
        let _ = socket::note_destinations(&socket);
        self.sockets.push((number, socket));
    }

    /// Answers the datagrams that wait at the socket of this number, if it is one of these.
    pub(super) fn answer(&self, number: u64) {
        let Some((_, socket)) = self.sockets.iter().find(|(own, _)| *own == number) else {
            return;
        };
        // One byte more than a handshake has, so that a longer datagram is not taken for one.
        let mut bytes = [0; HANDSHAKE_BYTES + 1];
        // Even in a flood of datagrams TCP has its turn.
        for _ in 0..64 {
            let Ok(arrival) = socket::receive_from(socket, &mut bytes) else {
                return;
            };
            let (n, peer) = (arrival.length, arrival.from);
            // The peer takes answers only from the address that it has asked.
            let Some(local) = arrival.to.or_else(|| socket.local_addr().ok()) else {
                return;
            };
            if let Some(handshake) = Handshake::decode(&bytes[..n]) {
                self.answer_one(socket, local, peer, handshake);
            } else if let Some(greeting) = Greeting::decode(&bytes[..n]) {
                self.answer_greeting(local, peer, greeting);
            }
        }
    }

    fn answer_one(
        &self,
        socket: &UdpSocket,
        local: SocketAddr,
        peer: SocketAddr,
        handshake: Handshake,
    ) {
        // Without a token that is valid for this address there is no answer at all.
        let name = SessionName::Token(handshake.token);
        if !(self.registry).expects(name, Some(handshake.flow), peer.ip()) {
            return;
        }
        let cookie = self.cookie(peer, handshake.token, handshake.flow);
        match handshake.kind {
            HandshakeStep::Ask => {
                let challenge = Handshake { kind: HandshakeStep::Challenge, cookie, ..handshake };
                // If this is lost, the client asks again.
                let _ = socket::send_from(socket, &challenge.encode(), peer, local);
            }
            HandshakeStep::Answer if handshake.cookie == cookie => {
                self.bind(local, peer, handshake)
            }
            HandshakeStep::Answer | HandshakeStep::Challenge | HandshakeStep::Welcome => {}
        }
    }

    /// Answers a greeting of iperf3's, if a test from this address is open; nobody else gets an
    /// answer.
    fn answer_greeting(&self, local: SocketAddr, peer: SocketAddr, greeting: Greeting) {
        let Some(name) = self.turns.test_of(peer) else {
            return;
        };
        if self.registry.expects(name, None, peer.ip())
            && let Some(flow) = own_socket(local, peer)
        {
            let _ = flow.send(&greeting.answer());
            self.turns.bind(peer);
            (self.registry).deliver(name, peer.ip(), None, FlowSocket::Udp(flow));
        }
    }

    fn cookie(&self, peer: SocketAddr, token: Token, flow: u32) -> u64 {
        self.secret.hash_one((peer, token, flow))
    }

    fn bind(&self, local: SocketAddr, peer: SocketAddr, handshake: Handshake) {
        let Some(flow) = own_socket(local, peer) else {
            return;
        };
        let welcome = Handshake { kind: HandshakeStep::Welcome, ..handshake };
        let _ = flow.send(&welcome.encode());
        let (name, id) = (SessionName::Token(handshake.token), handshake.flow);
        (self.registry).deliver(name, peer.ip(), Some(id), FlowSocket::Udp(flow));
    }
}

/// A socket for one flow on the same port, connected to the peer: from now on the kernel delivers
/// the peer's datagrams to it.
fn own_socket(local: SocketAddr, peer: SocketAddr) -> Option<UdpSocket> {
    socket::udp_socket(local, Some(peer), true).ok()
}

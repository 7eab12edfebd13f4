//! UDP at the endpoint's port. No datagram of a test is sent to an address that has not answered a
//! challenge.

use std::hash::{BuildHasher, RandomState};
use std::net::{SocketAddr, UdpSocket};

use linerate_core::foreign::iperf3::Greeting;
use linerate_core::wire::{HANDSHAKE_BYTES, Handshake, HandshakeStep, Token};
use linerate_sys::socket;

use super::foreign::iperf3::Turns;
use super::registry::{Registry, SessionName};
use crate::measure::flow::FlowSocket;

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

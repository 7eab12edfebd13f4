//! UDP at the endpoint's port: no datagram of a test goes to an address that has not answered a
//! challenge.

use std::hash::{BuildHasher, RandomState};
use std::net::{SocketAddr, UdpSocket};

use linerate_core::foreign::iperf3::Greeting;
use linerate_core::wire::{HANDSHAKE_BYTES, Handshake, HandshakeStep, Token};
use linerate_sys::socket;

use super::foreign::iperf3::Calls;
use super::registry::Registry;
use crate::measure::flow::{Flow, FlowSocket};

/// The sockets on the endpoint's port that are connected to nobody.
pub(super) struct UdpChallenges {
    /// With the numbers that they are watched by.
    sockets: Vec<(u64, UdpSocket)>,
    registry: Registry,
    calls: Calls,
    /// SipHash with random keys: a cookie can be checked without having been stored.
    secret: RandomState,
}

impl UdpChallenges {
    pub(super) fn new(registry: Registry, calls: Calls) -> Self {
        Self {
            sockets: Vec::new(),
            registry,
            calls,
            secret: RandomState::new(),
        }
    }

    pub(super) fn add(&mut self, number: u64, socket: UdpSocket) {
        // Without it the route chooses the address of an answer.
        let _ = socket::note_destinations(&socket);
        self.sockets.push((number, socket));
    }

    /// Answers what waits at the socket of that number, if it is one of these.
    pub(super) fn answer(&self, number: u64) {
        let Some((_, socket)) = self.sockets.iter().find(|(own, _)| *own == number) else {
            return;
        };
        // One byte more than a handshake has, so that a longer datagram is not taken for one.
        let mut bytes = [0; HANDSHAKE_BYTES + 1];
        // A flood is not answered without end before the TCP side has its turn.
        for _ in 0..64 {
            let Ok(arrival) = socket::receive_from(socket, &mut bytes) else {
                return;
            };
            let (n, peer) = (arrival.length, arrival.from);
            // The peer takes answers from the address alone that it has asked.
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
        // Who does not know the token of a session from this very address gets no answer at all.
        if !self
            .registry
            .expects(handshake.token, handshake.flow, peer.ip())
        {
            return;
        }
        let cookie = self.cookie(peer, handshake.token, handshake.flow);
        match handshake.kind {
            HandshakeStep::Ask => {
                let challenge = Handshake {
                    kind: HandshakeStep::Challenge,
                    cookie,
                    ..handshake
                };
                // Lost like any datagram: the client asks again.
                let _ = socket::send_from(socket, &challenge.encode(), peer, local);
            }
            HandshakeStep::Answer if handshake.cookie == cookie => {
                self.bind(local, peer, handshake)
            }
            HandshakeStep::Answer | HandshakeStep::Challenge | HandshakeStep::Welcome => {}
        }
    }

    /// Of a client of iperf3's, which has a test open from this very address: nobody else gets an
    /// answer.
    fn answer_greeting(&self, local: SocketAddr, peer: SocketAddr, greeting: Greeting) {
        if !self.calls.expects(peer) {
            return;
        }
        if let Some(flow) = own_socket(local, peer) {
            let _ = flow.send(&greeting.answer());
            self.calls.deliver_datagrams(peer, flow);
        }
    }

    fn cookie(&self, peer: SocketAddr, token: Token, flow: u32) -> u64 {
        self.secret.hash_one((peer, token, flow))
    }

    fn bind(&self, local: SocketAddr, peer: SocketAddr, handshake: Handshake) {
        let Some(flow) = own_socket(local, peer) else {
            return;
        };
        let welcome = Handshake {
            kind: HandshakeStep::Welcome,
            ..handshake
        };
        let _ = flow.send(&welcome.encode());
        self.registry.deliver(
            handshake.token,
            peer.ip(),
            Flow {
                id: handshake.flow,
                socket: FlowSocket::Udp(flow),
            },
        );
    }
}

/// A socket of a flow's own on the same port, connected to the peer; from then on the kernel sorts
/// the peer's datagrams.
fn own_socket(local: SocketAddr, peer: SocketAddr) -> Option<UdpSocket> {
    socket::udp_socket(local, Some(peer), true).ok()
}

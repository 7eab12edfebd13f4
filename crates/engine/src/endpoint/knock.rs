//! UDP at the door: no datagram of a test goes to an address that has not answered a challenge.

use std::hash::{BuildHasher, RandomState};
use std::net::{SocketAddr, UdpSocket};

use linerate_core::foreign::iperf3::Greeting;
use linerate_core::wire::{KNOCK_BYTES, Knock, KnockKind, Token};
use linerate_sys::socket;

use super::foreign::iperf3::Calls;
use super::registry::Registry;
use crate::measure::flow::{Flow, FlowSocket};

/// The sockets on the endpoint's port that are connected to nobody.
pub(super) struct Knocks {
    sockets: Vec<UdpSocket>,
    registry: Registry,
    calls: Calls,
    /// SipHash with random keys: a cookie can be checked without having been stored.
    secret: RandomState,
}

impl Knocks {
    pub(super) fn new(sockets: Vec<UdpSocket>, registry: Registry, calls: Calls) -> Self {
        for socket in &sockets {
            // Without it the route chooses the address of an answer.
            let _ = socket::note_destinations(socket);
        }
        Self {
            sockets,
            registry,
            calls,
            secret: RandomState::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Answers what waits at socket `index`.
    pub(super) fn answer(&self, index: usize) {
        let socket = &self.sockets[index];
        // One byte more than a knock, so that a longer datagram is not taken for one.
        let mut bytes = [0; KNOCK_BYTES + 1];
        // A flood is not answered without end before the TCP side has its turn.
        for _ in 0..64 {
            let Ok((n, peer, asked)) = socket::receive_from(socket, &mut bytes) else {
                return;
            };
            // The peer takes answers from the address alone that it has asked.
            let Some(local) = asked.or_else(|| socket.local_addr().ok()) else {
                return;
            };
            if let Some(knock) = Knock::decode(&bytes[..n]) {
                self.answer_one(socket, local, peer, knock);
            } else if let Some(greeting) = Greeting::decode(&bytes[..n]) {
                self.answer_greeting(local, peer, greeting);
            }
        }
    }

    fn answer_one(&self, socket: &UdpSocket, local: SocketAddr, peer: SocketAddr, knock: Knock) {
        // Who does not know the token of a session from this very address gets no answer at all.
        if !self.registry.expects(knock.token, knock.flow, peer.ip()) {
            return;
        }
        let cookie = self.cookie(peer, knock.token, knock.flow);
        match knock.kind {
            KnockKind::Ask => {
                let challenge = Knock {
                    kind: KnockKind::Challenge,
                    cookie,
                    ..knock
                };
                // Lost like any datagram: the client asks again.
                let _ = socket::send_from(socket, &challenge.encode(), peer, local);
            }
            KnockKind::Answer if knock.cookie == cookie => self.bind(local, peer, knock),
            KnockKind::Answer | KnockKind::Challenge | KnockKind::Welcome => {}
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

    fn bind(&self, local: SocketAddr, peer: SocketAddr, knock: Knock) {
        let Some(flow) = own_socket(local, peer) else {
            return;
        };
        let welcome = Knock {
            kind: KnockKind::Welcome,
            ..knock
        };
        let _ = flow.send(&welcome.encode());
        self.registry.deliver(
            knock.token,
            peer.ip(),
            Flow {
                id: knock.flow,
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

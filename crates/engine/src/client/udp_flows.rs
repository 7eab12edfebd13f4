//! The UDP flows of a test. Each proves its address to the endpoint before the endpoint sends it
//! test traffic.

use std::net::UdpSocket;
use std::time::Duration;

use linerate_core::plan::Test;
use linerate_core::session::ClientEvent;
use linerate_core::wire::{HANDSHAKE_BYTES, Handshake, HandshakeStep, Token};
use linerate_sys::poll::wait_readable;

use super::Client;
use super::flows::udp_flow_socket;
use crate::clock::now;
use crate::error::MeasureError;
use crate::measure::flow::{Flow, FlowSocket};

/// Time after which a step of the handshake is repeated.
const AGAIN: Duration = Duration::from_millis(200);
/// Time between two looks at the sockets.
const LOOK: Duration = Duration::from_millis(1);

/// A flow that the endpoint has not bound yet.
struct UnboundFlow {
    socket: UdpSocket,
    /// The message that this end sends next.
    handshake: Handshake,
}

impl Client {
    /// Makes the flows, and repeats their handshakes until the endpoint has bound all of them. The
    /// endpoint confirms that on the control connection, because a datagram may be lost.
    pub(super) fn bind_udp_flows(&mut self, test: &Test) -> Result<Vec<Flow>, MeasureError> {
        let unbound = (0..test.flows()).map(|flow| {
            let (target, options) = (&self.target, &test.options);
            let socket = udp_flow_socket(target, self.peer, test, options, flow)?;
            Ok(UnboundFlow::new(socket, self.token, flow))
        });
        let mut unbound = unbound.collect::<Result<Vec<_>, MeasureError>>()?;
        let mut send_again_at = now();
        loop {
            if now() >= send_again_at {
                send_again_at = now() + AGAIN;
                unbound.iter().for_each(UnboundFlow::send);
            }
            unbound.iter_mut().for_each(UnboundFlow::receive);
            self.pump(LOOK);
            match self.session.poll_event() {
                Some(ClientEvent::Ready) => {
                    return Ok(unbound.into_iter().map(UnboundFlow::into_flow).collect());
                }
                Some(ClientEvent::Failed(error)) => return Err(self.session_error(error)),
                _ if self.stop.is_requested() => return Err(MeasureError::Interrupted),
                _ => {}
            }
        }
    }
}

impl UnboundFlow {
    fn new(socket: UdpSocket, token: Token, flow: u32) -> Self {
        let handshake = Handshake {
            kind: HandshakeStep::Ask,
            token,
            flow,
            cookie: 0,
        };
        Self { socket, handshake }
    }

    /// The datagram may be lost or refused: it is sent again until the session's deadline.
    fn send(&self) {
        if self.handshake.kind != HandshakeStep::Welcome {
            let _ = self.socket.send(&self.handshake.encode());
        }
    }

    /// Takes a datagram that has arrived; a challenge is answered at once.
    fn receive(&mut self) {
        let mut bytes = [0; HANDSHAKE_BYTES + 1];
        if !wait_readable(&self.socket, Duration::ZERO).unwrap_or(false) {
            return;
        }
        let Ok(n) = self.socket.recv(&mut bytes) else {
            return;
        };
        match Handshake::decode(&bytes[..n]) {
            Some(challenge) if challenge.kind == HandshakeStep::Challenge => {
                self.handshake.kind = HandshakeStep::Answer;
                self.handshake.cookie = challenge.cookie;
                self.send();
            }
            Some(welcome) if welcome.kind == HandshakeStep::Welcome => {
                self.handshake.kind = HandshakeStep::Welcome;
            }
            _ => {}
        }
    }

    fn into_flow(self) -> Flow {
        Flow {
            id: self.handshake.flow,
            socket: FlowSocket::Udp(self.socket),
        }
    }
}

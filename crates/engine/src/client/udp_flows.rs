//! The UDP flows of a test: each proves its address to the endpoint before any of its datagrams go
//! there.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use linerate_core::plan::Test;
use linerate_core::session::ClientEvent;
use linerate_core::wire::{HANDSHAKE_BYTES, Handshake, HandshakeStep, Token};
use linerate_sys::poll::wait_readable;
use linerate_sys::socket;

use super::flows::prepare;
use super::{Client, Target};
use crate::clock::now;
use crate::error::MeasureError;
use crate::measure::flow::{Flow, FlowSocket, flow_direction, sends};
use crate::measure::options;
use linerate_core::units::End;

/// Between two tries of a step.
const AGAIN: Duration = Duration::from_millis(200);
/// Between two looks at the sockets.
const LOOK: Duration = Duration::from_millis(1);

/// A flow that is not bound yet.
struct UnboundFlow {
    socket: UdpSocket,
    /// What this end says next.
    handshake: Handshake,
}

impl Client {
    /// Makes the flows and asks until the endpoint has bound them all. Its word on the control
    /// connection counts: the datagram that says so may be lost.
    pub(super) fn bind_udp_flows(&mut self, test: &Test) -> Result<Vec<Flow>, MeasureError> {
        let mut unbound = (0..test.flows())
            .map(|flow| self.unbound_flow(test, flow))
            .collect::<Result<Vec<_>, _>>()?;
        let mut say_again_at = now();
        loop {
            if now() >= say_again_at {
                say_again_at = now() + AGAIN;
                unbound.iter().for_each(UnboundFlow::say);
            }
            for flow in &mut unbound {
                flow.listen();
            }
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

    fn unbound_flow(&self, test: &Test, flow: u32) -> Result<UnboundFlow, MeasureError> {
        let sends = sends(End::Client, flow_direction(test, flow));
        let socket = udp_socket(&self.target, self.peer, test.options.source_port_of(flow))
            .map_err(MeasureError::connect(self.peer))?;
        options::apply_udp(&socket, &test.options, sends)?;
        Ok(UnboundFlow::new(socket, self.token, flow))
    }
}

/// A UDP socket of a target's, connected to `peer`; from a port of the kernel's choice if it is 0.
pub(crate) fn udp_socket(
    target: &Target,
    peer: SocketAddr,
    port: u16,
) -> std::io::Result<UdpSocket> {
    let source = target.source.unwrap_or_else(|| socket::any(&peer));
    let socket = socket::udp_socket(SocketAddr::new(source, port), None, false)?;
    prepare(&socket, target)?;
    socket.connect(peer)?;
    Ok(socket)
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

    /// Lost like any datagram, or answered by ICMP: said again until the session's deadline.
    fn say(&self) {
        if self.handshake.kind != HandshakeStep::Welcome {
            let _ = self.socket.send(&self.handshake.encode());
        }
    }

    /// Takes what has come; a challenge is answered at once.
    fn listen(&mut self) {
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
                self.say();
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

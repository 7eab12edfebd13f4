//! The streams of a test. They are opened one after another, because the server numbers them in
//! the order in which they arrive.

use std::io::{ErrorKind, Write};
use std::time::Duration;

use linerate_core::foreign::iperf3::{ClientError, Greeting};
use linerate_core::plan::Protocol;
use linerate_sys::poll::wait_readable;

use super::{Run, TICK};
use crate::client::{connect_unless, tcp_flow_socket, udp_flow_socket};
use crate::clock::now;
use crate::error::MeasureError;
use crate::measure::flow::{Flow, FlowSocket};

/// Longest wait for the answer to a greeting. The greeting is not repeated: a server would take the
/// second for that of another stream.
const ANSWER: Duration = Duration::from_secs(10);
/// Largest datagram that may arrive, bytes: data that overtakes the answer counts as one, too.
const MAX_ANSWER: usize = 65_536;

impl Run<'_> {
    /// Opens all streams.
    pub(super) fn connect_flows(&mut self) -> Result<Vec<Flow>, MeasureError> {
        let udp = self.adapted.test.protocol == Protocol::Udp;
        let mut flows = Vec::new();
        for id in 0..self.adapted.test.flows() {
            let socket = if udp {
                self.greet(id)?
            } else {
                self.connect(id)?
            };
            flows.push(Flow { id, socket });
        }
        Ok(flows)
    }

    fn connect(&self, id: u32) -> Result<FlowSocket, MeasureError> {
        let (server, test) = (self.server, &self.adapted.test);
        let target = &server.target;
        let given_up = || server.stop.is_requested();
        let connected = tcp_flow_socket(target, server.peer, test, &test.options, id)
            .and_then(|s| connect_unless(s, server.peer, target.connect_timeout, given_up))
            .and_then(|mut stream| stream.write_all(&self.cookie.0).map(|()| stream));
        match connected {
            Ok(stream) => Ok(FlowSocket::Tcp(stream)),
            Err(_) if server.stop.is_requested() => Err(MeasureError::Interrupted),
            Err(error) => Err(MeasureError::connect(server.peer)(error)),
        }
    }

    fn greet(&mut self, id: u32) -> Result<FlowSocket, MeasureError> {
        let peer = self.server.peer;
        let test = &self.adapted.test;
        let socket = udp_flow_socket(&self.server.target, peer, test, &test.options, id)?;
        socket
            .send(&Greeting::hello())
            .map_err(MeasureError::connect(peer))?;
        let until = now() + ANSWER;
        let mut bytes = vec![0; MAX_ANSWER];
        while now() < until {
            self.pump(Duration::ZERO);
            if self.session.is_closed() || self.server.stop.is_requested() {
                self.next_event()?;
            }
            if !wait_readable(&socket, TICK).unwrap_or(false) {
                continue;
            }
            match socket.recv(&mut bytes) {
                Ok(_) => return Ok(FlowSocket::Udp(socket)),
                // Nothing to read after all.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(MeasureError::connect(peer)(error)),
            }
        }
        Err(self.error(ClientError::Timeout(
            "no answer by UDP (a firewall may let only TCP pass)",
        )))
    }
}

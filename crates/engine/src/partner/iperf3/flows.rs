//! The streams of a test, one after another: the server numbers them as they come.

use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use linerate_core::foreign::iperf3::{ClientError, Greeting};
use linerate_core::plan::Protocol;
use linerate_sys::poll::wait_readable;
use linerate_sys::socket::{self, Mptcp};

use super::{Run, TICK};
use crate::client::{connect_unless, prepare, udp_socket};
use crate::clock::now;
use crate::error::MeasureError;
use crate::measure::flow::{Flow, FlowSocket, flow_direction, sends};
use crate::measure::options;
use linerate_core::units::End;

/// Longest wait for the answer to a greeting. It is not repeated: a server would take the second
/// for another stream's.
const ANSWER: Duration = Duration::from_secs(10);
/// More than any answer: a datagram of data that has overtaken it is one, too.
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
        let attempt = || -> io::Result<_> {
            let socket = socket::tcp_socket_from(
                server.peer,
                target.source,
                test.options.source_port_of(id),
                Mptcp::Off,
            )?;
            prepare(&socket, target)?;
            let sends = sends(End::Client, flow_direction(test, id));
            options::apply_tcp(&socket, &test.options, End::Client, sends)
                .map_err(io::Error::other)?;
            let given_up = || server.stop.is_requested();
            let mut stream = connect_unless(socket, server.peer, target.connect_timeout, given_up)?;
            stream.write_all(&self.cookie.0)?;
            Ok(stream)
        };
        match attempt() {
            Ok(stream) => Ok(FlowSocket::Tcp(stream)),
            Err(_) if server.stop.is_requested() => Err(MeasureError::Interrupted),
            Err(error) => Err(MeasureError::connect(server.peer)(error)),
        }
    }

    fn greet(&mut self, id: u32) -> Result<FlowSocket, MeasureError> {
        let peer = self.server.peer;
        let test = &self.adapted.test;
        let port = test.options.source_port_of(id);
        let socket =
            udp_socket(&self.server.target, peer, port).map_err(MeasureError::connect(peer))?;
        let sends = sends(End::Client, flow_direction(test, id));
        options::apply_udp(&socket, &test.options, sends)?;
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
                // ICMP's answer, or none after all.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(MeasureError::connect(peer)(error)),
            }
        }
        Err(self.error(ClientError::Timeout(
            "no answer by UDP (a firewall may let only TCP pass)",
        )))
    }
}

//! One control connection to a netserver, and the data connection of its one test.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use linerate_core::foreign::netperf::{
    Client as Session, ClientError, ClientEvent, DataTest, Results,
};
use linerate_core::plan::{Protocol, Test};
use linerate_sys::socket::Connecting;

use super::test::own_options;
use crate::client::{connect_bounded, connect_first, tcp_flow_socket, udp_flow_socket};
use crate::clock::now;
use crate::control::{ControlReceived, ControlSocket};
use crate::error::MeasureError;
use crate::measure::flow::FlowSocket;
use crate::measure::source::{Connect, FlowSource};
use crate::partner::ServerAddress;
use crate::stop::Stop;
use crate::target::Target;

/// Longest wait without a look at the stop flag.
const TICK: Duration = Duration::from_millis(20);
/// Time that a netserver which still sends needs to end, in addition to core's time for its answer.
const ENDING: Duration = Duration::from_secs(2);

/// A control connection.
pub(super) struct NetperfConnection {
    session: Session,
    socket: ControlSocket,
    pub(super) peer: SocketAddr,
    pub(super) connect_time: Duration,
    /// Port for the data, once the netserver is ready.
    port: u16,
}

impl NetperfConnection {
    /// Connects, and checks that a netserver answers.
    pub(super) fn greet(target: &Target, stop: &Stop) -> Result<Self, MeasureError> {
        let (stream, peer, connect_time) = connect_first(target, stop)?;
        let socket = ControlSocket::new(stream).map_err(MeasureError::connect(peer))?;
        let mut connection =
            Self { session: Session::new(now()), socket, peer, connect_time, port: 0 };
        match connection.next_event(stop)? {
            ClientEvent::Greeted => Ok(connection),
            _ => Err(connection.error(&ClientError::NotNetserver)),
        }
    }

    /// Address and port for the data.
    pub(super) fn data(&self) -> SocketAddr {
        let mut data = self.peer;
        data.set_port(self.port);
        data
    }

    /// Requests a test, and waits until the netserver is ready for its data.
    pub(super) fn open(&mut self, test: &DataTest, stop: &Stop) -> Result<(), MeasureError> {
        self.session.open(now(), test);
        match self.next_event(stop)? {
            ClientEvent::Ready(ready) => {
                self.port = ready.port;
                Ok(())
            }
            _ => Err(self.error(&ClientError::NotNetserver)),
        }
    }

    /// Makes the data connection of flow `id`.
    pub(super) fn connect(
        &self,
        test: &Test,
        id: u32,
        server: &ServerAddress,
    ) -> Result<FlowSocket, MeasureError> {
        let (peer, options) = (self.data(), own_options(test, id));
        if test.protocol == Protocol::Udp {
            let socket = udp_flow_socket(&server.target, peer, test, &options, id)?;
            return Ok(FlowSocket::Udp(socket));
        }
        server.connect(peer, test, &options, id, &[]).map(FlowSocket::Tcp)
    }

    /// The netserver's results of a test whose data is over.
    pub(super) fn results(mut self, stop: &Stop) -> Result<Results, MeasureError> {
        self.session.begun(now(), ENDING);
        match self.next_event(stop)? {
            ClientEvent::Results(results) => Ok(*results),
            _ => Err(self.error(&ClientError::NotNetserver)),
        }
    }

    /// The next event; failures are errors.
    fn next_event(&mut self, stop: &Stop) -> Result<ClientEvent, MeasureError> {
        loop {
            while let Some(bytes) = self.session.poll_transmit() {
                if self.socket.send(&bytes).is_err() {
                    self.session.handle_close();
                }
            }
            match self.session.poll_event() {
                Some(ClientEvent::Failed(error)) => return Err(self.error(&error)),
                Some(event) => return Ok(event),
                None if stop.is_requested() => return Err(MeasureError::Interrupted),
                None => {}
            }
            match self.socket.receive(TICK) {
                ControlReceived::Bytes(bytes) => self.session.handle_input(bytes),
                ControlReceived::Nothing => {}
                ControlReceived::Closed => self.session.handle_close(),
            }
            self.session.handle_timeout(now());
        }
    }

    fn error(&self, reason: &ClientError) -> MeasureError {
        MeasureError::Foreign { peer: self.peer, reason: reason.to_string() }
    }
}

/// The source of connections that are made within the run, each with its request.
pub(super) fn connect_each(test: &Test, target: &Target, peers: Vec<SocketAddr>) -> FlowSource {
    FlowSource::Connect(Box::new(EachConnection {
        test: test.clone(),
        target: target.clone(),
        peers,
    }))
}

struct EachConnection {
    test: Test,
    target: Target,
    /// One for each flow.
    peers: Vec<SocketAddr>,
}

impl EachConnection {
    fn peer(&self, flow: u32) -> io::Result<SocketAddr> {
        let peer = self.peers.get(flow as usize).copied();
        peer.ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }
}

impl Connect for EachConnection {
    fn socket(&self, flow: u32) -> io::Result<Connecting> {
        let (test, peer) = (&self.test, self.peer(flow)?);
        tcp_flow_socket(&self.target, peer, test, &own_options(test, flow), flow)
    }

    fn connect(&self, socket: Connecting, flow: u32, first: &[u8]) -> io::Result<TcpStream> {
        let peer = self.peer(flow)?;
        let mut stream = connect_bounded(socket, peer, self.target.connect_timeout, || false)?;
        stream.write_all(first)?;
        Ok(stream)
    }
}

//! One control connection to a netserver, and the data connection of its one test.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use linerate_core::foreign::netperf::{
    Client as Session, ClientError, ClientEvent, DataTest, Results,
};
use linerate_core::plan::{Protocol, Test};
use linerate_sys::socket::{self, Mptcp};

use super::test::own_options;
use crate::client::{connect_bounded, connect_first, prepare, udp_socket};
use crate::clock::now;
use crate::control::{ControlSocket, Received};
use crate::error::MeasureError;
use crate::measure::flow::{FlowSocket, flow_direction, sends};
use crate::measure::options;
use crate::measure::source::FlowSource;
use crate::stop::Stop;
use crate::target::Target;
use linerate_core::units::End;

/// Longest wait without looking at the stop flag.
const TICK: Duration = Duration::from_millis(20);
/// A netserver that still sends needs its time to end, beside what core allows for the answer.
const ENDING: Duration = Duration::from_secs(2);

/// A control connection.
pub(super) struct Connection {
    session: Session,
    socket: ControlSocket,
    pub(super) peer: SocketAddr,
    pub(super) connect_time: Duration,
    /// Of the data, when the netserver is ready.
    port: u16,
}

impl Connection {
    /// Connects, and makes sure that a netserver answers.
    pub(super) fn greet(target: &Target, stop: &Stop) -> Result<Self, MeasureError> {
        let (stream, peer, connect_time) = connect_first(target, stop)?;
        let socket = ControlSocket::new(stream).map_err(MeasureError::connect(peer))?;
        let mut connection = Self {
            session: Session::new(now()),
            socket,
            peer,
            connect_time,
            port: 0,
        };
        match connection.next_event(stop)? {
            ClientEvent::Greeted => Ok(connection),
            _ => Err(connection.error(&ClientError::NotNetserver)),
        }
    }

    /// Where the data goes.
    pub(super) fn data(&self) -> SocketAddr {
        let mut data = self.peer;
        data.set_port(self.port);
        data
    }

    /// Asks for a test; done when the netserver waits for its data.
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

    /// The data connection of flow `id`.
    pub(super) fn connect(
        &self,
        test: &Test,
        id: u32,
        target: &Target,
        stop: &Stop,
    ) -> Result<FlowSocket, MeasureError> {
        let peer = self.data();
        if test.protocol == Protocol::Udp {
            let socket = udp_socket(target, peer, 0).map_err(MeasureError::connect(peer))?;
            let sends = sends(End::Client, flow_direction(test, id));
            options::apply_udp(&socket, &own_options(test, id), sends)?;
            return Ok(FlowSocket::Udp(socket));
        }
        let connected =
            connect(test, id, target, peer, || stop.is_requested()).and_then(|stream| {
                socket::bound_waits(&stream, None).map_err(io::Error::other)?;
                Ok(stream)
            });
        match connected {
            Ok(stream) => Ok(FlowSocket::Tcp(stream)),
            Err(_) if stop.is_requested() => Err(MeasureError::Interrupted),
            Err(error) => Err(MeasureError::connect(peer)(error)),
        }
    }

    /// What the netserver says of a test whose data is over.
    pub(super) fn results(mut self, stop: &Stop) -> Result<Results, MeasureError> {
        self.session.begun(now(), ENDING);
        match self.next_event(stop)? {
            ClientEvent::Results(results) => Ok(*results),
            _ => Err(self.error(&ClientError::NotNetserver)),
        }
    }

    /// The next event, failures as errors.
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
                Received::Bytes(bytes) => self.session.handle_input(bytes),
                Received::Nothing => {}
                Received::Closed => self.session.handle_close(),
            }
            self.session.handle_timeout(now());
        }
    }

    fn error(&self, reason: &ClientError) -> MeasureError {
        MeasureError::Foreign {
            peer: self.peer,
            reason: reason.to_string(),
        }
    }
}

/// The connection's calls wait for a tick at most.
fn connect(
    test: &Test,
    id: u32,
    target: &Target,
    peer: SocketAddr,
    given_up: impl Fn() -> bool,
) -> io::Result<TcpStream> {
    let socket = socket::tcp_socket(peer, target.source, Mptcp::Off)?;
    prepare(&socket, target)?;
    let sends = sends(End::Client, flow_direction(test, id));
    options::apply_tcp(&socket, &own_options(test, id), End::Client, sends)
        .map_err(io::Error::other)?;
    connect_bounded(socket, peer, target.connect_timeout, given_up)
}

/// Connections that come and go within the run, each with its request.
pub(super) fn connect_each(test: &Test, target: &Target, peers: Vec<SocketAddr>) -> FlowSource {
    let (test, target) = (test.clone(), target.clone());
    FlowSource::Connect(Box::new(move |flow, first| {
        let peer = peers
            .get(flow as usize)
            .ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mut stream = connect(&test, flow, &target, *peer, || false)?;
        stream.write_all(first)?;
        Ok(stream)
    }))
}

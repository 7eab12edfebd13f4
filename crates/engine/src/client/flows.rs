//! The connections of a session: the control connection, and the data connections of a test.

use std::io::{self, ErrorKind, IoSlice, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use linerate_core::plan::{Protocol, SocketOptions, Test, Traffic};
use linerate_core::session::{ClientEvent, SessionError};
use linerate_core::units::End;
use linerate_core::wire::{HANDSHAKE_BYTES, Handshake, HandshakeStep, Hello, HelloKind, Token};
use linerate_sys::poll::{Interest, wait_readable, wait_ready};
use linerate_sys::socket::{self, Connecting, Mptcp};

use super::{Client, TICK, Target};
use crate::clock::now;
use crate::error::MeasureError;
use crate::measure::crr::leaves_at_once;
use crate::measure::flow::{Flow, FlowSocket, flow_direction, sends};
use crate::measure::options::{apply_tcp, apply_udp};
use crate::measure::source::{Connect, FlowSource};
use crate::reach;
use crate::stop::Stop;

impl Client {
    /// Connects the flows of a test, and waits until the endpoint has all of them.
    pub(super) fn connect_flows(
        &mut self,
        test: &Test,
    ) -> Result<(Vec<Flow>, FlowSource), MeasureError> {
        if test.connects_within_run() {
            self.await_ready()?;
            return Ok((Vec::new(), FlowSource::Connect(Box::new(self.connector(test)))));
        }
        let mut flows = Vec::with_capacity(test.flows() as usize);
        if test.protocol == Protocol::Udp {
            flows = self.bind_udp_flows(test)?;
        } else {
            let connector = self.connector(test);
            for id in 0..test.flows() {
                let stream =
                    connector.socket(id).and_then(|socket| connector.connect(socket, id, &[]));
                if self.stop.is_requested() {
                    return Err(MeasureError::Interrupted);
                }
                let stream = stream.map_err(MeasureError::connect(self.peer))?;
                flows.push(Flow { id, socket: FlowSocket::Tcp(stream) });
            }
            self.await_ready()?;
        }
        Ok((flows, FlowSource::Bound))
    }

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
        // TCP needed one round trip to connect, and an answer by UDP needs one, too.
        let blocked_at = now() + UDP_PATIENCE.max(self.connect_time * 5);
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
                _ if now() >= blocked_at && unbound.iter().all(UnboundFlow::is_unheard) => {
                    return Err(MeasureError::UdpBlocked { peer: self.peer });
                }
                _ => {}
            }
        }
    }

    fn await_ready(&mut self) -> Result<(), MeasureError> {
        match self.next_event()? {
            ClientEvent::Ready => Ok(()),
            _ => Err(self.session_error(SessionError::OutOfTurn("instead of being ready"))),
        }
    }

    fn connector(&self, test: &Test) -> Connector {
        let mut target = self.target.clone();
        target.source = test.options.source.or(target.source);
        let mut options = test.options.clone();
        if let Traffic::Crr(exchange) = &test.traffic {
            options.nodelay &= !leaves_at_once(exchange, End::Client);
        }
        Connector {
            peer: self.peer,
            token: self.token,
            test: test.clone(),
            target,
            options,
            stop: self.stop.clone(),
            run_over: self.run_over.clone(),
        }
    }
}

/// Makes the data connections of a test: the options are set before the SYN, the hello is sent
/// after it.
struct Connector {
    peer: SocketAddr,
    token: Token,
    test: Test,
    target: Target,
    options: SocketOptions,
    stop: Stop,
    run_over: Stop,
}

impl Connect for Connector {
    fn socket(&self, flow: u32) -> io::Result<Connecting> {
        let test = &self.test;
        let socket = tcp_flow_socket(&self.target, self.peer, test, &self.options, flow)?;
        if test.connects_within_run() {
            // With one flow the acknowledgement of the handshake wakes the endpoint while the
            // request is still being sent. With several flows the endpoint has other work, and one
            // packet less is worth more.
            if test.options.quickack.is_none() && test.streams > 1 {
                socket::join_first_data_to_handshake(&socket);
            }
            if matches!(&test.traffic, Traffic::Crr(exchange) if exchange.fast_open) {
                socket::send_with_handshake(&socket)
                    .map_err(|error| io::Error::new(ErrorKind::Unsupported, error))?;
            }
        }
        Ok(socket)
    }

    fn connect(&self, socket: Connecting, flow: u32, first: &[u8]) -> io::Result<TcpStream> {
        let given_up = || self.stop.is_requested() || self.run_over.is_requested();
        let timeout = self.target.connect_timeout;
        let stream = if self.test.connects_within_run() {
            connect_bounded(socket, self.peer, timeout, given_up)?
        } else {
            connect_unless(socket, self.peer, timeout, given_up)?
        };
        let hello = Hello::new(HelloKind::Data { token: self.token, flow });
        send_together(&stream, &hello.encode(), first)?;
        Ok(stream)
    }
}

/// The socket of TCP flow `id`, with its options set, which is to be connected to `peer`.
pub(crate) fn tcp_flow_socket(
    target: &Target,
    peer: SocketAddr,
    test: &Test,
    options: &SocketOptions,
    id: u32,
) -> io::Result<Connecting> {
    let mptcp = match test.protocol {
        Protocol::Mptcp => Mptcp::On,
        Protocol::Tcp | Protocol::Udp => Mptcp::Off,
    };
    let port = options.source_port_of(id);
    let socket = socket::tcp_socket_from(peer, target.source, port, mptcp)?;
    prepare(&socket, target)?;
    let sends = sends(End::Client, flow_direction(test, id));
    apply_tcp(&socket, options, End::Client, sends).map_err(io::Error::other)?;
    bound_waits(&socket, target)?;
    Ok(socket)
}

/// The socket of UDP flow `id`, with its options set, connected to `peer`.
pub(crate) fn udp_flow_socket(
    target: &Target,
    peer: SocketAddr,
    test: &Test,
    options: &SocketOptions,
    id: u32,
) -> Result<UdpSocket, MeasureError> {
    let port = options.source_port_of(id);
    let socket = udp_socket(target, peer, port).map_err(MeasureError::connect(peer))?;
    apply_udp(&socket, options, sends(End::Client, flow_direction(test, id)))?;
    Ok(socket)
}

/// A UDP socket from this host's `port` (0: one that the kernel chooses), connected to `peer`.
pub(crate) fn udp_socket(target: &Target, peer: SocketAddr, port: u16) -> io::Result<UdpSocket> {
    let source = target.source.unwrap_or_else(|| socket::any(&peer));
    let socket = socket::udp_socket(SocketAddr::new(source, port), None, false)?;
    prepare(&socket, target)?;
    socket.connect(peer)?;
    Ok(socket)
}

/// Connects to the first address that answers; the result has the time that this took.
pub(crate) fn connect_first(
    target: &Target,
    stop: &Stop,
) -> Result<(TcpStream, SocketAddr, Duration), MeasureError> {
    let mut last = None;
    for &peer in &target.addresses {
        let began = now();
        let connected = socket::tcp_socket(peer, target.source, Mptcp::Off)
            .and_then(|socket| prepare(&socket, target).map(|()| socket))
            .and_then(|socket| bound_waits(&socket, target).map(|()| socket))
            .and_then(|socket| {
                connect_unless(socket, peer, target.connect_timeout, || stop.is_requested())
            });
        match connected {
            Ok(stream) => return Ok((stream, peer, now() - began)),
            Err(_) if stop.is_requested() => return Err(MeasureError::Interrupted),
            Err(reason) => last = Some(MeasureError::connect(peer)(reason)),
        }
    }
    Err(last.unwrap_or_else(|| MeasureError::UnknownHost {
        host: target.name.clone(),
        source: ErrorKind::NotFound.into(),
    }))
}

/// Sends both in one call, so that they leave in one segment if they fit.
fn send_together(mut stream: &TcpStream, hello: &[u8], first: &[u8]) -> io::Result<()> {
    let sent = stream.write_vectored(&[IoSlice::new(hello), IoSlice::new(first)])?;
    stream.write_all(&hello[sent.min(hello.len())..])?;
    stream.write_all(&first[sent.saturating_sub(hello.len())..])
}

/// Binds a socket to the device of the target, before it is connected.
fn prepare(socket: &impl AsFd, target: &Target) -> io::Result<()> {
    match &target.device {
        Some(device) => socket::bind_device(socket, device).map_err(io::Error::other),
        None => Ok(()),
    }
}

/// Connects, unless `given_up` becomes true first. Calls on the connection block.
pub(crate) fn connect_unless(
    socket: Connecting,
    peer: SocketAddr,
    timeout: Duration,
    given_up: impl Fn() -> bool,
) -> io::Result<TcpStream> {
    let stream = connect_bounded(socket, peer, timeout, given_up)?;
    socket::bound_waits(&stream, None).map_err(io::Error::other)?;
    Ok(stream)
}

/// Has calls on the socket wait for one tick at most.
fn bound_waits(socket: &impl AsFd, target: &Target) -> io::Result<()> {
    let wait = TICK.min(target.connect_timeout);
    socket::bound_waits(socket, Some(wait)).map_err(io::Error::other)
}

/// Connects, unless `given_up` becomes true first. The waits of the socket are bounded already, and
/// stay so.
pub(crate) fn connect_bounded(
    socket: Connecting,
    peer: SocketAddr,
    timeout: Duration,
    given_up: impl Fn() -> bool,
) -> io::Result<TcpStream> {
    let began = now();
    let (stream, connected) =
        socket::connect_bounded(socket, peer).map_err(|error| reach::not_begun(error, peer))?;
    if connected {
        return Ok(stream);
    }
    while now() - began < timeout {
        if given_up() {
            return Err(ErrorKind::Interrupted.into());
        }
        if wait_ready(&stream, Interest::Writable, TICK)? {
            return match stream.take_error()? {
                Some(error) => Err(reach::ended(error, &stream)),
                None => stream.peer_addr().map(|_| stream),
            };
        }
    }
    Err(ErrorKind::TimedOut.into())
}

/// Time after which a step of the handshake is repeated.
const AGAIN: Duration = Duration::from_millis(200);
/// Longest wait for a first answer by UDP, except on the longest paths: no loss hides more than ten
/// of them.
pub(crate) const UDP_PATIENCE: Duration = Duration::from_millis(2500);
/// Time between two looks at the sockets.
const LOOK: Duration = Duration::from_millis(1);

/// A flow that the endpoint has not bound yet.
struct UnboundFlow {
    socket: UdpSocket,
    /// The message that this end sends next.
    handshake: Handshake,
}

impl UnboundFlow {
    fn new(socket: UdpSocket, token: Token, flow: u32) -> Self {
        let handshake = Handshake { kind: HandshakeStep::Ask, token, flow, cookie: 0 };
        Self { socket, handshake }
    }

    /// The datagram may be lost or refused: it is sent again until the session's deadline.
    fn send(&self) {
        if self.handshake.kind != HandshakeStep::Welcome {
            let _ = self.socket.send(&self.handshake.encode());
        }
    }

    /// Whether the endpoint has answered none of its datagrams.
    fn is_unheard(&self) -> bool {
        self.handshake.kind == HandshakeStep::Ask
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
        Flow { id: self.handshake.flow, socket: FlowSocket::Udp(self.socket) }
    }
}

//! A client of netserver, and linerate's tests as netperf's: one control connection and one data
//! connection for each flow of a test.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, SystemTime};

use linerate_core::assemble::ExchangeTotals;
use linerate_core::foreign::Tool;
use linerate_core::foreign::netperf::{
    Client, Client as Session, ClientError, ClientEvent, DataTest, Length, PORT, Results, Role,
    Transport,
};
use linerate_core::plan::{Direction, Extent, Protocol, SendMethod, SocketOptions, Test, Traffic};
use linerate_core::record::{Caveat, CaveatKind};
use linerate_core::session::message::HalfReport;
use linerate_core::units::{ByteCount, DEFAULT_PORT, Family, Span, format_rfc3339};
use linerate_sys::socket::Connecting;

use super::{PartnerResult, ServerAddress, start_half};
use crate::client::{
    Observe, Outcome, both, connect_bounded, connect_first, tcp_flow_socket, udp_flow_socket,
};
use crate::clock::now;
use crate::control::{ControlReceived, ControlSocket};
use crate::error::MeasureError;
use crate::measure::flow::{Flow, FlowSocket, Marks, flow_direction};
use crate::measure::half::HalfEnd;
use crate::measure::source::{Connect, FlowSource};
use crate::partner::{refuse_lacking, stream_lacks};
use crate::stop::Stop;
use crate::target::Target;

/// Finds the address at which a netserver answers. If the target has linerate's own port, netperf's
/// is used instead.
///
/// # Errors
/// Refused, unreachable, timed out, interrupted; something else answers.
pub(super) fn find(mut target: Target, stop: Stop) -> Result<ServerAddress, MeasureError> {
    for address in &mut target.addresses {
        if address.port() == DEFAULT_PORT {
            address.set_port(PORT);
        }
    }
    let NetperfConnection { peer, connect_time, .. } = NetperfConnection::greet(&target, &stop)?;
    Ok(ServerAddress::new(target, peer, connect_time, stop))
}

/// Runs a test.
///
/// # Errors
/// netperf's protocol has no such test, or the netserver refuses it.
pub(super) fn run(
    server: &ServerAddress,
    test: &Test,
    observe: Observe<'_>,
) -> Result<Outcome, MeasureError> {
    let Adapted { test, caveats } = adapt(test).map_err(|what| server.lacks(what))?;
    let mut connections = Vec::new();
    for id in 0..test.flows() {
        let mut connection = NetperfConnection::greet(&server.target, &server.stop)?;
        let request = request(&test, id, server.peer);
        connection.open(&request, &server.stop)?;
        connections.push(connection);
    }
    let (flows, source) = connect(server, &test, &connections)?;
    let started_at = format_rfc3339(SystemTime::now());
    let marks = match test.protocol {
        Protocol::Udp => Marks::None,
        Protocol::Tcp | Protocol::Mptcp => Marks::Own,
    };
    let half = start_half(&test, marks, flows, source)?;
    let watched = server.watch(&test, &half, observe);
    // Stopping closes the data connections, which ends the netserver's half.
    let HalfEnd { report: mut here, exchange, .. } = half.stop(server.host_facts());
    here.caveats.extend(caveats);
    let (there, error) = both(results(server, &test, &here, connections), watched);
    let ended = PartnerResult {
        here,
        there: there.flatten(),
        exchange: exchange.map(|outcome| ExchangeTotals::from(&outcome)),
        error,
    };
    Ok(server.outcome(Tool::Netperf, test, started_at, ended))
}

fn connect(
    server: &ServerAddress,
    test: &Test,
    connections: &[NetperfConnection],
) -> Result<(Vec<Flow>, FlowSource), MeasureError> {
    if let Traffic::Crr(_) = test.traffic {
        let ports: Vec<SocketAddr> = connections.iter().map(NetperfConnection::data).collect();
        let source = connect_each(test, &server.target, ports);
        return Ok((Vec::new(), source));
    }
    let flows = (0..).zip(connections).map(|(id, connection)| {
        let socket = connection.connect(test, id, server)?;
        Ok(Flow { id, socket })
    });
    let flows = flows.collect::<Result<_, MeasureError>>()?;
    Ok((flows, FlowSource::Bound))
}

/// The netserver's results of a stream. Of requests it counts only what this end has counted, too;
/// and after connections made within the run it waits four seconds before it answers. So it is not
/// asked for those.
fn results(
    server: &ServerAddress,
    test: &Test,
    here: &HalfReport,
    connections: Vec<NetperfConnection>,
) -> Result<Option<HalfReport>, MeasureError> {
    if !matches!(test.traffic, Traffic::Stream(_)) {
        return Ok(None);
    }
    let mut there = HalfReport::default();
    for (connection, flow) in connections.into_iter().zip(&here.flows) {
        let results: Results = connection.results(&server.stop)?;
        let half = results.to_half(flow).ok_or_else(|| MeasureError::Foreign {
            peer: server.peer,
            reason: "the netserver reports counts that this test cannot have had".to_owned(),
        })?;
        there.flows.push(half);
    }
    Ok(Some(there))
}

// One control connection to a netserver, and the data connection of its one test.

/// Longest wait without a look at the stop flag.
const TICK: Duration = Duration::from_millis(20);
/// Time that a netserver which still sends needs to end, in addition to core's time for its answer.
const ENDING: Duration = Duration::from_secs(2);

/// A control connection.
struct NetperfConnection {
    session: Session,
    socket: ControlSocket,
    peer: SocketAddr,
    connect_time: Duration,
    /// Port for the data, once the netserver is ready.
    port: u16,
}

impl NetperfConnection {
    /// Connects, and checks that a netserver answers.
    fn greet(target: &Target, stop: &Stop) -> Result<Self, MeasureError> {
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
    fn data(&self) -> SocketAddr {
        let mut data = self.peer;
        data.set_port(self.port);
        data
    }

    /// Requests a test, and waits until the netserver is ready for its data.
    fn open(&mut self, test: &DataTest, stop: &Stop) -> Result<(), MeasureError> {
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
    fn connect(
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
    fn results(mut self, stop: &Stop) -> Result<Results, MeasureError> {
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
fn connect_each(test: &Test, target: &Target, peers: Vec<SocketAddr>) -> FlowSource {
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

// A test of linerate's as tests of netperf's: one for each flow.

/// Seconds for which a netserver is asked to send longer than this end measures, because this end
/// is to end the test. The sum is rounded up to whole seconds.
const LONGER_S: f64 = 1.0;

/// A test as this end drives it.
#[derive(Debug, Clone)]
struct Adapted {
    test: Test,
    /// What differs from the test that was asked for.
    caveats: Vec<Caveat>,
}

/// Turns a test of linerate's into one of netperf's.
///
/// # Errors
/// The message says what netperf's protocol lacks for it.
fn adapt(test: &Test) -> Result<Adapted, String> {
    lacks(test)?;
    let mut adapted = Adapted { test: test.clone(), caveats: Vec::new() };
    let receives = test.direction != Direction::Up;
    let streams = matches!(test.traffic, Traffic::Stream(_));
    if streams && test.direction != Direction::Down && !test.warm_up.0.is_zero() {
        // A netserver counts from the first byte to the last.
        adapted.test.warm_up = Span(std::time::Duration::ZERO);
        adapted.caveats.push(Caveat::new(
            CaveatKind::SettingNotTaken,
            "a netserver has no warm-up: what it received counts from the first byte, slow start \
             included",
            "measure for longer, or run `linerate serve` on that host",
        ));
    }
    if receives
        && matches!(test.extent, Extent::Bytes(_) | Extent::Count(_))
        && count(test) > MAX_UNITS
    {
        return Err(format!("a netserver counts to {MAX_UNITS} at most"));
    }
    Ok(adapted)
}

/// Largest number that netperf's 32-bit lengths hold.
const MAX_UNITS: u64 = i32::MAX as u64;

fn count(test: &Test) -> u64 {
    match (test.extent, &test.traffic) {
        (Extent::Bytes(ByteCount(bytes)), _) => bytes,
        (Extent::Count(count), Traffic::Stream(stream)) => {
            count.saturating_mul(stream.message_bytes)
        }
        (Extent::Count(count), _) => count,
        (Extent::Time(_), _) => 0,
    }
}

fn lacks(test: &Test) -> Result<(), String> {
    let down = test.direction != Direction::Up;
    let udp = test.protocol == Protocol::Udp;
    let mut missing = match &test.traffic {
        Traffic::Stream(stream) => {
            // A netserver sends datagrams to an address that it is told: NAT does not let them
            // through.
            let mut missing = vec![(udp && down, "--reverse with --udp")];
            missing.extend(stream_lacks(test, stream));
            missing.extend([
                (stream.write_rate_bps.is_some() && down, "--write-rate at the server"),
                (test.options.pacing_bps.is_some() && down, "--pacing at the server"),
            ]);
            missing
        }
        Traffic::Rr(exchange) | Traffic::Crr(exchange) => vec![
            (udp, "--udp in rr"),
            (exchange.reset, "--reset"),
            (exchange.fast_open, "--fast-open"),
        ],
    };
    missing.push((test.options.source_port.is_some(), "--source-port"));
    refuse_lacking("a netserver", test, &missing)
}

/// The request to the netserver for flow `id`.
fn request(test: &Test, id: u32, peer: SocketAddr) -> DataTest {
    let down = flow_direction(test, id) == Direction::Down;
    let role = match test.traffic {
        Traffic::Stream(_) if down => Role::Send,
        Traffic::Stream(_) => Role::Receive,
        Traffic::Rr(_) => Role::Exchange,
        Traffic::Crr(_) => Role::ConnectExchange,
    };
    let transport = match test.protocol {
        Protocol::Udp => Transport::Udp,
        Protocol::Tcp | Protocol::Mptcp => Transport::Tcp,
    };
    let asked = Client::test(role, transport, length(test, role));
    let options = &test.options;
    let bytes = |size: Option<ByteCount>| size.map(|ByteCount(bytes)| clamp(bytes));
    let asked = DataTest {
        // A netserver exits if it is told no address family.
        family: Some(Family::from(peer.ip())),
        nodelay: options.nodelay,
        receive_buffer: bytes(options.receive_window_bytes).filter(|_| !down),
        send_buffer: bytes(options.send_buffer_bytes).filter(|_| down),
        congestion: options.congestion.clone().filter(|_| down),
        traffic_class: options.dscp.map(|dscp| dscp.octet()),
        measure_cpu: true,
        ..asked
    };
    with_sizes(asked, test)
}

fn with_sizes(asked: DataTest, test: &Test) -> DataTest {
    match &test.traffic {
        Traffic::Stream(stream) => DataTest {
            send_bytes: Some(clamp(stream.message_bytes)),
            receive_bytes: Some(clamp(stream.message_bytes)),
            sendfile: stream.send == SendMethod::ZeroCopy,
            ..asked
        },
        Traffic::Rr(exchange) | Traffic::Crr(exchange) => DataTest {
            request_bytes: clamp(exchange.request_bytes),
            response_bytes: clamp(exchange.response_bytes),
            ..asked
        },
    }
}

fn length(test: &Test, role: Role) -> Length {
    match (test.extent, role) {
        (Extent::Time(time), _) => {
            let seconds = (test.warm_up.as_secs_f64() + time.as_secs_f64()).ceil();
            // A sender ends the test by itself, which must not happen before this end has measured.
            let longer = if role == Role::Send { LONGER_S } else { 0.0 };
            Length::Seconds((seconds + longer).max(1.0) as u32)
        }
        // The netserver receives until the end of the stream.
        (_, Role::Receive) => Length::Open,
        _ => Length::Units(u32::try_from(count(test)).unwrap_or(i32::MAX as u32)),
    }
}

fn clamp(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The options of this end, without those that the netserver was asked to set.
fn own_options(test: &Test, id: u32) -> SocketOptions {
    let mut options = test.options.clone();
    if flow_direction(test, id) == Direction::Down {
        options.congestion = None;
    }
    options
}

//! The data sockets of a test: made as the client asks, and watched until its data arrives.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_core::foreign::netperf::{
    CpuShares, DataTest, Length, PAD_SECONDS, Ready, Refusal, Results, Role, Transport, errno,
};
use linerate_core::plan::{
    Direction, ExchangeTest, Extent, Protocol, SendMethod, StreamTest, Test, Traffic,
};
use linerate_core::record::HostFacts;
use linerate_core::session::message::Limits;
use linerate_core::units::{BitRate, End, Span};
use linerate_sys::proc::stat::{CpuStat, CpuStatReader};
use linerate_sys::socket::{self, ListenOptions, Mptcp};
use linerate_sys::{idle, poll};

use crate::endpoint::terms;
use crate::measure::flow::{Flow, FlowSocket, one_flow};
use crate::measure::source::{CrrListener, FlowSource, SLICE, SourceArrival};
use crate::measure::{options, udp};

/// Length of a test's accept queue.
const BACKLOG: u32 = 128;
/// Longest time from the answer to the client's first data; of datagrams, the test's own time
/// counts instead.
const FIRST_DATA: Duration = Duration::from_secs(30);
/// Bytes of a write or a read if the client does not say.
const MESSAGE: u32 = 128 << 10;
/// Largest write, bytes. The answer names the size in force.
const MAX_WRITE: u32 = 4 << 20;
/// Bytes of a datagram if the client does not say: what fits an Ethernet frame over IPv6.
const DATAGRAM: u32 = 1452;

enum Socket {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

/// The source of a test's data.
pub(super) enum FirstData {
    /// One connected flow.
    Flow(Flow),
    /// Connections that are made within the run.
    Connections(FlowSource),
}

/// A test that waits for its data.
pub(super) struct Data {
    pub(super) asked: DataTest,
    /// The request as a test of linerate, for the workers and the record.
    pub(super) test: Test,
    pub(super) peer: IpAddr,
    pub(super) limits: Limits,
    pub(super) cpu: Option<CpuWatch>,
    socket: Socket,
    overdue: Instant,
}

impl Data {
    /// Makes the sockets. Data is taken from `peer` alone, and at `local` unless the client names
    /// another address of this host.
    ///
    /// # Errors
    /// This host or its owner does not allow the test.
    pub(super) fn open(
        asked: DataTest,
        local: SocketAddr,
        peer: IpAddr,
        limits: &Limits,
    ) -> Result<Self, Refusal> {
        let mut test = terms::within_rate(Box::new(plan(&asked, limits)), limits.rate_bps)
            .map_err(|reason| Refusal::new(errno::EPERM, reason))?;
        if let Err(reason) = terms::can_do(&test, false) {
            // A netserver ignores a congestion control that it does not have: so does this. The
            // results name the one that was used.
            let asked_for = test.options.congestion.take();
            asked_for
                .filter(|_| terms::can_do(&test, false).is_ok())
                .ok_or_else(|| Refusal::new(errno::EINVAL, reason))?;
        }
        // This keeps the scope of a link-local address.
        let mut address = local;
        address.set_port(asked.port);
        if let Some(other) = asked.address {
            address.set_ip(other);
        }
        let socket = match asked.transport {
            Transport::Tcp => Socket::Tcp(listener(&asked, address)?),
            Transport::Udp => Socket::Udp(datagrams(&asked, address, peer)?),
        };
        let mut wait = FIRST_DATA;
        if asked.transport == Transport::Udp {
            // If all datagrams are lost, the client still waits for the results.
            wait = Duration::from_secs_f64(asked.seconds(limits) + f64::from(PAD_SECONDS));
        }
        Ok(Self {
            cpu: asked.measure_cpu.then(CpuWatch::begin).flatten(),
            asked,
            test: *test,
            peer: peer.to_canonical(),
            limits: *limits,
            socket,
            overdue: Instant::now() + wait,
        })
    }

    /// The answer to the client.
    pub(super) fn ready(&self, facts: &HostFacts) -> Ready {
        let (receive_buffer, send_buffer) = self.buffers();
        let local = match &self.socket {
            Socket::Tcp(listener) => listener.local_addr(),
            Socket::Udp(socket) => socket.local_addr(),
        };
        let (send_bytes, receive_bytes) = match &self.test.traffic {
            Traffic::Stream(stream) => (stream.message_bytes, stream.message_bytes),
            Traffic::Rr(exchange) | Traffic::Crr(exchange) => {
                (exchange.response_bytes, exchange.request_bytes)
            }
        };
        Ready {
            port: local.map_or(0, |local| local.port()),
            receive_buffer,
            receive_bytes: receive_bytes as u32,
            send_buffer,
            send_bytes: send_bytes as u32,
            nodelay: self.asked.nodelay,
            measure_cpu: self.cpu.is_some(),
            cpu_rate: self.cpu.as_ref().map_or(0.0, |_| linerate_sys::proc::stat::user_hz() as f32),
            length: match self.asked.length {
                Length::Seconds(seconds) => seconds,
                Length::Units(units) => (units as i32).wrapping_neg() as u32,
                Length::Open => 0,
            },
            burst: self.asked.burst,
            traffic_class: self.asked.traffic_class,
            cpu_model: facts.cpu.model.clone().unwrap_or_default(),
        }
    }

    /// `SO_RCVBUF` and `SO_SNDBUF` as read back; 0 if they cannot be read.
    pub(super) fn buffers(&self) -> (u32, u32) {
        match &self.socket {
            Socket::Tcp(socket) => buffers_of(socket),
            Socket::Udp(socket) => buffers_of(socket),
        }
    }

    /// Waits up to `timeout` for the first data.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub(super) fn arrived(&mut self, timeout: Duration) -> Result<Option<FirstData>, Refusal> {
        let arrived = match &self.socket {
            Socket::Tcp(listener) => self.connection(listener, timeout),
            Socket::Udp(socket) => self.datagram(socket, timeout),
        };
        arrived.map_err(|error| {
            Refusal::new(errno::EINVAL, format!("the data socket failed: {error}"))
        })
    }

    fn connection(
        &self,
        listener: &TcpListener,
        timeout: Duration,
    ) -> io::Result<Option<FirstData>> {
        if !poll::wait_readable(listener, timeout)? {
            return Ok(None);
        }
        if matches!(self.test.traffic, Traffic::Crr(_)) {
            let peer = self.peer;
            let crr_listener = CrrListener {
                listener: listener.try_clone()?.into(),
                awaiting: Arc::default(),
                // Connections from other addresses are closed.
                admit: Box::new(move |stream, from| {
                    (from.to_canonical() == peer)
                        .then_some(SourceArrival { stream, known_bytes: 0 })
                }),
                inbox: None,
            };
            return Ok(Some(FirstData::Connections(FlowSource::CrrListener(crr_listener))));
        }
        let stream = match listener.accept() {
            Ok((stream, peer)) if peer.ip().to_canonical() == self.peer => stream,
            // From another address, or gone already.
            Ok(_) | Err(_) => return Ok(None),
        };
        stream.set_nonblocking(false)?;
        let sends = self.asked.role == Role::Send;
        options::apply_tcp(&stream, &self.test.options, End::Server, sends)
            .map_err(io::Error::other)?;
        Ok(Some(FirstData::Flow(Flow { id: 0, socket: FlowSocket::Tcp(stream) })))
    }

    /// The flow of datagrams. If the client sends, the socket is first connected to the sender of
    /// the first datagram, which must have the client's address: datagrams of others are neither
    /// counted nor answered.
    fn datagram(&self, socket: &UdpSocket, timeout: Duration) -> io::Result<Option<FirstData>> {
        if self.asked.role != Role::Send {
            if !poll::wait_readable(socket, timeout)? {
                return Ok(None);
            }
            let mut scrap = [0; 1];
            match socket.peek_from(&mut scrap) {
                Ok((_, from)) if from.ip().to_canonical() == self.peer => socket.connect(from)?,
                Ok(_) => {
                    let _ = socket.recv(&mut scrap);
                    return Ok(None);
                }
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(FirstData::Flow(Flow { id: 0, socket: FlowSocket::Udp(socket.try_clone()?) })))
    }

    pub(super) fn is_overdue(&self) -> bool {
        Instant::now() >= self.overdue
    }

    /// The results if no datagram arrived; a stream without a connection has none.
    pub(super) fn nothing(self) -> Option<Results> {
        let (receive_buffer, send_buffer) = self.buffers();
        (self.asked.transport == Transport::Udp).then(|| Results {
            seconds: self.asked.seconds(&self.limits) as f32,
            cpu: self.cpu.and_then(CpuWatch::end),
            receive_buffer,
            send_buffer,
            ..Results::default()
        })
    }
}

pub(super) fn buffers_of(socket: &impl std::os::fd::AsFd) -> (u32, u32) {
    (socket::receive_buffer(socket).unwrap_or(0), socket::send_buffer(socket).unwrap_or(0))
}

fn listener(asked: &DataTest, address: SocketAddr) -> Result<TcpListener, Refusal> {
    let options = ListenOptions { backlog: BACKLOG, mptcp: Mptcp::Off };
    let listener = socket::listen(address, options).map_err(|error| no_socket(address, &error))?;
    listener.set_nonblocking(true).map_err(|error| no_socket(address, &error))?;
    prepare(&listener, asked)?;
    if matches!(asked.role, Role::ConnectExchange | Role::Connect) {
        socket::bound_waits(&listener, Some(SLICE))
            .map_err(|error| Refusal::new(errno::EINVAL, error.to_string()))?;
    }
    Ok(listener)
}

fn datagrams(asked: &DataTest, address: SocketAddr, peer: IpAddr) -> Result<UdpSocket, Refusal> {
    // The endpoint sends datagrams only to the client's own address.
    let to = match asked.role {
        Role::Send if !asked.is_for(peer) => {
            let reason = "wants datagrams sent to an address that is not its own";
            return Err(Refusal::new(errno::EACCES, reason));
        }
        Role::Send if asked.client_port == 0 => {
            let reason = "wants datagrams sent to port 0";
            return Err(Refusal::new(errno::EINVAL, reason));
        }
        Role::Send => Some(SocketAddr::new(peer, asked.client_port)),
        _ => None,
    };
    let socket =
        socket::udp_socket(address, to, false).map_err(|error| no_socket(address, &error))?;
    if asked.receive_buffer.is_none() {
        // As in linerate's own tests; the answer names the size in force.
        let _ = socket::set_receive_buffer(&socket, udp::RECEIVE_BUFFER);
    }
    prepare(&socket, asked)?;
    Ok(socket)
}

/// Sets the options that a listener's connections inherit.
fn prepare(socket: &impl std::os::fd::AsFd, asked: &DataTest) -> Result<(), Refusal> {
    let fail = |error: socket::OptionError| Refusal::new(errno::EINVAL, error.to_string());
    if let Some(bytes) = asked.receive_buffer {
        socket::set_receive_buffer(socket, bytes).map_err(fail)?;
    }
    if let Some(bytes) = asked.send_buffer {
        socket::set_send_buffer(socket, bytes).map_err(fail)?;
    }
    if let Some(octet) = asked.traffic_class {
        socket::set_traffic_class(socket, octet).map_err(fail)?;
    }
    Ok(())
}

fn no_socket(address: SocketAddr, error: &io::Error) -> Refusal {
    Refusal::new(
        error.raw_os_error().unwrap_or(errno::EINVAL),
        format!("no data socket at {address}: {error}"),
    )
}

/// The test for linerate's workers and record, as the client sees it.
fn plan(asked: &DataTest, limits: &Limits) -> Test {
    let exchange = || ExchangeTest::new(asked.request_bytes.into(), asked.response_bytes.into());
    let traffic = match asked.role {
        Role::Receive | Role::Send => Traffic::Stream(stream(asked, limits)),
        Role::Exchange => Traffic::Rr(exchange()),
        Role::ConnectExchange | Role::Connect => Traffic::Crr(exchange()),
    };
    let protocol = match asked.transport {
        Transport::Tcp => Protocol::Tcp,
        Transport::Udp => Protocol::Udp,
    };
    let direction = match asked.role {
        Role::Send => Direction::Down,
        _ => Direction::Up,
    };
    let mut test = one_flow(traffic, protocol, direction, extent(asked, limits));
    test.options.nodelay = asked.nodelay;
    test.options.congestion = asked.congestion.clone();
    test
}

fn stream(asked: &DataTest, limits: &Limits) -> StreamTest {
    let udp = asked.transport == Transport::Udp;
    let bytes = match asked.role {
        Role::Send => asked.send_bytes,
        _ => asked.receive_bytes,
    };
    let message = bytes.unwrap_or(if udp { DATAGRAM } else { MESSAGE });
    // netperf's bursts: a number of messages every so many µs.
    let burst = asked.burst.map(|(count, microseconds)| {
        let bits = 8 * u64::from(message) * u64::from(count);
        BitRate((bits.saturating_mul(1_000_000) / u64::from(microseconds)).max(1))
    });
    let slower = |rate: Option<BitRate>, limit: Option<BitRate>| match (rate, limit) {
        (Some(rate), Some(limit)) => Some(rate.min(limit)),
        (rate, limit) => rate.or(limit),
    };
    let sent_datagrams = udp && asked.role == Role::Send;
    StreamTest {
        send: if asked.sendfile { SendMethod::ZeroCopy } else { SendMethod::Copy },
        write_rate_bps: burst.filter(|_| !udp),
        rate_bps: if sent_datagrams { slower(burst, limits.rate_bps.map(BitRate)) } else { None },
        ..StreamTest::new(message.min(MAX_WRITE).into())
    }
}

/// The extent of a test. Data that the client ends may arrive for as long as a netserver would
/// wait.
fn extent(asked: &DataTest, limits: &Limits) -> Extent {
    let time = |seconds: f64| Extent::Time(Span(Duration::from_secs_f64(seconds)));
    match (asked.length, asked.role) {
        (Length::Seconds(seconds), Role::Receive | Role::Exchange) => {
            time(f64::from(seconds + PAD_SECONDS))
        }
        (Length::Seconds(seconds), _) => time(seconds.into()),
        (Length::Units(units), Role::Receive | Role::Send) => {
            Extent::Bytes(linerate_core::units::ByteCount(units.into()))
        }
        (Length::Units(units), _) => Extent::Count(units.into()),
        (Length::Open, _) => time(limits.seconds),
    }
}

/// Reads the CPU times at the beginning and at the end.
pub(super) struct CpuWatch {
    reader: CpuStatReader,
    begin: CpuStat,
}

impl CpuWatch {
    /// The first reading; `None` if the kernel does not tell.
    pub(super) fn begin() -> Option<Self> {
        let mut reader = CpuStatReader::open().ok()?;
        let begin = read_cpus(&mut reader)?;
        Some(Self { reader, begin })
    }

    /// The shares since then, percent of the whole machine.
    pub(super) fn end(mut self) -> Option<CpuShares> {
        let end = read_cpus(&mut self.reader)?;
        let passed = end.total.since(&self.begin.total);
        let percent = |ticks: u64| passed.share(ticks).map_or(0.0, |share| share * 100.0) as f32;
        (passed.total() > 0).then(|| CpuShares {
            busy: percent(passed.busy()),
            user: percent(passed.user + passed.nice),
            system: percent(passed.system),
            iowait: percent(passed.iowait),
            irq: percent(passed.irq),
            softirq: percent(passed.softirq),
            peak: end.busiest_since(&self.begin).map(|(cpu, share)| (cpu, (share * 100.0) as f32)),
        })
    }
}

fn read_cpus(reader: &mut CpuStatReader) -> Option<CpuStat> {
    let mut stat = CpuStat::default();
    reader.read(&mut stat).ok()?;
    // A lab keeps the CPUs awake with idle spinners, which give way to everything else.
    stat.count_as_idle(&idle::spun());
    Some(stat)
}

//! ttcp's clients: a sink for streams and datagrams, and a source that sends a stream to each
//! client that connects.
//!
//! There is no control connection and no answer: the log and a record have what arrived. No
//! datagram is ever sent.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use linerate_core::foreign::Tool;
use linerate_core::plan::{Direction, Extent, Protocol, StreamTest, Test, Traffic};
use linerate_core::record::{CaveatKind, Status};
use linerate_core::session::message::{FlowHalf, HalfReport};
use linerate_core::units::{End, Span, format_rfc3339};
use linerate_sys::socket;

use super::super::clients::PerSecond;
use super::ports::{ForeignAdmission, accept, watch_datagrams};
use super::{ForeignClient, Standstill};
use crate::clock::now_ns;
use crate::endpoint::session::Context;
use crate::endpoint::terms;
use crate::measure::flow::{Flow, FlowSocket, one_flow};
use crate::measure::half::{Half, HalfOptions};
use crate::measure::source::FlowSource;
use crate::measure::{options, udp};

/// A stream without progress for this long is given up.
const STILL: Duration = Duration::from_secs(60);
/// A flow of datagrams is over when none has arrived for this long: the sender's end marks may be
/// lost.
const QUIET_NS: u64 = 2_000_000_000;
/// ttcp ends a flow by several datagrams of at most this many bytes.
const END_MARK: usize = 4;
/// Bytes of a write of the source.
const MESSAGE: u64 = 128 << 10;
/// Longest wait without a look at the stop flag.
const TICK: Duration = Duration::from_millis(10);
/// Most datagrams that are taken at once from a socket.
const BURST: usize = 256;

/// Receives the streams of clients until the endpoint stops.
pub(super) fn sink(context: &Arc<Context>, listeners: Vec<TcpListener>) {
    streams(context, listeners, ForeignAdmission::FirstByte, Direction::Up);
}

/// Sends a stream to each client that connects, until the endpoint stops.
pub(super) fn source(context: &Arc<Context>, listeners: Vec<TcpListener>) {
    streams(context, listeners, ForeignAdmission::AtOnce, Direction::Down);
}

fn streams(
    context: &Arc<Context>,
    listeners: Vec<TcpListener>,
    admission: ForeignAdmission,
    direction: Direction,
) {
    let stop = context.stop.clone();
    accept(listeners, admission, &stop, |stream, peer| {
        let Some(client) = ForeignClient::admit(context, Tool::Ttcp, peer, None) else {
            return;
        };
        context.spawn("ttcp", peer, move || serve(client, stream, direction));
    });
}

/// Serves one stream to its end.
fn serve(mut client: ForeignClient, stream: TcpStream, direction: Direction) {
    client.log_client();
    let reason = run(&client, stream, direction).err();
    client.end_test();
    client.log_end(reason);
}

fn run(client: &ForeignClient, stream: TcpStream, direction: Direction) -> Result<(), String> {
    client.place.begin_test()?;
    let limits = client.context.options.limits;
    let extent = Duration::from_secs_f64(limits.seconds);
    let test = Box::new(test(Protocol::Tcp, direction, extent));
    let test = terms::within_rate(test, limits.rate_bps)?;
    client.claim(&test)?;
    let sends = direction == Direction::Down;
    stream.set_nonblocking(false).map_err(|error| error.to_string())?;
    options::apply_tcp(&stream, &test.options, End::Server, sends)
        .map_err(|error| error.to_string())?;
    let started_at = format_rfc3339(SystemTime::now());
    let flow = Flow { id: 0, socket: FlowSocket::Tcp(stream) };
    let (source, options) = (FlowSource::Bound, HalfOptions::default());
    let half = Half::start(End::Server, &test, vec![flow], source, options)
        .map_err(|error| format!("cannot start the test: {error}"))?;
    let finished = watch(client, &half);
    let mut report = client.stop(half, || client.host_facts());
    if sends {
        // A client ends the source's stream by closing the connection.
        report.caveats.retain(|caveat| caveat.kind != CaveatKind::Partial);
    }
    client.log_test(client.served(*test, started_at, finished, report));
    Ok(())
}

/// Waits for the end of a stream: complete unless the owner's limit, a stop or a lack of progress
/// ended it.
fn watch(client: &ForeignClient, half: &Half) -> Status {
    let mut standstill = Standstill::new();
    loop {
        if half.all_done() {
            return Status::Complete;
        }
        let still = standstill.lasts(half.messages()) >= STILL;
        if still || half.is_finished() || client.context.stop.is_requested() {
            return Status::Partial;
        }
        thread::sleep(TICK);
    }
}

fn test(protocol: Protocol, direction: Direction, length: Duration) -> Test {
    let traffic = Traffic::Stream(StreamTest::new(MESSAGE));
    one_flow(traffic, protocol, direction, Extent::Time(Span(length)))
}

/// A flow of datagrams.
struct DatagramFlow {
    client: ForeignClient,
    started_at: String,
    local: String,
    first_ns: u64,
    last_ns: u64,
    bytes: u64,
    datagrams: u64,
}

/// Counts datagrams by sender until the endpoint stops. They take half of the clients' places at
/// most.
pub(super) fn sink_datagrams(context: &Arc<Context>, sockets: &[UdpSocket]) {
    for socket in sockets {
        // The buffer holds what arrives while this thread has no CPU; the host may allow less.
        let _ = socket::set_receive_buffer(socket, udp::RECEIVE_BUFFER);
    }
    let mut flows: HashMap<SocketAddr, DatagramFlow> = HashMap::new();
    let mut begun = PerSecond::default();
    let longest_ns = (context.options.limits.seconds * 1e9) as u64;
    watch_datagrams(sockets, &context.stop, |ready| {
        for socket in ready {
            take(context, socket, &mut flows, &mut begun);
        }
        let quiet_since = now_ns().saturating_sub(QUIET_NS);
        let over = flows.extract_if(|_, flow| {
            flow.last_ns < quiet_since || flow.last_ns - flow.first_ns > longest_ns
        });
        over.for_each(|(_, flow)| flow.end());
    });
    flows.into_values().for_each(DatagramFlow::end);
}

/// Takes the datagrams of a socket. The number of flows that begin in a second is limited: no
/// sender has proved its address, and each flow leaves a record.
fn take(
    context: &Arc<Context>,
    socket: &UdpSocket,
    flows: &mut HashMap<SocketAddr, DatagramFlow>,
    begun: &mut PerSecond,
) {
    let max = context.options.limits.clients;
    let mut datagram = [0; 1 << 16];
    for _ in 0..BURST {
        let (length, peer) = match socket.recv_from(&mut datagram) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let is_full = flows.len() >= max.div_ceil(2) as usize;
        match flows.get_mut(&peer) {
            Some(_) if length <= END_MARK => {
                flows.remove(&peer).into_iter().for_each(DatagramFlow::end);
            }
            Some(flow) => flow.count(length),
            // Further end marks of a flow that is over.
            None if length <= END_MARK => {}
            None if is_full || !begun.admits(max) => {}
            None => {
                if let Some(mut flow) = DatagramFlow::begin(context, socket, peer) {
                    flow.count(length);
                    flows.insert(peer, flow);
                }
            }
        }
    }
}

impl DatagramFlow {
    /// `None` if there is no room, or if the owner has set a rate, to which this end cannot slow
    /// datagrams down.
    fn begin(context: &Arc<Context>, socket: &UdpSocket, peer: SocketAddr) -> Option<Self> {
        if context.options.limits.rate_bps.is_some() {
            return None;
        }
        let mut client = ForeignClient::admit(context, Tool::Ttcp, peer, None)?;
        client.place.begin_test().ok()?;
        client.log_client();
        let now = now_ns();
        let local = socket.local_addr();
        Some(Self {
            client,
            started_at: format_rfc3339(SystemTime::now()),
            local: local.map_or_else(|_| String::new(), |local| local.to_string()),
            first_ns: now,
            last_ns: now,
            bytes: 0,
            datagrams: 0,
        })
    }

    fn count(&mut self, length: usize) {
        self.last_ns = now_ns();
        self.bytes += length as u64;
        self.datagrams += 1;
    }

    fn end(self) {
        let passed = Duration::from_nanos(self.last_ns - self.first_ns);
        let flow = FlowHalf {
            local: self.local,
            remote: self.client.peer.to_string(),
            bytes: self.bytes,
            messages: self.datagrams,
            // A single datagram took no time, so that it has no rate.
            seconds: passed.as_secs_f64(),
            steps: vec![(passed.as_micros() as u64, self.bytes)],
            method: Some("recvfrom".into()),
            ..FlowHalf::new(0, Direction::Up, false)
        };
        let here = HalfReport {
            flows: vec![flow],
            facts: Box::new(self.client.host_facts()),
            ..HalfReport::default()
        };
        let test = test(Protocol::Udp, Direction::Up, passed);
        let run = self.client.served(test, self.started_at, Status::Complete, here);
        self.client.log_test(run);
        self.client.end_test();
        self.client.log_end(None);
    }
}

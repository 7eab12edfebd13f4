//! ttcp and those that take its bytes: a sink for streams and datagrams, and a source for whoever
//! connects to it.
//!
//! There is no control connection and no answer: what arrived is in the log and in a record. No
//! datagram is sent.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use linerate_core::foreign::{ForeignRun, Role, Tool};
use linerate_core::plan::{Direction, Extent, Protocol, SocketOptions, StreamTest, Test, Traffic};
use linerate_core::record::{CaveatKind, Status};
use linerate_core::session::message::{FlowHalf, HalfReport};
use linerate_core::units::{Family, Span, format_rfc3339};
use linerate_sys::poll::Poller;
use linerate_sys::socket;

use super::Guest;
use super::accept::{Admission, accept};
use crate::clock::now_ns;
use crate::endpoint::session::Context;
use crate::endpoint::terms;
use crate::host;
use crate::measure::flow::{Flow, FlowSocket};
use crate::measure::half::{Beside, Half, HalfEnd};
use crate::measure::options;
use crate::measure::source::FlowSource;
use crate::measure::udp;
use linerate_core::units::End;

/// A stream that has stood still for so long is given up.
const STILL: Duration = Duration::from_secs(60);
/// A flow of datagrams is over when none has come for so long: some senders' last words get lost.
const QUIET_NS: u64 = 2_000_000_000;
/// ttcp ends a flow of datagrams by several of at most so many bytes.
const LAST_WORDS: usize = 4;
/// Bytes of a write of the source.
const MESSAGE: u64 = 128 << 10;
/// Longest wait without looking at the stop flag.
const TICK: Duration = Duration::from_millis(10);
/// The same where datagrams wake whoever waits.
const IDLE_TICK: Duration = Duration::from_millis(100);
/// Datagrams that are taken in one go.
const BURST: usize = 256;

/// Takes what clients send, until the endpoint stops.
pub(super) fn sink(context: &Arc<Context>, listeners: Vec<TcpListener>) {
    streams(context, listeners, Admission::Spoken, Direction::Up);
}

/// Sends to whoever connects, until the endpoint stops.
pub(super) fn source(context: &Arc<Context>, listeners: Vec<TcpListener>) {
    streams(context, listeners, Admission::AtOnce, Direction::Down);
}

fn streams(
    context: &Arc<Context>,
    listeners: Vec<TcpListener>,
    admission: Admission,
    direction: Direction,
) {
    let stop = context.stop.clone();
    accept(listeners, admission, &stop, |stream, peer| {
        let Ok(guest) = Guest::admit(context, Tool::Ttcp, peer, None) else {
            return;
        };
        context.spawn("ttcp", peer, move || serve(guest, stream, direction));
    });
}

/// One stream to its end.
fn serve(mut guest: Guest, stream: TcpStream, direction: Direction) {
    guest.tell();
    let reason = run(&guest, stream, direction).err();
    guest.end_test();
    guest.left(reason);
}

fn run(guest: &Guest, stream: TcpStream, direction: Direction) -> Result<(), String> {
    guest.begin_test()?;
    let limits = guest.context().limits;
    let extent = Duration::from_secs_f64(limits.seconds);
    let test = terms::within_rate(
        Box::new(test(Protocol::Tcp, direction, extent)),
        limits.rate_bps,
    )?;
    guest.claim(&test)?;
    let sends = direction == Direction::Down;
    stream
        .set_nonblocking(false)
        .map_err(|error| error.to_string())?;
    options::apply_tcp(&stream, &test.options, End::Server, sends)
        .map_err(|error| error.to_string())?;
    let started_at = format_rfc3339(SystemTime::now());
    let flow = Flow {
        id: 0,
        socket: FlowSocket::Tcp(stream),
    };
    let half = Half::start(
        End::Server,
        &test,
        vec![flow],
        FlowSource::Bound,
        Beside::default(),
    )
    .map_err(|error| format!("cannot start the test: {error}"))?;
    let finished = watch(guest, &half);
    let HalfEnd { mut report, .. } = half.stop(host::facts(Some(guest.peer().ip())));
    if sends {
        // Whoever reads from a source ends it by going.
        report
            .caveats
            .retain(|caveat| caveat.kind != CaveatKind::Partial);
    }
    report
        .caveats
        .extend(limits.rate_bps.map(terms::owners_limit));
    guest.tested(foreign_run(
        *test,
        guest.peer(),
        started_at,
        finished,
        report,
    ));
    Ok(())
}

/// Whether it came to its end by itself, and neither by the owner's limit nor for standing still.
fn watch(guest: &Guest, half: &Half) -> Status {
    let mut seen = (0, now_ns());
    loop {
        if half.all_done() {
            return Status::Complete;
        }
        let messages = half.messages();
        if messages != seen.0 {
            seen = (messages, now_ns());
        }
        let still = Duration::from_nanos(now_ns() - seen.1) >= STILL;
        if still || half.is_finished() || guest.context().stop.is_requested() {
            return Status::Partial;
        }
        thread::sleep(TICK);
    }
}

fn test(protocol: Protocol, direction: Direction, length: Duration) -> Test {
    Test {
        traffic: Traffic::Stream(StreamTest::new(MESSAGE)),
        protocol,
        direction,
        streams: 1,
        extent: Extent::Time(Span(length)),
        warm_up: Span(Duration::ZERO),
        interval: Span(Duration::from_secs(1)),
        options: SocketOptions::default(),
        seed: 0,
    }
}

fn foreign_run(
    test: Test,
    peer: SocketAddr,
    started_at: String,
    status: Status,
    here: HalfReport,
) -> ForeignRun {
    let address = peer.ip().to_canonical();
    ForeignRun {
        tool: Tool::Ttcp,
        version: None,
        role: Role::Served,
        test,
        host: address.to_string(),
        peer: peer.to_string(),
        family: Family::from(address),
        started_at,
        status,
        here,
        there: None,
        exchange: None,
    }
}

/// A flow of datagrams.
struct Tally {
    guest: Guest,
    started_at: String,
    local: String,
    first_ns: u64,
    last_ns: u64,
    bytes: u64,
    datagrams: u64,
}

/// How many flows of datagrams may begin in a second: nobody proves an address before it counts,
/// and each leaves a record.
#[derive(Default)]
struct Gate {
    since_ns: u64,
    begun: u32,
}

impl Gate {
    fn lets(&mut self, most: u32) -> bool {
        let now = now_ns();
        if now.saturating_sub(self.since_ns) >= 1_000_000_000 {
            *self = Self {
                since_ns: now,
                begun: 0,
            };
        }
        self.begun = self.begun.saturating_add(1);
        self.begun <= most
    }
}

/// Counts datagrams by sender until the endpoint stops. At most half of the clients' places go to
/// them.
pub(super) fn sink_datagrams(context: &Arc<Context>, sockets: Vec<UdpSocket>) {
    let Ok(mut poller) = Poller::new() else {
        return;
    };
    for (number, socket) in (0..).zip(&sockets) {
        if socket.set_nonblocking(true).is_err() || poller.add(socket, number).is_err() {
            return;
        }
    }
    for socket in &sockets {
        // For the time that this thread is off its CPU, as far as the host allows.
        let _ = socket::set_receive_buffer(socket, udp::RECEIVE_BUFFER);
    }
    let mut flows: HashMap<SocketAddr, Tally> = HashMap::new();
    let mut gate = Gate::default();
    let longest_ns = (context.limits.seconds * 1e9) as u64;
    while !context.stop.is_requested() {
        let ready: Vec<u64> = match poller.wait(IDLE_TICK) {
            Ok(ready) => ready.collect(),
            Err(_) => return,
        };
        for number in ready {
            take(context, &sockets[number as usize], &mut flows, &mut gate);
        }
        let quiet_since = now_ns().saturating_sub(QUIET_NS);
        let over: Vec<SocketAddr> = flows
            .iter()
            .filter(|(_, tally)| {
                tally.last_ns < quiet_since || tally.last_ns - tally.first_ns > longest_ns
            })
            .map(|(peer, _)| *peer)
            .collect();
        for tally in over.iter().filter_map(|peer| flows.remove(peer)) {
            tally.leave();
        }
    }
    flows.into_values().for_each(Tally::leave);
}

fn take(
    context: &Arc<Context>,
    socket: &UdpSocket,
    flows: &mut HashMap<SocketAddr, Tally>,
    gate: &mut Gate,
) {
    let most = context.limits.clients;
    let mut datagram = [0; 1 << 16];
    for _ in 0..BURST {
        let (length, peer) = match socket.recv_from(&mut datagram) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let is_full = flows.len() >= most.div_ceil(2) as usize;
        match flows.get_mut(&peer) {
            Some(_) if length <= LAST_WORDS => {
                flows.remove(&peer).into_iter().for_each(Tally::leave);
            }
            Some(tally) => tally.count(length),
            // The rest of somebody's last words.
            None if length <= LAST_WORDS => {}
            None if is_full || !gate.lets(most) => {}
            None => {
                if let Some(mut tally) = Tally::begin(context, socket, peer) {
                    tally.count(length);
                    flows.insert(peer, tally);
                }
            }
        }
    }
}

impl Tally {
    /// `None` where there is no room, or the owner has set a rate: nobody slows datagrams down.
    fn begin(context: &Arc<Context>, socket: &UdpSocket, peer: SocketAddr) -> Option<Self> {
        if context.limits.rate_bps.is_some() {
            return None;
        }
        let mut guest = Guest::admit(context, Tool::Ttcp, peer, None).ok()?;
        guest.begin_test().ok()?;
        guest.tell();
        let now = now_ns();
        Some(Self {
            guest,
            started_at: format_rfc3339(SystemTime::now()),
            local: socket
                .local_addr()
                .map_or_else(|_| String::new(), |a| a.to_string()),
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

    fn leave(self) {
        let passed = Duration::from_nanos(self.last_ns - self.first_ns);
        let peer = self.guest.peer();
        let flow = FlowHalf {
            local: self.local,
            remote: peer.to_string(),
            bytes: self.bytes,
            messages: self.datagrams,
            // One datagram alone took no time: then there is no rate.
            seconds: passed.as_secs_f64(),
            steps: vec![(passed.as_micros() as u64, self.bytes)],
            method: Some("recvfrom".into()),
            ..FlowHalf::new(0, Direction::Up, false)
        };
        let here = HalfReport {
            flows: vec![flow],
            facts: Box::new(host::facts(Some(peer.ip()))),
            ..HalfReport::default()
        };
        let test = test(Protocol::Udp, Direction::Up, passed);
        self.guest.tested(foreign_run(
            test,
            peer,
            self.started_at,
            Status::Complete,
            here,
        ));
        self.guest.end_test();
        self.guest.left(None);
    }
}

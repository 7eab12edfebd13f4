//! The flows of a half: their sockets and counters, the state that workers, sampler and controller
//! share, and what those see who display a running test.

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;
use std::{io, thread};

use linerate_core::foreign::iperf3::Layout;
use linerate_core::plan::{Direction, Extent, Protocol, SocketOptions, Test, Traffic};
use linerate_core::record::TcpEvidence;
use linerate_core::session::message::{UdpReceived, UdpSent};
use linerate_core::units::{End, Span};
use linerate_sys::socket;
use linerate_sys::tcp_info::TcpInfo;

use super::exchange::{Pages, respond};
use super::half::HalfOptions;
use super::outcome::{AnswerOutcome, ExchangeOutcome};
use super::source::FlowSource;
use crate::clock::now_ns;
use crate::stop::Stop;

/// A data socket.
#[derive(Debug)]
pub(crate) enum FlowSocket {
    Tcp(TcpStream),
    /// Connected to the peer's address.
    Udp(UdpSocket),
}

impl FlowSocket {
    pub(crate) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        match self {
            Self::Tcp(stream) => (stream.local_addr().ok(), stream.peer_addr().ok()),
            Self::Udp(socket) => (socket.local_addr().ok(), socket.peer_addr().ok()),
        }
    }
}

/// A data socket with its place in the test.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) id: u32,
    pub(crate) socket: FlowSocket,
}

/// The direction of flow `id`'s payload. Where both are tested, the flows up have the lower
/// numbers. Requests go up.
pub(crate) fn flow_direction(test: &Test, id: u32) -> Direction {
    match (&test.traffic, test.direction) {
        (Traffic::Stream(_), Direction::Both) if id >= test.streams => Direction::Down,
        (Traffic::Stream(_), Direction::Both) => Direction::Up,
        (Traffic::Stream(_), direction) => direction,
        (Traffic::Rr(_) | Traffic::Crr(_), _) => Direction::Up,
    }
}

/// A test of one flow without a warm-up and with default options, as linerate makes them for its
/// own purposes.
pub(crate) fn one_flow(
    traffic: Traffic,
    protocol: Protocol,
    direction: Direction,
    extent: Extent,
) -> Test {
    Test {
        traffic,
        protocol,
        direction,
        streams: 1,
        extent,
        warm_up: Span(Duration::ZERO),
        interval: Span(Duration::from_secs(1)),
        options: SocketOptions::default(),
        seed: 0,
    }
}

/// Whether `side` sends the payload of a flow in `direction`.
pub(crate) fn sends(side: End, direction: Direction) -> bool {
    matches!((side, direction), (End::Client, Direction::Up) | (End::Server, Direction::Down))
}

/// Figures of a flow while it runs: one writer (its worker), any number of readers. They have a
/// cache line of their own, so that flows do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    bytes: AtomicU64,
    messages: AtomicU64,
    last_ns: AtomicU64,
    paced_ns: AtomicU64,
    corrupted: AtomicU64,
    lost: AtomicU64,
    jitter_ns: AtomicU64,
    tid: AtomicI32,
    begun_ns: AtomicU64,
    done: AtomicBool,
}

impl Counters {
    /// Sets the totals. Plain stores are enough for one writer; a locked add would cost more than a
    /// message.
    #[inline]
    pub(crate) fn set(&self, bytes: u64, messages: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.messages.store(messages, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// When payload last moved, by [`crate::clock`]; `None` until the worker has set it.
    pub(crate) fn last_ns(&self) -> Option<u64> {
        Some(self.last_ns.load(Ordering::Acquire)).filter(|ns| *ns != 0)
    }

    /// Time for which the application's own rate limit kept the worker idle.
    pub(crate) fn paced_ns(&self) -> u64 {
        self.paced_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn add_paced_ns(&self, ns: u64) {
        (self.paced_ns).store(self.paced_ns() + ns, Ordering::Relaxed);
    }

    pub(crate) fn corrupted(&self) -> u64 {
        self.corrupted.load(Ordering::Relaxed)
    }

    pub(crate) fn set_corrupted(&self, bytes: u64) {
        self.corrupted.store(bytes, Ordering::Relaxed);
    }

    /// Datagrams lost in the measured time so far, and the jitter of those that arrived, ns.
    pub(crate) fn loss(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.lost), load(&self.jitter_ns))
    }

    pub(crate) fn set_loss(&self, lost: u64, jitter_ns: u64) {
        self.lost.store(lost, Ordering::Relaxed);
        self.jitter_ns.store(jitter_ns, Ordering::Relaxed);
    }

    /// Thread that works on the flow; 0 before it runs.
    pub(crate) fn tid(&self) -> i32 {
        self.tid.load(Ordering::Acquire)
    }

    pub(crate) fn set_tid(&self, tid: i32) {
        self.tid.store(tid, Ordering::Release);
    }

    /// When the first byte was sent or received, or the first request sent.
    pub(crate) fn begun_ns(&self) -> Option<u64> {
        Some(self.begun_ns.load(Ordering::Acquire)).filter(|ns| *ns != 0)
    }

    /// Only the first call counts.
    pub(crate) fn set_begun(&self, now_ns: u64) {
        if self.begun_ns().is_none() {
            self.begun_ns.store(now_ns, Ordering::Release);
        }
    }

    /// Records when payload moved, for workers that do not know which of their payload is the last.
    pub(crate) fn touch(&self, now_ns: u64) {
        self.last_ns.store(now_ns, Ordering::Relaxed);
    }

    pub(crate) fn set_done(&self, now_ns: u64) {
        if self.last_ns().is_none() {
            self.touch(now_ns);
        }
        self.done.store(true, Ordering::Release);
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }
}

// The state that workers, sampler and controller of a half share.

/// A flow of a running test.
pub(crate) struct FlowState {
    pub(crate) id: u32,
    pub(crate) direction: Direction,
    pub(crate) sends: bool,
    /// `None` where connections come and go within the run.
    pub(crate) socket: Option<FlowSocket>,
    pub(crate) counters: Counters,
}

/// The header of a test's datagrams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Marks {
    /// linerate's own, which tells the warm-up from the measured time.
    #[default]
    Own,
    /// iperf3's.
    Iperf3(Layout),
    /// None: netperf and ttcp send payload alone.
    None,
}

/// Bytes that the senders of a half may still send together.
pub(crate) struct Quota(AtomicU64);

impl Quota {
    /// Takes a message's bytes; false if none are left.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let left = |left: u64| (left > 0).then(|| left.saturating_sub(bytes));
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, left).is_ok()
    }
}

/// The state that workers, sampler and controller of a half share.
pub(crate) struct Shared {
    pub(crate) side: End,
    pub(crate) test: Test,
    pub(crate) marks: Marks,
    /// Set where only the peer ends the test.
    pub(crate) quota: Option<Quota>,
    pub(crate) flows: Vec<FlowState>,
    /// The flows of each worker: one, or several that share its thread.
    pub(crate) shares: Vec<Range<usize>>,
    pub(crate) source: FlowSource,
    /// Gets each transaction of `crr` when it has ended.
    pub(crate) answers: Option<Sender<AnswerOutcome>>,
    /// The page that a test of pages fetches at present.
    pub(crate) pages: Option<Pages>,
    pub(crate) stop: Stop,
    pub(crate) began_ns: u64,
    /// The half begins at a set time.
    pub(crate) is_timed: bool,
    /// The workers may begin.
    let_go: AtomicBool,
    finished: AtomicBool,
    working: AtomicU64,
}

impl Shared {
    /// The state of a half that begins now or at its set time; `flows` are the connected sockets.
    pub(crate) fn new(
        side: End,
        test: &Test,
        flows: Vec<Flow>,
        source: FlowSource,
        options: HalfOptions,
    ) -> Self {
        let flows = flow_states(side, test, flows);
        let began_ns = now_ns().max(options.at_ns.unwrap_or(0));
        let alone = || (0..flows.len()).map(|flow| flow..flow + 1).collect();
        let shares: Vec<Range<usize>> = respond::thread_shares(side, test).unwrap_or_else(alone);
        Self {
            side,
            marks: options.marks,
            quota: options.quota.map(|bytes| Quota(bytes.into())),
            test: test.clone(),
            working: AtomicU64::new(shares.len() as u64),
            flows,
            shares,
            source,
            answers: options.answers,
            pages: match &test.traffic {
                Traffic::Rr(exchange) => {
                    let pages = |objects| Pages::new(objects, exchange.rate_per_s, began_ns);
                    exchange.objects.map(pages)
                }
                Traffic::Stream(_) | Traffic::Crr(_) => None,
            },
            stop: Stop::new(),
            began_ns,
            is_timed: options.at_ns.is_some(),
            let_go: AtomicBool::new(false),
            finished: AtomicBool::new(false),
        }
    }

    /// Waits until the workers may begin; whoever lets them go also unparks each.
    pub(crate) fn await_the_others(&self) {
        while !self.let_go.load(Ordering::Acquire) {
            thread::park();
        }
    }

    pub(crate) fn let_go(&self) {
        self.let_go.store(true, Ordering::Release);
    }

    /// Whether the measured time is over, or every worker is done.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    pub(crate) fn set_finished(&self) {
        self.finished.store(true, Ordering::Release);
    }

    pub(crate) fn worker_is_done(&self) {
        self.working.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether every worker is done.
    pub(crate) fn all_done(&self) -> bool {
        self.working.load(Ordering::Acquire) == 0
    }

    /// The counters of each worker: those of its first flow.
    pub(crate) fn workers(&self) -> Vec<&Counters> {
        let first = self.shares.iter().map(|share| &self.flows[share.start]);
        first.map(|flow| &flow.counters).collect()
    }

    /// Splits a figure of each worker evenly between its flows.
    pub(crate) fn of_each_flow(&self, figures: &[f64]) -> Vec<f64> {
        let shares = self.shares.iter().zip(figures);
        shares
            .flat_map(|(share, figure)| share.clone().map(move |_| figure / share.len() as f64))
            .collect()
    }

    /// A half without threads, for a test that calls the worker of its one flow itself.
    #[cfg(test)]
    pub(crate) fn alone(side: End, test: &Test, source: FlowSource) -> Self {
        Self::new(side, test, Vec::new(), source, HalfOptions::default())
    }
}

/// What a worker reports at its end, apart from its counters.
#[derive(Default)]
pub(crate) struct WorkerEnd {
    /// System call that sent or received, such as `sendmmsg`.
    pub(crate) method: &'static str,
    pub(crate) udp_sent: Option<UdpSent>,
    pub(crate) udp_received: Option<UdpReceived>,
    pub(crate) exchange: Option<ExchangeOutcome>,
    /// TCP's evidence, where only the worker has the socket.
    pub(crate) tcp: Option<TcpEvidence>,
    /// What ended it early, where there are figures all the same.
    pub(crate) error: Option<io::Error>,
}

fn flow_states(side: End, test: &Test, flows: Vec<Flow>) -> Vec<FlowState> {
    let mut sockets: Vec<Option<FlowSocket>> = (0..test.flows()).map(|_| None).collect();
    for flow in flows {
        if let Some(slot) = sockets.get_mut(flow.id as usize) {
            *slot = Some(flow.socket);
        }
    }
    (0..)
        .zip(sockets)
        .map(|(id, socket)| {
            let direction = flow_direction(test, id);
            FlowState {
                id,
                direction,
                sends: sends(side, direction),
                socket,
                counters: Counters::default(),
            }
        })
        .collect()
}

// The flows of a half while it runs, for those who display them.

/// The present state of a flow; counts are since it began, warm-up included.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LiveFlow {
    /// Its number.
    pub id: u32,
    /// Whether this end sends.
    pub sends: bool,
    /// This end's address and port, while there is a socket.
    pub local: Option<SocketAddr>,
    /// The other end's address and port.
    pub remote: Option<SocketAddr>,
    /// Payload sent or received, bytes.
    pub bytes: u64,
    /// Messages written or datagrams moved.
    pub messages: u64,
    /// Datagrams lost in the measured time.
    pub lost: u64,
    /// Jitter of datagrams (RFC 3550, 6.4.1), ns.
    pub jitter_ns: u64,
    /// Buffers in force, bytes: send, receive.
    pub buffers: [u32; 2],
    /// The kernel's figures, if this end sends over TCP.
    pub tcp: Option<LiveTcp>,
}

/// The present state of a TCP sender.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LiveTcp {
    /// Segments retransmitted since the connection began.
    pub retransmits: u64,
    /// Congestion window, bytes.
    pub cwnd: u64,
    /// Window that the receiver offers, bytes.
    pub window: u64,
    /// Smoothed round-trip time, µs.
    pub rtt_us: u32,
    /// Its mean deviation, µs.
    pub rtt_var_us: u32,
    /// Path MTU that the kernel believes in, bytes.
    pub pmtu: u32,
    /// The reordering that it reckons with, segments.
    pub reordering: u32,
}

impl From<&FlowState> for LiveFlow {
    fn from(flow: &FlowState) -> Self {
        let (lost, jitter_ns) = flow.counters.loss();
        let mut live = Self {
            id: flow.id,
            sends: flow.sends,
            bytes: flow.counters.bytes(),
            messages: flow.counters.messages(),
            lost,
            jitter_ns,
            ..Self::default()
        };
        if let Some(socket) = &flow.socket {
            (live.local, live.remote) = socket.addresses();
        }
        match &flow.socket {
            Some(FlowSocket::Tcp(stream)) => {
                let info = TcpInfo::read(stream).ok().filter(|_| flow.sends);
                live.tcp = info.as_ref().map(LiveTcp::from);
                live.buffers = buffers(stream);
            }
            Some(FlowSocket::Udp(socket)) => live.buffers = buffers(socket),
            None => {}
        }
        live
    }
}

impl From<&TcpInfo> for LiveTcp {
    fn from(info: &TcpInfo) -> Self {
        Self {
            retransmits: info.total_retrans.into(),
            cwnd: u64::from(info.snd_cwnd) * u64::from(info.snd_mss),
            window: info.snd_wnd.unwrap_or(0).into(),
            rtt_us: info.rtt,
            rtt_var_us: info.rttvar,
            pmtu: info.pmtu,
            reordering: info.reordering,
        }
    }
}

fn buffers(socket: &impl std::os::fd::AsFd) -> [u32; 2] {
    [socket::send_buffer(socket).unwrap_or(0), socket::receive_buffer(socket).unwrap_or(0)]
}

/// The time until the next interval of a test ends, and the number of intervals that have ended.
/// Warm-up and measured time each begin an interval of their own.
pub(crate) fn until_interval(test: &Test, at_s: f64) -> (Duration, u64) {
    let (width, warm_up) = (test.interval.as_secs_f64(), test.warm_up.as_secs_f64());
    let next = |at: f64| ((at / width).floor() + 1.0) * width;
    let (due, over) = if at_s < warm_up {
        (next(at_s).min(warm_up), at_s / width)
    } else {
        let measured = at_s - warm_up;
        let before = (warm_up / width).ceil();
        (warm_up + next(measured), before + measured / width)
    };
    (Duration::from_secs_f64((due - at_s).max(0.001)), over as u64)
}

#[cfg(test)]
mod tests {
    use linerate_core::units::Span;

    use super::*;

    #[test]
    fn an_interval_ends_when_its_time_is_over_or_the_warm_up_is() {
        let mut test = Test::stream().resolve(1).expect("a test");
        test.interval = Span(Duration::from_secs(2));
        test.warm_up = Span(Duration::from_secs(3));
        let due = |at_s| {
            let (wait, over) = until_interval(&test, at_s);
            ((at_s + wait.as_secs_f64()) as u64, over)
        };
        assert_eq!(due(0.5), (2, 0));
        assert_eq!(due(2.5), (3, 1));
        assert_eq!(due(3.5), (5, 2));
        assert_eq!(due(5.5), (7, 3));
    }
}

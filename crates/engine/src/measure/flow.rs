//! A flow: its socket, and the counters that its worker alone writes.

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use linerate_core::plan::{Direction, Extent, Protocol, SocketOptions, Test, Traffic};
use linerate_core::units::{End, Span};

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

//! The orders to a worker process and its reports, as short messages over a pair of sockets, and
//! the failures that a report counts.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use linerate_core::capacity::{CapacityRequest, Failure, FailureCause, HeldCounts, HoldPort};
use linerate_core::record::CpuSeconds;
use linerate_core::stats::{LatencyBuckets, LatencyHistogram};
use linerate_core::wire::{Frame, FrameKind, FrameReader, Token};
use linerate_sys::errno;
use linerate_sys::poll::wait_readable;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What every worker needs to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Terms {
    /// The session's token.
    pub(super) token: Token,
    /// Length of the load's requests, bytes.
    pub(super) request_bytes: u32,
    /// Length of its responses, bytes.
    pub(super) response_bytes: u32,
    /// Most descriptors, if fewer than the host allows.
    pub(super) descriptors: Option<u64>,
}

/// The role of an endpoint's worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Listen {
    pub(super) terms: Terms,
    /// Address to listen at; the kernel chooses the ports.
    pub(super) address: SocketAddr,
    /// Connections and datagrams are taken from this address alone.
    pub(super) client: IpAddr,
    /// Most connections of each listener.
    pub(super) counts: Vec<u64>,
    /// Accept queue of each listener.
    pub(super) backlog: u32,
    /// Send buffer of each connection, bytes.
    pub(super) send_buffer: u32,
}

/// The role of a client's worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Connect {
    pub(super) terms: Terms,
    /// The endpoint; its port is that of the control connection.
    pub(super) peer: SocketAddr,
    /// The endpoint's ports to connect to, and how many connections to each.
    pub(super) ports: Vec<HoldPort>,
    /// Addresses of this host to connect from, in turn.
    pub(super) sources: Vec<SocketAddr>,
    /// Local ports to use, first and last.
    pub(super) port_range: (u16, u16),
    /// Accept queue of the endpoint's listeners.
    pub(super) backlog: u32,
    /// Time in which a connection must name the session, s; 0: at once.
    pub(super) patience_s: u32,
    /// Number of the worker's first connection, or UDP socket, in the session.
    pub(super) first_number: u64,
    pub(super) seed: u64,
}

/// The role of a worker, which is its first message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WorkerRole {
    /// At the endpoint: accepts TCP connections.
    AcceptTcp(Listen),
    /// At the endpoint: answers datagrams.
    AnswerUdp(Listen),
    /// At the client: opens TCP connections.
    OpenTcp(Connect),
    /// At the client: opens UDP sockets.
    OpenUdp(Connect),
}

impl Terms {
    pub(super) fn new(token: Token, request: &CapacityRequest, descriptors: Option<u64>) -> Self {
        Self {
            token,
            // The check of the request bounds both.
            request_bytes: request.request_bytes as u32,
            response_bytes: request.response_bytes as u32,
            descriptors,
        }
    }
}

impl WorkerRole {
    pub(super) fn terms(&self) -> &Terms {
        match self {
            Self::AcceptTcp(listen) | Self::AnswerUdp(listen) => &listen.terms,
            Self::OpenTcp(connect) | Self::OpenUdp(connect) => &connect.terms,
        }
    }
}

/// An order to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// Open connections until `to` have been begun in all.
    Ramp { to: u64, rate_per_s: Option<f64> },
    /// Send a heartbeat on each connection once in `heartbeat_s`, and replace `churn_per_s` of them
    /// each second.
    Hold { heartbeat_s: f64, churn_per_s: f64 },
    /// Send a heartbeat on each connection now.
    Sweep,
    /// Send requests on this many connections for `seconds`: `per_s` in all, or each when the one
    /// before is answered.
    Load { connections: u64, seconds: f64, per_s: Option<f64> },
    /// Send nothing for `seconds` that can wait, because something else is measured.
    PauseHeartbeats { seconds: f64 },
    /// End all of these.
    Stop,
    /// Send a report.
    Report,
}

/// A message from a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WorkerMessage {
    /// The worker has taken its role; at the endpoint it listens at these ports.
    Ready { ports: Vec<u16> },
    /// The worker cannot take its role.
    Failed { message: String },
    /// The present state, several times a second.
    Status(Status),
    /// The answer to [`Order::Report`].
    Report(Box<Report>),
}

/// The present state of a worker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Status {
    /// Connections, or UDP sockets, that are open.
    pub(super) open: u64,
    /// Connections that were opened since the beginning, without replacements.
    pub(super) opened: u64,
    /// When the last one was opened, ns of the monotonic clock that all processes of a host share.
    pub(super) last_open_ns: u64,
    /// Opening, a sweep or a load is in progress.
    pub(super) busy: bool,
    /// Number of orders that the worker has taken, its role included.
    pub(super) orders: u64,
    /// Why the worker can open no more.
    pub(super) stopped: Option<FailureCause>,
    pub(super) failures: SocketTally,
    pub(super) lost: SocketTally,
}

impl Status {
    /// Adds the state of another worker.
    pub(super) fn add(&mut self, other: &Self) {
        self.last_open_ns = self.last_open_ns.max(other.last_open_ns);
        self.open += other.open;
        self.opened += other.opened;
        self.stopped = self.stopped.or(other.stopped);
        self.failures.add_all(&other.failures);
        self.lost.add_all(&other.lost);
    }
}

/// The counts and latencies of a worker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Report {
    pub(super) status: Status,
    /// Most connections that were open at once.
    pub(super) most: u64,
    pub(super) churn_closed: u64,
    pub(super) churn_opened: u64,
    /// SYN segments, or requests over UDP, that were retransmitted.
    pub(super) asked_again: u64,
    pub(super) beats_sent: u64,
    pub(super) beats_answered: u64,
    pub(super) transactions: u64,
    pub(super) late: u64,
    pub(super) load_connections: u64,
    /// How long the load took, ns.
    pub(super) load_ns: u64,
    pub(super) connect_first: LatencyBuckets,
    pub(super) connect_again: LatencyBuckets,
    pub(super) beat: LatencyBuckets,
    pub(super) load: LatencyBuckets,
    pub(super) cpu: CpuSeconds,
    /// Memory of the process, bytes: before anything was opened, and now.
    pub(super) memory_before: Option<u64>,
    pub(super) memory: Option<u64>,
}

impl Report {
    /// The sum of several reports.
    pub(super) fn sum<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let mut sum = Self { memory_before: Some(0), memory: Some(0), ..Self::default() };
        for one in all {
            sum.add(one);
        }
        sum
    }

    fn add(&mut self, other: &Self) {
        for (sum, one) in [
            (&mut self.most, other.most),
            (&mut self.churn_closed, other.churn_closed),
            (&mut self.churn_opened, other.churn_opened),
            (&mut self.asked_again, other.asked_again),
            (&mut self.beats_sent, other.beats_sent),
            (&mut self.beats_answered, other.beats_answered),
            (&mut self.transactions, other.transactions),
            (&mut self.late, other.late),
            (&mut self.load_connections, other.load_connections),
        ] {
            *sum += one;
        }
        self.status.add(&other.status);
        // The workers' loads run at the same time, so that the longest counts.
        self.load_ns = self.load_ns.max(other.load_ns);
        for (sum, one) in [
            (&mut self.connect_first, &other.connect_first),
            (&mut self.connect_again, &other.connect_again),
            (&mut self.beat, &other.beat),
            (&mut self.load, &other.load),
        ] {
            *sum = merged(sum, one).buckets();
        }
        self.cpu.user += other.cpu.user;
        self.cpu.system += other.cpu.system;
        for (sum, one) in
            [(&mut self.memory_before, other.memory_before), (&mut self.memory, other.memory)]
        {
            *sum = sum.zip(one).map(|(sum, one)| sum + one);
        }
    }

    pub(super) fn counts(&self) -> HeldCounts {
        HeldCounts {
            opened: self.status.opened + self.churn_opened,
            most: self.most,
            alive: self.status.open,
            failures: self.status.failures.list(),
            lost: self.status.lost.list(),
        }
    }

    /// Growth of the processes' memory, bytes.
    pub(super) fn grown(&self) -> Option<u64> {
        let (before, after) = self.memory_before.zip(self.memory)?;
        Some(after.saturating_sub(before))
    }
}

/// The latencies of both. Those of linerate's own workers are within a histogram's range.
pub(super) fn merged(a: &LatencyBuckets, b: &LatencyBuckets) -> LatencyHistogram {
    let mut sum = LatencyHistogram::try_from(a).unwrap_or_default();
    // Buckets that are out of range would be left out.
    let _ = sum.merge_buckets(b);
    sum
}

/// One end of the pair of sockets. It carries whole messages, none longer than [`LONGEST`], in the
/// frames of the control protocol.
#[derive(Debug)]
pub(super) struct Channel {
    stream: UnixStream,
    reader: FrameReader,
}

impl Channel {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_write_timeout(Some(STUCK))?;
        Ok(Self { stream, reader: FrameReader::new(LONGEST) })
    }

    /// Sends a whole message.
    ///
    /// # Errors
    /// The other end is closed, or has taken nothing for [`STUCK`].
    pub(super) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let frame = Frame { kind: FrameKind::Clear, body: serde_json::to_vec(message)? };
        self.stream.write_all(&frame.encode().ok_or(io::ErrorKind::InvalidData)?)
    }

    /// The next whole message, if it has arrived.
    ///
    /// # Errors
    /// The other end is closed (`UnexpectedEof`); the bytes are no message.
    pub(super) fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(frame) = self.reader.next_frame().map_err(io::Error::other)? {
                return Ok(Some(serde_json::from_slice(&frame.body)?));
            }
            if !wait_readable(&self.stream, Duration::ZERO)? {
                return Ok(None);
            }
            let mut bytes = [0; 16 << 10];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.reader.push(&bytes[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Longest message, bytes. A report has four histograms of 512 buckets: some 50 kB.
const LONGEST: usize = 1 << 20;
/// Longest wait for the other end, which reads at least ten times a second.
const STUCK: Duration = Duration::from_secs(30);

// Failures, counted by cause.

/// The number of failures of each cause.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SocketTally(BTreeMap<FailureCause, u64>);

impl SocketTally {
    pub(super) fn count(&mut self, cause: FailureCause) {
        self.add(cause, 1);
    }

    pub(super) fn add(&mut self, cause: FailureCause, count: u64) {
        if count > 0 {
            let sum = self.0.entry(cause).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        for (cause, count) in &other.0 {
            self.add(*cause, *count);
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.0.values().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// The causes that have occurred, with their counts.
    pub(super) fn list(&self) -> Vec<Failure> {
        let all = self.0.iter();
        all.map(|(&cause, &count)| Failure { cause, count }).collect()
    }
}

/// The cause that an error of the kernel stands for.
pub(super) fn cause_of(error: io::Error) -> FailureCause {
    use io::ErrorKind as Kind;
    match error.raw_os_error() {
        Some(errno::EMFILE) => return FailureCause::Descriptors,
        Some(errno::ENFILE) => return FailureCause::Files,
        Some(errno::ENOBUFS) => return FailureCause::Buffers,
        Some(errno::ENOMEM) => return FailureCause::Memory,
        Some(errno::ENOSPC) => return FailureCause::Watches,
        _ => {}
    }
    match error.kind() {
        Kind::AddrNotAvailable | Kind::AddrInUse => FailureCause::Ports,
        Kind::ConnectionRefused => FailureCause::Refused,
        Kind::TimedOut => FailureCause::TimedOut,
        Kind::ConnectionReset | Kind::BrokenPipe => FailureCause::Reset,
        Kind::UnexpectedEof => FailureCause::Closed,
        Kind::NetworkUnreachable | Kind::HostUnreachable => FailureCause::Unreachable,
        Kind::PermissionDenied => FailureCause::NotPermitted,
        _ => FailureCause::Other,
    }
}

/// The same where a socket is opened from a port that was chosen, so that a missing address is no
/// lack of ports: this host does not have it.
pub(super) fn cause_of_opening(error: io::Error) -> FailureCause {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => FailureCause::Other,
        _ => cause_of(error),
    }
}

/// Whether the next attempt would fail for the same cause.
pub(super) fn is_lasting(cause: FailureCause) -> bool {
    use FailureCause as Cause;
    matches!(
        cause,
        Cause::Descriptors
            | Cause::Files
            | Cause::Ports
            | Cause::Buffers
            | Cause::Memory
            | Cause::Watches
            | Cause::Unreachable
            | Cause::NotPermitted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_whole_and_the_end_is_an_error() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut a, mut b) = (Channel::new(a).unwrap(), Channel::new(b).unwrap());
        assert_eq!(b.receive::<Order>().unwrap(), None);
        let ramp = Order::Ramp { to: 7, rate_per_s: Some(0.5) };
        a.send(&ramp).unwrap();
        a.send(&Order::Sweep).unwrap();
        assert_eq!(b.receive().unwrap(), Some(ramp));
        assert_eq!(b.receive().unwrap(), Some(Order::Sweep));
        drop(a);
        let end = b.receive::<Order>().unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_message_beyond_the_longest_is_refused() {
        let (mut a, b) = UnixStream::pair().unwrap();
        let mut b = Channel::new(b).unwrap();
        a.write_all(&[FrameKind::Clear as u8, 0xff, 0xff, 0xff]).unwrap();
        assert!(b.receive::<Order>().unwrap_err().to_string().contains("at most"));
    }

    #[test]
    fn all_causes_that_were_counted_are_listed() {
        let mut tally = SocketTally::default();
        tally.count(FailureCause::Ports);
        tally.count(FailureCause::Reset);
        tally.add(FailureCause::Reset, 4);
        tally.add(FailureCause::Closed, 0);
        assert_eq!(tally.total(), 6);
        let mut again = SocketTally::default();
        again.add_all(&tally);
        assert_eq!(again, tally);
        assert_eq!(tally.list().len(), 2);
    }

    #[test]
    fn errors_of_the_kernel_have_their_causes() {
        let cases = [
            (errno::EMFILE, FailureCause::Descriptors, true),
            (errno::ENOMEM, FailureCause::Memory, true),
            (errno::ENOSPC, FailureCause::Watches, true),
        ];
        for (code, cause, lasting) in cases {
            assert_eq!(cause_of(io::Error::from_raw_os_error(code)), cause);
            assert_eq!(is_lasting(cause), lasting);
        }
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(cause_of(refused), FailureCause::Refused);
        assert!(!is_lasting(FailureCause::Refused));
    }
}

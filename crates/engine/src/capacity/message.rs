//! What a worker process is told and tells: short messages over a pair of sockets.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use linerate_core::capacity::{FailureCause, HeldCounts, HoldPort};
use linerate_core::record::CpuSeconds;
use linerate_core::stats::{LatencyBuckets, LatencyHistogram};
use linerate_sys::poll::{Interest, wait_ready};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::tally::Tally;

/// What both kinds of worker have to know first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Terms {
    /// The session's, 32 hexadecimal digits.
    pub(super) token: String,
    /// Length of the load's requests, bytes.
    pub(super) request_bytes: u32,
    /// Length of its responses, bytes.
    pub(super) response_bytes: u32,
    /// Fewer descriptors than the host allows.
    pub(super) descriptors: Option<u64>,
}

/// To a worker of the endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Listen {
    pub(super) terms: Terms,
    /// Where to listen, on a port of the kernel's choice.
    pub(super) address: SocketAddr,
    /// From where alone connections and datagrams are taken.
    pub(super) client: IpAddr,
    /// How many each port takes at once: a listener for each.
    pub(super) counts: Vec<u64>,
    /// Of each listener.
    pub(super) backlog: u32,
    /// Send buffer of each connection, bytes; else the kernel's own.
    pub(super) send_buffer: Option<u32>,
}

/// To a worker of the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Connect {
    pub(super) terms: Terms,
    /// The endpoint; its port is that of the control connection.
    pub(super) peer: SocketAddr,
    /// Where to connect to, and how many to each.
    pub(super) ports: Vec<HoldPort>,
    /// From where, in turn.
    pub(super) sources: Vec<SocketAddr>,
    /// Local ports to use, first and last.
    pub(super) port_range: (u16, u16),
    /// Of the endpoint's listeners.
    pub(super) backlog: u32,
    /// How long the endpoint waits until a connection has named the session, s; 0: each is to do so
    /// at once.
    pub(super) patience_s: u32,
    /// Number of its first connection, or UDP socket, in the session.
    pub(super) first_number: u64,
    pub(super) seed: u64,
}

/// What a worker is: the first that it is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Role {
    /// Of the endpoint: takes TCP connections.
    AcceptTcp(Listen),
    /// Of the endpoint: answers datagrams.
    AnswerUdp(Listen),
    /// Of the client: opens connections.
    OpenTcp(Connect),
    /// Of the client: opens UDP sockets.
    OpenUdp(Connect),
}

impl Role {
    pub(super) fn terms(&self) -> &Terms {
        match self {
            Self::AcceptTcp(listen) | Self::AnswerUdp(listen) => &listen.terms,
            Self::OpenTcp(connect) | Self::OpenUdp(connect) => &connect.terms,
        }
    }
}

/// What a worker is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// Begin so many in all.
    Ramp { to: u64, rate_per_s: Option<f64> },
    /// Each proves itself alive once in so many seconds; so many are replaced each second.
    Hold { heartbeat_s: f64, churn_per_s: f64 },
    /// Each proves itself alive now.
    Sweep,
    /// Requests on so many, for so many seconds; each when the one before is answered, or so many a
    /// second.
    Load {
        connections: u64,
        seconds: f64,
        per_s: Option<f64>,
    },
    /// For so many seconds nothing is said that can wait: something else is measured.
    Hush { seconds: f64 },
    /// Nothing more of all that.
    Stop,
    /// Say what has become of it.
    Report,
}

/// What a worker says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    /// It is what it is to be: of the endpoint with its ports.
    Ready { ports: Vec<u16> },
    /// It cannot be that.
    Failed { message: String },
    /// How it stands, several times a second.
    Status(Status),
    /// To [`Order::Report`].
    Report(Box<Report>),
}

/// How a worker stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Status {
    /// Open at present.
    pub(super) open: u64,
    /// Opened since the beginning, churn not counted.
    pub(super) opened: u64,
    /// When the last one was opened, ns of the monotonic clock that all processes of a host share.
    pub(super) last_open_ns: u64,
    /// Something with an end is in progress: opening, a sweep, a load.
    pub(super) busy: bool,
    /// Orders that it has taken, its role included.
    pub(super) orders: u64,
    /// Why it can open no more.
    pub(super) stopped: Option<FailureCause>,
    pub(super) failures: Tally,
    pub(super) lost: Tally,
}

impl Status {
    /// Counts another worker's in.
    pub(super) fn add(&mut self, other: &Self) {
        self.last_open_ns = self.last_open_ns.max(other.last_open_ns);
        self.open += other.open;
        self.opened += other.opened;
        self.stopped = self.stopped.or(other.stopped);
        self.failures.add_all(&other.failures);
        self.lost.add_all(&other.lost);
    }
}

/// What has become of all that a worker did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Report {
    pub(super) status: Status,
    pub(super) most: u64,
    pub(super) churn_closed: u64,
    pub(super) churn_opened: u64,
    /// SYN segments, or questions over UDP, that were retransmitted.
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
    /// All of them in one, the status of those that have ended included.
    pub(super) fn sum<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let mut sum = Self {
            memory_before: Some(0),
            memory: Some(0),
            ..Self::default()
        };
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
        // They run beside each other: the longest counts.
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
        for (sum, one) in [
            (&mut self.memory_before, other.memory_before),
            (&mut self.memory, other.memory),
        ] {
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

    /// What the processes have grown by, bytes.
    pub(super) fn grown(&self) -> Option<u64> {
        let (before, after) = self.memory_before.zip(self.memory)?;
        Some(after.saturating_sub(before))
    }
}

/// The latencies of both. Our own workers' are within a histogram's range.
pub(super) fn merged(a: &LatencyBuckets, b: &LatencyBuckets) -> LatencyHistogram {
    let mut sum = LatencyHistogram::try_from(a).unwrap_or_default();
    // What is out of its range is left out.
    let _ = sum.merge_buckets(b);
    sum
}

/// One end of the pair: whole messages, none longer than [`LONGEST`].
#[derive(Debug)]
pub(super) struct Channel {
    stream: UnixStream,
    incoming: Vec<u8>,
}

impl Channel {
    pub(super) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            incoming: Vec::new(),
        })
    }

    /// Sends a message whole.
    ///
    /// # Errors
    /// The other end is gone, or has taken nothing for [`STUCK`].
    pub(super) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let body = serde_json::to_vec(message)?;
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend_from_slice(&body);
        let mut left = &bytes[..];
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(n) => left = &left[n..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !wait_ready(&self.stream, Interest::Writable, STUCK)? {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next whole message that is there.
    ///
    /// # Errors
    /// The other end is gone (`UnexpectedEof`); bytes that are no message.
    pub(super) fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some((length, rest)) = self.incoming.split_first_chunk::<4>() {
                let length = u32::from_be_bytes(*length) as usize;
                if length > LONGEST {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                if let Some(body) = rest.get(..length) {
                    let message = serde_json::from_slice(body)?;
                    self.incoming.drain(..4 + length);
                    return Ok(Some(message));
                }
            }
            let mut bytes = [0; 16 << 10];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.incoming.extend_from_slice(&bytes[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
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

/// A report has four histograms of 512 buckets: some 50 kB.
const LONGEST: usize = 1 << 20;
/// The other end reads at least ten times a second.
const STUCK: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_whole_and_the_end_is_told() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut a, mut b) = (Channel::new(a).unwrap(), Channel::new(b).unwrap());
        assert_eq!(b.receive::<Order>().unwrap(), None);
        let ramp = Order::Ramp {
            to: 7,
            rate_per_s: Some(0.5),
        };
        a.send(&ramp).unwrap();
        a.send(&Order::Sweep).unwrap();
        assert_eq!(b.receive().unwrap(), Some(ramp));
        assert_eq!(b.receive().unwrap(), Some(Order::Sweep));
        drop(a);
        let end = b.receive::<Order>().unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_length_beyond_all_bounds_is_refused() {
        let (mut a, b) = UnixStream::pair().unwrap();
        let mut b = Channel::new(b).unwrap();
        a.write_all(&[0xff; 8]).unwrap();
        assert!(b.receive::<Order>().is_err());
    }
}

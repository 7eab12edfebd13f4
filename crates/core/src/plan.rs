//! What is to be sent, fully resolved before anything is sent.
//!
//! A [`Plan`] is one row of tests ([`Test`]) with its repeats; a test is what one run executes and
//! what the control session carries to the endpoint. Everything here is plain data that was
//! validated by [`Test::check`]: an endpoint calls it on what a stranger sent.

mod ends;

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::units::{BitRate, ByteCount, Dscp, Percent, Span};

pub use ends::{End, Role};

/// The kind of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Bulk transfer.
    Stream,
    /// Request and response on open connections (or UDP flows).
    Rr,
    /// Connect, request, response, close.
    Crr,
}

/// Transport protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
    /// RFC 8684.
    Mptcp,
}

/// Which way the payload goes, seen from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Client to endpoint.
    Up,
    /// Endpoint to client.
    Down,
    /// Both at the same time, on flows of their own.
    Both,
}

impl Direction {
    /// The single directions that this one consists of.
    pub fn parts(self) -> &'static [Direction] {
        match self {
            Self::Up => &[Self::Up],
            Self::Down => &[Self::Down],
            Self::Both => &[Self::Up, Self::Down],
        }
    }
}

/// When a run is over.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// After a time, the warm-up before it not included.
    Time(Span),
    /// After so many payload bytes on each flow.
    Bytes(ByteCount),
    /// After so many messages or transactions on each flow.
    Count(u64),
}

/// How the sender of a TCP stream hands its bytes to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SendMethod {
    /// `write(2)`: one copy, as an ordinary application.
    Copy,
    /// Without a copy, by the way that the device really does without: `vmsplice` or `sendfile`.
    ZeroCopy,
}

/// How the receiver of a TCP stream takes its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReceiveMethod {
    /// `read(2)` into memory, as an ordinary application.
    Read,
    /// `recv(2)` with `MSG_TRUNC`: the bytes are dropped in the kernel. Not what an application
    /// gets.
    Discard,
}

/// Who closes the connections of `crr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Closer {
    /// The client: its ports stay in TIME_WAIT unless it resets.
    Client,
    /// The endpoint: TIME_WAIT stays there and the client's ports are free at once.
    Server,
}

/// What a stream sends and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamTest {
    /// Bytes of each write, or of each UDP datagram's payload.
    pub message_bytes: u64,
    /// How the sender hands over its bytes (TCP).
    pub send: SendMethod,
    /// How the receiver takes them (TCP).
    pub receive: ReceiveMethod,
    /// Send a seeded pattern and count the bytes that arrive changed.
    #[serde(default)]
    pub verify: bool,
    /// Count connection set-up and tear-down in, as in 1981.
    #[serde(default)]
    pub whole: bool,
    /// Limit at which the sending application writes, for each flow.
    #[serde(default)]
    pub write_rate_bps: Option<BitRate>,
    /// Limit at which the receiving application reads, for each flow.
    #[serde(default)]
    pub read_rate_bps: Option<BitRate>,
    /// UDP: payload rate for each flow; none is as fast as it goes.
    #[serde(default)]
    pub rate_bps: Option<BitRate>,
    /// UDP: let the kernel cut and join datagrams (`UDP_SEGMENT`, `UDP_GRO`).
    #[serde(default)]
    pub offload: bool,
    /// UDP: a packet train, sent back to back; the receiver notes from when to when it arrived, by
    /// its kernel's clock.
    #[serde(default)]
    pub train: bool,
}

/// What `rr` and `crr` exchange and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExchangeTest {
    /// Bytes of each request.
    pub request_bytes: u64,
    /// Bytes of each response.
    pub response_bytes: u64,
    /// Requests under way at once on each connection (closed loop).
    pub depth: u32,
    /// Open loop: requests per second over all flows; latencies count from the intended time.
    #[serde(default)]
    pub rate_per_s: Option<f64>,
    /// Poll without sleeping, at both ends.
    #[serde(default)]
    pub spin: bool,
    /// Who closes the connections of `crr`.
    pub closer: Closer,
    /// Close the connections of `crr` by reset, which leaves no TIME_WAIT.
    #[serde(default)]
    pub reset: bool,
}

/// The traffic of a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "workload", rename_all = "snake_case")]
pub enum Traffic {
    /// Bulk transfer.
    Stream(StreamTest),
    /// Request and response.
    Rr(ExchangeTest),
    /// Connect, request, response, close.
    Crr(ExchangeTest),
}

/// Socket options of the data connections; `None` leaves the kernel's choice.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SocketOptions {
    /// The window that a receiver may advertise, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_window_bytes: Option<ByteCount>,
    /// `SO_SNDBUF` of a sender, bytes as the application asks (the kernel doubles it).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_buffer_bytes: Option<ByteCount>,
    /// `TCP_MAXSEG`, bytes without TCP options.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mss_bytes: Option<u32>,
    /// `SO_MAX_PACING_RATE`, bits per second of each flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacing_bps: Option<BitRate>,
    /// `TCP_CONGESTION`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// `TCP_NODELAY`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub nodelay: bool,
    /// `TCP_QUICKACK`, set again before each receiving call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quickack: Option<bool>,
    /// `SO_BUSY_POLL`, µs that a receiving call spins for packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_poll_us: Option<u32>,
    /// The client's address that its TCP connections come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// Code point of the packets that this test sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<Dscp>,
}

/// One run, as the client asks for it and the endpoint checks it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Test {
    /// What is sent.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// Over which transport.
    pub protocol: Protocol,
    /// Which way.
    pub direction: Direction,
    /// Flows in each direction.
    pub streams: u32,
    /// When it ends.
    pub extent: Extent,
    /// Left out of the figures, before `extent` begins; zero unless the extent is a time.
    pub warm_up: Span,
    /// Between two entries of `intervals`.
    pub interval: Span,
    /// Options of the data sockets, at both ends.
    pub options: SocketOptions,
    /// Seed of every random choice of the run.
    pub seed: u64,
}

/// How often a test is run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Repeats {
    /// So many times.
    Times(u32),
    /// Until the interval of the median is within this of it, at most [`MAX_REPEATS`] times.
    Precision(Percent),
}

/// A workload with everything resolved: one test for each size, each repeated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// One test for each row of the sweep.
    pub tests: Vec<Test>,
    /// How often each is run.
    pub repeats: Repeats,
}

/// Runs of one test at most, however wide their spread.
pub const MAX_REPEATS: u32 = 100;
/// Flows of one test at most, in each direction.
pub const MAX_STREAMS: u32 = 128;
/// Longest run or warm-up, seconds: a day.
pub const MAX_SECONDS: f64 = 86_400.0;
/// Largest message of a stream, request or response, bytes.
pub const MAX_MESSAGE: u64 = 64 << 20;
/// Largest UDP payload over IPv6 without jumbograms (RFC 8200); over IPv4 it is 65,507.
pub const MAX_DATAGRAM: u64 = 65_527;
/// Smallest UDP payload: linerate's own header (see [`crate::wire`]).
pub const MIN_DATAGRAM: u64 = crate::wire::DATAGRAM_HEADER as u64;
/// Datagrams of a packet train at most.
pub const MAX_TRAIN: u64 = 1024;
/// Requests under way at once on one connection, at most.
pub const MAX_DEPTH: u32 = 1024;

/// A test outside the limits of this version; the message names the field, its value and its range.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{field} is {value}: {allowed}")]
pub struct PlanError {
    field: &'static str,
    value: String,
    allowed: String,
}

fn within<T: PartialOrd + std::fmt::Display>(
    field: &'static str,
    value: T,
    low: T,
    high: T,
) -> Result<(), PlanError> {
    if value >= low && value <= high {
        return Ok(());
    }
    Err(PlanError {
        field,
        value: value.to_string(),
        allowed: format!("it must be {low} to {high}"),
    })
}

fn forbidden(
    field: &'static str,
    value: impl ToString,
    why: impl Into<String>,
) -> Result<(), PlanError> {
    Err(PlanError {
        field,
        value: value.to_string(),
        allowed: why.into(),
    })
}

impl Test {
    /// Which workload this is.
    pub fn workload(&self) -> Workload {
        match self.traffic {
            Traffic::Stream(_) => Workload::Stream,
            Traffic::Rr(_) => Workload::Rr,
            Traffic::Crr(_) => Workload::Crr,
        }
    }

    /// Flows over all directions.
    pub fn flows(&self) -> u32 {
        match &self.traffic {
            Traffic::Stream(_) => self.streams * self.direction.parts().len() as u32,
            Traffic::Rr(_) | Traffic::Crr(_) => self.streams,
        }
    }

    /// Whether its connections are made within the run; else they are all bound before it begins.
    /// Both ends must see it alike: the one waits for the other.
    pub fn connects_within_run(&self) -> bool {
        match &self.traffic {
            Traffic::Stream(stream) => stream.whole,
            Traffic::Rr(_) => false,
            Traffic::Crr(_) => true,
        }
    }

    /// Seconds that the run takes at least, if its extent is a time.
    pub fn seconds(&self) -> Option<f64> {
        match self.extent {
            Extent::Time(time) => Some(time.as_secs_f64() + self.warm_up.as_secs_f64()),
            Extent::Bytes(_) | Extent::Count(_) => None,
        }
    }

    /// Checks every figure against the limits above and every combination that has no meaning.
    ///
    /// # Errors
    /// The first field that is out of range, with its range.
    pub fn check(&self) -> Result<(), PlanError> {
        within("streams", self.streams, 1, MAX_STREAMS)?;
        match self.extent {
            Extent::Time(time) => within("time", time.as_secs_f64(), 0.01, MAX_SECONDS)?,
            Extent::Bytes(bytes) => within("bytes", bytes.0, 1, 1 << 50)?,
            Extent::Count(count) => within("count", count, 1, 1 << 40)?,
        }
        within("warm-up", self.warm_up.as_secs_f64(), 0.0, MAX_SECONDS)?;
        within("interval", self.interval.as_secs_f64(), 0.01, MAX_SECONDS)?;
        self.check_options()?;
        match &self.traffic {
            Traffic::Stream(stream) => self.check_stream(stream),
            Traffic::Rr(exchange) | Traffic::Crr(exchange) => self.check_exchange(exchange),
        }
    }

    fn check_options(&self) -> Result<(), PlanError> {
        let options = &self.options;
        if let Some(window) = options.receive_window_bytes {
            within("receive window", window.0, 1, 1 << 30)?;
        }
        if let Some(buffer) = options.send_buffer_bytes {
            within("send buffer", buffer.0, 1, 1 << 30)?;
        }
        if let Some(mss) = options.mss_bytes {
            // Linux: TCP_MIN_MSS and MAX_TCP_WINDOW, net/ipv4/tcp.c.
            within("mss", mss, 88, 32_767)?;
        }
        if let Some(pacing) = options.pacing_bps {
            within("pacing", pacing.0, 8_000, 8_000_000_000_000)?;
        }
        if let Some(busy_poll) = options.busy_poll_us {
            within("busy poll", busy_poll, 0, 1_000_000)?;
        }
        if let Some(source) = options.source
            && self.protocol == Protocol::Udp
        {
            return forbidden("source", source, "datagrams have the control connection's");
        }
        if let Some(name) = &options.congestion {
            // TCP_CA_NAME_MAX is 16 with the terminating zero.
            let fits = (1..16).contains(&name.len())
                && name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
            if !fits {
                return forbidden("congestion", name, "it must be a name of 1 to 15 letters");
            }
        }
        Ok(())
    }

    fn check_stream(&self, stream: &StreamTest) -> Result<(), PlanError> {
        match self.protocol {
            Protocol::Udp => {
                within(
                    "datagram size",
                    stream.message_bytes,
                    MIN_DATAGRAM,
                    MAX_DATAGRAM,
                )?;
                if stream.whole {
                    return forbidden("whole", true, "UDP has no connection to count in");
                }
                if stream.send == SendMethod::ZeroCopy {
                    return forbidden("zerocopy", true, "only TCP streams can send without a copy");
                }
            }
            Protocol::Tcp | Protocol::Mptcp => {
                within("message size", stream.message_bytes, 1, MAX_MESSAGE)?;
                if stream.rate_bps.is_some() {
                    return forbidden(
                        "rate",
                        "set",
                        "a TCP stream is limited by --pacing or --write-rate",
                    );
                }
            }
        }
        if stream.train {
            self.check_train(stream)?;
        }
        if stream.verify && stream.receive == ReceiveMethod::Discard {
            return forbidden("verify", true, "discarded bytes cannot be verified");
        }
        let rates = [
            ("write rate", stream.write_rate_bps),
            ("read rate", stream.read_rate_bps),
            ("rate", stream.rate_bps),
        ];
        for (field, rate) in rates {
            if let Some(rate) = rate {
                within(field, rate.0, 80, 8_000_000_000_000)?;
            }
        }
        Ok(())
    }

    /// It is short and undisturbed, or it is no train.
    fn check_train(&self, stream: &StreamTest) -> Result<(), PlanError> {
        if self.protocol != Protocol::Udp || stream.rate_bps.is_some() || self.streams != 1 {
            return forbidden("train", true, "it is of one UDP flow without a rate");
        }
        match self.extent {
            Extent::Count(count) => within("datagrams of a train", count, 2, MAX_TRAIN),
            Extent::Time(_) | Extent::Bytes(_) => {
                forbidden("train", true, "it has a count of datagrams")
            }
        }
    }

    fn check_exchange(&self, exchange: &ExchangeTest) -> Result<(), PlanError> {
        let largest = match self.protocol {
            Protocol::Udp => MAX_DATAGRAM,
            Protocol::Tcp | Protocol::Mptcp => MAX_MESSAGE,
        };
        within("request size", exchange.request_bytes, 1, largest)?;
        within("response size", exchange.response_bytes, 1, largest)?;
        within("depth", exchange.depth, 1, MAX_DEPTH)?;
        if let Some(rate) = exchange.rate_per_s {
            within("rate", rate, 0.01, 100_000_000.0)?;
        }
        if matches!(self.extent, Extent::Bytes(_)) {
            return forbidden("bytes", "set", "requests end by --time or --count");
        }
        if self.direction != Direction::Up {
            return forbidden("direction", "set", "requests always go from the client");
        }
        if self.workload() == Workload::Crr {
            if self.protocol == Protocol::Udp {
                return forbidden("protocol", "udp", "crr opens connections, UDP has none");
            }
            within("depth", exchange.depth, 1, 1)?;
        }
        // Both ends would block writing to each other with more bytes under way than buffers hold.
        within(
            "depth × size",
            u64::from(exchange.depth) * exchange.request_bytes.max(exchange.response_bytes),
            1,
            MAX_MESSAGE,
        )
    }
}

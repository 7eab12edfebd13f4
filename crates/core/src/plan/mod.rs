//! The plan of a run: every option is resolved before anything is sent.
//!
//! A [`Plan`] is a row of tests ([`Test`]) with its repeats. One run executes one test, which the
//! control session carries to the endpoint. A [`Draft`] makes a test from the options that were
//! given; [`options`] is the table of options with their ranges and defaults. A test is plain data,
//! checked by [`Test::check`]: an endpoint calls it on what a client sends.

mod build;
mod options;

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::units::{BitRate, ByteCount, Dscp, Percent, Span};
use crate::wire::STAMP_BYTES;
use build::{Piece, option};

pub use crate::units::End;
pub use build::{Draft, PlanError, Role};
pub use options::{Default, Over, Shorthand, SocketTreatment, TestOption, option_of, options};

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

/// Direction of the payload, as seen from the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Client to endpoint.
    #[default]
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

/// The end of a run.
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

/// The way in which the sender of a TCP stream hands its bytes to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SendMethod {
    /// `write(2)`: one copy, as an ordinary application.
    Copy,
    /// `vmsplice` or `sendfile`, whichever avoids the copy with the device.
    ZeroCopy,
}

/// The way in which the receiver of a TCP stream takes its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReceiveMethod {
    /// `read(2)` into memory, as an ordinary application.
    Read,
    /// `recv(2)` with `MSG_TRUNC`: the kernel drops the bytes. No application gets this rate.
    Discard,
}

/// The end that closes the connections of `crr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Closer {
    /// The client: its ports stay in TIME_WAIT unless it resets.
    Client,
    /// The endpoint: TIME_WAIT stays there and the client's ports are free at once.
    Server,
}

/// The options of a stream.
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
    /// Count connection set-up and tear-down in, as measurements of 1981 did.
    #[serde(default)]
    pub whole: bool,
    /// Rate at which the sending application writes each flow.
    #[serde(default)]
    pub write_rate_bps: Option<BitRate>,
    /// Rate at which the receiving application reads each flow.
    #[serde(default)]
    pub read_rate_bps: Option<BitRate>,
    /// TCP: CPU time that the sending application works on its bytes, ns/KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_work_ns_per_kib: Option<u32>,
    /// CPU time that the receiving application works on its bytes, ns/KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_work_ns_per_kib: Option<u32>,
    /// UDP: payload rate of each flow; `None`: as fast as possible.
    #[serde(default)]
    pub rate_bps: Option<BitRate>,
    /// UDP: let the kernel cut and join datagrams (`UDP_SEGMENT`, `UDP_GRO`).
    #[serde(default)]
    pub offload: bool,
    /// Messages that one system call hands over; `None`: one, over UDP as many as suit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u32>,
    /// UDP: a packet train, sent back to back; the receiver notes the arrival of its first and last
    /// datagram by its kernel's clock.
    #[serde(default)]
    pub train: bool,
}

impl StreamTest {
    /// A stream of messages of this size, with the usual methods, as fast as possible.
    pub const fn new(message_bytes: u64) -> Self {
        Self {
            message_bytes,
            send: SendMethod::Copy,
            receive: ReceiveMethod::Read,
            verify: false,
            whole: false,
            write_rate_bps: None,
            read_rate_bps: None,
            send_work_ns_per_kib: None,
            receive_work_ns_per_kib: None,
            rate_bps: None,
            offload: false,
            batch: None,
            train: false,
        }
    }

    /// The CPU time that an application works on its bytes, ns/KiB; 0 if it only passes them on.
    pub fn work_ns_per_kib(&self, role: Role) -> u32 {
        let work = match role {
            Role::Sender => self.send_work_ns_per_kib,
            Role::Receiver => self.receive_work_ns_per_kib,
        };
        work.unwrap_or(0)
    }
}

/// The options of `rr` and `crr`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExchangeTest {
    /// Bytes of each request.
    pub request_bytes: u64,
    /// Bytes of each response.
    pub response_bytes: u64,
    /// Requests in flight at once on each connection (closed loop).
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
    /// Send the requests of `crr` with the connection's first packet (TCP Fast Open).
    #[serde(default)]
    pub fast_open: bool,
    /// UDP: requests and responses are STAMP's test packets (RFC 8762), which tell each way's
    /// delay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stamp: bool,
    /// TCP: the responses are objects of pages, so many each, which all connections fetch together;
    /// `rate_per_s` is of pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u32>,
    /// TCP: several responses are a chunk of a video, whose player adapts its rate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub video: bool,
}

impl ExchangeTest {
    /// Requests and responses of these sizes, one at a time; the endpoint closes.
    pub const fn new(request_bytes: u64, response_bytes: u64) -> Self {
        Self {
            request_bytes,
            response_bytes,
            depth: 1,
            rate_per_s: None,
            spin: false,
            closer: Closer::Server,
            reset: false,
            fast_open: false,
            stamp: false,
            objects: None,
            video: false,
        }
    }
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

impl Traffic {
    /// Size of a message or a request, bytes. A sweep changes it.
    pub fn message_bytes(&self) -> u64 {
        match self {
            Self::Stream(stream) => stream.message_bytes,
            Self::Rr(exchange) | Self::Crr(exchange) => exchange.request_bytes,
        }
    }
}

/// Socket options of the data connections; `None` leaves the kernel's choice.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SocketOptions {
    /// The window that a receiver may advertise, bytes.
    pub receive_window_bytes: Option<ByteCount>,
    /// `SO_SNDBUF` of a sender, bytes as the application asks (the kernel doubles it).
    pub send_buffer_bytes: Option<ByteCount>,
    /// The client's port of the first flow; flow N has it plus N.
    pub source_port: Option<u32>,
    /// `TCP_MAXSEG`, bytes with TCP options.
    pub mss_bytes: Option<u32>,
    /// `SO_MAX_PACING_RATE`, bits per second of each flow.
    pub pacing_bps: Option<BitRate>,
    /// `TCP_CONGESTION`.
    pub congestion: Option<String>,
    /// `TCP_NODELAY`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub nodelay: bool,
    /// `TCP_QUICKACK`, set again before each receiving call.
    pub quickack: Option<bool>,
    /// `SO_BUSY_POLL`, µs that a receiving call spins for packets.
    pub busy_poll_us: Option<u32>,
    /// The client's address that its TCP connections come from.
    pub source: Option<IpAddr>,
    /// Code point of the packets that this test sends.
    pub dscp: Option<Dscp>,
}

/// A test, as the client asks for it and the endpoint checks it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Test {
    /// The traffic.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// The transport protocol.
    pub protocol: Protocol,
    /// The direction of the payload.
    pub direction: Direction,
    /// Flows in each direction.
    pub streams: u32,
    /// The end of the run.
    pub extent: Extent,
    /// Time before `extent` that is left out of the figures; zero unless the extent is a time.
    pub warm_up: Span,
    /// Length of an entry of `intervals`.
    pub interval: Span,
    /// Options of the data sockets, at both ends.
    pub options: SocketOptions,
    /// Seed of every random choice of the run.
    pub seed: u64,
}

/// Number of runs of a test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Repeats {
    /// This number.
    Times(u32),
    /// As many as make the interval of the median this narrow, at most [`MAX_REPEATS`].
    Precision(Percent),
}

/// A workload with everything resolved: one test for each size, each repeated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// One test for each row of the sweep.
    pub tests: Vec<Test>,
    /// Number of runs of each.
    pub repeats: Repeats,
}

/// One run of a test.
impl From<Test> for Plan {
    fn from(test: Test) -> Self {
        Self { tests: vec![test], repeats: Repeats::Times(1) }
    }
}

/// Most runs of a test, however wide their spread.
pub const MAX_REPEATS: u32 = 100;
/// Most flows of a test, over both directions.
pub const MAX_STREAMS: u32 = 256;
/// Most messages of one system call.
const MAX_BATCH: u32 = 128;
/// Longest run or warm-up, seconds: a day.
pub const MAX_SECONDS: f64 = 86_400.0;
/// Largest message of a stream, request or response, bytes.
pub const MAX_MESSAGE: u64 = 64 << 20;
/// Largest UDP payload over IPv6 without jumbograms (RFC 8200); over IPv4 it is 65,507.
const MAX_DATAGRAM: u64 = 65_527;
/// Smallest UDP payload: linerate's own header (see [`crate::wire`]).
const MIN_DATAGRAM: u64 = crate::wire::DATAGRAM_HEADER as u64;
/// Most datagrams of a packet train.
pub const MAX_TRAIN: u64 = 1024;
/// Most objects of a page.
const MAX_OBJECTS: u32 = 1000;
/// Most requests in flight at once on one connection.
pub const MAX_DEPTH: u32 = 1024;

fn within(key: &'static str, value: u64, least: u64, most: u64) -> Result<(), PlanError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(PlanError::value(key, value, format!("it must be {least} to {most}")))
}

/// Refuses an option; the message begins with its name.
fn forbidden<const N: usize>(key: &'static str, message: [Piece; N]) -> Result<(), PlanError> {
    Err(PlanError::new(key, [&[option(key)], &message[..]].concat()))
}

impl SocketOptions {
    /// The client's local port of a flow; 0 leaves it to the kernel.
    pub fn source_port_of(&self, flow: u32) -> u16 {
        let port = self.source_port.and_then(|first| first.checked_add(flow));
        port.and_then(|port| u16::try_from(port).ok()).unwrap_or(0)
    }
}

impl Test {
    /// The workload.
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

    /// Each flow's share of a rate.
    pub fn share_of(&self, BitRate(limit): BitRate) -> BitRate {
        BitRate((limit / u64::from(self.flows())).max(1))
    }

    /// The same test with each TCP flow paced to its share of `limit`. Datagrams are not paced:
    /// they keep the rate that the test asks for.
    #[must_use]
    pub fn slowed_to(mut self, limit: BitRate) -> Self {
        if self.protocol != Protocol::Udp {
            let share = self.share_of(limit);
            let pacing = &mut self.options.pacing_bps;
            *pacing = Some(pacing.map_or(share, |rate| rate.min(share)));
        }
        self
    }

    /// The same test, cut so that its time with the warm-up is `seconds` at most.
    #[must_use]
    pub fn within(mut self, seconds: f64) -> Self {
        let Some(most) = Span::from_secs_f64(seconds) else {
            return self;
        };
        if let Extent::Time(time) = &mut self.extent {
            self.warm_up = self.warm_up.min(Span(most.0 / 10));
            *time = (*time).min(Span(most.0 - self.warm_up.0));
        }
        self
    }

    /// Whether connections are made within the run; else all are bound before it begins. Both ends
    /// must agree, since one waits for the other.
    pub fn connects_within_run(&self) -> bool {
        match &self.traffic {
            Traffic::Stream(stream) => stream.whole,
            Traffic::Rr(_) => false,
            Traffic::Crr(_) => true,
        }
    }

    /// Whether the application of this end works on the bytes of the test.
    pub fn works_at(&self, end: End) -> bool {
        let Traffic::Stream(stream) = &self.traffic else {
            return false;
        };
        let works = |role: &Role| stream.work_ns_per_kib(*role) > 0;
        let is_here = |role: &Role| {
            self.direction.parts().iter().any(|direction| role.end(*direction) == end)
        };
        [Role::Sender, Role::Receiver].iter().any(|role| works(role) && is_here(role))
    }

    /// Length of the run with its warm-up, seconds, if its extent is a time.
    pub fn seconds(&self) -> Option<f64> {
        match self.extent {
            Extent::Time(time) => Some(time.as_secs_f64() + self.warm_up.as_secs_f64()),
            Extent::Bytes(_) | Extent::Count(_) => None,
        }
    }

    /// Checks every option against its range, and refuses combinations without a meaning.
    ///
    /// # Errors
    /// The first option that is out of range, with its range.
    pub fn check(&self) -> Result<(), PlanError> {
        for option in options() {
            if let Some(value) = option.value_in(self) {
                option.check_value(&value)?;
            }
        }
        for (option, _) in self.given() {
            option.check_transport(self.protocol)?;
        }
        self.check_warm_up()?;
        self.check_source_port()?;
        if self.flows() > MAX_STREAMS {
            let why = format!("it must be 1 to {} in both directions", MAX_STREAMS / 2);
            return Err(PlanError::value("streams", self.streams, why));
        }
        match &self.traffic {
            Traffic::Stream(stream) => self.check_stream(stream),
            Traffic::Rr(exchange) | Traffic::Crr(exchange) => self.check_exchange(exchange),
        }
    }

    /// Each flow needs a port of its own.
    fn check_source_port(&self) -> Result<(), PlanError> {
        let last = 65_536 - self.flows();
        match self.options.source_port {
            Some(first) => within("source-port", first.into(), 1, last.into()),
            None => Ok(()),
        }
    }

    /// A run that ends by an amount may be over before its warm-up.
    fn check_warm_up(&self) -> Result<(), PlanError> {
        let other = match self.extent {
            Extent::Time(_) => return Ok(()),
            Extent::Bytes(_) => "bytes",
            Extent::Count(_) => "count",
        };
        if self.warm_up.0.is_zero() {
            return Ok(());
        }
        forbidden("warm-up", [" cannot be used with ".into(), option(other)])
    }

    fn check_stream(&self, stream: &StreamTest) -> Result<(), PlanError> {
        if self.protocol == Protocol::Udp {
            within("size", stream.message_bytes, MIN_DATAGRAM, MAX_DATAGRAM)?;
        }
        if stream.verify && stream.receive == ReceiveMethod::Discard {
            let why = ": no byte is looked at".into();
            return forbidden("verify", [" cannot be used with ".into(), option("discard"), why]);
        }
        // These hand over messages in ways of their own.
        let other = [(stream.verify, "verify"), (stream.send == SendMethod::ZeroCopy, "zerocopy")];
        if let (Some(_), Some((_, other))) = (stream.batch, other.iter().find(|(on, _)| *on)) {
            return forbidden("batch", [" cannot be used with ".into(), option(other)]);
        }
        if stream.train {
            self.check_train(stream)?;
        }
        Ok(())
    }

    /// A train must be short and undisturbed.
    fn check_train(&self, stream: &StreamTest) -> Result<(), PlanError> {
        let is_udp = self.protocol == Protocol::Udp;
        match self.extent {
            Extent::Count(count) if is_udp && stream.rate_bps.is_none() && self.streams == 1 => {
                within("count", count, 2, MAX_TRAIN)
            }
            _ => {
                let what = "a train is so many datagrams of one UDP flow without a rate";
                Err(PlanError::new("", [what.into()]))
            }
        }
    }

    fn check_exchange(&self, exchange: &ExchangeTest) -> Result<(), PlanError> {
        if self.protocol == Protocol::Udp {
            within("request", exchange.request_bytes, 1, MAX_DATAGRAM)?;
            within("response", exchange.response_bytes, 1, MAX_DATAGRAM)?;
        }
        if exchange.stamp {
            let least = STAMP_BYTES as u64;
            within("request", exchange.request_bytes, least, MAX_DATAGRAM)?;
            if exchange.response_bytes != exchange.request_bytes {
                let as_large = " must be as large as ".into();
                let message = [as_large, option("request"), " with ".into(), option("stamp")];
                return forbidden("response", message);
            }
        }
        if exchange.video {
            within("streams", u64::from(self.streams), 1, 1)?;
        }
        if matches!(self.extent, Extent::Bytes(_)) {
            let what = " is no option of requests: they end by ".into();
            return forbidden("bytes", [what, option("time"), " or ".into(), option("count")]);
        }
        if self.direction != Direction::Up {
            let what = " is no option of requests: they go from the client".into();
            return forbidden("direction", [what]);
        }
        if self.workload() == Workload::Crr {
            if self.protocol == Protocol::Udp {
                let udp = Piece::Option("protocol", Some("udp".to_owned()));
                let why = ": it opens connections, and UDP has none".into();
                return Err(PlanError::new(
                    "protocol",
                    ["crr cannot be used with ".into(), udp, why],
                ));
            }
            within("depth", u64::from(exchange.depth), 1, 1)?;
        }
        // Both ends would block writing to each other with more bytes in flight than buffers hold.
        let largest = exchange.request_bytes.max(exchange.response_bytes);
        let in_flight = u64::from(exchange.depth) * largest;
        if in_flight > MAX_MESSAGE {
            let what = format!(" times the size is {in_flight} bytes: it must be up to 64MiB");
            return forbidden("depth", [what.into()]);
        }
        Ok(())
    }
}

//! The document of the connections of a host or of a capture.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::capture::{ConnectionRequests, Requests};
use crate::names::names;
use crate::plan::Direction;
use crate::record::{
    Baseline, Cause, Caveat, Ceiling, EndReport, Environment, Interval, Leg, Observed, Record,
    Status, StepRates, TcpEvidence, Verdict,
};
use crate::remedy::Remedy;

/// Schema of [`ConnectionsDocument`].
pub const CONNECTIONS_SCHEMA: &str = "linerate.connections/1";

/// TCP connections of any program, with the cause that limits each.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionsDocument {
    /// [`CONNECTIONS_SCHEMA`].
    pub schema: String,
    /// Whether they were watched for as long as planned.
    pub status: Status,
    /// When it began, RFC 3339.
    #[serde(deserialize_with = "crate::units::deserialize_rfc3339")]
    pub started_at: String,
    /// The source of the observations.
    pub source: Source,
    /// The selection in words (`with port 443`); absent: all.
    pub asked: Option<String>,
    /// Only the largest few are explained on the page, and not all listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub explained: bool,
    /// Length of the observation, seconds.
    pub seconds: f64,
    /// The connections, that with the largest rate first.
    pub connections: Vec<Connection>,
    /// Where the time of the requests of a capture went; absent where there are none.
    pub requests: Option<Box<Requests>>,
    /// What the path below the largest connection gave a flow of linerate's own to the endpoint at
    /// its peer, and what limits that, if it was asked for.
    pub path: Option<Box<Record>>,
    /// Listening sockets, if they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<Listener>,
    /// Drops of all listening sockets.
    pub listen_totals: Option<ListenTotals>,
    /// Changes since an earlier document, if they were asked for.
    pub baseline: Option<Baseline>,
    /// Caveats.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
    /// The host, as the client; empty for a capture.
    #[serde(default)]
    pub environment: Environment,
}

/// The source of observations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Source {
    /// The sockets of a host.
    Host {
        /// Its network namespace, if it is not that of the command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        namespace: Option<String>,
    },
    /// Packets of a capture.
    Capture {
        /// Its name.
        file: String,
        /// Packets in it.
        packets: u64,
        /// Its link type, in words.
        link: String,
        /// Bytes kept of each packet at most.
        snap_bytes: u32,
        /// Packets that the capture lost, or that were cut off.
        missing: u64,
        /// What its packets are, the most frequent kind first; of older documents it is unknown.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        kinds: Vec<PacketKind>,
    },
}

/// Packets of one kind in a capture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PacketKind {
    /// The protocol in the packets: `TCP`, `ARP`, `UDP port 53 (DNS)`.
    pub what: String,
    /// The encapsulations that it is in, the outermost first: `VXLAN`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<String>,
    /// How many.
    pub packets: u64,
}

impl Default for Source {
    fn default() -> Self {
        let namespace = None;
        Self::Host { namespace }
    }
}

/// What a flow of linerate's own on the same path says of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BesidePath {
    /// The path has more: the connection's limit is its own.
    Own,
    /// It carried what the path gives a flow.
    Full,
    /// It carried more than the flow beside it.
    More,
    /// It carried less, and its limit was the path: others were there, too.
    Shared,
}

/// Two rates that differ by less are the same: those of equal flows differ by so much.
const SAME_RATE: f64 = 1.15;

/// A TCP connection.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connection {
    /// Address and port of this host; in a capture of the initiator.
    pub local: String,
    /// Address and port of the other end.
    pub remote: String,
    /// Its state at the end.
    pub state: State,
    /// The process that holds it, if it may be seen.
    pub process: Option<Process>,
    /// The kernel's identifier of the socket; not in documents.
    #[serde(skip)]
    pub cookie: u64,
    /// The place of observation.
    pub vantage: Vantage,
    /// The encapsulations of its packets in a capture, the outermost first: `VXLAN`. Where packets
    /// differ, it is the deepest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inside: Vec<String>,
    /// `up`: `local` sends most of the payload. `down`: it receives most.
    pub direction: Direction,
    /// Payload that `local` sent and that was acknowledged during the observation, bytes.
    pub bytes_sent: u64,
    /// Payload that `local` received during the observation, bytes.
    pub bytes_received: u64,
    /// Payload bits per second in `direction`.
    pub throughput_bps: f64,
    /// Length of its observation, seconds; in a capture, of the transfer in `direction`.
    pub seconds: f64,
    /// Silence of data after the transfer, up to the last packet of the connection, seconds.
    pub silent_after_s: Option<f64>,
    /// Timeouts in that time, whose retransmissions nothing answered.
    pub unanswered_timeouts: Option<u64>,
    /// It began during the observation, so that its slow start was seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub began: bool,
    /// It ended during the observation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// The part that is explained, if slow start is left out.
    pub settled: Option<Settled>,
    /// How even the rate was; absent for fewer than 16 steps.
    pub steps: Option<StepRates>,
    /// Where the time of its requests went, in a capture.
    pub requests: Option<ConnectionRequests>,
    /// TCP's figures from the kernel or from packets.
    pub tcp: Option<TcpEvidence>,
    /// The cost at the host of `local` and of the threads that own the socket. Here `blocked_us` is
    /// the time in which the socket had no room for more data, or no data to read.
    pub end: Option<EndReport>,
    /// The observation in intervals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
    /// The rate that each cause would allow, lowest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ceilings: Vec<Ceiling>,
    /// The bottleneck; absent while nothing was sent.
    pub verdict: Option<Verdict>,
    /// The command for the other end, if this one cannot know the cause.
    pub needs_other_end: Option<Remedy>,
}

/// A connection once its slow start was over.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Settled {
    /// Its beginning, seconds since the first data.
    pub from_s: f64,
    /// Payload bits per second since then.
    pub throughput_bps: f64,
    /// TCP's figures since then.
    pub tcp: Option<TcpEvidence>,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name, as `/proc/PID/comm` has it.
    pub name: String,
}

/// The place from which a connection was observed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Vantage {
    /// At the end that sends most.
    Sender,
    /// At the end that receives most.
    Receiver,
    /// From packets somewhere between both.
    #[default]
    Between,
}

/// State of a connection (RFC 9293, 3.3.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are RFC 9293's")]
pub enum State {
    #[default]
    Established,
    SynSent,
    SynReceived,
    FinWait1,
    FinWait2,
    TimeWait,
    Closed,
    CloseWait,
    LastAck,
    Listen,
    Closing,
}

impl State {
    /// The state with the kernel's number (include/net/tcp_states.h).
    pub fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Established,
            2 => Self::SynSent,
            3 | 12 => Self::SynReceived,
            4 => Self::FinWait1,
            5 => Self::FinWait2,
            6 => Self::TimeWait,
            8 => Self::CloseWait,
            9 => Self::LastAck,
            10 => Self::Listen,
            11 => Self::Closing,
            _ => Self::Closed,
        }
    }
}

names! {
    /// The name that ss(8) prints.
    State::name: Established "ESTAB", SynSent "SYN-SENT", SynReceived "SYN-RECV",
        FinWait1 "FIN-WAIT-1", FinWait2 "FIN-WAIT-2", TimeWait "TIME-WAIT", Closed "CLOSED",
        CloseWait "CLOSE-WAIT", LastAck "LAST-ACK", Listen "LISTEN", Closing "CLOSING";
}

/// A listening socket.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Listener {
    /// Its address and port.
    pub local: String,
    /// The process that holds it, if it may be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// Connections that wait to be accepted.
    pub waiting: u64,
    /// The largest number of them.
    pub limit: u64,
    /// The source of that limit.
    pub limit_by: LimitSource,
    /// Connections in their handshake: its SYN backlog.
    pub half_open: u64,
    /// Connections that it dropped since it exists.
    pub dropped: u64,
}

/// The source of the limit of connections that may wait to be accepted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitSource {
    /// `net.core.somaxconn`.
    Somaxconn,
    /// The program's argument of `listen`.
    #[default]
    Program,
}

/// The drops of all listening sockets of a host since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListenTotals {
    /// Connections for which there was no room to wait.
    pub overflows: u64,
    /// Connections dropped for any reason.
    pub drops: u64,
    /// SYN cookies sent.
    pub syn_cookies: u64,
}

impl Listener {
    /// A socket at this address without any figures.
    pub fn new(local: impl Into<String>) -> Self {
        Self { local: local.into(), ..Self::default() }
    }
}

impl ConnectionsDocument {
    /// Reads a document.
    ///
    /// # Errors
    /// The text is not JSON, or not a document of connections.
    pub fn parse(json: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(json)
    }

    /// A document without connections.
    pub fn new(source: Source) -> Self {
        Self { schema: CONNECTIONS_SCHEMA.to_owned(), source, ..Self::default() }
    }

    /// Compares with an earlier document: the rate of all connections, and the round-trip time and
    /// bottleneck of the largest.
    pub fn compare_with(&mut self, before: &Self) {
        let direction = self.connections.first().map(|largest| largest.direction);
        let of = |document: &Self| document.observed(direction.unwrap_or_default());
        self.baseline = Some(of(before).until(&of(self)));
    }

    /// What the path's own rate says of the largest connection; `None` if it was not measured.
    pub fn beside_path(&self) -> Option<BesidePath> {
        let path_bps = self.path.as_ref()?.throughput_bps()?;
        let largest = self.connections.first()?;
        let is_of_path = |verdict: &Verdict| {
            use Cause::{Congestion, PathRate, Policer, QosClass};
            [Congestion, PathRate, Policer, QosClass].contains(&verdict.cause)
        };
        Some(match path_bps / largest.throughput_bps {
            ratio if ratio < 1.0 / SAME_RATE => BesidePath::More,
            ratio if ratio <= SAME_RATE => BesidePath::Full,
            _ if largest.verdict.as_ref().is_some_and(is_of_path) => BesidePath::Shared,
            _ => BesidePath::Own,
        })
    }

    /// The figures to compare; `direction` is the one that the bottleneck is shown with.
    fn observed(&self, direction: Direction) -> Observed {
        let total: f64 = self.connections.iter().map(|one| one.throughput_bps).sum();
        let largest = self.connections.first();
        let tcp = largest.and_then(|largest| largest.tcp.as_ref()?.sender());
        let cause = largest.and_then(|largest| Some(largest.verdict.as_ref()?.cause));
        Observed::figures_of(&self.started_at, [("throughput_bps", Some(total))])
            .with_detail("tcp.rtt_mean_us", tcp.map(|tcp| tcp.rtt_mean_us.into()))
            .with_bottleneck(direction, cause)
    }
}

impl Connection {
    /// A connection between two addresses without any figures.
    pub fn new(local: impl Into<String>, remote: impl Into<String>, vantage: Vantage) -> Self {
        Self {
            local: local.into(),
            remote: remote.into(),
            vantage,
            direction: match vantage {
                Vantage::Receiver => Direction::Down,
                Vantage::Sender | Vantage::Between => Direction::Up,
            },
            ..Self::default()
        }
    }

    /// Payload in the direction that has most of it, bytes.
    pub fn bytes(&self) -> u64 {
        match self.direction {
            Direction::Down => self.bytes_received,
            Direction::Up | Direction::Both => self.bytes_sent,
        }
    }

    /// The larger direction, as in a record.
    pub fn leg(&self) -> Leg {
        let (sender, receiver) = match self.vantage {
            Vantage::Sender => (self.end.clone(), None),
            Vantage::Receiver => (None, self.end.clone()),
            Vantage::Between => (None, None),
        };
        Leg {
            throughput_bps: Some(self.throughput_bps),
            bytes: self.bytes(),
            steps: self.steps,
            sender,
            receiver,
            tcp: self.tcp.clone(),
            ceilings: self.ceilings.clone(),
            verdict: self.verdict.clone(),
            ..Leg::new(self.direction)
        }
    }
}

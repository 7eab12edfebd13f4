//! The document of the connections of a host or of a capture.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::names::names;
use crate::plan::Direction;
use crate::record::{
    Baseline, BottleneckChange, Caveat, Ceiling, Change, EndReport, Environment, Interval, Leg,
    Status, StepRates, TcpEvidence, Verdict,
};
use crate::remedy::Remedy;

/// Schema of [`ConnectionsDocument`].
pub const CONNECTIONS_SCHEMA: &str = "linerate.connections/1";

/// TCP connections of any program, and what holds each back.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionsDocument {
    /// [`CONNECTIONS_SCHEMA`].
    pub schema: String,
    /// Whether they were watched for as long as planned.
    pub status: Status,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// Where they were seen.
    pub source: Source,
    /// Which were asked for, in words (`with port 443`); absent: all.
    pub asked: Option<String>,
    /// A few were asked to be explained: the page explains the largest, and does not list all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub explained: bool,
    /// How long they were watched, seconds.
    pub seconds: f64,
    /// The connections, that with the largest rate first.
    pub connections: Vec<Connection>,
    /// Sockets that listen, where they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<Listener>,
    /// What all of them dropped.
    pub listen_totals: Option<ListenTotals>,
    /// What has changed since an earlier document, which was asked for: an observation.
    pub baseline: Option<Baseline>,
    /// What to keep in mind.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
    /// The host, as its client's side; of a capture nothing is known.
    #[serde(default)]
    pub environment: Environment,
}

/// Where connections were seen.
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
    },
}

impl Default for Source {
    fn default() -> Self {
        let namespace = None;
        Self::Host { namespace }
    }
}

/// A TCP connection.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Connection {
    /// Address and port of this host; of a capture the initiator's.
    pub local: String,
    /// Address and port of the other end.
    pub remote: String,
    /// Its state at the end.
    pub state: State,
    /// The process that holds it, where that may be seen.
    pub process: Option<Process>,
    /// By which this host's kernel tells its sockets apart; in no document.
    #[serde(skip)]
    pub cookie: u64,
    /// From where it was seen.
    pub vantage: Vantage,
    /// `up`: `local` sends most of the payload. `down`: it receives most.
    pub direction: Direction,
    /// Payload that `local` sent, and that was acknowledged, while it was watched, bytes.
    pub bytes_sent: u64,
    /// Payload that `local` received meanwhile, bytes.
    pub bytes_received: u64,
    /// Payload bits per second in `direction`.
    pub throughput_bps: f64,
    /// How long it was watched, seconds.
    pub seconds: f64,
    /// It was made while it was watched, so that its slow start was seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub began: bool,
    /// It ended while it was watched.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// What its causes are looked for in, where its slow start is left out.
    pub settled: Option<Settled>,
    /// How even it was; absent where fewer than 16 steps were seen.
    pub steps: Option<StepRates>,
    /// What the kernel, or packets, tell of TCP.
    pub tcp: Option<TcpEvidence>,
    /// What `local`'s host, and the threads that own it, spent. `blocked_us` is here the time in
    /// which the socket took no more to send, or had nothing to be read.
    pub end: Option<EndReport>,
    /// Through the time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
    /// What each cause would let through, lowest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ceilings: Vec<Ceiling>,
    /// The bottleneck; absent while nothing was sent.
    pub verdict: Option<Verdict>,
    /// What to run at the other end, where this one cannot know the cause.
    pub needs_other_end: Option<Remedy>,
}

/// A connection once its slow start was over.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Settled {
    /// From when on, seconds since its first data.
    pub from_s: f64,
    /// Payload bits per second since then.
    pub throughput_bps: f64,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name, as `/proc/PID/comm` has it.
    pub name: String,
}

/// From where a connection was seen.
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
    /// By the kernel's number (include/net/tcp_states.h).
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

/// A socket that listens.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Listener {
    /// Its address and port.
    pub local: String,
    /// The process that holds it, where that may be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// Connections that wait to be accepted.
    pub waiting: u64,
    /// How many may.
    pub limit: u64,
    /// What set that limit.
    pub limit_by: LimitSource,
    /// Connections that are still being made: its SYN backlog.
    pub half_open: u64,
    /// Connections that it dropped since it was made.
    pub dropped: u64,
}

/// What limits how many connections may wait to be accepted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitSource {
    /// `net.core.somaxconn`.
    Somaxconn,
    /// What the program asked for in `listen`.
    #[default]
    Program,
}

/// What all listening sockets of a host dropped since it came up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListenTotals {
    /// Connections for which there was no room to wait.
    pub overflows: u64,
    /// Connections dropped, whatever the reason.
    pub drops: u64,
    /// SYN cookies sent.
    pub syn_cookies: u64,
}

impl Listener {
    /// At an address, of which nothing is known yet.
    pub fn new(local: impl Into<String>) -> Self {
        Self {
            local: local.into(),
            ..Self::default()
        }
    }
}

impl ConnectionsDocument {
    /// Reads a document.
    ///
    /// # Errors
    /// It is no JSON, or no document of connections.
    pub fn parse(json: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(json)
    }

    /// Of a source of which nothing was seen yet.
    pub fn new(source: Source) -> Self {
        Self {
            schema: CONNECTIONS_SCHEMA.to_owned(),
            source,
            ..Self::default()
        }
    }
}

impl Connection {
    /// Between two addresses, of which nothing is known yet.
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

    /// Its larger direction, as a record has it.
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

impl ConnectionsDocument {
    /// Sets an earlier document beside this one: the rate of all of them, and the largest one's
    /// round-trip time and bottleneck.
    pub fn compare_with(&mut self, before: &Self) {
        let total = |document: &Self| -> f64 {
            (document.connections.iter().map(|one| one.throughput_bps)).sum()
        };
        let rtt = |document: &Self| {
            let tcp = document.connections.first()?.tcp.as_ref()?;
            Some(f64::from(tcp.sender()?.rtt_mean_us))
        };
        let change = |metric: &str, was: f64, is: f64, headline| Change {
            metric: metric.to_owned(),
            was,
            is,
            change_percent: 100.0 * (is / was - 1.0),
            was_interval: None,
            is_interval: None,
            was_quartiles: None,
            is_quartiles: None,
            headline,
        };
        let mut changes = Vec::new();
        if total(before) > 0.0 {
            changes.push(change("throughput_bps", total(before), total(self), true));
        }
        if let (Some(was), Some(is)) = (rtt(before).filter(|rtt| *rtt > 0.0), rtt(self)) {
            changes.push(change("tcp.rtt_mean_us", was, is, false));
        }
        let cause = |document: &Self| Some(document.connections.first()?.verdict.as_ref()?.cause);
        let causes = cause(before).zip(cause(self));
        let bottlenecks = causes.map(|(was, is)| BottleneckChange {
            direction: self.connections[0].direction,
            was,
            is,
        });
        self.baseline = Some(Baseline {
            started_at: before.started_at.clone(),
            changes,
            bottlenecks: bottlenecks.into_iter().collect(),
        });
    }
}

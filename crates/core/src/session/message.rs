//! What the two ends of a control connection say to each other.
//!
//! A message that this version does not know is an error of its own kind, so that a peer can be
//! told; a field that it does not know is skipped. What can be asked for is in
//! [`super::operation`].

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::bounds::Bounded;
use super::operation::{Reply, Request};
use crate::capacity::HoldProgress;
use crate::plan::Direction;
use crate::profile::EndProfile;
use crate::record::{Caveat, EndReport, HostFacts, TcpEvidence, TcpSample};
use crate::stats::LatencyBuckets;

/// Longest body that an endpoint takes from a client.
pub const MAX_CLIENT_FRAME: usize = 64 << 10;
/// Longest body that a client takes from an endpoint: a report of 256 flows with their samples.
pub const MAX_SERVER_FRAME: usize = 8 << 20;
/// Client to endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum ClientMessage {
    /// First: who is there.
    Introduce {
        /// Version of the client's linerate.
        software: String,
    },
    /// Asks for an operation.
    Ask(Request),
    /// All flows are there: begin.
    Begin {
        /// By the endpoint's clock (see [`super::operation::Clock`]), µs; absent is at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_us: Option<u64>,
    },
    /// Still here; sent at least every second while a test runs or connections are held.
    Alive,
    /// No more tests.
    Bye,
}

/// Endpoint to client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum ServerMessage {
    /// Answer to `Introduce`.
    Welcome(Box<Welcome>),
    /// No: to `Introduce`, to an operation, or at any time.
    Refuse(Refusal),
    /// Answer to `Ask`.
    Answer(Reply),
    /// All flows of a test are bound.
    Ready,
    /// While a test runs, at least every second.
    Progress(Progress),
    /// The endpoint has received, or sent, all that it was to.
    Finished,
    /// While connections are held, at least every second.
    Held(HoldProgress),
}

impl ClientMessage {
    /// Reads a message of a client. serde_json bounds the nesting at 128 levels.
    ///
    /// # Errors
    /// The bytes are no JSON, or none of these messages.
    pub fn parse(body: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(body)
    }
}

impl ServerMessage {
    /// Reads a message of an endpoint, none of whose counts is so large that summing them
    /// overflows.
    ///
    /// # Errors
    /// As [`ClientMessage::parse`], and for absurd figures.
    pub fn parse(body: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice::<Bounded>(body)?;
        serde_json::from_slice(body)
    }
}

/// What an endpoint is and allows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// Version of the endpoint's linerate.
    pub software: String,
    /// Names the session to its data connections: 32 hexadecimal digits.
    pub token: String,
    /// The [`Request::names`] of what the endpoint can do and its owner allows.
    pub operations: Vec<String>,
    /// What its owner allows.
    pub limits: Limits,
    /// Its host.
    pub facts: Box<HostFacts>,
}

impl Welcome {
    /// Whether the endpoint has an operation of that name.
    pub fn has(&self, operation: &str) -> bool {
        self.operations.iter().any(|name| name == operation)
    }
}

/// What the owner of an endpoint allows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Clients at once.
    pub clients: u32,
    /// Flows of a test, over both directions.
    pub streams: u32,
    /// Length of a test with its warm-up, seconds.
    pub seconds: f64,
    /// Rate of a test over all its flows, bits per second; `None` is without limit.
    pub rate_bps: Option<u64>,
    /// TCP connections that a client of `capacity` may hold, and UDP sockets; 0 of an endpoint that
    /// holds none.
    #[serde(default)]
    pub connections: u64,
}

/// Why not, with the number that decided it where there is one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// For programs.
    pub reason: RefusalReason,
    /// For people, with the number.
    pub message: String,
}

/// Kinds of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalReason {
    /// As many clients as allowed are there, or another client needs the host as it is.
    Busy,
    /// The endpoint has a key and the client none, or another.
    Key,
    /// Another version.
    Version,
    /// More than the owner allows.
    Limit,
    /// The test makes no sense, or this host cannot do it.
    Test,
    /// The owner allows no treatments, or this one is none of the table, or this host cannot do it.
    Treatment,
    /// The message was not understood or came out of turn.
    Protocol,
    /// The endpoint failed.
    Failed,
    /// It is shutting down.
    Stopping,
    /// The client was too slow.
    Timeout,
    /// A reason that this version does not know.
    #[serde(other)]
    Other,
}

/// What the endpoint has received so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Since `Begin`, seconds.
    pub at_s: f64,
    /// Payload received over all its receiving flows since `Begin`, bytes.
    pub received_bytes: u64,
}

/// One end's account of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HalfReport {
    /// Each flow as this end saw it.
    pub flows: Vec<FlowHalf>,
    /// What this end spent as a sender and as a receiver; one host, so the host-wide figures are
    /// equal.
    pub end: EndReport,
    /// Its host.
    pub facts: Box<HostFacts>,
    /// Its own doubts.
    pub caveats: Vec<Caveat>,
    /// What its CPUs did, where the client asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Box<EndProfile>>,
}

impl HalfReport {
    /// Whether this can be the account of a test of `flows` flows.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, flows: u32) -> Result<(), String> {
        let mut seen = HashSet::new();
        for flow in &self.flows {
            let id = flow.id;
            if id >= flows || !seen.insert(id) {
                return Err(format!("a report of flow {id} in a test of {flows}"));
            }
            // A clock counts whole nanoseconds: a shorter time would make a rate without bound.
            if flow.seconds != 0.0 && !(1e-9..=LONGEST_RUN).contains(&flow.seconds) {
                return Err(format!("a report of {:e} s", flow.seconds));
            }
        }
        match &self.profile {
            Some(profile) => profile.check(),
            None => Ok(()),
        }
    }

    /// Drops every second entry of each flow's course until the report takes at most `limit` bytes.
    /// The entries are running totals, so that this merges neighbours; the last one stays. The
    /// profile has half of the limit for itself.
    pub(crate) fn thin_to(&mut self, limit: usize) {
        if let Some(profile) = &mut self.profile {
            profile.thin_to(limit / 2);
        }
        let longest = |report: &Self| {
            let lengths = report
                .flows
                .iter()
                .map(|f| f.steps.len().max(f.samples.len()));
            lengths.max().unwrap_or(0)
        };
        while longest(self) > 1 && serde_json::to_vec(self).is_ok_and(|json| json.len() > limit) {
            for flow in &mut self.flows {
                keep_every_second(&mut flow.steps);
                keep_every_second(&mut flow.samples);
            }
        }
    }
}

/// Keeps the last entry, the last but two, and so on: with running totals that merges neighbours.
pub fn keep_every_second<T>(entries: &mut Vec<T>) {
    let mut left = entries.len();
    entries.retain(|_| {
        left -= 1;
        left.is_multiple_of(2)
    });
}

/// Seconds; far more than any owner allows.
const LONGEST_RUN: f64 = 1e7;

/// One end's account of one flow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowHalf {
    /// Number of the flow.
    pub id: u32,
    /// Which way its payload goes.
    pub direction: Direction,
    /// Whether this end is the sender.
    pub sends: bool,
    /// Local address and port.
    pub local: String,
    /// Remote address and port.
    pub remote: String,
    /// Payload bytes sent or received in the measured time.
    pub bytes: u64,
    /// Messages written, datagrams sent or received, in the measured time.
    pub messages: u64,
    /// The measured time at this end, seconds.
    pub seconds: f64,
    /// Payload received (or sent) by the end of each sampling step: (µs since measured time began,
    /// bytes since then).
    #[serde(default)]
    pub steps: Vec<(u64, u64)>,
    /// TCP's evidence of this end.
    #[serde(default)]
    pub tcp: Option<TcpEvidence>,
    /// Its course.
    #[serde(default)]
    pub samples: Vec<TcpSample>,
    /// UDP as sent.
    #[serde(default)]
    pub udp_sent: Option<UdpSent>,
    /// UDP as received.
    #[serde(default)]
    pub udp_received: Option<UdpReceived>,
    /// Bytes that differ from the pattern.
    #[serde(default)]
    pub corrupted_bytes: Option<u64>,
    /// CPU share of this flow's thread, percent of one CPU.
    #[serde(default)]
    pub thread_percent: f64,
    /// How its bytes were handed over or taken.
    #[serde(default)]
    pub method: Option<String>,
    /// When this end handed over its first byte, or took it, since the beginning that it was told
    /// or, without one, its own, µs.
    #[serde(default)]
    pub first_us: Option<f64>,
}

impl FlowHalf {
    /// A flow of which nothing is known yet.
    pub fn new(id: u32, direction: Direction, sends: bool) -> Self {
        Self {
            id,
            direction,
            sends,
            ..Self::default()
        }
    }
}

/// What a UDP sender counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UdpSent {
    /// Datagrams handed to the kernel in the measured time.
    pub sent: u64,
    /// Those before it, where they are numbered on (iperf3).
    pub omitted: u64,
    /// Sends refused for want of buffers.
    pub refused: u64,
    /// Gaps between departures, ns.
    pub gaps: Option<LatencyBuckets>,
}

/// What a UDP receiver counted of the measured phase.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UdpReceived {
    /// Different datagrams.
    pub received: u64,
    /// Again.
    pub duplicated: u64,
    /// After a later one.
    pub reordered: u64,
    /// Dropped by the socket's buffer, over the whole flow; `None` where it is not told.
    pub socket_drops: Option<u64>,
    /// RFC 3550 jitter, ns.
    pub jitter_ns: f64,
    /// Not linerate's or altered.
    pub malformed: u64,
    /// A packet train as it arrived.
    pub train: Option<Train>,
    /// Datagrams that must have been sent by the last one seen, where the receiver alone tells the
    /// phases apart (iperf3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<u64>,
    /// Those numbered before the measured time, where they are numbered on (iperf3).
    pub omitted: u64,
}

/// A packet train from its first datagram to arrive to its last, by the clock of the receiver's
/// kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Train {
    /// Datagrams after the first.
    pub datagrams: u64,
    /// From the first's arrival to the last's, ns.
    pub nanoseconds: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(id: u32, entries: u64) -> FlowHalf {
        FlowHalf {
            bytes: 1,
            messages: 1,
            seconds: 1.0,
            steps: (0..entries).map(|n| (n, n)).collect(),
            ..FlowHalf::new(id, Direction::Up, true)
        }
    }

    fn report(flows: Vec<FlowHalf>) -> HalfReport {
        HalfReport {
            flows,
            ..HalfReport::default()
        }
    }

    #[test]
    fn a_report_is_thinned_to_its_limit_and_keeps_its_ends() {
        let mut long = report((0..8).map(|id| flow(id, 1000)).collect());
        long.thin_to(20_000);
        assert!(serde_json::to_vec(&long).unwrap().len() <= 20_000);
        for flow in &long.flows {
            assert!(flow.steps.len() > 50, "{}", flow.steps.len());
            assert_eq!(flow.steps.last(), Some(&(999, 999)));
        }
        let mut short = report(vec![flow(0, 100)]);
        short.thin_to(20_000);
        assert_eq!(short.flows[0].steps.len(), 100);
    }

    #[test]
    fn a_report_of_another_test_is_told() {
        assert_eq!(report(vec![flow(0, 1), flow(1, 1)]).check(2), Ok(()));
        assert!(report(vec![flow(2, 1)]).check(2).is_err());
        assert!(report(vec![flow(1, 1), flow(1, 1)]).check(2).is_err());
        for seconds in [-1.0, 1e-300, 1e300] {
            let mut absurd = report(vec![flow(0, 1)]);
            absurd.flows[0].seconds = seconds;
            assert!(absurd.check(1).is_err(), "{seconds}");
        }
    }

    #[test]
    fn counts_that_would_overflow_are_refused_and_rates_are_not() {
        let progress =
            |bytes: &str| format!(r#"{{"say":"progress","at_s":1,"received_bytes":{bytes}}}"#);
        assert!(ServerMessage::parse(progress("36028797018963968").as_bytes()).is_ok());
        for absurd in ["18446744073709551615", "1e300", "-1", "null", "[]"] {
            assert!(
                ServerMessage::parse(progress(absurd).as_bytes()).is_err(),
                "{absurd}"
            );
        }
        let rate =
            br#"{"say":"welcome","software":"","token":"","operations":[],"limits":{"clients":1,
            "streams":1,"seconds":1,"rate_bps":18446744073709551615},"facts":{}}"#;
        let read = ServerMessage::parse(rate);
        assert!(matches!(&read, Ok(ServerMessage::Welcome(_))), "{read:?}");
    }

    #[test]
    fn nesting_is_bounded() {
        let deep = [b'['; 60_000];
        assert!(ClientMessage::parse(&deep).is_err());
        assert!(ServerMessage::parse(&deep).is_err());
    }
}

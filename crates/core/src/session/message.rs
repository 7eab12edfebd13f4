//! The messages of the two ends of a control connection.
//!
//! A message that this version does not know is an error; a field that it does not know is skipped.
//! The requests are in [`super::operation`].

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::admission::Bounded;
use super::operation::{Reply, Request};
use crate::capacity::HoldProgress;
use crate::plan::Direction;
use crate::profile::EndProfile;
use crate::record::{Caveat, EndReport, HostFacts, TcpEvidence, TcpSample};
use crate::stats::LatencyBuckets;

/// Longest body that an endpoint takes from a client.
pub const MAX_CLIENT_FRAME: usize = 64 << 10;
/// Longest body that a client takes from an endpoint: a report of 256 flows with their samples.
pub(super) const MAX_SERVER_FRAME: usize = 8 << 20;

/// Client to endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum ClientMessage {
    /// First: introduces the client.
    Introduce {
        /// Version of the client's linerate.
        software: String,
    },
    /// Asks for an operation.
    Ask(Request),
    /// All flows are bound: begin.
    Begin {
        /// The time by the endpoint's clock (see [`super::operation::Clock`]), µs; absent: at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_us: Option<u64>,
    },
    /// A sign of life, sent at least every second while a test runs or connections are held.
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
    /// Refuses the introduction, an operation, or the session at any time.
    Refuse(Refusal),
    /// Answer to `Ask`.
    Answer(Reply),
    /// All flows of a test are bound.
    Ready,
    /// Sent at least every second while a test runs.
    Progress(Progress),
    /// The endpoint has received or sent all of its part.
    Finished,
    /// Sent at least every second while connections are held.
    Held(HoldProgress),
}

impl ClientMessage {
    /// Reads a message of a client. serde_json bounds the nesting at 128 levels.
    ///
    /// # Errors
    /// The bytes are not JSON, or not one of these messages.
    pub fn parse(body: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(body)
    }
}

impl ServerMessage {
    /// Reads a message of an endpoint. Its counts are small enough to be summed without overflow.
    ///
    /// # Errors
    /// As [`ClientMessage::parse`], and if a figure is absurd.
    pub fn parse(body: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice::<Bounded>(body)?;
        serde_json::from_slice(body)
    }
}

/// The endpoint with its limits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// Version of the endpoint's linerate.
    pub software: String,
    /// The session's name for its data connections: 32 hexadecimal digits.
    pub token: String,
    /// The [`Request::names`] of the operations that the endpoint has and its owner allows.
    pub operations: Vec<String>,
    /// Its owner's limits.
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

/// The limits that the owner of an endpoint sets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Clients at once.
    pub clients: u32,
    /// Flows of a test, over both directions.
    pub streams: u32,
    /// Length of a test with its warm-up, seconds.
    pub seconds: f64,
    /// Rate of a test over all its flows, bits per second; `None`: no limit.
    pub rate_bps: Option<u64>,
    /// TCP connections or UDP sockets that a client of `capacity` may hold; 0: none.
    #[serde(default)]
    pub connections: u64,
}

/// The reason of a refusal, with the number that decided it, if there is one.
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
    /// The limit of clients is reached, or another client needs the host unchanged.
    Busy,
    /// The endpoint has a key, and the client has none or a different one.
    Key,
    /// A different version.
    Version,
    /// More than the owner allows.
    Limit,
    /// The test is meaningless, or this host cannot run it.
    Test,
    /// The owner allows no treatments, or the table does not have this one, or this host cannot
    /// apply it.
    Treatment,
    /// The message is unknown or came out of turn.
    Protocol,
    /// The endpoint failed.
    Failed,
    /// The endpoint is shutting down.
    Stopping,
    /// The client was too slow.
    Timeout,
    /// A reason that this version does not know.
    #[serde(other)]
    Other,
}

/// The progress of a test at the endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Time since `Begin`, seconds.
    pub at_s: f64,
    /// Payload that it received over all flows since `Begin`, bytes.
    pub received_bytes: u64,
}

/// One end's report of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HalfReport {
    /// Each flow as this end saw it.
    pub flows: Vec<FlowHalf>,
    /// The cost of sending and of receiving at this end. Figures of the whole host are equal in
    /// both.
    pub end: EndReport,
    /// Its host.
    pub facts: Box<HostFacts>,
    /// Caveats that this end noticed.
    pub caveats: Vec<Caveat>,
    /// The profile of its CPUs, if the client asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Box<EndProfile>>,
}

impl HalfReport {
    /// Checks whether this can be the report of a test of `flows` flows.
    ///
    /// # Errors
    /// The first contradiction.
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

    /// Drops every second entry of each flow's steps and samples until the report takes at most
    /// `limit` bytes. The profile takes at most half of it.
    pub(crate) fn thin_to(&mut self, limit: usize) {
        if let Some(profile) = &mut self.profile {
            profile.thin_to(limit / 2);
        }
        let longest = |report: &Self| {
            let flows = report.flows.iter();
            let lengths = flows.map(|flow| flow.steps.len().max(flow.samples.len()));
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

/// Keeps the last entry, the last but two, and so on. Entries that are running totals are thereby
/// merged.
pub fn keep_every_second<T>(entries: &mut Vec<T>) {
    let mut left = entries.len();
    entries.retain(|_| {
        left -= 1;
        left.is_multiple_of(2)
    });
}

/// Longest credible run, seconds: far more than any owner allows.
const LONGEST_RUN: f64 = 1e7;

/// One end's report of one flow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowHalf {
    /// Number of the flow.
    pub id: u32,
    /// Direction of its payload.
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
    pub steps: Vec<(u64, u64)>,
    /// TCP's evidence at this end.
    pub tcp: Option<TcpEvidence>,
    /// TCP's state during the run.
    pub samples: Vec<TcpSample>,
    /// Counts of a UDP sender.
    pub udp_sent: Option<UdpSent>,
    /// Counts of a UDP receiver.
    pub udp_received: Option<UdpReceived>,
    /// Bytes that differ from the pattern.
    pub corrupted_bytes: Option<u64>,
    /// CPU share of this flow's thread, percent of one CPU.
    pub thread_percent: f64,
    /// The method of sending or receiving.
    pub method: Option<String>,
    /// Time of the first byte that this end sent or received, since the beginning that it was told
    /// or, without one, its own, µs.
    pub first_us: Option<f64>,
}

impl FlowHalf {
    /// A flow without any figures.
    pub fn new(id: u32, direction: Direction, sends: bool) -> Self {
        Self { id, direction, sends, ..Self::default() }
    }
}

/// The counts of a UDP sender.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UdpSent {
    /// Datagrams handed to the kernel in the measured time.
    pub sent: u64,
    /// Datagrams before it, if their numbers continue (iperf3).
    pub omitted: u64,
    /// Sends refused for lack of buffers.
    pub refused: u64,
    /// Gaps between departures, ns.
    pub gaps: Option<LatencyBuckets>,
}

/// The counts of a UDP receiver in the measured time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UdpReceived {
    /// Different datagrams.
    pub received: u64,
    /// Datagrams that had arrived before.
    pub duplicated: u64,
    /// Datagrams that arrived after a later one.
    pub reordered: u64,
    /// Datagrams missing before the last that arrived, and the runs that their numbers make; `None`
    /// if the receiver does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<(u64, u64)>,
    /// Datagrams dropped at the socket's buffer in the measured time; `None` if unknown.
    pub socket_drops: Option<u64>,
    /// RFC 3550 jitter, ns.
    pub jitter_ns: f64,
    /// Mean one-way delay over the smallest of the flow, ns; `None` where it was not measured.
    pub added_delay_ns: Option<f64>,
    /// Growth of the one-way delay, ns for each ns of sending, and its standard error; `None` where
    /// it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_growth: Option<(f64, f64)>,
    /// Standard deviation over mean of the distances between losses.
    pub loss_spacing_variation: Option<f64>,
    /// Datagrams that are not linerate's or were altered.
    pub malformed: u64,
    /// The arrival of a packet train.
    pub train: Option<Train>,
    /// Datagrams sent according to the last one's number, if only the receiver separates the phases
    /// (iperf3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<u64>,
    /// Datagrams with numbers from before the measured time, if their numbers continue (iperf3).
    pub omitted: u64,
}

/// The arrival of a packet train, by the clock of the receiver's kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Train {
    /// Datagrams after the first, up to where one is missing.
    pub datagrams: u64,
    /// Time from the arrival of the first to that of the last of them, ns, if all came at the pace
    /// of the second half.
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
        HalfReport { flows, ..HalfReport::default() }
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
            assert!(ServerMessage::parse(progress(absurd).as_bytes()).is_err(), "{absurd}");
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

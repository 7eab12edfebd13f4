//! The protocols of other measuring tools: an endpoint serves their clients, and a client uses
//! their servers.
//!
//! Each protocol is a module of pure state machines of the shape of [`crate::session`]: bytes and
//! time in, bytes and events out. Shared by all are the [`Tool`], [`ForeignRun`], which makes the
//! record of a test of which only one end is linerate's, and [`Demand`], what a client asks of the
//! owner's limits.

pub mod iperf3;
pub mod netperf;

use crate::assemble::{ExchangeTotals, Run};
use crate::ceilings;
use crate::plan::{Direction, Test, Traffic};
pub use crate::record::Tool;
use crate::record::{Caveat, CaveatKind, EndReport, Record, Status, TcpEvidence};
use crate::session::message::{FlowHalf, HalfReport, Limits};
use crate::units::{BitRate, Family};

// The demand of a client, checked against the owner's limits.

/// What a test would need.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// Flows over both directions.
    pub streams: u32,
    /// Length with its warm-up, seconds; `None` if it ends by an amount, and is cut off at the
    /// owner's limit.
    pub seconds: Option<f64>,
    /// Rate over all flows, bits per second, if this end cannot slow them: that of datagrams.
    pub rate_bps: Option<u64>,
}

/// The limit that a test exceeds, in words with the numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Excess {
    /// Too many flows.
    Streams(String),
    /// Too long.
    Seconds(String),
    /// Too fast.
    Rate(String),
}

impl Excess {
    /// The message for the log.
    pub fn message(&self) -> &str {
        match self {
            Self::Streams(text) | Self::Seconds(text) | Self::Rate(text) => text,
        }
    }
}

impl Demand {
    /// The first limit that the test exceeds. A rate that is not limited at all exceeds any limit.
    pub fn excess(&self, limits: &Limits) -> Option<Excess> {
        let (streams, allowed) = (self.streams, limits.streams);
        if streams > allowed {
            let text = format!("{streams} flows, where the owner allows {allowed}");
            return Some(Excess::Streams(text));
        }
        let allowed = limits.seconds;
        if let Some(seconds) = self.seconds.filter(|seconds| *seconds > allowed) {
            let text = format!("{seconds} s, where the owner allows {allowed} s");
            return Some(Excess::Seconds(text));
        }
        let (rate, allowed) = (BitRate(self.rate_bps?), BitRate(limits.rate_bps?));
        let text = || format!("{rate}, where the owner allows {allowed}");
        (rate > allowed).then(|| Excess::Rate(text()))
    }
}

// The record of a test with another tool at the far end.

/// Which end of the test linerate was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The endpoint, which served a client of the tool's.
    Served,
    /// The client of the tool's server.
    Used,
}

/// A test with another tool, as linerate's end knows it afterwards.
#[derive(Debug, Clone)]
pub struct ForeignRun {
    /// The tool at the other end.
    pub tool: Tool,
    /// Its version, if it tells it.
    pub version: Option<String>,
    /// The end that linerate was.
    pub role: Role,
    /// The test, as seen from the client: `Up` is client to server.
    pub test: Test,
    /// The serving end: the name that the client's user gave it, or the address at which the client
    /// reached it.
    pub host: String,
    /// Address and port of the serving end; those of the client are in the flows.
    pub peer: String,
    /// Address family.
    pub family: Family,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// Whether it ended as planned.
    pub status: Status,
    /// This end's report.
    pub here: HalfReport,
    /// What the other end reported, if it is credible: counts of its flows, CPU time of its host.
    pub there: Option<HalfReport>,
    /// Totals of the requests, if this end sent them.
    pub exchange: Option<ExchangeTotals>,
}

impl ForeignRun {
    /// The record with ceilings and verdict, from what this end has seen. A caveat names what it
    /// cannot know.
    pub fn into_record(mut self) -> Record {
        let has_account = |half: &HalfReport| half.end != EndReport::default();
        let accounted = self.there.as_ref().is_some_and(has_account);
        let (role, tool) = (self.role, self.tool);
        self.here.caveats.extend(self.doubts());
        let (client, server) = match role {
            Role::Used => (self.here, self.there),
            Role::Served => (self.there.unwrap_or_default(), Some(self.here)),
        };
        let run = Run {
            test: self.test,
            host: self.host,
            peer: self.peer,
            family: self.family,
            started_at: self.started_at,
            status: self.status,
            client,
            server,
            exchange: self.exchange,
        };
        let mut record = run.into_record();
        record.via = Some(tool);
        record.served = role == Role::Served;
        if !accounted {
            forget_other(&mut record, role);
        }
        ceilings::annotate(&mut record);
        record
    }

    /// Whether the protocol lets the other end report on such a test.
    fn reports(&self) -> bool {
        match (self.tool, self.role) {
            (Tool::Iperf3, _) => true,
            (Tool::Netperf, Role::Used) => matches!(self.test.traffic, Traffic::Stream(_)),
            (Tool::Netperf, Role::Served) | (Tool::Ttcp | Tool::Stamp, _) => false,
        }
    }

    /// What this record lacks compared with one of two linerate ends.
    fn doubts(&self) -> Vec<Caveat> {
        let mut doubts = Vec::new();
        let version = self.version.as_deref().unwrap_or_default();
        let name = format!("{} {version}", self.tool);
        let sends = self.here.flows.iter().any(|flow| flow.sends);
        let receives = self.here.flows.iter().any(|flow| !flow.sends);
        let lacks = match (sends, receives) {
            (true, false) => "the receiver's CPU, buffers and drops",
            (false, true) => "the sender's windows, losses and CPU",
            _ => "its windows, losses, buffers and CPU",
        };
        let intervals = if sends { "; the intervals are as sent, not as received" } else { "" };
        doubts.push(Caveat::new(
            CaveatKind::OtherTool,
            format!(
                "the other end is {}: {lacks} are not known, so a cause that lies there cannot be \
                 told{intervals}",
                name.trim()
            ),
            "run linerate at both ends",
        ));
        if self.there.is_none() && self.reports() {
            doubts.push(Caveat::new(
                CaveatKind::Partial,
                format!("{} reported nothing credible of its half", self.tool),
                "run it again, or linerate at both ends",
            ));
        }
        doubts
    }
}

/// Removes the report of an end that told nothing of its host: it would consist of zeros.
fn forget_other(record: &mut Record, role: Role) {
    // The client sends `up`; the other end is the client if this one served.
    let other_sends_up = role == Role::Served;
    for leg in &mut record.legs {
        if (leg.direction == Direction::Down) == other_sends_up {
            leg.receiver = None;
        } else {
            leg.sender = None;
        }
    }
}

// The other end's account of a flow, checked against what this end has seen of it.

/// Whether the other end can have counted that many bytes of a flow that this end has seen: a
/// receiver has no more than was sent, and a sender no more than any link carries. A warm-up ends
/// at different moments at the two ends, so that twice as much is still possible.
fn are_possible(bytes: u64, flow: &FlowHalf) -> bool {
    let beyond = if flow.sends { 1 << 30 } else { (flow.seconds.max(1.0) * FASTEST_LINK) as u64 };
    bytes <= 2 * flow.bytes + beyond
}

/// The other end's half of `flow`, from its counts. Without messages or a plausible time those of
/// this end are taken. Of a kernel that sent TCP nothing more is known than the segments that it
/// retransmitted.
fn other_half(
    flow: &FlowHalf,
    bytes: u64,
    messages: Option<u64>,
    seconds: Option<f64>,
    retransmitted: Option<u64>,
) -> FlowHalf {
    let plausible = flow.seconds / 2.0..=flow.seconds * 2.0;
    let seconds = seconds.filter(|seconds| plausible.contains(seconds));
    let sends = !flow.sends;
    let retransmitted = retransmitted.filter(|_| sends && flow.tcp.is_some());
    FlowHalf {
        local: flow.remote.clone(),
        remote: flow.local.clone(),
        bytes,
        messages: messages.unwrap_or(flow.messages),
        seconds: seconds.unwrap_or(flow.seconds),
        tcp: retransmitted.map(TcpEvidence::told),
        ..FlowHalf::new(flow.id, flow.direction, sends)
    }
}

/// Rate that no link exceeds, bytes per second.
const FASTEST_LINK: f64 = 1e12 / 8.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ceilings::Cause;
    use crate::foreign::iperf3::{Params, Results};
    use crate::plan::{Direction, Protocol};
    use crate::record::{CpuSeconds, EndReport, TcpEvidence, TcpReceiver, TcpSender};
    use crate::session::message::{FlowHalf, UdpSent};

    const LIMITS: Limits =
        Limits { connections: 0, clients: 4, streams: 8, seconds: 10.0, rate_bps: Some(1_000_000) };
    const MODEST: Demand = Demand { streams: 8, seconds: Some(10.0), rate_bps: Some(1_000_000) };

    #[test]
    fn the_owners_limit_is_allowed_and_one_more_is_an_excess() {
        assert_eq!(MODEST.excess(&LIMITS), None);
        let streams = Demand { streams: 9, ..MODEST };
        let seconds = Demand { seconds: Some(10.1), ..MODEST };
        let rate = Demand { rate_bps: Some(1_000_001), ..MODEST };
        assert!(matches!(streams.excess(&LIMITS), Some(Excess::Streams(_))));
        assert!(matches!(seconds.excess(&LIMITS), Some(Excess::Seconds(_))));
        assert!(matches!(rate.excess(&LIMITS), Some(Excess::Rate(_))));
        let unlimited = Limits { rate_bps: None, ..LIMITS };
        assert_eq!(rate.excess(&unlimited), None);
    }

    fn test_of(direction: Direction) -> Test {
        let json = br#"{"tcp":true,"time":1,"parallel":1,"len":131072}"#;
        let mut params = Params::parse(json).unwrap();
        params.direction = direction;
        params.to_test(1)
    }

    /// A gigabyte in a second, of which this end's kernel has seen its part.
    fn here(direction: Direction, sends: bool) -> HalfReport {
        let tcp = if sends {
            TcpEvidence::from(TcpSender {
                mss_bytes: 1448,
                rtt_mean_us: 1000,
                busy_us: Some(1_000_000),
                ..TcpSender::default()
            })
        } else {
            TcpReceiver::default().into()
        };
        let flow = FlowHalf {
            local: "198.18.0.1:5201".into(),
            remote: "198.18.0.2:40000".into(),
            bytes: 1_000_000_000,
            messages: 8000,
            seconds: 1.0,
            steps: vec![(500_000, 500_000_000), (1_000_000, 1_000_000_000)],
            tcp: Some(tcp),
            thread_percent: 20.0,
            ..FlowHalf::new(0, direction, sends)
        };
        HalfReport {
            flows: vec![flow],
            end: EndReport {
                cpu_seconds: CpuSeconds { user: 0.0, system: 0.2 },
                cpus: 4,
                busiest_thread_percent: Some(20.0),
                host_cpu_percent: Some(10.0),
                ..EndReport::default()
            },
            ..HalfReport::default()
        }
    }

    fn of(role: Role, here: HalfReport) -> ForeignRun {
        ForeignRun {
            tool: Tool::Iperf3,
            version: Some("3.12".into()),
            role,
            test: test_of(Direction::Up),
            host: "pit".into(),
            peer: "198.18.0.1:5201".into(),
            family: Family::Ipv4,
            started_at: String::new(),
            status: Status::Complete,
            there: None,
            here,
            exchange: None,
        }
    }

    fn record(role: Role, direction: Direction, told: bool) -> Record {
        let sends = (role == Role::Used) == (direction == Direction::Up);
        let here = here(direction, sends);
        let json = br#"{"cpu_util_user":1,"cpu_util_system":99,"sender_has_retransmits":1,
            "streams":[{"id":1,"bytes":990000000,"retransmits":7,"end_time":1.0}]}"#;
        let results = Results::parse(json, 1).unwrap();
        ForeignRun {
            test: test_of(direction),
            there: told.then(|| results.to_half(&here, false)),
            ..of(role, here)
        }
        .into_record()
    }

    #[test]
    fn goodput_is_the_receivers_whichever_end_it_is() {
        let bytes = |role, direction| record(role, direction, true).bytes();
        assert_eq!(bytes(Role::Served, Direction::Up), 1_000_000_000);
        assert_eq!(bytes(Role::Served, Direction::Down), 990_000_000);
        assert_eq!(bytes(Role::Used, Direction::Up), 990_000_000);
        assert_eq!(bytes(Role::Used, Direction::Down), 1_000_000_000);
    }

    #[test]
    fn no_verdict_is_of_a_host_that_nobody_has_looked_at() {
        for role in [Role::Served, Role::Used] {
            for direction in [Direction::Up, Direction::Down] {
                let record = record(role, direction, true);
                let here_sends = (role == Role::Used) == (direction == Direction::Up);
                let theirs = if here_sends {
                    [Cause::CpuReceive, Cause::ApplicationReceive]
                } else {
                    [Cause::CpuSend, Cause::ApplicationSend]
                };
                let verdict = record.verdict().map(|verdict| verdict.cause);
                assert!(verdict.is_some_and(|cause| !theirs.contains(&cause)), "{verdict:?}");
                let doubt = record.caveats.iter().find(|c| c.kind == CaveatKind::OtherTool);
                assert!(doubt.is_some_and(|doubt| doubt.message.contains("iperf3 3.12")));
            }
        }
    }

    /// The receiver's kernel has an MSS and a round-trip time, too, and they limit nothing.
    #[test]
    fn no_ceiling_is_of_the_receivers_kernel_where_the_other_end_sends() {
        for role in [Role::Served, Role::Used] {
            for direction in [Direction::Up, Direction::Down] {
                let record = record(role, direction, true);
                let here_sends = (role == Role::Used) == (direction == Direction::Up);
                let verdict = record.verdict().expect("a verdict");
                let is_unknown = |line: &String| line.contains("run linerate at both ends");
                assert_eq!(verdict.evidence.iter().any(is_unknown), !here_sends);
                let is_of_kernel = |key: &String| key.contains("rtt") || key.contains("mss");
                let mut inputs = record.legs[0].ceilings.iter().flat_map(|c| c.inputs.keys());
                assert_eq!(inputs.any(is_of_kernel), here_sends);
            }
        }
    }

    #[test]
    fn retransmissions_of_a_client_are_known_from_the_client_alone() {
        let record = record(Role::Served, Direction::Up, true);
        let tcp = record.legs[0].tcp.as_ref().unwrap();
        assert_eq!(tcp.retransmitted_segments(), Some(7));
        assert_eq!(tcp.sender(), None, "that is not the receiver's");
        assert!(tcp.receiver.is_some());
        let json = serde_json::to_value(&record).unwrap();
        assert_eq!(json["tcp"]["retransmitted_segments"], 7);
        assert_eq!(json["tcp"].get("mss_bytes"), None);
        let mut read: Record = serde_json::from_value(json).unwrap();
        // Commands are not read back.
        crate::ceilings::annotate(&mut read);
        assert_eq!(read, record);
        assert_eq!(record.flows[0].local, "198.18.0.2:40000");
    }

    #[test]
    fn a_client_that_reported_nothing_has_no_totals() {
        let record = record(Role::Served, Direction::Up, false);
        assert_eq!(record.legs[0].sender, None);
        assert!(record.legs[0].receiver.is_some());
        assert_eq!(record.bytes(), 1_000_000_000);
    }

    /// The other end has sockets, too: what they dropped is not known, and nobody's loss is the
    /// path's.
    #[test]
    fn drops_of_a_socket_that_nobody_tells_are_absent_and_not_none() {
        let mut here = here(Direction::Up, true);
        here.flows[0].tcp = None;
        here.flows[0].udp_sent = Some(UdpSent { sent: 1000, ..UdpSent::default() });
        let json = br#"{"streams":[{"id":1,"bytes":500000,"packets":1000,"errors":540}]}"#;
        let there = Results::parse(json, 1).unwrap().to_half(&here, false);
        let mut test = test_of(Direction::Up);
        test.protocol = Protocol::Udp;
        let record = ForeignRun { test, there: Some(there), ..of(Role::Used, here) }.into_record();
        let udp = record.udp().unwrap();
        assert_eq!((udp.lost, udp.socket_drops), (540, None));
        assert_eq!(udp.path_loss_percent, None);
        assert!(record.verdict().is_some_and(|v| v.cause != Cause::PathRate));
    }

    #[test]
    fn intervals_are_of_the_end_that_has_them() {
        for role in [Role::Served, Role::Used] {
            for direction in [Direction::Up, Direction::Down] {
                let record = record(role, direction, true);
                let bytes: u64 = record.intervals.iter().map(|interval| interval.bytes).sum();
                assert_eq!(bytes, 1_000_000_000);
            }
        }
    }
}

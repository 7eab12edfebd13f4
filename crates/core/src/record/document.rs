//! The documents of runs: record, sweep and check; what a verdict is, and the tools that can be at
//! the far end.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::leg::{Leg, keys};
use super::{Baseline, Caveat, Environment, Proof, TcpEvidence, UdpEvidence};
use crate::names::names;
use crate::one_way::OneWay;
use crate::plan::{Direction, Protocol, Test, Workload};
use crate::qoo::Outcome;
use crate::remedy::Remedy;
use crate::responsiveness::Responsiveness;
use crate::stats::{Figure, LatencyBuckets, LatencySummary};
use crate::trace::TraceDocument;
use crate::units::Family;
use crate::video::Playback;

/// Schema of [`Record`].
pub const RECORD_SCHEMA: &str = "linerate.record/1";
/// Schema of [`Sweep`].
pub const SWEEP_SCHEMA: &str = "linerate.sweep/1";
/// Schema of [`Check`].
pub const CHECK_SCHEMA: &str = "linerate.check/1";

/// How a run ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// As planned.
    #[default]
    Complete,
    /// Stopped early: the figures are of the part that ran.
    Partial,
}

impl Status {
    /// The status by whether the run ended as planned.
    pub fn new(is_complete: bool) -> Self {
        if is_complete { Self::Complete } else { Self::Partial }
    }
}

/// One run of one test.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// [`RECORD_SCHEMA`].
    pub schema: String,
    /// Whether the run ended as planned.
    pub status: Status,
    /// When it began, RFC 3339.
    #[serde(deserialize_with = "crate::units::deserialize_rfc3339")]
    pub started_at: String,
    /// The endpoint as the user named it.
    pub host: String,
    /// Its address and port.
    pub peer: String,
    /// The tool at the other end, if that is not linerate.
    pub via: Option<Tool>,
    /// Made by the endpoint, which served a client of another tool: `host` and `peer` are the
    /// address at which the client reached it, and the client's addresses are the `local` ones of
    /// the flows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub served: bool,
    /// The workload.
    pub workload: Workload,
    /// The transport protocol.
    pub protocol: Protocol,
    /// Address family.
    pub family: Family,
    /// Direction of the payload.
    pub direction: Direction,
    /// The test as it was run.
    pub plan: Test,
    /// Measured time without the warm-up.
    pub seconds: f64,
    /// Messages of a stream, as the sender wrote them, or datagrams received.
    pub messages: Option<u64>,
    /// Requests answered.
    pub transactions: Option<u64>,
    /// Requests answered per second.
    pub transactions_per_s: Option<f64>,
    /// Connections opened, used and closed per second.
    pub connections_per_s: Option<f64>,
    /// Latency of requests, from the (intended) send to the whole response.
    pub latency_us: Option<LatencySummary>,
    /// The histogram behind `latency_us`.
    pub latency_histogram: Option<LatencyBuckets>,
    /// Open loop: lateness of the generator itself.
    pub send_lag_us: Option<LatencySummary>,
    /// STAMP: delay and loss of each direction.
    pub one_way: Option<OneWay>,
    /// Pages: time from the first request to the last byte of the last object.
    pub page_us: Option<LatencySummary>,
    /// Video: results of the player.
    pub video: Option<Playback>,
    /// Open loop: requests due in the run that were never sent.
    pub requests_not_sent: Option<u64>,
    /// UDP requests without an answer; connections that failed.
    pub failed: Option<u64>,
    /// Payload bytes that differ from those sent, if they were verified.
    pub corrupted_bytes: Option<u64>,
    /// Each direction that ran; the keys of an only direction are in the record itself, too.
    #[serde(flatten, with = "keys")]
    #[schemars(flatten, schema_with = "keys::schema")]
    pub legs: Vec<Leg>,
    /// Round trips per minute under load, if they were measured: the record is then that of the
    /// first flow with load.
    pub responsiveness: Option<Box<Responsiveness>>,
    /// Result of the packet trains before the run, in the direction of the payload.
    pub path_train: Option<PathTrain>,
    /// Each flow.
    #[serde(default)]
    pub flows: Vec<FlowRecord>,
    /// The run in intervals, at most 1,000; more are merged with their neighbours.
    #[serde(default)]
    pub intervals: Vec<Interval>,
    /// Changes since an earlier document, if they were asked for.
    pub baseline: Option<Baseline>,
    /// Caveats.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
    /// Both ends.
    pub environment: Environment,
    /// Seed of every random choice.
    pub seed: u64,
}

impl Record {
    /// The record of a test without any figures.
    pub fn new(plan: Test) -> Self {
        Self {
            schema: RECORD_SCHEMA.to_owned(),
            status: Status::Complete,
            started_at: String::new(),
            host: String::new(),
            peer: String::new(),
            via: None,
            served: false,
            workload: plan.workload(),
            protocol: plan.protocol,
            family: Family::Ipv4,
            direction: plan.direction,
            seed: plan.seed,
            plan,
            seconds: 0.0,
            messages: None,
            transactions: None,
            transactions_per_s: None,
            connections_per_s: None,
            latency_us: None,
            latency_histogram: None,
            send_lag_us: None,
            one_way: None,
            page_us: None,
            video: None,
            requests_not_sent: None,
            failed: None,
            corrupted_bytes: None,
            legs: Vec::new(),
            responsiveness: None,
            path_train: None,
            flows: Vec::new(),
            intervals: Vec::new(),
            baseline: None,
            caveats: Vec::new(),
            environment: Environment::default(),
        }
    }
}

/// A packet train on an otherwise idle path: its datagrams leave back to back, and arrive at the
/// rate of the narrowest link (Dovrolis et al., "Packet-dispersion techniques and a
/// capacity-estimation methodology", 2004).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathTrain {
    /// Rate of the narrowest link, bits per second with the headers of IP and Ethernet (without
    /// preamble and gap); the sender's rate if that is lower.
    pub link_bps: f64,
    /// Datagrams that arrived, up to the first one that is missing.
    pub datagrams: u64,
    /// Payload of each, bytes.
    pub datagram_bytes: u64,
    /// Time from the first to the last at that rate, µs.
    pub dispersion_us: f64,
}

impl PathTrain {
    /// The train with the median rate, if most trains agree with it: a busy host spreads a train or
    /// hands it over at once, differently each time.
    pub fn agreed(trains: &[Self]) -> Option<Self> {
        let mut sorted = trains.to_vec();
        sorted.sort_by(|a, b| a.link_bps.total_cmp(&b.link_bps));
        let middle = *sorted.get(sorted.len() / 2)?;
        let is_near = |train: &&Self| (train.link_bps / middle.link_bps - 1.0).abs() <= AGREED;
        let near = sorted.iter().filter(is_near).count();
        (near >= 2 && 2 * near > sorted.len()).then_some(middle)
    }
}

/// Largest relative difference of the rates of two trains that agree.
const AGREED: f64 = 0.1;

/// One flow.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowRecord {
    /// Number of the flow, from 0.
    pub id: u32,
    /// Direction of its payload.
    pub direction: Direction,
    /// Goodput, payload bits per second.
    pub throughput_bps: f64,
    /// Payload bytes received.
    pub bytes: u64,
    /// Local address and port.
    pub local: String,
    /// Remote address and port.
    pub remote: String,
    /// Share of a CPU that the sender's thread had, percent.
    pub sender_thread_percent: Option<f64>,
    /// Share of a CPU that the receiver's thread had, percent.
    pub receiver_thread_percent: Option<f64>,
    /// TCP's evidence.
    pub tcp: Option<TcpEvidence>,
    /// UDP's evidence.
    pub udp: Option<UdpEvidence>,
    /// Time at which its first byte was handed to the sender's kernel, µs by the sender's clock
    /// since the beginning that it was told or, without one, its own.
    pub first_sent_us: Option<f64>,
    /// Time at which its first byte was taken from the receiver's kernel, likewise by the
    /// receiver's clock.
    pub first_received_us: Option<f64>,
}

/// An interval of the run, without the warm-up.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Interval {
    /// Its beginning, seconds after the beginning of the measured time.
    pub start_s: f64,
    /// Length, seconds.
    pub seconds: f64,
    /// The direction, if both ran.
    pub direction: Option<Direction>,
    /// Payload received, bytes.
    pub bytes: u64,
    /// Goodput, payload bits per second.
    pub throughput_bps: f64,
    /// Smoothed round-trip time, the mean over the flows, µs.
    pub rtt_us: Option<f64>,
    /// Congestion window, the sum over the flows, bytes.
    pub cwnd_bytes: Option<u64>,
    /// Bytes written and not yet sent, the sum over the flows at the end of the interval.
    pub notsent_bytes: Option<u64>,
    /// Segments retransmitted.
    pub retransmitted_segments: Option<u64>,
    /// Requests answered.
    pub transactions: Option<u64>,
    /// Datagrams lost.
    pub lost: Option<u64>,
}

/// Several records in one table: sizes, or repeats of one test.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sweep {
    /// [`SWEEP_SCHEMA`].
    pub schema: String,
    /// Repeats of one test: the throughput of the median run, payload bits per second; with an even
    /// number of runs the lower of the two in the middle. It is the `median` of `figures`, which
    /// tells whether the runs agree.
    pub throughput_bps: Option<f64>,
    /// Repeats of one test: requests answered per second in the median run.
    pub transactions_per_s: Option<f64>,
    /// Repeats of one test: connections opened, used and closed per second in the median run.
    pub connections_per_s: Option<f64>,
    /// The runs, in their order.
    pub rows: Vec<Record>,
    /// The figure of each size: the median of its runs with its interval, its modes, or its drift.
    #[serde(default)]
    pub figures: Vec<SizeFigure>,
    /// Changes since an earlier document, if they were asked for.
    pub baseline: Option<Baseline>,
    /// Caveats of the whole.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
}

impl Sweep {
    /// A sweep of these runs, with the figure of each size.
    pub fn new(rows: Vec<Record>, figures: Vec<SizeFigure>, caveats: Vec<Caveat>) -> Self {
        let mut pairs = rows.windows(2);
        let is_one = pairs.all(|two| two[0].plan.traffic == two[1].plan.traffic);
        let median = median_run(rows.iter().filter(|_| is_one));
        Self {
            schema: SWEEP_SCHEMA.to_owned(),
            throughput_bps: median.and_then(|run| run.throughput_bps()),
            transactions_per_s: median.and_then(|run| run.transactions_per_s),
            connections_per_s: median.and_then(|run| run.connections_per_s),
            rows,
            figures,
            baseline: None,
            caveats,
        }
    }
}

/// The run in the middle by its headline figure, of an even number the lower of the two in the
/// middle; `None` without a run. Its figure is that of [`Figure::of_a_run`]. Runs that were stopped
/// count only where there is no other.
pub fn median_run<'a>(runs: impl IntoIterator<Item = &'a Record>) -> Option<&'a Record> {
    let mut ranked: Vec<&Record> = runs.into_iter().collect();
    let is_whole = |run: &&Record| run.status == Status::Complete;
    if ranked.iter().any(is_whole) {
        ranked.retain(is_whole);
    }
    ranked.sort_by(|a, b| a.rank().total_cmp(&b.rank()));
    ranked.get(ranked.len().checked_sub(1)? / 2).copied()
}

/// The figure of one size of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SizeFigure {
    /// Message or request size, bytes.
    pub message_bytes: u64,
    /// The metric: `throughput_bps` or `transactions_per_s`.
    pub metric: String,
    /// The figure.
    pub figure: Figure,
}

/// Facts about a path without a test on it.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PathFacts {
    /// Addresses of the name.
    pub addresses: Vec<String>,
    /// Interface to the path.
    pub device: Option<String>,
    /// Source address chosen.
    pub source: Option<String>,
    /// Next hop; absent if the destination is on the link.
    pub gateway: Option<String>,
    /// MTU of that interface, bytes.
    pub device_mtu_bytes: Option<u32>,
    /// Path MTU, bytes.
    pub pmtu_bytes: Option<u32>,
    /// Negotiated segment size, without TCP options, bytes.
    pub mss_bytes: Option<u32>,
    /// Segment size that this interface's MTU would carry, bytes.
    pub mss_expected_bytes: Option<u32>,
    /// Metrics of the route that are not the default: `mtu`, `advmss`, `window`, …
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub route_metrics: BTreeMap<String, u32>,
    /// Time to connect, µs.
    pub connect_us: Option<f64>,
}

/// The examination of a path, in both directions.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// [`CHECK_SCHEMA`].
    pub schema: String,
    /// Whether it ended as planned.
    pub status: Status,
    /// When it began, RFC 3339.
    #[serde(deserialize_with = "crate::units::deserialize_rfc3339")]
    pub started_at: String,
    /// The endpoint as the user named it.
    pub host: String,
    /// Route, MTU and connect time.
    pub path: PathFacts,
    /// The path by hop; absent on loopback, and if this host can send no probes.
    pub route: Option<Box<TraceDocument>>,
    /// No endpoint answered: the check used only the view of one end.
    #[serde(default)]
    pub one_sided: bool,
    /// Client to endpoint: the median run.
    pub up: Option<Record>,
    /// Endpoint to client: the median run.
    pub down: Option<Record>,
    /// All runs of `up`: throughput as one figure, modes or a drift.
    pub up_throughput_bps: Option<Figure>,
    /// All runs of `down`.
    pub down_throughput_bps: Option<Figure>,
    /// Round trips of small requests on the idle path.
    pub idle_latency_us: Option<LatencySummary>,
    /// Round trips of small requests during the bulk transfers: the larger of both directions.
    pub loaded_latency_us: Option<LatencySummary>,
    /// Loaded latency by direction.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub loaded_latency_by_direction_us: BTreeMap<String, LatencySummary>,
    /// Round trips per minute under load, by the direction of the load.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub responsiveness: BTreeMap<String, Responsiveness>,
    /// Quality of Outcome under load by application, by the direction of the load: of the loaded
    /// round trips and the throughput, without loss.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outcomes: BTreeMap<String, Vec<Outcome>>,
    /// The fault of the demonstration path.
    pub hidden_fault: Option<HiddenFault>,
    /// Changes since an earlier document, if they were asked for.
    pub baseline: Option<Baseline>,
    /// Caveats of the whole.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
    /// Both ends.
    pub environment: Environment,
}

impl Check {
    /// A check without any results.
    pub fn new(host: &str, environment: Environment) -> Self {
        Self {
            schema: CHECK_SCHEMA.to_owned(),
            host: host.to_owned(),
            environment,
            ..Self::default()
        }
    }

    /// The throughput of a direction: the median over its runs; that of the run that the verdict is
    /// of, if one figure would mislead or if there was one run.
    pub fn throughput_bps(&self, direction: Direction) -> Option<f64> {
        let (run, runs) = match direction {
            Direction::Down => (&self.down, &self.down_throughput_bps),
            Direction::Up | Direction::Both => (&self.up, &self.up_throughput_bps),
        };
        match runs {
            Some(Figure::One(one)) => Some(one.median),
            _ => run.as_ref()?.throughput_bps(),
        }
    }
}

/// The fault of the demonstration path, which was hidden from the check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HiddenFault {
    /// The direction with the fault.
    pub direction: Direction,
    /// The right verdict.
    pub cause: Cause,
    /// The change of the path.
    pub description: String,
    /// Whether the check's verdict of that direction is the right one.
    pub found: bool,
}

// Ceilings and the verdict, which `crate::ceilings` finds.

/// A cause that can hold a transfer back.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The receiver's window is smaller than what the path holds.
    ReceiveWindow,
    /// The sender's buffer is smaller than what the path holds.
    SendBuffer,
    /// Loss, or the congestion control's response to it.
    Congestion,
    /// A pacing rate set on the socket or route.
    Pacing,
    /// Per-packet cost, or packet rate times segment size.
    SegmentSize,
    /// The slowest link.
    PathRate,
    /// A token bucket that drops instead of queueing.
    Policer,
    /// The sending application writes no faster.
    ApplicationSend,
    /// The receiving application reads no faster.
    ApplicationReceive,
    /// The sender's CPU.
    CpuSend,
    /// The receiver's CPU.
    CpuReceive,
    /// All CPUs that the test may use, threads, soft interrupts and what the hypervisor takes
    /// together.
    CpuHost,
    /// A class of this host's own DiffServ policy.
    QosClass,
    /// The transfer ended before slow start did.
    Startup,
    /// Nothing: the sender of datagrams kept to the rate it was asked for.
    AsAsked,
    /// None of them fits, or none well enough.
    #[default]
    Unexplained,
}

/// The rate that one cause would allow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ceiling {
    /// The cause.
    pub cause: Cause,
    /// Payload bits per second, over all flows of the direction.
    pub limit_bps: f64,
    /// The formula in words and symbols.
    pub formula: String,
    /// The inputs of the formula, each key with its unit.
    pub inputs: BTreeMap<String, f64>,
    /// The kernel's evidence for or against this cause.
    pub evidence: Vec<String>,
    /// False if an input is the measured rate itself: then the ceiling cannot confirm the cause.
    pub independent: bool,
}

/// The cause that holds a run back.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The cause.
    pub cause: Cause,
    /// Confidence: the share (0–1) of such verdicts that are right. Absent for `unexplained`,
    /// and in records of older versions.
    pub confidence: Option<f64>,
    /// The next most likely cause; of `unexplained` the most likely one.
    pub runner_up: Option<RunnerUp>,
    /// Measured rate over this cause's ceiling; absent for `unexplained`.
    pub share_of_ceiling: Option<f64>,
    /// The evidence, in sentences with figures.
    pub evidence: Vec<String>,
    /// The remedy; absent if there is none.
    pub remedy: Option<Remedy>,
    /// The rate that the remedy should bring, payload bits per second: the lowest limit that the
    /// record shows and that stays when the cause is lifted. Absent where none is known well
    /// enough; `evidence` then tells the most that can be reached, if that is known.
    pub predicted_bps: Option<f64>,
    /// The rate with the limit lifted as far as a test can lift it, as it was measured, payload
    /// bits per second. Absent where it was not tried, or brought nothing.
    pub remedied_bps: Option<f64>,
    /// The cause that would hold the run back then; with a rate that was measured, that run's.
    pub next_cause: Option<Cause>,
    /// What changes of one thing at a time have shown, if any were made: then there is no
    /// `confidence`.
    #[serde(flatten)]
    #[schemars(with = "Option<Proof>")]
    pub proof: Option<Proof>,
}

/// The next most likely cause after the verdict's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunnerUp {
    /// The cause; `unexplained` if the record has evidence for no other.
    pub cause: Cause,
    /// A further run, whose figures tell whether it is this cause.
    pub tell_apart: Remedy,
}

names! {
    /// The name as pages print it.
    Cause::words: ReceiveWindow "receive window", SendBuffer "send buffer", Congestion "congestion",
        Pacing "pacing", SegmentSize "segment size", PathRate "path rate", Policer "policer",
        ApplicationSend "sending application", ApplicationReceive "receiving application",
        CpuSend "sender's CPU", CpuReceive "receiver's CPU", CpuHost "the host's CPUs",
        QosClass "QoS class", Startup "slow start", AsAsked "as asked", Unexplained "unexplained";
    /// The name as JSON has it.
    Cause::name: ReceiveWindow "receive_window", SendBuffer "send_buffer", Congestion "congestion",
        Pacing "pacing", SegmentSize "segment_size", PathRate "path_rate", Policer "policer",
        ApplicationSend "application_send", ApplicationReceive "application_receive",
        CpuSend "cpu_send", CpuReceive "cpu_receive", CpuHost "cpu_host", QosClass "qos_class",
        Startup "startup", AsAsked "as_asked", Unexplained "unexplained";
}

/// A measuring tool that is not linerate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tool {
    /// iperf3, 3.1 and later.
    Iperf3,
    /// netperf, 2.5 and later.
    Netperf,
    /// ttcp and the tools that accept its bytes.
    Ttcp,
    /// STAMP's session-reflectors (RFC 8762) and those of TWAMP's light mode.
    Stamp,
}

names! {
    /// The name as users type it.
    Tool::name: Iperf3 "iperf3", Netperf "netperf", Ttcp "ttcp", Stamp "stamp";
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(rates: &[f64]) -> Option<f64> {
        let train = |link_bps: &f64| PathTrain {
            link_bps: *link_bps,
            datagrams: 80,
            datagram_bytes: 1472,
            dispersion_us: 10_000.0,
        };
        let trains: Vec<PathTrain> = rates.iter().map(train).collect();
        PathTrain::agreed(&trains).map(|train| train.link_bps)
    }

    #[test]
    fn trains_tell_a_link_where_most_of_them_find_the_same() {
        assert_eq!(agreed(&[99e6, 100e6]), Some(100e6));
        assert_eq!(agreed(&[99e6, 11.7e9, 100e6]), Some(100e6));
        assert_eq!(agreed(&[392e6, 100e6, 390e6, 150e6, 391e6]), Some(390e6));
        for at_odds in
            [&[][..], &[99e6], &[99e6, 150e6], &[99e6, 150e6, 392e6], &[99e6, 101e6, 150e6, 392e6]]
        {
            assert_eq!(agreed(at_odds), None, "{at_odds:?}");
        }
    }
}

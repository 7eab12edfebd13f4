//! The main job: a path examined in some thirty seconds, or roughly in five.
//!
//! This file has the order of a check's parts: the hops, the runs of each direction and the tests
//! that they make; `examination` has the steps at an endpoint.

mod examination;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use linerate_core::ceilings::Cause;
use linerate_core::foreign::Tool;
use linerate_core::plan::{
    Direction, ExchangeTest, Extent, Protocol, SocketOptions, StreamTest, Test, Traffic,
};
use linerate_core::proof::ProofBudget;
use linerate_core::record::{Caveat, CaveatKind, Check, Environment, Record, Status, median_run};
use linerate_core::stats::{Figure, LatencyHistogram, figure};
use linerate_core::trace::{PathEnd, TraceConfig, TraceDocument};
use linerate_core::units::{
    BitRate, ByteCount, DEFAULT_PORT, Family, Nanos, Span, format_rfc3339, listed, suggestion,
};
use linerate_sys::proc::sysctl;
use linerate_sys::socket::{self, Mptcp, OptionError};

use self::examination::Examination;
use crate::campaign::Observer;
use crate::client::Client;
use crate::error::{MeasureError, serve_command};
use crate::own_endpoint::OwnEndpoint;
use crate::partner::Partner;
use crate::proof::{Proof, prove_bottleneck};
use crate::stop::Stop;
use crate::target::Target;
use crate::trace::{TraceOptions, trace};
use crate::{host, path};

/// What to examine and how thoroughly.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// The endpoint; without one, both ends run here, on loopback.
    pub target: Option<Target>,
    /// A server of this tool's must answer there.
    pub via: Option<Tool>,
    /// Family of the loopback path.
    pub family: Option<Family>,
    /// One run each way, without intervals and without round trips per minute.
    pub quick: bool,
    /// Whether the bottleneck is proved by changed runs between the plain ones.
    pub prove: bool,
    /// The most payload that the runs of each direction may carry together, bytes.
    pub max_bytes: Option<ByteCount>,
    /// Options of the bulk transfers.
    pub bulk: BulkOptions,
    /// Seed of every random choice.
    pub seed: u64,
}

/// What a user may ask of a check's bulk transfers.
#[derive(Debug, Clone, Default)]
pub struct BulkOptions {
    /// Length of each, in place of what the path's round trips ask for.
    pub time: Option<Duration>,
    /// Flows of each; 1 without.
    pub streams: Option<u32>,
    /// Congestion control of the senders.
    pub congestion: Option<String>,
    /// Datagrams at this rate of each flow, in place of TCP.
    pub udp_rate: Option<BitRate>,
}

/// Examines a path. The error beside the document is what kept it from being whole.
///
/// # Errors
/// There is nothing to show: interrupted at once, or no endpoint could be started.
pub fn check(
    options: &CheckOptions,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<(Check, Option<MeasureError>), MeasureError> {
    match &options.target {
        Some(target) => examine(target, options, stop, observer),
        None => {
            let served = OwnEndpoint::start(loopback(options.family), None)?;
            let mut result = examine(&served.target("localhost"), options, stop, observer)?;
            result.0.caveats.push(Caveat::new(
                CaveatKind::LocalPath,
                "no HOST was given: both ends ran on this host and the path is its loopback",
                "run `linerate serve` on another host, then: linerate check HOST (or here, to try \
                 the commands above)",
            ));
            Ok(result)
        }
    }
}

/// Looks for a congestion control in this host's kernel. Whether it may be used is another
/// question: a network namespace has its own answer.
///
/// # Errors
/// There is none of that name; the error names those that there are.
pub fn knows_congestion(name: &str) -> Result<(), MeasureError> {
    let nobody = SocketAddr::new(loopback(None), 0);
    let socket = socket::tcp_socket(nobody, None, Mptcp::Off)
        .map_err(MeasureError::host("cannot make a socket"))?;
    match socket::set_congestion(&socket, name) {
        Err(OptionError::Set { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            let known =
                sysctl::read("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
            let known: Vec<&str> = known.split_whitespace().collect();
            let all = || format!("it has {}; modprobe may load others", listed(&known, "and"));
            let hint = suggestion(name, &known).unwrap_or_else(all);
            Err(MeasureError::NoCongestion { hint })
        }
        // Whether it may be used is found out by those who use it.
        _ => Ok(()),
    }
}

/// Proves what limits one direction of the path to an endpoint of linerate's, by transfers like a
/// check's. The error beside the record is what ended them early.
///
/// # Errors
/// No such endpoint answers, or the first transfer could not begin.
pub(crate) fn prove_path(
    target: &Target,
    direction: Direction,
    seed: u64,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<(Record, Option<MeasureError>), MeasureError> {
    let mut client = Client::connect(target.clone(), stop.clone())?;
    let rtt = client.connect_time();
    client.find_link_rate(direction, seed);
    let test = bulk(direction, LOSSY_PROOF_RUN.on(rtt), WARM_UP.on(rtt), seed);
    let mut partner = Partner::Own(Box::new(client));
    prove_bottleneck(&mut partner, &test, ProofBudget::default(), observer)
}

fn examine(
    target: &Target,
    options: &CheckOptions,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<(Check, Option<MeasureError>), MeasureError> {
    let address = target.addresses.first().map(SocketAddr::ip);
    let client = host::facts_by(address, target.device.as_deref());
    let mut check = Check {
        started_at: format_rfc3339(SystemTime::now()),
        path: path::facts(target),
        ..Check::new(&target.name, Environment::new(client, None))
    };
    observer.phase("connecting");
    let client = match Partner::connect(target.clone(), options.via, stop.clone()) {
        Ok(client) => client,
        Err(MeasureError::Interrupted) => return Err(MeasureError::Interrupted),
        Err(error) => {
            observer.phase("tracing the route");
            check.route = trace_to(target, options.seed, stop);
            one_sided(&mut check, target, &error);
            return Ok((check, Some(error)));
        }
    };
    check.path.connect_us = Some(client.connect_time().as_secs_f64() * 1e6);
    let result = Examination::new(client, options, &mut check, observer).run(target, stop);
    if result.is_err() {
        check.status = Status::Partial;
        check.caveats.push(Caveat::new(
            CaveatKind::Partial,
            "the check ended before its time",
            "run it again",
        ));
    }
    Ok((check, result.err()))
}

/// What one end can see of a path without an endpoint on it.
fn one_sided(check: &mut Check, target: &Target, error: &MeasureError) {
    check.one_sided = true;
    if let Some(seen) = path::try_connect(target) {
        check.path.connect_us = Some(seen.connect.as_secs_f64() * 1e6);
        check.path.mss_bytes = seen.mss_bytes;
    }
    let why = match error {
        MeasureError::BlackHole { .. } => error.to_string(),
        // What to do about it is the remedy.
        MeasureError::Connect { peer, .. } if error.is_refused_connection() => {
            format!("no endpoint answered (nothing listens at TCP {})", peer.port())
        }
        _ => format!("no endpoint answered ({error})"),
    };
    let remedy = match error {
        MeasureError::BlackHole { host, .. } => format!("linerate trace --mtu {host}"),
        MeasureError::Connect { reason, .. } if reason.kind() == io::ErrorKind::HostUnreachable => {
            String::new()
        }
        _ => {
            let port = target.addresses.first().map_or(DEFAULT_PORT, SocketAddr::port);
            format!("on that host: {}", serve_command(port))
        }
    };
    let message = format!(
        "{why}: only what this end can see was examined, without throughput, loss and bottleneck"
    );
    check.caveats.push(Caveat::new(CaveatKind::Partial, message, remedy));
}

fn loopback(family: Option<Family>) -> IpAddr {
    match family {
        Some(Family::Ipv6) => Ipv6Addr::LOCALHOST.into(),
        Some(Family::Ipv4) | None => Ipv4Addr::LOCALHOST.into(),
    }
}

// The path by hop.

/// Of the route's hops; a silent target takes it twice.
const TIMEOUT: Nanos = Nanos::from_millis(700);
/// A second trace, which waits for a hop that does not answer.
const AGAIN: Duration = Duration::from_millis(1400);

/// The path by hop, where there is more than loopback to see. What a firewall hides or this host
/// does not allow is no reason to end a check.
fn trace_to(target: &Target, seed: u64, stop: &Stop) -> Option<Box<TraceDocument>> {
    let address = target.addresses.first()?.ip();
    if address.is_loopback() {
        return None;
    }
    let config = TraceConfig { timeout: TIMEOUT, ..TraceConfig::new(address) };
    let options = TraceOptions {
        source: target.source,
        device: target.device.clone(),
        seed,
        ..TraceOptions::new(target.name.clone(), config)
    };
    trace(&options, stop).ok().map(Box::new)
}

/// Every hop up to the target has answered.
fn is_whole(route: &TraceDocument) -> bool {
    seen(route) == (true, Reverse(0))
}

/// The one that has seen more.
fn better(
    one: Option<Box<TraceDocument>>,
    other: Option<Box<TraceDocument>>,
) -> Option<Box<TraceDocument>> {
    one.into_iter().chain(other).max_by_key(|route| seen(route))
}

/// Whether the target has answered, and how many hops have not.
fn seen(route: &TraceDocument) -> (bool, Reverse<usize>) {
    let silent = route.hops.iter().filter(|hop| hop.address.is_none());
    let reached = matches!(route.end, PathEnd::Reached { .. });
    (reached, Reverse(silent.count()))
}

// The runs of one direction, and their medians.

/// The runs of one direction.
#[derive(Default)]
struct Runs {
    /// Records of the plain runs.
    records: Vec<Record>,
    /// All runs, changed ones included: their number, time in seconds, payload in bytes.
    spent: (u32, f64, f64),
    proof: Option<Proof>,
    /// The plain test of the proof.
    plain: Option<Test>,
    /// Round trips of small requests beside them.
    loaded: LatencyHistogram,
}

impl Runs {
    fn throughputs(&self) -> Vec<f64> {
        let whole = self.records.iter().filter(|record| record.status == Status::Complete);
        whole.filter_map(Record::throughput_bps).collect()
    }

    fn figure(&self) -> Option<Figure> {
        let throughputs = self.throughputs();
        Some(figure(&throughputs).ok()?.of_a_run(&throughputs))
    }

    /// Whether there are runs, and none of them has lost anything.
    fn are_clean(&self) -> bool {
        let lost = |record: &Record| {
            let tcp = record.tcp_sender()?;
            Some(tcp.warm_up_retransmitted_segments? + tcp.retransmitted_segments)
        };
        let mut runs = self.records.iter();
        !self.records.is_empty() && runs.all(|record| lost(record) == Some(0))
    }

    /// How many runs have each cause, the most first.
    fn causes(&self) -> Vec<(Cause, usize)> {
        let mut causes = BTreeMap::new();
        for verdict in self.records.iter().filter_map(Record::verdict) {
            *causes.entry(verdict.cause).or_insert(0) += 1;
        }
        let mut causes: Vec<_> = causes.into_iter().collect();
        causes.sort_by_key(|(cause, runs)| (*cause == Cause::Unexplained, Reverse(*runs)));
        causes
    }

    /// A doubt where not all runs have the same cause, and no change has told which it is.
    fn disagreement(&self, direction: &str) -> Option<Caveat> {
        if self.proof.is_some() {
            return None;
        }
        let causes = self.causes();
        let counted: Vec<String> =
            causes.iter().map(|(cause, runs)| format!("{} in {runs}", cause.words())).collect();
        (causes.len() > 1).then(|| {
            let all = self.records.len();
            let message =
                format!("of {all} runs {direction} the bottleneck was {}", counted.join(", "));
            Caveat::new(
                CaveatKind::NotOneFigure,
                message,
                "run it again while both hosts do nothing else",
            )
        })
    }

    /// Of the runs with the usual cause the one in the middle (the lower of two): a run that was,
    /// not a mean of several.
    fn median(&self) -> Option<Record> {
        let usual = self.causes().first().map(|(cause, _)| *cause);
        let cause = |record: &Record| record.verdict().map(|verdict| verdict.cause);
        let records = self.records.iter();
        let usual = records.filter(|record| cause(record) == usual || usual.is_none());
        let mut median = median_run(usual).cloned()?;
        self.proof.iter().for_each(|proof| proof.conclude(&mut median));
        Some(median)
    }
}

// The transfers and the small requests that a check makes.

/// How long a run and its warm-up are: so many round trips, and a time at least.
#[derive(Debug, Clone, Copy)]
struct Length {
    round_trips: u32,
    least: Duration,
}

/// Length of a run.
const RUN: Length = Length::new(18, 800);
/// Length of a run of a proof, of which there are more.
const PROOF_RUN: Length = Length::new(14, 400);
/// Length of a run of a proof where the first one has lost something: rates scatter there.
const LOSSY_PROOF_RUN: Length = Length::new(24, 800);
/// Length of a run of `--quick`.
const QUICK_RUN: Length = Length::new(15, 600);
/// A start that overfills the queue is mended after some 20 round trips: bytes that waited behind
/// its losses would count as if they had come within the measured time, and make a rate above the
/// link's.
const WARM_UP: Length = Length::new(22, 300);
/// One that loses nothing has filled the path after half of them.
const CLEAN_WARM_UP: Length = Length::new(12, 200);
/// A long path gets longer runs, but the check has an end.
const LONGEST: Duration = Duration::from_secs(5);
/// Small requests for latency, for each second.
const PROBES_PER_S: f64 = 100.0;

impl Length {
    const fn new(round_trips: u32, least_ms: u64) -> Self {
        let least = Duration::from_millis(least_ms);
        Self { round_trips, least }
    }

    /// On a path with this round trip.
    fn on(self, rtt: Duration) -> Duration {
        (rtt * self.round_trips).max(self.least).min(LONGEST)
    }
}

fn bulk(direction: Direction, time: Duration, warm_up: Duration, seed: u64) -> Test {
    let traffic = Traffic::Stream(StreamTest::new(128 << 10));
    test(traffic, direction, time, warm_up, seed)
}

/// The test by datagrams that fit a path of 1500 bytes.
fn over_udp(mut test: Test, rate: BitRate) -> Test {
    test.protocol = Protocol::Udp;
    test.traffic = Traffic::Stream(StreamTest { rate_bps: Some(rate), ..StreamTest::new(1448) });
    test
}

fn probe(time: Duration, warm_up: Duration, seed: u64) -> Test {
    let traffic =
        Traffic::Rr(ExchangeTest { rate_per_s: Some(PROBES_PER_S), ..ExchangeTest::new(1, 1) });
    test(traffic, Direction::Up, time, warm_up, seed)
}

fn test(
    traffic: Traffic,
    direction: Direction,
    time: Duration,
    warm_up: Duration,
    seed: u64,
) -> Test {
    let nodelay = matches!(traffic, Traffic::Rr(_));
    Test {
        traffic,
        protocol: Protocol::Tcp,
        direction,
        streams: 1,
        extent: Extent::Time(Span(time)),
        warm_up: Span(warm_up),
        interval: Span(time / 5),
        options: SocketOptions { nodelay, ..SocketOptions::default() },
        seed,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use linerate_core::plan::Direction;
    use linerate_core::record::{Leg, Verdict};

    use super::*;

    fn run(cause: Cause, rate_bps: f64) -> Record {
        let verdict = Verdict { cause, ..Verdict::default() };
        let test = bulk(Direction::Up, Duration::from_secs(1), Duration::ZERO, 1);
        Record {
            legs: vec![Leg {
                throughput_bps: Some(rate_bps),
                verdict: Some(verdict),
                ..Leg::new(Direction::Up)
            }],
            ..Record::new(test)
        }
    }

    #[test]
    fn the_verdict_of_a_check_is_that_of_most_of_its_runs_and_others_are_told() {
        let (path, cpu) = (Cause::PathRate, Cause::CpuSend);
        let records = [(path, 95e6), (cpu, 90e6), (cpu, 60e6), (path, 93e6), (path, 94e6)];
        let runs = Runs {
            records: records.map(|(cause, bps)| run(cause, bps)).to_vec(),
            ..Runs::default()
        };
        let doubt = runs.disagreement("up").expect("two are of another mind");
        assert_eq!(
            doubt.message,
            "of 5 runs up the bottleneck was path rate in 3, sender's CPU in 2"
        );
        let usual = runs.median().unwrap();
        assert_eq!(usual.throughput_bps(), Some(94e6));
        let same = Runs { records: vec![run(path, 95e6), run(path, 90e6)], ..Runs::default() };
        assert_eq!(same.disagreement("up"), None);
        // The page's figure is that of the run that the verdict is of.
        let Some(Figure::One(one)) = same.figure() else {
            panic!("two runs are one figure");
        };
        assert_eq!(Some(one.median), same.median().unwrap().throughput_bps());
    }
}

//! The main job: a path examined in some twenty seconds.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use linerate_core::ceilings::Cause;
use linerate_core::foreign::Tool;
use linerate_core::plan::{
    Direction, ExchangeTest, Extent, Protocol, SocketOptions, StreamTest, Test, Traffic,
};
use linerate_core::record::{Caveat, CaveatKind, Check, Environment, Record, Status};
use linerate_core::stats::{LatencyHistogram, LatencySummary, figure};
use linerate_core::trace::{PathEnd, TraceConfig, TraceDocument};
use linerate_core::units::{Family, Nanos, Span};
use linerate_sys::clock::format_rfc3339;

use crate::campaign::Observer;
use crate::client::Client;
use crate::error::MeasureError;
use crate::own_endpoint::OwnEndpoint;
use crate::partner::Partner;
use crate::stop::Stop;
use crate::target::Target;
use crate::trace::{TraceOptions, trace};
use crate::{host, path, responsiveness};

/// What to examine and how thoroughly.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// The endpoint; without one, both ends run here, on loopback.
    pub target: Option<Target>,
    /// A server of this tool's must answer there.
    pub via: Option<Tool>,
    /// Family of the loopback path.
    pub family: Option<Family>,
    /// One run each way, without intervals.
    pub quick: bool,
    /// What is asked of the bulk transfers.
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
}

/// Runs each way: the fewest of which the median has an interval of 95 %.
const RUNS: usize = 6;
/// Length of a run, where the path's own round trips do not ask for more.
const RUN: Duration = Duration::from_millis(1000);
const WARM_UP: Duration = Duration::from_millis(300);
/// Round trips that a run and its warm-up last at least.
const RUN_ROUND_TRIPS: u32 = 30;
/// A start that overfills the queue is mended after some 20: bytes that waited behind its losses
/// would count as if they had come within the measured time, and make a rate above the link's.
const WARM_UP_ROUND_TRIPS: u32 = 25;
/// A long path gets longer runs, but the check has an end.
const LONGEST: Duration = Duration::from_secs(5);
/// Of the route's hops; a silent target takes it twice.
const ROUTE_TIMEOUT: Nanos = Nanos::from_millis(700);
/// A second trace, which waits for a hop that does not answer.
const ROUTE_AGAIN: Duration = Duration::from_millis(1400);
const IDLE_WARM_UP: Duration = Duration::from_millis(50);
/// Small requests for latency, for each second.
const PROBES_PER_S: f64 = 100.0;

/// After each another load is added, when responsiveness is measured.
const QUICK_INTERVAL: Duration = Duration::from_millis(250);
/// Where queues are long.
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);
/// With load, each way.
const MOST_LOADED: Duration = Duration::from_secs(8);
/// Those that it takes on most paths.
const USUAL_INTERVALS: u32 = 6;

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
                "run `linerate serve` on another host, then: linerate check HOST (or here, to try the commands above)",
            ));
            Ok(result)
        }
    }
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
    observer.phase("tracing the route");
    check.route = route(target, options.seed, stop);
    observer.phase("connecting");
    let client = match Partner::connect(target.clone(), options.via, stop.clone()) {
        Ok(client) => client,
        Err(MeasureError::Interrupted) => return Err(MeasureError::Interrupted),
        Err(error) => {
            one_sided(&mut check, target, &error);
            return Ok((check, Some(error)));
        }
    };
    check.path.connect_us = Some(client.connect_time().as_secs_f64() * 1e6);
    let mut examination = Examination {
        client,
        probe: None,
        options,
        check: &mut check,
        observer,
        pace: Pace::default(),
    };
    let result = examination.run(target, stop);
    if result.is_ok() && again(&check) {
        // Routers limit their answers, and another trace may just have had them all.
        observer.phase("tracing the route again");
        let again = route(target, options.seed, stop);
        check.route = [check.route.take(), again]
            .into_iter()
            .flatten()
            .max_by_key(|r| seen(r));
    }
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

/// The path by hop, where there is more than loopback to see. What a firewall hides or this host
/// does not allow is no reason to end a check.
fn route(target: &Target, seed: u64, stop: &Stop) -> Option<Box<TraceDocument>> {
    let address = target.addresses.first()?.ip();
    if address.is_loopback() {
        return None;
    }
    let config = TraceConfig {
        timeout: ROUTE_TIMEOUT,
        ..TraceConfig::new(address)
    };
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
    let (reached, silent) = seen(route);
    reached && silent == Reverse(0)
}

/// Whether the route is to be traced once more.
fn again(check: &Check) -> bool {
    check.route.as_ref().is_some_and(|route| !is_whole(route))
}

/// Whether the target has answered, and how many hops have not.
fn seen(route: &TraceDocument) -> (bool, Reverse<usize>) {
    let silent = route.hops.iter().filter(|hop| hop.address.is_none());
    let reached = matches!(route.end, PathEnd::Reached { .. });
    (reached, Reverse(silent.count()))
}

/// What one end can see of a path without an endpoint on it.
fn one_sided(check: &mut Check, target: &Target, error: &MeasureError) {
    check.one_sided = true;
    if let Some(seen) = path::try_connect(target) {
        check.path.connect_us = Some(seen.connect.as_secs_f64() * 1e6);
        check.path.mss_bytes = seen.mss_bytes;
    }
    check.caveats.push(Caveat::new(
        CaveatKind::Partial,
        format!("no endpoint answered ({error}): only what this end can see was examined"),
        "on that host: linerate serve",
    ));
}

struct Examination<'a> {
    client: Partner,
    /// A second session, for small requests beside the bulk transfer.
    probe: Option<Client>,
    options: &'a CheckOptions,
    check: &'a mut Check,
    observer: &'a mut dyn Observer,
    pace: Pace,
}

/// What tests took besides their own time: asking for them, connecting, the reports.
#[derive(Default)]
struct Pace {
    /// The one on the idle path.
    idle: Duration,
    /// All bulk transfers, and their number.
    bulk: (Duration, u32),
}

impl Pace {
    /// Of one bulk transfer, with the requests beside it.
    fn beside(&self) -> Duration {
        match self.bulk {
            (_, 0) => self.idle * 3 / 2,
            (all, tests) => all / tests,
        }
    }

    /// Of the trains of both directions: two sessions, four short tests each.
    fn trains(&self) -> Duration {
        self.idle * 9
    }
}

impl Examination<'_> {
    fn run(&mut self, target: &Target, stop: &Stop) -> Result<(), MeasureError> {
        let rtt = match self.client.tool() {
            None => self.look_around(target, stop)?,
            Some(tool) => {
                self.check.caveats.push(Caveat::new(
                    CaveatKind::OtherTool,
                    format!("{tool} answers there: latency, idle and under load, and packet trains need linerate at both ends"),
                    "on that host: linerate serve",
                ));
                self.client.connect_time()
            }
        };
        let (mut up, mut down) = (Runs::default(), Runs::default());
        let done = self.both_ways(rtt, &mut up, &mut down);
        self.keep(up, down);
        done?;
        self.responsiveness()
    }

    /// Round trips per minute, each direction loaded alone. Where they cannot be had, they alone are
    /// missing.
    fn responsiveness(&mut self) -> Result<(), MeasureError> {
        // Its place is one that a load can have.
        self.probe = None;
        self.observer.takes([self.responsiveness_takes(); 2]);
        for direction in [Direction::Up, Direction::Down] {
            let request = self.responsiveness_request(direction);
            let Partner::Own(client) = &mut self.client else {
                return Ok(());
            };
            let name = direction.name();
            self.observer.phase(&format!("responsiveness, {name}"));
            match responsiveness::measure(client, &request) {
                Ok(measured) => {
                    let all = &mut self.check.responsiveness;
                    all.insert(name.to_owned(), measured.responsiveness);
                }
                Err(MeasureError::Interrupted) => return Err(MeasureError::Interrupted),
                Err(error) => self.check.caveats.push(Caveat::new(
                    CaveatKind::NotReadable,
                    format!("responsiveness {name} was not measured: {error}"),
                    "run it again; the endpoint's owner can allow more: linerate serve --max-clients",
                )),
            }
        }
        Ok(())
    }

    /// Both ways on most paths.
    fn responsiveness_takes(&self) -> Duration {
        let interval = self.responsiveness_request(Direction::Up).interval;
        (interval * USUAL_INTERVALS + self.pace.idle * 4) * 2
    }

    fn responsiveness_request(&self, direction: Direction) -> responsiveness::Request {
        let by_direction = &self.check.loaded_latency_by_direction_us;
        let loaded_us = by_direction
            .get(direction.name())
            .map_or(0.0, |loaded| loaded.p50);
        let shortest = if self.options.quick {
            QUICK_INTERVAL
        } else {
            responsiveness::INTERVAL
        };
        let interval = Duration::from_secs_f64(loaded_us / 1e6) * 2;
        let interval = interval.clamp(shortest, LONGEST_INTERVAL);
        let record = match direction {
            Direction::Up => &self.check.up,
            Direction::Down | Direction::Both => &self.check.down,
        };
        responsiveness::Request {
            load: self.bulk_test(direction, RUN, WARM_UP),
            rate_bps: record.as_ref().and_then(Record::throughput_bps),
            interval,
            most_intervals: (MOST_LOADED.as_millis() / interval.as_millis()) as u32,
        }
    }

    /// What only an endpoint of linerate's can do: small requests, trains. Answers the idle round
    /// trip.
    fn look_around(&mut self, target: &Target, stop: &Stop) -> Result<Duration, MeasureError> {
        self.observer.phase("idle latency");
        let idle = self.probe_alone(self.idle_time())?;
        self.check.environment = idle.environment.clone();
        self.check.idle_latency_us = idle.latency_us;
        self.check.path.pmtu_bytes = idle.tcp_sender().map(|tcp| tcp.pmtu_bytes);
        let rtt = Duration::from_secs_f64(idle.latency_us.map_or(0.0, |latency| latency.p50) / 1e6);
        // Before there is a second session: the trains need one, and an endpoint may allow no more.
        self.say_time_left(rtt, self.runs(), self.pace.trains());
        self.observer.phase("packet trains");
        if let Partner::Own(client) = &mut self.client {
            client.find_link_rate(Direction::Both, self.options.seed);
        }
        match Client::connect(target.clone(), stop.clone()) {
            Ok(probe) => self.probe = Some(probe),
            Err(error) => self.check.caveats.push(Caveat::new(
                CaveatKind::NotReadable,
                format!("latency under load was not measured: {error}"),
                "allow more clients: linerate serve --max-clients",
            )),
        }
        Ok(rtt)
    }

    /// In turn, so that a drift of the hosts or of the path falls on both directions alike.
    fn both_ways(
        &mut self,
        rtt: Duration,
        up: &mut Runs,
        down: &mut Runs,
    ) -> Result<(), MeasureError> {
        let runs = self.runs();
        for run in 1..=runs {
            self.say_time_left(rtt, runs - run + 1, Duration::ZERO);
            self.observer.phase(&format!("up, run {run} of {runs}"));
            self.bulk(Direction::Up, rtt, up)?;
            self.observer.phase(&format!("down, run {run} of {runs}"));
            self.bulk(Direction::Down, rtt, down)?;
        }
        Ok(())
    }

    /// Each way.
    fn runs(&self) -> usize {
        if self.options.quick { 1 } else { RUNS }
    }

    fn idle_time(&self) -> Duration {
        Duration::from_millis(if self.options.quick { 500 } else { 1500 })
    }

    /// With so many runs each way to come, and something before them.
    fn say_time_left(&mut self, rtt: Duration, runs: usize, before: Duration) {
        let (warm_up, time) = self.times(rtt);
        let mut left = before + (warm_up + time + self.pace.beside()) * 2 * runs as u32;
        if self.client.tool().is_none() {
            left += self.responsiveness_takes();
        }
        if again(self.check) {
            left += ROUTE_AGAIN;
        }
        self.observer.takes([left; 2]);
    }

    /// Small requests on an otherwise idle path.
    fn probe_alone(&mut self, time: Duration) -> Result<Record, MeasureError> {
        let began = Instant::now();
        let test = probe(time, IDLE_WARM_UP, self.options.seed);
        let (record, error) = self.client.run_once(&test, &mut ())?;
        self.pace.idle = began.elapsed().saturating_sub(IDLE_WARM_UP + time);
        match error {
            Some(error) => Err(error),
            None => Ok(record),
        }
    }

    /// Of each bulk transfer: warm-up and length.
    fn times(&self, rtt: Duration) -> (Duration, Duration) {
        let (warm_up, time) = times(rtt);
        (warm_up, self.options.bulk.time.unwrap_or(time))
    }

    /// One bulk transfer with small requests beside it.
    fn bulk(
        &mut self,
        direction: Direction,
        rtt: Duration,
        leg: &mut Runs,
    ) -> Result<(), MeasureError> {
        let (warm_up, time) = self.times(rtt);
        let began = Instant::now();
        let test = self.bulk_test(direction, time, warm_up);
        let beside = probe(time, warm_up, self.options.seed);
        let probe = self.probe.as_mut();
        let (bulk, loaded) = thread::scope(|scope| {
            let probing =
                probe.map(|client| scope.spawn(move || client.run_once(&beside, &mut ())));
            let bulk = self.client.run_once(&test, &mut ());
            let loaded = probing.map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            (bulk, loaded)
        });
        // A probe that fails costs the latency under load and nothing else.
        if let Some(Ok((record, None))) = loaded
            && let Some(buckets) = &record.latency_histogram
        {
            leg.loaded.merge_buckets(buckets).ok();
        }
        let (record, error) = bulk?;
        self.pace.bulk.0 += began.elapsed().saturating_sub(warm_up + time);
        self.pace.bulk.1 += 1;
        leg.records.push(record);
        match error {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn bulk_test(&self, direction: Direction, time: Duration, warm_up: Duration) -> Test {
        let asked = &self.options.bulk;
        let mut test = bulk(direction, time, warm_up, self.options.seed);
        test.streams = asked.streams.unwrap_or(1);
        test.options.congestion.clone_from(&asked.congestion);
        test
    }

    fn keep(&mut self, up: Runs, down: Runs) {
        let repeated = !self.options.quick;
        for (key, leg) in [("up", &up), ("down", &down)] {
            if let Some(summary) = leg.loaded.summary() {
                let by_direction = &mut self.check.loaded_latency_by_direction_us;
                by_direction.insert(key.to_owned(), summary);
            }
            self.check.caveats.extend(leg.disagreement(key));
        }
        self.check.loaded_latency_us = worse(&self.check.loaded_latency_by_direction_us);
        self.check.up_throughput_bps = up.figure().filter(|_| repeated);
        self.check.down_throughput_bps = down.figure().filter(|_| repeated);
        let bulk = up.records.iter().chain(&down.records);
        // Of a bulk flow: a connection that has carried little has not got its whole MSS on every
        // device.
        let sizes = bulk.filter_map(|record| record.tcp_sender().map(|tcp| tcp.mss_bytes));
        self.check.path.mss_bytes = sizes.max();
        if self.client.tool().is_some()
            && let Some(record) = up.records.first()
        {
            self.check.environment = record.environment.clone();
        }
        self.check.up = up.median();
        self.check.down = down.median();
        if self.options.quick {
            self.check.caveats.push(Caveat::new(
                CaveatKind::FewRuns,
                "one run each way: no interval can be given",
                "leave --quick out",
            ));
        }
    }
}

/// The runs of one direction.
#[derive(Default)]
struct Runs {
    records: Vec<Record>,
    loaded: LatencyHistogram,
}

impl Runs {
    fn throughputs(&self) -> Vec<f64> {
        self.records
            .iter()
            .filter_map(Record::throughput_bps)
            .collect()
    }

    fn figure(&self) -> Option<linerate_core::stats::Figure> {
        figure(&self.throughputs()).ok()
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

    /// A doubt where not all runs have the same cause.
    fn disagreement(&self, direction: &str) -> Option<Caveat> {
        let causes = self.causes();
        let counted = causes
            .iter()
            .map(|(cause, runs)| format!("{} in {runs}", cause.words()));
        let counted: Vec<String> = counted.collect();
        (causes.len() > 1).then(|| {
            let all = self.records.len();
            let message = format!(
                "of {all} runs {direction} the bottleneck was {}",
                counted.join(", ")
            );
            Caveat::new(
                CaveatKind::NotOneFigure,
                message,
                "run it again while both hosts do nothing else",
            )
        })
    }

    /// Of the runs with the usual cause the one in the middle (the lower of two): a run that was,
    /// not a mean of several.
    fn median(mut self) -> Option<Record> {
        let usual = self.causes().first().map(|(cause, _)| *cause);
        let cause = |record: &Record| record.verdict().map(|verdict| verdict.cause);
        self.records
            .retain(|record| cause(record) == usual || usual.is_none());
        let rate = |record: &Record| record.throughput_bps().unwrap_or(0.0);
        self.records.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
        let middle = self.records.len().checked_sub(1)? / 2;
        Some(self.records.swap_remove(middle))
    }
}

fn worse(by_direction: &BTreeMap<String, LatencySummary>) -> Option<LatencySummary> {
    by_direction
        .values()
        .max_by(|a, b| a.p50.total_cmp(&b.p50))
        .copied()
}

/// Warm-up and measured time of a run.
fn times(rtt: Duration) -> (Duration, Duration) {
    let [warm_up, time] = [(WARM_UP, WARM_UP_ROUND_TRIPS), (RUN, RUN_ROUND_TRIPS)]
        .map(|(least, round_trips)| least.max(rtt * round_trips).min(LONGEST));
    (warm_up, time)
}

fn bulk(direction: Direction, time: Duration, warm_up: Duration, seed: u64) -> Test {
    let traffic = Traffic::Stream(StreamTest::new(128 << 10));
    test(traffic, direction, time, warm_up, seed)
}

fn probe(time: Duration, warm_up: Duration, seed: u64) -> Test {
    let traffic = Traffic::Rr(ExchangeTest {
        rate_per_s: Some(PROBES_PER_S),
        ..ExchangeTest::new(1, 1)
    });
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
        options: SocketOptions {
            nodelay,
            ..SocketOptions::default()
        },
        seed,
    }
}

fn loopback(family: Option<Family>) -> IpAddr {
    match family {
        Some(Family::Ipv6) => Ipv6Addr::LOCALHOST.into(),
        Some(Family::Ipv4) | None => Ipv4Addr::LOCALHOST.into(),
    }
}

#[cfg(test)]
mod tests {
    use linerate_core::record::{Leg, Verdict};

    use super::*;

    fn run(cause: Cause, rate_bps: f64) -> Record {
        let verdict = Verdict {
            cause,
            ..Verdict::default()
        };
        let test = bulk(Direction::Up, RUN, WARM_UP, 1);
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
        let records = [
            (path, 95e6),
            (cpu, 90e6),
            (cpu, 60e6),
            (path, 93e6),
            (path, 94e6),
        ];
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
        let same = Runs {
            records: vec![run(path, 95e6), run(path, 90e6)],
            ..Runs::default()
        };
        assert_eq!(same.disagreement("up"), None);
    }
}

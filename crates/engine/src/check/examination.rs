//! What a check does, step by step, how long each step takes, and how long the check has yet to go.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use linerate_core::plan::{Direction, Test};
use linerate_core::proof::{ProofBudget, ProofRun, words};
use linerate_core::qoo::outcomes;
use linerate_core::record::{Caveat, CaveatKind, Check, Record};
use linerate_core::stats::{LatencyHistogram, LatencySummary};

use super::{
    CLEAN_WARM_UP, CheckOptions, LOSSY_PROOF_RUN, PROOF_RUN, QUICK_RUN, RUN, Runs, WARM_UP, bulk,
    over_udp, probe, trace_to,
};
use crate::campaign::Observer;
use crate::client::Client;
use crate::error::MeasureError;
use crate::partner::Partner;
use crate::proof::{Proof, refusal};
use crate::shares::joined;
use crate::stop::Stop;
use crate::target::Target;
use crate::{check, responsiveness};

/// Plain runs each way: the fewest of which the median has an interval of 95 %.
const RUNS: usize = 6;
/// Runs each way at most, changed ones included: a proof of a clear case takes six to ten.
const MOST_RUNS: u32 = 14;
/// Time of a proof over that of six plain runs.
const PROOF_TIME: f64 = 1.1;
/// Time with more plain runs for the interval, over that of the proof.
const MORE_PLAIN: f64 = 1.1;
const IDLE_WARM_UP: Duration = Duration::from_millis(50);

/// With load each way, when responsiveness is measured.
const MAX_LOADED: Duration = Duration::from_secs(8);
/// Where round trips are short, what has not settled after so many intervals does not: a busy host.
const MAX_INTERVALS: u128 = 12;
/// After each interval another load is added: this one on most paths, that one where queues are
/// long.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(400);
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);
/// A check that goes on.
pub(super) struct Examination<'a> {
    client: Partner,
    /// A second session, for small requests beside the bulk transfer.
    probe: Option<Client>,
    options: &'a CheckOptions,
    check: &'a mut Check,
    observer: &'a mut dyn Observer,
    rtt: Duration,
    /// What all bulk transfers took besides their own time, and their number.
    beside: (Duration, u32),
}

impl<'a> Examination<'a> {
    pub(super) fn new(
        client: Partner,
        options: &'a CheckOptions,
        check: &'a mut Check,
        observer: &'a mut dyn Observer,
    ) -> Self {
        Self {
            rtt: client.connect_time(),
            client,
            probe: None,
            options,
            check,
            observer,
            beside: (Duration::ZERO, 0),
        }
    }

    pub(super) fn run(mut self, target: &Target, stop: &Stop) -> Result<(), MeasureError> {
        let (mut up, mut down) = (Runs::default(), Runs::default());
        let ahead = self.takes_to_look_around();
        self.say_time_left([&up, &down], ahead);
        match self.client.tool() {
            None => self.look_around(target, stop)?,
            Some(tool) => {
                self.check.caveats.push(Caveat::new(
                    CaveatKind::OtherTool,
                    format!(
                        "{tool} answers there: latency, idle and under load, and packet trains \
                        need linerate at both ends"
                    ),
                    "on that host: linerate serve",
                ));
                self.check.route = trace_to(target, self.options.seed, stop);
            }
        }
        let done = self.both_ways(&mut up, &mut down);
        self.keep(up, down);
        done?;
        if !self.options.quick {
            self.responsiveness()?;
        }
        self.trace_again(target, stop);
        Ok(())
    }

    /// What only an endpoint of linerate's can do: small requests, trains. Nothing else is on the
    /// path but a trace of a few small packets; `--quick` has the trains beside it, too.
    fn look_around(&mut self, target: &Target, stop: &Stop) -> Result<(), MeasureError> {
        self.observer.phase("route and idle latency");
        let (seed, is_quick) = (self.options.seed, self.options.quick);
        let request = probe(self.idle_time(), IDLE_WARM_UP, seed);
        let Partner::Own(client) = &mut self.client else {
            return Ok(());
        };
        if is_quick {
            self.probe = Client::connect(target.clone(), stop.clone()).ok();
        }
        let (route, idle) = thread::scope(|scope| {
            let route = scope.spawn(|| trace_to(target, seed, stop));
            let idle = match &mut self.probe {
                Some(probe) => {
                    let idle = scope.spawn(move || probe.run_once(&request, &mut ()));
                    client.find_link_rate(Direction::Both, seed);
                    joined(idle.join())
                }
                None => client.run_once(&request, &mut ()),
            };
            (joined(route.join()), idle)
        });
        self.check.route = route;
        let (idle, error) = idle?;
        if let Some(error) = error {
            return Err(error);
        }
        self.check.environment = idle.environment.clone();
        self.check.idle_latency_us = idle.latency_us;
        self.check.path.pmtu_bytes = idle.tcp_sender().map(|tcp| tcp.pmtu_bytes);
        if let Some(latency) = idle.latency_us {
            self.rtt = Duration::from_secs_f64(latency.p50 / 1e6);
        }
        if self.probe.is_none() {
            // Before there is a second session: the trains need theirs, and an endpoint may allow
            // no more.
            self.observer.phase("the link's rate, by packet trains");
            client.find_link_rate(Direction::Both, seed);
            self.connect_probe(target, stop);
        }
        Ok(())
    }

    fn connect_probe(&mut self, target: &Target, stop: &Stop) {
        match Client::connect(target.clone(), stop.clone()) {
            Ok(probe) => self.probe = Some(probe),
            Err(error) => self.check.caveats.push(Caveat::new(
                CaveatKind::NotReadable,
                format!("latency under load was not measured: {error}"),
                "allow more clients: linerate serve --max-clients",
            )),
        }
    }

    /// In turn, so that a drift of the hosts or of the path falls on both directions alike.
    fn both_ways(&mut self, up: &mut Runs, down: &mut Runs) -> Result<(), MeasureError> {
        loop {
            let mut is_over = true;
            self.say_time_left([up, down], Duration::ZERO);
            for (direction, runs) in [(Direction::Up, &mut *up), (Direction::Down, &mut *down)] {
                if let Some(run) = self.next_run(runs) {
                    is_over = false;
                    self.make(run, direction, runs)?;
                }
            }
            if is_over {
                return Ok(());
            }
        }
    }

    /// The run of a direction that comes next: what the proof asks for, and then plain ones for the
    /// interval, as far as the time goes.
    fn next_run(&self, runs: &mut Runs) -> Option<ProofRun> {
        let next = runs.proof.as_mut().and_then(Proof::next_run);
        let budget = self.budget(runs);
        let (made, seconds, bytes) = runs.spent;
        let n = f64::from(made.max(1));
        let has_time = runs.proof.is_none() || seconds + seconds / n <= budget.seconds * MORE_PLAIN;
        let is_left =
            runs.records.len() < self.plain_runs() && has_time && bytes + bytes / n <= budget.bytes;
        next.or_else(|| is_left.then_some(ProofRun::Plain))
    }

    /// Makes a run, and gives it to the proof.
    fn make(
        &mut self,
        run: ProofRun,
        direction: Direction,
        runs: &mut Runs,
    ) -> Result<(), MeasureError> {
        let number = runs.spent.0 + 1;
        let name = direction.word();
        let began = Instant::now();
        let is_plain = run == ProofRun::Plain;
        let asked = match run {
            ProofRun::Plain => {
                self.observer.phase(&format!("{name}, run {number}"));
                self.plain_test(direction, runs)
            }
            ProofRun::Changed { change, test } => {
                let words = words(change);
                self.observer.phase(&format!("{name}, run {number}: {words}"));
                *test
            }
        };
        let mut changed = LatencyHistogram::default();
        let loaded = if is_plain { &mut runs.loaded } else { &mut changed };
        let record = self.bulk(&asked, loaded);
        let (record, error) = match (record, &mut runs.proof) {
            (Ok(made), _) => made,
            (Err(error), Some(proof)) if !is_plain => {
                proof.skip(&refusal(error, &mut self.client)?);
                return Ok(());
            }
            (Err(error), _) => return Err(error),
        };
        let seconds = began.elapsed().as_secs_f64();
        runs.spent.0 += 1;
        runs.spent.1 += seconds;
        runs.spent.2 += record.bytes() as f64;
        match &mut runs.proof {
            Some(proof) if error.is_none() => proof.record(&asked, &record, seconds),
            _ => {}
        }
        // A run that was stopped counts where there is no other, if something of it was measured.
        let counts = runs.records.is_empty() && record.throughput_bps().is_some();
        if is_plain && (error.is_none() || counts) {
            runs.records.push(record);
        }
        if let Some(error) = error {
            return Err(error);
        }
        if runs.proof.is_none() && self.options.prove {
            let test = self.plain_test(direction, runs);
            let budget = self.budget(runs);
            runs.proof =
                runs.records.first().and_then(|first| Proof::new(&test, first, seconds, budget));
            runs.plain = Some(test);
        }
        Ok(())
    }

    /// What the runs of a direction may cost: the time of six plain ones as they were before there
    /// were proofs, and a little more where that is short.
    fn budget(&self, runs: &Runs) -> ProofBudget {
        let bytes = self.options.max_bytes.map_or(f64::INFINITY, |bytes| bytes.0 as f64);
        if self.options.quick {
            return ProofBudget { runs: 2, seconds: f64::INFINITY, bytes };
        }
        let warm_up = if runs.are_clean() { CLEAN_WARM_UP } else { WARM_UP };
        let run = self.options.bulk.time.unwrap_or(RUN.on(self.rtt));
        let six = (warm_up.on(self.rtt) + run + self.beside()) * RUNS as u32;
        ProofBudget { runs: MOST_RUNS, seconds: PROOF_TIME * six.as_secs_f64(), bytes }
    }

    /// Round trips per minute, each direction loaded alone. Where they cannot be had, they alone
    /// are missing.
    fn responsiveness(&mut self) -> Result<(), MeasureError> {
        // Its place is one that a load can have.
        self.probe = None;
        self.observer.takes(self.responsiveness_takes());
        for direction in [Direction::Up, Direction::Down] {
            let request = self.responsiveness_request(direction);
            let Partner::Own(client) = &mut self.client else {
                return Ok(());
            };
            let name = direction.word();
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
                    "run it again; the endpoint's owner can allow more: linerate serve \
                     --max-clients",
                )),
            }
        }
        Ok(())
    }

    fn responsiveness_request(&self, direction: Direction) -> responsiveness::Request {
        let by_direction = &self.check.loaded_latency_by_direction_us;
        let loaded_us = by_direction.get(direction.word()).map_or(0.0, |loaded| loaded.p50);
        let two_round_trips = Duration::from_secs_f64(loaded_us / 1e6) * 2;
        let interval = two_round_trips.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL);
        let record = match direction {
            Direction::Up => &self.check.up,
            Direction::Down | Direction::Both => &self.check.down,
        };
        // Of TCP, which the load is.
        let is_tcp = self.options.bulk.udp_rate.is_none();
        let record = record.as_ref().filter(|_| is_tcp);
        responsiveness::Request {
            load: self.bulk_test(direction, RUN.on(self.rtt), Duration::ZERO),
            rate_bps: record.and_then(Record::throughput_bps),
            interval,
            most_intervals: (MAX_LOADED.as_millis() / interval.as_millis()).min(MAX_INTERVALS)
                as u32,
        }
    }

    /// Routers limit their answers, and another trace may just have had them all.
    fn trace_again(&mut self, target: &Target, stop: &Stop) {
        if self.has_silent_hops() {
            self.observer.phase("tracing the route again");
            let again = trace_to(target, self.options.seed, stop);
            self.check.route = super::better(self.check.route.take(), again);
        }
    }

    fn has_silent_hops(&self) -> bool {
        let route = self.check.route.as_deref();
        route.is_some_and(|route| !super::is_whole(route))
    }

    /// Runs each way that a proof usually takes.
    fn proof_runs(&self) -> usize {
        if self.options.quick { 2 } else { 10 }
    }

    /// Plain runs each way.
    fn plain_runs(&self) -> usize {
        if self.options.quick { 1 } else { RUNS }
    }

    fn idle_time(&self) -> Duration {
        Duration::from_millis(if self.options.quick { 500 } else { 1200 })
    }

    /// One bulk transfer with small requests beside it.
    fn bulk(
        &mut self,
        test: &Test,
        all_loaded: &mut LatencyHistogram,
    ) -> Result<(Record, Option<MeasureError>), MeasureError> {
        let warm_up = test.warm_up.0;
        let whole = Duration::try_from_secs_f64(test.seconds().unwrap_or(1.0)).unwrap_or_default();
        let time = whole.saturating_sub(warm_up);
        let began = Instant::now();
        let beside = probe(time, warm_up, self.options.seed);
        let probe = self.probe.as_mut();
        let (bulk, loaded) = thread::scope(|scope| {
            let probing =
                probe.map(|client| scope.spawn(move || client.run_once(&beside, &mut ())));
            let bulk = self.client.run_once(test, &mut ());
            (bulk, probing.map(|probing| joined(probing.join())))
        });
        // A probe that fails costs the latency under load and nothing else.
        if let Some(Ok((record, None))) = loaded
            && let Some(buckets) = &record.latency_histogram
        {
            all_loaded.merge_buckets(buckets).ok();
        }
        let done = bulk?;
        self.beside.0 += began.elapsed().saturating_sub(warm_up + time);
        self.beside.1 += 1;
        Ok(done)
    }

    /// The plain test of a direction after the runs before; that of a proof stays the same.
    fn plain_test(&self, direction: Direction, before: &Runs) -> Test {
        before.plain.clone().unwrap_or_else(|| {
            let (warm_up, time) = self.times(before);
            self.asked_test(direction, time, warm_up)
        })
    }

    fn bulk_test(&self, direction: Direction, time: Duration, warm_up: Duration) -> Test {
        let asked = &self.options.bulk;
        let mut test = bulk(direction, time, warm_up, self.options.seed);
        test.streams = asked.streams.unwrap_or(1);
        test.options.congestion.clone_from(&asked.congestion);
        test
    }

    /// What the check is of: the transfer that was asked for.
    fn asked_test(&self, direction: Direction, time: Duration, warm_up: Duration) -> Test {
        let test = self.bulk_test(direction, time, warm_up);
        match self.options.bulk.udp_rate {
            Some(rate) => over_udp(test, rate),
            None => test,
        }
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
        for (key, direction) in [("up", Direction::Up), ("down", Direction::Down)] {
            let loaded = self.check.loaded_latency_by_direction_us.get(key);
            let throughput_bps = self.check.throughput_bps(direction);
            let found = loaded.map(|loaded| outcomes(loaded, None, throughput_bps));
            let found = found.filter(|found| !found.is_empty());
            self.check.outcomes.extend(found.map(|found| (key.to_owned(), found)));
        }
        if self.options.quick {
            self.check.caveats.push(Caveat::new(
                CaveatKind::FewRuns,
                "one plain run each way: no interval, and no round trips per minute (RPM)",
                "leave --quick out",
            ));
        }
    }

    /// Time that each test takes besides its own.
    fn beside(&self) -> Duration {
        match self.beside {
            (_, 0) => self.rtt * BESIDE_ROUND_TRIPS + BESIDE,
            (all, tests) => all / tests,
        }
    }

    fn takes_to_look_around(&self) -> Duration {
        match self.client.tool() {
            None if self.options.quick => self.rtt * TRAINS_ROUND_TRIPS + self.beside(),
            None => IDLE_WARM_UP + self.idle_time() + self.rtt * TRAINS_ROUND_TRIPS + self.beside(),
            Some(_) => Duration::ZERO,
        }
    }

    /// Both ways: on most paths, and where the round trips settle late.
    fn responsiveness_takes(&self) -> [Duration; 2] {
        let request = self.responsiveness_request(Direction::Up);
        [USUAL_INTERVALS, request.most_intervals].map(|intervals| {
            (responsiveness::IDLE + request.interval * intervals + self.beside() * 2) * 2
        })
    }

    /// After what is done, and with something before the next run.
    fn say_time_left(&mut self, done: [&Runs; 2], before: Duration) {
        let mut left = before;
        for runs in done {
            let (warm_up, time) = self.times(runs);
            let expected = if self.options.prove { self.proof_runs() } else { self.plain_runs() };
            let to_come = expected.saturating_sub(runs.spent.0 as usize);
            left += (warm_up + time + self.beside()) * to_come as u32;
        }
        if self.has_silent_hops() {
            left += check::AGAIN;
        }
        let mut takes = [left, left.mul_f64(BUSY_TIMES)];
        if self.client.tool().is_none() && !self.options.quick {
            let more = self.responsiveness_takes();
            takes = [takes[0] + more[0], takes[1] + more[1]];
        }
        self.observer.takes(takes);
    }

    /// Warm-up and length of a bulk transfer after the runs `before`.
    fn times(&self, before: &Runs) -> (Duration, Duration) {
        let warm_up = if before.are_clean() { CLEAN_WARM_UP } else { WARM_UP };
        let run = match (self.options.quick, self.options.prove) {
            (true, _) => QUICK_RUN,
            (false, false) => RUN,
            (false, true) if before.records.is_empty() || before.are_clean() => PROOF_RUN,
            (false, true) => LOSSY_PROOF_RUN,
        };
        let time = self.options.bulk.time.unwrap_or(run.on(self.rtt));
        (warm_up.on(self.rtt), time)
    }
}

fn worse(by_direction: &BTreeMap<String, LatencySummary>) -> Option<LatencySummary> {
    by_direction.values().max_by(|a, b| a.p50.total_cmp(&b.p50)).copied()
}

// Time that a check has yet to go.

/// Intervals that the measurement takes on most paths.
const USUAL_INTERVALS: u32 = 6;

/// Round trips that a test takes besides its own time: asking for it, connecting, the reports.
const BESIDE_ROUND_TRIPS: u32 = 6;
/// What the hosts take for that.
const BESIDE: Duration = Duration::from_millis(60);
/// So many times longer it takes at most on a busy host.
const BUSY_TIMES: f64 = 1.5;
/// Round trips of the trains, both directions at once: a session, and four short tests.
const TRAINS_ROUND_TRIPS: u32 = 24;

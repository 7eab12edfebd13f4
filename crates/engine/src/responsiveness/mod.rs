//! Round trips per minute: load on several sessions with the same endpoint, and connections beside
//! it that are made, used once and closed.
//!
//! When there is enough load, and what the probes come to, is in [`linerate_core::responsiveness`].

mod loads;

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use linerate_core::plan::{Direction, ExchangeTest, Extent, SocketOptions, Test, Traffic};
use linerate_core::record::{Interval, Leg, Record, Status};
use linerate_core::responsiveness::{
    Backlog, Look, Next, Probe, Responsiveness, Samples, Seen, SendingHost, Wait,
    WorkingConditions, remedy, waits,
};
use linerate_core::session::SessionError;
use linerate_core::units::{End, Span};

use self::loads::{Loaded, Loads};
use crate::client::Client;
use crate::clock::{nanos, now_ns};
use crate::error::MeasureError;
use crate::measure::outcome::AnswerOutcome;
use crate::shares::joined;
use crate::stop::Stop;

/// Test, direction and longest time of a measurement.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// What each load is: a stream in one direction.
    pub(crate) load: Test,
    /// What the path carries that way, bits per second, where that is known.
    pub(crate) rate_bps: Option<f64>,
    /// After each a load is added.
    pub(crate) interval: Duration,
    /// With load.
    pub(crate) most_intervals: u32,
}

/// Result.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) responsiveness: Responsiveness,
    /// Record of each load, in the order of their beginning.
    pub(crate) records: Vec<Record>,
}

/// Where nothing asks for a longer one.
const INTERVAL: Duration = Duration::from_millis(500);
/// Most sessions with load: those whose flows are not needed are opened and closed.
const MAX_LOADS: u32 = 16;
/// The idle path is looked at so long, once it has answered.
pub(crate) const IDLE: Duration = Duration::from_millis(500);
/// Beside the intervals: making connections, and the end.
const SPARE: Duration = Duration::from_secs(20);

impl Request {
    /// Longest time that the whole measurement takes.
    fn longest(&self) -> Duration {
        IDLE + self.interval * self.most_intervals + SPARE
    }
}

/// The responsiveness of a path whose load is what a test says, for as long as the test at most.
/// The record is the first load's.
///
/// # Errors
/// As [`measure`].
pub(crate) fn of_load(client: &mut Client, load: &Test) -> Result<Record, MeasureError> {
    let time_s = load.seconds().unwrap_or_default();
    let request = Request {
        load: load.clone(),
        rate_bps: None,
        interval: INTERVAL,
        most_intervals: (time_s / INTERVAL.as_secs_f64()) as u32,
    };
    let Measured { responsiveness, records } = measure(client, &request)?;
    let first = records.into_iter().next();
    let unheard = || client.session_error(SessionError::Timeout("no load was reported"));
    Ok(Record {
        // It was ended when the path was.
        status: Status::Complete,
        responsiveness: Some(Box::new(responsiveness)),
        ..first.ok_or_else(unheard)?
    })
}

/// Measures one direction. The path has to be idle.
///
/// # Errors
/// The endpoint refuses the probes or every load; a load ended; no probe was answered; interrupted.
pub(crate) fn measure(client: &mut Client, request: &Request) -> Result<Measured, MeasureError> {
    let unanswered = client.session_error(SessionError::Timeout("no probe was answered"));
    let over = Stop::new();
    let (course, answers, loaded) = thread::scope(|scope| {
        let mut loads = Loads::connect(scope, client, request, &over, MAX_LOADS);
        let mut probes = Probes::start(scope, client, request, &over);
        let course = follow(request, &mut loads, &mut probes);
        over.request();
        let (answers, loaded) = (probes.end(), loads.end());
        Ok::<_, MeasureError>((course, answers?, loaded?))
    })?;
    let Some(course) = course else {
        return Err(unanswered);
    };
    let looks: Vec<Vec<&Interval>> = loaded.iter().map(|load| looks(load, &course)).collect();
    let samples = Samples {
        idle: between(&answers, 0, course.idle_until_ns),
        loaded: between(&answers, course.from_ns, course.to_ns),
        loaded_flows_us: (loaded.iter()).flat_map(|load| waits_us(load, &course)).collect(),
    };
    let score = samples.score().ok_or(unanswered)?;
    let (goodput_stable, stable) = course.working.stable();
    let flows = course.loads * request.load.streams;
    let backlog = Backlog {
        idle_us: score.idle_us,
        goodput_bps: course.working.goodput_bps(),
        flows,
        ..backlog(&loaded, &looks)
    };
    let mut queues = backlog.queues();
    if let Some(host) = loaded.first().and_then(|load| sender(&load.record, &backlog)) {
        queues.iter_mut().for_each(|queue| queue.remedy = remedy(queue, &host));
    }
    Ok(Measured {
        responsiveness: Responsiveness {
            flows,
            throughput_bps: backlog.goodput_bps,
            interval_s: request.interval.as_secs_f64(),
            intervals: course.working.intervals(),
            stable,
            goodput_stable,
            queues,
            ..score
        },
        records: loaded.into_iter().map(|load| load.record).collect(),
    })
}

/// Progress of a measurement; times are of [`crate::clock`].
struct LoadPhase {
    working: WorkingConditions,
    loads: u32,
    idle_until_ns: u64,
    /// The last intervals, of which the figure is.
    from_ns: u64,
    to_ns: u64,
}

/// The idle path, then interval after interval with one load more, until nothing changes any more.
/// `None` where a load or the probes ended first.
fn follow(request: &Request, loads: &mut Loads<'_>, probes: &mut Probes<'_>) -> Option<LoadPhase> {
    let is_answered = probes.first() && probes.take(IDLE);
    let idle_until_ns = now_ns();
    if !is_answered || !loads.add() {
        return None;
    }
    let mut working = WorkingConditions::new(MAX_LOADS, request.most_intervals);
    let mut begins = Vec::new();
    loop {
        let from_ns = now_ns();
        begins.push(from_ns);
        if !probes.take(request.interval) || loads.have_failed() {
            return None;
        }
        let next = working.interval(Seen {
            goodput_bps: loads.goodput_bps(request.interval),
            round_trip_us: probes.round_trip_us(from_ns),
        });
        match next {
            Next::Add => {
                // An endpoint may allow fewer.
                loads.add();
            }
            Next::Hold => {}
            Next::Done => break,
        }
    }
    let first = begins.len().saturating_sub(WorkingConditions::DISTANCE);
    Some(LoadPhase {
        loads: loads.count(),
        working,
        idle_until_ns,
        from_ns: begins[first],
        to_ns: now_ns(),
    })
}

/// A load's looks at its sender in the last intervals.
fn looks<'a>(load: &'a Loaded, course: &LoadPhase) -> Vec<&'a Interval> {
    let ended = |look: &Interval| {
        let end_s = look.start_s + look.seconds;
        load.began_ns + (end_s * 1e9) as u64
    };
    let intervals = load.record.intervals.iter();
    intervals.filter(|look| (course.from_ns..course.to_ns).contains(&ended(look))).collect()
}

/// What a request on this flow would have waited for its response, of those of the last intervals.
fn waits_us(load: &Loaded, course: &LoadPhase) -> Vec<f64> {
    let look = |interval: &Interval| Look {
        seconds: interval.seconds,
        bytes: interval.bytes,
        unsent_bytes: interval.notsent_bytes.unwrap_or(0),
        rtt_us: interval.rtt_us,
    };
    let looks: Vec<Look> = load.record.intervals.iter().map(look).collect();
    let is_counted = |wait: &Wait| {
        let at_ns = load.began_ns + (wait.at_s * 1e9) as u64;
        (course.from_ns..course.to_ns).contains(&at_ns)
    };
    let counted = waits(&looks).into_iter().filter(is_counted);
    counted.map(|wait| wait.us).collect()
}

/// What both ends' kernels show of the loads; what is known of the path is left to fill in.
fn backlog(loaded: &[Loaded], looks: &[Vec<&Interval>]) -> Backlog {
    let legs = || loaded.iter().filter_map(|load| load.record.leg());
    let unread = |leg: &Leg| leg.tcp.as_ref()?.receiver.as_ref()?.unread_bytes;
    let unsent = looks.iter().map(|looks| {
        let sum: u64 = looks.iter().filter_map(|look| look.notsent_bytes).sum();
        sum.checked_div(looks.len() as u64).unwrap_or(0)
    });
    let rtts: Vec<f64> = looks.iter().flatten().filter_map(|look| look.rtt_us).collect();
    Backlog {
        round_trip_us: rtts.iter().sum::<f64>() / rtts.len().max(1) as f64,
        unsent_bytes: unsent.sum(),
        // All of them look at the same device.
        qdisc_bytes: legs().find_map(|leg| leg.sender.as_ref()?.qdisc_backlog_bytes),
        unread_bytes: legs().map(unread).sum(),
        ..Backlog::default()
    }
}

fn sender<'a>(record: &'a Record, backlog: &Backlog) -> Option<SendingHost<'a>> {
    let environment = &record.environment;
    let (end, host) = match record.direction {
        Direction::Up => (End::Client, &environment.client),
        Direction::Down | Direction::Both => (End::Server, environment.server.as_ref()?),
    };
    Some(SendingHost {
        end,
        device: host.device.as_ref().map(|device| device.name.as_str()),
        disciplines: &host.disciplines,
        sysctls: &host.sysctls,
        goodput_bps: backlog.goodput_bps,
        flows: backlog.flows,
    })
}

// The connections beside the load.

/// Probes under way.
struct Probes<'scope> {
    told: Receiver<AnswerOutcome>,
    answers: Vec<AnswerOutcome>,
    thread: ScopedJoinHandle<'scope, Result<(), MeasureError>>,
}

/// Most probes for each second (the draft's MPS).
const MAX_PER_S: f64 = 100.0;
/// Fewest, on a slow path.
const MIN_PER_S: f64 = 4.0;
/// Share of what the path carries that the probes may have (the draft's PTC).
const SHARE: f64 = 0.05;
/// What a probe sends each way: six packets of TCP without payload or with little, Ethernet's
/// header on each.
const PROBE_BITS: f64 = 6.0 * 80.0 * 8.0;
/// Each flow makes one connection after the other: so many are under way at once.
const FLOWS: u32 = 16;
/// Longest wait for the first answer.
const FIRST: Duration = Duration::from_secs(10);

impl<'scope> Probes<'scope> {
    /// From now on, until `over`.
    fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        client: &'env mut Client,
        request: &Request,
        over: &'env Stop,
    ) -> Self {
        let (tell, told) = mpsc::channel();
        let limits = &client.welcome().limits;
        let longest = Duration::try_from_secs_f64(limits.seconds).unwrap_or(Duration::MAX);
        let test = probe_test(request, FLOWS.min(limits.streams), longest);
        let thread = scope.spawn(move || {
            let outcome = client.run_told(&test, tell, &mut |_| !over.is_requested())?;
            match outcome.error {
                Some(MeasureError::Interrupted) if over.is_requested() => Ok(()),
                Some(error) => Err(error),
                None => Ok(()),
            }
        });
        Self { told, answers: Vec::new(), thread }
    }

    /// Waits for the first answer.
    fn first(&mut self) -> bool {
        let first = self.told.recv_timeout(FIRST);
        self.answers.extend(first.ok());
        !self.answers.is_empty()
    }

    /// Takes answers for so long; false if no more will come.
    fn take(&mut self, time: Duration) -> bool {
        let until_ns = now_ns() + nanos(time);
        loop {
            let left = Duration::from_nanos(until_ns.saturating_sub(now_ns()));
            match self.told.recv_timeout(left) {
                Ok(answer) => self.answers.push(answer),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }

    /// Mean round trip of those that have ended since then, µs.
    fn round_trip_us(&self, since_ns: u64) -> Option<f64> {
        let ended = between(&self.answers, since_ns, u64::MAX);
        let mean = ended.iter().map(|probe| probe.round_trip_us()).sum::<f64>();
        (!ended.is_empty()).then(|| mean / ended.len() as f64)
    }

    /// All that ended, when the session is through with them.
    ///
    /// # Errors
    /// They could not be begun, or ended early.
    fn end(self) -> Result<Vec<AnswerOutcome>, MeasureError> {
        joined(self.thread.join()).map(|()| self.answers)
    }
}

/// Probes that ended between two times.
fn between(answers: &[AnswerOutcome], from_ns: u64, to_ns: u64) -> Vec<Probe> {
    let us = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e3;
    let ended = answers.iter().filter(|answer| (from_ns..to_ns).contains(&answer.answered_ns));
    let probe = |answer: &AnswerOutcome| Probe {
        connect_us: us(answer.began_ns, answer.connected_ns),
        request_us: us(answer.connected_ns, answer.answered_ns),
    };
    ended.map(probe).collect()
}

fn probe_test(request: &Request, flows: u32, longest: Duration) -> Test {
    let affordable = request.rate_bps.map(|bps| bps * SHARE / PROBE_BITS);
    let rate = affordable.map_or(MAX_PER_S, |rate| rate.clamp(MIN_PER_S, MAX_PER_S));
    let load = &request.load;
    Test {
        traffic: Traffic::Crr(ExchangeTest { rate_per_s: Some(rate), ..ExchangeTest::new(1, 1) }),
        direction: Direction::Up,
        streams: flows,
        extent: Extent::Time(Span(request.longest().min(longest))),
        warm_up: Span(Duration::ZERO),
        interval: Span(request.interval),
        // What is asked of the load's sockets is not asked of these.
        options: SocketOptions { nodelay: true, ..SocketOptions::default() },
        ..load.clone()
    }
}

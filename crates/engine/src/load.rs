//! A mix on a path: every member a session and a thread of its own, all on one clock. And the load
//! beside each run of a comparison.
//!
//! All sessions are there, with their data connections, before the first of them begins: whatever
//! keeps a member from running is known by then.

use std::sync::{Barrier, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use linerate_core::load::{LoadDocument, LoadMember, Member, Mix};
use linerate_core::plan::{Extent, Test};
use linerate_core::record::{Caveat, CaveatKind, Leg, Record};
use linerate_core::session::Owner;
use linerate_core::session::operation::STAMP;
use linerate_core::treatment::Treatments;
use linerate_core::units::{End, Span};

use super::shares::joined;
use crate::campaign::Observer;
use crate::client::{Client, FarClock, Live, Outcome, Start};
use crate::clock::{nanos, now_ns};
use crate::endpoint::share_of_one;
use crate::error::MeasureError;
use crate::stop::Stop;
use crate::target::Target;
use crate::treatment::{Applied, TreatError};

/// From when the last session is ready to the beginning, and half a round trip more: by then both
/// ends of each have been told, have their threads and sleep.
const LEAD: Duration = Duration::from_millis(100);
/// A member that begins later than this is made ready so long before its start: an endpoint waits
/// ten seconds for whoever is ready.
const READY_BEFORE: Duration = Duration::from_secs(5);

/// Runs a mix with an endpoint, or with several of them. What ends it early is in the error beside
/// the document.
///
/// # Errors
/// An endpoint does not allow all of it, this host not what it changes, a session could not be had
/// or not begun, or it was stopped before the load.
pub fn load(
    targets: &[Target],
    mix: &Mix,
    seed: u64,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<(LoadDocument, Option<MeasureError>), MeasureError> {
    observer.phase("connecting");
    let firsts = targets
        .iter()
        .map(|target| Client::connect(target.clone(), stop.clone()))
        .collect::<Result<Vec<_>, _>>()?;
    let mut mix = mix.clone();
    let reflects = |first: &Client| first.welcome().operations.iter().any(|name| name == STAMP);
    if !firsts.iter().all(reflects) {
        mix.without_stamp();
    }
    for (endpoint, (first, target)) in firsts.iter().zip(targets).enumerate() {
        check(&mix, endpoint, first, target.key.is_some())?;
    }
    let _ecn = ask_for_ecn(&mix, &firsts)?;
    let mut clients = sessions(&mix, firsts)?;
    let takes = mix.idle.as_secs_f64() + mix.seconds();
    observer.takes([Duration::from_secs_f64(takes); 2]);
    observer.phase("idle latency");
    let idle = idle(&mut clients, &mix, stop)?;
    observer.phase(&format!("{}, {} members", mix.name, mix.members.len()));
    let clocks = clocks(&mut clients, &mix, targets.len())?;
    let round_trips = clocks.iter().flatten().map(|clock| clock.round_trip_ns);
    let farthest_ns = round_trips.max().unwrap_or_default();
    let jobs = mix.members.iter().map(|member| {
        Some(Job {
            test: member.test.clone(),
            start: member.start.0,
            there: clocks[member.endpoint].map(|clock| There { clock, farthest_ns }),
            lead: LEAD + Duration::from_nanos(farthest_ns / 2),
        })
    });
    let runs = together(&mut clients, jobs.collect(), stop)?;
    Ok(document(&mix, seed, idle, runs))
}

/// Each endpoint's, as near to the beginning as can be: clocks drift.
fn clocks(
    clients: &mut [Client],
    mix: &Mix,
    endpoints: usize,
) -> Result<Vec<Option<FarClock>>, MeasureError> {
    let of = |endpoint: usize| {
        let is_there = |member: &Member| member.endpoint == endpoint;
        let first = mix.members.iter().position(is_there);
        first.map_or(Ok(None), |first| clients[first].clock())
    };
    (0..endpoints).map(of).collect()
}

/// A session for each member; `firsts` are one with each endpoint.
fn sessions(mix: &Mix, firsts: Vec<Client>) -> Result<Vec<Client>, MeasureError> {
    let mut firsts: Vec<Option<Client>> = firsts.into_iter().map(Some).collect();
    let mut clients: Vec<Client> = Vec::new();
    for member in &mix.members {
        let there = mix.members.iter().position(|other| other.endpoint == member.endpoint);
        clients.push(match (firsts[member.endpoint].take(), there) {
            (None, Some(there)) => clients[there].another()?,
            (first, _) => first.expect("the first member of an endpoint has its first session"),
        });
    }
    Ok(clients)
}

/// Has this host's connections ask for ECN while the mix runs, or not ask, where a member wants
/// that; an endpoint agrees unless its owner has forbidden it.
fn ask_for_ecn(mix: &Mix, firsts: &[Client]) -> Result<Option<Applied>, MeasureError> {
    let Some(asked) = mix.members.iter().find_map(|member| member.ecn) else {
        return Ok(None);
    };
    let text = if asked { "sysctl:net.ipv4.tcp_ecn=1" } else { "sysctl:net.ipv4.tcp_ecn=2" };
    let treatments: Treatments = text.parse().map_err(TreatError::from)?;
    let changes = treatments.host_changes(End::Client);
    Ok(Some(Applied::apply(&changes, firsts[0].peer().ip())?))
}

/// What a session is to do, and how long after the mix's beginning.
struct Job {
    test: Test,
    start: Duration,
    /// Measuring at an endpoint, which begins by its own clock.
    there: Option<There>,
    /// From when all are ready to the beginning of the mix.
    lead: Duration,
}

/// When an endpoint begins: what the nearer ones send arrives with what the farthest does.
#[derive(Clone, Copy)]
struct There {
    clock: FarClock,
    farthest_ns: u64,
}

/// Whether the endpoint allows every member, and as many of them.
fn check(mix: &Mix, endpoint: usize, client: &Client, has_key: bool) -> Result<(), MeasureError> {
    let welcome = client.welcome();
    let clients = u64::from(welcome.limits.clients);
    // Whoever has proved a key has no share to keep to.
    let sessions = if has_key { clients } else { share_of_one(clients) };
    let owner = Owner { limits: &welcome.limits, operations: &welcome.operations };
    mix.check(endpoint, &owner, sessions).map_err(|refusal| client.refused(refusal))
}

/// Each probe on the idle path.
fn idle(
    clients: &mut [Client],
    mix: &Mix,
    stop: &Stop,
) -> Result<Vec<Option<Outcome>>, MeasureError> {
    let job = |member: &Member| {
        let is_measured = member.probe && !mix.idle.0.is_zero();
        is_measured.then(|| Job {
            test: Test {
                extent: Extent::Time(mix.idle),
                warm_up: Span(mix.idle.0 / 10),
                ..member.test.clone()
            },
            start: Duration::ZERO,
            there: None,
            lead: Duration::ZERO,
        })
    };
    let runs = together(clients, mix.members.iter().map(job).collect(), stop)?;
    let whole = |run: Option<Outcome>| match run {
        Some(Outcome { error: Some(error), .. }) => Err(error),
        run => Ok(run),
    };
    runs.into_iter().map(whole).collect()
}

/// Runs each job on its session.
///
/// # Errors
/// One of them could not be begun: then none of those that were to begin with it is.
fn together(
    clients: &mut [Client],
    jobs: Vec<Option<Job>>,
    stop: &Stop,
) -> Result<Vec<Option<Outcome>>, MeasureError> {
    let gate = &Gate::new(jobs.iter().flatten().count(), stop);
    let mut runs: Vec<Option<Result<Outcome, MeasureError>>> = thread::scope(|scope| {
        let threads: Vec<_> = (clients.iter_mut().zip(jobs))
            .map(|(client, job)| job.map(|job| scope.spawn(move || job.run(client, gate))))
            .collect();
        threads.into_iter().map(|thread| thread.map(|thread| joined(thread.join()))).collect()
    });
    // The others were only told not to begin.
    let is_cause = |run: &Option<Result<_, MeasureError>>| {
        let error = run.as_ref().and_then(|run| run.as_ref().err());
        error.is_some_and(|error| !matches!(error, MeasureError::Interrupted))
    };
    if let Some(failed) = runs.iter().position(is_cause) {
        runs.swap(0, failed);
    }
    runs.into_iter().map(Option::transpose).collect()
}

impl Job {
    fn run(self, client: &mut Client, gate: &Gate<'_>) -> Result<Outcome, MeasureError> {
        let mut is_through = false;
        if self.start > READY_BEFORE {
            is_through = true;
            gate.pass(self.lead)
                .filter(|began_ns| gate.sleep(began_ns + nanos(self.start - READY_BEFORE)))
                .ok_or(MeasureError::Interrupted)?;
        }
        let mut wait = || {
            let began_ns = if is_through {
                gate.began_ns.get().copied()
            } else {
                is_through = true;
                gate.pass(self.lead)
            };
            let here_ns = began_ns? + nanos(self.start);
            // An endpoint that takes no moment begins when it is told to.
            let told_ns = here_ns - self.there.map_or(0, |_| nanos(self.lead));
            let start = Start {
                here_ns: Some(here_ns),
                there_us: self.there.map(|there| there.moment_us(here_ns)),
            };
            gate.sleep(told_ns).then_some(start)
        };
        let outcome = client.run_from(&self.test, &mut wait, &mut |_| true);
        if !is_through {
            gate.fail();
        }
        outcome
    }
}

impl There {
    /// The moment by the endpoint's clock, µs.
    fn moment_us(self, here_ns: u64) -> u64 {
        let later_ns = (self.farthest_ns - self.clock.round_trip_ns) / 2;
        let moment_us = (here_ns + later_ns) / 1_000;
        moment_us.saturating_add_signed(self.clock.ahead_us)
    }
}

/// Where all sessions wait for the last of them.
struct Gate<'a> {
    barrier: Barrier,
    failed: Stop,
    began_ns: OnceLock<u64>,
    stop: &'a Stop,
}

impl<'a> Gate<'a> {
    fn new(sessions: usize, stop: &'a Stop) -> Self {
        Self {
            barrier: Barrier::new(sessions),
            failed: Stop::new(),
            began_ns: OnceLock::new(),
            stop,
        }
    }

    /// Waits for all others; says when the first of them begin, if all are ready.
    fn pass(&self, lead: Duration) -> Option<u64> {
        self.barrier.wait();
        let began_ns = *self.began_ns.get_or_init(|| now_ns() + nanos(lead));
        (!self.failed.is_requested()).then_some(began_ns)
    }

    /// This one is not ready, and never will be.
    fn fail(&self) {
        self.failed.request();
        self.barrier.wait();
    }

    /// False if it was stopped before.
    fn sleep(&self, until: u64) -> bool {
        self.stop.sleep_until(until, Duration::ZERO, |_| ())
    }
}

fn document(
    mix: &Mix,
    seed: u64,
    idle: Vec<Option<Outcome>>,
    runs: Vec<Option<Outcome>>,
) -> (LoadDocument, Option<MeasureError>) {
    let mut error = None;
    let mut members = Vec::new();
    for ((member, idle), run) in mix.members.iter().zip(idle).zip(runs) {
        let Some(run) = run else { continue };
        let latency = idle.as_ref().and_then(|idle| idle.record.latency_us);
        let mut ran = LoadMember::new(member, latency, run.record);
        ran.idle_probes = idle.map(|idle| idle.probes).unwrap_or_default();
        ran.probes = run.probes;
        if member.ecn == Some(true) {
            let lacking = ran.record.legs.iter().any(|leg| !negotiated_ecn(leg));
            ran.record.caveats.extend(lacking.then(no_ecn));
        }
        error = error.or(run.error);
        members.push(ran);
    }
    (LoadDocument::new(mix, seed, members), error)
}

/// Whether ECN was negotiated; taken for granted of requests, which carry no evidence of it.
fn negotiated_ecn(leg: &Leg) -> bool {
    let options = leg.tcp.as_ref().and_then(|tcp| tcp.sender());
    options.is_none_or(|sender| sender.options.iter().any(|option| option == "ecn"))
}

fn no_ecn() -> Caveat {
    Caveat::new(
        CaveatKind::SettingNotTaken,
        "ECN was asked for and not negotiated",
        "set net.ipv4.tcp_ecn to 1 or 2 on the endpoint's host; a device on the path may clear it",
    )
}

// The load beside each run of a comparison: a second session with the same endpoint.

/// A session that sends while another one measures.
#[derive(Debug)]
pub(crate) struct LoadBeside {
    client: Client,
    test: Test,
}

/// Of the time that the load may have, what is left for the setting up of the run beside it.
const SPARE: Duration = Duration::from_secs(60);
/// Beside a run whose length nobody knows.
const LONGEST: Duration = Duration::from_secs(3600);

impl LoadBeside {
    /// A further session with the endpoint of `client`, for a load beside runs of `beside`.
    ///
    /// # Errors
    /// As [`Client::connect`]; an endpoint may allow no more clients.
    pub(crate) fn connect(
        client: &Client,
        load: &Test,
        beside: &Test,
    ) -> Result<Self, MeasureError> {
        let client = client.another()?;
        let run = beside.seconds().map(Duration::from_secs_f64);
        let longest = client.welcome().limits.seconds - load.warm_up.as_secs_f64();
        let time = run.map_or(LONGEST, |run| run + SPARE);
        let test = Test {
            extent: Extent::Time(Span(time.min(Duration::from_secs_f64(longest.max(0.01))))),
            ..load.clone()
        };
        Ok(Self { client, test })
    }

    /// Does something while the load is past its warm-up, and ends the load with it. Beside what
    /// came of it stands the load's headline.
    ///
    /// # Errors
    /// That of `act`; the load could not be begun, or ended before `act` did.
    pub(crate) fn beside<T>(
        &mut self,
        act: impl FnOnce() -> Result<T, MeasureError>,
    ) -> Result<(T, Option<(String, f64)>), MeasureError> {
        let (client, test) = (&mut self.client, &self.test);
        let over = &Stop::new();
        let (warm, is_warm) = mpsc::channel();
        let (done, outcome) = thread::scope(|scope| {
            let load = scope.spawn(move || {
                let warm_up = test.warm_up.as_secs_f64();
                client.run(test, &mut |live: &Live| {
                    if live.at_s >= warm_up {
                        // Nobody waits any more once the run is there.
                        let _ = warm.send(());
                    }
                    !over.is_requested()
                })
            });
            // A load that could not be begun hangs up.
            let done = is_warm.recv().ok().map(|()| act());
            over.request();
            (done, joined(load.join()))
        });
        let Outcome { record, error, .. } = outcome?;
        match (done, error) {
            (Some(Err(error)), _) => Err(error),
            // Told to stop, as it was to be.
            (Some(Ok(done)), Some(MeasureError::Interrupted)) => Ok((done, headline(&record))),
            (_, Some(error)) => Err(error),
            (_, None) => Err(MeasureError::LoadEnded),
        }
    }
}

fn headline(record: &Record) -> Option<(String, f64)> {
    let (name, value) = record.headline()?;
    Some((format!("with.{name}"), value))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use linerate_core::plan::{Draft, Workload};

    use super::*;
    use crate::own_endpoint::OwnEndpoint;

    fn test(workload: Workload, options: &[(&str, &str)]) -> Test {
        let mut draft = Draft::new(workload);
        for (key, text) in options {
            draft.set(key, text).unwrap();
        }
        draft.resolve(1).unwrap()
    }

    #[test]
    fn a_load_begins_before_the_run_and_ends_with_it_again_and_again() {
        let endpoint = OwnEndpoint::start(Ipv4Addr::LOCALHOST.into(), None).unwrap();
        let mut client = Client::connect(endpoint.target("here"), Stop::new()).unwrap();
        let run = test(Workload::Rr, &[("count", "50")]);
        let load = test(Workload::Stream, &[("warm-up", "20ms")]);
        let mut load = LoadBeside::connect(&client, &load, &run).unwrap();
        for _ in 0..2 {
            let measure = || Ok(client.run(&run, &mut |_| true)?.record);
            let (record, figure) = load.beside(measure).unwrap();
            assert_eq!(record.transactions, Some(50));
            let (path, _) = figure.unwrap();
            assert_eq!(path, "with.throughput_bps");
        }
        let failed = load.beside(|| Err::<(), _>(MeasureError::LoadEnded));
        assert!(matches!(failed, Err(MeasureError::LoadEnded)));
        assert!(load.beside(|| Ok(())).is_ok());
    }
}

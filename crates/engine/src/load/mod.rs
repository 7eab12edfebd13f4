//! A mix on a path: every member a session and a thread of its own, all on one clock.
//!
//! All sessions are there, with their data connections, before the first of them begins: whatever
//! keeps a member from running is known by then.
//!
//! | module | what is in it |
//! |---|---|
//! | `beside` | the load beside each run of a comparison |

mod beside;

use std::sync::{Barrier, OnceLock};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use linerate_core::load::{LoadDocument, LoadMember, Member, Mix, spread_us};
use linerate_core::plan::{Extent, Test};
use linerate_core::record::{Caveat, CaveatKind, Leg};
use linerate_core::session::Owner;
use linerate_core::session::operation::STAMP;
use linerate_core::treatment::Treatments;
use linerate_core::units::{End, Span};
use linerate_sys::clock::sleep_until;
use linerate_sys::thread::wake_sharply;

pub(crate) use self::beside::Load;
use crate::campaign::Observer;
use crate::client::{Client, Outcome};
use crate::clock::{nanos, now_ns};
use crate::endpoint::share_of_one;
use crate::error::MeasureError;
use crate::stop::Stop;
use crate::target::Target;
use crate::treatment::{Applied, TreatError};

/// From when the last session is ready to the beginning: every thread is asleep by then.
const LEAD: Duration = Duration::from_millis(20);
/// A member that begins later than this is made ready so long before its start: an endpoint waits
/// ten seconds for whoever is ready.
const READY_BEFORE: Duration = Duration::from_secs(5);
/// Longest sleep without a look at the stop flag.
const SLICE: Duration = Duration::from_millis(50);

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
        .map(|target| Client::connect(target.clone(), stop.clone()));
    let firsts = firsts.collect::<Result<Vec<_>, _>>()?;
    let mut mix = mix.clone();
    let reflects = |first: &Client| first.welcome().operations.iter().any(|name| name == STAMP);
    if !firsts.iter().all(reflects) {
        mix.without_stamp();
    }
    for (endpoint, (first, target)) in firsts.iter().zip(targets).enumerate() {
        check(&mix, endpoint, first, target.key.is_some())?;
    }
    let _ecn = ask_for_ecn(&mix, &firsts)?;
    let connect_times: Vec<Duration> = firsts.iter().map(Client::connect_time).collect();
    let mut clients = sessions(&mix, firsts)?;
    let takes = mix.idle.as_secs_f64() + mix.seconds();
    observer.takes([Duration::from_secs_f64(takes); 2]);
    observer.phase("idle latency");
    let idle = idle(&mut clients, &mix, stop)?;
    observer.phase(&format!("{}, {} members", mix.name, mix.members.len()));
    // What the nearer endpoints send arrives with what the farthest does.
    let farthest = connect_times.iter().max().copied().unwrap_or_default();
    let later = |member: &Member| farthest - connect_times[member.endpoint];
    let jobs = mix.members.iter().map(|member| {
        let start = member.start.0 + later(member);
        let test = member.test.clone();
        Some(Job { test, start })
    });
    let (began_ns, runs) = together(&mut clients, jobs.collect(), stop)?;
    Ok(document(&mix, seed, began_ns, &later, idle, runs))
}

/// A session for each member; `firsts` are one with each endpoint.
fn sessions(mix: &Mix, firsts: Vec<Client>) -> Result<Vec<Client>, MeasureError> {
    let mut firsts: Vec<Option<Client>> = firsts.into_iter().map(Some).collect();
    let mut clients: Vec<Client> = Vec::new();
    for member in &mix.members {
        let there = mix
            .members
            .iter()
            .position(|other| other.endpoint == member.endpoint);
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
    let text = if asked {
        "sysctl:net.ipv4.tcp_ecn=1"
    } else {
        "sysctl:net.ipv4.tcp_ecn=2"
    };
    let treatments: Treatments = text.parse().map_err(TreatError::from)?;
    let changes = treatments.host_changes(End::Client);
    Ok(Some(Applied::apply(&changes, firsts[0].peer().ip())?))
}

/// What a session is to do, and how long after the first.
struct Job {
    test: Test,
    start: Duration,
}

/// Whether the endpoint allows every member, and as many of them.
fn check(mix: &Mix, endpoint: usize, client: &Client, has_key: bool) -> Result<(), MeasureError> {
    let welcome = client.welcome();
    let clients = u64::from(welcome.limits.clients);
    // Whoever has proved a key has no share to keep to.
    let sessions = if has_key {
        clients
    } else {
        share_of_one(clients)
    };
    let owner = Owner {
        limits: &welcome.limits,
        operations: &welcome.operations,
    };
    mix.check(endpoint, &owner, sessions)
        .map_err(|refusal| client.refused(refusal))
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
        })
    };
    let (_, runs) = together(clients, mix.members.iter().map(job).collect(), stop)?;
    let whole = |run: Option<Outcome>| match run {
        Some(Outcome {
            error: Some(error), ..
        }) => Err(error),
        run => Ok(run),
    };
    runs.into_iter().map(whole).collect()
}

/// Runs each job on its session, and says when the first of them began by this host's clock.
///
/// # Errors
/// One of them could not be begun: then none of those that were to begin with it is.
fn together(
    clients: &mut [Client],
    jobs: Vec<Option<Job>>,
    stop: &Stop,
) -> Result<(u64, Vec<Option<Outcome>>), MeasureError> {
    let gate = &Gate::new(jobs.iter().flatten().count(), stop);
    let mut runs: Vec<Option<Result<Outcome, MeasureError>>> = thread::scope(|scope| {
        let threads: Vec<_> = (clients.iter_mut().zip(jobs))
            .map(|(client, job)| job.map(|job| scope.spawn(move || job.run(client, gate))))
            .collect();
        let threads = threads.into_iter();
        threads.map(|thread| thread.map(joined)).collect()
    });
    // The others were only told not to begin.
    let is_cause = |run: &Option<Result<_, MeasureError>>| {
        let error = run.as_ref().and_then(|run| run.as_ref().err());
        error.is_some_and(|error| !matches!(error, MeasureError::Interrupted))
    };
    if let Some(failed) = runs.iter().position(is_cause) {
        runs.swap(0, failed);
    }
    let runs: Result<Vec<_>, _> = runs.into_iter().map(Option::transpose).collect();
    Ok((gate.began_ns.get().copied().unwrap_or_default(), runs?))
}

/// A thread's result; its panic goes on here, where it is not lost.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl Job {
    fn run(self, client: &mut Client, gate: &Gate<'_>) -> Result<Outcome, MeasureError> {
        // Where it is refused, the skew shows it.
        wake_sharply();
        let start = nanos(self.start);
        let mut is_through = false;
        if self.start > READY_BEFORE {
            is_through = true;
            let ready = nanos(self.start - READY_BEFORE);
            if !gate.pass() || !gate.sleep(ready) {
                return Err(MeasureError::Interrupted);
            }
        }
        let mut wait = || {
            let passed = is_through || gate.pass();
            is_through = true;
            passed && gate.sleep(start)
        };
        let outcome = client.run_from(&self.test, &mut wait, &mut |_| true);
        if !is_through {
            gate.fail();
        }
        outcome
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

    /// Waits for all others; says whether all of them are ready.
    fn pass(&self) -> bool {
        self.barrier.wait();
        self.began_ns.get_or_init(|| now_ns() + nanos(LEAD));
        !self.failed.is_requested()
    }

    /// This one is not ready, and never will be.
    fn fail(&self) {
        self.failed.request();
        self.barrier.wait();
    }

    /// Until so long after the beginning; false if it was stopped.
    fn sleep(&self, after_ns: u64) -> bool {
        let until = self.began_ns.get().copied().unwrap_or_default() + after_ns;
        while !self.stop.is_requested() {
            let now = now_ns();
            if now >= until {
                return true;
            }
            sleep_until(until.min(now + nanos(SLICE)), Duration::ZERO);
        }
        false
    }
}

fn document(
    mix: &Mix,
    seed: u64,
    began_ns: u64,
    later: &dyn Fn(&Member) -> Duration,
    idle: Vec<Option<Outcome>>,
    runs: Vec<Option<Outcome>>,
) -> (LoadDocument, Option<MeasureError>) {
    let (mut error, mut at_once) = (None, Vec::new());
    let mut members = Vec::new();
    for ((member, idle), run) in mix.members.iter().zip(idle).zip(runs) {
        let Some(run) = run else { continue };
        let begun: Vec<u64> = run.begun_ns.into_iter().filter(|ns| *ns > 0).collect();
        let latency = idle.as_ref().and_then(|idle| idle.record.latency_us);
        let mut ran = LoadMember::new(member, latency, run.record);
        ran.idle_probes = idle.map(|idle| idle.probes).unwrap_or_default();
        ran.probes = run.probes;
        let first = begun.iter().min();
        ran.started_s = first.map(|first| first.saturating_sub(began_ns) as f64 / 1e9);
        if member.start.0.is_zero() {
            let later_ns = nanos(later(member));
            at_once.extend(begun.iter().map(|ns| ns - later_ns));
        }
        if member.ecn == Some(true) {
            let lacking = ran.record.legs.iter().any(|leg| !negotiated_ecn(leg));
            ran.record.caveats.extend(lacking.then(no_ecn));
        }
        error = error.or(run.error);
        members.push(ran);
    }
    let mut document = LoadDocument::new(mix, seed, members);
    document.start_skew_us = spread_us(&at_once);
    (document, error)
}

/// Of requests nothing is known.
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

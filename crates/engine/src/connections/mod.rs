//! TCP connections of this host, whoever's: watched from outside.
//!
//! [`Watch`] looks at the sockets of one network namespace again and again; [`Watch::document`]
//! says what moved, and what holds each back. [`explain_connections`] does both for a few
//! connections.
//!
//! | module | what is in it |
//! |---|---|
//! | `select` | which connections, in which network namespace; why they cannot be watched |
//! | `watch` | the sockets at each look, and what closed between two |
//! | `evidence` | from one socket's readings to what linerate's own flows leave |
//! | `document` | from looks to a document; listening sockets and their limits |

mod document;
mod evidence;
mod select;
mod watch;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

pub use document::listeners;
use evidence::waiting_share;
use linerate_core::connection::{Connection, ConnectionsDocument, Vantage};
use linerate_core::record::{Caveat, CaveatKind, CpuSeconds, EndReport, Environment, Status};
use linerate_core::wire::Key;
use linerate_sys::proc::processes::{self, SchedTimes, ThreadTimes};
pub use select::{ConnectionsError, Place, Selection};
use watch::SeenConnection;
pub use watch::Watch;

use crate::campaign::Observer;
use crate::clock::now_ns;
use crate::measure::meter::Meter;
use crate::stop::Stop;
use crate::target::Target;
use crate::words::chain;
use crate::{check, host};

/// Watches the connections of a selection for `time`, or until all have ended or `stop` is
/// requested, and explains each; `None` where there is none. `begins` is called where there are
/// some.
///
/// # Errors
/// As of [`Watch::open`].
pub fn explain_connections(
    selection: &Selection,
    time: Duration,
    stop: &Stop,
    begins: impl FnOnce(),
) -> Result<Option<ConnectionsDocument>, ConnectionsError> {
    let mut watch = Watch::open(selection)?;
    if watch.seen().next().is_none() {
        return Ok(None);
    }
    begins();
    let mut meter = Meter::new(0);
    selection.place.run(|| meter.begin(now_ns(), &[]))?;
    let mut owners = Owners::default();
    let begin = Instant::now();
    let mut looks = 0;
    while !stop.is_requested() && begin.elapsed() < time {
        looks += 1;
        let due = (LOOK * looks).min(time);
        thread::sleep(due.saturating_sub(begin.elapsed()));
        watch.look()?;
        let inodes = watch.seen().map(|one| one.inode).collect();
        watch.find_owners(inodes)?;
        owners.begin(&watch);
        if watch.seen().all(|seen| seen.has_ended) {
            break;
        }
    }
    selection.place.run(|| meter.end(now_ns(), &[]))?;
    let mut document = watch.document();
    watch.name_owners(&mut document, usize::MAX)?;
    document.explained = true;
    document.status = Status::new(!stop.is_requested());
    let host = meter.report(&[]);
    for connection in &mut document.connections {
        let is_it = |seen: &&SeenConnection| {
            seen.local.to_string() == connection.local
                && seen.remote.to_string() == connection.remote
        };
        if let Some(seen) = watch.seen().find(is_it) {
            connection.end = Some(owners.report(&watch, seen, connection, &host));
        }
    }
    document.caveats.extend(caveats(&document, stop));
    // What is still there and carried most: the rest of one that was just closed is soon gone.
    (document.connections).sort_by_key(|one| (one.ended, Reverse(one.bytes())));
    let largest = document.connections.first();
    let peer: Option<SocketAddr> = largest.and_then(|one| one.remote.parse().ok());
    // With the interface that it leaves by.
    let facts = (selection.place).run(|| host::facts(peer.map(|peer| peer.ip())))?;
    document.environment = Environment::new(facts, None);
    document.explain();
    Ok(Some(document))
}

/// Proves what limits the path below the largest connection: by transfers to the endpoint at its
/// peer, from its local address, in the direction of its bulk. A caveat says why there are none.
pub fn prove_path(
    document: &mut ConnectionsDocument,
    port: u16,
    key: Option<Key>,
    seed: u64,
    stop: &Stop,
    observer: &mut dyn Observer,
) {
    let Some(largest) = document.connections.first() else {
        return;
    };
    let ends = [&largest.local, &largest.remote].map(|end| end.parse().ok());
    let [Some(local), Some(peer)]: [Option<SocketAddr>; 2] = ends else {
        return;
    };
    let [local, peer] = [local, peer].map(|end| end.ip().to_canonical());
    let at = Target::at(&peer.to_string(), SocketAddr::new(peer, port));
    let target = Target { source: Some(local), key, ..at };
    let why = if largest.bytes() == 0 {
        Some("the connection moved nothing, and has no direction".to_owned())
    } else {
        match check::prove_path(&target, largest.direction, seed, stop, observer) {
            Ok((record, error)) => {
                document.path = Some(Box::new(record));
                error.map(|error| format!("the runs ended early: {}", chain(&error)))
            }
            Err(error) => Some(format!("no endpoint of linerate's: {}", chain(&error))),
        }
    };
    document.caveats.extend(why.map(|why| {
        let message = format!("the path to {peer} was not proved: {why}");
        Caveat::new(CaveatKind::SettingNotTaken, message, "")
    }));
}

fn caveats(document: &ConnectionsDocument, stop: &Stop) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    if stop.is_requested() {
        let message = "it was interrupted: the figures are of a shorter time than asked";
        caveats.push(Caveat::new(CaveatKind::Partial, message, ""));
    }
    let ended = document.connections.iter().filter(|one| one.ended).count();
    if ended > 0 {
        let message = format!("{ended} of the connections ended early: their figures end there");
        caveats.push(Caveat::new(CaveatKind::Partial, message, ""));
    }
    let unknown = |one: &&Connection| {
        let end = one.end.as_ref();
        one.bytes() > 0 && end.is_some_and(|end| end.busiest_thread_percent.is_none())
    };
    if document.connections.iter().any(|one| unknown(&one)) {
        let message = "whether the program lacks CPU time is not known: its process is not to be \
                       seen, and another of the same user is busy";
        caveats.push(Caveat::new(CaveatKind::NotReadable, message, "run as root"));
    }
    caveats
}

/// Owner of the threads that serve a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Whose {
    Process(u32),
    /// The process is hidden. Its threads did at most what the busiest thread of its user did.
    User(u32),
}

impl Whose {
    fn of(watch: &Watch, seen: &SeenConnection) -> Self {
        let owner = watch.owner(seen.inode);
        owner.map_or(Self::User(seen.uid), |owner| Self::Process(owner.pid))
    }

    fn times(self) -> ThreadTimes {
        // A process that has ended has no threads any more.
        match self {
            Self::Process(pid) => processes::times_of_process(pid),
            Self::User(uid) => processes::times_of_user(uid),
        }
        .unwrap_or_default()
    }
}

/// CPU time of the threads that own connections, since they were seen first.
#[derive(Debug, Default)]
struct Owners(HashMap<Whose, (Instant, ThreadTimes)>);

impl Owners {
    fn begin(&mut self, watch: &Watch) {
        for seen in watch.seen().filter(|seen| !seen.has_ended) {
            let whose = Whose::of(watch, seen);
            let entry = self.0.entry(whose);
            entry.or_insert_with(|| (Instant::now(), whose.times()));
        }
    }

    fn report(
        &self,
        watch: &Watch,
        seen: &SeenConnection,
        connection: &Connection,
        host: &EndReport,
    ) -> EndReport {
        let sends = connection.vantage == Vantage::Sender;
        let micros = |share: f64| (share * connection.seconds * 1e6) as u64;
        let mut end =
            EndReport { blocked_us: waiting_share(seen, sends).map(micros), ..host.clone() };
        let whose = Whose::of(watch, seen);
        let Some((since, before)) = self.0.get(&whose) else {
            return end;
        };
        let wall = since.elapsed().as_secs_f64();
        let times = whose.times().into_iter();
        let passed: Vec<SchedTimes> = times
            .map(|(tid, now)| now.since(&before.get(&tid).copied().unwrap_or_default()))
            .collect();
        let share = |time: Duration| (time.as_secs_f64() / wall).min(1.0);
        match whose {
            Whose::Process(_) => {
                let wants = |times: &&SchedTimes| times.on_cpu + times.run_delay;
                let Some(busiest) = passed.iter().max_by_key(wants) else {
                    return end;
                };
                let total: Duration = passed.iter().map(|times| times.on_cpu).sum();
                // A socket may look full while its writer runs, or waits for a CPU. Where one
                // thread does the work, only the rest of the time can be its sleep. A reader that
                // runs all the time may still keep up.
                if sends && is_alone(busiest, total) {
                    let asleep = 1.0 - share(busiest.on_cpu) - share(busiest.run_delay);
                    let asleep = micros(asleep.max(0.0));
                    end.blocked_us = end.blocked_us.map(|us| us.min(asleep));
                }
                end.cpu_seconds = CpuSeconds {
                    user: 0.0,
                    system: total.as_secs_f64() * connection.seconds / wall,
                };
                end.run_delay_us = Some(micros(share(busiest.run_delay)));
                end.busiest_thread_percent = Some(100.0 * share(busiest.on_cpu));
            }
            Whose::User(_) if passed.iter().any(|times| is_short(times, wall)) => {}
            Whose::User(_) => {
                let most = |pick: fn(&SchedTimes) -> Duration| {
                    share(passed.iter().map(pick).max().unwrap_or_default())
                };
                end.run_delay_us = Some(0);
                end.busiest_thread_percent = Some(100.0 * most(|times| times.on_cpu));
            }
        }
        end
    }
}

/// From one look to the next.
const LOOK: Duration = Duration::from_millis(50);

/// Whether a thread does nearly all that its process does.
fn is_alone(busiest: &SchedTimes, total: Duration) -> bool {
    busiest.on_cpu.as_secs_f64() >= NEARLY_ALL * total.as_secs_f64()
}

/// Share of the CPU time of a process.
const NEARLY_ALL: f64 = 0.9;

/// Whether a thread may lack CPU time: it runs or waits for a CPU most of the time, or it has some
/// work and waits for a good part of the time.
fn is_short(times: &SchedTimes, wall: f64) -> bool {
    let running = times.on_cpu.as_secs_f64() / wall;
    let delayed = times.run_delay.as_secs_f64() / wall;
    running + delayed >= BUSY || (running >= WORKS && delayed >= WAITS)
}

/// Shares of the time. They are lower than the limits of the rules, to leave room for errors.
const BUSY: f64 = 0.7;
const WORKS: f64 = 0.02;
const WAITS: f64 = 0.15;

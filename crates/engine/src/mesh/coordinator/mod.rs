//! The coordinator: offers the tasks of the schedule to the agents, and saves their reports.
//!
//! It keeps no state but the history, and the key of its tasks. A coordinator that starts again
//! withdraws the offers of the one before it, and offers nothing until the tests of that one are
//! over. It saves reports about those tests like any others, each once.

mod proofs;
mod reports;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use linerate_core::monitor::MonitoredWork;
use linerate_core::plan::{Direction, Test};
use linerate_core::proof::PROOF_RUNS;
use linerate_core::record::Record;
use linerate_core::units::Nanos;
use linerate_history::{Filter, History, HistoryError, Since};
use linerate_mesh::bus::{BEAT, Bus, BusError, GONE_AFTER, OFFER_LIFE};
use linerate_mesh::message::{Presence, Task, decode, encode};
use linerate_mesh::{Assignment, Input, Mesh, MeshTest, MissReason, Missed, Offers, Schedule};

pub use proofs::{matrix_cell, proofs_of};

use super::MeshError;
use crate::clock::{since_1970_ns, since_1970_s};
use crate::monitor::{CARRIED, PROOF, Retention};
use crate::own_endpoint::{fresh_seed, kept_key};
use crate::state_files::with_ending;
use crate::stop::Stop;
use crate::words::Say;
use proofs::PairProof;

/// Longest wait for a report.
const WAIT: Duration = Duration::from_millis(200);
/// Period of looking which sites are present.
const LOOK: Duration = Duration::from_secs(1);
/// How long after the end of its task a report still counts for the schedule.
const LATE: Duration = Duration::from_secs(10);
/// `--once` ends when nothing was offered or reported for this time, which is longer than the wait
/// before a pair that failed is tried again.
const IDLE: Duration = Duration::from_secs(40);

/// `--once` gives a pair up after so many cycles in which other tests had its sites or links.
/// A busy host needs more than a few: its tests take several times as long as they are planned to.
const MAX_CROWDED_OUT: u32 = 10;

/// A result that is to be saved.
#[derive(Debug)]
pub struct MeshResult<'a> {
    /// The test and its sites, for the user.
    pub said: &'a str,
    /// The record of the run.
    pub record: &'a Record,
    /// The labels that it is saved with.
    pub labels: Vec<(String, String)>,
    /// Bytes that the run carried.
    pub bytes: u64,
}

/// Saves a result in the history, and shows it.
type SaveResult<'a> = dyn FnMut(&mut History, &MeshResult<'_>) -> Result<(), HistoryError> + 'a;

/// A mesh at work.
pub struct Coordinator<'a> {
    mesh: Mesh,
    schedule: Schedule,
    bus: &'a dyn Bus,
    history: History,
    /// Makes the ids of tasks, and recognizes them.
    offers: Offers,
    /// Results that the history does not take.
    refused: PathBuf,
    /// For each site, and one for all others: when it was last said that a report is dropped, and
    /// how many were dropped since.
    dropped: HashMap<Option<usize>, (Option<Instant>, u32)>,
    retention: Retention,
    save: &'a mut SaveResult<'a>,
    say: Say,
    /// Sites that come are not told.
    quiet: bool,
    begun: Instant,
    /// Time of the beginning on the host's clock, which may be set meanwhile.
    begun_at: Nanos,
    looked: Option<Instant>,
    /// The sites that are present, with the addresses of their endpoints.
    present: HashMap<usize, String>,
    /// The tasks that were offered and have not ended, by their IDs.
    open: HashMap<String, OfferedTask>,
    once: Once,
    /// The results of each test since its matrix was last looked at for suspects.
    results: Vec<usize>,
    proofs: Vec<PairProof>,
    /// The bus could not be reached the last time.
    is_lost: bool,
}

/// A task that was offered.
struct OfferedTask {
    assignment: Assignment,
    until: Instant,
}

/// The progress of `--once`.
struct Once {
    is_asked: bool,
    wanted: usize,
    /// Number of pairs of each test that are neither measured nor given up.
    left: Vec<usize>,
    /// Tests and pairs, each way for itself, that were measured or given up.
    settled: HashSet<(usize, [usize; 2])>,
    /// Tests of which nothing is left.
    ended: Vec<usize>,
    /// How many cycles had no time for a pair.
    crowded_out: HashMap<(usize, [usize; 2]), u32>,
    given_up: usize,
    /// When something last happened.
    idle: Instant,
}

impl<'a> Coordinator<'a> {
    /// Prepares the bus, which `is_shared` with other processes or not. `beside` is the path beside
    /// which this host's own files of the history are.
    ///
    /// # Errors
    /// The bus cannot be reached, the history cannot be read, or its key cannot be kept.
    pub fn new(
        mesh: Mesh,
        (bus, is_shared): (&'a dyn Bus, bool),
        (history, beside): (History, &Path),
        save: &'a mut SaveResult<'a>,
        say: Say,
        quiet: bool,
    ) -> Result<Self, MeshError> {
        let offers = Offers::new(kept_key(&with_ending(beside, ".key"))?);
        let names: Vec<&str> = mesh.sites.iter().map(|site| site.name.as_str()).collect();
        bus.prepare(&names)?;
        bus.clear()?;
        let begun_at = Nanos(since_1970_s() * 1_000_000_000);
        let longest = mesh.tests.iter().map(MeshTest::max_duration).max();
        let settles = if is_shared { longest.unwrap_or_default() } else { Nanos::from_millis(500) };
        let mut schedule = Schedule::new(&mesh, begun_at + settles);
        let mut once = Once::new(&mesh);
        remember(&mesh, &history, &mut schedule, &mut once)?;
        Ok(Self {
            schedule,
            once,
            results: vec![0; mesh.tests.len()],
            proofs: Vec::new(),
            retention: Retention::new(mesh.keep_s, mesh.tests.iter().map(|test| test.every_s)),
            save,
            say,
            mesh,
            bus,
            history,
            offers,
            refused: with_ending(beside, ".refused"),
            dropped: HashMap::new(),
            quiet,
            begun: Instant::now(),
            begun_at,
            looked: None,
            present: HashMap::new(),
            open: HashMap::new(),
            is_lost: false,
        })
    }

    /// Runs until a signal; with `once` until all pairs are measured.
    ///
    /// # Errors
    /// With `once`: a pair was not measured.
    pub fn run(&mut self, stop: &Stop, once: bool) -> Result<(), MeshError> {
        if once {
            // The other way of each pair comes in the next cycle.
            self.schedule.hurry();
            self.once.is_asked = true;
        }
        while !stop.is_requested() {
            if self.looked.is_none_or(|at| at.elapsed() >= LOOK) {
                self.look();
                self.open.retain(|_, open| Instant::now() < open.until);
                self.give_up_proofs();
                self.delete_old();
                self.looked = Some(Instant::now());
            }
            if !self.is_lost {
                self.offer();
            }
            self.gather(WAIT);
            self.end_tests();
            if once && self.proofs.is_empty() && self.once.is_over(self.open.is_empty()) {
                self.end();
                return self.once.verdict();
            }
        }
        self.end();
        Ok(())
    }

    /// With `--once`, makes no more runs of the tests whose pairs are all measured.
    fn end_tests(&mut self) {
        let now = self.now();
        while self.once.is_asked
            && let Some(test) = self.once.ended.pop()
        {
            self.schedule.handle_input(now, Input::Enough { test });
        }
    }

    /// Deletes the runs of this mesh that are older than `keep` of its file.
    fn delete_old(&mut self) {
        let runs_of = |test: &MeshTest| Filter {
            labels: vec![("test".to_owned(), test.name.clone())],
            label_key: Some(RUN.to_owned()),
            ..Filter::default()
        };
        let runs: Vec<Filter> = self.mesh.tests.iter().map(runs_of).collect();
        self.retention.delete_old(&mut self.history, &runs, &self.say);
    }

    /// The time since 1970, by a clock that nobody sets.
    fn now(&self) -> Nanos {
        let since = self.begun.elapsed().as_nanos();
        self.begun_at + Nanos(u64::try_from(since).unwrap_or(u64::MAX))
    }

    /// Tells the schedule which sites have come or gone.
    fn look(&mut self) {
        let Some(seen) = self.reached(self.bus.present()) else {
            return;
        };
        let mut there: HashMap<usize, String> = HashMap::new();
        for seen in seen.into_iter().filter(|seen| seen.age < GONE_AFTER) {
            let Ok(presence) = decode::<Presence>(&seen.body) else {
                continue;
            };
            if let Some(site) = self.mesh.site(&seen.site).filter(|_| presence.site == seen.site) {
                // The file's host wins: an agent must not aim the others at a host of its choice.
                let host = self.mesh.sites[site].host.as_ref();
                let address = host.map(ToString::to_string).or(presence.address);
                there.insert(site, address.unwrap_or_default());
            }
        }
        let now = self.now();
        for site in self.present.keys().filter(|site| !there.contains_key(site)) {
            self.schedule.handle_input(now, Input::Left { site: *site });
        }
        for (site, address) in there.iter().filter(|(site, _)| !self.present.contains_key(site)) {
            let (site, reachable) = (*site, !address.is_empty());
            self.schedule.handle_input(now, Input::Joined { site, reachable });
        }
        self.say_change(&there);
        self.present = there;
    }

    fn say_change(&self, there: &HashMap<usize, String>) {
        let names = |from: &HashMap<usize, String>, without: &HashMap<usize, String>| {
            let mut sites: Vec<usize> = from.keys().copied().collect();
            sites.retain(|site| !without.contains_key(site));
            sites.sort_unstable();
            let names = sites.iter().map(|site| self.mesh.sites[*site].name.as_str());
            names.collect::<Vec<_>>().join(", ")
        };
        let (come, gone) = (names(there, &self.present), names(&self.present, there));
        let (count, all) = (there.len(), self.mesh.sites.len());
        if !come.is_empty() && !self.quiet {
            (self.say)(&format!("{count} of {all} sites are there: {come} came"));
        }
        if !gone.is_empty() {
            (self.say)(&format!("{count} of {all} sites are there: {gone} left"));
        }
    }

    /// The answer of the bus. The first failure in a row is printed.
    fn reached<T>(&mut self, answer: Result<T, BusError>) -> Option<T> {
        match answer {
            Ok(answer) => {
                self.is_lost = false;
                Some(answer)
            }
            Err(error) => {
                if !self.is_lost {
                    (self.say)(&format!("{error}; tried again until it is back"));
                }
                self.is_lost = true;
                None
            }
        }
    }

    /// Offers the tasks that the schedule wants to run now.
    fn offer(&mut self) {
        self.schedule.handle_timeout(self.now());
        while let Some(missed) = self.schedule.poll_event() {
            self.missed(&missed);
        }
        while let Some(assignment) = self.schedule.poll_transmit() {
            let task = self.task(&assignment);
            let key = format!("{}.task", task.id);
            let offered = self.bus.offer(task.runner(), &key, &encode(&task));
            let lease = Duration::from_secs(task.lease_s.into());
            // An offer that failed may have arrived: its sites stay taken until it would be over.
            let until = Instant::now() + OFFER_LIFE + lease + LATE;
            self.open.insert(task.id, OfferedTask { assignment, until });
            self.once.idle = Instant::now();
            if self.reached(offered).is_none() {
                return;
            }
        }
    }

    /// Prints that a pair was not measured, and why.
    fn missed(&mut self, missed: &Missed) {
        let [one, other] = [missed.pair.0, missed.pair.1].map(|site| &self.mesh.sites[site].name);
        let why = match missed.why {
            MissReason::Away(site) => format!("{} was away", self.mesh.sites[site].name),
            MissReason::Spent(site) => {
                format!("{} has carried what it may in a day", self.mesh.sites[site].name)
            }
            MissReason::Unreachable => "neither can be reached".to_owned(),
            MissReason::Failed => "it failed".to_owned(),
            MissReason::Refused => "an owner does not allow it".to_owned(),
            MissReason::NoTime => "other tests had their sites or links".to_owned(),
        };
        let test = &self.mesh.tests[missed.test].name;
        (self.say)(&format!("{test} of {one} and {other}: missed in this cycle: {why}"));
        self.once.missed(missed);
    }

    fn task(&mut self, assignment: &Assignment) -> Task {
        let work = &self.mesh.tests[assignment.test].work;
        let mut work = test_of(work).expect("looked at before the start").clone();
        let reached = if assignment.turned {
            work.direction = turned(work.direction);
            assignment.from
        } else {
            assignment.to
        };
        if let Some(proof) = self.proof_of(assignment) {
            work = proof.work(work);
        }
        let test = &self.mesh.tests[assignment.test];
        let name = |site: usize| self.mesh.sites[site].name.clone();
        let address = self.present.get(&reached).cloned();
        let mut task = Task {
            id: String::new(),
            test: test.name.clone(),
            from: name(assignment.from),
            to: name(assignment.to),
            address: address.unwrap_or_default(),
            turned: assignment.turned,
            work: Test { seed: fresh_seed(), ..work },
            lease_s: test.max_duration().0.div_ceil(1_000_000_000) as u32,
        };
        let number = (fresh_seed() << 32) | fresh_seed();
        task.id = self.offers.id(&task, Nanos(since_1970_ns()), number, assignment.is_proof);
        task
    }

    /// Waits for a report, and takes it.
    fn gather(&mut self, wait: Duration) {
        let collected = self.bus.collect(wait);
        match self.reached(collected) {
            Some(Some(delivery)) => {
                if self.take(&delivery) {
                    // If this fails, the report comes again, and is recognised.
                    let _ = self.bus.acknowledge(&delivery);
                }
            }
            Some(None) => {}
            None => std::thread::sleep(wait),
        }
    }

    /// Withdraws all offers, and waits a while for the reports of running tests.
    fn end(&mut self) {
        let _ = self.bus.clear();
        let until = Instant::now() + BEAT;
        while !self.open.is_empty() && Instant::now() < until {
            self.gather(WAIT);
        }
    }
}

impl Once {
    fn new(mesh: &Mesh) -> Self {
        let pairs = |count: usize| count * (count - 1);
        let left: Vec<usize> = mesh.tests.iter().map(|test| pairs(test.sites.len())).collect();
        Self {
            is_asked: false,
            wanted: left.iter().sum(),
            left,
            ended: Vec::new(),
            settled: HashSet::new(),
            crowded_out: HashMap::new(),
            given_up: 0,
            idle: Instant::now(),
        }
    }

    /// A pair was measured from its first site to its second.
    fn measured(&mut self, test: usize, ends: [usize; 2]) {
        self.settle(test, ends);
    }

    /// Whether the pair was neither measured nor given up before.
    fn settle(&mut self, test: usize, ends: [usize; 2]) -> bool {
        let is_new = self.settled.insert((test, ends));
        if is_new {
            self.left[test] -= 1;
            self.ended.extend((self.left[test] == 0).then_some(test));
        }
        is_new
    }

    /// A pair that other tests left no time in a cycle is made up in the next ones.
    fn missed(&mut self, missed: &Missed) {
        self.idle = Instant::now();
        let (from, to) = missed.ends();
        let key = (missed.test, [from, to]);
        if missed.why == MissReason::NoTime {
            let cycles = self.crowded_out.entry(key).or_default();
            *cycles += 1;
            if *cycles < MAX_CROWDED_OUT {
                return;
            }
        }
        self.given_up += usize::from(self.settle(missed.test, [from, to]));
    }

    fn is_over(&self, nothing_runs: bool) -> bool {
        self.settled.len() >= self.wanted || (nothing_runs && self.idle.elapsed() >= IDLE)
    }

    fn verdict(&self) -> Result<(), MeshError> {
        let missing = self.given_up + self.wanted.saturating_sub(self.settled.len());
        let wanted = self.wanted;
        if missing == 0 { Ok(()) } else { Err(MeshError::Unmeasured { missing, wanted }) }
    }
}

/// Tells the schedule the runs in the history: pairs that were measured in this cycle are not
/// measured again, and bytes that were carried today count.
fn remember(
    mesh: &Mesh,
    history: &History,
    schedule: &mut Schedule,
    once: &mut Once,
) -> Result<(), HistoryError> {
    let longest = mesh.tests.iter().map(|test| test.every_s).max().unwrap_or(0);
    for (number, test) in mesh.tests.iter().enumerate() {
        let runs = Filter {
            labels: vec![("test".to_owned(), test.name.clone())],
            since: Some(Since::Ago(longest.max(86_400))),
            ..Filter::default()
        };
        for run in history.series(&runs, Some(CARRIED))? {
            let labels = history.labels(run.run)?;
            let site = |end: &str| mesh.site(labels.get(end)?);
            if let (Some(from), Some(to)) = (site("from"), site("to")) {
                let began = Nanos(run.at_s.saturating_mul(1_000_000_000));
                let runs = if labels.contains_key(PROOF) { PROOF_RUNS } else { 1 };
                let carried = (run.value as u64, runs);
                let is_of_cycle = schedule.remember(number, (from, to), began, carried);
                if test.every_s > 0 && is_of_cycle {
                    once.measured(number, [from, to]);
                }
            }
        }
    }
    Ok(())
}

/// The direction as the other end sees it.
fn turned(direction: Direction) -> Direction {
    match direction {
        Direction::Up => Direction::Down,
        Direction::Down => Direction::Up,
        Direction::Both => Direction::Both,
    }
}

/// The label of a run that has the ID of its task.
pub const RUN: &str = "run";

fn test_of(work: &MonitoredWork) -> Option<&Test> {
    match work {
        MonitoredWork::Test(test) => Some(test),
        MonitoredWork::Load(_) | MonitoredWork::Check(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed(why: MissReason) -> Missed {
        Missed { test: 0, pair: (0, 1), cycle: 1, why }
    }

    #[test]
    fn once_waits_for_a_pair_that_cycles_left_no_time_and_gives_it_up_in_the_end() {
        let once = || Once {
            is_asked: true,
            wanted: 1,
            left: vec![1],
            ended: Vec::new(),
            settled: HashSet::new(),
            crowded_out: HashMap::new(),
            given_up: 0,
            idle: Instant::now(),
        };
        let mut made_up = once();
        made_up.missed(&missed(MissReason::NoTime));
        assert!(!made_up.is_over(false));
        let (from, to) = missed(MissReason::NoTime).ends();
        made_up.measured(0, [from, to]);
        assert!(made_up.is_over(false) && made_up.verdict().is_ok());
        assert_eq!(made_up.ended, [0], "it is not run any more");
        let mut given_up = once();
        for cycle in 1..=MAX_CROWDED_OUT {
            given_up.missed(&missed(MissReason::NoTime));
            assert_eq!(given_up.is_over(false), cycle == MAX_CROWDED_OUT, "{cycle}");
        }
        assert!(given_up.verdict().is_err());
        let mut failed = once();
        failed.missed(&missed(MissReason::Failed));
        assert!(failed.is_over(false) && failed.verdict().is_err());
    }
}

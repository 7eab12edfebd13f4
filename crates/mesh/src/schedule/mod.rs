//! Which pair of sites is tested when.
//!
//! A [`Schedule`] is a state machine: [`Schedule::handle_input`] and [`Schedule::handle_timeout`]
//! take events and time, [`Schedule::poll_transmit`] gives assignments, and
//! [`Schedule::poll_event`] names the pairs that were missed.
//!
//! * All pairs of a test's sites form a round-robin tournament. A free site begins its oldest due
//!   pair whose other site and shared links are free, too; there are no time slots, and nothing
//!   waits for the slowest test of a round.
//! * A bandwidth test has its sites and shared links for itself until it ends, or until a grace
//!   period after [`Assignment::deadline`]: its agent has stopped by then, whatever it has heard.
//! * A pair whose test failed, or whose site was away, stays due and goes first until its round
//!   comes again. Then it was missed.
//! * Each pair is tested from one site in one cycle, and from the other site in the next.
//! * For a pair that others always overtake, room is kept: after a while its sites and links start
//!   nothing else.

mod links;
mod pick;
#[cfg(test)]
mod tests;
mod tournament;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use linerate_core::units::Nanos;

use crate::plan::{Mesh, TestKind};
use links::{HOUR, Ledger, Links, SiteSet};
use tournament::Tournament;

/// Number of one run of a test. Two coordinators give different numbers if their clocks differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// A run of a test that a site is to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    /// Its number.
    pub id: TaskId,
    /// Index in [`Mesh::tests`].
    pub test: usize,
    /// The site that the payload of an `up` test comes from.
    pub from: usize,
    /// The other site.
    pub to: usize,
    /// `to` cannot be reached: it runs the client, with the direction reversed.
    pub turned: bool,
    /// When it was assigned.
    pub assigned_at: Nanos,
    /// When its agents have stopped at the latest.
    pub deadline: Nanos,
    /// Which attempt at this pair in the cycle, from 1.
    pub attempt: u32,
    /// The test's cycle over all pairs.
    pub cycle: u64,
    /// It is a run of a proof, and none of the cycle.
    pub is_proof: bool,
}

/// An event that the schedule is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// A site can be tested.
    Joined {
        /// Its index.
        site: usize,
        /// Whether the other sites can connect to it.
        reachable: bool,
    },
    /// A site cannot be tested any more. Its runs may go on.
    Left {
        /// Its index.
        site: usize,
    },
    /// No run of a test is wanted any more, but those of proofs.
    Enough {
        /// Index in [`Mesh::tests`].
        test: usize,
    },
    /// A run of a proof is wanted, before other runs of these sites.
    Prove {
        /// Index in [`Mesh::tests`]; a bandwidth test.
        test: usize,
        /// As in [`Assignment`].
        from: usize,
        /// As in [`Assignment`].
        to: usize,
    },
    /// A run has begun.
    Started(TaskId),
    /// A run has a result.
    Finished {
        /// The run.
        task: TaskId,
        /// Payload that it carried, bytes.
        bytes: u64,
    },
    /// A run will have no result.
    Failed {
        /// The run.
        task: TaskId,
        /// Why.
        why: Failure,
    },
}

/// Why a run has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// It was tried and failed.
    Tried,
    /// An owner's limits forbid it: the pair is not tried again in this cycle.
    Refused,
}

/// A pair that was not measured in a cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    /// Index in [`Mesh::tests`].
    pub test: usize,
    /// The sites; the lower index first.
    pub pair: (usize, usize),
    /// The cycle.
    pub cycle: u64,
    /// Why.
    pub why: MissReason,
}

impl Missed {
    /// The sites that the pair was to be tested from and to.
    pub fn ends(&self) -> (usize, usize) {
        ends(self.cycle, self.pair.0, self.pair.1)
    }
}

/// The sites that a pair is tested from and to in a cycle; the next cycle swaps them.
fn ends(cycle: u64, a: usize, b: usize) -> (usize, usize) {
    let (low, high) = (a.min(b), a.max(b));
    if (cycle as usize + a + b).is_multiple_of(2) { (low, high) } else { (high, low) }
}

/// Why a pair was not measured in a cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissReason {
    /// This site was away, or its tests kept failing, when its round came again.
    Away(usize),
    /// This site has used up its budget of 24 hours.
    Spent(usize),
    /// Neither site can be reached.
    Unreachable,
    /// It was tried and failed.
    Failed,
    /// An owner's limits forbid it.
    Refused,
    /// Other tests had its sites or links.
    NoTime,
}

/// State of a test.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of the cycle.
    pub cycle: u64,
    /// When the cycle began.
    pub began: Nanos,
    /// Pairs whose round was opened and whose test has not begun.
    pub due: u64,
    /// Runs under way.
    pub running: u64,
    /// Runs with a result.
    pub done: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Pairs that cycles have missed.
    pub missed: u64,
}

/// Decides which pair of sites is tested when.
#[derive(Debug, Clone)]
pub struct Schedule {
    mesh: Mesh,
    tests: Vec<PlannedTest>,
    sites: Vec<SiteState>,
    links: Links,
    /// Budget of the whole mesh.
    ledger: Option<Ledger>,
    /// The sites that can be tested.
    present: SiteSet,
    /// Sites of `present` that can begin a bandwidth test now.
    idle: SiteSet,
    running: HashMap<u64, RunningTask>,
    deadlines: BinaryHeap<Reverse<(Nanos, u64)>>,
    wakes: BinaryHeap<Reverse<(Nanos, u16)>>,
    retries: HashMap<PairKey, Retry>,
    /// The test and the sites of the runs of proofs that are wanted: from, to.
    proofs: Vec<(usize, usize, usize)>,
    /// The pair for which room is kept.
    kept: Option<PairKey>,
    /// Whether each test may run: it has had no more than its share of the time.
    may_run: Vec<bool>,
    assigned: VecDeque<Assignment>,
    missed: VecDeque<Missed>,
    begin: Nanos,
    now: Nanos,
    next_id: u64,
    /// Sites that may have become able to begin a test.
    sites_freed: Vec<usize>,
    /// Groups whose sites may have become able to begin a test.
    groups_freed: Vec<usize>,
}

#[derive(Debug, Clone)]
struct PlannedTest {
    tournament: Tournament,
    /// Time that it has had, over its priority, ns.
    share: u64,
    /// The most that one of its runs has carried, bytes.
    largest: u64,
    /// Its counts; the rest is the tournament's.
    progress: Progress,
    /// No run of it is wanted any more.
    is_over: bool,
}

#[derive(Debug, Clone, Default)]
struct SiteState {
    joined: bool,
    reachable: bool,
    /// It is in a bandwidth test.
    busy: bool,
    /// It is in a test that takes longer than planned.
    is_late: bool,
    /// Number of latency tests that it is in.
    latency: u32,
    /// End of the rest that its share of the time demands.
    rests_until: Nanos,
    /// End of the rest after several failures in a row.
    ill_until: Nanos,
    /// Failures in a row.
    strikes: u32,
    ledger: Option<Ledger>,
}

#[derive(Debug, Clone, Copy)]
struct RunningTask {
    assignment: Assignment,
    began: Nanos,
    /// Bytes that are reserved in the ledgers.
    reserved: u64,
}

#[derive(Debug, Clone, Copy)]
struct Retry {
    attempts: u32,
    not_before: Nanos,
}

/// A test and two sites, the lower index first.
type PairKey = (usize, usize, usize);

fn pair_key(test: usize, a: usize, b: usize) -> PairKey {
    (test, a.min(b), a.max(b))
}

impl Schedule {
    /// The schedule of a mesh of which no site has joined. Nothing is assigned before `begin`, so
    /// that all sites that join until then take part in the first round, and what another
    /// coordinator assigned has ended. Times are since 1970.
    pub fn new(mesh: &Mesh, begin: Nanos) -> Self {
        let tests = mesh.tests.iter().map(|test| PlannedTest {
            tournament: Tournament::new(mesh, test, begin),
            share: 0,
            largest: 0,
            progress: Progress::default(),
            is_over: false,
        });
        let sites = mesh.sites.iter().map(|site| SiteState {
            ledger: site.bytes_per_day.map(Ledger::new),
            ..SiteState::default()
        });
        Self {
            tests: tests.collect(),
            sites: sites.collect(),
            links: Links::new(mesh),
            ledger: mesh.bytes_per_day.map(Ledger::new),
            mesh: mesh.clone(),
            present: SiteSet::new(mesh.sites.len()),
            idle: SiteSet::new(mesh.sites.len()),
            running: HashMap::new(),
            deadlines: BinaryHeap::new(),
            wakes: BinaryHeap::new(),
            retries: HashMap::new(),
            proofs: Vec::new(),
            kept: None,
            may_run: Vec::new(),
            assigned: VecDeque::new(),
            missed: VecDeque::new(),
            begin,
            now: Nanos::ZERO,
            next_id: begin.0,
            sites_freed: Vec::new(),
            groups_freed: Vec::new(),
        }
    }

    /// Enters a result of so many runs that was saved before the schedule was made: its bytes
    /// count, and its pair is measured if the result is of this cycle, which is returned. A result
    /// from the future, which a clock that was ahead has left, is passed over: nobody knows when it
    /// was.
    pub fn remember(
        &mut self,
        test: usize,
        pair: (usize, usize),
        began: Nanos,
        (bytes, runs): (u64, u64),
    ) -> bool {
        let (from, to) = pair;
        let tournament = &self.tests[test].tournament;
        let takes_part = |site| tournament.has(site);
        if !takes_part(from) || !takes_part(to) || from == to || began > self.begin + CLOCKS_AGREE {
            return false;
        }
        let began = began.min(self.begin);
        let of_run = self.believable(test, from, to, bytes / runs);
        let bytes = of_run * runs;
        let planned = &mut self.tests[test];
        let is_of_cycle = began >= planned.tournament.began();
        if is_of_cycle {
            planned.tournament.open_all(began);
            planned.tournament.begin(from, to);
        }
        planned.largest = planned.largest.max(of_run);
        if self.is_bandwidth(test) {
            self.enter(from, to, began, 0, bytes);
        }
        is_of_cycle
    }

    /// Has each cycle follow the results of the one before without a pause: it may be the last.
    pub fn hurry(&mut self) {
        self.tests.iter_mut().for_each(|it| it.tournament.hurry());
    }

    /// Takes an event. A time before the last one counts as the last one.
    pub fn handle_input(&mut self, now: Nanos, input: Input) {
        self.now = now.max(self.now);
        match input {
            Input::Joined { site, reachable } => {
                let state = &mut self.sites[site];
                (state.joined, state.reachable) = (true, reachable);
                if !reachable {
                    self.excuse(site);
                }
                self.refresh(site);
            }
            Input::Left { site } => {
                self.sites[site].joined = false;
                self.excuse(site);
                self.refresh(site);
            }
            Input::Enough { test } => self.tests[test].is_over = true,
            Input::Prove { test, from, to } => self.proofs.push((test, from, to)),
            Input::Started(task) => {
                // The first time: an agent that says so again and again does not get more of its
                // share of the time.
                if let Some(running) = self.running.get_mut(&task.0)
                    && running.began == running.assignment.assigned_at
                {
                    running.began = self.now;
                }
            }
            Input::Finished { task, bytes } => self.finished(task, bytes),
            Input::Failed { task, why } => self.failed(task, why),
        }
        self.assign();
    }

    /// Takes the time.
    pub fn handle_timeout(&mut self, now: Nanos) {
        self.now = now.max(self.now);
        while let Some(Reverse((at, id))) = self.deadlines.peek().copied() {
            if at > self.now {
                break;
            }
            self.deadlines.pop();
            match self.running.get(&id).map(|it| it.assignment) {
                Some(late) if late.deadline + GRACE <= at => self.failed(late.id, Failure::Tried),
                Some(late) => self.late(&late),
                None => {}
            }
        }
        while let Some(Reverse((at, site))) = self.wakes.peek().copied() {
            if at > self.now {
                break;
            }
            self.wakes.pop();
            self.refresh(usize::from(site));
        }
        self.assign();
    }

    /// When [`Self::handle_timeout`] is due, if no event comes before.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let deadline = self.deadlines.peek().map(|it| it.0.0);
        let wake = self.wakes.peek().map(|it| it.0.0);
        let begin = (self.now < self.begin).then_some(self.begin);
        let tests = self.tests.iter();
        let rounds = tests.filter_map(|it| it.tournament.poll_timeout(&self.present));
        let others = [deadline, wake, begin].into_iter().flatten();
        rounds.filter(|at| *at > self.now).chain(others).min()
    }

    /// The next assignment to send.
    pub fn poll_transmit(&mut self) -> Option<Assignment> {
        self.assigned.pop_front()
    }

    /// The next pair that was missed. Only the first 10,000 that nobody asks for are kept; all are
    /// counted.
    pub fn poll_event(&mut self) -> Option<Missed> {
        self.missed.pop_front()
    }

    /// The state of each test.
    pub fn progress(&self) -> Vec<Progress> {
        let progress = self.tests.iter().map(|it| Progress {
            cycle: it.tournament.cycle(),
            began: it.tournament.began(),
            due: it.tournament.due_pairs().count() as u64,
            ..it.progress
        });
        progress.collect()
    }

    /// The due pairs of a test, the lower index first.
    pub fn due(&self, test: usize) -> impl Iterator<Item = (usize, usize)> {
        self.tests[test].tournament.due_pairs()
    }

    /// Memory that the pairs take, bytes.
    pub fn pair_bytes(&self) -> usize {
        let retry = size_of::<(PairKey, Retry)>();
        let pairs = self.tests.iter().map(|it| it.tournament.bytes());
        pairs.sum::<usize>() + self.retries.capacity() * retry
    }

    fn is_bandwidth(&self, test: usize) -> bool {
        self.mesh.tests[test].kind == TestKind::Bandwidth
    }

    /// Whether a site has joined and does not rest after failures.
    fn is_present(&self, site: usize) -> bool {
        let state = &self.sites[site];
        state.joined && state.ill_until <= self.now
    }

    /// Updates the sets that a site belongs to, and notes that it may begin a test.
    fn refresh(&mut self, site: usize) {
        let state = &self.sites[site];
        let is_present = self.is_present(site);
        let is_idle = is_present && !state.busy && state.rests_until <= self.now;
        self.present.set(site, is_present);
        self.idle.set(site, is_idle);
        if is_present {
            self.sites_freed.push(site);
        }
    }

    /// No round waits for a site any more.
    fn excuse(&mut self, site: usize) {
        for planned in &mut self.tests {
            planned.tournament.excuse(site);
        }
    }

    /// Notes a pair that was not measured in a cycle.
    fn miss(&mut self, (test, a, b): PairKey, cycle: u64, why: MissReason) {
        self.tests[test].progress.missed += 1;
        if self.missed.len() < MAX_MISSED {
            let pair = (a, b);
            self.missed.push_back(Missed { test, pair, cycle, why });
        }
    }
}

/// Longest time from an assignment to the beginning of its run.
const BEGINS_WITHIN: Nanos = Nanos::from_millis(10_000);
/// Time after its deadline until a run counts as ended: clocks differ.
const GRACE: Nanos = Nanos::from_millis(2_000);
/// A saved result may be so much ahead: a clock that is corrected every day is less wrong.
const CLOCKS_AGREE: Nanos = Nanos::from_millis(60_000);
/// Pause before a pair that failed is tried again.
const RETRY_AFTER: Nanos = Nanos::from_millis(10_000);
/// Most attempts at a pair in one cycle.
const MAX_ATTEMPTS: u32 = 3;
/// Failures in a row after which a site rests.
const STRIKES: u32 = 3;
/// Length of its first rest; each further one is twice as long.
const ILL_FOR: Nanos = Nanos::from_millis(60_000);
/// Longest rest of a site.
const MAX_ILL_FOR: Nanos = HOUR;
/// Most missed pairs that are kept for [`Schedule::poll_event`].
const MAX_MISSED: usize = 10_000;
/// Room is kept for a pair that waits longer than so many runs of the greatest length.
const PATIENCE: u64 = 3;

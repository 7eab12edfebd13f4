//! Who is tested with whom, when.
//!
//! A [`Schedule`] is told what happens ([`Schedule::handle_input`]) and how time passes
//! ([`Schedule::handle_timeout`]); it gives assignments ([`Schedule::poll_transmit`]) and names the pairs
//! that a cycle passed by ([`Schedule::poll_event`]). It is driven by nothing else.
//!
//! * All pairs of a test's sites are a tournament: rounds in which each site meets one other. A site that
//!   is free takes its oldest due pair whose other site and shared links are free, too; there are no slots
//!   by the clock, and nobody waits for the slowest test of a round.
//! * Bandwidth tests have their sites and shared links for themselves, until they end or until
//!   [`Assignment::deadline`] and a while: an agent has stopped by then, whatever it has heard.
//! * A pair that failed, or whose site was away, stays due and goes first, until its round comes again.
//!   Then it was missed, and is named.
//! * Each pair is tested from the one site in one cycle and from the other in the next.
//! * A pair that others always overtake is kept room for: after a while its sites and links start nothing
//!   else.

mod end;
mod ledger;
mod links;
mod pick;
mod rounds;
#[cfg(test)]
mod tests;
mod tournament;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use linerate_core::units::Nanos;

use crate::plan::{Mesh, TestKind};
use ledger::{HOUR, Ledger};
use links::{Links, Way};
use rounds::members;
use tournament::Tournament;

/// What one run of a test is known by; no two coordinators give the same, if their clocks differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// What a site is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    /// Its name in all that follows.
    pub id: TaskId,
    /// Index in [`Mesh::tests`].
    pub test: usize,
    /// The site that the test is seen from: what is `up` goes from here.
    pub from: usize,
    /// The other site.
    pub to: usize,
    /// `to` cannot be reached: it runs the client, with the direction turned round.
    pub turned: bool,
    /// Not before then.
    pub not_before: Nanos,
    /// An agent that has not begun by then does not begin.
    pub begin_by: Nanos,
    /// Whatever happens, the agents have stopped by then.
    pub deadline: Nanos,
    /// 1 at first.
    pub attempt: u32,
    /// Of the test's cycles over all pairs.
    pub cycle: u64,
}

/// What the schedule is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// A site can be tested.
    Joined {
        /// Its index.
        site: usize,
        /// The others can connect to it.
        reachable: bool,
    },
    /// It cannot. What it has begun may go on.
    Left {
        /// Its index.
        site: usize,
    },
    /// A test has begun.
    Started(TaskId),
    /// Its result is there.
    Finished {
        /// Which.
        task: TaskId,
        /// What it carried.
        bytes: u64,
    },
    /// There will be none.
    Failed {
        /// Which.
        task: TaskId,
        /// Why.
        why: Failure,
    },
}

/// Why there is no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// It was tried.
    Tried,
    /// An owner's limits do not allow it: it is not tried again in this cycle.
    Refused,
}

/// A pair that a cycle passed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    /// Index in [`Mesh::tests`].
    pub test: usize,
    /// The sites; the lower index first.
    pub pair: (usize, usize),
    /// Which cycle.
    pub cycle: u64,
    /// Why.
    pub why: Why,
}

/// Why a pair was not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// This site was away, or ill, when its round came again.
    Away(usize),
    /// This site has carried what it may in a day.
    Spent(usize),
    /// Neither can be reached.
    Unreachable,
    /// It was tried and failed.
    Failed,
    /// An owner does not allow it.
    Refused,
    /// Other tests had its sites or links.
    NoTime,
}

/// How far a test is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Number of its cycle.
    pub cycle: u64,
    /// When that began.
    pub began: Nanos,
    /// Pairs whose round was opened and that are not begun.
    pub due: u64,
    /// Runs under way.
    pub running: u64,
    /// Runs with a result.
    pub done: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Pairs that cycles passed by.
    pub missed: u64,
}

/// Who is tested with whom, when.
#[derive(Debug, Clone)]
pub struct Schedule {
    mesh: Mesh,
    tests: Vec<Planned>,
    sites: Vec<SiteState>,
    links: Links,
    /// Of the whole mesh.
    ledger: Option<Ledger>,
    /// Sets of sites: that are there; that can begin a bandwidth test.
    present: Vec<u64>,
    idle: Vec<u64>,
    running: HashMap<u64, Running>,
    deadlines: BinaryHeap<Reverse<(Nanos, u64)>>,
    wakes: BinaryHeap<Reverse<(Nanos, u16)>>,
    /// Pairs that failed: test, sites.
    retries: HashMap<(usize, usize, usize), Retry>,
    /// The pair that is kept room for.
    kept: Option<(usize, usize, usize)>,
    /// Tests that have had no more than their share of the time.
    may_run: Vec<bool>,
    assigned: VecDeque<Assignment>,
    missed: VecDeque<Missed>,
    begin: Nanos,
    now: Nanos,
    next_id: u64,
    /// Sites and groups that may have become able to begin something.
    sites_freed: Vec<usize>,
    groups_freed: Vec<usize>,
}

#[derive(Debug, Clone)]
struct Planned {
    tournament: Tournament,
    kind: TestKind,
    way: Way,
    takes: Nanos,
    lasts: Nanos,
    priority: u32,
    /// The time that it had, by its priority.
    share: u64,
    /// The most that a run has carried.
    largest: u64,
    running: u64,
    done: u64,
    failed: u64,
    missed: u64,
}

#[derive(Debug, Clone, Default)]
struct SiteState {
    joined: bool,
    reachable: bool,
    /// In a bandwidth test.
    busy: bool,
    /// In a test that takes longer than it should.
    is_late: bool,
    /// In so many latency tests.
    latency: u32,
    /// By its share of time.
    rests_until: Nanos,
    /// After tests failed one after another.
    ill_until: Nanos,
    strikes: u32,
    ledger: Option<Ledger>,
}

#[derive(Debug, Clone, Copy)]
struct Running {
    test: usize,
    from: usize,
    to: usize,
    cycle: u64,
    began: Nanos,
    /// With the while after it.
    deadline: Nanos,
    reserved: u64,
}

#[derive(Debug, Clone, Copy)]
struct Retry {
    attempts: u32,
    not_before: Nanos,
}

impl Schedule {
    /// That of a mesh of which no site has joined. Nothing is assigned before `begin`: what sites join
    /// until then take part in the first round, and what another coordinator assigned has ended. Times are
    /// since 1970.
    pub fn new(mesh: &Mesh, begin: Nanos) -> Self {
        let tests = mesh.tests.iter().map(|test| Planned {
            tournament: Tournament::new(mesh, test, begin),
            kind: test.kind,
            way: Way::new(&test.work),
            takes: test.takes(),
            lasts: test.lasts_at_most(),
            priority: test.priority,
            share: 0,
            largest: 0,
            running: 0,
            done: 0,
            failed: 0,
            missed: 0,
        });
        let sites = mesh.sites.iter().map(|site| SiteState {
            ledger: site.bytes_per_day.map(Ledger::new),
            ..SiteState::default()
        });
        let words = mesh.sites.len().div_ceil(64);
        Self {
            tests: tests.collect(),
            sites: sites.collect(),
            links: Links::new(mesh),
            ledger: mesh.bytes_per_day.map(Ledger::new),
            mesh: mesh.clone(),
            present: vec![0; words],
            idle: vec![0; words],
            running: HashMap::new(),
            deadlines: BinaryHeap::new(),
            wakes: BinaryHeap::new(),
            retries: HashMap::new(),
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

    /// A result that was saved before the schedule was made: its pair is measured, if that was in this
    /// cycle, and its bytes count.
    pub fn remember(&mut self, test: usize, pair: (usize, usize), began: Nanos, bytes: u64) {
        let (from, to) = pair;
        let planned = &mut self.tests[test];
        if !planned.tournament.has(from) || !planned.tournament.has(to) || from == to {
            return;
        }
        if began >= planned.tournament.began() {
            planned.tournament.open_all(began);
            planned.tournament.begin(from, to);
        }
        if planned.kind == TestKind::Bandwidth {
            planned.largest = planned.largest.max(bytes);
            self.enter(from, to, began, 0, bytes);
        }
    }

    /// Something has happened. Times go forward: an earlier one is taken for the last.
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
            Input::Started(task) => {
                if let Some(running) = self.running.get_mut(&task.0) {
                    running.began = self.now;
                }
            }
            Input::Finished { task, bytes } => self.finished(task, bytes),
            Input::Failed { task, why } => self.failed(task, why),
        }
        self.assign();
    }

    /// So late it is.
    pub fn handle_timeout(&mut self, now: Nanos) {
        self.now = now.max(self.now);
        while let Some(Reverse((at, id))) = self.deadlines.peek().copied() {
            if at > self.now {
                break;
            }
            self.deadlines.pop();
            match self.running.get(&id).copied() {
                Some(running) if running.deadline <= at => self.failed(TaskId(id), Failure::Tried),
                Some(running) => self.late(&running),
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

    /// When [`Self::handle_timeout`] is to be called, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let deadline = self.deadlines.peek().map(|it| it.0.0);
        let wake = self.wakes.peek().map(|it| it.0.0);
        let begin = (self.now < self.begin).then_some(self.begin);
        let rounds = self
            .tests
            .iter()
            .filter_map(|it| it.tournament.poll_timeout(&self.present));
        let rounds = rounds.filter(|at| *at > self.now);
        rounds
            .chain([deadline, wake, begin].into_iter().flatten())
            .min()
    }

    /// The next assignment to be sent.
    pub fn poll_transmit(&mut self) -> Option<Assignment> {
        self.assigned.pop_front()
    }

    /// The next pair that was missed. Who never asks loses all but the first of them, not their number.
    pub fn poll_event(&mut self) -> Option<Missed> {
        self.missed.pop_front()
    }

    /// How far each test is.
    pub fn progress(&self) -> Vec<Progress> {
        let progress = self.tests.iter().map(|it| Progress {
            cycle: it.tournament.cycle(),
            began: it.tournament.began(),
            due: it.tournament.due_pairs().count() as u64,
            running: it.running,
            done: it.done,
            failed: it.failed,
            missed: it.missed,
        });
        progress.collect()
    }

    /// Pairs of a test that are due, the lower index first.
    pub fn due(&self, test: usize) -> impl Iterator<Item = (usize, usize)> {
        self.tests[test].tournament.due_pairs()
    }

    /// Bytes of memory for the pairs.
    pub fn pair_bytes(&self) -> usize {
        let retry = size_of::<((usize, usize, usize), Retry)>();
        let pairs = self.tests.iter().map(|it| it.tournament.bytes());
        pairs.sum::<usize>() + self.retries.capacity() * retry
    }

    /// Whether a site is there, and well.
    fn is_present(&self, site: usize) -> bool {
        let state = &self.sites[site];
        state.joined && state.ill_until <= self.now
    }

    /// Puts a site into the sets where it belongs, and looks at what it can begin.
    fn refresh(&mut self, site: usize) {
        let state = &self.sites[site];
        let is_present = self.is_present(site);
        let is_idle = is_present && !state.busy && state.rests_until <= self.now;
        let (word, bit) = (site / 64, 1 << (site % 64));
        for (set, is_in) in [(&mut self.present, is_present), (&mut self.idle, is_idle)] {
            set[word] = if is_in {
                set[word] | bit
            } else {
                set[word] & !bit
            };
        }
        if is_present {
            self.sites_freed.push(site);
        }
    }

    /// No round waits for a site.
    fn excuse(&mut self, site: usize) {
        for planned in &mut self.tests {
            planned.tournament.excuse(site);
        }
    }

    /// Names a pair that a cycle has passed by.
    fn miss(&mut self, test: usize, pair: (usize, usize), cycle: u64, why: Why) {
        self.tests[test].missed += 1;
        if self.missed.len() < MAX_MISSED {
            let pair = (pair.0.min(pair.1), pair.0.max(pair.1));
            self.missed.push_back(Missed {
                test,
                pair,
                cycle,
                why,
            });
        }
    }
}

/// How long an agent may take to begin, after it was told.
const BEGINS_WITHIN: Nanos = Nanos::from_millis(10_000);
/// How much later than its deadline a test is taken for ended: clocks differ.
const GRACE: Nanos = Nanos::from_millis(2_000);
/// Until a pair that failed is tried again.
const RETRY_AFTER: Nanos = Nanos::from_millis(10_000);
/// How often a pair is tried in one cycle.
const MAX_ATTEMPTS: u32 = 3;
/// After so many tests that failed one after another a site rests, ever longer.
const STRIKES: u32 = 3;
/// So long at first.
const ILL_FOR: Nanos = Nanos::from_millis(60_000);
/// So long at most.
const ILL_AT_MOST: Nanos = HOUR;
/// Missed pairs that wait to be asked for.
const MAX_MISSED: usize = 10_000;
/// A pair that is waited for longer than so many runs at their longest is kept room for.
const PATIENCE: u64 = 3;

//! A mesh in virtual time: what its schedule comes to, before any site is asked.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashSet};

use linerate_core::units::{Nanos, SplitMix64};

use crate::plan::{Mesh, TestKind};
use crate::schedule::{Assignment, Failure, Input, Missed, Schedule};

/// What is simulated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Simulation {
    /// Of all that is drawn.
    pub seed: u64,
    /// A test takes 1 to so many times what it should.
    pub slowest: f64,
    /// The share (0–1) of sites that are away at a time, each for five minutes on average.
    pub away: f64,
    /// The share (0–1) of tests that fail.
    pub fails: f64,
    /// Of virtual time at most, seconds.
    pub seconds: u64,
}

/// What came of one test of the mesh.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Simulated {
    /// Pairs of its sites.
    pub pairs: u64,
    /// Pairs that were measured once at least.
    pub measured: u64,
    /// Runs with a result, and those without.
    pub done: u64,
    /// Runs that failed or were lost.
    pub failed: u64,
    /// Pairs that a cycle passed by, all named.
    pub missed: u64,
    /// Pairs that are neither measured nor due nor named as missed: always 0.
    pub forgotten: u64,
    /// Until every pair was measured, seconds; `None` if some were not.
    pub took_s: Option<f64>,
    /// No schedule can be faster: the time that the busiest site or group is in the same tests, or all
    /// tests by the pairs that there can be at once, seconds.
    pub bound_s: f64,
    /// The same in slots of the longest time that a test may take: what was used, and what is needed.
    pub slots: f64,
    /// The most tests of a site or a group.
    pub bound_slots: u64,
    /// Of the sites, the fewest and the most runs.
    pub runs_of_site: (u64, u64),
    /// Two tests at once of a site or a group that is in one at a time: always 0.
    pub clashes: u64,
    /// Messages from and to the coordinator for each run.
    pub messages: f64,
}

impl Simulated {
    /// How much longer it took than it must, per cent.
    pub fn over_bound_percent(&self) -> Option<f64> {
        Some((self.took_s? / self.bound_s - 1.0) * 100.0)
    }
}

/// What is under way.
struct World<'a> {
    mesh: &'a Mesh,
    how: Simulation,
    random: SplitMix64,
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    number: u64,
    under_way: BTreeMap<u64, Assignment>,
    tests: Vec<Tally>,
    /// In a bandwidth test: sites, groups by way.
    busy: HashSet<(bool, usize)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ends(u64),
    Leaves(usize),
    Returns(usize),
}

#[derive(Default)]
struct Tally {
    result: Simulated,
    measured: HashSet<(u16, u16)>,
    named: HashSet<(u16, u16)>,
    of_site: Vec<u64>,
    of_group: Vec<u64>,
    time_of_site: Vec<u64>,
    time_of_group: Vec<u64>,
    time: u64,
    runs: Vec<u64>,
    messages: u64,
}

/// Runs the schedule of a mesh until each pair is measured. The same seed gives the same.
pub fn simulate(mesh: &Mesh, how: Simulation) -> (Vec<Simulated>, usize) {
    let begin = Nanos::from_millis(1_800_000_000_000);
    let mut schedule = Schedule::new(mesh, begin);
    let mut world = World::new(mesh, how, begin);
    for site in 0..mesh.sites.len() {
        let reachable = true;
        schedule.handle_input(Nanos::ZERO, Input::Joined { site, reachable });
        if how.away > 0.0 {
            let stays = AWAY_S * (1.0 - how.away) / how.away;
            world.later(stays, Event::Leaves(site));
        }
    }
    let end = begin + Nanos::from_millis(how.seconds * 1000);
    while world.now < end && world.tests.iter().any(|it| it.result.took_s.is_none()) {
        while let Some(assignment) = schedule.poll_transmit() {
            world.begin(assignment, &mut schedule);
        }
        while let Some(missed) = schedule.poll_event() {
            world.name(missed);
        }
        let event = world.events.peek().map(|it| it.0.0);
        let timer = schedule.poll_timeout();
        let Some(at) = event.into_iter().chain(timer).min() else {
            break;
        };
        world.now = at;
        if event == Some(at) {
            world.happens(&mut schedule);
        } else {
            schedule.handle_timeout(at);
        }
    }
    let bytes = schedule.pair_bytes();
    (world.results(&schedule, begin), bytes)
}

impl<'a> World<'a> {
    fn new(mesh: &'a Mesh, how: Simulation, now: Nanos) -> Self {
        let tests = mesh.tests.iter().map(|test| {
            let sites = test.sites.len() as u64;
            Tally {
                result: Simulated {
                    pairs: sites * (sites - 1) / 2,
                    ..Simulated::default()
                },
                of_site: vec![0; mesh.sites.len()],
                time_of_site: vec![0; mesh.sites.len()],
                runs: vec![0; mesh.sites.len()],
                of_group: vec![0; mesh.groups.len()],
                time_of_group: vec![0; mesh.groups.len()],
                ..Tally::default()
            }
        });
        Self {
            mesh,
            how,
            random: SplitMix64::new(how.seed),
            now,
            events: BinaryHeap::new(),
            number: 0,
            under_way: BTreeMap::new(),
            tests: tests.collect(),
            busy: HashSet::new(),
        }
    }

    /// Uniform in 0 to 1.
    fn uniform(&mut self) -> f64 {
        self.random.below(1 << 53) as f64 / (1_u64 << 53) as f64
    }

    /// After an exponential time of that mean, seconds.
    fn later(&mut self, mean: f64, event: Event) {
        let seconds = -(1.0 - self.uniform()).ln() * mean;
        self.at(self.now + Nanos((seconds * 1e9) as u64), event);
    }

    fn at(&mut self, at: Nanos, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    /// What a pair has for itself: sites and groups.
    fn exclusive(&self, assignment: &Assignment) -> Vec<(bool, usize)> {
        let pair = [assignment.from, assignment.to];
        let groups = pair.iter().flat_map(|site| &self.mesh.sites[*site].groups);
        let one_way = groups.filter(|group| !self.mesh.groups[**group].each_way);
        let mut all: Vec<_> = one_way.map(|group| (true, *group)).collect();
        all.sort_unstable();
        all.dedup();
        all.extend(pair.map(|site| (false, site)));
        all
    }

    fn begin(&mut self, assignment: Assignment, schedule: &mut Schedule) {
        let test = &self.mesh.tests[assignment.test];
        if test.kind == TestKind::Bandwidth {
            for it in self.exclusive(&assignment) {
                let is_free = self.busy.insert(it);
                self.tests[assignment.test].result.clashes += u64::from(!is_free);
            }
        }
        let longer = 1.0 + self.uniform() * (self.how.slowest - 1.0);
        let takes = Nanos((test.takes().0 as f64 * longer) as u64);
        self.under_way.insert(assignment.id.0, assignment);
        self.at(self.now + takes, Event::Ends(assignment.id.0));
        self.tests[assignment.test].messages += 3;
        schedule.handle_input(self.now, Input::Started(assignment.id));
    }

    fn happens(&mut self, schedule: &mut Schedule) {
        let Some(Reverse((_, _, event))) = self.events.pop() else {
            return;
        };
        match event {
            Event::Ends(id) => self.ends(id, schedule),
            Event::Returns(site) => {
                schedule.handle_input(
                    self.now,
                    Input::Joined {
                        site,
                        reachable: true,
                    },
                );
                let stays = AWAY_S * (1.0 - self.how.away) / self.how.away;
                self.later(stays, Event::Leaves(site));
            }
            Event::Leaves(site) => {
                schedule.handle_input(self.now, Input::Left { site });
                let own = self.under_way.values();
                let own = own.filter(|it| it.from == site || it.to == site).copied();
                for assignment in own.collect::<Vec<_>>() {
                    self.lose(assignment, schedule);
                }
                self.later(AWAY_S, Event::Returns(site));
            }
        }
    }

    /// A test whose site has left: half of them are told of, the others run out.
    fn lose(&mut self, assignment: Assignment, schedule: &mut Schedule) {
        self.free(assignment);
        self.tests[assignment.test].result.failed += 1;
        if self.random.below(2) == 0 {
            let why = Failure::Tried;
            schedule.handle_input(
                self.now,
                Input::Failed {
                    task: assignment.id,
                    why,
                },
            );
        }
    }

    fn free(&mut self, assignment: Assignment) {
        self.under_way.remove(&assignment.id.0);
        if self.mesh.tests[assignment.test].kind == TestKind::Bandwidth {
            for it in self.exclusive(&assignment) {
                self.busy.remove(&it);
            }
        }
    }

    fn ends(&mut self, id: u64, schedule: &mut Schedule) {
        let Some(assignment) = self.under_way.get(&id).copied() else {
            return;
        };
        self.free(assignment);
        let task = assignment.id;
        if self.uniform() < self.how.fails {
            self.tests[assignment.test].result.failed += 1;
            let why = Failure::Tried;
            return schedule.handle_input(self.now, Input::Failed { task, why });
        }
        let took = (self.now - assignment.not_before).0;
        let exclusive = self.exclusive(&assignment);
        let (now, begin) = (self.now, Nanos::from_millis(1_800_000_000_000));
        let tally = &mut self.tests[assignment.test];
        tally.result.done += 1;
        tally.runs[assignment.from] += 1;
        tally.runs[assignment.to] += 1;
        let (from, to) = (assignment.from as u16, assignment.to as u16);
        if tally.measured.insert((from.min(to), from.max(to))) {
            tally.time += took;
            for (is_group, place) in exclusive {
                let (count, time) = if is_group {
                    (&mut tally.of_group, &mut tally.time_of_group)
                } else {
                    (&mut tally.of_site, &mut tally.time_of_site)
                };
                count[place] += 1;
                time[place] += took;
            }
            if tally.measured.len() as u64 == tally.result.pairs {
                tally.result.took_s = Some((now - begin).0 as f64 / 1e9);
            }
        }
        schedule.handle_input(self.now, Input::Finished { task, bytes: 1 });
    }

    fn name(&mut self, missed: Missed) {
        let tally = &mut self.tests[missed.test];
        tally.result.missed += 1;
        tally
            .named
            .insert((missed.pair.0 as u16, missed.pair.1 as u16));
    }

    fn results(self, schedule: &Schedule, begin: Nanos) -> Vec<Simulated> {
        let seconds = (self.now - begin).0 as f64 / 1e9;
        let how = self.how;
        let under_way = self.under_way;
        let results = self.tests.into_iter().enumerate().map(|(test, tally)| {
            let planned = &self.mesh.tests[test];
            let at_once = match planned.kind {
                TestKind::Bandwidth => 1,
                TestKind::Latency { at_once } => u64::from(at_once),
            };
            let sites = planned.sites.len() as u64;
            let together = sites / 2 * at_once;
            let longest = |times: &[u64]| times.iter().max().copied().unwrap_or(0);
            let busiest = longest(&tally.time_of_site) / at_once;
            let bound = (tally.time / together)
                .max(busiest)
                .max(longest(&tally.time_of_group));
            let most = longest(&tally.of_site).div_ceil(at_once);
            let most = most.max(longest(&tally.of_group));
            let pair = |(a, b): (usize, usize)| (a as u16, b as u16);
            let mut known = tally.measured.clone();
            known.extend(schedule.due(test).map(pair));
            known.extend(&tally.named);
            let running = under_way.values().filter(|it| it.test == test);
            known.extend(running.map(|it| pair((it.from.min(it.to), it.from.max(it.to)))));
            let runs = planned.sites.iter().map(|site| tally.runs[*site]);
            let slot = planned.takes().0 as f64 / 1e9 * how.slowest;
            Simulated {
                measured: tally.measured.len() as u64,
                forgotten: tally.result.pairs.saturating_sub(known.len() as u64),
                bound_s: bound as f64 / 1e9,
                slots: tally.result.took_s.unwrap_or(seconds) / slot,
                bound_slots: most.max(tally.result.pairs.div_ceil(together)),
                runs_of_site: (runs.clone().min().unwrap_or(0), runs.max().unwrap_or(0)),
                messages: tally.messages as f64 / tally.result.done.max(1) as f64,
                ..tally.result
            }
        });
        results.collect()
    }
}

/// How long a site is away, on average.
const AWAY_S: f64 = 300.0;

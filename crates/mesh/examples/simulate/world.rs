//! Simulation of a mesh's schedule in virtual time; the laws in `tests/simulated.rs` use it, too.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};

use linerate_core::units::{Nanos, SplitMix64};
use linerate_mesh::{Assignment, Failure, Input, Mesh, Missed, Schedule, TestKind};

/// Conditions of a simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Simulation {
    /// Seed of every random choice.
    pub(crate) seed: u64,
    /// A test takes 1 to this many times its planned length.
    pub(crate) slowest: f64,
    /// The share (0–1) of sites that are away at a time, each for five minutes on average.
    pub(crate) away: f64,
    /// The share (0–1) of runs that fail.
    pub(crate) fails: f64,
    /// Longest virtual time, seconds.
    pub(crate) seconds: u64,
}

/// How one test of the mesh went.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Simulated {
    /// Pairs of its sites.
    pub(crate) pairs: u64,
    /// Pairs that were measured at least once.
    pub(crate) measured: u64,
    /// Runs with a result.
    pub(crate) done: u64,
    /// Runs that failed or were lost.
    pub(crate) failed: u64,
    /// Pairs that cycles missed, each with its reason.
    pub(crate) missed: u64,
    /// Pairs that are neither measured, due, running nor missed: always 0.
    pub(crate) forgotten: u64,
    /// Time until every pair was measured, seconds; `None` if some were not.
    pub(crate) took_s: Option<f64>,
    /// Least time that any schedule needs, seconds: the time of the busiest site or group in these
    /// tests, or of all tests over the most that can run at once.
    pub(crate) bound_s: f64,
    /// `took_s` in slots, each as long as the longest test.
    pub(crate) slots: f64,
    /// Least number of slots that any schedule needs.
    pub(crate) bound_slots: u64,
    /// The fewest and the most runs of a site.
    pub(crate) runs_of_site: (u64, u64),
    /// Runs that had a site or a link which another bandwidth test had: always 0.
    pub(crate) clashes: u64,
    /// Messages from and to the coordinator for each run.
    pub(crate) messages: f64,
}

/// The state of a simulation.
struct World<'a> {
    mesh: &'a Mesh,
    schedule: Schedule,
    conditions: Simulation,
    random: SplitMix64,
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    /// Number of the last event: equal times keep their order.
    number: u64,
    running: BTreeMap<u64, Assignment>,
    tests: Vec<Tally>,
    /// What bandwidth tests have for themselves.
    busy: HashSet<Resource>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ends(u64),
    Leaves(usize),
    Returns(usize),
}

/// What only one bandwidth test can use at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Resource {
    Group(usize),
    Site(usize),
}

/// Indexes of two sites, the lower first: small, for there may be millions of them.
type Pair = (u16, u16);

#[derive(Default)]
struct Tally {
    result: Simulated,
    measured: HashSet<Pair>,
    missed: HashSet<Pair>,
    /// Number and time (ns) of the first measurements of pairs that used each resource.
    uses: HashMap<Resource, (u64, u64)>,
    /// Time of the first measurements of all pairs, ns.
    time: u64,
    /// Runs of each site.
    runs: HashMap<usize, u64>,
    messages: u64,
}

/// Runs the schedule of a mesh until every pair is measured, and returns how each test went and the
/// memory that the pairs took, bytes. The same conditions give the same result.
pub(crate) fn simulate(mesh: &Mesh, conditions: Simulation) -> (Vec<Simulated>, usize) {
    let mut world = World::new(mesh, conditions);
    for site in 0..mesh.sites.len() {
        world.join(Nanos::ZERO, site);
    }
    let end = BEGIN + Nanos::from_millis(conditions.seconds * 1000);
    while world.now < end && world.tests.iter().any(|it| it.result.took_s.is_none()) {
        while let Some(assignment) = world.schedule.poll_transmit() {
            world.begin(assignment);
        }
        while let Some(missed) = world.schedule.poll_event() {
            world.miss(missed);
        }
        let event = world.events.peek().map(|it| it.0.0);
        let timer = world.schedule.poll_timeout();
        let Some(at) = event.into_iter().chain(timer).min() else {
            break;
        };
        world.now = at;
        if event == Some(at) {
            world.handle_event();
        } else {
            world.schedule.handle_timeout(at);
        }
    }
    let bytes = world.schedule.pair_bytes();
    (world.results(), bytes)
}

impl<'a> World<'a> {
    fn new(mesh: &'a Mesh, conditions: Simulation) -> Self {
        let tests = mesh.tests.iter().map(|test| {
            let sites = test.sites.len() as u64;
            let result = Simulated { pairs: sites * (sites - 1) / 2, ..Simulated::default() };
            Tally { result, ..Tally::default() }
        });
        Self {
            mesh,
            schedule: Schedule::new(mesh, BEGIN),
            conditions,
            random: SplitMix64::new(conditions.seed),
            now: BEGIN,
            events: BinaryHeap::new(),
            number: 0,
            running: BTreeMap::new(),
            tests: tests.collect(),
            busy: HashSet::new(),
        }
    }

    /// A random number, uniform in 0 to 1.
    fn uniform(&mut self) -> f64 {
        self.random.below(1 << 53) as f64 / (1_u64 << 53) as f64
    }

    /// Plans an event after an exponentially distributed time with this mean, seconds.
    fn later(&mut self, mean: f64, event: Event) {
        let seconds = -(1.0 - self.uniform()).ln() * mean;
        self.at(self.now + Nanos((seconds * 1e9) as u64), event);
    }

    fn at(&mut self, at: Nanos, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    /// A site joins, until it leaves again.
    fn join(&mut self, at: Nanos, site: usize) {
        let reachable = true;
        self.schedule.handle_input(at, Input::Joined { site, reachable });
        let away = self.conditions.away;
        if away > 0.0 {
            self.later(AWAY_S * (1.0 - away) / away, Event::Leaves(site));
        }
    }

    /// The resources that a run has for itself.
    fn resources(&self, run: &Assignment) -> Vec<Resource> {
        let sites = [run.from, run.to];
        let groups = sites.iter().flat_map(|site| &self.mesh.sites[*site].groups);
        let one_way = groups.filter(|group| !self.mesh.groups[**group].each_way);
        let mut all: Vec<_> = one_way.map(|group| Resource::Group(*group)).collect();
        all.extend(sites.map(Resource::Site));
        all.sort_unstable();
        all.dedup();
        all
    }

    fn begin(&mut self, run: Assignment) {
        let test = &self.mesh.tests[run.test];
        if test.kind == TestKind::Bandwidth {
            for resource in self.resources(&run) {
                let is_free = self.busy.insert(resource);
                self.tests[run.test].result.clashes += u64::from(!is_free);
            }
        }
        let times = 1.0 + self.uniform() * (self.conditions.slowest - 1.0);
        let takes = Nanos((test.duration().0 as f64 * times) as u64);
        self.running.insert(run.id.0, run);
        self.at(self.now + takes, Event::Ends(run.id.0));
        self.tests[run.test].messages += 3;
        self.schedule.handle_input(self.now, Input::Started(run.id));
    }

    fn handle_event(&mut self) {
        let Some(Reverse((_, _, event))) = self.events.pop() else {
            return;
        };
        match event {
            Event::Ends(id) => self.end(id),
            Event::Returns(site) => self.join(self.now, site),
            Event::Leaves(site) => {
                self.schedule.handle_input(self.now, Input::Left { site });
                let runs = self.running.values();
                let lost = runs.filter(|it| it.from == site || it.to == site);
                for run in lost.copied().collect::<Vec<_>>() {
                    self.free(&run);
                    // The coordinator hears of half of these runs; the others time out.
                    let is_told = self.random.below(2) == 0;
                    self.fail(&run, is_told);
                }
                self.later(AWAY_S, Event::Returns(site));
            }
        }
    }

    fn fail(&mut self, run: &Assignment, is_told: bool) {
        self.tests[run.test].result.failed += 1;
        if is_told {
            let (task, why) = (run.id, Failure::Tried);
            self.schedule.handle_input(self.now, Input::Failed { task, why });
        }
    }

    fn free(&mut self, run: &Assignment) {
        self.running.remove(&run.id.0);
        if self.mesh.tests[run.test].kind == TestKind::Bandwidth {
            for resource in self.resources(run) {
                self.busy.remove(&resource);
            }
        }
    }

    fn end(&mut self, id: u64) {
        let Some(run) = self.running.get(&id).copied() else {
            return;
        };
        self.free(&run);
        if self.uniform() < self.conditions.fails {
            return self.fail(&run, true);
        }
        let took = (self.now - run.assigned_at).0;
        let resources = self.resources(&run);
        let tally = &mut self.tests[run.test];
        tally.result.done += 1;
        *tally.runs.entry(run.from).or_default() += 1;
        *tally.runs.entry(run.to).or_default() += 1;
        if tally.measured.insert(pair((run.from, run.to))) {
            tally.time += took;
            for resource in resources {
                let (count, time) = tally.uses.entry(resource).or_default();
                *count += 1;
                *time += took;
            }
            if tally.measured.len() as u64 == tally.result.pairs {
                tally.result.took_s = Some((self.now - BEGIN).0 as f64 / 1e9);
            }
        }
        let (task, bytes) = (run.id, 1);
        self.schedule.handle_input(self.now, Input::Finished { task, bytes });
    }

    fn miss(&mut self, missed: Missed) {
        let tally = &mut self.tests[missed.test];
        tally.result.missed += 1;
        tally.missed.insert(pair(missed.pair));
    }

    fn results(mut self) -> Vec<Simulated> {
        let tests = std::mem::take(&mut self.tests);
        let results = tests.into_iter().enumerate();
        results.map(|(test, tally)| self.result(test, tally)).collect()
    }

    fn result(&self, test: usize, tally: Tally) -> Simulated {
        let planned = &self.mesh.tests[test];
        let at_once = match planned.kind {
            TestKind::Bandwidth => 1,
            TestKind::Latency { at_once } => u64::from(at_once),
        };
        let together = planned.sites.len() as u64 / 2 * at_once;
        // A group takes one test at a time, whatever its kind.
        let uses = tally.uses.iter();
        let needs = uses.map(|(resource, (count, time))| match resource {
            Resource::Site(_) => (count.div_ceil(at_once), time / at_once),
            Resource::Group(_) => (*count, *time),
        });
        let (slots, time) = needs
            .fold((0, 0), |most: (u64, u64), (count, time)| (most.0.max(count), most.1.max(time)));
        let mut known = tally.measured.clone();
        known.extend(self.schedule.due(test).map(pair));
        known.extend(&tally.missed);
        let running = self.running.values().filter(|it| it.test == test);
        known.extend(running.map(|it| pair((it.from, it.to))));
        let runs = planned.sites.iter();
        let runs = runs.map(|site| tally.runs.get(site).copied().unwrap_or(0));
        let seconds = (self.now - BEGIN).0 as f64 / 1e9;
        let slot_s = planned.duration().0 as f64 / 1e9 * self.conditions.slowest;
        Simulated {
            measured: tally.measured.len() as u64,
            forgotten: tally.result.pairs.saturating_sub(known.len() as u64),
            bound_s: time.max(tally.time / together) as f64 / 1e9,
            slots: tally.result.took_s.unwrap_or(seconds) / slot_s,
            bound_slots: slots.max(tally.result.pairs.div_ceil(together)),
            runs_of_site: (runs.clone().min().unwrap_or(0), runs.max().unwrap_or(0)),
            messages: tally.messages as f64 / tally.result.done.max(1) as f64,
            ..tally.result
        }
    }
}

fn pair((a, b): (usize, usize)) -> Pair {
    (a.min(b) as u16, a.max(b) as u16)
}

/// Beginning of the virtual time, since 1970.
const BEGIN: Nanos = Nanos::from_millis(1_800_000_000_000);
/// Mean time that a site is away, seconds.
const AWAY_S: f64 = 300.0;

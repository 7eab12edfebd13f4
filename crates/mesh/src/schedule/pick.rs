//! The choice of the next runs.

use std::cmp::Reverse;

use linerate_core::units::Nanos;

use super::links::direction;
use super::sets::members;
use super::{
    Assignment, BEGINS_WITHIN, GRACE, MissReason, PATIENCE, PlannedTest, RunningTask, Schedule,
    TaskId, TestKind, pair_key,
};

impl Schedule {
    /// Opens all rounds that can be opened, and begins all tests that can begin.
    pub(super) fn assign(&mut self) {
        if self.now < self.begin {
            return;
        }
        loop {
            let begun = self.next_id;
            let opened = self.open_rounds();
            let may_run: Vec<bool> = (0..self.tests.len()).map(|it| self.has_share(it)).collect();
            if may_run != self.may_run {
                self.may_run = may_run;
                self.sites_freed.extend(self.present.iter());
            }
            self.keep_room();
            while let Some(group) = self.groups_freed.pop() {
                while self.begin_best_of(group) {}
            }
            while let Some(site) = self.sites_freed.pop() {
                self.begin_at(site);
            }
            // A test that has begun may let the next round be opened.
            if !opened && begun == self.next_id {
                break;
            }
        }
    }

    /// Whether a round was opened.
    fn open_rounds(&mut self) -> bool {
        let can_open = self.present.len() >= 2;
        let mut any = false;
        for test in 0..self.tests.len() {
            let mut opened = 0;
            while can_open && opened < MAX_ROUNDS && self.wants_round(test) {
                self.open_round(test);
                opened += 1;
            }
            if opened > 0 {
                any = true;
                let least = self.tests.iter().map(|it| it.share).min();
                let planned = &mut self.tests[test];
                // A test has no claim to the time in which it had nothing to do.
                planned.share = planned.share.max(least.unwrap_or(0));
                self.sites_freed.extend(self.present.iter());
            }
        }
        any
    }

    fn wants_round(&mut self, test: usize) -> bool {
        let tournament = &mut self.tests[test].tournament;
        tournament.wants_round(self.now, &self.present)
    }

    fn open_round(&mut self, test: usize) {
        let able = Vec::from_iter((0..self.sites.len()).map(|site| self.is_able(test, site)));
        let mut missed = Vec::new();
        let sites = &self.sites;
        self.tests[test].tournament.open(
            self.now,
            &self.present,
            |a, b| able[a] && able[b] && (sites[a].reachable || sites[b].reachable),
            |tournament, a, b| missed.push((a, b, tournament.cycle_of(a, b))),
        );
        for (a, b, cycle) in missed {
            let away = [a, b].into_iter().find(|site| !self.is_present(*site));
            let spent = [a, b].into_iter().find(|site| !self.has_room(test, *site));
            let key = pair_key(test, a, b);
            let has_failed = self.retries.remove(&key).is_some();
            let why = match (away, spent) {
                (Some(site), _) => MissReason::Away(site),
                (None, Some(site)) => MissReason::Spent(site),
                _ if !self.is_reachable(a, b) => MissReason::Unreachable,
                _ if has_failed => MissReason::Failed,
                _ => MissReason::NoTime,
            };
            self.miss(key, cycle, why);
        }
    }

    /// Whether one of two sites can connect to the other.
    fn is_reachable(&self, a: usize, b: usize) -> bool {
        self.sites[a].reachable || self.sites[b].reachable
    }

    /// Whether a round may wait for a site.
    fn is_able(&self, test: usize, site: usize) -> bool {
        let state = &self.sites[site];
        let is_rested = || state.rests_until <= self.now + self.mesh.tests[test].duration();
        self.tests[test].tournament.has(site)
            && self.is_present(site)
            && !state.is_late
            && (!self.is_bandwidth(test) || is_rested())
            && self.has_room(test, site)
    }

    /// The most that a run of a test may carry at a site, bytes.
    fn needs(&self, test: usize, site: usize) -> u64 {
        let work = &self.mesh.tests[test].work;
        let by_plan = work.most_bytes(self.mesh.sites[site].rate);
        by_plan.unwrap_or(self.tests[test].largest).max(1)
    }

    /// The most that a run of a test between two sites may carry, bytes.
    fn pair_needs(&self, test: usize, a: usize, b: usize) -> u64 {
        self.needs(test, a).min(self.needs(test, b))
    }

    /// Whether the budget of a site has room for one more run.
    pub(super) fn has_room(&self, test: usize, site: usize) -> bool {
        let ledger = self.sites[site].ledger.as_ref();
        !self.is_bandwidth(test)
            || ledger.is_none_or(|ledger| ledger.has_room(self.now, self.needs(test, site)))
    }

    /// Keeps room for a pair for which a round has waited too long.
    fn keep_room(&mut self) {
        self.kept =
            self.kept.filter(|(test, a, b)| self.tests[*test].tournament.is_awaited(*a, *b));
        if self.kept.is_some() {
            return;
        }
        let planned = self.tests.iter().zip(&self.mesh.tests).enumerate();
        let stuck = planned.filter(|(_, (planned, test))| {
            let waits = self.now - planned.tournament.stuck_since;
            test.kind == TestKind::Bandwidth && waits.0 > PATIENCE * test.max_duration().0
        });
        let longest = stuck.min_by_key(|(_, (planned, _))| planned.tournament.stuck_since);
        self.kept = longest.and_then(|(test, (planned, _))| {
            let (a, b) = planned.tournament.oldest_awaited()?;
            Some(pair_key(test, a, b))
        });
    }

    /// Begins all tests that a site can begin.
    fn begin_at(&mut self, site: usize) {
        for test in self.by_share() {
            while let Some((_, other)) = self.oldest(test, site) {
                self.begin(test, site, other);
            }
        }
    }

    /// Begins the oldest pair of a group's sites that can begin, and returns whether there is one.
    fn begin_best_of(&mut self, group: usize) -> bool {
        for test in self.by_share() {
            if !self.is_bandwidth(test) {
                continue;
            }
            let best = self.links.members(group).iter().filter_map(|site| {
                let site = usize::from(*site);
                let (age, other) = self.oldest(test, site)?;
                Some((age, site, other))
            });
            if let Some((_, site, other)) = best.max() {
                self.begin(test, site, other);
                return true;
            }
        }
        false
    }

    /// Whether a test has had no more time than the bandwidth tests that wait for theirs, up to two
    /// runs of each site.
    fn has_share(&self, test: usize) -> bool {
        let waiting = |(index, it): (usize, &PlannedTest)| {
            let is_waiting = self.is_bandwidth(index) && it.tournament.is_waiting();
            is_waiting.then_some(it.share)
        };
        let least = self.tests.iter().enumerate().filter_map(waiting).min();
        let slack = self.time_share(test) * self.sites.len() as u64;
        least.is_none_or(|least| self.tests[test].share <= least + slack)
    }

    /// What one run of a test adds to its share of the time.
    fn time_share(&self, test: usize) -> u64 {
        let test = &self.mesh.tests[test];
        test.duration().0 / u64::from(test.priority)
    }

    /// The tests, those that had the least of their share first.
    fn by_share(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.tests.len()).collect();
        order.sort_by_key(|test| self.tests[*test].share);
        order
    }

    /// The oldest pair of a site that can begin: its age and the other site.
    fn oldest(&self, test: usize, site: usize) -> Option<(u64, usize)> {
        let tournament = &self.tests[test].tournament;
        if !tournament.has(site) || !self.is_free(test, site) {
            return None;
        }
        let free = if self.is_bandwidth(test) { &self.idle } else { &self.present };
        let due = tournament.due_of(site).words().zip(free.words());
        let mut oldest = None;
        for other in members(due.map(|(due, free)| due & free)) {
            let found = (tournament.age(site, other), other);
            if oldest.is_none_or(|oldest| found > oldest) && self.can_begin(test, site, other) {
                oldest = Some(found);
            }
        }
        oldest
    }

    /// Whether a site, apart from its partner and its links, can begin a test now.
    fn is_free(&self, test: usize, site: usize) -> bool {
        match self.mesh.tests[test].kind {
            TestKind::Bandwidth => {
                self.idle.contains(site) && self.may_run[test] && self.has_room(test, site)
            }
            TestKind::Latency { at_once } => {
                self.is_present(site) && self.sites[site].latency < at_once
            }
        }
    }

    /// Whether a due pair can begin, of which the first site is free.
    fn can_begin(&self, test: usize, site: usize, other: usize) -> bool {
        let key = pair_key(test, site, other);
        let retry = (!self.retries.is_empty()).then(|| self.retries.get(&key));
        let may_retry = retry.flatten().is_none_or(|it| it.not_before <= self.now);
        let tournament = &self.tests[test].tournament;
        let has_turn = tournament.is_awaited(site, other)
            || tournament.is_ending()
            || (!self.is_able(test, site) && !self.is_able(test, other));
        let is_reachable = self.is_reachable(site, other);
        if !has_turn || !may_retry || !is_reachable || !self.is_free(test, other) {
            return false;
        }
        if !self.is_bandwidth(test) {
            return true;
        }
        let (from, to) = self.ends(test, site, other);
        let ledger = self.ledger.as_ref();
        let has_room =
            ledger.is_none_or(|it| it.has_room(self.now, self.pair_needs(test, site, other)));
        let leaves_kept_room = self
            .kept
            .is_none_or(|kept| kept == key || !self.links.share((kept.1, kept.2), (site, other)));
        let direction = direction(&self.mesh.tests[test].work);
        has_room && leaves_kept_room && self.links.are_free(from, to, direction)
    }

    /// The sites that a pair is tested from and to in this cycle; the next cycle swaps them.
    fn ends(&self, test: usize, a: usize, b: usize) -> (usize, usize) {
        let cycle = self.tests[test].tournament.cycle_of(a, b);
        let (low, high) = (a.min(b), a.max(b));
        if (cycle as usize + a + b).is_multiple_of(2) { (low, high) } else { (high, low) }
    }

    fn begin(&mut self, test: usize, a: usize, b: usize) {
        let (from, to) = self.ends(test, a, b);
        let cycle = self.tests[test].tournament.cycle_of(a, b);
        let reserved = if self.is_bandwidth(test) {
            self.take(test, from, to)
        } else {
            self.sites[from].latency += 1;
            self.sites[to].latency += 1;
            0
        };
        let share = self.time_share(test);
        let planned = &mut self.tests[test];
        planned.tournament.begin(a, b);
        planned.progress.running += 1;
        planned.share += share;
        let id = self.next_id;
        self.next_id += 1;
        let retry = self.retries.get(&pair_key(test, a, b));
        let mesh_test = &self.mesh.tests[test];
        let assignment = Assignment {
            id: TaskId(id),
            test,
            from,
            to,
            turned: !self.sites[to].reachable,
            assigned_at: self.now,
            deadline: self.now + BEGINS_WITHIN + mesh_test.max_duration(),
            attempt: retry.map_or(1, |it| it.attempts + 1),
            cycle,
        };
        let late = self.now + Nanos(mesh_test.duration().0 * 3 / 2) + GRACE;
        self.deadlines.push(Reverse((late, id)));
        self.deadlines.push(Reverse((assignment.deadline + GRACE, id)));
        let running = RunningTask { assignment, began: self.now, reserved };
        self.running.insert(id, running);
        self.assigned.push_back(assignment);
    }

    /// Takes sites, links and bytes for a bandwidth test, and returns the number of bytes.
    fn take(&mut self, test: usize, from: usize, to: usize) -> u64 {
        let bytes = self.pair_needs(test, from, to);
        let direction = direction(&self.mesh.tests[test].work);
        self.links.take(from, to, direction);
        for site in [from, to] {
            self.sites[site].busy = true;
            self.idle.set(site, false);
        }
        self.each_ledger(from, to, |ledger| ledger.reserve(bytes));
        bytes
    }
}

/// Most rounds that are opened at once: where nothing waits for them, one after another is.
const MAX_ROUNDS: usize = 2 * crate::plan::MAX_SITES;

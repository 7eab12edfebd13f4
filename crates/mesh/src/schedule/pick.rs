//! The choice of the next runs, and what follows from the end of a run.

use std::cmp::Reverse;

use linerate_core::monitor::MonitoredWork;
use linerate_core::units::Nanos;

use super::links::{Ledger, direction, members};
use super::{
    Assignment, BEGINS_WITHIN, Failure, GRACE, HOUR, ILL_FOR, MAX_ATTEMPTS, MAX_ILL_FOR,
    MissReason, PATIENCE, PairKey, PlannedTest, RETRY_AFTER, Retry, RunningTask, STRIKES, Schedule,
    TaskId, TestKind, ends, pair_key,
};
use crate::limits::max_bytes;

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
            self.begin_proofs();
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
        let planned = &mut self.tests[test];
        let wants = planned.tournament.wants_round(self.now, &self.present);
        let waits = planned.tournament.waits_for_results() && planned.progress.running > 0;
        wants && !waits && !planned.is_over
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

    /// Begins the runs of proofs that can begin.
    fn begin_proofs(&mut self) {
        for wanted @ (test, from, to) in std::mem::take(&mut self.proofs) {
            let direction = direction(&self.mesh.tests[test].work);
            let is_idle = self.idle.contains(from) && self.idle.contains(to);
            if is_idle && self.may_prove(wanted) && self.links.are_free(from, to, direction) {
                self.begin_run(test, from, to, true);
            } else {
                self.proofs.push(wanted);
            }
        }
    }

    /// Whether a run of a proof can begin once the runs of its sites are over. It may carry twice
    /// what others do.
    fn may_prove(&self, (test, from, to): (usize, usize, usize)) -> bool {
        let needs = 2 * self.pair_needs(test, from, to);
        let of_sites = [from, to].map(|site| self.sites[site].ledger.as_ref());
        let mut ledgers = of_sites.into_iter().chain([self.ledger.as_ref()]).flatten();
        ledgers.all(|ledger| ledger.has_room(self.now, needs))
            && self.is_reachable(from, to)
            && [from, to]
                .iter()
                .all(|site| self.is_present(*site) && self.sites[*site].rests_until <= self.now)
    }

    /// Keeps room for a proof, or for a pair for which a round has waited too long.
    fn keep_room(&mut self) {
        if let Some((test, from, to)) = self.proofs.iter().find(|it| self.may_prove(**it)) {
            self.kept = Some(pair_key(*test, *from, *to));
            return;
        }
        self.kept = self.kept.filter(|(test, a, b)| {
            let planned = &self.tests[*test];
            !planned.is_over && planned.tournament.is_awaited(*a, *b)
        });
        if self.kept.is_some() {
            return;
        }
        let planned = self.tests.iter().zip(&self.mesh.tests).enumerate();
        let stuck = planned.filter(|(_, (planned, test))| {
            let waits = self.now - planned.tournament.stuck_since;
            let is_late = waits.0 > PATIENCE * test.max_duration().0;
            test.kind == TestKind::Bandwidth && !planned.is_over && is_late
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
            let is_waiting = it.tournament.is_waiting() && !it.is_over && self.is_bandwidth(index);
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
        let PlannedTest { tournament, is_over, .. } = &self.tests[test];
        if *is_over || !tournament.has(site) || !self.is_free(test, site) {
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

    /// The sites that a pair is tested from and to in this cycle.
    fn ends(&self, test: usize, a: usize, b: usize) -> (usize, usize) {
        ends(self.tests[test].tournament.cycle_of(a, b), a, b)
    }

    /// Begins a due pair.
    fn begin(&mut self, test: usize, a: usize, b: usize) {
        let (from, to) = self.ends(test, a, b);
        self.begin_run(test, from, to, false);
        self.tests[test].tournament.begin(a, b);
    }

    fn begin_run(&mut self, test: usize, from: usize, to: usize, is_proof: bool) {
        let tournament = &self.tests[test].tournament;
        // The round of a pair may not be opened yet.
        let cycle = if is_proof { tournament.cycle() } else { tournament.cycle_of(from, to) };
        let reserved = if self.is_bandwidth(test) {
            let runs = 1 + u64::from(is_proof);
            self.take(test, from, to, runs * self.pair_needs(test, from, to))
        } else {
            self.sites[from].latency += 1;
            self.sites[to].latency += 1;
            0
        };
        let share = self.time_share(test);
        let planned = &mut self.tests[test];
        planned.progress.running += 1;
        planned.share += share;
        let id = self.next_id;
        self.next_id += 1;
        let retry = self.retries.get(&pair_key(test, from, to)).filter(|_| !is_proof);
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
            is_proof,
        };
        let late = self.now + Nanos(mesh_test.duration().0 * 3 / 2) + GRACE;
        self.deadlines.push(Reverse((late, id)));
        self.deadlines.push(Reverse((assignment.deadline + GRACE, id)));
        let running = RunningTask { assignment, began: self.now, reserved };
        self.running.insert(id, running);
        self.assigned.push_back(assignment);
    }

    /// Takes sites, links and bytes for a bandwidth test, and returns the number of bytes.
    fn take(&mut self, test: usize, from: usize, to: usize, bytes: u64) -> u64 {
        let direction = direction(&self.mesh.tests[test].work);
        self.links.take(from, to, direction);
        for site in [from, to] {
            self.sites[site].busy = true;
            self.idle.set(site, false);
        }
        self.each_ledger(from, to, |ledger| ledger.reserve(bytes));
        bytes
    }

    pub(super) fn finished(&mut self, task: TaskId, bytes: u64) {
        let Some(ended) = self.running.get(&task.0).map(|it| it.assignment) else {
            return;
        };
        let bytes = self.believable(ended.test, ended.from, ended.to, bytes);
        self.release(task, Some(bytes));
        let planned = &mut self.tests[ended.test];
        planned.progress.done += 1;
        if !ended.is_proof {
            planned.largest = planned.largest.max(bytes);
            self.retries.remove(&ended.pair_key());
        }
        self.sites[ended.from].strikes = 0;
        self.sites[ended.to].strikes = 0;
    }

    /// What a run has carried, as far as its pacing and the links of its sites allow: an agent's
    /// word must not use up the budgets of others.
    pub(super) fn believable(&self, test: usize, from: usize, to: usize, told: u64) -> u64 {
        let work = &self.mesh.tests[test].work;
        let paced = match work {
            MonitoredWork::Test(test) => max_bytes(test),
            MonitoredWork::Load(_) | MonitoredWork::Check(_) => None,
        };
        let of_site = |site: usize| work.most_bytes(self.mesh.sites[site].rate);
        let most = [paced, of_site(from), of_site(to)];
        most.into_iter().flatten().fold(told, u64::min)
    }

    pub(super) fn failed(&mut self, task: TaskId, why: Failure) {
        let Some(ended) = self.release(task, None) else {
            return;
        };
        let (key, from, to) = (ended.pair_key(), ended.from, ended.to);
        self.tests[ended.test].progress.failed += 1;
        if ended.is_proof {
            return;
        }
        if why == Failure::Refused {
            self.retries.remove(&key);
            return self.miss(key, ended.cycle, MissReason::Refused);
        }
        let both_joined = self.sites[from].joined && self.sites[to].joined;
        if both_joined {
            self.strike(from);
            self.strike(to);
        }
        let attempts = self.retries.get(&key).map_or(0, |it| it.attempts);
        // A failure because a site has left is no attempt.
        let attempts = attempts + u32::from(both_joined);
        if attempts >= MAX_ATTEMPTS {
            self.retries.remove(&key);
            return self.miss(key, ended.cycle, MissReason::Failed);
        }
        let not_before = self.now + RETRY_AFTER;
        let retry = Retry { attempts, not_before };
        self.retries.insert(key, retry);
        self.tests[ended.test].tournament.give_back(from, to);
        self.wakes.push(Reverse((not_before, from as u16)));
    }

    /// A run takes longer than planned: no round waits for its sites.
    pub(super) fn late(&mut self, late: &Assignment) {
        if self.is_bandwidth(late.test) {
            for site in [late.from, late.to] {
                self.sites[site].is_late = true;
                self.excuse(site);
            }
        }
    }

    /// Frees the sites and links of a run that is over, and enters what it carried: what was
    /// reserved for it, if that is not known.
    fn release(&mut self, task: TaskId, bytes: Option<u64>) -> Option<Assignment> {
        let RunningTask { assignment: ended, began, reserved } = self.running.remove(&task.0)?;
        let (from, to) = (ended.from, ended.to);
        self.tests[ended.test].progress.running -= 1;
        if self.is_bandwidth(ended.test) {
            let direction = direction(&self.mesh.tests[ended.test].work);
            self.groups_freed.extend(self.links.free(from, to, direction));
            self.enter(from, to, self.now, reserved, bytes.unwrap_or(reserved));
            for site in [from, to] {
                self.sites[site].busy = false;
                self.sites[site].is_late = false;
                self.rest(site, self.now - began);
            }
            if self.ledger.is_some() {
                self.sites_freed.extend(self.idle.iter());
            }
        } else {
            self.sites[from].latency -= 1;
            self.sites[to].latency -= 1;
        }
        self.refresh(from);
        self.refresh(to);
        Some(ended)
    }

    /// Enters the bytes that a run has carried, in place of those that were reserved.
    pub(super) fn enter(&mut self, from: usize, to: usize, at: Nanos, reserved: u64, bytes: u64) {
        self.each_ledger(from, to, |ledger| ledger.carried(at, reserved, bytes));
    }

    /// Changes each ledger in which a run between two sites is entered.
    pub(super) fn each_ledger(&mut self, from: usize, to: usize, change: impl Fn(&mut Ledger)) {
        for site in [from, to] {
            self.sites[site].ledger.iter_mut().for_each(&change);
        }
        self.ledger.iter_mut().for_each(change);
    }

    /// A site rests after a bandwidth test as its share of the time demands, and until the next
    /// hour if its budget is used up. No round waits for a site that rests longer than a test
    /// takes.
    fn rest(&mut self, site: usize, used: Nanos) {
        let share = self.mesh.sites[site].share_of_time;
        if share < 1.0 {
            let rests = Nanos((used.0 as f64 * (1.0 / share - 1.0)) as u64);
            let until = self.now + rests;
            self.sites[site].rests_until = until;
            self.wakes.push(Reverse((until, site as u16)));
        }
        for test in 0..self.tests.len() {
            if !self.is_bandwidth(test) || !self.tests[test].tournament.has(site) {
                continue;
            }
            let has_room = self.has_room(test, site);
            if !has_room {
                let next_hour = Nanos((self.now.0 / HOUR.0 + 1) * HOUR.0);
                self.wakes.push(Reverse((next_hour, site as u16)));
            }
            let duration = self.mesh.tests[test].duration();
            if !has_room || self.sites[site].rests_until > self.now + duration {
                self.tests[test].tournament.excuse(site);
            }
        }
    }

    /// A site whose tests fail one after another rests, so that it does not take the others' time.
    fn strike(&mut self, site: usize) {
        let state = &mut self.sites[site];
        state.strikes += 1;
        let Some(more) = state.strikes.checked_sub(STRIKES) else {
            return;
        };
        let rests = Nanos(ILL_FOR.0 << more.min(10)).min(MAX_ILL_FOR);
        state.ill_until = self.now + rests;
        self.wakes.push(Reverse((state.ill_until, site as u16)));
        self.excuse(site);
        self.refresh(site);
    }
}

impl Assignment {
    pub(super) fn pair_key(&self) -> PairKey {
        pair_key(self.test, self.from, self.to)
    }
}

/// Most rounds that are opened at once: where nothing waits for them, one after another is.
const MAX_ROUNDS: usize = 2 * crate::plan::MAX_SITES;

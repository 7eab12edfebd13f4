//! What is begun next.

use std::cmp::Reverse;

use linerate_core::units::Nanos;

use super::{
    Assignment, BEGINS_WITHIN, GRACE, PATIENCE, Planned, Running, Schedule, TaskId, TestKind, Why,
    members,
};

impl Schedule {
    /// Opens the rounds that can be opened, and begins all that can begin.
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
                self.sites_freed
                    .extend(members(self.present.iter().copied()));
            }
            self.keep_room();
            while let Some(group) = self.groups_freed.pop() {
                while self.begin_best_of(group) {}
            }
            while let Some(site) = self.sites_freed.pop() {
                self.begin_at(site);
            }
            // What has begun may let a round be opened.
            if !opened && begun == self.next_id {
                break;
            }
        }
    }

    /// Whether a round was opened.
    fn open_rounds(&mut self) -> bool {
        let there: u32 = self.present.iter().map(|word| word.count_ones()).sum();
        let mut any = false;
        for test in 0..self.tests.len() {
            let mut opened = 0;
            while there >= 2 && opened < MOST && self.wants_round(test) {
                self.open_round(test);
                opened += 1;
            }
            if opened > 0 {
                any = true;
                let least = self.tests.iter().map(|it| it.share).min();
                let planned = &mut self.tests[test];
                // What had nothing to do has no claim from then.
                planned.share = planned.share.max(least.unwrap_or(0));
                self.sites_freed
                    .extend(members(self.present.iter().copied()));
            }
        }
        any
    }

    fn wants_round(&mut self, test: usize) -> bool {
        let tournament = &mut self.tests[test].tournament;
        tournament.wants_round(self.now, &self.present)
    }

    fn open_round(&mut self, test: usize) {
        let able: Vec<bool> = (0..self.sites.len())
            .map(|it| self.is_able(test, it))
            .collect();
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
            let key = (test, a.min(b), a.max(b));
            let why = match (away, spent) {
                (Some(site), _) => Why::Away(site),
                (None, Some(site)) => Why::Spent(site),
                _ if !self.sites[a].reachable && !self.sites[b].reachable => Why::Unreachable,
                _ if self.retries.contains_key(&key) => Why::Failed,
                _ => Why::NoTime,
            };
            self.retries.remove(&key);
            self.miss(test, (a, b), cycle, why);
        }
    }

    /// Whether a round can wait for a site.
    fn is_able(&self, test: usize, site: usize) -> bool {
        let planned = &self.tests[test];
        let is_rested = planned.kind != TestKind::Bandwidth
            || self.sites[site].rests_until <= self.now + planned.takes;
        planned.tournament.has(site)
            && self.is_present(site)
            && !self.sites[site].is_late
            && is_rested
            && self.has_room(test, site)
    }

    /// What a test may carry at a site, bytes.
    fn needs(&self, test: usize, site: usize) -> u64 {
        let by_plan = self.mesh.tests[test]
            .work
            .most_bytes(self.mesh.sites[site].rate);
        by_plan.unwrap_or(self.tests[test].largest).max(1)
    }

    /// Whether a site may carry one more run in this day.
    pub(super) fn has_room(&self, test: usize, site: usize) -> bool {
        let ledger = self.sites[site].ledger.as_ref();
        self.tests[test].kind != TestKind::Bandwidth
            || ledger.is_none_or(|ledger| ledger.has_room(self.now, self.needs(test, site)))
    }

    /// A pair for which a round has waited too long gets its turn.
    fn keep_room(&mut self) {
        if let Some((test, a, b)) = self.kept
            && !self.tests[test].tournament.is_awaited(a, b)
        {
            self.kept = None;
        }
        if self.kept.is_some() {
            return;
        }
        let stuck = self.tests.iter().enumerate().filter(|(_, planned)| {
            let waits = self.now - planned.tournament.stuck_since;
            planned.kind == TestKind::Bandwidth && waits.0 > PATIENCE * planned.lasts.0
        });
        let longest = stuck.min_by_key(|(_, planned)| planned.tournament.stuck_since);
        self.kept = longest.and_then(|(test, planned)| {
            let (a, b) = planned.tournament.oldest_awaited()?;
            Some((test, a, b))
        });
    }

    /// Begins what a site can begin, of all tests.
    fn begin_at(&mut self, site: usize) {
        for test in self.by_share() {
            while let Some((_, other)) = self.oldest(test, site) {
                self.begin(test, site, other);
            }
        }
    }

    /// Begins the oldest pair of a group's sites that can begin. Whether there is one.
    fn begin_best_of(&mut self, group: usize) -> bool {
        for test in self.by_share() {
            if self.tests[test].kind != TestKind::Bandwidth {
                continue;
            }
            let sites = self
                .links
                .members(group)
                .iter()
                .map(|site| usize::from(*site));
            let best = sites.filter_map(|site| {
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

    /// Whether a bandwidth test has had no more time than the others that wait for theirs: two runs of each
    /// site.
    fn has_share(&self, test: usize) -> bool {
        let is_waiting =
            |it: &&Planned| it.kind == TestKind::Bandwidth && it.tournament.is_waiting();
        let least = self
            .tests
            .iter()
            .filter(is_waiting)
            .map(|it| it.share)
            .min();
        let planned = &self.tests[test];
        let slack = planned.takes.0 * self.sites.len() as u64 / u64::from(planned.priority);
        least.is_none_or(|least| planned.share <= least + slack)
    }

    /// Tests in the order of the time that they had.
    fn by_share(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.tests.len()).collect();
        order.sort_by_key(|test| self.tests[*test].share);
        order
    }

    /// The site's oldest pair that can begin, with its age.
    fn oldest(&self, test: usize, site: usize) -> Option<(u64, usize)> {
        let tournament = &self.tests[test].tournament;
        if !tournament.has(site) || !self.is_free(test, site) {
            return None;
        }
        let free = match self.tests[test].kind {
            TestKind::Bandwidth => &self.idle,
            TestKind::Latency { .. } => &self.present,
        };
        let due = tournament.due_of(site).iter().zip(free);
        let others = members(due.map(|(due, free)| due & free));
        let others = others.map(|other| (tournament.age(site, other), other));
        let mut oldest = None;
        for found in others {
            if oldest.is_none_or(|oldest| found > oldest) && self.can_begin(test, site, found.1) {
                oldest = Some(found);
            }
        }
        oldest
    }

    /// Whether a site, for itself, can begin a test now.
    fn is_free(&self, test: usize, site: usize) -> bool {
        match self.tests[test].kind {
            TestKind::Bandwidth => {
                self.idle[site / 64] >> (site % 64) & 1 == 1
                    && self.may_run[test]
                    && self.has_room(test, site)
            }
            TestKind::Latency { at_once } => {
                self.is_present(site) && self.sites[site].latency < at_once
            }
        }
    }

    /// Whether a due pair of a site that is free can begin.
    fn can_begin(&self, test: usize, site: usize, other: usize) -> bool {
        let retry = (test, site.min(other), site.max(other));
        let may_retry = self.retries.is_empty()
            || self
                .retries
                .get(&retry)
                .is_none_or(|it| it.not_before <= self.now);
        let is_reachable = self.sites[site].reachable || self.sites[other].reachable;
        let tournament = &self.tests[test].tournament;
        let has_turn = tournament.is_awaited(site, other)
            || tournament.is_ending()
            || (!self.is_able(test, site) && !self.is_able(test, other));
        if !has_turn || !may_retry || !is_reachable || !self.is_free(test, other) {
            return false;
        }
        if self.tests[test].kind != TestKind::Bandwidth {
            return true;
        }
        let (from, to) = self.ends(test, site, other);
        let need = self.needs(test, site).min(self.needs(test, other));
        let has_room = self
            .ledger
            .as_ref()
            .is_none_or(|it| it.has_room(self.now, need));
        let is_kept = self.kept.is_none_or(|(of, a, b)| {
            (of == test && (a.min(b), a.max(b)) == (retry.1, retry.2))
                || !self.links.share((a, b), (site, other))
        });
        has_room && is_kept && self.links.are_free(from, to, self.tests[test].way)
    }

    /// From which site a pair is tested in this cycle: from the other one in the next.
    fn ends(&self, test: usize, a: usize, b: usize) -> (usize, usize) {
        let cycle = self.tests[test].tournament.cycle_of(a, b);
        let (low, high) = (a.min(b), a.max(b));
        if (cycle as usize + a + b).is_multiple_of(2) {
            (low, high)
        } else {
            (high, low)
        }
    }

    fn begin(&mut self, test: usize, a: usize, b: usize) {
        let (from, to) = self.ends(test, a, b);
        let cycle = self.tests[test].tournament.cycle_of(a, b);
        let reserved = match self.tests[test].kind {
            TestKind::Bandwidth => self.take(test, from, to),
            TestKind::Latency { .. } => {
                self.sites[from].latency += 1;
                self.sites[to].latency += 1;
                0
            }
        };
        let planned = &mut self.tests[test];
        planned.tournament.begin(a, b);
        planned.running += 1;
        planned.share += planned.takes.0 / u64::from(planned.priority);
        let id = self.next_id;
        self.next_id += 1;
        let deadline = self.now + BEGINS_WITHIN + planned.lasts;
        let running = Running {
            test,
            from,
            to,
            cycle,
            began: self.now,
            deadline: deadline + GRACE,
            reserved,
        };
        self.running.insert(id, running);
        let late = self.now + Nanos(planned.takes.0 * 3 / 2) + GRACE;
        self.deadlines.push(Reverse((late, id)));
        self.deadlines.push(Reverse((running.deadline, id)));
        let retry = self.retries.get(&(test, a.min(b), a.max(b)));
        self.assigned.push_back(Assignment {
            id: TaskId(id),
            test,
            from,
            to,
            turned: !self.sites[to].reachable,
            not_before: self.now,
            begin_by: self.now + BEGINS_WITHIN,
            deadline,
            attempt: retry.map_or(1, |it| it.attempts + 1),
            cycle,
        });
    }

    /// Takes sites, links and bytes for a bandwidth test: so many bytes.
    fn take(&mut self, test: usize, from: usize, to: usize) -> u64 {
        let bytes = self.needs(test, from).min(self.needs(test, to));
        self.links.take(from, to, self.tests[test].way);
        for site in [from, to] {
            self.sites[site].busy = true;
            self.idle[site / 64] &= !(1 << (site % 64));
            if let Some(ledger) = &mut self.sites[site].ledger {
                ledger.reserve(bytes);
            }
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.reserve(bytes);
        }
        bytes
    }
}

/// Rounds that are opened at once at most; where nobody waits for them, one after another is.
const MOST: usize = 2 * crate::plan::MAX_SITES;

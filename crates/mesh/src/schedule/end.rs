//! The end of a run, and what follows from it.

use std::cmp::Reverse;

use linerate_core::monitor::MonitoredWork;
use linerate_core::units::Nanos;

use super::ledger::Ledger;
use super::links::direction;
use super::{
    Assignment, Failure, HOUR, ILL_FOR, MAX_ATTEMPTS, MAX_ILL_FOR, MissReason, PairKey,
    RETRY_AFTER, Retry, RunningTask, STRIKES, Schedule, TaskId, pair_key,
};
use crate::limits::max_bytes;

impl Schedule {
    pub(super) fn finished(&mut self, task: TaskId, bytes: u64) {
        let Some(ended) = self.running.get(&task.0).map(|it| it.assignment) else {
            return;
        };
        let bytes = self.believable(ended.test, ended.from, ended.to, bytes);
        self.release(task, Some(bytes));
        let planned = &mut self.tests[ended.test];
        planned.progress.done += 1;
        planned.largest = planned.largest.max(bytes);
        self.retries.remove(&ended.pair_key());
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

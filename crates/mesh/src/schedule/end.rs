//! What follows from the end of a test.

use std::cmp::Reverse;

use linerate_core::units::Nanos;

use super::{
    Failure, HOUR, ILL_AT_MOST, ILL_FOR, MAX_ATTEMPTS, RETRY_AFTER, Retry, Running, STRIKES,
    Schedule, TaskId, TestKind, Why,
};

impl Schedule {
    pub(super) fn finished(&mut self, task: TaskId, bytes: u64) {
        let Some(running) = self.release(task, Some(bytes)) else {
            return;
        };
        let planned = &mut self.tests[running.test];
        planned.done += 1;
        planned.largest = planned.largest.max(bytes);
        self.retries.remove(&key(&running));
        self.sites[running.from].strikes = 0;
        self.sites[running.to].strikes = 0;
    }

    pub(super) fn failed(&mut self, task: TaskId, why: Failure) {
        let Some(running) = self.release(task, None) else {
            return;
        };
        let (test, pair) = (running.test, (running.from, running.to));
        self.tests[test].failed += 1;
        if why == Failure::Refused {
            self.retries.remove(&key(&running));
            return self.miss(test, pair, running.cycle, Why::Refused);
        }
        let both_there = self.sites[pair.0].joined && self.sites[pair.1].joined;
        if both_there {
            self.strike(pair.0);
            self.strike(pair.1);
        }
        let attempts = self.retries.get(&key(&running)).map_or(0, |it| it.attempts);
        // Who has left is no reason to give up.
        let attempts = attempts + u32::from(both_there);
        if attempts >= MAX_ATTEMPTS {
            self.retries.remove(&key(&running));
            return self.miss(test, pair, running.cycle, Why::Failed);
        }
        let not_before = self.now + RETRY_AFTER;
        let retry = Retry {
            attempts,
            not_before,
        };
        self.retries.insert(key(&running), retry);
        self.tests[test].tournament.give_back(pair.0, pair.1);
        self.wakes.push(Reverse((not_before, pair.0 as u16)));
    }

    /// A test takes longer than it should: no round waits for its sites.
    pub(super) fn late(&mut self, running: &Running) {
        if self.tests[running.test].kind == TestKind::Bandwidth {
            for site in [running.from, running.to] {
                self.sites[site].is_late = true;
                self.excuse(site);
            }
        }
    }

    /// A test is over: its sites and links are free.
    fn release(&mut self, task: TaskId, bytes: Option<u64>) -> Option<Running> {
        let running = self.running.remove(&task.0)?;
        let (from, to) = (running.from, running.to);
        let planned = &mut self.tests[running.test];
        planned.running -= 1;
        if planned.kind == TestKind::Bandwidth {
            let groups = self.links.free(from, to, planned.way);
            self.groups_freed.extend(groups);
            let bytes = bytes.unwrap_or(running.reserved);
            self.enter(from, to, self.now, running.reserved, bytes);
            for site in [from, to] {
                self.sites[site].busy = false;
                self.sites[site].is_late = false;
                self.rest(site, self.now - running.began);
            }
            if self.ledger.is_some() {
                self.sites_freed
                    .extend(super::members(self.idle.iter().copied()));
            }
        } else {
            self.sites[from].latency -= 1;
            self.sites[to].latency -= 1;
        }
        self.refresh(from);
        self.refresh(to);
        Some(running)
    }

    /// Enters what a test has carried.
    pub(super) fn enter(&mut self, from: usize, to: usize, at: Nanos, reserved: u64, bytes: u64) {
        for site in [from, to] {
            if let Some(ledger) = &mut self.sites[site].ledger {
                ledger.carried(at, reserved, bytes);
            }
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.carried(at, reserved, bytes);
        }
    }

    /// A site that was in a test for so long rests by its share of time; one that has no bytes left does
    /// until the next hour. What rests for longer than a test takes is not waited for.
    fn rest(&mut self, site: usize, used: Nanos) {
        let share = self.mesh.sites[site].share_of_time;
        if share < 1.0 {
            let rests = Nanos((used.0 as f64 * (1.0 / share - 1.0)) as u64);
            let until = self.now + rests;
            self.sites[site].rests_until = until;
            self.wakes.push(Reverse((until, site as u16)));
        }
        for test in 0..self.tests.len() {
            let planned = &self.tests[test];
            if planned.kind != TestKind::Bandwidth || !planned.tournament.has(site) {
                continue;
            }
            let has_room = self.has_room(test, site);
            if !has_room {
                let next_hour = Nanos((self.now.0 / HOUR.0 + 1) * HOUR.0);
                self.wakes.push(Reverse((next_hour, site as u16)));
            }
            if !has_room || self.sites[site].rests_until > self.now + planned.takes {
                self.tests[test].tournament.excuse(site);
            }
        }
    }

    /// A site whose tests fail one after another rests, so that it takes no more of the others' time.
    fn strike(&mut self, site: usize) {
        let state = &mut self.sites[site];
        state.strikes += 1;
        let Some(more) = state.strikes.checked_sub(STRIKES) else {
            return;
        };
        let rests = Nanos(ILL_FOR.0 << more.min(10)).min(ILL_AT_MOST);
        state.ill_until = self.now + rests;
        self.wakes.push(Reverse((state.ill_until, site as u16)));
        self.excuse(site);
        self.refresh(site);
    }
}

fn key(running: &Running) -> (usize, usize, usize) {
    let (a, b) = (running.from, running.to);
    (running.test, a.min(b), a.max(b))
}

//! The wait for answers, and what happens when they are missing.

use super::super::tracer::wait;
use super::{
    ATTEMPTS, ATTEMPTS_IN_SILENCE, CellState, FIRST_INTERVAL, LONGEST_INTERVAL, PathFinder,
};
use linerate_units::Nanos;

impl PathFinder {
    /// The TTLs with outstanding probes, and how long they are awaited.
    pub(super) fn waits(&self) -> impl Iterator<Item = (u8, Nanos)> {
        let most = self.config.trace.timeout;
        let largest = self.levels.iter().filter_map(|level| level.least_rtt).max();
        let mut beyond = None;
        (self.config.trace.first..=self.config.trace.hops).zip(&self.levels).rev().filter_map(
            move |(ttl, level)| {
                beyond = level.least_rtt.or(beyond);
                (!level.waiting.is_empty()).then(|| (ttl, wait(beyond, largest, most)))
            },
        )
    }

    /// Ends the wait for overdue probes at a TTL, and queues them again if that may help.
    pub(super) fn expire(&mut self, ttl: u8, wait: Nanos, now: Nanos) {
        let mut is_any = false;
        while let Some((sent, flow)) = self.level(ttl).waiting.front().copied() {
            if sent + wait > now {
                break;
            }
            is_any = true;
            self.level_mut(ttl).waiting.pop_front();
            let has_answered = self.level(ttl).least_rtt.is_some();
            let attempts = match (has_answered, flow) {
                (true, _) => ATTEMPTS,
                (false, 0) if !self.is_behind_all(ttl) => ATTEMPTS_IN_SILENCE,
                (false, _) => 1,
            };
            let Some(cell) = self.cells.get_mut(&(ttl, flow)) else {
                continue;
            };
            let is_last = cell.probes.len() >= usize::from(attempts);
            cell.state = match is_last {
                true => CellState::Failed,
                false => CellState::Queued,
            };
            if let Some(id) = cell.probes.last() {
                self.ledger.give_up(*id);
            }
            if !is_last {
                self.level_mut(ttl).queue.push_back(flow);
            }
        }
        if is_any {
            let level = self.level_mut(ttl);
            if level.least_rtt.is_some() {
                let doubled = level.interval + level.interval;
                level.interval = doubled.clamp(FIRST_INTERVAL, LONGEST_INTERVAL);
            }
            self.plan_around(ttl);
        }
    }

    /// Whether no TTL from there on has answered so far.
    fn is_behind_all(&self, ttl: u8) -> bool {
        let place = usize::from(ttl - self.config.trace.first);
        let mut levels = self.levels[place..].iter();
        levels.all(|level| level.least_rtt.is_none())
    }

    /// Ends the search with what is known.
    pub(super) fn abandon(&mut self) {
        self.is_bounded |= !self.is_done();
        for level in &mut self.levels {
            level.queue.clear();
            level.waiting.clear();
        }
        for cell in self.cells.values_mut() {
            if matches!(cell.state, CellState::Queued | CellState::Waiting) {
                cell.state = CellState::Failed;
            }
        }
    }
}

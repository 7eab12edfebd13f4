//! Requests and responses over some of the connections: which connection is next, and when.

use std::collections::VecDeque;

use linerate_core::units::SplitMix64;

/// A load in progress.
#[derive(Debug)]
pub(super) struct CapacityLoad {
    /// Connections that can take a request.
    idle: VecDeque<u32>,
    began: u64,
    until: u64,
    /// Time between two requests, ns; `None`: a request whenever a connection is idle.
    gap_ns: Option<f64>,
    sent: u64,
    under_way: u64,
    /// When a request was last due while no connection was idle.
    blocked: Option<u64>,
    /// Requests that were sent late, because no connection was idle.
    pub(super) late: u64,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Send a request on this connection; it was due at `due`.
    Send { slot: u32, due: u64 },
    /// Do nothing before this time, unless an answer arrives.
    Wait(u64),
    /// The load is over; this is how long it took, ns.
    Over(u64),
}

impl CapacityLoad {
    /// A load on `connections` of these slots, drawn at random.
    pub(super) fn new(
        mut slots: Vec<u32>,
        connections: u64,
        (began, seconds): (u64, f64),
        per_s: Option<f64>,
        random: &mut SplitMix64,
    ) -> Self {
        let count = usize::try_from(connections).unwrap_or(usize::MAX);
        draw(&mut slots, count, random);
        slots.truncate(count);
        Self {
            idle: slots.into(),
            began,
            until: began + (seconds * 1e9) as u64,
            gap_ns: per_s.map(|rate| 1e9 / rate),
            sent: 0,
            under_way: 0,
            blocked: None,
            late: 0,
        }
    }

    pub(super) fn members(&self) -> impl Iterator<Item = u32> + '_ {
        self.idle.iter().copied()
    }

    pub(super) fn next(&mut self, now: u64) -> Turn {
        if now >= self.until {
            return match self.under_way {
                0 => Turn::Over(now - self.began),
                _ => Turn::Wait(now + LOOK_AGAIN),
            };
        }
        let due = match self.gap_ns {
            Some(gap) => self.began + (gap * self.sent as f64) as u64,
            None => now,
        };
        if due > now {
            return Turn::Wait(due.min(self.until));
        }
        let Some(slot) = self.idle.pop_front() else {
            self.blocked = Some(now);
            return Turn::Wait(self.until);
        };
        let waited = self.blocked.is_some_and(|blocked| due <= blocked);
        self.late += u64::from(self.gap_ns.is_some() && waited);
        self.sent += 1;
        self.under_way += 1;
        Turn::Send { slot, due }
    }

    /// Handles the answer on a connection.
    pub(super) fn answered(&mut self, slot: u32) {
        self.under_way -= 1;
        self.idle.push_back(slot);
    }

    /// Handles the loss of a connection with a request in flight.
    pub(super) fn lost(&mut self) {
        self.under_way -= 1;
    }

    pub(super) fn stop(&mut self, now: u64) {
        self.until = self.until.min(now);
    }
}

/// Brings `count` of the entries, drawn without replacement, to the front.
fn draw<T>(entries: &mut [T], count: usize, random: &mut SplitMix64) {
    for at in 0..count.min(entries.len()) {
        let left = (entries.len() - at) as u64;
        entries.swap(at, at + random.below(left) as usize);
    }
}

/// Time between two looks for the last answers, ns; others are events.
const LOOK_AGAIN: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn load(per_s: Option<f64>) -> CapacityLoad {
        CapacityLoad::new((0..10).collect(), 2, (0, 1.0), per_s, &mut SplitMix64::new(1))
    }

    #[test]
    fn a_closed_loop_sends_after_each_answer() {
        let mut load = load(None);
        let Turn::Send { slot, .. } = load.next(5) else {
            panic!("two are idle");
        };
        assert!(matches!(load.next(5), Turn::Send { .. }));
        assert_eq!(load.next(5), Turn::Wait(SECOND));
        load.answered(slot);
        assert_eq!(load.next(6), Turn::Send { slot, due: 6 });
        load.lost();
        load.answered(slot);
        assert_eq!(load.next(SECOND), Turn::Over(SECOND));
        assert_eq!(load.late, 0);
    }

    #[test]
    fn an_open_loop_keeps_its_schedule_and_counts_late_requests() {
        let mut load = load(Some(10.0));
        let tenth = SECOND / 10;
        assert!(matches!(load.next(0), Turn::Send { due: 0, .. }));
        assert_eq!(load.next(0), Turn::Wait(tenth));
        let Turn::Send { slot, due } = load.next(tenth + 3) else {
            panic!("one is due");
        };
        assert_eq!(due, tenth);
        assert!(matches!(load.next(3 * tenth), Turn::Wait(_)), "none is idle");
        load.answered(slot);
        assert_eq!(load.next(3 * tenth + 1), Turn::Send { slot, due: 2 * tenth });
        assert_eq!(load.late, 1);
    }

    #[test]
    fn a_seed_always_draws_the_same_entries_and_none_twice() {
        let drawn = |seed| {
            let mut entries: Vec<u32> = (0..100).collect();
            draw(&mut entries, 30, &mut SplitMix64::new(seed));
            entries.truncate(30);
            entries
        };
        let mut first = drawn(7);
        assert_eq!(first, drawn(7));
        assert_ne!(first, drawn(8));
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), 30);
    }
}

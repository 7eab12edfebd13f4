//! The times at which an open loop sends its requests, independent of the answers.

use crate::units::SplitMix64;

/// The intended times of one flow's requests, evenly spaced. The flows of a test share its rate in
/// turn: their requests together are evenly spaced too, in an order and a phase that the seed
/// chooses, so that neither the flows nor repeated runs start in step.
#[derive(Debug, Clone)]
pub struct OpenLoop {
    start_ns: u64,
    gap_ns: f64,
    flows: u64,
    place: f64,
    next: u64,
}

impl OpenLoop {
    /// The schedule of flow `flow` of `flows`, which together send `rate_per_s` requests from
    /// `start_ns` on.
    pub fn new(rate_per_s: f64, flow: u32, flows: u32, seed: u64, start_ns: u64) -> Self {
        let flows = u64::from(flows.max(1));
        let random = SplitMix64::new(seed).draw();
        let turn = (u64::from(flow) + random % flows) % flows;
        // 53 bits are what a double holds: a phase from 0 to below 1.
        let phase = (random >> 11) as f64 / (1u64 << 53) as f64;
        Self { start_ns, gap_ns: 1e9 / rate_per_s, flows, place: turn as f64 + phase, next: 0 }
    }

    /// When the next request is due, ns.
    #[inline]
    pub fn due_ns(&self) -> u64 {
        self.due_of(self.next)
    }

    /// The next request was sent.
    #[inline]
    pub fn advance(&mut self) {
        self.next += 1;
    }

    /// How many requests that are not sent yet were due from `from_ns` to before `to_ns`.
    pub fn overdue(&self, from_ns: u64, to_ns: u64) -> u64 {
        let first = self.first_at(from_ns).max(self.next);
        self.first_at(to_ns).saturating_sub(first)
    }

    /// Computed from the number and not from the request before, so that rounding never
    /// accumulates: a day of nanoseconds is exact in a double.
    fn due_of(&self, number: u64) -> u64 {
        let gaps = (number * self.flows) as f64 + self.place;
        self.start_ns.saturating_add((gaps * self.gap_ns) as u64)
    }

    /// Number of the first request that is due at or after `at_ns`.
    fn first_at(&self, at_ns: u64) -> u64 {
        let gaps = at_ns.saturating_sub(self.start_ns) as f64 / self.gap_ns;
        let mut number = ((gaps - self.place) / self.flows as f64).max(0.0) as u64;
        while number > 0 && self.due_of(number - 1) >= at_ns {
            number -= 1;
        }
        while self.due_of(number) < at_ns {
            number += 1;
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The first `count` due times.
    fn dues(mut schedule: OpenLoop, count: usize) -> Vec<u64> {
        (0..count)
            .map(|_| {
                let due = schedule.due_ns();
                schedule.advance();
                due
            })
            .collect()
    }

    proptest! {
        #[test]
        fn the_flows_together_are_evenly_spaced(
            rate in 1u32..1_000_000, flows in 1u32..20, seed: u64, start in 0u64..1 << 50,
        ) {
            let each = |flow| dues(OpenLoop::new(rate.into(), flow, flows, seed, start), 30);
            let mut all: Vec<u64> = (0..flows).flat_map(each).collect();
            all.sort_unstable();
            let gap = 1e9 / f64::from(rate);
            prop_assert!(all[0] >= start && (all[0] - start) as f64 <= gap);
            for (k, due) in all.iter().enumerate() {
                prop_assert!(((due - all[0]) as f64 - k as f64 * gap).abs() <= 1.0 + 1e-3);
            }
        }

        #[test]
        fn a_day_of_requests_keeps_the_rate(rate in 1u64..1_000_000, seed: u64) {
            let schedule = OpenLoop::new(rate as f64, 0, 1, seed, 0);
            let passed = schedule.due_of(86_400 * rate) - schedule.due_of(0);
            prop_assert!(passed.abs_diff(86_400_000_000_000) <= 1);
        }

        #[test]
        fn overdue_counts_what_a_walk_over_the_schedule_counts(
            rate in 1_000u32..10_000_000, flow in 0u32..4, seed: u64, sent in 0usize..50,
            from in 0u64..100_000, length in 0u64..100_000,
        ) {
            let mut schedule = OpenLoop::new(rate.into(), flow, 4, seed, 1_000);
            let (from, to) = (1_000 + from, 1_000 + from + length);
            let walked = dues(schedule.clone(), 2_000)
                .into_iter()
                .skip(sent)
                .filter(|due| (from..to).contains(due))
                .count();
            (0..sent).for_each(|_| schedule.advance());
            prop_assert_eq!(schedule.overdue(from, to), walked as u64);
        }
    }

    #[test]
    fn the_seed_decides() {
        let with = |seed| dues(OpenLoop::new(1000.0, 0, 1, seed, 0), 5);
        assert_eq!(with(7), with(7));
        assert_ne!(with(7), with(6));
    }
}

//! How long a check has yet to go.

use std::time::Duration;

use linerate_core::plan::Direction;

use super::super::route;
use super::super::runs::Runs;
use super::super::transfer::{CLEAN_WARM_UP, QUICK_RUN, RUN, WARM_UP};
use super::{Examination, IDLE_WARM_UP};
use crate::responsiveness;

/// Intervals that the measurement takes on most paths.
const USUAL_INTERVALS: u32 = 6;

/// Round trips that a test takes besides its own time: asking for it, connecting, the reports.
const BESIDE_ROUND_TRIPS: u32 = 6;
/// What the hosts take for that.
const BESIDE: Duration = Duration::from_millis(60);
/// So many times longer it takes at most on a busy host.
const BUSY_TIMES: f64 = 1.5;
/// Round trips of the trains, both directions at once: a session, and four short tests.
const TRAINS_ROUND_TRIPS: u32 = 24;

impl Examination<'_> {
    /// Time that each test takes besides its own.
    fn beside(&self) -> Duration {
        match self.beside {
            (_, 0) => self.rtt * BESIDE_ROUND_TRIPS + BESIDE,
            (all, tests) => all / tests,
        }
    }

    pub(super) fn takes_to_look_around(&self) -> Duration {
        match self.client.tool() {
            None if self.options.quick => self.rtt * TRAINS_ROUND_TRIPS + self.beside(),
            None => IDLE_WARM_UP + self.idle_time() + self.rtt * TRAINS_ROUND_TRIPS + self.beside(),
            Some(_) => Duration::ZERO,
        }
    }

    /// Both ways: on most paths, and where the round trips settle late.
    pub(super) fn responsiveness_takes(&self) -> [Duration; 2] {
        let request = self.responsiveness_request(Direction::Up);
        [USUAL_INTERVALS, request.most_intervals].map(|intervals| {
            (responsiveness::IDLE + request.interval * intervals + self.beside() * 2) * 2
        })
    }

    /// After what is done, and with something before the next run.
    pub(super) fn say_time_left(&mut self, done: [&Runs; 2], before: Duration) {
        let mut left = before;
        for runs in done {
            let (warm_up, time) = self.times(runs);
            let to_come = self.runs() - runs.records.len();
            left += (warm_up + time + self.beside()) * to_come as u32;
        }
        if self.has_silent_hops() {
            left += route::AGAIN;
        }
        let mut takes = [left, left.mul_f64(BUSY_TIMES)];
        if self.client.tool().is_none() && !self.options.quick {
            let more = self.responsiveness_takes();
            takes = [takes[0] + more[0], takes[1] + more[1]];
        }
        self.observer.takes(takes);
    }

    /// Warm-up and length of a bulk transfer after the runs `before`.
    pub(super) fn times(&self, before: &Runs) -> (Duration, Duration) {
        let warm_up = if before.are_clean() { CLEAN_WARM_UP } else { WARM_UP };
        let run = if self.options.quick { QUICK_RUN } else { RUN };
        let time = self.options.bulk.time.unwrap_or(run.on(self.rtt));
        (warm_up.on(self.rtt), time)
    }
}

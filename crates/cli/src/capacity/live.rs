//! The progress of a run: a line for each phase, and on a terminal how many connections are open.

use std::time::Duration;

use linerate_core::capacity::CapacityTest;
use linerate_engine::{CapacityLive, CapacityPhase};

use crate::progress::Progress;

/// Shows the progress of a run.
pub(super) struct Live {
    progress: Progress,
    phase: Option<(CapacityPhase, u64)>,
    shown_s: f64,
    /// Time that the run takes after all are open; `None` if that is not known.
    rest: Option<Duration>,
    /// Seconds since the run began; those of opening and of measuring a latency; and how many
    /// latencies were measured.
    at_s: f64,
    opening_s: f64,
    measuring_s: f64,
    measured: u32,
}

impl Live {
    pub(super) fn new(progress: Progress, test: &CapacityTest) -> Self {
        let load = test.load.as_ref().map_or(Duration::ZERO, |load| load.time.0);
        let planned = !test.find_limit;
        Self {
            progress,
            phase: None,
            shown_s: 0.0,
            rest: planned.then_some(test.hold.0 + load + CLOSING),
            at_s: 0.0,
            opening_s: 0.0,
            measuring_s: 0.0,
            measured: 0,
        }
    }

    fn count(&mut self, now: &CapacityLive) {
        let passed = now.at_s - self.at_s;
        self.at_s = now.at_s;
        let before = self.phase.map(|(phase, _)| phase);
        match before {
            Some(CapacityPhase::Opening | CapacityPhase::OpeningUdp) => self.opening_s += passed,
            Some(CapacityPhase::Measuring) => self.measuring_s += passed,
            _ => {}
        }
        let is_new = before != Some(now.phase);
        self.measured += u32::from(is_new && now.phase == CapacityPhase::Measuring);
    }

    /// Seconds until all are open, once the rate of opening is known.
    fn until_held_s(&self, now: &CapacityLive) -> Option<f64> {
        let is_new = self.phase != Some((now.phase, now.asked));
        match now.phase {
            CapacityPhase::Opening | CapacityPhase::OpeningUdp if now.open >= now.asked / 10 => {
                let each_s = self.opening_s / now.open.max(1) as f64;
                let to_measure = f64::from(MEASURED.saturating_sub(self.measured));
                let measuring_s = self.measuring_s / f64::from(self.measured.max(1));
                let to_open = now.asked.saturating_sub(now.open) as f64;
                Some(each_s * to_open + measuring_s * to_measure)
            }
            CapacityPhase::Holding if is_new => Some(0.0),
            _ => None,
        }
    }

    /// Shows the state of the run, which always goes on.
    pub(super) fn show(&mut self, now: &CapacityLive) -> bool {
        self.count(now);
        if let Some((rest, until_held_s)) = self.rest.zip(self.until_held_s(now)) {
            let left = rest + Duration::from_secs_f64(until_held_s);
            self.progress.takes([left, left.mul_f64(BUSY_TIMES)]);
        }
        let phase = Some((now.phase, now.asked));
        if self.phase != phase {
            self.phase = phase;
            self.shown_s = now.at_s;
            self.progress.phase(&words(now));
        } else if (now.at_s - self.shown_s).abs() >= EVERY_S {
            self.shown_s = now.at_s;
            self.progress.live(&words(now));
        }
        true
    }
}

/// Latencies of a run: with none of the connections open, a tenth, half and all of them.
const MEASURED: u32 = 4;
/// Time for the last heartbeats, closing and the reports.
const CLOSING: Duration = Duration::from_secs(1);
/// How many times longer a run may take on a busy host.
const BUSY_TIMES: f64 = 1.5;
/// Shortest time between two changes of the line, in seconds.
const EVERY_S: f64 = 0.1;

fn words(now: &CapacityLive) -> String {
    let doing = match now.phase {
        CapacityPhase::Preparing => "starting the workers",
        CapacityPhase::Opening => "opening TCP connections",
        CapacityPhase::OpeningUdp => "opening UDP sockets",
        CapacityPhase::Measuring => "measuring an active connection",
        CapacityPhase::Holding => "holding",
        CapacityPhase::Loading => "requests over a part of them",
        CapacityPhase::Proving => "the last heartbeat of each",
        CapacityPhase::Closing => "closing",
    };
    let lost = match now.lost {
        0 => String::new(),
        lost => format!(", {lost} LOST"),
    };
    format!("{doing}: {} of {} open{lost}", now.open, now.asked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, command};

    #[test]
    fn what_measuring_takes_is_not_taken_for_the_rate_of_opening() {
        let Ok(Command::Capacity(args)) = command("capacity pit") else {
            panic!("capacity was asked for");
        };
        let test = crate::capacity::test::test(&args).unwrap();
        let progress = Progress::new(crate::output::Format::Text, true);
        let mut live = Live::new(progress, &test);
        let mut see = |at_s, phase, open| {
            let now = CapacityLive { at_s, phase, asked: 1000, open, lost: 0 };
            live.count(&now);
            let left = live.until_held_s(&now);
            live.phase = Some((phase, 1000));
            left
        };
        assert_eq!(see(0.0, CapacityPhase::Measuring, 0), None);
        assert_eq!(see(2.0, CapacityPhase::Opening, 0), None);
        // 100 in a second, and three more times of two seconds.
        let left = see(3.0, CapacityPhase::Opening, 100);
        assert_eq!(left, Some(9.0 + 6.0));
        see(3.0, CapacityPhase::Measuring, 100);
        assert_eq!(see(5.0, CapacityPhase::Opening, 100), Some(9.0 + 4.0));
        assert_eq!(see(14.0, CapacityPhase::Holding, 1000), Some(0.0));
    }

    #[test]
    fn losses_are_shown_as_soon_as_there_are_any() {
        let mut now = CapacityLive {
            at_s: 1.0,
            phase: CapacityPhase::Holding,
            asked: 500,
            open: 500,
            lost: 0,
        };
        assert_eq!(words(&now), "holding: 500 of 500 open");
        (now.open, now.lost) = (499, 1);
        assert_eq!(words(&now), "holding: 499 of 500 open, 1 LOST");
    }
}

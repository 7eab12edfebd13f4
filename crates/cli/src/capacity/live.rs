//! How a run goes: a line for each phase, and on a terminal how many are open by now.

use std::time::Duration;

use linerate_core::capacity::CapacityTest;
use linerate_engine::{CapacityLive, CapacityPhase};

use crate::progress::Progress;

/// Shows the course of a run.
pub(super) struct Live {
    progress: Progress,
    phase: Option<(CapacityPhase, u64)>,
    shown_s: f64,
    /// What comes after they are open, where that is planned.
    rest: Option<Duration>,
    /// When the first was to be opened, s.
    opening_s: Option<f64>,
}

impl Live {
    pub(super) fn new(progress: Progress, test: &CapacityTest) -> Self {
        let load = test
            .load
            .as_ref()
            .map_or(Duration::ZERO, |load| load.time.0);
        let planned = !test.find_limit;
        Self {
            progress,
            phase: None,
            shown_s: 0.0,
            rest: planned.then_some(test.hold.0 + load + CLOSING),
            opening_s: None,
        }
    }

    /// As soon as the rate of opening is known, and as they are all open.
    fn say_time(&mut self, now: &CapacityLive) {
        let Some(rest) = self.rest else { return };
        let is_new = self.phase != Some((now.phase, now.asked));
        let began_s = *self.opening_s.get_or_insert(now.at_s);
        let opening = match now.phase {
            CapacityPhase::Opening | CapacityPhase::OpeningUdp if now.open >= now.asked / 10 => {
                let each_s = (now.at_s - began_s) / now.open.max(1) as f64;
                each_s * now.asked.saturating_sub(now.open) as f64
            }
            CapacityPhase::Holding if is_new => 0.0,
            _ => return,
        };
        let left = rest + Duration::from_secs_f64(opening.max(0.0));
        self.progress.takes([left; 2]);
    }

    /// Something new of the run, which always goes on.
    pub(super) fn show(&mut self, now: &CapacityLive) -> bool {
        if now.phase != CapacityPhase::Preparing {
            self.say_time(now);
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

/// What the last heartbeats, closing and the reports take.
const CLOSING: Duration = Duration::from_secs(1);
/// Between two changes of a line, s: the engine tells of them far more often.
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

    #[test]
    fn losses_are_said_as_soon_as_there_are_any() {
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

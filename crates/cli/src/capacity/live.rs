//! How a run goes: a line for each phase, and on a terminal how many are open by now.

use linerate_engine::{CapacityLive, CapacityPhase};

use crate::progress::Progress;

/// Shows the course of a run.
pub(super) struct Live {
    progress: Progress,
    phase: Option<(CapacityPhase, u64)>,
    shown_s: f64,
}

impl Live {
    pub(super) fn new(progress: Progress) -> Self {
        Self {
            progress,
            phase: None,
            shown_s: 0.0,
        }
    }

    /// Something new of the run, which always goes on.
    pub(super) fn show(&mut self, now: &CapacityLive) -> bool {
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

//! What the user sees while a command runs: a live line on a terminal, plain lines else.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_core::record::Interval;
use linerate_core::units::printable;
use linerate_engine::Observer;
use linerate_report::json;
use linerate_report::text::{self, Style};

use crate::failure::Failure;
use crate::output::{self, Format};
use crate::turn::Turn;

/// The progress of a run. A live line is erased when it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    view: View,
    /// What is going on, before the interval's figures.
    phase: String,
    /// Measured time of each run, seconds, where a time ends it.
    planned_s: Option<f64>,
    began: Instant,
    /// How long the command takes, seconds at least and at most, as far as that is known.
    takes_s: Option<[f64; 2]>,
    /// Where others look on.
    turn: Option<Arc<Turn>>,
    /// What comes of the run has its reader, whether somebody looks on or not.
    is_kept: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum View {
    Quiet,
    /// One line on stderr, written again and again.
    Live,
    /// A line on stderr for each interval.
    Plain,
    /// A JSON line on stdout for each interval.
    JsonStream,
}

impl Progress {
    /// The view that the format, `--quiet` and stderr call for.
    pub(crate) fn new(format: Format, quiet: bool) -> Self {
        let has_cursor = std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        let view = match format {
            Format::JsonStream => View::JsonStream,
            _ if quiet => View::Quiet,
            _ if io::stderr().is_terminal() && has_cursor => View::Live,
            _ => View::Plain,
        };
        Self {
            view,
            phase: String::new(),
            planned_s: None,
            began: Instant::now(),
            takes_s: None,
            turn: None,
            is_kept: false,
        }
    }

    /// For others to look on, and nothing here.
    pub(crate) fn of_turn(turn: Option<Arc<Turn>>) -> Self {
        let mut quiet = Self::new(Format::Text, true);
        quiet.turn = turn;
        quiet
    }

    /// What is left of the command takes so long, at least and at most. The first time it is said
    /// in a line of its own, and from then on beside each step.
    pub(crate) fn takes(&mut self, left: [Duration; 2]) {
        let elapsed_s = self.began.elapsed().as_secs_f64();
        let takes_s = left.map(|left| elapsed_s + left.as_secs_f64());
        if self.takes_s.replace(takes_s).is_none() {
            self.line(&format!("takes {}", text::takes(takes_s)));
        }
    }

    /// The step, with the time of the command.
    fn step(&self) -> String {
        let elapsed_s = self.began.elapsed().as_secs_f64();
        text::step(&self.phase, elapsed_s, self.takes_s)
    }

    /// What comes of the run is kept, also if nobody reads its intervals.
    pub(crate) fn keeps(mut self, is_kept: bool) -> Self {
        self.is_kept = is_kept;
        self
    }

    /// Each run is to take so many seconds.
    pub(crate) fn lasts(&mut self, seconds: Option<f64>) {
        self.planned_s = seconds;
    }

    /// Something new begins, such as the second repeat of a size.
    pub(crate) fn phase(&mut self, text: &str) {
        self.phase = printable(text);
        if let Some(turn) = &self.turn {
            turn.say(&self.step());
        }
        match self.view {
            View::Live => show(&live_line(&self.step())),
            View::Plain => show(&format!("{}\n", self.step())),
            View::Quiet | View::JsonStream => {}
        }
    }

    /// An interval of the run has ended.
    ///
    /// # Errors
    /// `--json-stream`: stdout cannot be written, or nobody reads it: the run has no purpose any
    /// more.
    fn show_interval(&mut self, interval: &Interval) -> Result<(), Failure> {
        if let Some(turn) = &self.turn {
            let figures = text::interval_line(interval, Style::default());
            turn.say(&format!("{} {}", self.step(), figures.trim_start()));
        }
        match self.view {
            View::Quiet => {}
            View::JsonStream => output::print(&json::line(interval))?,
            View::Plain => show(&format!("{}\n", text::interval_line(interval, style()))),
            View::Live => {
                let progress = text::Progress {
                    step: &self.step(),
                    elapsed_s: interval.start_s + interval.seconds,
                    planned_s: self.planned_s,
                    interval: Some(interval),
                };
                show(&live_line(&text::progress(&progress, style())));
            }
        }
        Ok(())
    }

    /// Something short, of which a terminal alone is told.
    pub(crate) fn live(&mut self, text: &str) {
        if self.view == View::Live {
            self.phase(text);
        }
    }

    /// Something that stays on the screen, such as a pair that has ended.
    pub(crate) fn line(&mut self, text: &str) {
        if matches!(self.view, View::Live | View::Plain) {
            self.erase();
            show(&format!("{}\n", printable(text)));
        }
    }

    /// So many of all steps are done, and that share of the time that they were to take: the others
    /// are as much slower or faster than planned.
    pub(crate) fn done(&mut self, text: &str, [done, all]: [usize; 2], share: f64) {
        let elapsed_s = self.began.elapsed().as_secs_f64();
        if done >= FEW {
            let left = elapsed_s / share * (1.0 - share).max(0.0);
            self.takes([Duration::from_secs_f64(left); 2]);
        }
        let text = format!("{done} of {all}: {text}");
        self.line(&text::step(&text, elapsed_s, self.takes_s));
    }

    /// Something that the user should mend; shown with `--quiet`, too.
    pub(crate) fn warn(&mut self, text: &str) {
        self.erase();
        show(&format!("linerate: warning: {}\n", printable(text)));
    }

    fn erase(&self) {
        if self.view == View::Live {
            show(ERASE);
        }
    }
}

/// The engine's looker-on: shows intervals, and ends the run when nobody reads them any more,
/// unless its document is kept in a file.
impl Observer for Progress {
    fn phase(&mut self, text: &str) {
        Progress::phase(self, text);
    }

    fn interval(&mut self, interval: &Interval) -> bool {
        // Why it could not be shown is said when the document cannot be printed either.
        self.show_interval(interval).is_ok() || self.is_kept
    }

    fn takes(&mut self, left: [Duration; 2]) {
        Progress::takes(self, left);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.erase();
    }
}

/// Fewer steps tell nothing of the others.
const FEW: usize = 5;

/// Back to the first column, and clear to the end of the line (ECMA-48: CR, EL).
const ERASE: &str = "\r\x1b[K";

/// A line in the place of the one before. It is cut at the right edge and never wrapped (DECAWM off
/// and on again), since a wrapped line could not be erased.
fn live_line(text: &str) -> String {
    format!("{ERASE}\x1b[?7l{text}\x1b[?7h")
}

/// Stderr's own width.
fn style() -> Style {
    let width = terminal_size::terminal_size_of(io::stderr());
    Style {
        width: width.map_or(Style::default().width, |(width, _)| usize::from(width.0)),
        ..Style::default()
    }
}

/// Progress that cannot be shown is no reason to stop a run.
fn show(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_line_replaces_the_last_one_and_leaves_wrapping_on() {
        assert_eq!(live_line("3 s"), "\r\x1b[K\x1b[?7l3 s\x1b[?7h");
    }

    #[test]
    fn json_lines_win_over_quiet() {
        assert_eq!(
            Progress::new(Format::JsonStream, true).view,
            View::JsonStream
        );
        assert_eq!(Progress::new(Format::Text, true).view, View::Quiet);
    }
}

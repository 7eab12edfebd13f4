//! Progress of a command on stderr: a live line on a terminal, plain lines otherwise.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use linerate_core::plan::Workload;
use linerate_core::record::Interval;
use linerate_engine::Observer;
use linerate_report::json;
use linerate_report::text::{self, Style};

use crate::failure::{Failure, shown};
use crate::output::{self, Format};
use crate::turn::Turn;

/// The progress of a run. A live line is erased when it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    view: ProgressView,
    /// The current step, printed before the figures of an interval.
    phase: String,
    /// Measured time of each run in seconds, if a time ends it.
    planned_s: Option<f64>,
    workload: Workload,
    began: Instant,
    /// Shortest and longest expected time of the command in seconds, if known.
    takes_s: Option<[f64; 2]>,
    /// Shows the progress to other processes.
    turn: Option<Arc<Turn>>,
    /// The run goes on even if nobody reads its intervals.
    is_kept: bool,
    waiting: Option<DelayedLine>,
}

/// A line that is shown unless this is dropped within [`SILENCE`].
#[derive(Debug)]
struct DelayedLine {
    /// Dropped to end the thread.
    is_over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl DelayedLine {
    fn new(line: String) -> Self {
        let (is_over, ends) = channel();
        let thread = thread::spawn(move || {
            if ends.recv_timeout(SILENCE) == Err(RecvTimeoutError::Timeout) {
                show(&line);
            }
        });
        Self { is_over: Some(is_over), thread: Some(thread) }
    }
}

impl Drop for DelayedLine {
    fn drop(&mut self) {
        drop(self.is_over.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Longest time without a sign of life.
const SILENCE: Duration = Duration::from_millis(700);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProgressView {
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
            Format::JsonStream => ProgressView::JsonStream,
            _ if quiet => ProgressView::Quiet,
            _ if io::stderr().is_terminal() && has_cursor => ProgressView::Live,
            _ => ProgressView::Plain,
        };
        Self {
            view,
            phase: String::new(),
            planned_s: None,
            workload: Workload::Stream,
            began: Instant::now(),
            takes_s: None,
            turn: None,
            is_kept: false,
            waiting: None,
        }
    }

    /// Shows the progress to other processes only.
    pub(crate) fn of_turn(turn: Option<Arc<Turn>>) -> Self {
        let mut quiet = Self::new(Format::Text, true);
        quiet.turn = turn;
        quiet
    }

    /// Sets the shortest and longest time that is left. The first time a line of its own says so,
    /// later it stands beside each step.
    pub(crate) fn takes(&mut self, left: [Duration; 2]) {
        let elapsed_s = self.began.elapsed().as_secs_f64();
        let takes_s = left.map(|left| elapsed_s + left.as_secs_f64());
        if self.takes_s.replace(takes_s).is_none() {
            self.line(&format!("takes {}", text::takes(takes_s)));
        }
    }

    /// The step with elapsed and expected time.
    fn step(&self) -> String {
        let elapsed_s = self.began.elapsed().as_secs_f64();
        text::step(&self.phase, elapsed_s, self.takes_s)
    }

    /// Whether the run goes on even if nobody reads its intervals.
    pub(crate) fn keeps(mut self, is_kept: bool) -> Self {
        self.is_kept = is_kept;
        self
    }

    /// Sets the measured time of each run.
    pub(crate) fn lasts(&mut self, seconds: Option<f64>) {
        self.planned_s = seconds;
    }

    /// Begins what is usually over at once, such as connecting: it is shown if it takes longer.
    pub(crate) fn waits(&mut self, text: &str) {
        let text = shown(text);
        self.waiting = match self.view {
            ProgressView::Live => Some(DelayedLine::new(live_line(&text))),
            ProgressView::Plain => Some(DelayedLine::new(format!("{text}\n"))),
            ProgressView::Quiet | ProgressView::JsonStream => None,
        };
    }

    /// Sets what the runs count.
    pub(crate) fn counts(mut self, workload: Option<Workload>) -> Self {
        self.workload = workload.unwrap_or(self.workload);
        self
    }

    /// Begins a step, such as the second repeat of a size.
    pub(crate) fn phase(&mut self, text: &str) {
        self.waiting = None;
        self.phase = shown(text);
        if let Some(turn) = &self.turn {
            turn.say(&self.step());
        }
        match self.view {
            ProgressView::Live => show(&live_line(&self.step())),
            ProgressView::Plain => show(&format!("{}\n", self.step())),
            ProgressView::Quiet | ProgressView::JsonStream => {}
        }
    }

    /// Shows an interval that has ended.
    ///
    /// # Errors
    /// `--json-stream`: stdout cannot be written, or nobody reads it any more.
    fn show_interval(&mut self, interval: &Interval) -> Result<(), Failure> {
        self.waiting = None;
        if let Some(turn) = &self.turn {
            let figures = text::interval_line(interval, self.workload, Style::default());
            turn.say(&format!("{} {}", self.step(), figures.trim_start()));
        }
        match self.view {
            ProgressView::Quiet => {}
            ProgressView::JsonStream => output::print(&json::line(interval))?,
            ProgressView::Plain => {
                let line = text::interval_line(interval, self.workload, style());
                show(&format!("{line}\n"));
            }
            ProgressView::Live => {
                let progress = text::Progress {
                    step: &self.step(),
                    elapsed_s: interval.start_s + interval.seconds,
                    planned_s: self.planned_s,
                    interval: Some(interval),
                    workload: self.workload,
                };
                show(&live_line(&text::progress(&progress, style())));
            }
        }
        Ok(())
    }

    /// Changes the live line of a terminal; prints nothing elsewhere.
    pub(crate) fn live(&mut self, text: &str) {
        if self.view == ProgressView::Live {
            self.phase(text);
        }
    }

    /// Prints a line that stays on the screen, such as the result of a pair.
    pub(crate) fn line(&mut self, text: &str) {
        if matches!(self.view, ProgressView::Live | ProgressView::Plain) {
            self.erase();
            show(&format!("{}\n", shown(text)));
        }
    }

    /// Prints a warning that the user should act on, also with `--quiet`.
    pub(crate) fn warn(&mut self, text: &str) {
        self.erase();
        show(&format!("linerate: warning: {}\n", shown(text)));
    }

    fn erase(&mut self) {
        self.waiting = None;
        if self.view == ProgressView::Live {
            show(ERASE);
        }
    }
}

/// Shows intervals to the user, and ends the run when nobody reads them any more, unless its
/// document is kept in a file.
impl Observer for Progress {
    fn phase(&mut self, text: &str) {
        Progress::phase(self, text);
    }

    fn interval(&mut self, interval: &Interval) -> bool {
        // The error is printed later, when the document cannot be printed either.
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
        assert_eq!(Progress::new(Format::JsonStream, true).view, ProgressView::JsonStream);
        assert_eq!(Progress::new(Format::Text, true).view, ProgressView::Quiet);
    }
}

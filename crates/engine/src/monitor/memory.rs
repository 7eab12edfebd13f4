//! What the history knows of a monitor: the runs of its tasks, and the schedule after them.

use linerate_core::monitor::{Monitor, MonitoredPath, MonitoredTest, Outcome, Schedule, Task};
use linerate_core::units::format_rfc3339_seconds;
use linerate_history::{Filter, History, HistoryError, Point, Since};

/// Name of the figure of the bytes that a run carried.
pub const CARRIED: &str = "carried_bytes";

/// The test and the path of a task.
pub fn parts(monitor: &Monitor, task: Task) -> (&MonitoredTest, &MonitoredPath) {
    (&monitor.tests[task.test], &monitor.paths[task.path])
}

/// The labels with which runs of a task are saved.
pub fn labels(monitor: &Monitor, task: Task) -> Vec<(String, String)> {
    let (test, path) = parts(monitor, task);
    let own = [("test", &test.name), ("path", &path.name)]
        .map(|(key, value)| (key.to_owned(), value.clone()));
    own.into_iter().chain(path.labels.iter().cloned()).collect()
}

/// The filter that finds runs of a task.
pub(super) fn runs_of(monitor: &Monitor, task: Task) -> Filter {
    Filter { labels: labels(monitor, task).into_iter().take(2).collect(), ..Filter::default() }
}

/// Runs of a task up to `now`, without those of the future.
pub(super) fn runs_until(now: u64, monitor: &Monitor, task: Task) -> Filter {
    Filter { before: Some(until(now)), ..runs_of(monitor, task) }
}

/// The points of the metric that the newest run has.
pub fn of_one_metric(mut points: Vec<Point>) -> Vec<Point> {
    if let Some(metric) = points.last().map(|point| point.metric.clone()) {
        points.retain(|point| point.metric == metric && point.value.is_finite());
    }
    points
}

/// The end of the runs that began by `now`, in seconds since 1970: those of the future were saved by
/// a wrong clock, and would hide the others.
pub fn until(now: u64) -> Since {
    Since::Moment(format_rfc3339_seconds(now + 1))
}

/// The schedule after the runs that the history knows, but those of the future.
///
/// # Errors
/// It cannot be read.
pub fn remembered(
    monitor: &Monitor,
    history: &History,
    now: u64,
) -> Result<Schedule, HistoryError> {
    let mut schedule = Schedule::new(monitor);
    let tasks: Vec<Task> = schedule.tasks().collect();
    for (number, task) in tasks.into_iter().enumerate() {
        let own = runs_until(now, monitor, task);
        let last = Filter { most: Some(1), ..own.clone() };
        let of_day = Filter { since: Some(until(now.saturating_sub(86_400))), ..own };
        let mut runs = history.series(&of_day, Some(CARRIED))?;
        if runs.is_empty() {
            runs = history.series(&last, Some(CARRIED))?;
        }
        for run in runs {
            schedule.remember(number, run.at_s, run.value as u64);
        }
    }
    Ok(schedule)
}

/// The state of a task: its last saved run, and how its runs have ended since the monitor began.
#[derive(Debug, Default)]
pub struct Health {
    /// Figures of the last run, by name.
    pub figures: Vec<(String, f64)>,
    /// Bottleneck of the last run.
    pub cause: Option<String>,
    /// When the last run began, seconds since 1970; 0 without one.
    pub at_s: u64,
    /// Runs that were saved.
    pub saved: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Attempts for which there was no room.
    pub busy: u64,
    /// Changes that were noticed.
    pub changes: u64,
}

impl Health {
    /// Takes the last run from the history; the counters stay.
    pub(super) fn update(&mut self, history: &History, runs: &Filter) -> Result<(), HistoryError> {
        let last = Filter { most: Some(1), ..runs.clone() };
        if let Some(run) = history.list(&last)?.pop() {
            self.figures = history.figures(run.id)?;
            self.cause = run.cause;
            self.at_s = run.at_s;
        }
        Ok(())
    }

    /// Counts how an attempt ended.
    pub(super) fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Done(_) => self.saved += 1,
            Outcome::Failed(_) => self.failed += 1,
            Outcome::Busy => self.busy += 1,
        }
    }
}

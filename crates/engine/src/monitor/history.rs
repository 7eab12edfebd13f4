//! What a monitor's history knows of its tasks, and the deletion of old runs.

use std::time::Duration;

use linerate_core::monitor::keys::DAY_S;
use linerate_core::monitor::{Monitor, MonitoredPath, MonitoredTest, Outcome, Schedule, Task};
use linerate_core::units::format_rfc3339_seconds;
use linerate_history::{Filter, History, HistoryError, Point, Since};
use linerate_sys::clock::since_boot;

use crate::clock::since_1970_s;
use crate::words::Say;

// The runs of a monitor's tasks, and the schedule after them.

/// Name of the figure of the bytes that a run carried.
pub const CARRIED: &str = "carried_bytes";

/// Label of a run that was made to prove what limits a path: the reason is its value, which in a
/// monitor is `change`.
pub const PROOF: &str = "proof";
const CHANGE: &str = "change";

/// The runs that pass and say what they carried, the oldest first, and whether each is a proof.
pub(super) fn carried(
    history: &History,
    runs: &Filter,
) -> Result<Vec<(Point, bool)>, HistoryError> {
    let all = history.series(runs, Some(CARRIED))?.into_iter();
    let mut proofs = runs.clone();
    proofs.labels.push((PROOF.to_owned(), CHANGE.to_owned()));
    let proofs = history.series(&proofs, Some(CARRIED))?;
    let is_proof = |run: &Point| proofs.iter().any(|proof| proof.run == run.run);
    Ok(all.map(|run| (run.clone(), is_proof(&run))).collect())
}

/// Enters saved runs of a task into the schedule.
pub(super) fn remember(schedule: &mut Schedule, task: usize, runs: &[(Point, bool)]) {
    for (run, is_proof) in runs {
        let bytes = run.value as u64;
        match is_proof {
            true => schedule.remember_proof(task, run.at_s, bytes),
            false => schedule.remember(task, run.at_s, bytes),
        }
    }
}

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

/// The labels with which proofs of a task are saved.
pub fn proof_labels(monitor: &Monitor, task: Task) -> Vec<(String, String)> {
    let mut labels = labels(monitor, task);
    labels.push((PROOF.to_owned(), CHANGE.to_owned()));
    labels
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

/// The end of the runs that began by `now`, in seconds since 1970: those of the future were saved
/// by a wrong clock, and would hide the others.
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
        let mut runs = carried(history, &of_day)?;
        if runs.is_empty() {
            runs = carried(history, &last)?;
        }
        remember(&mut schedule, number, &runs);
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

// The deletion of old runs.

/// Time between two deletions.
const EVERY: Duration = Duration::from_secs(3600);
/// Longest usual time without a run, as where a host is off for a holiday.
const MAX_GAP_S: u64 = 7 * DAY_S;
/// Runs among which agreement on a time is sought at first, the last that were saved.
const SEARCHED: i64 = 1024;

/// Deletes old runs of a monitor or mesh, as the key `keep` of its file says.
///
/// The clock alone is not believed: one that is ahead for a moment would make all runs old. A time
/// is believed once runs that were saved one after the other, over a whole day, have come near to
/// it. And a clock that is ahead for longer finds a few days deleted at a time, each time said.
pub(crate) struct Retention {
    keep_s: Option<u64>,
    /// Longest time from one run to the next that is no sign of a clock that was set.
    gap_s: u64,
    /// The next deletion, by a clock that nobody sets.
    next: Duration,
    is_doubted: bool,
}

impl Retention {
    /// `every_s` has the time between two runs of each test, by its schedule.
    pub(crate) fn new(keep_s: Option<u64>, every_s: impl Iterator<Item = u64>) -> Self {
        let usual = (keep_s.unwrap_or(0) / 4).clamp(DAY_S, MAX_GAP_S);
        Self {
            keep_s,
            gap_s: every_s.map(|every_s| 2 * every_s).fold(usual, u64::max),
            next: Duration::ZERO,
            is_doubted: false,
        }
    }

    /// Deletes old runs once an hour, and tells the user.
    pub(crate) fn delete_old(&mut self, history: &mut History, filters: &[Filter], say: &Say) {
        match self.apply(history, since_1970_s(), since_boot(), filters) {
            Ok(None) => {}
            Ok(Some(says)) => say(&says),
            Err(error) => {
                say(&format!("old runs were not deleted, tried again in an hour: {error}"));
            }
        }
    }

    /// Once an hour, deletes the oldest of the runs that pass one of `filters` and are too old.
    /// Returns what the user is to be told. Only whole days (UTC) are deleted, so that the medians
    /// of a day are of all its runs. `now` is in seconds since 1970; `monotonic` is of a clock that
    /// nobody sets.
    ///
    /// # Errors
    /// The history cannot be written. The next attempt is an hour later.
    fn apply(
        &mut self,
        history: &mut History,
        now: u64,
        monotonic: Duration,
        filters: &[Filter],
    ) -> Result<Option<String>, HistoryError> {
        let Some(keep_s) = self.keep_s.filter(|_| monotonic >= self.next) else {
            return Ok(None);
        };
        self.next = monotonic + EVERY;
        if oldest(history, filters)?.is_none_or(|at| at >= day(now.saturating_sub(keep_s))) {
            return Ok(None);
        }
        let agreed = agreed(history, filters, self.gap_s)?.unwrap_or(0);
        let was_doubted = self.is_doubted;
        self.is_doubted = now > agreed.saturating_add(self.gap_s);
        let end = day(now.min(agreed).saturating_sub(keep_s));
        let old = old(history, filters, end, now)?;
        let Some(oldest) = oldest(history, &old)? else {
            let is_new = self.is_doubted && !was_doubted;
            return Ok(is_new.then(|| {
                let now = date(now);
                format!("old runs are kept: the clock says {now}, and no whole day of runs does")
            }));
        };
        let step_s = (keep_s / 30).max(DAY_S);
        // A time that is none is that of 1970: it holds up nothing.
        let end = if oldest == 0 { end } else { end.min(day(oldest + step_s)) };
        let mut deleted = 0;
        for filter in old {
            deleted +=
                history.prune(&Filter { before: Some(Since::Moment(date(end))), ..filter })?;
        }
        let runs = if deleted == 1 { "run" } else { "runs" };
        Ok(Some(format!("{deleted} {runs} from before {} deleted", date(end))))
    }
}

/// The runs that began before `end`. One that was saved after a run that is not old is not old
/// either: the clock was behind.
fn old(
    history: &History,
    filters: &[Filter],
    end: u64,
    now: u64,
) -> Result<Vec<Filter>, HistoryError> {
    let mut before_id = None;
    for filter in filters {
        let young = history.first(&Filter {
            since: Some(Since::Moment(date(end))),
            before: Some(until(now)),
            ..filter.clone()
        })?;
        before_id = before_id.into_iter().chain(young).min();
    }
    let old = filters.iter().map(|filter| Filter {
        before: Some(Since::Moment(date(end))),
        before_id,
        ..filter.clone()
    });
    Ok(old.collect())
}

fn day(time: u64) -> u64 {
    time - time % DAY_S
}

fn date(time: u64) -> String {
    let time = format_rfc3339_seconds(time);
    time.split('T').next().unwrap_or_default().to_owned()
}

/// When the oldest of the runs began.
fn oldest(history: &History, filters: &[Filter]) -> Result<Option<u64>, HistoryError> {
    let mut oldest = None;
    for filter in filters {
        let first = Filter { oldest_first: true, most: Some(1), ..filter.clone() };
        let found = history.list(&first)?.into_iter().map(|run| run.at_s);
        oldest = oldest.into_iter().chain(found).min();
    }
    Ok(oldest)
}

/// The latest time on which runs of a whole day agree: each began within `gap_s` of those that were
/// saved after it. A clock that was set breaks their row.
fn agreed(history: &History, filters: &[Filter], gap_s: u64) -> Result<Option<u64>, HistoryError> {
    let newest = history.newest()?;
    let mut searched = SEARCHED;
    loop {
        let mut runs = Vec::new();
        for filter in filters {
            let last = Filter { from_id: Some(newest.saturating_sub(searched)), ..filter.clone() };
            let points = history.series(&last, None)?;
            runs.extend(points.into_iter().map(|point| (point.run, point.at_s)));
        }
        runs.sort_unstable();
        let agreed = last_day(runs.iter().rev().map(|(_, at)| *at), gap_s);
        if agreed.is_some() || searched >= newest {
            return Ok(agreed);
        }
        searched *= 8;
    }
}

/// The end of the first row of times that spans a day.
fn last_day(times: impl Iterator<Item = u64>, gap_s: u64) -> Option<u64> {
    let mut row: Option<(u64, u64)> = None;
    for at in times {
        let (first, last) =
            row.filter(|(first, _)| at.abs_diff(*first) <= gap_s).unwrap_or((at, at));
        let (first, last) = (first.min(at), last.max(at));
        if last - first >= DAY_S {
            return Some(last);
        }
        row = Some((first, last));
    }
    None
}

#[cfg(test)]
mod tests {
    use linerate_core::monitor::{Monitor, Next, Outcome, Schedule};
    use linerate_core::units::SplitMix64;

    use super::super::tests::saved_run;
    use super::*;
    use crate::monitor::{CARRIED, remembered};

    const BEGIN: u64 = 1_795_000_000;
    const DAYS_100: i64 = 100 * DAY_S as i64;
    const FILE: &str = "bytes-per-day = \"30kB\"\nkeep = \"30d\"\n[[path]]\nname = \"loop\"\nhost = \
         \"pit\"\n[[test]]\nname = \"asks\"\nevery = \"1h\"\nworkload = { command = \"rr\" }\n";
    /// What a run carries, bytes.
    const BYTES: u64 = 1000;

    /// A monitor and its history, with a clock that can be wrong.
    struct Simulated {
        monitor: Monitor,
        schedule: Schedule,
        history: History,
        retention: Retention,
        /// The true time, and how far the clock is ahead of it.
        time: u64,
        ahead: i64,
        /// When the runs truly were, the oldest first.
        runs: Vec<u64>,
        said: Vec<String>,
    }

    impl Simulated {
        fn new() -> Self {
            let monitor = Monitor::from_toml(FILE, 1).unwrap();
            Self {
                schedule: Schedule::new(&monitor),
                history: linerate_history::in_memory().unwrap(),
                retention: Retention::new(monitor.keep_s, [3600].into_iter()),
                monitor,
                time: BEGIN,
                ahead: 0,
                runs: Vec::new(),
                said: Vec::new(),
            }
        }

        fn now(&self) -> u64 {
            self.time.saturating_add_signed(self.ahead)
        }

        fn restart(&mut self) {
            self.schedule = remembered(&self.monitor, &self.history, self.now()).unwrap();
            self.retention = Retention::new(self.monitor.keep_s, [3600].into_iter());
        }

        /// One turn of the monitor's loop.
        fn step(&mut self, set_to: i64) {
            let now = self.now();
            self.schedule.synchronize(now, self.time);
            let monotonic = Duration::from_secs(self.time);
            let all = [Filter::default()];
            let retention = &mut self.retention;
            let said = retention.apply(&mut self.history, now, monotonic, &all);
            self.said.extend(said.unwrap());
            match self.schedule.next(now) {
                Next::Run(_) => {
                    self.save(now);
                    self.time += 10;
                    self.ahead = set_to;
                    self.schedule.synchronize(self.now(), self.time);
                    self.schedule.finished(self.now(), Outcome::Done(BYTES));
                }
                Next::Wait(until) => self.time += (until - now).min(60),
                Next::Never => panic!("the budget has room"),
            }
            self.ahead = set_to;
        }

        fn save(&mut self, now: u64) {
            let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
            let started_at = format_rfc3339_seconds(now);
            let figures = [(CARRIED.to_owned(), BYTES as f64)];
            let labels = [label("test", "asks"), label("path", "loop")];
            self.history.save(&saved_run(&started_at, &figures, &labels)).unwrap();
            self.runs.push(self.time);
        }

        fn until(&mut self, end: u64) {
            while self.time < end {
                self.step(self.ahead);
            }
        }

        fn kept(&self) -> usize {
            self.history.list(&Filter::default()).unwrap().len()
        }
    }

    #[test]
    fn a_clock_that_jumps_at_every_step_loses_starves_and_counts_nothing_twice() {
        let mut it = Simulated::new();
        it.until(BEGIN + 20 * DAY_S);
        let (mut random, before) = (SplitMix64::new(7), it.runs.len());
        while it.time < BEGIN + 23 * DAY_S {
            let other = [-DAYS_100, 0, DAYS_100].into_iter().filter(|to| *to != it.ahead);
            let set_to = other.collect::<Vec<_>>()[random.below(2) as usize];
            it.step(set_to);
            let day = it.runs.iter().filter(|run| **run + DAY_S > it.time).count() as u64;
            let counted = it.schedule.carried_by(0) / BYTES;
            assert!((day..=day + 1).contains(&counted), "{counted} of {day} count");
        }
        it.ahead = 0;
        it.restart();
        it.until(BEGIN + 29 * DAY_S);
        assert_eq!(it.kept(), it.runs.len(), "nothing was lost: {:?}", it.said);
        let late = it.runs.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(late <= 3600 + 360 + 200, "a test waited {late} s");
        // A slot of each hour, wherever the clock was.
        let jumped = it.runs[before..].iter().filter(|run| **run < BEGIN + 23 * DAY_S).count();
        assert!((65..=90).contains(&jumped), "{jumped} runs in three days");
    }

    #[test]
    fn a_clock_that_was_set_back_or_runs_of_the_future_stop_no_monitor_that_is_started_again() {
        let mut it = Simulated::new();
        it.ahead = DAYS_100;
        it.until(BEGIN + DAY_S);
        it.ahead = 0;
        let before = it.runs.len();
        for _ in 0..24 * 60 {
            it.restart();
            it.step(0);
        }
        assert!(it.runs.len() >= before + 22, "{}", it.runs.len() - before);
        assert_eq!(it.kept(), it.runs.len());
    }

    #[test]
    fn old_runs_are_deleted_by_a_right_clock_and_one_that_is_wrong_for_long_is_slow_to_do_harm() {
        let mut it = Simulated::new();
        it.until(BEGIN + 60 * DAY_S);
        let kept = it.kept();
        assert!((30 * 24..=32 * 24).contains(&kept), "{kept}");
        // Off for two years.
        it.time += 730 * DAY_S;
        it.restart();
        it.until(it.time + DAY_S / 2);
        assert!((12..=14).contains(&(it.kept() - kept)), "{:?}", it.said);
        assert!(it.said.last().unwrap().starts_with("old runs are kept:"));
        it.until(it.time + 3 * DAY_S);
        assert!(it.kept() < 100, "{}", it.kept());
        // Wrong for two days: by then the wrong runs agree with it, and it takes a day each hour.
        it.until(it.time + 40 * DAY_S);
        let kept = it.kept();
        it.ahead = DAYS_100;
        it.until(it.time + 30 * 3600);
        let lost = kept + 30 - it.kept();
        assert!((1..=7 * 25).contains(&lost), "{lost}");
    }
}

//! `monitor`: runs tests on a schedule; `probe`: runs a test when Prometheus asks.
//!
//! The history is the monitor's memory: which runs were last, how many bytes they carried, which
//! changes were told. The monitor can be killed at any moment: a run is in the history whole or not
//! at all, and one that is missing is made again.

mod alarm;
mod attempt;
mod metrics;
mod probe;

use std::collections::VecDeque;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use linerate_core::monitor::{
    Monitor, MonitoredPath, MonitoredTest, Next, Outcome, Schedule, Task,
};
use linerate_core::units::{ByteCount, format_rfc3339_seconds};
use linerate_engine::since_boot;
use linerate_history::{Filter, History, HistoryError, Place, Point};
use linerate_report::metrics::Metrics;
use linerate_web::Answer;

use crate::args::MonitorArgs;
use crate::clock::{now, since_1970, until};
use crate::failure::Failure;
use crate::keep::{self, CARRIED};
use crate::push::Push;
use crate::retention::Retention;
use crate::turn::{Turn, TurnHolder};
use crate::{access, files, output, run};
use alarm::Alarms;
use metrics::Health;

pub(crate) use attempt::measure;
pub(crate) use metrics::of_run;
pub(crate) use probe::execute as probe;

/// Largest file of a monitor, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Time between two looks at the clock, short enough to notice soon that the host slept.
const PAUSE: Duration = Duration::from_millis(500);
/// Period after which the monitor learns of others' runs, and of a clock that was set, and sends
/// metrics.
const SHOWN_EVERY: Duration = Duration::from_secs(60);
/// Most runs that are kept while the history cannot be written.
const MAX_UNSAVED: usize = 100;
/// Most requests that wait for a receiver of metrics; there is one a minute and one for each run.
const MAX_QUEUED: usize = 64;

/// Runs the tests of the file on its schedule.
///
/// # Errors
/// The file is wrong, the history or the port cannot be had, or another monitor is at work.
pub(crate) fn execute(args: &MonitorArgs) -> Result<(), Failure> {
    let monitor = read(&args.file)?;
    let db = args.place.db.as_ref();
    let place = keep::place(db).map_err(Failure::usage)?;
    if args.check {
        let is_there = !matches!(&place, Place::File(path) if !path.exists());
        let history = is_there.then(|| keep::open(db)).transpose()?;
        return output::print(&forecast(&monitor, history.as_ref()).map_err(Failure::failed)?);
    }
    let history = keep::open(db)?;
    let beside = keep::beside(&place).map_err(Failure::usage)?;
    let _lock = lock(&beside).map_err(Failure::failed)?;
    let stop = run::signals()?;
    let owner = owner(&args.file).map_err(Failure::usage)?;
    let alarms = Alarms::new(owner, &monitor.alarm);
    let mut watch = MonitorLoop::new(monitor, history, alarms, beside, args.quiet)?;
    let push = |to| Push::new(to, "linerate-monitor", MAX_QUEUED);
    watch.receiver = args.otlp.clone().map(push);
    if let Some(address) = args.metrics {
        // Nobody is to find the page empty.
        watch.renew();
        serve(address, watch.page.clone())?;
    }
    let begun = watch.now();
    while !stop.is_requested() {
        watch.catch_up();
        watch.delete_old();
        watch.tell();
        watch.show();
        // What falls due meanwhile is not of this call: tests that take longer than their interval
        // would never let it end.
        let now = if args.once { begun } else { watch.now() };
        match watch.schedule.next(now) {
            Next::Run(number) => watch.run(number, || stop.is_requested()),
            Next::Wait(_) if args.once => break,
            Next::Wait(until) => {
                let left = Duration::from_secs(until).saturating_sub(since_1970());
                // By a clock that nobody sets: one that is put back does not make it longer.
                let until = since_boot() + left.min(SHOWN_EVERY);
                while since_boot() < until && !stop.is_requested() {
                    thread::sleep(PAUSE);
                }
            }
            Next::Never => {
                let why = "every test carries more in one run than a day's budget: raise it";
                return Err(Failure::failed(anyhow!(why)));
            }
        }
    }
    watch.catch_up();
    match watch.unsaved.len() {
        0 => Ok(()),
        lost => Err(Failure::failed(anyhow!("runs that were not saved: {lost}"))),
    }
}

/// Reads a monitor's file. Key files that it names without a directory lie beside it.
pub(crate) fn read(file: &Path) -> Result<Monitor, Failure> {
    let mut monitor =
        files::parse("", file, MAX_FILE, |text| Monitor::from_toml(text, own_seed()))?;
    let directory = file.parent().unwrap_or(Path::new(""));
    for path in &mut monitor.paths {
        let key = path.key_file.as_ref();
        path.key_file = key.map(|key| directory.join(key).to_string_lossy().into_owned());
    }
    Ok(monitor)
}

/// A seed of this host's, so that hosts with the same file do not all measure at the same time.
fn own_seed() -> u64 {
    let mut hasher = DefaultHasher::new();
    std::fs::read("/etc/machine-id").unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

/// The owner of a monitor's alarms: this host and the monitor's file.
fn owner(file: &Path) -> anyhow::Result<String> {
    let whole = file.canonicalize().with_context(|| file.display().to_string())?;
    Ok(format!("{:016x} {}", own_seed(), whole.display()))
}

/// Locks a history for one monitor. The kernel releases the lock when the process ends.
fn lock(history: &Path) -> anyhow::Result<File> {
    let mut name = history.as_os_str().to_owned();
    name.push(".monitor");
    let path = PathBuf::from(name);
    let file = linerate_engine::open_lock(&path).with_context(|| path.display().to_string())?;
    file.try_lock().map_err(|_| {
        anyhow!("{}: another monitor saves its runs in this history", path.display())
    })?;
    Ok(file)
}

/// Serves the metrics.
fn serve(address: SocketAddr, page: Arc<Mutex<String>>) -> Result<(), Failure> {
    let answer = move |ask: &linerate_web::Ask| match ask.path.as_str() {
        "/metrics" => Answer::metrics(page.lock().unwrap_or_else(PoisonError::into_inner).clone()),
        _ => Answer::plain(404, "linerate monitor: the page is /metrics\n"),
    };
    let bound = access::serve("--metrics", address, None, answer)?;
    output::note(&format!("metrics at http://{bound}/metrics"));
    Ok(())
}

/// The test and the path of a task.
pub(crate) fn parts(monitor: &Monitor, task: Task) -> (&MonitoredTest, &MonitoredPath) {
    (&monitor.tests[task.test], &monitor.paths[task.path])
}

/// The labels with which runs of a task are saved.
pub(crate) fn labels(monitor: &Monitor, task: Task) -> Vec<(String, String)> {
    let (test, path) = parts(monitor, task);
    let own = [("test", &test.name), ("path", &path.name)]
        .map(|(key, value)| (key.to_owned(), value.clone()));
    own.into_iter().chain(path.labels.iter().cloned()).collect()
}

/// The filter that finds runs of a task.
fn runs_of(monitor: &Monitor, task: Task) -> Filter {
    Filter { labels: labels(monitor, task).into_iter().take(2).collect(), ..Filter::default() }
}

/// Runs of a task up to `now`, without those of the future.
fn runs_until(now: u64, monitor: &Monitor, task: Task) -> Filter {
    Filter { before: Some(until(now)), ..runs_of(monitor, task) }
}

/// Takes the turn for a task; `None` while another test runs with this history.
///
/// # Errors
/// The file beside the history cannot be written.
pub(crate) fn turn(
    history: &Path,
    monitor: &Monitor,
    task: Task,
) -> Result<Option<Arc<Turn>>, Failure> {
    let (test, path) = parts(monitor, task);
    let running = TurnHolder {
        test: test.name.clone(),
        path: path.name.clone(),
        began_s: since_boot().as_secs(),
        seconds: test.work.seconds(),
        now: String::new(),
    };
    let turn = Turn::take(history, running).map_err(Failure::failed)?;
    Ok(turn.map(Arc::new))
}

/// A monitor at work.
struct MonitorLoop {
    monitor: Monitor,
    schedule: Schedule,
    tasks: Vec<Task>,
    history: History,
    retention: Retention,
    alarms: Alarms,
    /// The path beside which the locks of the history lie.
    beside: PathBuf,
    health: Vec<Health>,
    /// The metrics as Prometheus gets them.
    page: Arc<Mutex<String>>,
    /// What the metrics are sent to.
    receiver: Option<Push>,
    /// The last run that the schedule knows.
    seen: i64,
    /// The runs of this monitor after that one.
    own: Vec<i64>,
    /// Runs that are to be saved.
    unsaved: VecDeque<Unsaved>,
    quiet: bool,
}

/// A run that is to be saved.
struct Unsaved {
    /// The number of its task.
    number: usize,
    done: attempt::Done,
    /// Whether an attempt has failed, in which the history may have taken it all the same.
    is_tried: bool,
}

impl MonitorLoop {
    fn new(
        monitor: Monitor,
        history: History,
        alarms: Alarms,
        beside: PathBuf,
        quiet: bool,
    ) -> Result<Self, Failure> {
        let now = now();
        // Before the schedule is made: runs that are saved in between are learned later.
        let seen = history.newest().map_err(unusable)?;
        let schedule = remembered(&monitor, &history, now).map_err(unusable)?;
        let tasks: Vec<Task> = schedule.tasks().collect();
        let health = tasks
            .iter()
            .map(|task| Health::new(&history, &runs_until(now, &monitor, *task)))
            .collect::<Result<_, _>>()
            .map_err(unusable)?;
        Ok(Self {
            retention: Retention::new(monitor.keep_s, monitor.tests.iter().map(|it| it.every_s)),
            monitor,
            schedule,
            tasks,
            history,
            alarms,
            beside,
            health,
            page: Arc::default(),
            receiver: None,
            seen,
            own: Vec::new(),
            unsaved: VecDeque::new(),
            quiet,
        })
    }

    /// The time, which the schedule is told, too.
    fn now(&mut self) -> u64 {
        let now = now();
        self.schedule.synchronize(now, since_boot().as_secs());
        now
    }

    /// Learns of runs of the monitor's tests that others have saved: `linerate web`, or a user with
    /// the same labels.
    fn learn(&mut self) -> Result<(), HistoryError> {
        let now = self.now();
        let newest = self.history.newest()?;
        for (number, task) in self.tasks.iter().enumerate() {
            let newer = Filter { from_id: Some(self.seen + 1), ..runs_of(&self.monitor, *task) };
            let found = self.history.series(&newer, Some(CARRIED))?;
            // A run that was saved meanwhile is looked at the next time.
            let is_others = |run: &&Point| !self.own.contains(&run.run) && run.run <= newest;
            let others: Vec<&Point> = found.iter().filter(is_others).collect();
            if !others.is_empty() {
                let runs = runs_until(now, &self.monitor, *task);
                self.health[number].update(&self.history, &runs)?;
            }
            for run in others {
                self.schedule.remember(number, run.at_s, run.value as u64);
            }
        }
        self.seen = self.seen.max(newest);
        self.own.retain(|run| *run > newest);
        Ok(())
    }

    /// Saves what could not be saved, and learns of others' runs. A history that is away ends no
    /// monitor: it is asked again before the next run.
    fn catch_up(&mut self) {
        if self.save_all()
            && let Err(error) = self.learn()
        {
            output::note(&format!("{error}; tried again"));
        }
    }

    /// Deletes the runs of this monitor that are older than `keep` of its file.
    fn delete_old(&mut self) {
        let runs: Vec<Filter> =
            self.tasks.iter().map(|task| runs_of(&self.monitor, *task)).collect();
        self.retention.delete_old(&mut self.history, &runs);
    }

    /// Runs a task, saves its document, and looks for a change.
    fn run(&mut self, number: usize, stopped: impl Fn() -> bool) {
        let task = self.tasks[number];
        let turn = turn(&self.beside, &self.monitor, task);
        let measured = turn.and_then(|turn| match turn {
            Some(turn) => measure(&self.monitor, task, Some(turn)).map(Some),
            None => Ok(None),
        });
        let outcome = match measured {
            // The task is due again when the monitor is started again.
            Err(_) if stopped() => return,
            Ok(None) => {
                self.say(task, "another test is running; asked again in a minute");
                Outcome::Busy
            }
            Ok(Some(done)) => match done.document.why_partial() {
                Some(why) => {
                    self.say(task, &format!("not saved: ended before its time: {why}"));
                    Outcome::Failed(done.carried)
                }
                None => {
                    let carried = done.carried;
                    self.unsaved.push_back(Unsaved { number, done, is_tried: false });
                    self.save_all();
                    Outcome::Done(carried)
                }
            },
            Err(failure) if failure.is_busy() => {
                self.say(task, &format!("{}; asked again in a minute", failure.chain()));
                Outcome::Busy
            }
            Err(failure) => {
                self.say(task, &failure.chain());
                Outcome::Failed(0)
            }
        };
        self.health[number].count(outcome);
        let now = self.now();
        self.schedule.finished(now, outcome);
        if self.schedule.ready_at(number, now).is_none() {
            self.say(task, "carries more in one run than a day's budget: it is not run again");
        }
    }

    /// Saves the runs that are to be saved; false if one could not. That one waits behind the
    /// others, and the oldest is given up when there are too many.
    fn save_all(&mut self) -> bool {
        while let Some(mut run) = self.unsaved.pop_front() {
            let Err(error) = self.save(&run) else {
                continue;
            };
            let task = self.tasks[run.number];
            if error.is_of_data() {
                self.say(task, &format!("not saved, and not tried again: {error}"));
                continue;
            }
            run.is_tried = true;
            self.unsaved.push_back(run);
            let count = self.unsaved.len();
            let why = format!("{error}; runs that wait to be saved: {count}, max {MAX_UNSAVED}");
            self.say(task, &why);
            if count > MAX_UNSAVED
                && let Some(lost) = self.unsaved.pop_front()
            {
                self.say(self.tasks[lost.number], "the run that waited longest is lost");
            }
            return false;
        }
        true
    }

    /// Saves a run, and looks for a change.
    fn save(&mut self, run: &Unsaved) -> Result<(), HistoryError> {
        let (number, done) = (run.number, &run.done);
        let task = self.tasks[number];
        let document = &*done.document;
        let labels = labels(&self.monitor, task);
        let before =
            if run.is_tried { keep::saved(&self.history, document, &labels)? } else { None };
        let id = match before {
            Some(id) => id,
            None => keep::save(&mut self.history, document, &labels, Some(done.carried))?,
        };
        self.own.push(id);
        if !self.quiet {
            let (test, path) = parts(&self.monitor, task);
            let (at, answer) = (format_rfc3339_seconds(now()), document.answer());
            let line = format!("{at} {} {}: {answer} (run {id})\n", test.name, path.name);
            // The run is saved, whether or not anybody reads the line.
            let _ = output::print(&line);
        }
        if let Err(why) = self.look(number) {
            self.say(task, &format!("changes: {why:#}; looked for after the next run"));
        }
        self.tell();
        Ok(())
    }

    /// Looks at the last run of a task: its figures, and whether they have changed.
    fn look(&mut self, number: usize) -> anyhow::Result<()> {
        let task = self.tasks[number];
        let runs = runs_until(now(), &self.monitor, task);
        self.health[number].update(&self.history, &runs)?;
        let change = self.alarms.look(&mut self.history, &self.monitor, task, runs)?;
        if let Some(message) = change {
            self.say(task, &message);
            self.health[number].changes += 1;
        }
        Ok(())
    }

    /// Tells the user the changes that were not told yet.
    fn tell(&mut self) {
        if let Err(error) = self.alarms.tell(&mut self.history, since_boot()) {
            output::note(&format!("alarm: {error}; tried again in a minute"));
        }
    }

    fn say(&self, task: Task, what: &str) {
        let (test, path) = parts(&self.monitor, task);
        output::note(&format!("{} {}: {what}", test.name, path.name));
    }

    /// Renews the metrics for Prometheus, and sends them to the receiver.
    fn show(&self) {
        let metrics = self.renew();
        self.receiver.iter().for_each(|to| to.send(&metrics));
    }

    /// Renews the page of metrics.
    fn renew(&self) -> Metrics {
        let metrics = metrics::page(&self.monitor, &self.schedule, &self.health, now());
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = metrics.page();
        metrics
    }
}

/// The schedule after the runs that the history knows, but those of the future.
///
/// # Errors
/// It cannot be read.
pub(crate) fn remembered(
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
        let mut runs = history.series(&last, Some(CARRIED))?;
        let day = history.series(&of_day, Some(CARRIED))?;
        if !day.is_empty() {
            runs = day;
        }
        for run in runs {
            schedule.remember(number, run.at_s, run.value as u64);
        }
    }
    Ok(schedule)
}

fn unusable(error: HistoryError) -> Failure {
    Failure::failed(anyhow::Error::from(error).context("history"))
}

/// The runs of the next 24 hours, if each carries the most that it may.
fn forecast(monitor: &Monitor, history: Option<&History>) -> anyhow::Result<String> {
    let begin = now();
    let mut schedule = match history {
        Some(history) => remembered(monitor, history, begin)?,
        None => Schedule::new(monitor),
    };
    let tasks: Vec<Task> = schedule.tasks().collect();
    let mut at = begin;
    let mut runs: Vec<Vec<u64>> = vec![Vec::new(); tasks.len()];
    while at < begin + 86_400 {
        match schedule.next(at) {
            Next::Run(number) => {
                let (test, path) = parts(monitor, tasks[number]);
                runs[number].push(at);
                let carries = Outcome::Done(test.work.most_bytes(path.rate).unwrap_or(0));
                at += test.work.seconds();
                schedule.finished(at, carries);
            }
            Next::Wait(until) => at = until,
            Next::Never => break,
        }
    }
    let line = |(task, runs): (&Task, &Vec<u64>)| {
        let (test, path) = parts(monitor, *task);
        let first = match runs.first() {
            Some(first) => format!(", first at {}", format_rfc3339_seconds(*first)),
            None => String::new(),
        };
        let carries = match test.work.most_bytes(path.rate) {
            Some(bytes) => format!("{} at most", ByteCount(bytes * runs.len() as u64)),
            None => "as many bytes as the link lets through".to_owned(),
        };
        let count = runs.len();
        let plural = if count == 1 { "" } else { "s" };
        format!("{} {}: {count} run{plural} in 24 h{first}; {carries}\n", test.name, path.name)
    };
    Ok(tasks.iter().zip(&runs).map(line).collect())
}

#[cfg(test)]
mod tests {
    use linerate_history::NewRun;

    use super::*;

    #[test]
    fn a_run_that_was_started_elsewhere_counts_in_budget_schedule_and_metrics() {
        let directory = tempfile::tempdir().unwrap();
        let beside = directory.path().join("h.db");
        let place = Place::from(&*beside);
        let text = "[[path]]\nname = \"loop\"\nhost = \"pit\"\n[[test]]\nname = \"asks\"\n\
             every = \"1h\"\nworkload = { command = \"rr\" }\n";
        let monitor = Monitor::from_toml(text, 1).unwrap();
        let history = linerate_history::open(&place).unwrap();
        let alarms = Alarms::new(String::new(), &monitor.alarm);
        let mut watch = MonitorLoop::new(monitor, history, alarms, beside, true).unwrap();
        assert!(watch.schedule.ready_at(0, now()).unwrap() <= now(), "it never ran");
        let carried = [("transactions_per_s".to_owned(), 7.0), (CARRIED.to_owned(), 1e6)];
        let mut elsewhere = linerate_history::open(&place).unwrap();
        let mut save = || {
            let run = NewRun {
                started_at: &format_rfc3339_seconds(now()),
                schema: "linerate.record/1",
                path: "pit",
                workload: "rr",
                detail: "tcp",
                series: "asks to loop",
                answer: "",
                cause: None,
                figures: &carried,
                pairs: &[],
                labels: &labels(&watch.monitor, watch.tasks[0]),
                document: "{}",
            };
            elsewhere.save(&run).unwrap()
        };
        save();
        let own = save();
        watch.own = vec![own];
        for _ in 0..2 {
            watch.learn().unwrap();
            watch.show();
            assert_eq!(watch.schedule.carried_by(0), 1_000_000);
        }
        assert!(watch.schedule.ready_at(0, now()).unwrap() > now());
        let page = watch.page.lock().unwrap();
        assert!(page.contains("figure=\"transactions_per_s\"} 7\n"), "{page}");
    }
}

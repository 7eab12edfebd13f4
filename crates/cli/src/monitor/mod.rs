//! `monitor`: what is measured on a schedule; `probe`: what is measured when Prometheus asks.
//!
//! The history is the monitor's memory: what ran last, what it carried, which changes were told. It can be
//! killed at any moment: a run is in the history whole or not at all, and one that is not is made again.

mod alarm;
mod attempt;
mod metrics;
mod probe;

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow};
use linerate_core::monitor::{
    Monitor, MonitoredPath, MonitoredTest, Next, Outcome, Schedule, Task,
};
use linerate_core::units::ByteCount;
use linerate_engine::format_rfc3339;
use linerate_history::{Filter, History, HistoryError, Since};
use linerate_web::Answer;

use crate::args::MonitorArgs;
use crate::failure::Failure;
use crate::keep::{self, CARRIED};
use crate::{files, output, run};
use metrics::Health;

pub(crate) use probe::execute as probe;

/// Longest file of a monitor, bytes.
const MAX_FILE: u64 = 1 << 20;
/// Between two looks at the clock: a host that slept or a clock that was set is noticed soon.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs what the file says, when it says so.
///
/// # Errors
/// The file is wrong, the history or the port cannot be had, or another monitor is at work.
pub(crate) fn execute(args: &MonitorArgs) -> Result<(), Failure> {
    let monitor = read(&args.file)?;
    let place = keep::place(args.db.as_deref()).map_err(Failure::usage)?;
    if args.check {
        let history = place
            .exists()
            .then(|| keep::open(Some(&place)))
            .transpose()?;
        return output::print(&forecast(&monitor, history.as_ref()).map_err(Failure::failed)?);
    }
    let _lock = lock(&place).map_err(Failure::failed)?;
    let stop = run::signals()?;
    let mut watch = Watch::new(monitor, keep::open(Some(&place))?, args.quiet)?;
    if let Some(address) = args.metrics {
        let page = watch.page.clone();
        serve(address, move |path| match path {
            "/metrics" => Some(page.lock().unwrap_or_else(PoisonError::into_inner).clone()),
            _ => None,
        })?;
    }
    watch.show();
    watch.tell();
    while !stop.is_requested() {
        match watch.schedule.next(now()) {
            Next::Run(number) => watch.run(number, || stop.is_requested()),
            Next::Wait(_) if args.once => break,
            Next::Wait(until) => {
                watch.show();
                while now() < until && !stop.is_requested() {
                    thread::sleep(PAUSE);
                }
            }
            Next::Never => {
                let why = "every test carries more in one run than a day's budget: raise it";
                return Err(Failure::failed(anyhow!(why)));
            }
        }
    }
    Ok(())
}

/// The file, with what it names beside it.
fn read(file: &Path) -> Result<Monitor, Failure> {
    let read = || {
        let text = String::from_utf8(files::read_at_most(file, MAX_FILE)?)?;
        let mut monitor = Monitor::from_toml(&text, own_seed())?;
        let directory = file.parent().unwrap_or(Path::new(""));
        for path in &mut monitor.paths {
            let key = path.key_file.as_ref();
            path.key_file = key.map(|key| directory.join(key).to_string_lossy().into_owned());
        }
        anyhow::Ok(monitor)
    };
    read()
        .with_context(|| file.display().to_string())
        .map_err(Failure::usage)
}

/// Hosts with the same file do not all measure at the same moment.
fn own_seed() -> u64 {
    let mut hasher = DefaultHasher::new();
    std::fs::read("/etc/machine-id")
        .unwrap_or_default()
        .hash(&mut hasher);
    hasher.finish()
}

/// One monitor for each history: it is gone with the process.
fn lock(history: &Path) -> anyhow::Result<File> {
    let mut name = history.as_os_str().to_owned();
    name.push(".monitor");
    let path = PathBuf::from(name);
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    file.try_lock().map_err(|_| {
        anyhow!(
            "{}: another monitor saves its runs in this history",
            path.display()
        )
    })?;
    Ok(file)
}

/// Serves pages, which tell who asks for another one what there is.
fn serve(
    address: std::net::SocketAddr,
    page: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
) -> Result<(), Failure> {
    let answer = move |ask: &linerate_web::Ask| match page(&ask.path) {
        Some(text) => Answer::metrics(text),
        None => Answer::plain(404, "linerate monitor: the page is /metrics\n"),
    };
    let bound = linerate_web::serve(address, answer)
        .with_context(|| format!("--metrics {address}"))
        .map_err(Failure::failed)?;
    output::note(&format!("metrics at http://{bound}/metrics"));
    Ok(())
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// The test and the path of a task.
fn parts(monitor: &Monitor, task: Task) -> (&MonitoredTest, &MonitoredPath) {
    (&monitor.tests[task.test], &monitor.paths[task.path])
}

/// What its runs are saved with.
fn labels(monitor: &Monitor, task: Task) -> Vec<(String, String)> {
    let (test, path) = parts(monitor, task);
    let own = [("test", &test.name), ("path", &path.name)];
    let own = own.map(|(key, value)| (key.to_owned(), value.clone()));
    own.into_iter().chain(path.labels.iter().cloned()).collect()
}

/// Its runs.
fn runs_of(monitor: &Monitor, task: Task) -> Filter {
    Filter {
        labels: labels(monitor, task).into_iter().take(2).collect(),
        ..Filter::default()
    }
}

/// A monitor at work.
struct Watch {
    monitor: Monitor,
    schedule: Schedule,
    tasks: Vec<Task>,
    history: History,
    health: Vec<Health>,
    /// As it is served.
    page: Arc<Mutex<String>>,
    quiet: bool,
}

impl Watch {
    fn new(monitor: Monitor, history: History, quiet: bool) -> Result<Self, Failure> {
        let schedule = remembered(&monitor, &history).map_err(unusable)?;
        let tasks: Vec<Task> = schedule.tasks().collect();
        let health = tasks
            .iter()
            .map(|task| Health::new(&history, &runs_of(&monitor, *task)));
        let health = health.collect::<Result<_, _>>().map_err(unusable)?;
        Ok(Self {
            monitor,
            schedule,
            tasks,
            history,
            health,
            page: Arc::default(),
            quiet,
        })
    }

    /// Runs a task, saves what came of it, and looks for a change.
    fn run(&mut self, number: usize, stopped: impl Fn() -> bool) {
        let began = now();
        let task = self.tasks[number];
        let outcome = match attempt::measure(&self.monitor, task) {
            // It is due again when the monitor is.
            Err(_) if stopped() => return,
            Ok(done) => match self.save(number, &done) {
                Ok(()) => Outcome::Done(done.carried),
                Err(why) => {
                    self.say(task, &format!("not saved: {}", why.chain()));
                    Outcome::Failed(done.carried)
                }
            },
            Err(failure) if failure.is_busy() => {
                self.say(
                    task,
                    &format!("{}; asked again in a minute", failure.chain()),
                );
                Outcome::Busy
            }
            Err(failure) => {
                self.say(task, &failure.chain());
                Outcome::Failed(0)
            }
        };
        self.health[number].count(outcome);
        self.schedule.finished(began, now(), outcome);
        if self.schedule.ready_at(number, now()).is_none() {
            self.say(
                task,
                "carries more in one run than a day's budget: it is not run again",
            );
        }
    }

    fn save(&mut self, number: usize, done: &attempt::Done) -> Result<(), Failure> {
        if let Some(why) = done.document.why_partial() {
            return Err(Failure::failed(anyhow!("ended before its time: {why}")));
        }
        let task = self.tasks[number];
        let document = &*done.document;
        let labels = labels(&self.monitor, task);
        let id = keep::save(&mut self.history, document, &labels, Some(done.carried));
        let id = id.map_err(unusable)?;
        if !self.quiet {
            let (test, path) = parts(&self.monitor, task);
            let (at, answer) = (rfc3339(now()), document.answer());
            let line = format!("{at} {} {}: {answer} (run {id})\n", test.name, path.name);
            // Who reads the lines may go: the runs are saved.
            let _ = output::print(&line);
        }
        self.health[number] = Health::new(&self.history, &runs_of(&self.monitor, task))
            .map_err(unusable)?
            .after(&self.health[number]);
        let change =
            alarm::look(&mut self.history, &self.monitor, task).map_err(Failure::failed)?;
        if let Some(message) = change {
            self.say(task, &message);
            self.health[number].changes += 1;
        }
        self.tell();
        Ok(())
    }

    /// Tells the changes that nobody was told yet.
    fn tell(&mut self) {
        if let Err(error) = alarm::tell(&mut self.history, &self.monitor.alarm) {
            output::note(&format!("alarm: {error:#}; tried again after the next run"));
        }
    }

    fn say(&self, task: Task, what: &str) {
        let (test, path) = parts(&self.monitor, task);
        output::note(&format!("{} {}: {what}", test.name, path.name));
    }

    /// Shows what there is now to who asks for metrics.
    fn show(&self) {
        let text = metrics::page(&self.monitor, &self.schedule, &self.health, now());
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

/// The schedule after the runs that the history knows.
fn remembered(monitor: &Monitor, history: &History) -> Result<Schedule, HistoryError> {
    let mut schedule = Schedule::new(monitor);
    let tasks: Vec<Task> = schedule.tasks().collect();
    for (number, task) in tasks.into_iter().enumerate() {
        let own = runs_of(monitor, task);
        let last = Filter {
            most: Some(1),
            ..own.clone()
        };
        let of_day = Filter {
            since: Some(Since::Ago(86_400)),
            ..own
        };
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

/// What runs in the next 24 hours, if each run carries what it may.
fn forecast(monitor: &Monitor, history: Option<&History>) -> anyhow::Result<String> {
    let mut schedule = match history {
        Some(history) => remembered(monitor, history)?,
        None => Schedule::new(monitor),
    };
    let tasks: Vec<Task> = schedule.tasks().collect();
    let begin = now();
    let mut at = begin;
    let mut runs: Vec<Vec<u64>> = vec![Vec::new(); tasks.len()];
    while at < begin + 86_400 {
        match schedule.next(at) {
            Next::Run(number) => {
                let (test, path) = parts(monitor, tasks[number]);
                runs[number].push(at);
                let carries = Outcome::Done(test.most_bytes(path.rate).unwrap_or(0));
                schedule.finished(at, at + test.seconds(), carries);
                at += test.seconds();
            }
            Next::Wait(until) => at = until,
            Next::Never => break,
        }
    }
    let line = |(task, runs): (&Task, &Vec<u64>)| {
        let (test, path) = parts(monitor, *task);
        let first = match runs.first() {
            Some(first) => format!(", first at {}", rfc3339(*first)),
            None => String::new(),
        };
        let carries = match test.most_bytes(path.rate) {
            Some(bytes) => format!("{} at most", ByteCount(bytes * runs.len() as u64)),
            None => "as many bytes as the link lets through".to_owned(),
        };
        let count = runs.len();
        let plural = if count == 1 { "" } else { "s" };
        format!(
            "{} {}: {count} run{plural} in 24 h{first}; {carries}\n",
            test.name, path.name
        )
    };
    Ok(tasks.iter().zip(&runs).map(line).collect())
}

fn rfc3339(at: u64) -> String {
    let at = format_rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(at));
    at.replace(".000000", "")
}

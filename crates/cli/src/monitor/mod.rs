//! `monitor`: runs tests on a schedule; `probe`: runs a test when Prometheus asks.

mod attempt;
mod metrics;
mod probe;

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, anyhow};
use linerate_core::monitor::{HttpUrl, Monitor, Next, Outcome, Schedule, Task};
use linerate_core::stats::ChangePoint;
use linerate_core::units::{ByteCount, format_rfc3339_seconds};
use linerate_engine::monitor::{
    Attempt, Described, Health, MonitorCaller, MonitorLoop, MonitorRun, labels, parts,
    proof_labels, remembered,
};
use linerate_engine::{open_lock, since_1970_s, since_boot, with_ending};
use linerate_history::{History, HistoryError, Place, Point};
use linerate_report::Document;
use linerate_report::text::{proofs as proofs_in_words, series_change};
use linerate_web::Answer;
use serde_json::{Value, json};

use crate::args::MonitorArgs;
use crate::failure::{Failure, shown};
use crate::history::change;
use crate::push::{Push, post};
use crate::turn::{Turn, TurnHolder};
use crate::{access, files, keep, output, run};

pub(crate) use attempt::measure;
pub(crate) use metrics::of_run;
pub(crate) use probe::execute as probe;

/// Largest file of a monitor, in bytes.
const MAX_FILE: u64 = 1 << 20;
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
    let own = Own { beside, page: Arc::default(), receiver: None, quiet: args.quiet };
    let mut watch = MonitorLoop::new(monitor, history, owner, own, Arc::new(output::note))
        .context("history")
        .map_err(Failure::failed)?;
    if let Some(address) = args.metrics {
        // Nobody is to find the page empty.
        watch.show();
        serve(address, watch.caller.page.clone())?;
    }
    let push = |to| Push::new(to, "linerate-monitor", MAX_QUEUED);
    watch.caller.receiver = args.otlp.clone().map(push);
    watch.run(&stop, args.once).map_err(Failure::failed)
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
    let path = with_ending(history, ".monitor");
    let file = open_lock(&path).with_context(|| path.display().to_string())?;
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

/// The monitor of this command: what its tests leave and where it shows them.
struct Own {
    /// The path beside which the locks of the history lie.
    beside: PathBuf,
    /// The metrics as Prometheus gets them.
    page: Arc<Mutex<String>>,
    /// What the metrics are sent to.
    receiver: Option<Push>,
    quiet: bool,
}

impl MonitorCaller for Own {
    type Document = Box<dyn Document>;

    fn measure(
        &mut self,
        monitor: &Monitor,
        task: Task,
        proof: Option<u64>,
    ) -> Attempt<Self::Document> {
        let turn = turn(&self.beside, monitor, task);
        let run = |turn| measure(monitor, task, Some(turn), proof);
        match turn.and_then(|turn| turn.map(run).transpose()) {
            Ok(None) => Attempt::Busy("another test is running".to_owned()),
            Ok(Some(run)) => match run.document.why_partial() {
                Some(why) => Attempt::Partial { why, carried: run.carried },
                None => Attempt::Done(run),
            },
            Err(failure) if failure.is_busy() => Attempt::Busy(failure.chain()),
            Err(failure) => Attempt::Failed(failure.chain()),
        }
    }

    fn proofs(document: &Self::Document) -> Option<(Value, String)> {
        let legs = document.records()?.into_iter().flat_map(|record| &record.legs);
        let proofs = legs.filter_map(|leg| {
            let mut proof = json!(leg.verdict.as_ref()?.proof.as_ref()?);
            proof["direction"] = json!(leg.direction);
            Some(proof)
        });
        Some((proofs.collect(), proofs_in_words(&**document)?))
    }

    fn save(
        &mut self,
        history: &mut History,
        (monitor, task): (&Monitor, Task),
        run: &MonitorRun<Self::Document>,
        is_tried: bool,
    ) -> Result<i64, HistoryError> {
        let own = if run.is_proof { proof_labels } else { labels }(monitor, task);
        let document = &*run.document;
        let (why, mark) = keep::disturbed(document).unzip();
        let labels: &Vec<_> = &own.into_iter().chain(mark).collect();
        let before = if is_tried { keep::saved(history, document, labels)? } else { None };
        let id = match before {
            Some(id) => id,
            None => keep::save(history, document, labels, Some(run.carried))?,
        };
        if !self.quiet {
            let (test, path) = parts(monitor, task);
            print_saved(&format!("{} {}", test.name, path.name), document, id);
            if let Some(why) = why {
                let run = format!("{} {}: run {id} is no result", test.name, path.name);
                output::note(&format!("{run}, a host was starved: {why}"));
            }
        }
        Ok(id)
    }

    fn describe(
        history: &History,
        points: &[Point],
        found: &ChangePoint,
    ) -> Result<Described, HistoryError> {
        let change = change(history, points, found.at, [found.before, found.after])?;
        let message = series_change(&points[found.at].metric, &change);
        let facts = change.beside.iter();
        let beside = facts.map(|(what, [was, is])| json!({"what": what, "was": was, "is": is}));
        Ok(Described { message, beside: beside.collect() })
    }

    fn post(to: &HttpUrl, json: &[u8]) -> Result<u16, String> {
        post(to, json).map_err(|error| format!("{error:#}"))
    }

    fn show(&mut self, monitor: &Monitor, schedule: &Schedule, health: &[Health]) {
        let metrics = metrics::page(monitor, schedule, health, since_1970_s());
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = metrics.page();
        self.receiver.iter().for_each(|to| to.send(&metrics));
    }
}

/// Prints a line for a run that was saved.
pub(crate) fn print_saved(what: &str, document: &dyn Document, run: i64) {
    let (at, answer) = (format_rfc3339_seconds(since_1970_s()), shown(&document.answer()));
    // The run is saved, whether or not anybody reads the line.
    let _ = output::print(&format!("{at} {what}: {answer} (run {run})\n"));
}

/// The runs of the next 24 hours, if each carries the most that it may.
fn forecast(monitor: &Monitor, history: Option<&History>) -> anyhow::Result<String> {
    let begin = since_1970_s();
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

//! A monitor: runs tests on a schedule, saves what they leave, tells the user of changes, and
//! deletes old runs.
//!
//! The history is the monitor's memory: which runs were last, how many bytes they carried, which
//! changes were told. The monitor can be killed at any moment: a run is in the history whole or not
//! at all, and one that is missing is made again.
//!
//! | module | what is in it |
//! |---|---|
//! | `alarm` | changes that are noted in the history, until each channel has told them |
//! | `history` | the runs of a monitor, the schedule after them; the deletion of old runs |

mod alarm;
mod history;

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use linerate_core::monitor::{HttpUrl, Monitor, Next, Outcome, Schedule, Task};
use linerate_core::stats::ChangePoint;
use linerate_history::{Filter, History, HistoryError, Point};
use linerate_sys::clock::since_boot;
use serde_json::Value;
use thiserror::Error;

use crate::clock::{since_1970_ns, since_1970_s};
use crate::stop::Stop;
use crate::words::Say;

pub use alarm::Described;
pub(crate) use history::Retention;
pub use history::{
    CARRIED, Health, PROOF, labels, of_one_metric, parts, proof_labels, remembered, until,
};

use alarm::{Alarms, NotedChange};
use history::{carried, remember, runs_of, runs_until};

/// Time between two looks at the clock, short enough to notice soon that the host slept.
const PAUSE: Duration = Duration::from_millis(500);
/// Period after which the monitor learns of others' runs, and of a clock that was set, and sends
/// metrics.
const SHOWN_EVERY: Duration = Duration::from_secs(60);
/// Most runs that are kept while the history cannot be written.
const MAX_UNSAVED: usize = 100;

/// What a monitor leaves to its caller: tests that leave documents, and all that is shown.
pub trait MonitorCaller {
    /// The document of a run.
    type Document;

    /// Runs a task; with `proof`, proves what limits its path now, by runs that carry so many bytes
    /// together at most.
    fn measure(
        &mut self,
        monitor: &Monitor,
        task: Task,
        proof: Option<u64>,
    ) -> Attempt<Self::Document>;

    /// What a proof has shown, as JSON and in words; `None` where its runs have shown nothing.
    fn proofs(document: &Self::Document) -> Option<(Value, String)>;

    /// Saves a run of a task, shows it, and returns its number. The history may have taken
    /// one that `is_tried` all the same.
    ///
    /// # Errors
    /// The history cannot be read or written.
    fn save(
        &mut self,
        history: &mut History,
        of: (&Monitor, Task),
        run: &MonitorRun<Self::Document>,
        is_tried: bool,
    ) -> Result<i64, HistoryError>;

    /// Describes a change of a series of runs.
    ///
    /// # Errors
    /// The history cannot be read.
    fn describe(
        history: &History,
        points: &[Point],
        found: &ChangePoint,
    ) -> Result<Described, HistoryError>;

    /// Posts JSON to a webhook, and returns the HTTP status of the answer.
    ///
    /// # Errors
    /// The server cannot be reached, in words.
    fn post(to: &HttpUrl, json: &[u8]) -> Result<u16, String>;

    /// Shows the state of all tasks.
    fn show(&mut self, monitor: &Monitor, schedule: &Schedule, health: &[Health]);
}

/// How an attempt to run a task has ended.
#[derive(Debug)]
pub enum Attempt<D> {
    /// A whole document.
    Done(MonitorRun<D>),
    /// The run ended before its time.
    Partial {
        /// The reason.
        why: String,
        /// Bytes that it carried.
        carried: u64,
    },
    /// There was no room for the run, and why.
    Busy(String),
    /// Nothing was measured, and why.
    Failed(String),
}

/// A run that was made.
#[derive(Debug)]
pub struct MonitorRun<D> {
    /// The document that it left.
    pub document: D,
    /// Bytes that the run carried, with its warm-up and its unmeasured parts: an estimate that is
    /// rather too high than too low.
    pub carried: u64,
    /// Whether it is a proof: its document is of several runs, of which the plain ones count.
    pub is_proof: bool,
}

/// Why a monitor ends.
#[derive(Debug, Error)]
pub enum MonitorError {
    /// No test is ever run again.
    #[error("every test carries more in one run than a day's budget: raise it")]
    Budget,
    /// The history could not be written to the end.
    #[error("runs that were not saved: {0}")]
    Unsaved(usize),
}

/// A monitor at work.
pub struct MonitorLoop<C: MonitorCaller> {
    /// What runs tests and shows them.
    pub caller: C,
    monitor: Monitor,
    schedule: Schedule,
    tasks: Vec<Task>,
    history: History,
    retention: Retention,
    alarms: Alarms,
    health: Vec<Health>,
    /// The last run that the schedule knows.
    seen: i64,
    /// The runs of this monitor after that one.
    own: Vec<i64>,
    /// Runs that are to be saved.
    unsaved: VecDeque<Unsaved<C::Document>>,
    /// Changes that are noted, to be proved before they are told, with the numbers of their tasks.
    changed: Vec<(usize, NotedChange)>,
    say: Say,
}

/// A run that is to be saved.
struct Unsaved<D> {
    /// The number of its task.
    number: usize,
    run: MonitorRun<D>,
    /// Whether an attempt has failed, in which the history may have taken it all the same.
    is_tried: bool,
}

impl<C: MonitorCaller> MonitorLoop<C> {
    /// Reads what the history knows of earlier runs. `owner` is who notes and tells the alarms:
    /// this host and the monitor's file.
    ///
    /// # Errors
    /// The history cannot be read.
    pub fn new(
        monitor: Monitor,
        history: History,
        owner: String,
        caller: C,
        say: Say,
    ) -> Result<Self, HistoryError> {
        let now = since_1970_s();
        // Before the schedule is made: runs that are saved in between are learned later.
        let seen = history.newest()?;
        let schedule = remembered(&monitor, &history, now)?;
        let tasks: Vec<Task> = schedule.tasks().collect();
        let mut health: Vec<Health> = tasks.iter().map(|_| Health::default()).collect();
        for (task, health) in tasks.iter().zip(&mut health) {
            health.update(&history, &runs_until(now, &monitor, *task))?;
        }
        Ok(Self {
            retention: Retention::new(monitor.keep_s, monitor.tests.iter().map(|it| it.every_s)),
            alarms: Alarms::new(owner, &monitor.alarm),
            caller,
            monitor,
            schedule,
            tasks,
            history,
            health,
            seen,
            own: Vec::new(),
            unsaved: VecDeque::new(),
            changed: Vec::new(),
            say,
        })
    }

    /// Runs tests until a request to stop; with `once` until those have run that are due.
    ///
    /// # Errors
    /// No test can ever run again, or runs could not be saved.
    pub fn run(&mut self, stop: &Stop, once: bool) -> Result<(), MonitorError> {
        let begun = self.now();
        while !stop.is_requested() {
            self.catch_up();
            self.prove_changes(stop);
            self.delete_old();
            self.tell();
            self.show();
            // What falls due meanwhile is not of this call: tests that take longer than their
            // interval would never let it end.
            let now = if once { begun } else { self.now() };
            match self.schedule.next(now) {
                Next::Run(number) => self.attempt(number, stop),
                Next::Wait(_) if once => break,
                Next::Wait(until) => {
                    let left = Duration::from_secs(until)
                        .saturating_sub(Duration::from_nanos(since_1970_ns()));
                    // By a clock that nobody sets: one that is put back does not make it longer.
                    let until = since_boot() + left.min(SHOWN_EVERY);
                    while since_boot() < until && !stop.is_requested() {
                        thread::sleep(PAUSE);
                    }
                }
                Next::Never => return Err(MonitorError::Budget),
            }
        }
        self.catch_up();
        self.tell();
        match self.unsaved.len() {
            0 => Ok(()),
            lost => Err(MonitorError::Unsaved(lost)),
        }
    }

    /// Shows the state of all tasks.
    pub fn show(&mut self) {
        self.caller.show(&self.monitor, &self.schedule, &self.health);
    }

    /// The time, which the schedule is told, too.
    fn now(&mut self) -> u64 {
        let now = since_1970_s();
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
            let mut others = carried(&self.history, &newer)?;
            // A run that was saved meanwhile is looked at the next time.
            others.retain(|(run, _)| !self.own.contains(&run.run) && run.run <= newest);
            if !others.is_empty() {
                let runs = runs_until(now, &self.monitor, *task);
                self.health[number].update(&self.history, &runs)?;
            }
            remember(&mut self.schedule, number, &others);
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
            (self.say)(&format!("{error}; tried again"));
        }
    }

    /// Deletes the runs of this monitor that are older than `keep` of its file.
    fn delete_old(&mut self) {
        let runs: Vec<Filter> =
            self.tasks.iter().map(|task| runs_of(&self.monitor, *task)).collect();
        self.retention.delete_old(&mut self.history, &runs, &self.say);
    }

    /// Runs a task, saves its document, and looks for a change.
    fn attempt(&mut self, number: usize, stop: &Stop) {
        let task = self.tasks[number];
        let outcome = match self.caller.measure(&self.monitor, task, None) {
            // The task is due again when the monitor is started again.
            Attempt::Busy(_) | Attempt::Failed(_) if stop.is_requested() => return,
            Attempt::Done(run) => {
                let carried = run.carried;
                self.unsaved.push_back(Unsaved { number, run, is_tried: false });
                self.save_all();
                Outcome::Done(carried)
            }
            Attempt::Partial { why, carried } => {
                self.tell_of(task, &format!("not saved: ended before its time: {why}"));
                Outcome::Failed(carried)
            }
            Attempt::Busy(why) => {
                self.tell_of(task, &format!("{why}; asked again in a minute"));
                Outcome::Busy
            }
            Attempt::Failed(why) => {
                self.tell_of(task, &why);
                Outcome::Failed(0)
            }
        };
        self.health[number].count(outcome);
        let now = self.now();
        self.schedule.finished(now, outcome);
        if self.schedule.ready_at(number, now).is_none() {
            self.tell_of(task, "carries more in one run than a day's budget: it is not run again");
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
                self.tell_of(task, &format!("not saved, and not tried again: {error}"));
                continue;
            }
            run.is_tried = true;
            self.unsaved.push_back(run);
            let count = self.unsaved.len();
            let why = format!("{error}; runs that wait to be saved: {count}, max {MAX_UNSAVED}");
            self.tell_of(task, &why);
            if count > MAX_UNSAVED
                && let Some(lost) = self.unsaved.pop_front()
            {
                self.tell_of(self.tasks[lost.number], "the run that waited longest is lost");
            }
            return false;
        }
        true
    }

    /// Saves a run, and looks for a change.
    fn save(&mut self, unsaved: &Unsaved<C::Document>) -> Result<(), HistoryError> {
        let Unsaved { number, run, is_tried } = unsaved;
        let task = self.tasks[*number];
        let of = (&self.monitor, task);
        self.own.push(self.caller.save(&mut self.history, of, run, *is_tried)?);
        if let Err(error) = self.look(*number) {
            self.tell_of(task, &format!("changes: {error}; looked for after the next run"));
        }
        Ok(())
    }

    /// Looks at the last run of a task: its figures, and whether they have changed.
    fn look(&mut self, number: usize) -> Result<(), HistoryError> {
        let task = self.tasks[number];
        let runs = runs_until(since_1970_s(), &self.monitor, task);
        self.health[number].update(&self.history, &runs)?;
        let of = parts(&self.monitor, task);
        if let Some(change) = self.alarms.look(&mut self.history, of, runs, C::describe)? {
            self.tell_of(task, &change.message);
            self.health[number].changes += 1;
            self.changed.push((number, change));
        }
        Ok(())
    }

    /// Proves what limits the paths now whose bulk tests have changed. A change that is not proved
    /// is told all the same.
    fn prove_changes(&mut self, stop: &Stop) {
        while let Some((number, change)) = self.changed.pop() {
            let runs = parts(&self.monitor, self.tasks[number]).0.work.proof_runs();
            let Some(runs) = runs.filter(|_| self.monitor.alarm.prove) else {
                continue;
            };
            let task = self.tasks[number];
            if let Err(why) = self.prove(number, runs, change, stop) {
                self.tell_of(task, &format!("what limits the path now is not proved: {why}"));
            }
        }
    }

    /// Makes and saves the runs of a proof, and adds to the alarm what they have shown.
    fn prove(
        &mut self,
        number: usize,
        runs: u64,
        change: NotedChange,
        stop: &Stop,
    ) -> Result<(), String> {
        let task = self.tasks[number];
        let now = self.now();
        if stop.is_requested() {
            return Err("the monitor ends".to_owned());
        }
        let left = self.schedule.room(number, now, runs);
        let room = left.ok_or("budgets or quiet hours leave no room for it")?;
        let attempt = self.caller.measure(&self.monitor, task, Some(room));
        let now = self.now();
        let run = match attempt {
            Attempt::Done(run) => run,
            Attempt::Partial { why, carried } => {
                self.schedule.remember_proof(number, now, carried);
                return Err(why);
            }
            Attempt::Busy(why) | Attempt::Failed(why) => return Err(why),
        };
        self.schedule.remember_proof(number, now, run.carried);
        let proofs = C::proofs(&run.document);
        self.unsaved.push_back(Unsaved { number, run, is_tried: false });
        let saved = self.save_all().then(|| self.own.last().copied()).flatten();
        let (now, words) = proofs.ok_or("its runs show nothing")?;
        self.tell_of(task, &format!("now: {words}"));
        let amended = self.alarms.amend(&mut self.history, change, (now, &words), saved);
        amended.map_err(|error| error.to_string())
    }

    /// Tells the user the changes that were not told yet.
    fn tell(&mut self) {
        if let Err(error) = self.alarms.tell(&mut self.history, since_boot(), &self.say, C::post) {
            (self.say)(&format!("alarm: {error}; tried again in a minute"));
        }
    }

    fn tell_of(&self, task: Task, what: &str) {
        let (test, path) = parts(&self.monitor, task);
        (self.say)(&format!("{} {}: {what}", test.name, path.name));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use linerate_core::units::format_rfc3339_seconds;
    use linerate_history::{NewRun, Place};

    use super::*;

    /// A caller whose runs all have 50 Mbit/s, and whose proofs are made or refused.
    #[derive(Default)]
    struct Steady {
        refuses: bool,
        /// The bytes that each proof was allowed.
        proofs: Vec<u64>,
    }

    impl MonitorCaller for Steady {
        type Document = f64;

        fn measure(&mut self, _: &Monitor, _: Task, proof: Option<u64>) -> Attempt<f64> {
            self.proofs.extend(proof);
            let is_proof = proof.is_some();
            if is_proof && self.refuses {
                return Attempt::Failed("refused".to_owned());
            }
            let carried = if is_proof { 9000 } else { 1000 };
            Attempt::Done(MonitorRun { document: 50e6, carried, is_proof })
        }

        fn proofs(_: &f64) -> Option<(Value, String)> {
            Some(("proved".into(), "receive window, proved".to_owned()))
        }

        fn save(
            &mut self,
            history: &mut History,
            (monitor, task): (&Monitor, Task),
            run: &MonitorRun<f64>,
            _: bool,
        ) -> Result<i64, HistoryError> {
            let labels = if run.is_proof { proof_labels } else { labels }(monitor, task);
            save(history, since_1970_s(), [run.document, run.carried as f64], &labels)
        }

        fn describe(_: &History, _: &[Point], _: &ChangePoint) -> Result<Described, HistoryError> {
            Ok(Described { message: "slower".to_owned(), beside: Vec::new() })
        }

        fn post(_: &HttpUrl, _: &[u8]) -> Result<u16, String> {
            Err("away".to_owned())
        }

        fn show(&mut self, _: &Monitor, _: &Schedule, _: &[Health]) {}
    }

    fn save(
        history: &mut History,
        at_s: u64,
        [rate, carried]: [f64; 2],
        labels: &[(String, String)],
    ) -> Result<i64, HistoryError> {
        let started_at = format_rfc3339_seconds(at_s);
        let figures = [("throughput_bps".to_owned(), rate), (CARRIED.to_owned(), carried)];
        history.save(&saved_run(&started_at, &figures, labels))
    }

    fn quiet() -> Say {
        Arc::new(|_: &str| {})
    }

    const FILE: &str = r#"
[[path]]
name = "loop"
host = "pit"
[[test]]
name = "asks"
every = "1h"
workload = { command = "stream" }
[alarm]
webhook = "http://hooks/"
"#;

    /// A monitor whose series of 90 Mbit/s has had five runs of 50 Mbit/s at last.
    fn changed(file: &str, caller: Steady) -> MonitorLoop<Steady> {
        let monitor = Monitor::from_toml(file, 1).unwrap();
        let mut history = linerate_history::in_memory().unwrap();
        let task = Task { test: 0, path: 0 };
        let before = since_1970_s() - 2 * 86_400;
        for number in 0..45 {
            let rate = if number < 40 { 90e6 } else { 50e6 } + f64::from(number);
            let at_s = before + 60 * number as u64;
            save(&mut history, at_s, [rate, 1000.0], &labels(&monitor, task)).unwrap();
        }
        MonitorLoop::new(monitor, history, "pit".to_owned(), caller, quiet()).unwrap()
    }

    /// The changes that the webhook was not told, since it is away.
    fn told(watch: &MonitorLoop<Steady>) -> Vec<Value> {
        let untold = watch.history.untold("pit", "webhook").unwrap().into_iter();
        untold.map(|it| serde_json::from_str(&it.change).unwrap()).collect()
    }

    #[test]
    fn a_change_is_proved_once_and_the_alarm_and_the_history_have_the_proof() {
        let mut watch = changed(FILE, Steady::default());
        watch.run(&Stop::new(), true).unwrap();
        assert_eq!(watch.caller.proofs, [u64::MAX]);
        let alarm = &told(&watch)[0];
        assert_eq!((&alarm["now"], &alarm["proof_run"]), (&"proved".into(), &47.into()));
        assert_eq!(alarm["message"], "asks to loop: slower; now: receive window, proved");
        assert_eq!(watch.history.labels(47).unwrap()[PROOF], "change");
        assert_eq!(watch.schedule.carried_by(0), 10_000);
        let again = remembered(&watch.monitor, &watch.history, since_1970_s()).unwrap();
        assert_eq!(again.carried_by(0), 10_000, "also after a restart");
        for _ in 0..10 {
            watch.attempt(0, &Stop::new());
            watch.prove_changes(&Stop::new());
        }
        assert_eq!((told(&watch).len(), watch.caller.proofs.len()), (1, 1));
    }

    #[test]
    fn a_change_that_is_not_proved_is_told_all_the_same() {
        let off = format!("{FILE}prove = false\n");
        // Room for some runs of 1000 bytes, not for twelve.
        let poor = format!("bytes-per-day = \"9kB\"\n{FILE}");
        let stopping = Stop::new();
        for (file, refuses, stop, proofs) in [
            (FILE, true, &Stop::new(), 1),
            (&off, false, &Stop::new(), 0),
            (&poor, false, &Stop::new(), 0),
            (FILE, false, &stopping, 0),
        ] {
            let mut watch = changed(file, Steady { refuses, ..Steady::default() });
            watch.attempt(0, stop);
            stopping.request();
            watch.prove_changes(stop);
            watch.tell();
            let told = told(&watch);
            assert_eq!((told.len(), watch.caller.proofs.len()), (1, proofs), "{file}");
            assert_eq!(told[0]["message"], "asks to loop: slower");
            assert!(told[0]["now"].is_null(), "{file}");
        }
    }

    /// A run of the test `asks`, as a monitor saves it.
    pub(super) fn saved_run<'a>(
        started_at: &'a str,
        figures: &'a [(String, f64)],
        labels: &'a [(String, String)],
    ) -> NewRun<'a> {
        NewRun {
            started_at,
            schema: "linerate.record/1",
            path: "pit",
            workload: "rr",
            detail: "tcp",
            series: "asks to loop",
            answer: "",
            cause: None,
            figures,
            pairs: &[],
            labels,
            document: "{}",
        }
    }

    #[test]
    fn a_run_that_was_started_elsewhere_counts_in_budget_schedule_and_metrics() {
        let directory = tempfile::tempdir().unwrap();
        let beside = directory.path().join("h.db");
        let place = Place::from(&*beside);
        let text = "[[path]]\nname = \"loop\"\nhost = \"pit\"\n[[test]]\nname = \"asks\"\n\
             every = \"1h\"\nworkload = { command = \"rr\" }\n";
        let monitor = Monitor::from_toml(text, 1).unwrap();
        let history = linerate_history::open(&place).unwrap();
        let caller = Steady::default();
        let mut watch = MonitorLoop::new(monitor, history, String::new(), caller, quiet()).unwrap();
        assert!(
            watch.schedule.ready_at(0, since_1970_s()).unwrap() <= since_1970_s(),
            "it never ran"
        );
        let carried = [("transactions_per_s".to_owned(), 7.0), (CARRIED.to_owned(), 1e6)];
        let mut elsewhere = linerate_history::open(&place).unwrap();
        let mut save = || {
            let started_at = format_rfc3339_seconds(since_1970_s());
            let labels = labels(&watch.monitor, watch.tasks[0]);
            elsewhere.save(&saved_run(&started_at, &carried, &labels)).unwrap()
        };
        save();
        let own = save();
        watch.own = vec![own];
        for _ in 0..2 {
            watch.learn().unwrap();
            assert_eq!(watch.schedule.carried_by(0), 1_000_000);
        }
        assert!(watch.schedule.ready_at(0, since_1970_s()).unwrap() > since_1970_s());
        assert_eq!(watch.health[0].figures[0], ("transactions_per_s".to_owned(), 7.0));
    }
}

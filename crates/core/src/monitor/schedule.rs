//! The schedule of a monitor: which test runs next, and when.
//!
//! Each task has slots: every so often since 1970, each later by a jitter of its own. A task is due
//! at its first slot after its last run; slots that were missed, because this host slept or another
//! test ran, are made up by one run. Quiet hours and budgets make a run later, never earlier.

use super::file::Monitor;
use super::keys::{DAY_S, QuietHours};
use crate::units::SplitMix64;

/// A test on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// Index in [`Monitor::tests`].
    pub test: usize,
    /// Index in [`Monitor::paths`].
    pub path: usize,
}

/// The next step of a monitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Run the task of this index, and then say [`Schedule::finished`].
    Run(usize),
    /// Wait until then, seconds since 1970.
    Wait(u64),
    /// No task can ever run: each run carries more than its budget.
    Never,
}

/// The outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded and carried this many bytes.
    Done(u64),
    /// It failed and may have carried this many bytes; its slot is used up.
    Failed(u64),
    /// The endpoint had no room: it is tried again soon.
    Busy,
}

/// The tasks of a monitor, and their past runs.
#[derive(Debug, Clone)]
pub struct Schedule {
    tasks: Vec<PlannedTask>,
    quiet: Vec<QuietHours>,
    bytes_per_day: Option<u64>,
    /// Time, path and bytes of each run of the last 24 hours.
    carried: Vec<(u64, usize, u64)>,
    /// The task that runs, and when it began.
    running: Option<(usize, u64)>,
    /// How far the wall clock is ahead of the monotonic one, seconds.
    ahead_s: Option<i64>,
}

#[derive(Debug, Clone)]
struct PlannedTask {
    task: Task,
    every_s: u64,
    jitter_s: u64,
    seed: u64,
    takes_s: u64,
    /// The most a run may carry: by its options, else the largest run so far.
    most_bytes: Option<u64>,
    bytes_per_day: Option<u64>,
    last: Option<u64>,
    not_before: u64,
}

impl Schedule {
    /// The schedule of a monitor that has not run anything.
    pub fn new(monitor: &Monitor) -> Self {
        let mut tasks = Vec::new();
        for (number, test) in monitor.tests.iter().enumerate() {
            for &path in &test.paths {
                let own = &monitor.paths[path];
                let seed = monitor.seed.wrapping_add(tasks.len() as u64);
                tasks.push(PlannedTask {
                    task: Task { test: number, path },
                    every_s: test.every_s,
                    jitter_s: test.jitter_s,
                    seed: SplitMix64::new(seed).draw(),
                    takes_s: test.work.seconds(),
                    most_bytes: test.work.most_bytes(own.rate),
                    bytes_per_day: own.bytes_per_day,
                    last: None,
                    not_before: 0,
                });
            }
        }
        Self {
            tasks,
            quiet: monitor.quiet.clone(),
            bytes_per_day: monitor.bytes_per_day,
            carried: Vec::new(),
            running: None,
            ahead_s: None,
        }
    }

    /// All tasks, in the order of the file.
    pub fn tasks(&self) -> impl ExactSizeIterator<Item = Task> {
        self.tasks.iter().map(|planned| planned.task)
    }

    /// Takes the time by the wall clock, which can be set, and by one that cannot, both in seconds.
    /// To be called before each other call with a time. Where the wall clock was set, all times that
    /// are known move with it: a run that was a minute ago is still a minute ago.
    pub fn synchronize(&mut self, now: u64, monotonic: u64) {
        let ahead_s = now.cast_signed() - monotonic.cast_signed();
        let set_by = ahead_s - self.ahead_s.replace(ahead_s).unwrap_or(ahead_s);
        // Less is the rounding of both, or a clock that is made to go faster for a while.
        if set_by.unsigned_abs() < MIN_SET_S {
            return;
        }
        let planned = self.tasks.iter_mut();
        let of_tasks = planned.flat_map(|it| it.last.iter_mut().chain([&mut it.not_before]));
        let carried = self.carried.iter_mut().map(|(then, ..)| then);
        let running = self.running.iter_mut().map(|(_, began)| began);
        for time in of_tasks.chain(carried).chain(running) {
            *time = time.saturating_add_signed(set_by);
        }
        // The slots of the new time may be anywhere between those of the old one.
        for (number, task) in self.tasks.iter_mut().enumerate() {
            let running = self.running.filter(|(task, _)| *task == number);
            if let Some(last) = running.map(|(_, began)| began).or(task.last) {
                let soonest = last + task.every_s - task.jitter_s;
                task.not_before = task.not_before.max(soonest);
            }
        }
    }

    /// A run that was saved before: when it began, and what it carried. The oldest first.
    pub fn remember(&mut self, task: usize, at: u64, bytes: u64) {
        let last = &mut self.tasks[task].last;
        *last = (*last).max(Some(at));
        self.enter(task, at, bytes);
    }

    /// A proof that was made before: what it carried is no measure of what a run carries.
    pub fn remember_proof(&mut self, task: usize, at: u64, bytes: u64) {
        let most = self.tasks[task].most_bytes;
        self.remember(task, at, bytes);
        self.tasks[task].most_bytes = most;
    }

    /// The next step.
    pub fn next(&mut self, now: u64) -> Next {
        debug_assert!(self.running.is_none(), "one test at a time");
        self.forget(now);
        let ready = |task: usize| Some((self.ready_at(task, now)?, self.due_at(task, now), task));
        match (0..self.tasks.len()).filter_map(ready).min() {
            Some((at, _, task)) if at <= now => {
                self.running = Some((task, now));
                Next::Run(task)
            }
            Some((at, _, _)) => Next::Wait(at),
            None => Next::Never,
        }
    }

    /// The task that was to run has ended.
    pub fn finished(&mut self, now: u64, outcome: Outcome) {
        let Some((task, began)) = self.running.take() else {
            return;
        };
        match outcome {
            Outcome::Done(bytes) | Outcome::Failed(bytes) => {
                self.tasks[task].last = Some(began);
                self.enter(task, now, bytes);
            }
            Outcome::Busy => self.tasks[task].not_before = now + BUSY_PAUSE_S,
        }
    }

    /// The expected time of a task's next run; `None` if it can never run.
    pub fn ready_at(&self, task: usize, now: u64) -> Option<u64> {
        let planned = &self.tasks[task];
        let mut at = self.due_at(task, now).max(planned.not_before).max(now);
        // Quiet hours may end when the budget is spent, and the other way round.
        loop {
            let later = self.after_quiet(at, planned.takes_s)?;
            let later = self.within_budgets(task, later)?;
            if later == at {
                return Some(at);
            }
            at = later;
        }
    }

    /// The bytes that the tests of a path carried in the last 24 hours.
    pub fn carried_by(&self, path: usize) -> u64 {
        let own = self.carried.iter().filter(|(_, of, _)| *of == path);
        own.map(|(_, _, bytes)| bytes).sum()
    }

    /// The first slot after the last run; a task that never ran is due at once.
    fn due_at(&self, task: usize, now: u64) -> u64 {
        let planned = &self.tasks[task];
        let Some(last) = planned.last else {
            return 0;
        };
        let last = last.min(now);
        let first = (last / planned.every_s).saturating_sub(1);
        let mut slots = (first..).map(|number| planned.slot(number));
        slots.find(|slot| *slot > last).unwrap_or(u64::MAX)
    }

    /// The first moment from `at` on at which a run that takes so long is over before it is quiet.
    fn after_quiet(&self, at: u64, takes_s: u64) -> Option<u64> {
        let mut free = at;
        // Each turn goes to the end of one of them; a day has no more ends.
        for _ in 0..=self.quiet.len() {
            let mut quiet = self.quiet.iter();
            let Some(end) = quiet.find_map(|it| it.ends_after(free, takes_s)) else {
                return Some(free);
            };
            free = end;
        }
        None
    }

    /// The first moment from `at` on at which the budgets have room for one more run; `None` if
    /// they never have.
    pub fn within_budgets(&self, task: usize, at: u64) -> Option<u64> {
        let planned = &self.tasks[task];
        let path = planned.task.path;
        let needs = planned.most_bytes;
        let of_path = self.room_at(planned.bytes_per_day, needs, at, |of| of == path)?;
        self.room_at(self.bytes_per_day, needs, of_path, |_| true)
    }

    /// The bytes that may be carried now beside the schedule; `None` where the budgets have no room
    /// for so many runs of a task, or quiet hours begin before they would be over.
    pub fn room(&self, task: usize, now: u64, runs: u64) -> Option<u64> {
        let planned = &self.tasks[task];
        let all = self.carried.iter().map(|(_, _, bytes)| bytes).sum();
        let of_path = self.carried_by(planned.task.path);
        let budgets = [(planned.bytes_per_day, of_path), (self.bytes_per_day, all)];
        let left = budgets.map(|(budget, carried)| Some(budget?.saturating_sub(carried)));
        let room = left.into_iter().flatten().min().unwrap_or(u64::MAX);
        let needs = planned.most_bytes.unwrap_or(0).saturating_mul(runs);
        let is_quiet = self.after_quiet(now, planned.takes_s * runs) != Some(now);
        (needs <= room && !is_quiet).then_some(room)
    }

    fn room_at(
        &self,
        budget: Option<u64>,
        needs: Option<u64>,
        at: u64,
        counts: impl Fn(usize) -> bool,
    ) -> Option<u64> {
        let Some(budget) = budget else {
            return Some(at);
        };
        // The first run of a test tells what it carries: there must be room for something.
        let most_before = budget.checked_sub(needs.unwrap_or(1))?;
        let runs = self.carried.iter().filter(|(_, path, _)| counts(*path));
        let spent = |at: u64| -> u64 {
            let inside = runs.clone().filter(|(then, _, _)| then + DAY_S > at);
            inside.map(|(_, _, bytes)| bytes).sum()
        };
        let leaves = runs.clone().map(|(then, _, _)| (then + DAY_S).max(at));
        let mut moments: Vec<u64> = [at].into_iter().chain(leaves).collect();
        moments.sort_unstable();
        let mut moments = moments.into_iter();
        moments.find(|moment| spent(*moment) <= most_before)
    }

    fn enter(&mut self, task: usize, at: u64, bytes: u64) {
        let planned = &mut self.tasks[task];
        planned.most_bytes = Some(planned.most_bytes.map_or(bytes, |most| most.max(bytes)));
        let path = planned.task.path;
        // A minute's runs of a path are one: they are forgotten when the last of them is.
        match self.carried.last_mut() {
            Some((then, of, sum)) if *of == path && *then / 60 == at / 60 => {
                *then = at.max(*then);
                *sum += bytes;
            }
            _ => self.carried.push((at, path, bytes)),
        }
    }

    fn forget(&mut self, now: u64) {
        // Runs of the future were saved by a wrong clock: they count as runs of now, not until then.
        let lasts = self.tasks.iter_mut().filter_map(|it| it.last.as_mut());
        for time in lasts.chain(self.carried.iter_mut().map(|(then, ..)| then)) {
            *time = now.min(*time);
        }
        self.carried.retain(|(then, _, _)| then + DAY_S > now);
    }
}

impl PlannedTask {
    fn slot(&self, number: u64) -> u64 {
        let late = SplitMix64::new(self.seed ^ number).below(self.jitter_s + 1);
        number * self.every_s + late
    }
}

/// Least seconds by which a clock was set.
const MIN_SET_S: u64 = 60;
/// Pause before an endpoint that had no room is tried again, seconds.
const BUSY_PAUSE_S: u64 = 60;

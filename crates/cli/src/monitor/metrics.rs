//! What a monitor tells Prometheus: the last results, and how it is itself.

use linerate_core::monitor::{Monitor, Outcome, Schedule, Task};
use linerate_history::{Filter, History, HistoryError};
use linerate_report::metrics::{Kind, Metrics};

use super::{labels, parts};

/// What is known of a task: its last run that was saved, and how its runs ended since the start.
#[derive(Debug, Default)]
pub(super) struct Health {
    figures: Vec<(String, f64)>,
    cause: Option<String>,
    at_s: u64,
    saved: u64,
    failed: u64,
    busy: u64,
    pub(super) changes: u64,
}

impl Health {
    /// The last run of those that the history has.
    pub(super) fn new(history: &History, runs: &Filter) -> Result<Self, HistoryError> {
        let last = Filter {
            most: Some(1),
            ..runs.clone()
        };
        let Some(run) = history.list(&last)?.pop() else {
            return Ok(Self::default());
        };
        Ok(Self {
            figures: history.figures(run.id)?,
            cause: run.cause,
            at_s: run.at_s,
            ..Self::default()
        })
    }

    /// With the counters of what was known before.
    pub(super) fn after(self, before: &Self) -> Self {
        Self {
            saved: before.saved,
            failed: before.failed,
            busy: before.busy,
            changes: before.changes,
            ..self
        }
    }

    pub(super) fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Done(_) => self.saved += 1,
            Outcome::Failed(_) => self.failed += 1,
            Outcome::Busy => self.busy += 1,
        }
    }
}

/// All of them.
pub(super) fn page(monitor: &Monitor, schedule: &Schedule, health: &[Health], now: u64) -> Metrics {
    let mut page = Metrics::default();
    let all: Vec<(Vec<(String, String)>, &Health)> = schedule
        .tasks()
        .zip(health)
        .map(|(task, health)| (labels(monitor, task), health))
        .collect();
    for (name, pick) in GAUGES {
        page.family(name, Kind::Gauge, pick.help);
        for (labels, health) in &all {
            (pick.samples)(health)
                .into_iter()
                .for_each(|(extra, value)| {
                    page.sample(plain(labels).chain(extra), value);
                });
        }
    }
    own(&mut page, monitor, schedule, health, now);
    page
}

fn plain(labels: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    labels
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
}

type Samples = for<'a> fn(&'a Health) -> Vec<(Option<(&'a str, &'a str)>, f64)>;

struct Pick {
    help: &'static str,
    samples: Samples,
}

/// Of the last run of each test on each path, with the labels of the path.
const GAUGES: [(&str, Pick); 3] = [
    (
        "linerate_result",
        Pick {
            help: "Figures of the last run, in the unit that their name ends in.",
            samples: |health| {
                let figures = health.figures.iter();
                figures
                    .map(|(name, value)| (Some(("figure", name.as_str())), *value))
                    .collect()
            },
        },
    ),
    (
        "linerate_verdict",
        Pick {
            help: "1 for the bottleneck that the last run names.",
            samples: |health| {
                let cause = health.cause.iter();
                cause
                    .map(|cause| (Some(("cause", cause.as_str())), 1.0))
                    .collect()
            },
        },
    ),
    (
        "linerate_result_timestamp_seconds",
        Pick {
            help: "When the last run began that was saved.",
            samples: |health| {
                (health.at_s > 0)
                    .then_some((None, health.at_s as f64))
                    .into_iter()
                    .collect()
            },
        },
    ),
];

/// The monitor itself.
fn own(page: &mut Metrics, monitor: &Monitor, schedule: &Schedule, health: &[Health], now: u64) {
    let tasks: Vec<Task> = schedule.tasks().collect();
    let names = |task: &Task| {
        let (test, path) = parts(monitor, *task);
        [("test", test.name.as_str()), ("path", path.name.as_str())]
    };
    page.family(
        "linerate_monitor_runs_total",
        Kind::Counter,
        "Runs since the monitor began, by how they ended.",
    );
    for (task, health) in tasks.iter().zip(health) {
        let counts = [
            ("saved", health.saved),
            ("failed", health.failed),
            ("busy", health.busy),
        ];
        for (outcome, count) in counts {
            page.sample(
                names(task).into_iter().chain([("outcome", outcome)]),
                count as f64,
            );
        }
    }
    page.family(
        "linerate_monitor_changes_total",
        Kind::Counter,
        "Changes that were noticed since the monitor began.",
    );
    for (task, health) in tasks.iter().zip(health) {
        page.sample(names(task), health.changes as f64);
    }
    page.family(
        "linerate_monitor_next_run_timestamp_seconds",
        Kind::Gauge,
        "When the next run is due, after quiet hours and within budgets.",
    );
    for (number, task) in tasks.iter().enumerate() {
        if let Some(at) = schedule.ready_at(number, now) {
            page.sample(names(task), at as f64);
        }
    }
    page.family(
        "linerate_monitor_carried_bytes",
        Kind::Gauge,
        "What the tests of a path have carried in the last 24 hours.",
    );
    for (number, path) in monitor.paths.iter().enumerate() {
        page.sample(
            [("path", path.name.as_str())],
            schedule.carried_by(number) as f64,
        );
    }
    page.family(
        "linerate_build_info",
        Kind::Gauge,
        "1, with the version of the program.",
    );
    page.sample([("version", env!("CARGO_PKG_VERSION"))], 1.0);
}

/// Of a single run: what the module of a probe has measured.
pub(super) fn probed(figures: &[(String, f64)], cause: Option<&str>, seconds: f64) -> String {
    let mut page = Metrics::default();
    let is_measured = if figures.is_empty() { 0.0 } else { 1.0 };
    page.family(
        "linerate_probe_success",
        Kind::Gauge,
        "Whether the test was run to its end.",
    );
    page.sample([], is_measured);
    page.family(
        "linerate_probe_duration_seconds",
        Kind::Gauge,
        "How long the probe took.",
    );
    page.sample([], seconds);
    page.family("linerate_result", Kind::Gauge, GAUGES[0].1.help);
    for (name, value) in figures {
        page.sample([("figure", name.as_str())], *value);
    }
    page.family(
        "linerate_verdict",
        Kind::Gauge,
        "1 for the bottleneck that the run names.",
    );
    if let Some(cause) = cause {
        page.sample([("cause", cause)], 1.0);
    }
    page.page()
}

//! The metrics that a monitor offers to Prometheus: the last results, and how the monitor itself is
//! doing.

use linerate_core::monitor::{Monitor, Schedule};
use linerate_engine::monitor::{Health, labels, parts};
use linerate_report::metrics::{Kind, Metrics};

/// All metrics of a monitor at a time, in seconds since 1970.
pub(super) fn page(monitor: &Monitor, schedule: &Schedule, health: &[Health], now: u64) -> Metrics {
    let mut page = Metrics::default();
    let labels: Vec<_> = schedule.tasks().map(|task| labels(monitor, task)).collect();
    let all = || labels.iter().map(Vec::as_slice).zip(health);
    let runs = all().map(|(labels, it)| (labels, &*it.figures, it.cause.as_deref()));
    add_runs(&mut page, "1 for the bottleneck that the last run names.", &runs.collect::<Vec<_>>());
    let name = "linerate_result_timestamp_seconds";
    page.family(name, Kind::Gauge, "When the last saved run began.");
    for (labels, health) in all().filter(|(_, health)| health.at_s > 0) {
        page.sample(pairs(labels), health.at_s as f64);
    }
    own(&mut page, monitor, schedule, health, now);
    page
}

fn pairs(labels: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> + Clone {
    labels.iter().map(|(key, value)| (&**key, &**value))
}

/// The metrics of the monitor itself.
fn own(page: &mut Metrics, monitor: &Monitor, schedule: &Schedule, health: &[Health], now: u64) {
    let names: Vec<_> = schedule
        .tasks()
        .map(|task| parts(monitor, task))
        .map(|(test, path)| [("test", &*test.name), ("path", &*path.name)])
        .collect();
    let help = "Runs since the monitor began, by how they ended.";
    page.family("linerate_monitor_runs_total", Kind::Counter, help);
    for (names, health) in names.iter().zip(health) {
        let Health { saved, failed, busy, .. } = health;
        for (outcome, count) in [("saved", saved), ("failed", failed), ("busy", busy)] {
            page.sample(names.iter().copied().chain([("outcome", outcome)]), *count as f64);
        }
    }
    let help = "Changes that were noticed since the monitor began.";
    page.family("linerate_monitor_changes_total", Kind::Counter, help);
    for (names, health) in names.iter().zip(health) {
        page.sample(*names, health.changes as f64);
    }
    let name = "linerate_monitor_next_run_timestamp_seconds";
    let help = "When the next run is due, after quiet hours and within budgets.";
    page.family(name, Kind::Gauge, help);
    for (number, names) in names.iter().enumerate() {
        if let Some(at) = schedule.ready_at(number, now) {
            page.sample(*names, at as f64);
        }
    }
    let help = "Bytes that the tests of a path have carried in the last 24 hours.";
    page.family("linerate_monitor_carried_bytes", Kind::Gauge, help);
    for (number, path) in monitor.paths.iter().enumerate() {
        page.sample([("path", &*path.name)], schedule.carried_by(number) as f64);
    }
    let help = "1, with the version of the program.";
    page.family("linerate_build_info", Kind::Gauge, help);
    page.sample([("version", env!("CARGO_PKG_VERSION"))], 1.0);
}

/// The metrics of one probe.
pub(super) fn probed(figures: &[(String, f64)], cause: Option<&str>, seconds: f64) -> String {
    let mut page = Metrics::default();
    let help = "Whether the test was run to its end.";
    page.family("linerate_probe_success", Kind::Gauge, help);
    page.sample([], f64::from(u8::from(!figures.is_empty())));
    page.family("linerate_probe_duration_seconds", Kind::Gauge, "How long the probe took.");
    page.sample([], seconds);
    add_runs(&mut page, OF_RUN, &[(&[], figures, cause)]);
    page.page()
}

/// The metrics of one run: its figures and its bottleneck.
pub(crate) fn of_run(
    labels: &[(String, String)],
    figures: &[(String, f64)],
    cause: Option<&str>,
) -> Metrics {
    let mut metrics = Metrics::default();
    add_runs(&mut metrics, OF_RUN, &[(labels, figures, cause)]);
    metrics
}

const OF_RUN: &str = "1 for the bottleneck that the run names.";

/// A run's labels, figures and bottleneck.
type RunMetrics<'a> = (&'a [(String, String)], &'a [(String, f64)], Option<&'a str>);

/// Adds the results and the bottlenecks of runs; `help` says what a bottleneck's sample is.
fn add_runs(page: &mut Metrics, help: &'static str, runs: &[RunMetrics<'_>]) {
    let of_figures = "Figures of the last run, in the unit that their name ends in.";
    page.family("linerate_result", Kind::Gauge, of_figures);
    for (labels, figures, _) in runs {
        for (figure, value) in *figures {
            page.sample(pairs(labels).chain([("figure", &**figure)]), *value);
        }
    }
    page.family("linerate_verdict", Kind::Gauge, help);
    for (labels, _, cause) in runs {
        if let Some(cause) = cause {
            page.sample(pairs(labels).chain([("cause", *cause)]), 1.0);
        }
    }
}

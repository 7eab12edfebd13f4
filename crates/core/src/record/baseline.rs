//! Compares a document with an earlier one of the same kind.
//!
//! Runs at different times are observations, since other things may have changed between them. So
//! there are changes, but no verdict.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::{Cause, Check, Interval, Record, Status, Sweep, median_run};
use crate::plan::{Direction, Test, Traffic};
use crate::stats::{Figure, LatencySummary, interval_of_runs, usual_difference};

/// The changes since an earlier document. They are observations: runs at different times also
/// differ by accident.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Baseline {
    /// Start of the earlier document, RFC 3339.
    #[serde(deserialize_with = "crate::units::deserialize_rfc3339")]
    pub started_at: String,
    /// Each figure that is in both, the headlines first.
    pub changes: Vec<Change>,
    /// The bottlenecks, if both have one.
    pub bottlenecks: Vec<BottleneckChange>,
}

/// A figure in both documents.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Its path in the document; with several sizes followed by `@` and the size, bytes. For a
    /// comparison the metric's path and `effect_percent`.
    pub metric: String,
    /// The earlier value: the median, if there were several runs.
    pub was: f64,
    /// The new value.
    pub is: f64,
    /// The change, percent of the earlier value; for an effect in percentage points.
    pub change_percent: f64,
    /// The interval of the earlier median, with 6 runs or more.
    pub was_interval: Option<[f64; 2]>,
    /// The interval of the new median.
    pub is_interval: Option<[f64; 2]>,
    /// Quartiles of the earlier run's intervals, if it was a single run.
    pub was_quartiles: Option<[f64; 2]>,
    /// Quartiles of the new run's intervals.
    pub is_quartiles: Option<[f64; 2]>,
    /// What two documents of this test differ by at most in 95 % of cases if nothing has changed,
    /// percent of the smaller value, or percentage points of an effect: by the spread of others in
    /// the history.
    pub usual_percent: Option<f64>,
    /// Number of those others.
    pub others: Option<usize>,
    /// Whether it is the result that the test is run for.
    pub headline: bool,
}

/// Usual difference of single runs without a change between them, percent.
const SINGLE_RUNS_DIFFER: f64 = 5.0;

/// A bottleneck in both documents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BottleneckChange {
    /// The direction.
    pub direction: Direction,
    /// The earlier cause.
    pub was: Cause,
    /// The new cause.
    pub is: Cause,
}

/// The significance of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Significance {
    /// A change for the worse, more than noise.
    Worse,
    /// A change for the better, more than noise.
    Better,
    /// Runs without a change between them differ by as much.
    WithinNoise,
    /// There are too few runs to tell.
    TooFewRuns,
}

impl Change {
    /// Whether it is more than noise: by the spread of other documents of the test, where there are
    /// enough; else by the intervals of both medians, or for single runs by their quartiles and a
    /// change that is not small. The latter two know the spread within both documents alone.
    pub fn significance(&self) -> Significance {
        let apart = |was: [f64; 2], is: [f64; 2]| was[1] < is[0] || is[1] < was[0];
        let changed =
            if self.worse_percent() > 0.0 { Significance::Worse } else { Significance::Better };
        if let Some(usual) = self.usual_percent {
            let is_more = self.difference_percent() > usual;
            return if is_more { changed } else { Significance::WithinNoise };
        }
        let is_small = self.change_percent.abs() < SINGLE_RUNS_DIFFER;
        match (self.was_interval, self.is_interval) {
            (Some(was), Some(is)) if apart(was, is) => changed,
            (Some(_), Some(_)) => Significance::WithinNoise,
            _ if is_small => Significance::WithinNoise,
            _ => match (self.was_quartiles, self.is_quartiles) {
                (Some(was), Some(is)) if apart(was, is) => changed,
                _ => Significance::TooFewRuns,
            },
        }
    }

    /// By how much the values differ, whichever is the larger: percent of the smaller, or points.
    fn difference_percent(&self) -> f64 {
        if is_effect(&self.metric) {
            return self.change_percent.abs();
        }
        let ratio = self.is / self.was;
        100.0 * (ratio.max(1.0 / ratio) - 1.0)
    }

    /// Whether there is an interval for both medians.
    pub fn has_intervals(&self) -> bool {
        self.was_interval.is_some() && self.is_interval.is_some()
    }

    /// The change for the worse, percent; negative if it is better.
    pub fn worse_percent(&self) -> f64 {
        if is_cost(&self.metric) { self.change_percent } else { -self.change_percent }
    }
}

/// Whether a figure is itself a change, percent: that of a comparison.
fn is_effect(metric: &str) -> bool {
    metric.ends_with(EFFECT)
}

const EFFECT: &str = ".effect_percent";

/// Whether a lower figure is better: times, errors and costs.
pub fn is_cost(metric: &str) -> bool {
    const COSTS: [&str; 9] =
        ["latency", "cpu", "demand", "retransmi", "lost", "loss", "drop", "jitter", "reordered"];
    metric.ends_with("_us") || COSTS.iter().any(|cost| metric.contains(cost))
}

/// The figures of a document that are compared with another one.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    started_at: String,
    figures: Vec<ObservedFigure>,
    bottlenecks: Vec<(Direction, Cause)>,
    options: Vec<String>,
    /// Number of runs, where the figures are their medians.
    runs: usize,
}

#[derive(Debug, Clone, Default)]
struct ObservedFigure {
    metric: String,
    value: f64,
    interval: Option<[f64; 2]>,
    /// Quartiles of the intervals of a single run.
    quartiles: Option<[f64; 2]>,
    headline: bool,
}

impl ObservedFigure {
    fn headline(metric: String, value: f64) -> Self {
        Self { metric, value, headline: true, ..Self::default() }
    }
}

impl Observed {
    /// The figures of a comparison: each metric with its effect and the interval, percent, the
    /// decisive one first.
    pub fn effects<'a>(
        started_at: &str,
        options: Vec<String>,
        effects: impl IntoIterator<Item = (&'a str, f64, [f64; 2])>,
    ) -> Self {
        let figure = |(number, (metric, value, interval))| ObservedFigure {
            metric: format!("{metric}{EFFECT}"),
            value,
            interval: Some(interval),
            headline: number == 0,
            ..ObservedFigure::default()
        };
        Self {
            started_at: started_at.to_owned(),
            figures: effects.into_iter().enumerate().map(figure).collect(),
            options,
            ..Self::default()
        }
    }

    /// The difference from a test with these options, in words; `None` if there is none, and the
    /// figures can be compared.
    pub fn differs_from(&self, options: &[String]) -> Option<String> {
        let only = |one: &[String], other: &[String]| {
            let only = one.iter().filter(|it| !other.contains(it));
            only.cloned().collect::<Vec<_>>().join(" ")
        };
        let [was, is] = [only(&self.options, options), only(options, &self.options)];
        match (was.as_str(), is.as_str()) {
            ("", "") => None,
            ("", is) => Some(format!("now {is}")),
            (was, "") => Some(format!("then {was}")),
            (was, is) => Some(format!("then {was}, now {is}")),
        }
    }

    /// The figures of runs of one test, or of several that differ in their sizes.
    pub fn runs<'a>(rows: impl IntoIterator<Item = &'a Record>) -> Self {
        // A run that was stopped has no figure.
        let is_whole = |row: &&Record| row.status == Status::Complete;
        let rows: Vec<&Record> = rows.into_iter().filter(is_whole).collect();
        let sizes = message_sizes(rows.iter().copied());
        let mut all = Self::default();
        let is_sweep = sizes.len() > 1;
        for size in &sizes {
            let own = rows.iter().filter(|row| row.plan.traffic.message_bytes() == *size);
            let suffix = match is_sweep {
                true => format!("@{size}"),
                false => String::new(),
            };
            all.enter(&own.copied().collect::<Vec<_>>(), &suffix);
        }
        if let Some(first) = rows.first() {
            all.started_at = first.started_at.clone();
            all.options = asked(&first.plan);
            all.runs = rows.len();
            let median = median_run(rows.iter().copied().filter(|_| !is_sweep));
            let legs = median.into_iter().flat_map(|median| &median.legs);
            let found = legs.filter_map(|leg| Some((leg.direction, leg.verdict.as_ref()?.cause)));
            all.bottlenecks = found.collect();
        }
        all
    }

    /// The figures of a sweep.
    pub fn sweep(sweep: &Sweep) -> Self {
        Self::runs(&sweep.rows)
    }

    /// The figures of a check.
    pub fn check(check: &Check) -> Self {
        let mut all = Self { started_at: check.started_at.clone(), ..Self::default() };
        let legs = [
            (Direction::Up, check.up.as_ref(), &check.up_throughput_bps),
            (Direction::Down, check.down.as_ref(), &check.down_throughput_bps),
        ];
        for (direction, record, figure) in legs {
            let metric = format!("{}.throughput_bps", direction.word());
            let interval = match figure {
                Some(Figure::One(one)) if one.reaches_confidence() => Some([one.low, one.high]),
                _ => None,
            };
            let value = check.throughput_bps(direction);
            all.figures.extend(value.map(|value| ObservedFigure {
                interval,
                quartiles: record.and_then(quartiles),
                ..ObservedFigure::headline(metric, value)
            }));
            let verdict = record.and_then(Record::verdict);
            all.bottlenecks.extend(verdict.map(|verdict| (direction, verdict.cause)));
        }
        for (name, latency) in [
            ("idle_latency_us", &check.idle_latency_us),
            ("loaded_latency_us", &check.loaded_latency_us),
        ] {
            all.latency(name, latency.iter(), "", false);
        }
        all
    }

    /// The figures of a document that is not a run, the most important first.
    pub fn figures_of<N: Into<String>>(
        started_at: &str,
        figures: impl IntoIterator<Item = (N, Option<f64>)>,
    ) -> Self {
        let figures = figures
            .into_iter()
            .filter_map(|(metric, value)| Some(ObservedFigure::headline(metric.into(), value?)));
        Self { started_at: started_at.to_owned(), figures: figures.collect(), ..Self::default() }
    }

    /// Adds a figure that is no headline.
    pub(crate) fn with_detail(mut self, metric: &str, value: Option<f64>) -> Self {
        let metric = metric.to_owned();
        let detail = |value| ObservedFigure { metric, value, ..ObservedFigure::default() };
        self.figures.extend(value.map(detail));
        self
    }

    /// Adds what holds one direction back.
    pub(crate) fn with_bottleneck(mut self, direction: Direction, cause: Option<Cause>) -> Self {
        self.bottlenecks.extend(cause.map(|cause| (direction, cause)));
        self
    }

    /// Its start, RFC 3339.
    pub fn started_at(&self) -> &str {
        &self.started_at
    }

    /// Its options, as on a command line.
    pub fn options(&self) -> &[String] {
        &self.options
    }

    /// Each figure by its name, the headlines first.
    pub fn figures(&self) -> impl Iterator<Item = (&str, f64)> {
        let mut figures: Vec<&ObservedFigure> = self.figures.iter().collect();
        figures.sort_by_key(|figure| !figure.headline);
        let figures = figures.into_iter();
        figures.map(|figure| (figure.metric.as_str(), figure.value))
    }

    /// The cause of the first direction.
    pub fn cause(&self) -> Option<Cause> {
        self.bottlenecks.first().map(|(_, cause)| *cause)
    }

    /// The changes from `self`, the earlier one, to `now`.
    pub fn until(&self, now: &Self) -> Baseline {
        let change = |is: &ObservedFigure| {
            let was = self.figures.iter().find(|was| was.metric == is.metric)?;
            let in_points = is_effect(&is.metric);
            let change_percent =
                if in_points { is.value - was.value } else { 100.0 * (is.value / was.value - 1.0) };
            (was.value > 0.0 || in_points).then(|| Change {
                metric: is.metric.clone(),
                was: was.value,
                is: is.value,
                change_percent,
                was_interval: was.interval,
                is_interval: is.interval,
                was_quartiles: was.quartiles,
                is_quartiles: is.quartiles,
                usual_percent: None,
                others: None,
                headline: is.headline,
            })
        };
        let bottleneck = |(direction, is): &(Direction, Cause)| {
            let was = self.bottlenecks.iter().find(|(of, _)| of == direction)?;
            Some(BottleneckChange { direction: *direction, was: was.1, is: *is })
        };
        Baseline {
            started_at: self.started_at.clone(),
            changes: now.figures.iter().filter_map(change).collect(),
            bottlenecks: now.bottlenecks.iter().filter_map(bottleneck).collect(),
        }
    }

    /// As [`until`](Self::until), where other documents of the same test, made without a change that
    /// is known of, show how far two of them usually differ: from day to day more than their runs do
    /// among themselves. Documents of more runs than both differ less and say nothing; nor do these
    /// two themselves, if they are among the others.
    pub fn until_beside(&self, now: &Self, others: &[Self]) -> Baseline {
        let mut found = self.until(now);
        let is_other = |other: &&Self| {
            other.runs <= self.runs.min(now.runs)
                && other.started_at != self.started_at
                && other.started_at != now.started_at
        };
        let others: Vec<&Self> = others.iter().filter(is_other).collect();
        for change in &mut found.changes {
            let of_metric = |other: &&Self| {
                other.figures.iter().find(|it| it.metric == change.metric).map(|it| it.value)
            };
            let values: Vec<f64> = others.iter().filter_map(of_metric).collect();
            change.others = Some(values.len());
            change.usual_percent = usual_percent(&values, is_effect(&change.metric));
        }
        found
    }

    /// The figures of runs of one test.
    fn enter(&mut self, rows: &[&Record], suffix: &str) {
        let Some(first) = rows.first() else { return };
        let is_open = match &first.plan.traffic {
            Traffic::Rr(exchange) | Traffic::Crr(exchange) => exchange.rate_per_s.is_some(),
            Traffic::Stream(_) => false,
        };
        if !is_open {
            self.throughput(first, rows, suffix);
        }
        let latencies = rows.iter().filter_map(|row| row.latency_us.as_ref());
        self.latency("latency_us", latencies, suffix, is_open);
    }

    /// The headline of runs; for streams of both directions the throughput of each.
    fn throughput(&mut self, first: &Record, rows: &[&Record], suffix: &str) {
        if matches!(first.plan.traffic, Traffic::Stream(_)) && first.direction == Direction::Both {
            for direction in Direction::Both.parts() {
                let metric = format!("legs.{}.throughput_bps{suffix}", direction.word());
                let values = rows.iter().filter_map(|row| row.leg_to(*direction)?.throughput_bps);
                self.median(metric, values, true);
            }
            return;
        }
        let name = first.headline().map_or("throughput_bps", |(name, _)| name);
        let values = rows.iter().filter_map(|row| Some(row.headline()?.1));
        self.median(format!("{name}{suffix}"), values, true);
        if let ([only], Some(figure)) = (rows, self.figures.last_mut()) {
            figure.quartiles = quartiles(only);
        }
    }

    fn latency<'a>(
        &mut self,
        name: &str,
        of: impl Iterator<Item = &'a LatencySummary> + Clone,
        suffix: &str,
        headline: bool,
    ) {
        let median = of.clone().map(|latency| latency.p50);
        self.median(format!("{name}.p50{suffix}"), median, headline);
        let tail = of.map(|latency| latency.p99);
        self.median(format!("{name}.p99{suffix}"), tail, false);
    }

    fn median(&mut self, metric: String, values: impl Iterator<Item = f64>, headline: bool) {
        let values: Vec<f64> = values.collect();
        if let Ok(found) = interval_of_runs(&values) {
            let interval = Some([found.low, found.high]);
            self.figures.push(ObservedFigure {
                metric,
                value: found.of_a_run(&values).median,
                interval: interval.filter(|_| found.reaches_confidence()),
                headline,
                ..ObservedFigure::default()
            });
        }
    }
}

/// What two further values differ by at most in 95 % of cases: percent of the smaller, or points of
/// effects. `None` of too few, and of values without a ratio.
fn usual_percent(values: &[f64], in_points: bool) -> Option<f64> {
    if values.len() < FEWEST_OTHERS {
        return None;
    }
    if in_points {
        return usual_difference(values);
    }
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    Some(100.0 * usual_difference(&logs)?.exp_m1())
}

/// Documents whose spread is known well enough: from that of four a difference of 4.5 standard
/// deviations is usual (Student's t with 3 degrees of freedom), from that of many one of 2.8.
const FEWEST_OTHERS: usize = 4;

/// The quartiles of the rates of a run's intervals, if there are enough.
fn quartiles(run: &Record) -> Option<[f64; 2]> {
    let rate = |interval: &Interval| match (run.transactions_per_s, interval.transactions) {
        (Some(_), Some(answered)) => answered as f64 / interval.seconds,
        _ => interval.throughput_bps,
    };
    let intervals = run.intervals.iter().filter(|it| it.seconds > 0.0);
    let mut rates: Vec<f64> = intervals.map(rate).collect();
    rates.sort_by(f64::total_cmp);
    let quarter = rates.len() / 4;
    (quarter > 0).then(|| [rates[quarter], rates[rates.len() - 1 - quarter]])
}

/// The sizes of the messages of runs, bytes, each once and in the order of the runs.
pub fn message_sizes<'a>(rows: impl IntoIterator<Item = &'a Record>) -> Vec<u64> {
    let mut sizes = Vec::new();
    for row in rows {
        let size = row.plan.traffic.message_bytes();
        if !sizes.contains(&size) {
            sizes.push(size);
        }
    }
    sizes
}

/// The options of a test as typed, without its size, which the figures name, and without the
/// interval of its readings.
pub fn asked(test: &Test) -> Vec<String> {
    let workload = [test.workload().word().to_owned()].into_iter();
    let options = test.typed(&["size", "request", "interval"]);
    workload.chain(options).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::compare::samples::record;
    use crate::plan::{Draft, Workload};
    use crate::units::{Dice, Span};

    #[test]
    fn medians_of_runs_are_held_against_each_other_with_their_intervals() {
        let runs = |rates: &[f64]| rates.iter().map(|rate| record(*rate)).collect::<Vec<_>>();
        let was = Observed::runs(&runs(&[10e6, 11e6, 12e6, 10e6, 11e6, 12e6]));
        let is = Observed::runs(&runs(&[8.8e6]));
        let found = was.until(&is);
        assert_eq!(found.changes.len(), 1);
        let change = &found.changes[0];
        assert_eq!((change.metric.as_str(), change.was), ("throughput_bps", 11e6));
        assert!((change.change_percent + 20.0).abs() < 1e-9, "{change:?}");
        assert!((change.worse_percent() - 20.0).abs() < 1e-9);
        assert_eq!((change.was_interval, change.is_interval), (Some([10e6, 12e6]), None));
    }

    #[test]
    fn an_even_number_of_runs_has_one_median_in_all_places() {
        let rates = [14e6, 10e6, 13e6, 11e6];
        let sweep = Sweep::new(rates.map(record).to_vec(), Vec::new(), Vec::new());
        assert_eq!(sweep.throughput_bps, Some(11e6));
        // One that was stopped is no figure.
        let mut rows = sweep.rows.clone();
        rows[1].status = Status::Partial;
        assert_eq!(median_run(&rows).and_then(Record::throughput_bps), Some(13e6));
        let of_whole = Observed::runs(&rows);
        assert_eq!(of_whole.figures().collect::<Vec<_>>(), [("throughput_bps", 13e6)]);
        let observed = Observed::sweep(&sweep);
        let figures: Vec<(&str, f64)> = observed.figures().collect();
        assert_eq!(figures, [("throughput_bps", 11e6)]);
    }

    #[test]
    fn a_change_is_judged_by_intervals_and_of_single_runs_by_their_quartiles() {
        use Significance::{Better, TooFewRuns, WithinNoise, Worse};
        let around = |middle: f64| Some([middle - 5.0, middle + 5.0]);
        let judged = |intervals: [Option<[f64; 2]>; 2], quartiles: [Option<[f64; 2]>; 2], is| {
            let change = Change {
                metric: "throughput_bps".to_owned(),
                was: 100.0,
                is,
                change_percent: is - 100.0,
                was_interval: intervals[0],
                is_interval: intervals[1],
                was_quartiles: quartiles[0],
                is_quartiles: quartiles[1],
                usual_percent: None,
                others: None,
                headline: true,
            };
            change.significance()
        };
        let medians = |is| judged([around(100.0), around(is)], [None; 2], is);
        assert_eq!([80.0, 120.0, 92.0].map(medians), [Worse, Better, WithinNoise]);
        let single = |is| judged([None; 2], [around(100.0), around(is)], is);
        assert_eq!([80.0, 92.0, 97.0].map(single), [Worse, TooFewRuns, WithinNoise]);
        assert_eq!(judged([around(100.0), None], [None; 2], 80.0), TooFewRuns);
    }

    /// Batches of runs on days without a change between them. `days` is how much the days differ, in
    /// standard deviations of a day's runs, which are 2 % of the rate.
    fn batches(count: usize, runs: usize, days: f64, dice: &mut Dice) -> Vec<Observed> {
        let mut day = || days * dice.normal();
        let levels: Vec<f64> = (0..count).map(|_| day()).collect();
        let mut batch = |(number, level): (usize, f64)| {
            let started_at = format!("day {number}");
            let mut all = Observed { started_at, runs, ..Observed::default() };
            let rate = |_| 1e8 * (0.02 * (level + dice.normal())).exp();
            all.median("throughput_bps".to_owned(), (0..runs).map(rate), true);
            all
        };
        levels.into_iter().enumerate().map(&mut batch).collect()
    }

    /// Share of unchanged days, percent, that are called better or worse, with so many others.
    fn called_changed(others: usize, days: f64) -> f64 {
        const TRIALS: usize = 400;
        let mut dice = Dice::new(7, others as u64);
        let is_called = |_: &usize| {
            let all = batches(others + 2, 6, days, &mut dice);
            let (of_both, others) = all.split_at(2);
            let change = of_both[0].until_beside(&of_both[1], others).changes.remove(0);
            matches!(change.significance(), Significance::Better | Significance::Worse)
        };
        100.0 * (0..TRIALS).filter(is_called).count() as f64 / TRIALS as f64
    }

    /// How much the days differ, in standard deviations of a day's runs; and the percent of days
    /// without a change that are called one with 0, 4, 9 and 29 others. docs/comparisons.md has them.
    const CALLED: [(f64, [f64; 4]); 4] = [
        (0.0, [0.2, 5.2, 4.5, 4.8]),
        (0.5, [2.0, 4.6, 4.5, 5.3]),
        (1.0, [12.2, 4.7, 4.3, 5.0]),
        (2.0, [39.8, 5.1, 4.4, 4.8]),
    ];

    #[test]
    fn days_without_a_change_are_called_one_as_often_as_published() {
        for (days, published) in CALLED {
            for (others, published) in [0, 4, 9, 29].into_iter().zip(published) {
                let found = called_changed(others, days);
                // Four standard errors of 400 trials.
                let error = 4.0 * (published.max(2.0) * (100.0 - published) / 400.0).sqrt();
                assert!((found - published).abs() <= error, "{days}, {others}: {found}");
                // Whatever the days do, others show it.
                assert!(others == 0 || found < 5.0 + 4.4, "{days}, {others}: {found}");
            }
        }
    }

    #[test]
    fn others_say_what_is_usual_and_what_is_not() {
        let of = |rates: &[f64], day: &str| {
            let rows: Vec<Record> = rates.iter().map(|rate| record(*rate)).collect();
            Observed { started_at: day.to_owned(), ..Observed::runs(&rows) }
        };
        let [was, is] = [of(&[100e6; 6], "monday"), of(&[80e6; 6], "friday")];
        let others: Vec<Observed> = [100e6, 104e6, 97e6, 101e6]
            .iter()
            .map(|rate| of(&[*rate; 6], &rate.to_string()))
            .collect();
        let judged = |others: &[Observed]| was.until_beside(&is, others).changes.remove(0);
        let known = judged(&others);
        // 4.5 standard deviations of 2.9 %.
        assert!((12.0..15.0).contains(&known.usual_percent.unwrap()), "{known:?}");
        assert_eq!((known.others, known.significance()), (Some(4), Significance::Worse));
        // Days that differ by more.
        let wide: Vec<Observed> = [100e6, 120e6, 85e6, 101e6]
            .iter()
            .map(|rate| of(&[*rate; 6], &rate.to_string()))
            .collect();
        assert_eq!(judged(&wide).significance(), Significance::WithinNoise);
        // Neither the two themselves nor documents of more runs count.
        let more = of(&[100e6; 7], "thursday");
        let few = [others[0].clone(), others[1].clone(), others[2].clone(), was.clone(), more];
        let unknown = judged(&few);
        assert_eq!((unknown.others, unknown.usual_percent), (Some(3), None));
        assert_eq!(unknown.significance(), Significance::Worse);
    }

    #[test]
    fn options_that_differ_are_named_and_a_latency_is_worse_where_it_is_higher() {
        let mut was = record(1e6);
        let mut draft = Draft::new(Workload::Rr);
        draft.set("rate", "100").unwrap();
        was.plan = draft.resolve(1).unwrap();
        let [min, mean, p50, p90, p99, p999, max] = [100.0; 7];
        was.latency_us = Some(LatencySummary { min, mean, p50, p90, p99, p999, max, count: 9 });
        let mut is = was.clone();
        is.plan.streams = 4;
        is.latency_us.as_mut().unwrap().p50 = 150.0;
        let found = Observed::runs([&was]).until(&Observed::runs([&is]));
        assert_eq!(found.changes[0].metric, "latency_us.p50");
        assert!(found.changes[0].headline && found.changes[0].worse_percent() == 50.0);
        let differs = |is: &Record| Observed::runs([&was]).differs_from(&asked(&is.plan));
        assert_eq!(differs(&is).as_deref(), Some("now --streams 4"));
        is.plan.streams = was.plan.streams;
        is.plan.interval = Span(Duration::from_millis(100));
        assert_eq!(differs(&is), None);
    }

    #[test]
    fn an_effect_is_held_against_an_earlier_one_in_points() {
        let of = |effect: f64| {
            let effect = ("latency_us.p99", effect, [effect - 1.0, effect + 1.0]);
            Observed::effects("2026", Vec::new(), [effect])
        };
        let change = of(-20.0).until(&of(5.0)).changes.remove(0);
        assert_eq!(change.metric, "latency_us.p99.effect_percent");
        assert_eq!((change.was, change.is, change.change_percent), (-20.0, 5.0, 25.0));
        assert!(change.headline && change.worse_percent() == 25.0);
    }
}

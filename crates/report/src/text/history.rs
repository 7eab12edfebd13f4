//! Changes since earlier runs: against a baseline, of saved runs, of series.

use linerate_core::record::{Baseline, Cause, Change, Significance};

use super::Style;
use super::number::{NBSP, begun, digits, grouped, plural, signed_percent, writer};
use crate::page::{Page, table};

/// Writes what has changed since the baseline, if there is one.
pub(super) fn baseline(page: &mut Page, baseline: Option<&Baseline>) {
    let Some(baseline) = baseline else { return };
    page.gap();
    let sentences = judgements(baseline);
    sentences.iter().for_each(|sentence| page.heading(sentence));
    page.words(&format!(
        "Baseline: the run of {}. This is an observation: other things may have changed between both \
         runs.",
        baseline.started_at
    ));
    let details = page.has_details();
    let shown = |change: &&Change| details || !change.metric.contains("p99");
    let figure = |metric: &str, value: f64| {
        let (path, _) = metric.split_once('@').unwrap_or((metric, ""));
        match is_effect(path) {
            true => signed_percent(value),
            false => writer(path)(value),
        }
    };
    let rows = baseline.changes.iter().filter(shown);
    let table = table! { rows, change =>
        left "" => match change.metric.split_once('@') {
            Some((path, size)) => format!("  {path}, {size}{NBSP}B"),
            None => format!("  {}", change.metric),
        };
        right "then" => figure(&change.metric, change.was);
        right "now" => figure(&change.metric, change.is);
        right "change" => by(change);
    };
    page.table(&table);
    for found in &baseline.bottlenecks {
        let [was, is] = [found.was, found.is].map(Cause::words);
        if was != is {
            let direction = found.direction.word();
            page.point(&format!("bottleneck {direction}: {was} then, {is} now"));
        }
    }
}

/// A sentence for each judgement (better, worse, noise) among the headline figures.
fn judgements(baseline: &Baseline) -> Vec<String> {
    let changes = baseline.changes.iter().filter(|change| change.headline);
    let figure = |change: &Change| (judged(change), format!("{} {}", change.metric, by(change)));
    let sentence = |([judgement, why], figures): ([String; 2], Vec<String>)| {
        format!("{judgement}: {}; {why}.", figures.join(", "))
    };
    grouped(changes.map(figure)).into_iter().map(sentence).collect()
}

/// How sure a change is, as the line of a gate ends: `may be noise, too few runs to tell: …`
pub fn how_sure(change: &Change) -> String {
    let [judgement, why] = judged(change);
    format!("{}, {why}", judgement.to_lowercase())
}

/// The judgement of a change, and the reason for it.
fn judged(change: &Change) -> [String; 2] {
    let is_of_runs = RUNS.iter().any(|start| change.metric.starts_with(start));
    let option = if is_of_runs { " (--repeat 6)" } else { "" };
    let judgement = match change.significance() {
        Significance::Worse => "Worse than then",
        Significance::Better => "Better than then",
        Significance::WithinNoise => "Within noise",
        Significance::TooFewRuns => "May be noise",
    };
    if let (Some(usual), Some(others)) = (change.usual_percent, change.others) {
        let unit = if is_effect(&change.metric) { "points" } else { "%" };
        let usual = digits(usual);
        let up_to = format!("without a change two differ by up to {usual}{NBSP}{unit}");
        return [judgement.to_owned(), format!("{up_to}, as {others} others in the history do")];
    }
    let why = match (change.significance(), change.has_intervals()) {
        (Significance::TooFewRuns, _) => {
            format!("too few runs to tell: at least 6 are needed each time{option}")
        }
        (Significance::WithinNoise, true) => "the intervals overlap".to_owned(),
        (Significance::WithinNoise, false) => "single runs differ by as much".to_owned(),
        (_, true) => format!("the intervals lie apart, but {WITHIN}"),
        (_, false) => format!(
            "the quartiles within single runs lie apart, but {WITHIN}, and 6 runs each time say \
             more{option}"
        ),
    };
    [judgement.to_owned(), why]
}

/// What is not known without other documents of the test.
const WITHIN: &str = "only the spread within the two is known, not that from day to day (4 others \
                      of this test in the history show it: --save)";

/// Beginnings of the figures of commands that take `--repeat`.
const RUNS: [&str; 5] =
    ["throughput_bps", "transactions_per_s", "connections_per_s", "legs.", "latency_us."];

/// A change with its sign; the change of an effect is in percentage points.
fn by(change: &Change) -> String {
    let words = signed_percent(change.change_percent);
    match is_effect(&change.metric) {
        true => words.replace('%', "points"),
        false => words,
    }
}

fn is_effect(metric: &str) -> bool {
    metric.ends_with(".effect_percent")
}

/// A saved run, for a table.
#[derive(Debug, Clone, Copy)]
pub struct SavedRun<'a> {
    /// The run's number.
    pub id: i64,
    /// Start of the run, RFC 3339.
    pub started_at: &'a str,
    /// The workload.
    pub workload: &'a str,
    /// The labels: `key=value key=value`.
    pub labels: &'a str,
    /// The run's answer.
    pub answer: &'a str,
}

/// A table with a row for each run.
pub fn saved_runs(runs: &[SavedRun<'_>], style: Style) -> String {
    let mut page = Page::new(style);
    // A row has two lines at most; the run's page has all of its answer.
    let others = runs.iter().map(|run| run.labels.len() + run.workload.len());
    let others = 34 + others.max().unwrap_or(0);
    let room = style.columns().saturating_sub(others).max(24);
    page.table(&table! { runs, run =>
        right "run" => run.id.to_string();
        left "begun" => begun(run.started_at);
        left "test" => run.workload;
        left @1 "labels" => Some(run.labels).filter(|labels| !labels.is_empty());
        left "result" => shortened(run.answer, 2 * room);
    });
    page.finish()
}

/// As many whole words of `text` as fit into `room` characters.
fn shortened(text: &str, room: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(room) else {
        return text.to_owned();
    };
    let end = text[..end].rfind(' ').unwrap_or(end);
    format!("{} …", text[..end].trim_end_matches([' ', ',', ';', ':']))
}

/// A page of the changes from one run to another.
pub fn changes(title: &str, changes: &Baseline, style: Style) -> String {
    let mut page = Page::new(style);
    page.heading(title);
    baseline(&mut page, Some(changes));
    page.finish()
}

/// A series of saved runs of one test.
#[derive(Debug, Clone)]
pub struct Series {
    /// The test and its path.
    pub test: String,
    /// Path of the figure in the document.
    pub metric: String,
    /// Number of runs.
    pub runs: usize,
    /// The changes, in order of time.
    pub changes: Vec<SeriesChange>,
}

/// A change of a series.
#[derive(Debug, Clone)]
pub struct SeriesChange {
    /// Number of the first run after the change.
    pub id: i64,
    /// Start of that run.
    pub started_at: String,
    /// Medians before and after.
    pub figures: [f64; 2],
    /// Other properties that changed at the same time: the name, the old and the new value.
    pub beside: Vec<(&'static str, [String; 2])>,
}

/// A page of all series with their changes.
pub fn series_changes(all: &[Series], caveat: &str, style: Style) -> String {
    let mut page = Page::new(style);
    for series in all {
        page.gap();
        let Series { test, metric, .. } = series;
        let runs = plural(series.runs as u64, "run");
        let found = match series.changes.len() {
            0 => "no change".to_owned(),
            some => plural(some as u64, "change"),
        };
        page.heading(&format!("{test}: {found} of {metric} in {runs}"));
        for change in &series.changes {
            page.point(&series_change(&series.metric, change));
        }
    }
    page.gap();
    page.words(caveat);
    page.finish()
}

/// A change in a sentence.
pub fn series_change(metric: &str, change: &SeriesChange) -> String {
    let (begun, id) = (begun(&change.started_at), change.id);
    let [was, is] = change.figures;
    let by = signed_percent(100.0 * (is / was - 1.0));
    let [was, is] = change.figures.map(writer(metric));
    let mut words = format!("since {begun} (run {id}): {by}, {was} → {is}");
    for (what, [was, is]) in &change.beside {
        words.push_str(&format!("; {what} {was} → {is}"));
    }
    words
}

/// A figure of a series in one hour or day.
#[derive(Debug, Clone, Copy)]
pub struct PeriodMedian<'a> {
    /// The name of the series.
    pub series: &'a str,
    /// The figure's path.
    pub metric: &'a str,
    /// When the hour or day begins.
    pub begins: &'a str,
    /// Number of runs.
    pub runs: i64,
    /// Minimum, median, maximum.
    pub figures: [f64; 3],
}

/// The page of `history medians`: a line for each hour or day.
pub fn period_medians(rows: &[PeriodMedian<'_>], style: Style) -> String {
    let mut page = Page::new(style);
    let figure = |row: &PeriodMedian<'_>, place| writer(row.metric)(row.figures[place]);
    page.table(&table! { rows, row =>
        left "series" => row.series;
        left "figure" => row.metric;
        left "begins" => row.begins.replacen('T', " ", 1);
        right "runs" => row.runs.to_string();
        right "min" => figure(row, 0);
        right "median" => figure(row, 1);
        right "max" => figure(row, 2);
    });
    page.finish()
}

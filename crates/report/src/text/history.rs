//! The pages of the history: saved runs, and changes of series.

use linerate_core::record::Baseline;

use super::Style;
use super::baseline::baseline;
use super::comparison::{signed, writer};
use super::number::plural;
use super::page::Page;
use super::table::table;

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
    let labels = |run: &&SavedRun| (!run.labels.is_empty()).then(|| run.labels.to_owned());
    // A row has two lines at most; the run's page has all of its answer.
    let others = runs.iter().map(|run| run.labels.len() + run.workload.len());
    let others = 34 + others.max().unwrap_or(0);
    let room = style.columns().saturating_sub(others).max(24);
    let answer = |run: &&SavedRun| shortened(run.answer, 2 * room);
    page.table(&table! { runs, run =>
        right "run" => run.id.to_string();
        left "begun" => begun(run.started_at);
        left "test" => run.workload;
        left @1 "labels" => labels(run);
        left "what came of it" => answer(run);
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
    let by = signed(100.0 * (is / was - 1.0));
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
    let figure =
        |place: usize| move |row: &&PeriodMedian<'_>| writer(row.metric)(row.figures[place]);
    page.table(&table! { rows, row =>
        left "series" => row.series;
        left "figure" => row.metric;
        left "begins" => row.begins.replacen('T', " ", 1);
        right "runs" => row.runs.to_string();
        right "min" => figure(0)(row);
        right "median" => figure(1)(row);
        right "max" => figure(2)(row);
    });
    page.finish()
}

/// Date and minute of a start: `2026-11-23 09:00`.
pub(crate) fn begun(started_at: &str) -> String {
    started_at.replacen('T', " ", 1).chars().take(16).collect()
}

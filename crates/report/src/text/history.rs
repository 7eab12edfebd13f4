//! Runs that were saved.

use linerate_core::record::Baseline;

use super::Style;
use super::baseline::baseline;
use super::comparison::{signed, writer};
use super::number::plural;
use super::page::Page;
use super::table::Table;

/// A run that was saved, in words.
#[derive(Debug, Clone, Copy)]
pub struct SavedRun<'a> {
    /// Its number.
    pub id: i64,
    /// When it began, RFC 3339.
    pub started_at: &'a str,
    /// What was run.
    pub workload: &'a str,
    /// `key=value key=value`
    pub labels: &'a str,
    /// What came of it.
    pub answer: &'a str,
}

/// A line for each.
pub fn saved_runs(runs: &[SavedRun<'_>], style: Style) -> String {
    let mut page = Page::new(style);
    let labels = |run: &&SavedRun| (!run.labels.is_empty()).then(|| run.labels.to_owned());
    // A run is two lines at most: what it says more is on its page.
    let longest = runs
        .iter()
        .map(|run| run.labels.len() + run.workload.len())
        .max();
    let room = style
        .columns()
        .saturating_sub(34 + longest.unwrap_or(0))
        .max(24);
    let answer = |run: &&SavedRun| shortened(run.answer, 2 * room);
    let table = Table::of(runs)
        .right("run", |run| run.id.to_string())
        .left("begun", |run| begun(run.started_at))
        .left("test", |run| run.workload)
        .left("labels", labels)
        .spare(1, 1)
        .left("what came of it", answer);
    page.table(&table);
    page.finish()
}

/// As many whole words as there is room for.
fn shortened(text: &str, room: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(room) else {
        return text.to_owned();
    };
    let end = text[..end].rfind(' ').unwrap_or(end);
    format!("{} …", text[..end].trim_end_matches([' ', ',', ';', ':']))
}

/// What has changed from one run to another.
pub fn changes(title: &str, changes: &Baseline, style: Style) -> String {
    let mut page = Page::new(style);
    page.heading(title);
    baseline(&mut page, Some(changes));
    page.finish()
}

/// A series of saved runs of one test.
#[derive(Debug, Clone)]
pub struct Series {
    /// What was run, and where to.
    pub test: String,
    /// The figure's path.
    pub metric: String,
    /// How many runs.
    pub runs: usize,
    /// Its changes, in their order.
    pub changes: Vec<SeriesChange>,
}

/// Where a series has changed.
#[derive(Debug, Clone)]
pub struct SeriesChange {
    /// The first run after it.
    pub id: i64,
    /// When that began.
    pub started_at: String,
    /// Medians before and after.
    pub figures: [f64; 2],
    /// What else is another since: what it is, then and now.
    pub beside: Vec<(&'static str, [String; 2])>,
}

/// Each series with its changes.
pub fn series_changes(all: &[Series], caveat: &str, style: Style) -> String {
    let mut page = Page::new(style);
    for series in all {
        page.gap();
        let runs = plural(series.runs as u64, "run");
        let found = match series.changes.len() {
            0 => "no change".to_owned(),
            some => plural(some as u64, "change"),
        };
        page.heading(&format!(
            "{}: {found} of {} in {runs}",
            series.test, series.metric
        ));
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
    let [was, is] = change.figures;
    let write = writer(metric);
    let by = signed(100.0 * (is / was - 1.0));
    let mut words = format!(
        "since {} (run {}): {by}, {} → {}",
        begun(&change.started_at),
        change.id,
        write(was),
        write(is)
    );
    for (what, [was, is]) in &change.beside {
        words.push_str(&format!("; {what} {was} → {is}"));
    }
    words
}

/// The figures of a series in one hour or day.
#[derive(Debug, Clone, Copy)]
pub struct PeriodMedian<'a> {
    /// What was run, and where to.
    pub series: &'a str,
    /// The figure's path.
    pub metric: &'a str,
    /// When the hour or day begins.
    pub begins: &'a str,
    /// How many runs.
    pub runs: i64,
    /// Minimum, median, maximum.
    pub figures: [f64; 3],
}

/// A line for each hour or day.
pub fn period_medians(rows: &[PeriodMedian<'_>], style: Style) -> String {
    let mut page = Page::new(style);
    let figure =
        |place: usize| move |row: &&PeriodMedian<'_>| writer(row.metric)(row.figures[place]);
    let table = Table::of(rows)
        .left("series", |row| row.series)
        .left("figure", |row| row.metric)
        .left("begins", |row| row.begins.replacen('T', " ", 1))
        .right("runs", |row| row.runs.to_string())
        .right("min", figure(0))
        .right("median", figure(1))
        .right("max", figure(2));
    page.table(&table);
    page.finish()
}

/// `2026-11-23 09:00`: seconds tell nobody more.
pub(crate) fn begun(started_at: &str) -> String {
    started_at.replacen('T', " ", 1).chars().take(16).collect()
}

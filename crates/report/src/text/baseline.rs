//! The comparison of a document with an earlier one.

use linerate_core::record::{Baseline, Cause, Change, Significance};

use super::comparison::{signed, writer};
use super::number::NBSP;
use super::page::Page;
use super::table::table;

/// Writes what has changed since the baseline, if there is one.
pub(super) fn baseline(page: &mut Page, baseline: Option<&Baseline>) {
    let Some(baseline) = baseline else { return };
    page.gap();
    judgements(baseline)
        .iter()
        .for_each(|sentence| page.heading(sentence));
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
            true => signed(value),
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
    let mut sentences: Vec<([String; 2], Vec<String>)> = Vec::new();
    for change in baseline.changes.iter().filter(|change| change.headline) {
        let judged = judged(change);
        let figure = format!("{} {}", change.metric, by(change));
        match sentences.iter_mut().find(|(known, _)| *known == judged) {
            Some((_, figures)) => figures.push(figure),
            None => sentences.push((judged, vec![figure])),
        }
    }
    let written = |([judgement, why], figures): ([String; 2], Vec<String>)| {
        format!("{judgement}: {}; {why}.", figures.join(", "))
    };
    sentences.into_iter().map(written).collect()
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
    let why = match (change.significance(), change.has_intervals()) {
        (Significance::TooFewRuns, _) => {
            format!("too few runs to tell: at least 6 are needed each time{option}")
        }
        (Significance::WithinNoise, true) => "the intervals overlap".to_owned(),
        (Significance::WithinNoise, false) => "single runs differ by as much".to_owned(),
        (_, true) => "the intervals lie apart".to_owned(),
        (_, false) => format!(
            "the quartiles within single runs lie apart: 6 runs each time make it sure{option}"
        ),
    };
    [judgement.to_owned(), why]
}

/// Beginnings of the figures of commands that take `--repeat`.
const RUNS: [&str; 5] = [
    "throughput_bps",
    "transactions_per_s",
    "connections_per_s",
    "legs.",
    "latency_us.",
];

/// A change with its sign; the change of an effect is in percentage points.
fn by(change: &Change) -> String {
    let words = signed(change.change_percent);
    match is_effect(&change.metric) {
        true => words.replace('%', "points"),
        false => words,
    }
}

fn is_effect(metric: &str) -> bool {
    metric.ends_with(".effect_percent")
}

//! The comparison of a document with an earlier one.

use linerate_core::record::{Baseline, Cause, Change, Significance};

use super::comparison::{signed, writer};
use super::number::NBSP;
use super::page::Page;
use super::table::Table;

/// Writes what has changed since the baseline, if there is one.
pub(super) fn baseline(page: &mut Page, baseline: Option<&Baseline>) {
    let Some(baseline) = baseline else { return };
    page.gap();
    judgements(baseline)
        .iter()
        .for_each(|sentence| page.heading(sentence));
    page.words(&format!(
        "Baseline of {}, an observation: between runs of different times more may have changed.",
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
    let table = Table::of(rows)
        .left("", |change| match change.metric.split_once('@') {
            Some((path, size)) => format!("  {path}, {size}{NBSP}B"),
            None => format!("  {}", change.metric),
        })
        .right("then", |change| figure(&change.metric, change.was))
        .right("now", |change| figure(&change.metric, change.is))
        .right("change", |change| by(change));
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
    let mut sentences: Vec<(&str, Vec<String>, &str)> = Vec::new();
    for change in baseline.changes.iter().filter(|change| change.headline) {
        let (words, why) = judgement(change);
        let figure = format!("{} {}", change.metric, by(change));
        match sentences.iter_mut().find(|it| (it.0, it.2) == (words, why)) {
            Some((_, figures, _)) => figures.push(figure),
            None => sentences.push((words, vec![figure], why)),
        }
    }
    let written = |(words, figures, why): (&str, Vec<String>, &str)| {
        format!("{words}: {}; {why}.", figures.join(", "))
    };
    sentences.into_iter().map(written).collect()
}

/// The judgement of a change, and the reason for it.
fn judgement(change: &Change) -> (&'static str, &'static str) {
    const SURE: &str = "of single runs: 6 each time make it sure (--repeat 6)";
    const TOO_FEW: &str = "too few runs: 6 each time tell (--repeat 6)";
    let [apart, overlap] = match change.has_intervals() {
        true => ["the intervals lie apart", "the intervals overlap"],
        false => [SURE, "single runs differ by as much"],
    };
    match change.significance() {
        Significance::Worse => ("Worse than then", apart),
        Significance::Better => ("Better than then", apart),
        Significance::WithinNoise => ("Within noise", overlap),
        Significance::TooFewRuns => ("Not told from noise", TOO_FEW),
    }
}

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

//! A document beside an earlier one.

use linerate_core::record::{Baseline, Cause, Change};

use super::comparison::{signed, writer};
use super::number::NBSP;
use super::page::Page;
use super::record::direction_name;
use super::table::Table;

/// What has changed since an earlier document, if one was set beside it.
pub(super) fn baseline(page: &mut Page, baseline: Option<&Baseline>) {
    let Some(baseline) = baseline else { return };
    page.gap();
    page.words(&format!(
        "Baseline of {}, an observation: between runs of different times more may have changed.",
        baseline.started_at
    ));
    let details = page.has_details();
    let shown = |change: &&Change| details || !change.metric.contains("p99");
    let figure = |metric: &str, value: f64| {
        let (path, _) = metric.split_once('@').unwrap_or((metric, ""));
        writer(path)(value)
    };
    let rows = baseline.changes.iter().filter(shown);
    let table = Table::of(rows)
        .left("", |change| match change.metric.split_once('@') {
            Some((path, size)) => format!("  {path}, {size}{NBSP}B"),
            None => format!("  {}", change.metric),
        })
        .right("then", |change| figure(&change.metric, change.was))
        .right("now", |change| figure(&change.metric, change.is))
        .right("change", |change| signed(change.change_percent));
    page.table(&table);
    for found in &baseline.bottlenecks {
        let [was, is] = [found.was, found.is].map(Cause::words);
        if was != is {
            let direction = direction_name(found.direction);
            page.point(&format!("bottleneck {direction}: {was} then, {is} now"));
        }
    }
    if !baseline.other_options.is_empty() {
        page.doubt(&format!(
            "another test: {}",
            baseline.other_options.join(", ")
        ));
    }
}

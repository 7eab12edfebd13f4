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
    let is_effect = |metric: &str| metric.ends_with(".effect_percent");
    let figure = |metric: &str, value: f64| {
        let (path, _) = metric.split_once('@').unwrap_or((metric, ""));
        if is_effect(path) {
            signed(value)
        } else {
            writer(path)(value)
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
        .right("change", |change| {
            let change_by = signed(change.change_percent);
            if is_effect(&change.metric) {
                change_by.replace('%', "points")
            } else {
                change_by
            }
        });
    page.table(&table);
    for change in baseline.changes.iter().filter(|it| is_effect(&it.metric)) {
        if let (Some(was), Some(is)) = (change.was_interval, change.is_interval) {
            let apart = was[1] < is[0] || is[1] < was[0];
            let words = if apart { "lie apart" } else { "overlap" };
            page.point(&format!("{}: the two intervals {words}", change.metric));
        }
    }
    for found in &baseline.bottlenecks {
        let [was, is] = [found.was, found.is].map(Cause::words);
        if was != is {
            let direction = direction_name(found.direction);
            page.point(&format!("bottleneck {direction}: {was} then, {is} now"));
        }
    }
}

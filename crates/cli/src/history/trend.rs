//! `history changes`: when the figures of a test changed, and what else changed then.

use anyhow::anyhow;
use linerate_core::stats::{FALSE_ALARMS, TimedValue, changes};
use linerate_core::units::format_rfc3339_seconds;
use linerate_engine::monitor::of_one_metric;
use linerate_history::{Filter, History, HistoryError, Point};
use linerate_report::text::{self, Series, SeriesChange};
use serde_json::Value;

use super::{filter, kept};
use crate::args::ChangesArgs;
use crate::failure::Failure;
use crate::output;

/// Fewest runs of a series in which a change can be told from chance.
const MIN_RUNS: usize = 10;
/// Most runs of a series that are searched, the newest.
const MAX_RUNS: u32 = 1000;
/// The search reorders the runs at random: with this seed its answer is always the same.
pub(crate) const SEED: u64 = 1;

/// Prints each series with its changes.
///
/// # Errors
/// The history cannot be read, or has no series.
pub(super) fn execute(args: &ChangesArgs) -> Result<(), Failure> {
    let history = kept(args.place.db.as_ref())?;
    let found = found(&history, args).map_err(Failure::failed)?;
    if found.is_empty() {
        return Err(Failure::usage(anyhow!(
            "no test of that kind was saved {MIN_RUNS} times, as telling a change from chance takes"
        )));
    }
    let caveat = format!(
        "At most {:.0} % of series of independent runs that did not change are said to have \
         changed. What else changed at that time need not be the reason.",
        100.0 * FALSE_ALARMS
    );
    output::print(&text::series_changes(&found, &caveat, output::style()))
}

fn found(history: &History, args: &ChangesArgs) -> anyhow::Result<Vec<Series>> {
    let mut found = Vec::new();
    for (test, _) in history.all_series()? {
        let runs = Filter { series: Some(test.clone()), ..filter(&args.which, Some(MAX_RUNS)) };
        let points = of_one_metric(history.series(&runs, args.metric.as_deref())?);
        if points.len() < MIN_RUNS {
            continue;
        }
        let series: Vec<TimedValue> = points.iter().map(|it| (it.at_s, it.value)).collect();
        let changes = changes(&series, SEED)?
            .into_iter()
            .map(|it| change(history, &points, it.at, [it.before, it.after]));
        found.push(Series {
            changes: changes.collect::<Result<_, _>>()?,
            runs: points.len(),
            metric: points[0].metric.clone(),
            test,
        });
    }
    Ok(found)
}

/// The change between the points `at - 1` and `at`, with the medians before and after it and what
/// else differs between the two runs.
pub(crate) fn change(
    history: &History,
    points: &[Point],
    at: usize,
    figures: [f64; 2],
) -> Result<SeriesChange, HistoryError> {
    let first = &points[at];
    Ok(SeriesChange {
        id: first.run,
        started_at: format_rfc3339_seconds(first.at_s),
        figures,
        beside: beside(history, points[at - 1].run, first.run)?,
    })
}

/// The facts that may change together with a figure, and their places in a document.
const FACTS: [(&str, &str); 9] = [
    ("bottleneck", "/verdict/cause"),
    ("congestion control", "/tcp/congestion"),
    ("MSS", "/tcp/mss_bytes"),
    ("path MTU", "/tcp/pmtu_bytes"),
    ("kernel here", "/environment/client/kernel"),
    ("kernel there", "/environment/server/kernel"),
    ("interface", "/environment/client/device/name"),
    ("queueing discipline", "/environment/client/device/qdisc"),
    ("linerate", "/environment/client/linerate"),
];

/// The facts, and the route, in which two documents differ.
fn beside(
    history: &History,
    before: i64,
    after: i64,
) -> Result<Vec<(&'static str, [String; 2])>, HistoryError> {
    let document = |id| -> Result<Value, HistoryError> {
        let text = history.document(id)?.unwrap_or_default();
        Ok(serde_json::from_str(&text).unwrap_or_default())
    };
    let [before, after] = [document(before)?, document(after)?];
    let fact = |document: &Value, path: &str| {
        let places = ["", "/rows/0", "/record", "/down", "/up"];
        let found = places.iter().find_map(|place| document.pointer(&format!("{place}{path}")));
        found.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    let differs = FACTS.iter().filter_map(|(name, path)| {
        let [was, is] = [fact(&before, path)?, fact(&after, path)?];
        (was != is).then_some((*name, [was, is]))
    });
    let route = |document: &Value| {
        let hops = document.pointer("/hops").or(document.pointer("/route/hops"))?;
        let addresses = hops.as_array()?.iter().map(|hop| hop["address"].as_str().unwrap_or("*"));
        Some(addresses.collect::<Vec<_>>().join(" "))
    };
    let routes = route(&before).zip(route(&after)).filter(|(was, is)| was != is);
    Ok(differs.chain(routes.map(|(was, is)| ("route", [was, is]))).collect())
}

//! `history changes`: when the figures of a test have changed, and what else has then.

use std::collections::BTreeMap;

use anyhow::anyhow;
use linerate_core::stats::{FALSE_ALARMS, changes};
use linerate_history::{History, HistoryError, Run};
use linerate_report::text::{self, Series, SeriesChange};
use serde_json::Value;

use super::{filter, kept};
use crate::args::ChangesArgs;
use crate::failure::Failure;
use crate::output;

/// Fewer runs of a test are no series.
const FEWEST: usize = 10;
/// The newest of a series that are looked at.
const MOST: usize = 1000;
/// Changes are found by reordering the runs by chance: the same answer each time it is asked.
const SEED: u64 = 1;

/// A run with its figure.
type Point = (Run, String, f64);

/// Prints each series with its changes.
///
/// # Errors
/// The history cannot be read, or has no series.
pub(super) fn execute(args: &ChangesArgs) -> Result<(), Failure> {
    let history = kept(args.place.db.as_ref())?;
    let found = found(&history, args).map_err(Failure::failed)?;
    if found.is_empty() {
        return Err(Failure::usage(anyhow!(
            "no test of that kind was saved {FEWEST} times: fewer runs tell no change from chance"
        )));
    }
    let caveat = format!(
        "Of series of independent runs that did not change, {:.0} % at most are said to have. What \
         else is \
         another since then need not be why.",
        100.0 * FALSE_ALARMS
    );
    output::print(&text::series_changes(&found, &caveat, output::style()))
}

fn found(history: &History, args: &ChangesArgs) -> anyhow::Result<Vec<Series>> {
    let mut all: BTreeMap<String, Vec<Point>> = BTreeMap::new();
    for run in history.list(&filter(&args.which, None))? {
        let figures = history.figures(run.id)?;
        let wanted = |(name, _): &(String, f64)| args.metric.as_ref().is_none_or(|it| it == name);
        let Some((metric, value)) = figures.into_iter().find(wanted) else {
            continue;
        };
        let series = all.entry(run.series.clone()).or_default();
        if series.len() < MOST && series.first().is_none_or(|(_, first, _)| *first == metric) {
            series.push((run, metric, value));
        }
    }
    let mut found = Vec::new();
    for (test, mut points) in all.into_iter().filter(|(_, points)| points.len() >= FEWEST) {
        points.reverse();
        let values: Vec<f64> = points.iter().map(|(_, _, value)| *value).collect();
        let changes = changes(&values, SEED)?.into_iter().map(|change| {
            let (before, first) = (&points[change.at - 1].0, &points[change.at].0);
            Ok(SeriesChange {
                id: first.id,
                started_at: first.started_at.clone(),
                figures: [change.before, change.after],
                beside: beside(history, before.id, first.id)?,
            })
        });
        found.push(Series {
            changes: changes.collect::<Result<_, HistoryError>>()?,
            runs: points.len(),
            metric: points[0].1.clone(),
            test,
        });
    }
    Ok(found)
}

/// What of a document can change beside a figure, and where it is in one.
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

/// What differs between two documents, besides their figures.
pub(crate) fn beside(
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
        let found = places
            .iter()
            .find_map(|place| document.pointer(&format!("{place}{path}")));
        found.map(|value| {
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        })
    };
    let differs = FACTS.iter().filter_map(|(name, path)| {
        let [was, is] = [fact(&before, path)?, fact(&after, path)?];
        (was != is).then_some((*name, [was, is]))
    });
    let hops = |document: &Value| {
        let hops = document
            .pointer("/hops")
            .or(document.pointer("/route/hops"))?
            .as_array()?;
        Some(
            hops.iter()
                .map(|hop| hop["address"].as_str().unwrap_or("*").to_owned())
                .collect::<Vec<_>>(),
        )
    };
    let route = hops(&before)
        .zip(hops(&after))
        .filter(|(was, is)| was != is);
    let route = route.map(|(was, is)| ("route", [was.join(" "), is.join(" ")]));
    Ok(differs.chain(route).collect())
}

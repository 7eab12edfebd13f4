//! The change of a series that a new run makes evident, as its alarm says it.

use linerate_core::monitor::{Monitor, Task};
use linerate_core::stats::new_change;
use linerate_engine::monitor::{Alarms, parts};
use linerate_history::{Filter, History};
use linerate_report::text::series_change;
use serde_json::{Value, json};

use crate::history::{change, of_one_metric};

/// Most runs since the last change in which a new one is searched, the newest.
const WINDOW: u32 = 200;

/// Looks for a change that the last of `runs` makes evident. A change is noted in the history
/// and returned in words.
///
/// # Errors
/// The history cannot be read or written.
pub(super) fn look(
    history: &mut History,
    alarms: &Alarms,
    (monitor, task): (&Monitor, Task),
    runs: Filter,
) -> anyhow::Result<Option<String>> {
    let (test, path) = parts(monitor, task);
    let series = format!("{} {} {}", test.name, path.name, test.metric.as_deref().unwrap_or(""));
    let filter =
        Filter { most: Some(WINDOW), from_id: alarms.changed_since(history, &series)?, ..runs };
    let points = of_one_metric(history.series(&filter, test.metric.as_deref())?);
    let values: Vec<f64> = points.iter().map(|point| point.value).collect();
    if values.is_empty() {
        return Ok(None);
    }
    let Some(found) = new_change(&values)? else {
        return Ok(None);
    };
    let change = change(history, &points, found.at, [found.before, found.after])?;
    let metric = &points[found.at].metric;
    let message = series_change(metric, &change);
    let also =
        change.beside.iter().map(|(what, [was, is])| json!({"what": what, "was": was, "is": is}));
    let json = json!({
        "schema": "linerate.alarm/1",
        "test": test.name,
        "path": path.name,
        "host": path.host.to_string(),
        "labels": path.labels.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        "metric": metric,
        "was": found.before,
        "is": found.after,
        "change_percent": 100.0 * (found.after / found.before - 1.0),
        "p_value": found.p_value,
        "run": change.id,
        "since": change.started_at,
        "beside": also.collect::<Vec<Value>>(),
        "message": format!("{} to {}: {message}", test.name, path.name),
    });
    alarms.raise(history, &series, change.id, &json.to_string())?;
    Ok(Some(message))
}

//! Whether a series has changed, and who is told.

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use linerate_core::monitor::{Alarm, Monitor, Task};
use linerate_core::stats::new_change;
use linerate_history::{Filter, History};
use linerate_report::text::{SeriesChange, series_change};
use serde_json::{Value, json};

use super::post::post;
use crate::history::beside;

/// Runs that are looked at, the newest, since the last change.
const WINDOW: u32 = 200;
/// What a command may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Looks whether the last run makes a change plain; notes it and says it in words.
///
/// # Errors
/// The history cannot be read or written.
pub(super) fn look(
    history: &mut History,
    monitor: &Monitor,
    task: Task,
) -> anyhow::Result<Option<String>> {
    let (test, path) = super::parts(monitor, task);
    let series = format!(
        "{} {} {}",
        test.name,
        path.name,
        test.metric.as_deref().unwrap_or("")
    );
    let filter = Filter {
        most: Some(WINDOW),
        from_id: history.changed_since(&series)?,
        ..super::runs_of(monitor, task)
    };
    let mut points = history.series(&filter, test.metric.as_deref())?;
    let Some(metric) = points.last().map(|point| point.metric.clone()) else {
        return Ok(None);
    };
    points.retain(|point| point.metric == metric);
    let values: Vec<f64> = points.iter().map(|point| point.value).collect();
    let Some(found) = new_change(&values)? else {
        return Ok(None);
    };
    let first = &points[found.at];
    let change = SeriesChange {
        id: first.run,
        started_at: super::rfc3339(first.at_s),
        figures: [found.before, found.after],
        beside: beside(history, points[found.at - 1].run, first.run)?,
    };
    let message = series_change(&metric, &change);
    let also = change
        .beside
        .iter()
        .map(|(what, [was, is])| json!({"what": what, "was": was, "is": is}));
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
        "run": first.run,
        "since": change.started_at,
        "beside": also.collect::<Vec<Value>>(),
        "message": format!("{} to {}: {message}", test.name, path.name),
    });
    history.raise(&series, first.run, &json.to_string())?;
    Ok(Some(message))
}

/// Tells the changes that nobody was told yet. One that could not be told stays.
///
/// # Errors
/// The history cannot be read or written, the command failed, or the address did not take it.
pub(super) fn tell(history: &mut History, alarm: &Alarm) -> anyhow::Result<()> {
    for (id, change) in history.untold()? {
        if let Some((program, arguments)) = alarm.command.split_first() {
            run(program, arguments, &change).with_context(|| program.clone())?;
        }
        if let Some(webhook) = &alarm.webhook {
            let answered = post(webhook, &change).with_context(|| webhook.authority.clone())?;
            ensure!(
                (200..300).contains(&answered),
                "{}: answered {answered}",
                webhook.authority
            );
        }
        history.told(id)?;
    }
    Ok(())
}

/// Without a shell: nothing that a peer says is ever read as a command.
fn run(program: &str, arguments: &[String], change: &str) -> anyhow::Result<()> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // Who does not read it has its reasons; its status says what came of it.
        let _ = writeln!(stdin, "{change}");
    }
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "{status}");
            return Ok(());
        }
        if Instant::now() > until {
            child.kill()?;
            child.wait()?;
            return Err(anyhow!("ended after {} s", PATIENCE.as_secs()));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

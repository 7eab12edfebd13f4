//! Looks for changes of a series, and tells the user by a command or a webhook.

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use linerate_core::monitor::{Alarm, Monitor, Task};
use linerate_core::stats::new_change;
use linerate_history::{Filter, History};
use linerate_report::text::series_change;
use serde_json::{Value, json};

use crate::history::{change, of_one_metric};
use crate::push::post::{JSON, post};

/// Most runs since the last change in which a new one is searched, the newest.
const WINDOW: u32 = 200;
/// Longest time that a command may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Looks for a change that the last run makes evident. A change is noted in the history and
/// returned in words.
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
        "run": change.id,
        "since": change.started_at,
        "beside": also.collect::<Vec<Value>>(),
        "message": format!("{} to {}: {message}", test.name, path.name),
    });
    history.raise(&series, change.id, &json.to_string())?;
    Ok(Some(message))
}

/// Tells the user the changes that were not told yet. One that cannot be told is tried again later.
///
/// # Errors
/// The history cannot be read or written, the command failed, or the webhook refused it.
pub(super) fn tell(history: &mut History, alarm: &Alarm) -> anyhow::Result<()> {
    for (id, change) in history.untold()? {
        if let Some((program, arguments)) = alarm.command.split_first() {
            run(program, arguments, &change).with_context(|| program.clone())?;
        }
        if let Some(webhook) = &alarm.webhook {
            let answered = post(webhook, JSON, change.as_bytes())
                .with_context(|| webhook.authority.clone())?;
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

/// Runs the command with the change on its standard input. No shell is between: nothing that a peer
/// says can become a command.
fn run(program: &str, arguments: &[String], change: &str) -> anyhow::Result<()> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read its input decides by its exit status all the same.
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

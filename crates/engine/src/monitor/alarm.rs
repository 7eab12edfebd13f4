//! Looks for changes of a series, and tells the user by a command or a webhook.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{io, thread};

use linerate_core::monitor::{Alarm, HttpUrl, MonitoredPath, MonitoredTest};
use linerate_core::stats::{ChangePoint, TimedValue, new_change};
use linerate_core::units::format_rfc3339_seconds;
use linerate_history::{Filter, History, HistoryError, NewAlarm, Point};
use serde_json::{Value, json};

use super::history::of_one_metric;
use crate::words::Say;

/// Most runs since the last change that are looked at, the newest: three days of one each minute,
/// so that there are other days to compare an hour with.
const WINDOW: u32 = 5000;
/// Longest time that a command may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Wait after an alarm that was not told, until it is tried again. It doubles up to the longest.
const PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// Attempts to tell an alarm by one channel, over four days.
const MAX_ATTEMPTS: u32 = 100;

/// The alarms of one monitor.
#[derive(Debug)]
pub(super) struct Alarms {
    /// Who notes and tells them: this host and this monitor's file.
    owner: String,
    channels: Vec<AlarmChannel>,
}

/// A way of telling the user.
#[derive(Debug)]
struct AlarmChannel {
    name: &'static str,
    to: Receiver,
    /// When alarms that were not told are tried again, by a clock that nobody sets.
    next: Duration,
    pause: Duration,
}

#[derive(Debug)]
enum Receiver {
    /// A program and its arguments.
    Command(Vec<String>),
    Webhook(HttpUrl),
}

/// A change that is noted in the history.
#[derive(Debug)]
pub(super) struct NotedChange {
    /// The change in a sentence.
    pub(super) message: String,
    series: String,
    run: i64,
    json: Value,
}

/// A change of a series, as people read it.
#[derive(Debug)]
pub struct Described {
    /// The change in a sentence.
    pub message: String,
    /// What else changed, for programs that read the alarm.
    pub beside: Vec<Value>,
}

/// Why an alarm was not told.
enum Untold {
    /// The receiver will not take it at any time.
    Refused(String),
    /// It may take it later.
    NotNow(String),
}

impl Alarms {
    pub(super) fn new(owner: String, alarm: &Alarm) -> Self {
        let command = Some(alarm.command.clone()).filter(|command| !command.is_empty());
        let webhook = alarm.webhook.clone();
        let receivers = [
            command.map(|it| ("command", Receiver::Command(it))),
            webhook.map(|it| ("webhook", Receiver::Webhook(it))),
        ];
        let channel = |(name, to)| AlarmChannel { name, to, next: Duration::ZERO, pause: PAUSE };
        Self { owner, channels: receivers.into_iter().flatten().map(channel).collect() }
    }

    /// Looks for a change that the last of `runs` makes evident. A change is noted in the history,
    /// in the words of `describe`, and returned.
    ///
    /// # Errors
    /// The history cannot be read or written.
    pub(super) fn look(
        &self,
        history: &mut History,
        (test, path): (&MonitoredTest, &MonitoredPath),
        runs: Filter,
        describe: impl FnOnce(&History, &[Point], &ChangePoint) -> Result<Described, HistoryError>,
    ) -> Result<Option<NotedChange>, HistoryError> {
        let series =
            format!("{} {} {}", test.name, path.name, test.metric.as_deref().unwrap_or(""));
        let from_id = history.changed_since(&self.owner, &series)?;
        let filter = Filter { most: Some(WINDOW), from_id, ..runs };
        let points = of_one_metric(history.series(&filter, test.metric.as_deref())?);
        let timed: Vec<TimedValue> = points.iter().map(|it| (it.at_s, it.value)).collect();
        // It fails only where there are no values.
        let Some(found) = new_change(&timed).ok().flatten() else {
            return Ok(None);
        };
        let Described { message, beside } = describe(history, &points, &found)?;
        let first = &points[found.at];
        let json = json!({
            "schema": "linerate.alarm/1",
            "test": test.name,
            "path": path.name,
            "host": path.host.to_string(),
            "labels": path.labels.iter().cloned().collect::<BTreeMap<_, _>>(),
            "metric": first.metric,
            "was": found.before,
            "is": found.after,
            "change_percent": 100.0 * (found.after / found.before - 1.0),
            "p_value": found.p_value,
            "run": first.run,
            "since": format_rfc3339_seconds(first.at_s),
            "beside": beside,
            "message": format!("{} to {}: {message}", test.name, path.name),
        });
        let channels: Vec<&str> = self.channels.iter().map(|channel| channel.name).collect();
        history.raise(&NewAlarm {
            owner: &self.owner,
            series: &series,
            run: first.run,
            change: &json.to_string(),
            channels: &channels,
        })?;
        Ok(Some(NotedChange { message, series, run: first.run, json }))
    }

    /// Adds to a change that was noted what limits the path now, as JSON and in words, and the
    /// number of the run that shows it.
    ///
    /// # Errors
    /// The history cannot be written; the change stays as it was noted.
    pub(super) fn amend(
        &self,
        history: &mut History,
        change: NotedChange,
        (now, words): (Value, &str),
        run: Option<i64>,
    ) -> Result<(), HistoryError> {
        let NotedChange { series, run: first, mut json, .. } = change;
        json["now"] = now;
        json["proof_run"] = run.into();
        json["message"] =
            format!("{}; now: {words}", json["message"].as_str().unwrap_or("")).into();
        history.amend(&NewAlarm {
            owner: &self.owner,
            series: &series,
            run: first,
            change: &json.to_string(),
            channels: &[],
        })
    }

    /// Tells the user, by each channel, the changes that it has not told yet. `now` is of a clock
    /// that nobody sets.
    ///
    /// # Errors
    /// The history cannot be read or written.
    pub(super) fn tell(
        &mut self,
        history: &mut History,
        now: Duration,
        say: &Say,
        post: impl Fn(&HttpUrl, &[u8]) -> Result<u16, String>,
    ) -> Result<(), HistoryError> {
        for channel in &mut self.channels {
            let send = |to: &Receiver, change: &str| to.tell(change, &post);
            channel.tell(&self.owner, history, now, say, send)?;
        }
        Ok(())
    }
}

impl AlarmChannel {
    /// Tells what is untold, until an alarm is to be tried again later.
    fn tell(
        &mut self,
        owner: &str,
        history: &mut History,
        now: Duration,
        say: &Say,
        mut send: impl FnMut(&Receiver, &str) -> Result<(), Untold>,
    ) -> Result<(), HistoryError> {
        for untold in history.untold(owner, self.name)? {
            // A new one is tried at once: what stopped the others may be no fault of the channel.
            if untold.attempts > 0 && now < self.next {
                break;
            }
            let says = match send(&self.to, &untold.change) {
                Err(Untold::NotNow(why)) if untold.attempts + 1 < MAX_ATTEMPTS => {
                    history.not_told(untold.alarm, self.name)?;
                    self.next = now + self.pause;
                    let minutes = self.pause.as_secs() / 60;
                    self.pause = LONGEST_PAUSE.min(2 * self.pause);
                    say(&format!("alarm: {why}; tried again in {minutes} min"));
                    break;
                }
                Err(Untold::Refused(why) | Untold::NotNow(why)) => Some(why),
                Ok(()) => None,
            };
            history.told(untold.alarm, self.name)?;
            match says {
                Some(why) => {
                    let change = untold.change;
                    say(&format!("alarm: {why}; not tried again: {change}"));
                }
                None => self.pause = PAUSE,
            }
        }
        Ok(())
    }
}

impl Receiver {
    fn tell(
        &self,
        change: &str,
        post: impl Fn(&HttpUrl, &[u8]) -> Result<u16, String>,
    ) -> Result<(), Untold> {
        match self {
            Self::Command(command) => {
                let program = command.first().map_or("", String::as_str);
                let arguments = command.get(1..).unwrap_or_default();
                let done = run(program, arguments, change);
                done.map_err(|error| Untold::NotNow(format!("{program}: {error}")))
            }
            Self::Webhook(url) => {
                let at = &url.authority;
                match post(url, change.as_bytes()) {
                    Ok(200..300) => Ok(()),
                    Ok(status @ 300..500) if !matches!(status, 408 | 425 | 429) => {
                        Err(Untold::Refused(format!("{at}: answered {status}")))
                    }
                    Ok(status) => Err(Untold::NotNow(format!("{at}: answered {status}"))),
                    Err(error) => Err(Untold::NotNow(format!("{at}: {error}"))),
                }
            }
        }
    }
}

/// Runs the command with the change on its standard input. No shell is between: nothing that a peer
/// says can become a command.
fn run(program: &str, arguments: &[String], change: &str) -> io::Result<()> {
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
            let failed = || io::Error::other(status.to_string());
            return status.success().then_some(()).ok_or_else(failed);
        }
        if Instant::now() > until {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::other(format!("ended after {} s", PATIENCE.as_secs())));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn each_channel_tells_each_alarm_once_and_none_stops_the_others() {
        let mut history = linerate_history::in_memory().unwrap();
        for (run, change) in [(1, "poison"), (2, "late"), (3, "refused"), (4, "good")] {
            let alarm = NewAlarm {
                owner: "pit",
                series: "bulk",
                run,
                change,
                channels: &["command", "webhook"],
            };
            history.raise(&alarm).unwrap();
        }
        let alarm = Alarm {
            command: vec!["tell".to_owned()],
            webhook: "http://hooks/".parse().ok(),
            prove: true,
        };
        let say: Say = Arc::new(|_: &str| {});
        let (mut told, mut tried, mut refused) = (Vec::new(), 0, 0);
        let mut alarms = Alarms::new("pit".to_owned(), &alarm);
        for minute in 0..7 * 24 * 60 {
            if minute % 1440 == 0 {
                alarms = Alarms::new("pit".to_owned(), &alarm);
            }
            let now = Duration::from_secs(60 * minute);
            for channel in &mut alarms.channels {
                let name = channel.name;
                let send = |_: &Receiver, change: &str| match (name, change) {
                    ("command", "refused") => {
                        refused += 1;
                        Err(Untold::Refused("answered 404".to_owned()))
                    }
                    ("command", "poison" | "late") if change == "poison" || minute < 1000 => {
                        tried += 1;
                        Err(Untold::NotNow("away".to_owned()))
                    }
                    (_, change) => {
                        told.push(change.to_owned());
                        Ok(())
                    }
                };
                channel.tell("lab", &mut history, now, &say, |_, _| panic!("of another")).unwrap();
                channel.tell("pit", &mut history, now, &say, send).unwrap();
            }
            if minute == 5 {
                assert_eq!(told, ["poison", "late", "refused", "good", "good"]);
            }
        }
        assert_eq!((told.len(), refused), (6, 1), "{told:?}");
        assert!((MAX_ATTEMPTS..MAX_ATTEMPTS + 30).contains(&tried), "{tried}");
        assert_eq!(history.untold("pit", "command").unwrap(), []);
    }
}

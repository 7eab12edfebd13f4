//! `web`: the history as pages for a browser, and a button that starts a test.
//!
//! Only tests of a monitor's file can be started, one at a time together with those of the monitor.
//! Pages are for browsers on this host, or for users who know the password of `--token-file`.

use std::path::{PathBuf, absolute};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, anyhow};
use linerate_core::monitor::{Monitor, Schedule, Task};
use linerate_core::stats::{TimedValue, changes, median, new_change};
use linerate_core::units::format_rfc3339_seconds;
use linerate_core::wire::is_same_secret;
use linerate_engine::monitor::{labels, of_one_metric, parts, remembered, until};
use linerate_engine::{random_hex, since_boot};
use linerate_history::{Filter, History, Place, Point, Run};
use linerate_report::html::{self, Ended, Overview, PastRun, Running, TimeLine};
use linerate_report::text::{SavedRun, SeriesChange};
use linerate_web::{Answer, Ask};

use crate::args::WebArgs;
use crate::failure::Failure;
use crate::history::{SEED, change, others_of, stored};
use crate::turn::{self, Turn};
use crate::{access, files, keep, monitor, output, run};

/// Serves pages until a signal ends it.
///
/// # Errors
/// The file or the history cannot be read, or the address cannot be had.
pub(crate) fn execute(args: &WebArgs) -> Result<(), Failure> {
    let read = |file| files::read_passphrase("--token-file", file);
    let password = args.token_file.as_deref().map(read).transpose()?;
    if password.is_none() && !args.listen.ip().is_loopback() {
        return Err(Failure::usage(anyhow!(
            "--listen {}: whoever can connect there could read all runs and start tests: give \
             --token-file",
            args.listen
        )));
    }
    let monitor = args.file.as_deref().map(monitor::read).transpose()?;
    let db = args.place.db.as_ref();
    keep::open(db)?;
    let place = keep::place(db).map_err(Failure::usage)?;
    let beside = keep::beside(&place).map_err(Failure::usage)?;
    let stop = run::signals()?;
    let token = random_hex(16)?;
    let site = Arc::new(WebSite {
        tasks: monitor
            .iter()
            .flat_map(|it| Schedule::new(it).tasks().collect::<Vec<_>>())
            .collect(),
        monitor,
        place,
        beside,
        token,
        last: Mutex::default(),
    });
    let bound = access::serve("--listen", args.listen, password, move |ask| site.answer(ask))?;
    output::note(&format!("pages at http://{bound}/"));
    run::wait_for(&stop);
    Ok(())
}

struct WebSite {
    monitor: Option<Monitor>,
    tasks: Vec<Task>,
    place: Place,
    /// The path beside which the locks of the history lie.
    beside: PathBuf,
    /// A secret of this process in each of its forms: a page of another site cannot send it.
    token: String,
    /// The result of the last test that was started here.
    last: Mutex<Option<Ended>>,
}

/// A page, or an HTTP status with the reason why there is none.
type Page = Result<Answer, (u16, String)>;

impl WebSite {
    fn answer(self: &Arc<Self>, ask: &Ask) -> Answer {
        let page = match (ask.is_form, ask.path.as_str()) {
            (true, "/start") => self.start(ask),
            (true, _) => Err((405, "nothing is sent there".to_owned())),
            (_, "/") => self.overview(),
            (_, "/series") => self.series(ask),
            (_, "/run") => self.run(ask),
            (_, "/compare") => self.compare(ask),
            (_, "/running") => {
                let page = html::running(self.running().as_ref(), self.last().as_ref());
                Ok(Answer::page(200, page))
            }
            (_, "/live") => {
                let page = html::live(self.running().as_ref(), self.last().as_ref());
                Ok(Answer::page(200, page))
            }
            (_, "/live.js") => Ok(Answer::script(html::LIVE)),
            (_, "/favicon.ico") => Ok(Answer::plain(204, "")),
            _ => Err((404, "There is no such page.".to_owned())),
        };
        page.unwrap_or_else(|(status, why)| Answer::page(status, html::notice("Not found", &why)))
    }

    fn history(&self) -> Result<History, (u16, String)> {
        keep::open_at("", &self.place).map_err(|failure| (500, failure.chain()))
    }

    fn last(&self) -> Option<Ended> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn running(&self) -> Option<Running> {
        let running = turn::running(&self.beside)?;
        Some(Running {
            test: format!("{} to {}", running.test, running.path),
            elapsed_s: since_boot().as_secs().saturating_sub(running.began_s),
            seconds: running.seconds,
            now: running.now,
        })
    }

    fn overview(&self) -> Page {
        let history = self.history()?;
        let mut all = Vec::new();
        for (series, runs) in history.all_series().map_err(unreadable)? {
            all.push(overview(&history, series, runs).map_err(unreadable)?);
        }
        let tasks =
            self.monitor.iter().flat_map(|it| self.tasks.iter().map(move |task| (it, task)));
        for (monitor, task) in tasks {
            let (test, path) = parts(monitor, *task);
            let series = format!("{} to {}", test.name, path.name);
            match all.iter_mut().find(|one| one.series == series) {
                Some(one) => one.starts = true,
                None => all.push(Overview {
                    path: path.name.clone(),
                    test: test.name.clone(),
                    series,
                    runs: 0,
                    last: None,
                    values: Vec::new(),
                    metric: String::new(),
                    changed: None,
                    starts: true,
                }),
            }
        }
        all.sort_by(|one, other| (&one.path, &one.test).cmp(&(&other.path, &other.test)));
        let place = match &self.place {
            Place::File(path) => Place::File(absolute(path).unwrap_or_else(|_| path.clone())),
            server => server.clone(),
        };
        let is_running = self.running().is_some();
        let page = html::overview(&all, is_running, &self.token, &place.to_string());
        Ok(Answer::page(200, page))
    }

    fn series(&self, ask: &Ask) -> Page {
        let history = self.history()?;
        let name = ask.value("name").unwrap_or_default();
        let of_series = Filter { series: Some(name.to_owned()), ..Filter::default() };
        let skip = ask.value("skip").and_then(|skip| skip.parse().ok()).unwrap_or(0);
        let screenful = Filter { most: Some(SCREENFUL), skip, ..of_series.clone() };
        let listed = history.list(&screenful).map_err(unreadable)?;
        let newest = listed.first().ok_or((404, "No run of that name was saved.".to_owned()))?;
        let figures = history.figures(newest.id).map_err(unreadable)?;
        let metrics: Vec<String> = figures.into_iter().map(|(name, _)| name).collect();
        let points =
            history.series(&up_to_now(&of_series), ask.value("metric")).map_err(unreadable)?;
        let points = of_one_metric(points);
        let group = points.len().div_ceil(MAX_SEARCHED).max(1);
        let changes = changes_of(&history, &points, group).map_err(unreadable)?;
        let runs: Vec<PastRun> = points.iter().map(past).collect();
        let page = html::time_line(&TimeLine {
            series: name,
            metric: points.last().map_or("", |point| &point.metric),
            metrics: &metrics,
            runs: &runs,
            changes: &changes,
            exact: group,
            listed: &listed.iter().map(saved).collect::<Vec<_>>(),
            newer: (skip > 0).then(|| skip.saturating_sub(SCREENFUL)),
            older: (listed.len() == SCREENFUL as usize).then(|| skip.saturating_add(SCREENFUL)),
        });
        Ok(Answer::page(200, page))
    }

    fn run(&self, ask: &Ask) -> Page {
        let history = self.history()?;
        let id = number(ask, "id")?;
        let mut document = stored(&history, id).map_err(|failure| (404, failure.chain()))?;
        let only = Filter { id: Some(id), ..Filter::default() };
        let run = history.list(&only).map_err(unreadable)?.pop();
        let series = run.map(|run| run.series).unwrap_or_default();
        let before = history.before(id).map_err(unreadable)?;
        Ok(Answer::page(200, html::run(id, &series, before, &mut document)))
    }

    fn compare(&self, ask: &Ask) -> Page {
        let history = self.history()?;
        let numbers = [number(ask, "a")?, number(ask, "b")?];
        let read = |id| stored(&history, id).map_err(|failure| (404, failure.chain()));
        let [mut a, mut b] = [read(numbers[0])?, read(numbers[1])?];
        let (was, is) = (a.observed(), b.observed());
        if let Some(differs) = was.differs_from(is.options()) {
            let [a, b] = numbers;
            return Err((409, format!("Runs {a} and {b} are of different tests: {differs}")));
        }
        let others =
            others_of(&history, numbers[1], &is).map_err(|failure| (500, failure.chain()))?;
        let found = was.until_beside(&is, &others);
        let page = html::beside(numbers, &found, [&mut a, &mut b]);
        Ok(Answer::page(200, page))
    }

    /// Starts a test of the monitor's file, unless one runs.
    fn start(self: &Arc<Self>, ask: &Ask) -> Page {
        if !ask
            .value("token")
            .is_some_and(|token| is_same_secret(token.as_bytes(), self.token.as_bytes()))
        {
            return Err((
                403,
                "This form was not made by this server: go back and load it again.".to_owned(),
            ));
        }
        let found = self.monitor.as_ref().and_then(|monitor| {
            let number = self.tasks.iter().position(|task| {
                let (test, path) = parts(monitor, *task);
                ask.value("test") == Some(&test.name) && ask.value("path") == Some(&path.name)
            })?;
            Some((monitor, number))
        });
        let (monitor, number) =
            found.ok_or((404, "The file has no such test of that path.".to_owned()))?;
        let task = self.tasks[number];
        self.has_room(monitor, number)?;
        let turn =
            monitor::turn(&self.beside, monitor, task).map_err(|failure| (500, failure.chain()))?;
        let turn =
            turn.ok_or((409, "Another test is running: two would disturb each other.".to_owned()))?;
        let site = self.clone();
        thread::spawn(move || site.measure(task, turn));
        Ok(Answer::go_on_at("/running"))
    }

    /// A test that is started by hand may run at any hour, but not beyond a budget.
    fn has_room(&self, monitor: &Monitor, number: usize) -> Result<(), (u16, String)> {
        let history = self.history()?;
        let now = linerate_engine::since_1970_s();
        let schedule = remembered(monitor, &history, now).map_err(unreadable)?;
        let why = match schedule.within_budgets(number, now) {
            Some(at) if at <= now => return Ok(()),
            Some(at) => format!("has room for this test again at {}", format_rfc3339_seconds(at)),
            None => "has no room for a run of this test".to_owned(),
        };
        Err((409, format!("The budget of bytes per day {why}.")))
    }

    /// Runs the test and saves it. `turn` keeps other tests waiting until then.
    fn measure(&self, task: Task, turn: Arc<Turn>) {
        let Some(monitor) = &self.monitor else { return };
        let done = || {
            let done = monitor::measure(monitor, task, Some(turn.clone()), None)?;
            if let Some(why) = done.document.why_partial() {
                return Err(Failure::failed(anyhow!("ended before its time: {why}")));
            }
            let mut history = keep::open_at("", &self.place)?;
            let mark = keep::disturbed(&*done.document).map(|(_, mark)| mark);
            let labels: Vec<_> = labels(monitor, task).into_iter().chain(mark).collect();
            let id = keep::save(&mut history, &*done.document, &labels, Some(done.carried));
            Ok((id.map_err(Failure::failed)?, done.document.answer()))
        };
        let (run, says) = match done() {
            Ok((id, says)) => (Some(id), says),
            Err(failure) => (None, failure.chain()),
        };
        let ended = Ended { run, says };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
    }
}

/// Runs on a page of a series.
const SCREENFUL: u32 = 50;
/// Most values in which changes are searched; of more runs, groups are.
const MAX_SEARCHED: usize = 300;
/// Runs of a series in which the overview looks for a change, and those whose figures it draws.
const OVERVIEW_RUNS: u32 = 200;
const DRAWN: usize = 50;

/// Without runs of the future.
fn up_to_now(runs: &Filter) -> Filter {
    Filter { before: Some(until(linerate_engine::since_1970_s())), ..runs.clone() }
}

fn overview(history: &History, series: String, runs: i64) -> anyhow::Result<Overview> {
    let any = Filter { series: Some(series.clone()), most: Some(1), ..Filter::default() };
    let mut last = history.list(&up_to_now(&any))?;
    if last.is_empty() {
        last = history.list(&any)?;
    }
    let last = last.pop().context("a series has a run")?;
    let newest = Filter { most: Some(OVERVIEW_RUNS), ..up_to_now(&any) };
    let labels = history.labels(last.id)?;
    let (path, test) = match (labels.get("path"), labels.get("test")) {
        (Some(path), Some(test)) => (path.clone(), test.clone()),
        _ => (last.path.clone(), format!("{} {}", last.workload, last.detail)),
    };
    let points = of_one_metric(history.series(&newest, None)?);
    let timed: Vec<TimedValue> = points.iter().map(|point| (point.at_s, point.value)).collect();
    let found = match timed[..] {
        [] => None,
        _ => new_change(&timed)?,
    };
    let changed = found.map(|it| change(history, &points, it.at, [it.before, it.after]));
    Ok(Overview {
        path,
        test: test.trim_end().to_owned(),
        series,
        runs,
        last: Some((last.id, last.started_at, last.answer)),
        metric: points.last().map(|point| point.metric.clone()).unwrap_or_default(),
        values: points[points.len().saturating_sub(DRAWN)..].iter().map(|it| it.value).collect(),
        changed: changed.transpose()?,
        starts: false,
    })
}

/// The changes of a series, each with the index of its first point. The search looks at the medians
/// of groups of `group` points.
fn changes_of(
    history: &History,
    points: &[Point],
    group: usize,
) -> anyhow::Result<Vec<(usize, SeriesChange)>> {
    let middle = |group: &[Point]| {
        let values: Vec<f64> = group.iter().map(|point| point.value).collect();
        (group[group.len() / 2].at_s, median(&values))
    };
    let series: Vec<TimedValue> = points.chunks(group).map(middle).collect();
    if series.is_empty() {
        return Ok(Vec::new());
    }
    let found = changes(&series, SEED)?.into_iter().map(|found| {
        let at = found.at * group;
        Ok((at, change(history, points, at, [found.before, found.after])?))
    });
    found.collect()
}

fn past(point: &Point) -> PastRun {
    PastRun { at_s: point.at_s, value: point.value, cause: point.cause.clone() }
}

fn saved(run: &Run) -> SavedRun<'_> {
    SavedRun {
        id: run.id,
        started_at: &run.started_at,
        workload: &run.workload,
        labels: &run.labels,
        answer: &run.answer,
    }
}

fn number(ask: &Ask, name: &str) -> Result<i64, (u16, String)> {
    let given = ask.value(name).and_then(|value| value.parse().ok());
    given.ok_or_else(|| (404, format!("{name} must be the number of a run.")))
}

fn unreadable(error: impl Into<anyhow::Error>) -> (u16, String) {
    (500, format!("{:#}", error.into()))
}

//! `history`: lists, compares, exports and prunes the saved runs.

mod medians;
mod trend;

pub(crate) use trend::{SEED, change};

use std::io::Write;

use anyhow::{Context, anyhow};
use linerate_core::record::Observed;
use linerate_core::units::EndpointName;
use linerate_engine::monitor::until;
use linerate_history::{Filter, History, HistoryError, Place, Run, Since};
use linerate_report::csv;
use linerate_report::document::{self, StoredDocument};
use linerate_report::text::{self, SavedRun, Style};
use serde_json::json;

use crate::args::{
    CompareRunsArgs, ExportArgs, ExportFormat, FilterOptions, HistoryArgs, HistoryCommand,
    KeepOptions, ListArgs, PathOptions, PruneArgs, ShowArgs, WhichRun,
};
use crate::failure::{self, Failure};
use crate::files::OutputFile;
use crate::keep::{DISTURBED, open, open_at, place};
use crate::{gate, output};

/// Does what `linerate history` was asked.
///
/// # Errors
/// There is no such run, or the history cannot be read or written.
pub(crate) fn execute(args: &HistoryArgs) -> Result<(), Failure> {
    match &args.command {
        None => list(&args.list),
        Some(HistoryCommand::List(args)) => list(args),
        Some(HistoryCommand::Show(args)) => show(args),
        Some(HistoryCommand::Compare(args)) => compare(args),
        Some(HistoryCommand::Changes(args)) => trend::execute(args),
        Some(HistoryCommand::Medians(args)) => medians::execute(args),
        Some(HistoryCommand::Export(args)) => export(args),
        Some(HistoryCommand::Prune(args)) => prune(args),
    }
}

pub(super) fn filter(options: &FilterOptions, most: Option<u32>) -> Filter {
    Filter {
        path: options.path.clone(),
        workload: options.workload.clone(),
        labels: options.label.clone(),
        since: options.since.clone(),
        most,
        ..Filter::default()
    }
}

/// The history of `--db`, or the default one. A file that is named must exist: only a run that is
/// saved makes one.
fn kept(db: Option<&Place>) -> Result<History, Failure> {
    match db {
        Some(place) => existing("--db", place, "--save"),
        None => open(None),
    }
}

/// The history at a place, which `named` gave. If its file is not there, the error says that
/// `maker` makes it.
pub(super) fn existing(named: &str, place: &Place, maker: &str) -> Result<History, Failure> {
    match place {
        Place::File(path) if !path.exists() => Err(Failure::usage(anyhow!(
            "{named} {}: there is no history there yet; {maker} makes one",
            path.display()
        ))),
        place => open_at(named, place),
    }
}

/// The history cannot be read or written.
pub(crate) fn unusable(error: HistoryError) -> Failure {
    Failure::failed(anyhow!(error))
}

fn list(args: &ListArgs) -> Result<(), Failure> {
    let history = kept(args.place.db.as_ref())?;
    let runs = history.list(&filter(&args.which, Some(args.most))).map_err(unusable)?;
    if runs.is_empty() {
        output::note("no run of that kind was saved; measuring commands take --save");
    }
    let tests: Vec<String> = runs.iter().map(test).collect();
    let rows = runs.iter().zip(&tests).map(|(run, test)| SavedRun {
        id: run.id,
        started_at: &run.started_at,
        workload: test,
        labels: &run.labels,
        answer: &run.answer,
    });
    output::print(&text::saved_runs(&rows.collect::<Vec<_>>(), output::style()))
}

fn test(run: &Run) -> String {
    format!("{} {}", run.workload, run.detail).trim_end().to_owned()
}

/// The number of a run that was asked for.
fn run_of(history: &History, which: &WhichRun) -> Result<i64, Failure> {
    number(history, which)?.ok_or_else(|| {
        Failure::usage(anyhow!("the history has no run {which}; linerate history lists them"))
    })
}

/// A saved document with what is concluded from it.
pub(crate) fn stored(history: &History, id: i64) -> Result<StoredDocument, Failure> {
    let found = history.document(id).map_err(unusable)?;
    let text = found.ok_or_else(|| Failure::usage(anyhow!("the history has no run {id}")))?;
    let mut document = document::read(text.as_bytes())
        .with_context(|| format!("run {id} of the history"))
        .map_err(Failure::usage)?;
    document.annotate();
    Ok(document)
}

fn show(args: &ShowArgs) -> Result<(), Failure> {
    let history = kept(args.place.db.as_ref())?;
    let id = run_of(&history, &args.run)?;
    let document = stored(&history, id)?;
    if args.json {
        return output::print(&document.json());
    }
    let evidence = format!("linerate history show {id} --details");
    output::print(&document.text(Style {
        details: args.details,
        evidence: Some(evidence.leak()),
        ..output::style()
    }))
}

fn compare(args: &CompareRunsArgs) -> Result<(), Failure> {
    let history = kept(args.place.db.as_ref())?;
    let [a, b] = [run_of(&history, &args.a)?, run_of(&history, &args.b)?];
    let [earlier, later] = [stored(&history, a)?, stored(&history, b)?];
    let [was, is] = [earlier.observed(), later.observed()];
    if let Some(differs) = was.differs_from(is.options()) {
        let why = format!("runs {a} and {b} are of different tests: {differs}");
        return Err(Failure::usage(anyhow!(why)));
    }
    let found = was.until_beside(&is, &others_of(&history, b, &is)?);
    if found.changes.is_empty() {
        return Err(Failure::usage(anyhow!("runs {a} and {b} have no figure in common")));
    }
    let title = format!("Run {b} against run {a}: {}", later.answer());
    output::print(&text::changes(&title, &found, output::style()))?;
    gate::hold_change(&found, args.fail_on_worse)
}

fn export(args: &ExportArgs) -> Result<(), Failure> {
    let history = kept(args.place.db.as_ref())?;
    let file = OutputFile::of_output(args.output.as_deref())?;
    let mut runs = history.list(&filter(&args.which, None)).map_err(unusable)?;
    runs.reverse();
    match (args.format(), file) {
        (ExportFormat::JsonLines, Some(file)) => file.fill(|file| {
            let mut all = lines(&history, &runs);
            all.try_for_each(|line| Ok(file.write_all(line?.as_bytes())?))
        }),
        (ExportFormat::JsonLines, None) => {
            let mut all = lines(&history, &runs);
            all.try_for_each(|line| output::print(&line.map_err(unusable)?))
        }
        (ExportFormat::Csv, file) => {
            let figures = figures(&history, &runs).map_err(unusable)?;
            let rows = figures.iter().map(SavedFigure::cells);
            let table = csv::table(COLUMNS.into_iter(), rows);
            file.map_or_else(|| output::print(&table), |file| file.write(&table))
        }
    }
}

/// A line of JSON for each run.
fn lines<'a>(
    history: &'a History,
    runs: &'a [Run],
) -> impl Iterator<Item = Result<String, HistoryError>> + 'a {
    runs.iter().map(|run| {
        let document = history.document(run.id)?.unwrap_or_default();
        let (id, labels) = (run.id, json!(history.labels(run.id)?));
        Ok(format!("{{\"run\":{id},\"labels\":{labels},\"document\":{document}}}\n"))
    })
}

/// A row of a table: a figure with its run.
struct SavedFigure<'a> {
    run: &'a Run,
    metric: String,
    value: f64,
}

fn figures<'a>(history: &History, runs: &'a [Run]) -> Result<Vec<SavedFigure<'a>>, HistoryError> {
    let mut rows = Vec::new();
    for run in runs {
        let figures = history.figures(run.id)?.into_iter();
        rows.extend(figures.map(|(metric, value)| SavedFigure { run, metric, value }));
    }
    Ok(rows)
}

impl SavedFigure<'_> {
    fn cells(&self) -> Vec<String> {
        let run = self.run;
        vec![
            run.id.to_string(),
            run.started_at.clone(),
            run.path.clone(),
            run.workload.clone(),
            run.detail.clone(),
            run.labels.clone(),
            run.cause.clone().unwrap_or_default(),
            self.metric.clone(),
            self.value.to_string(),
        ]
    }
}

const COLUMNS: [&str; 9] =
    ["run", "started_at", "path", "workload", "detail", "labels", "bottleneck", "metric", "value"];

fn prune(args: &PruneArgs) -> Result<(), Failure> {
    let mut history = kept(args.place.db.as_ref())?;
    let old = Filter {
        skip: args.keep.unwrap_or(0),
        before: args.older.map(Since::Ago),
        ..Filter::default()
    };
    let gone = history.prune(&old).map_err(unusable)?;
    let runs = if gone == 1 { "run" } else { "runs" };
    output::print(&format!("{gone} {runs} deleted\n"))
}

/// Where a saved run is looked for, and what it must be of.
pub(crate) struct Against<'a> {
    pub(crate) keep: &'a KeepOptions,
    pub(crate) path: Option<String>,
    pub(crate) workload: &'static str,
    pub(crate) detail: Option<String>,
}

impl<'a> Against<'a> {
    /// Of runs to the host as it is named, or on the emulated path.
    pub(crate) fn new(
        keep: &'a KeepOptions,
        host: Option<&EndpointName>,
        path: &PathOptions,
        workload: &'static str,
    ) -> Self {
        let lab = path.lab.as_ref().map(ToString::to_string);
        Self { keep, path: lab.or_else(|| Some(host?.to_string())), workload, detail: None }
    }

    fn filter(&self, schemas: &[&str]) -> Filter {
        Filter {
            path: self.path.clone(),
            workload: Some(self.workload.to_owned()),
            detail: self.detail.clone(),
            most: Some(SEARCHED),
            schemas: schemas.iter().map(|schema| (*schema).to_owned()).collect(),
            before: Some(until(linerate_engine::since_1970_s())),
            ..Filter::default()
        }
    }
}

/// The newest saved runs of the test and path of a saved run, itself among them.
///
/// # Errors
/// The history cannot be read.
pub(crate) fn others_of(
    history: &History,
    id: i64,
    is: &Observed,
) -> Result<Vec<Observed>, Failure> {
    let only = Filter { id: Some(id), ..Filter::default() };
    let Some(run) = history.list(&only).map_err(unusable)?.pop() else {
        return Ok(Vec::new());
    };
    let of_test = Filter {
        path: Some(run.path),
        workload: Some(run.workload),
        detail: Some(run.detail),
        schemas: vec![run.schema],
        most: Some(SEARCHED),
        ..Filter::default()
    };
    of_same_test(history, &of_test, Some(is.options()))
}

/// The newest saved runs of the test, if there is a history.
///
/// # Errors
/// It cannot be read.
pub(crate) fn others(
    against: &Against<'_>,
    schemas: &[&str],
    asked: Option<&[String]>,
) -> Result<Vec<Observed>, Failure> {
    if against.path.is_none() {
        return Ok(Vec::new());
    }
    match if_there(against.keep.db.as_ref())? {
        Some(history) => of_same_test(&history, &against.filter(schemas), asked),
        None => Ok(Vec::new()),
    }
}

/// The history, unless there is none yet.
fn if_there(db: Option<&Place>) -> Result<Option<History>, Failure> {
    match place(db) {
        Ok(Place::File(path)) if !path.exists() => Ok(None),
        Ok(_) => open(db).map(Some),
        // Nothing says where it would be.
        Err(_) => Ok(None),
    }
}

/// The number and the document of a run, of several with a label the newest; `None` if there is no
/// such run.
///
/// # Errors
/// The history cannot be read.
pub(crate) fn newest(
    which: &WhichRun,
    db: Option<&Place>,
) -> Result<Option<(i64, String)>, Failure> {
    let Some(history) = if_there(db)? else { return Ok(None) };
    let Some(id) = number(&history, which)? else { return Ok(None) };
    Ok(history.document(id).map_err(unusable)?.map(|text| (id, text)))
}

/// The number of a run, if there is such a run.
fn number(history: &History, which: &WhichRun) -> Result<Option<i64>, Failure> {
    let all = Filter { most: Some(1), ..Filter::default() };
    let filter = match which {
        WhichRun::Last => all,
        WhichRun::Number(id) => Filter { id: Some(*id), ..all },
        WhichRun::Label(key, value) => Filter { labels: vec![(key.clone(), value.clone())], ..all },
    };
    Ok(history.list(&filter).map_err(unusable)?.pop().map(|run| run.id))
}

fn of_same_test(
    history: &History,
    filter: &Filter,
    asked: Option<&[String]>,
) -> Result<Vec<Observed>, Failure> {
    let mut all = Vec::new();
    for run in history.list(filter).map_err(unusable)? {
        let mut labels = run.labels.split(' ').filter_map(|label| label.split_once('='));
        if labels.any(|(key, _)| key == DISTURBED) {
            continue;
        }
        let text = history.document(run.id).map_err(unusable)?.unwrap_or_default();
        // One that this version cannot read says nothing.
        let Ok(document) = document::read(text.as_bytes()) else { continue };
        if document.why_partial().is_some() {
            continue;
        }
        let observed = document.observed();
        let is_same = asked.is_none_or(|asked| observed.differs_from(asked).is_none());
        all.extend(is_same.then_some(observed));
    }
    Ok(all)
}

/// The figures of the last saved run of the same test, for a test that is compared with it. `None`
/// if there is none yet and this run is the first to be saved.
///
/// # Errors
/// There is none, or the history cannot be read.
pub(crate) fn observed(
    option: &str,
    which: &WhichRun,
    against: &Against<'_>,
    schemas: &[&str],
    asked: Option<&[String]>,
) -> Result<Option<Observed>, Failure> {
    let history = open(against.keep.db.as_ref())?;
    let workload = against.workload;
    let of_test = against.filter(schemas);
    let filter = match which {
        WhichRun::Last => of_test,
        WhichRun::Label(key, value) => {
            Filter { labels: vec![(key.clone(), value.clone())], ..of_test }
        }
        WhichRun::Number(id) => {
            Filter { id: Some(*id), schemas: of_test.schemas, ..Filter::default() }
        }
    };
    let found = history.list(&filter).map_err(unusable)?;
    let mut other = None;
    for run in found {
        let document = stored(&history, run.id)?;
        if let Some(why) = document.why_partial() {
            other = other.or(Some((run.id, format!("it is no result: {why}"))));
            continue;
        }
        let was = document.observed();
        match asked.and_then(|asked| was.differs_from(asked)) {
            None => return Ok(Some(was)),
            Some(differs) => {
                other = other.or(Some((run.id, format!("it is of another test: {differs}"))));
            }
        }
    }
    if *which == WhichRun::Last && against.keep.save {
        failure::note(&format!(
            "{option} last: no earlier run of this test is saved; this is the first"
        ));
        return Ok(None);
    }
    Err(Failure::usage(match other {
        Some((id, differs)) => anyhow!("{option} {which}: run {id}: {differs}"),
        None => anyhow!(
            "{option} {which}: there is no such file, and the history has no such {workload} of \
             this path; save one with --save"
        ),
    }))
}

/// Runs among which those of the same test are looked for.
const SEARCHED: u32 = 50;

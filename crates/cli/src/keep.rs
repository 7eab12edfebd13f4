//! Saves runs: the history is opened before a run, and its document is written after it, with the
//! results between two sites of a mesh where the run has their labels.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Context, anyhow};
use linerate_core::compare::starved;
use linerate_core::plan::Direction;
use linerate_core::record::{Leg, RECORD_SCHEMA, Record};
use linerate_core::units::{format_rfc3339, parse_rfc3339};
use linerate_engine::monitor::CARRIED;
use linerate_history::{Filter, History, HistoryError, NewRun, PairFigures, Place, Since};
use linerate_report::Document;
use linerate_report::document::{schema, with_command};
use serde_json::Value;

use crate::args::KeepOptions;
use crate::config;
use crate::failure::Failure;
use crate::typed::flag;

/// The history of `--save`, opened before the run.
#[derive(Debug)]
pub(crate) struct Keeper {
    history: History,
    labels: Vec<(String, String)>,
}

impl Keeper {
    /// Opens the history if the run is to be saved.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn new(options: &KeepOptions) -> Result<Option<Self>, Failure> {
        if !options.save {
            return Ok(None);
        }
        Ok(Some(Self { history: open(options.db.as_ref())?, labels: options.label.clone() }))
    }

    /// Saves the document, which `command` has made, and returns the run's number.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn save(
        mut self,
        document: &dyn Document,
        command: &[String],
    ) -> Result<i64, Failure> {
        let json = with_command(command, document.json_line());
        let saved = save_json(&mut self.history, document, &json, &self.labels, None);
        saved.context("--save").map_err(Failure::failed)
    }
}

/// Saves a document and returns the run's number. `carried`, in bytes, is saved as a figure for
/// budgets.
///
/// # Errors
/// It cannot be written.
pub(crate) fn save(
    history: &mut History,
    document: &dyn Document,
    labels: &[(String, String)],
    carried: Option<u64>,
) -> Result<i64, HistoryError> {
    let json = document.json_line();
    let json = with_command(&command_of(document, &json), json);
    save_json(history, document, &json, labels, carried)
}

/// Label of a run that is no result, with what disturbed it.
pub(crate) const DISTURBED: &str = "disturbed";

/// Why a run is no result of its path, if a host had no CPU for it; and the label that says so.
pub(crate) fn disturbed(document: &dyn Document) -> Option<(String, (String, String))> {
    let why = document.records()?.into_iter().find_map(starved)?;
    Some((why, (DISTURBED.to_owned(), "starved_host".to_owned())))
}

/// The command of a run that a monitor or a mesh made: the one that makes the same record. Checks
/// and loads do not say enough of theirs.
fn command_of(document: &dyn Document, json: &str) -> Vec<String> {
    let is_record = schema(json.as_bytes()).is_ok_and(|schema| schema == RECORD_SCHEMA);
    match document.records().as_deref() {
        Some([record]) if is_record => {
            let words = ["linerate", record.workload.word(), &record.host, flag(record.family)];
            let mut options = record.plan.typed(&[]);
            let is_proof = record.leg().is_some_and(|leg| leg.experiments_bytes.is_some());
            options.extend(is_proof.then(|| "--prove".to_owned()));
            options.push(format!("--seed {}", record.seed));
            let typed = options.iter().flat_map(|option| option.splitn(2, ' '));
            words.into_iter().chain(typed).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

/// Saves `json`, which has the document.
fn save_json(
    history: &mut History,
    document: &dyn Document,
    json: &str,
    labels: &[(String, String)],
    carried: Option<u64>,
) -> Result<i64, HistoryError> {
    let observed = document.observed();
    // A disturbed run is there to be read; series, and all that is made of them, are without it.
    let is_result = labels.iter().all(|(key, _)| key != DISTURBED);
    let measured = observed.figures().filter(|_| is_result);
    let figures = measured.map(|(name, value)| (name.to_owned(), value));
    let carried = carried.map(|bytes| (CARRIED.to_owned(), bytes as f64));
    let about = About::new(json);
    let pairs = pair_figures(document, labels);
    history.save(&NewRun {
        started_at: &begun(&about.started_at, SystemTime::now()),
        schema: &about.schema,
        path: &about.path,
        workload: &about.workload,
        detail: &about.detail,
        series: &series(&about, labels),
        answer: &document.answer(),
        cause: observed.cause().filter(|_| is_result).map(|cause| cause.name()),
        figures: &figures.chain(carried).collect::<Vec<_>>(),
        pairs: &pairs,
        labels,
        document: json.trim_end(),
    })
}

/// The number of a run that was saved: a server that fell silent may have taken it.
///
/// # Errors
/// The history cannot be read.
pub(crate) fn saved(
    history: &History,
    document: &dyn Document,
    labels: &[(String, String)],
) -> Result<Option<i64>, HistoryError> {
    let about = About::new(&document.json_line());
    let started_at = begun(&about.started_at, SystemTime::now());
    let since_then = Filter {
        labels: labels.to_vec(),
        since: Some(Since::Moment(started_at.clone())),
        ..Filter::default()
    };
    let mut runs = history.list(&since_then)?.into_iter();
    Ok(runs.find(|run| run.started_at == started_at).map(|run| run.id))
}

/// The time under which a document is saved `now`. It may come from a host whose clock is wrong, or
/// have no time: no run begins after it was saved.
fn begun(started_at: &str, now: SystemTime) -> String {
    format_rfc3339(parse_rfc3339(started_at).map_or(now, |begun| begun.min(now)))
}

/// The series of a run: runs of one test on one path are compared with each other. A monitor's
/// labels name both; else they are what was run, and where to.
fn series(about: &About, labels: &[(String, String)]) -> String {
    let label = |name: &str| labels.iter().rev().find(|(key, _)| key == name);
    if let (Some((_, test)), Some((_, path))) = (label("test"), label("path")) {
        return format!("{test} to {path}");
    }
    let test = format!("{} {}", about.workload, about.detail);
    format!("{} to {}", test.trim_end(), about.path)
}

/// The fields by which runs are found.
struct About {
    schema: String,
    started_at: String,
    path: String,
    workload: String,
    detail: String,
}

impl About {
    /// Takes them from the document; of several runs it takes the first.
    fn new(json: &str) -> Self {
        let value: Value = serde_json::from_str(json).unwrap_or_default();
        let at = |path: &str| {
            ["", "/rows/0", "/record", "/up", "/down"].iter().find_map(|place| {
                let found = value.pointer(&format!("{place}{path}"))?.as_str()?;
                Some(found.to_owned())
            })
        };
        let text = |path: &str| at(path).unwrap_or_default();
        let schema = text("/schema");
        let name = schema
            .strip_prefix("linerate.")
            .and_then(|it| it.split('/').next())
            .unwrap_or_default();
        let (workload, detail) = match name {
            "record" | "sweep" => {
                (text("/workload"), format!("{} {}", text("/protocol"), text("/direction")))
            }
            "load" => ("load".to_owned(), text("/mix")),
            "comparison" => ("compare".to_owned(), String::new()),
            "experiment" => ("run".to_owned(), String::new()),
            _ => (name.to_owned(), String::new()),
        };
        Self {
            started_at: text("/started_at"),
            path: at("/environment/lab/spec").unwrap_or_else(|| text("/host")),
            schema,
            workload,
            detail,
        }
    }
}

/// The history of `--db`, or the user's own.
///
/// # Errors
/// It cannot be opened.
pub(crate) fn open(db: Option<&Place>) -> Result<History, Failure> {
    open_at(option(db), &place(db).map_err(Failure::usage)?)
}

/// The option that named the history; empty if none did.
pub(crate) fn option(db: Option<&Place>) -> &'static str {
    if db.is_some() { "--db" } else { "" }
}

/// Opens the history of a place, which `option` named.
///
/// # Errors
/// It cannot be opened.
pub(crate) fn open_at(option: &str, place: &Place) -> Result<History, Failure> {
    linerate_history::open(place).map_err(|error| {
        let is_lacking = matches!(error, HistoryError::NotBuilt);
        let name = format!("{option} {place}");
        let error = anyhow!(error).context(name.trim_start().to_owned());
        if is_lacking { Failure::unsupported(error) } else { Failure::usage(error) }
    })
}

/// The place of `--db`, that of the user's `linerate.toml`, or the default one.
///
/// # Errors
/// Nothing says where the default is, or its directory cannot be made.
pub(crate) fn place(given: Option<&Place>) -> anyhow::Result<Place> {
    match given.cloned().or_else(config::db) {
        Some(place) => Ok(place),
        None => Ok(Place::File(state_directory()?.join("history.db"))),
    }
}

/// The path beside which this host has its own files of a history, such as locks: that of the file,
/// or one in the state directory that is named after the server.
///
/// # Errors
/// As [`place`].
pub(crate) fn beside(place: &Place) -> anyhow::Result<PathBuf> {
    match place {
        Place::File(path) => Ok(path.clone()),
        Place::Server(_) => {
            let name =
                place.to_string().replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
            Ok(state_directory()?.join(name))
        }
    }
}

/// The user's directory of linerate's data (XDG Base Directory Specification). A new one can be
/// read by nobody else: hosts and addresses are in it.
///
/// # Errors
/// As [`place`].
pub(crate) fn state_directory() -> anyhow::Result<PathBuf> {
    let is_whole = |path: PathBuf| path.is_absolute().then_some(path);
    let state = std::env::var_os("XDG_STATE_HOME").and_then(|state| is_whole(state.into()));
    let home = || Some(is_whole(std::env::var_os("HOME")?.into())?.join(".local/state"));
    let state = state.or_else(home).ok_or_else(|| {
        anyhow!("neither XDG_STATE_HOME nor HOME says where it is kept: give --db FILE")
    })?;
    let directory = state.join("linerate");
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
    made.with_context(|| directory.display().to_string())?;
    Ok(directory)
}

/// The results of a document that is saved with the labels `test`, `from` and `to`: one for each
/// direction in which its runs sent data, or the round trip of runs of `rr` and `crr`. There are
/// none without these labels.
fn pair_figures(document: &dyn Document, labels: &[(String, String)]) -> Vec<PairFigures> {
    let label = |name: &str| {
        let found = labels.iter().rev().find(|(key, _)| key == name)?;
        Some(found.1.as_str())
    };
    let (Some(test), Some(from), Some(to)) = (label("test"), label("from"), label("to")) else {
        return Vec::new();
    };
    let named = |record: &Record, direction| {
        // Downwards the asked site is the sender.
        let (from, to) = match direction {
            Direction::Up | Direction::Both => (from, to),
            Direction::Down => (to, from),
        };
        PairFigures {
            test: test.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            rtt_us: record.latency_us.as_ref().map(|latency| latency.p50),
            ..PairFigures::default()
        }
    };
    let mut all = Vec::new();
    for record in document.records().unwrap_or_default() {
        if record.legs.is_empty() {
            all.push(named(record, Direction::Up));
        }
        for leg in &record.legs {
            let named = named(record, leg.direction);
            let verdict = leg.verdict.as_ref();
            all.push(PairFigures {
                throughput_bps: leg.throughput_bps,
                loss_percent: loss_percent(leg),
                rtt_us: rtt_us(leg).or(named.rtt_us),
                cause: verdict.map(|verdict| verdict.cause.name().to_owned()),
                confidence: verdict.and_then(|verdict| verdict.confidence),
                ..named
            });
        }
    }
    all
}

fn loss_percent(leg: &Leg) -> Option<f64> {
    if let Some(udp) = &leg.udp {
        return udp.path_loss_percent;
    }
    let tcp = leg.tcp_sender()?;
    let sent = tcp.data_segments_out.filter(|sent| *sent > 0)?;
    Some(100.0 * tcp.retransmitted_segments as f64 / sent as f64)
}

fn rtt_us(leg: &Leg) -> Option<f64> {
    leg.tcp_sender().map(|tcp| tcp.rtt_mean_us.into())
}

#[cfg(test)]
mod tests {
    use linerate_core::record::{Caveat, CaveatKind, Record};
    use linerate_report::document::read;

    use super::*;
    use crate::history::others_of;
    use crate::plan::tests::planned;

    #[test]
    fn no_run_is_saved_with_a_time_of_the_future_or_none() {
        let now = parse_rfc3339("2026-11-23T09:00:00Z").unwrap();
        for (started_at, saved) in [
            ("2026-11-23T08:59:59.5Z", "2026-11-23T08:59:59.500000Z"),
            ("2027-11-23T09:00:00Z", "2026-11-23T09:00:00.000000Z"),
            ("2026-99-99T09:00:00Z", "2026-11-23T09:00:00.000000Z"),
            ("", "2026-11-23T09:00:00.000000Z"),
        ] {
            assert_eq!(begun(started_at, now), saved);
        }
    }

    #[test]
    fn a_run_of_a_monitor_is_saved_with_the_command_that_makes_it() {
        for line in [
            "stream pit -R -P 4 -t 2500ms --mss 536 -C reno --dscp EF",
            "stream pit -u --rate 10mbit --size 1000 --count 50",
            "rr pit -u --stamp --rate 10 --request 100",
            "rr pit --video --request 400",
            "crr pit --close client --reset --fast-open",
        ] {
            let plan = planned(line).unwrap();
            let record = Record { host: "pit".to_owned(), ..Record::new(plan.tests[0].clone()) };
            let mut history = linerate_history::in_memory().unwrap();
            let id = save(&mut history, &record, &[], None).unwrap();
            let stored = history.document(id).unwrap().unwrap();
            let command = read(stored.as_bytes()).unwrap().command.join(" ");
            assert_eq!(
                planned(command.trim_start_matches("linerate ")).unwrap(),
                plan,
                "{command}"
            );
        }
    }

    /// A run of 1 s with this rate, whose host was starved or not.
    fn run_at(minute: u32, throughput_bps: f64, is_starved: bool) -> Record {
        let plan = planned("stream pit -t 1s").unwrap();
        let mut record = Record { host: "pit".to_owned(), ..Record::new(plan.tests[0].clone()) };
        record.seconds = 1.0;
        record.started_at = format!("2026-11-23T09:{minute:02}:00Z");
        let rate = Some(throughput_bps);
        record.legs = vec![Leg { throughput_bps: rate, ..Leg::new(Direction::Up) }];
        let stolen = || Caveat::new(CaveatKind::BusyHost, "the hypervisor took 7.0 %", "");
        record.caveats.extend(is_starved.then(stolen));
        record
    }

    #[test]
    fn a_disturbed_run_is_kept_and_no_series_and_no_comparison_has_it() {
        let mut history = linerate_history::in_memory().unwrap();
        let rates = [100e6, 104e6, 97e6, 101e6, 20e6];
        let mut ids = Vec::new();
        for (minute, rate) in (0..).zip(rates) {
            let record = run_at(minute, rate, rate < 50e6);
            let (_, mark) = disturbed(&record).unzip();
            let labels: Vec<_> = mark.into_iter().collect();
            ids.push(save(&mut history, &record, &labels, Some(9)).unwrap());
        }
        let figures: Vec<_> = ids.iter().map(|id| history.figures(*id).unwrap()).collect();
        let has_rate = |of: &Vec<(String, f64)>| of.iter().any(|(name, _)| name != CARRIED);
        assert!(figures[..4].iter().all(has_rate) && !has_rate(&figures[4]), "{figures:?}");
        // Its document is there, and its bytes count.
        assert!(history.document(ids[4]).unwrap().is_some() && !figures[4].is_empty());
        let [was, is] = [run_at(30, 100e6, false), run_at(31, 92e6, false)].map(|it| it.observed());
        let others = others_of(&history, ids[0], &is).unwrap();
        assert_eq!(others.len(), 4);
        let change = was.until_beside(&is, &others).changes.remove(0);
        assert_eq!(change.others, Some(4));
        // Of the four, whose standard deviation is 2.9 %.
        assert!((12.0..15.0).contains(&change.usual_percent.unwrap()), "{change:?}");
    }

    #[test]
    fn a_run_is_found_by_its_path_and_what_was_run() {
        let about = About::new(
            r#"{"schema":"linerate.sweep/1","rows":[{"workload":"stream","protocol":"tcp",
            "direction":"up","host":"pit","started_at":"2026-11-23T09:00:00Z",
            "environment":{"lab":{"spec":"rtt=2ms"}}}]}"#,
        );
        assert_eq!((about.workload.as_str(), about.detail.as_str()), ("stream", "tcp up"));
        assert_eq!(
            (about.path.as_str(), about.started_at.as_str()),
            ("rtt=2ms", "2026-11-23T09:00:00Z")
        );
        let about =
            About::new(r#"{"schema":"linerate.comparison/1","host":"pit","started_at":"x"}"#);
        assert_eq!((about.workload.as_str(), about.path.as_str()), ("compare", "pit"));
    }
}

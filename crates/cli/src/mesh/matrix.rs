//! `mesh matrix`: the newest result of each pair in the history, and the sites that explain bad ones.

use std::collections::BTreeMap;
use std::time::SystemTime;

use anyhow::anyhow;
use linerate_core::plan::Direction;
use linerate_core::record::{Leg, Record};
use linerate_core::units::{format_rfc3339, listed};
use linerate_history::{Filter, History, HistoryError};
use linerate_mesh::{MatrixDocument, Mesh, PairResult};
use linerate_report::text::Style;
use linerate_report::{Document, document, json};

use crate::args::MeshMatrixArgs;
use crate::failure::Failure;
use crate::files::OutputFile;
use crate::{history, output};

/// Shows the matrix of a test.
///
/// # Errors
/// The file has no such test, or the history cannot be read.
pub(super) fn execute(args: &MeshMatrixArgs) -> Result<(), Failure> {
    let mesh = super::read(&args.file)?;
    let test = number(&mesh, args.test.as_deref())?;
    let file = OutputFile::of_output(args.output.as_deref())?;
    let history = history::kept(&args.place)?;
    let runs = newest(&mesh, &mesh.tests[test].name, &history);
    let runs = runs.map_err(|error| Failure::failed(anyhow!(error)))?;
    let results = runs.iter().flat_map(results);
    let until = format_rfc3339(SystemTime::now());
    let matrix = MatrixDocument::new(&mesh, test, &until, results);
    if let Some(file) = file {
        file.write(&json::document(&matrix))?;
    }
    if args.json {
        return output::print(&json::document(&matrix));
    }
    output::print(&matrix.text(Style {
        details: args.details,
        ..output::style()
    }))
}

/// The place of a test in the file.
fn number(mesh: &Mesh, name: Option<&str>) -> Result<usize, Failure> {
    let Some(name) = name else { return Ok(0) };
    let found = mesh.tests.iter().position(|test| test.name == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = mesh.tests.iter().map(|test| &*test.name).collect();
        Failure::usage(anyhow!(
            "--test {name}: the file has no such test, only {}",
            listed(&names, "and")
        ))
    })
}

/// The newest run from one site to another.
struct Newest {
    from: String,
    to: String,
    document: Box<dyn Document>,
}

fn newest(mesh: &Mesh, test: &str, history: &History) -> Result<Vec<Newest>, HistoryError> {
    let of_test = Filter {
        labels: vec![("test".to_owned(), test.to_owned())],
        ..Filter::default()
    };
    let mut last: BTreeMap<(String, String), (String, i64)> = BTreeMap::new();
    for run in history.list(&of_test)? {
        let mut labels = history.labels(run.id)?;
        let mut site = |end| labels.remove(end).filter(|name| mesh.site(name).is_some());
        if let (Some(from), Some(to)) = (site("from"), site("to")) {
            let known = last.entry((from, to)).or_default();
            *known = (run.started_at, run.id).max(std::mem::take(known));
        }
    }
    let mut runs = Vec::new();
    for ((from, to), (_, id)) in last {
        let text = history.document(id)?;
        // A document of a later version cannot be read, and is left out.
        let read = text.and_then(|text| document::read(text.as_bytes()).ok());
        runs.extend(read.map(|mut document| {
            document.annotate();
            Newest { from, to, document }
        }));
    }
    Ok(runs)
}

/// The result of each direction in which a run sent data, or of `rr` and `crr` the one of the pair.
fn results(run: &Newest) -> Vec<PairResult<'_>> {
    let records = run.document.records().unwrap_or_default();
    let of_record = |record| {
        let mut found: Vec<_> = record_legs(run, record).collect();
        if found.is_empty() {
            found.push(result(run, record, Direction::Up));
        }
        found
    };
    records.into_iter().flat_map(of_record).collect()
}

fn record_legs<'a>(run: &'a Newest, record: &'a Record) -> impl Iterator<Item = PairResult<'a>> {
    record.legs.iter().map(move |leg| PairResult {
        throughput_bps: leg.throughput_bps,
        loss_percent: loss_percent(leg),
        rtt_us: rtt_us(leg).or(record.latency_us.as_ref().map(|it| it.p50)),
        cause: leg.verdict.as_ref().map(|verdict| verdict.cause),
        confidence: leg.verdict.as_ref().and_then(|it| it.confidence),
        ..result(run, record, leg.direction)
    })
}

/// A result without figures of its direction; downwards the asked site is the sender.
fn result<'a>(run: &'a Newest, record: &'a Record, direction: Direction) -> PairResult<'a> {
    let (from, to) = match direction {
        Direction::Up | Direction::Both => (&run.from, &run.to),
        Direction::Down => (&run.to, &run.from),
    };
    PairResult {
        from,
        to,
        started_at: &record.started_at,
        throughput_bps: None,
        loss_percent: None,
        rtt_us: record.latency_us.as_ref().map(|latency| latency.p50),
        cause: None,
        confidence: None,
    }
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

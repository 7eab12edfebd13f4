//! `mesh matrix`: the newest result of each pair, and the sites that explain bad ones.
//! `mesh pair`: the results of one pair over time.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use linerate_core::plan::Direction;
use linerate_core::record::Record;
use linerate_core::units::{format_rfc3339, listed};
use linerate_engine::mesh::{matrix_cell, proofs_of};
use linerate_history::{Filter, History, HistoryError, PairRun, Place, Since, Store, first_moment};
use linerate_mesh::{MatrixDocument, Mesh, SuspectProof};
use linerate_report::Document;
use linerate_report::text::{self, Style};

use crate::args::{MeshMatrixArgs, MeshPairArgs};
use crate::failure::Failure;
use crate::files::OutputFile;
use crate::{history, keep, output};

/// Shows the matrix of a test.
///
/// # Errors
/// The file has no such test, or the history cannot be read.
pub(super) fn execute(args: &MeshMatrixArgs) -> Result<(), Failure> {
    let mesh = super::read(&args.file)?;
    let test = number(&mesh, args.test.as_deref())?;
    let file = OutputFile::of_output(args.output.as_deref())?;
    let now = || format_rfc3339(SystemTime::now());
    let until = args.at.as_ref().map_or_else(now, moment);
    let history = opened(&args.file, &mesh, args.place.db.as_ref())?;
    let runs = history.matrix(&mesh.tests[test].name, Some(&until)).map_err(history::unusable)?;
    let results = runs.iter().filter_map(|run| matrix_cell(&mesh, run));
    let mut matrix = MatrixDocument::new(&mesh, test, &until, results);
    for suspect in &mut matrix.suspects {
        let of = [&*mesh.tests[test].name, &suspect.label()];
        suspect.proof = proof(&*history, &mesh, of, &until).map_err(history::unusable)?;
    }
    if let Some(cause) = args.verdict {
        matrix.cells.retain(|cell| cell.cause == Some(cause));
    }
    if let Some(most) = args.worst {
        matrix.cells = matrix.worst().into_iter().take(most).cloned().collect();
    }
    if let Some(file) = file {
        file.write(&output::json(&matrix))?;
    }
    if args.json {
        return output::print(&output::json(&matrix));
    }
    if args.worst.is_some() || args.verdict.is_some() {
        return output::print(&text::matrix_pairs(&matrix, output::style()));
    }
    output::print(&matrix.text(Style { details: args.details, ..output::style() }))
}

/// Shows the results of one pair over time.
///
/// # Errors
/// The file has no such test or site, there is no result, or the history cannot be read.
pub(super) fn pair(args: &MeshPairArgs) -> Result<(), Failure> {
    let mesh = super::read(&args.file)?;
    let test = &mesh.tests[number(&mesh, args.test.as_deref())?].name;
    for site in [&args.from, &args.to] {
        if mesh.site(site).is_none() {
            return Err(Failure::usage(anyhow!("{site}: the file has no such site")));
        }
    }
    let history = opened(&args.file, &mesh, args.place.db.as_ref())?;
    let runs = history.pair(test, &args.from, &args.to, args.most).map_err(history::unusable)?;
    if runs.is_empty() {
        output::note(&format!(
            "no result of {test} from {} to {} is in the history",
            args.from, args.to
        ));
    }
    let row = |run: &PairRun| Some((run.run, matrix_cell(&mesh, run)?));
    let rows: Vec<_> = runs.iter().filter_map(row).collect();
    output::print(&text::pair_runs(&rows, output::style()))
}

/// Opens the history of `--db`, of the mesh's file, or the default one.
fn opened(file: &Path, mesh: &Mesh, db: Option<&Place>) -> Result<History, Failure> {
    let (of_file, file) = (format!("{}: db", file.display()), file.display());
    let named = if db.is_some() { "--db" } else { &of_file };
    match super::place(mesh, db) {
        Some(place) => history::existing(named, &place, &format!("`linerate mesh up {file}`")),
        None => keep::open(None),
    }
}

/// The moment in RFC 3339, UTC.
fn moment(since: &Since) -> String {
    match since {
        Since::Ago(seconds) => {
            let now = SystemTime::now();
            let then = now.checked_sub(Duration::from_secs(*seconds));
            format_rfc3339(then.unwrap_or(SystemTime::UNIX_EPOCH))
        }
        Since::Moment(text) => first_moment(text),
    }
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

/// The last proof of a suspect of a test until a moment.
fn proof(
    history: &dyn Store,
    mesh: &Mesh,
    [test, suspect]: [&str; 2],
    until: &str,
) -> Result<Option<SuspectProof>, HistoryError> {
    let last = Filter { before: Some(Since::Moment(until.to_owned())), ..proofs_of(test, suspect) };
    let Some(run) = history.list(&last)?.pop() else {
        return Ok(None);
    };
    let (labels, text) = (history.labels(run.id)?, history.document(run.id)?);
    let found = || {
        let record: Record = serde_json::from_str(&text?).ok()?;
        let site = |end: &str| Some(mesh.site(labels.get(end)?)? as u32);
        let (from, to) = (site("from")?, site("to")?);
        let is_down = record.leg()?.direction == Direction::Down;
        let (from, to) = if is_down { (to, from) } else { (from, to) };
        let proof = record.verdict()?.proof.clone()?;
        Some(SuspectProof { run: run.id, started_at: run.started_at.clone(), from, to, proof })
    };
    Ok(found())
}

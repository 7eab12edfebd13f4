//! `analyze`: the same statistics on figures that were measured elsewhere.

use std::path::Path;

use linerate_core::analyze::{self, Claims, Input, MAX_BYTES, Options};
use linerate_history::Place;

use crate::args::{AnalyzeArgs, InputName};
use crate::failure::Failure;
use crate::files;
use crate::output::{self, Output};
use crate::stored;

/// Reads the files, says what their figures can say, and prints that.
///
/// # Errors
/// A file cannot be read or is wrong, an option names what is not in it, or a write failed.
pub(crate) fn execute(args: &AnalyzeArgs) -> Result<(), Failure> {
    let options = options(args)?;
    let files = args
        .files
        .iter()
        .map(|input| Contents::read(input, args.document.keep.db.as_ref()))
        .collect::<Result<Vec<_>, _>>()?;
    let inputs: Vec<Input<'_>> = files.iter().map(Contents::input).collect();
    let table = analyze::read(&inputs).map_err(Failure::usage)?;
    let analysis = analyze::analyze(&table, &options).map_err(Failure::usage)?;
    let format = output::json_or_text(args.document.json);
    Output::open(&args.document, format)?.write(&analysis)
}

fn options(args: &AnalyzeArgs) -> Result<Options, Failure> {
    let question = &args.question;
    let columns = question.column.iter();
    Ok(Options {
        metrics: question.metric.clone(),
        factor: question.factor.clone(),
        by: question.by.clone(),
        a: question.a.clone(),
        b: question.b.clone(),
        columns: columns.map(|name| (name.0.clone(), name.1.clone())).collect(),
        framing: question.framing.and_then(|name| name.framing()),
        claims: question.claims.as_deref().map(claims).transpose()?,
    })
}

fn claims(path: &Path) -> Result<Claims, Failure> {
    let text = files::read_text("--claims", path, MAX_BYTES as u64).map_err(Failure::usage)?;
    Claims::from_toml(&path.display().to_string(), &text).map_err(Failure::usage)
}

/// A file with its names.
struct Contents {
    name: String,
    label: String,
    bytes: Vec<u8>,
}

impl Contents {
    fn read(input: &InputName, db: Option<&Place>) -> Result<Self, Failure> {
        // A file whose own name has a `=` in it goes before a label.
        let is_whole = input.label.is_none() || input.whole.exists();
        let path = if is_whole { &input.whole } else { &input.path };
        let name = path.display().to_string();
        let label = input.label.clone().filter(|_| !is_whole);
        Ok(Self {
            bytes: stored::read("", path, db, MAX_BYTES as u64)?,
            label: label.unwrap_or_else(|| name.clone()),
            name,
        })
    }

    fn input(&self) -> Input<'_> {
        Input { file: &self.name, label: &self.label, bytes: &self.bytes }
    }
}

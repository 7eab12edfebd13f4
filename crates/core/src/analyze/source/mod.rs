//! Reads files of figures into one [`Table`]. A file's format is recognized by its first lines.

mod delimited;
mod json;
mod netperf;

use super::table::{Builder, Table};
use super::{AnalyzeError, MAX_BYTES, Place};
use crate::units::shortened;

/// A file as it was read.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// Its name, for messages and for the tables that claims are about.
    pub file: &'a str,
    /// What its rows have in the column `file`: what a user calls it.
    pub label: &'a str,
    /// Content of the file.
    pub bytes: &'a [u8],
}

/// Reads the files into one table; a column of the same name is the same column.
///
/// # Errors
/// A file has none of the [formats](super::Format); all together have more than 64 MiB, or more
/// than a million rows. The message names the file and the place.
pub fn read(inputs: &[Input<'_>]) -> Result<Table, AnalyzeError> {
    let mut builder = Builder::default();
    let mut bytes = 0;
    for input in inputs {
        bytes += input.bytes.len();
        let read = if bytes > MAX_BYTES {
            let max = MAX_BYTES >> 20;
            let problem = format!("with it there are more than {max} MiB to read");
            Err(SourceFault::of_file(problem))
        } else {
            read_one(input, &mut builder)
        };
        read.map_err(|SourceFault { place, problem }| {
            let place = place.map_or(String::new(), |place| format!("{place}: "));
            AnalyzeError::new(format!("{}: {place}{problem}", input.file))
        })?;
    }
    Ok(builder.finish())
}

fn read_one(input: &Input<'_>, builder: &mut Builder) -> Result<(), SourceFault> {
    let text = text(input.bytes)?;
    let start = text.trim_start();
    if start.starts_with(['{', '[']) {
        json::read(input, text, builder)?;
    } else if netperf::is_output(text) {
        netperf::read(input, text, builder)?;
    } else {
        builder.begin(input.file, input.label, super::Format::Csv);
        delimited::read(text, builder)?;
    }
    match builder.rows_of_file() {
        0 => Err(SourceFault::of_file(EMPTY)),
        _ => Ok(()),
    }
}

/// The file's text without the byte-order mark that spreadsheets write.
fn text(bytes: &[u8]) -> Result<&str, SourceFault> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        SourceFault::at_line(line, NOT_TEXT)
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() { Err(SourceFault::of_file(EMPTY)) } else { Ok(text) }
}

const EMPTY: &str = "there are no figures in it";
const NOT_TEXT: &str = "it is not UTF-8 text";

/// Problem of a file, with its place.
#[derive(Debug)]
struct SourceFault {
    place: Option<Place>,
    problem: String,
}

impl SourceFault {
    fn of_file(problem: impl Into<String>) -> Self {
        Self { place: None, problem: problem.into() }
    }

    fn at_line(line: usize, problem: impl Into<String>) -> Self {
        Self { place: Some(Place { line, column: None }), problem: problem.into() }
    }

    /// A first line with a figure in place of a name.
    fn no_header(line: usize, cell: &str) -> Self {
        let cell = shortened(cell);
        let problem = format!("`{cell}` is a figure: the first line of a table names its columns");
        Self::at_line(line, problem)
    }

    /// A row of another length than the header.
    fn ragged(line: usize, found: u64, named: u64) -> Self {
        let problem = format!(
            "{found} cells, where the header names {named}: is a text with commas in it not quoted?"
        );
        Self::at_line(line, problem)
    }
}

/// Where the text at an offset is, for offsets that grow.
struct Lines<'a> {
    text: &'a str,
    offset: usize,
    line: usize,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, offset: 0, line: 1 }
    }

    fn of(&mut self, offset: usize) -> usize {
        let passed = &self.text.as_bytes()[self.offset..offset];
        self.line += passed.iter().filter(|byte| **byte == b'\n').count();
        self.offset = offset;
        self.line
    }

    fn column_of(&self, offset: usize) -> usize {
        let before = &self.text[..offset];
        let begin = before.rfind('\n').map_or(0, |newline| newline + 1);
        before[begin..].chars().count() + 1
    }
}

#[cfg(test)]
mod tests;

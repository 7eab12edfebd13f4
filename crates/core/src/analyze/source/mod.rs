//! Files of figures → one [`Table`]. What a file is, is seen from its first lines.

mod delimited;
mod json;
mod netperf;

pub(super) use json::SCHEMAS;

use super::MAX_BYTES;
use super::error::{Place, ReadError, ReadProblem};
use super::table::{Builder, Table};

/// A file as it was read.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// Its name, for messages and for the tables that claims are about.
    pub file: &'a str,
    /// What its rows have in the column `file`: what a user calls it.
    pub label: &'a str,
    /// All of it.
    pub bytes: &'a [u8],
}

/// Reads the files into one table; a column of the same name is the same column.
///
/// # Errors
/// [`ReadError`] with file and place: a file that is nothing of [`Format`](super::Format), more
/// than 64 MiB together, more than a million rows.
pub fn read(inputs: &[Input<'_>]) -> Result<Table, ReadError> {
    let mut builder = Builder::default();
    let mut bytes = 0;
    for input in inputs {
        bytes += input.bytes.len();
        let problem = if bytes > MAX_BYTES {
            Err(ReadProblem::TooLong.into())
        } else {
            read_one(input, &mut builder)
        };
        problem.map_err(|fault: Fault| ReadError {
            file: input.file.to_owned(),
            place: fault.place,
            problem: fault.problem,
        })?;
    }
    Ok(builder.finish())
}

fn read_one(input: &Input<'_>, builder: &mut Builder) -> Result<(), Fault> {
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
        0 => Err(ReadProblem::Empty.into()),
        _ => Ok(()),
    }
}

/// The file's text without the byte-order mark that spreadsheets write.
fn text(bytes: &[u8]) -> Result<&str, Fault> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        Fault::at_line(line, ReadProblem::NotText)
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        Err(ReadProblem::Empty.into())
    } else {
        Ok(text)
    }
}

/// A problem, and where it is.
#[derive(Debug)]
struct Fault {
    place: Option<Place>,
    problem: ReadProblem,
}

impl Fault {
    fn at_line(line: usize, problem: ReadProblem) -> Self {
        let place = Some(Place { line, column: None });
        Self { place, problem }
    }
}

impl From<ReadProblem> for Fault {
    fn from(problem: ReadProblem) -> Self {
        Self {
            place: None,
            problem,
        }
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
        Self {
            text,
            offset: 0,
            line: 1,
        }
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

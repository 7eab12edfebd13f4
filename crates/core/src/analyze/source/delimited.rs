//! A header and rows, separated by commas, semicolons or tabs (RFC 4180, read with good will).

use csv::{ErrorKind, ReaderBuilder, StringRecord, Trim};

use super::super::error::ReadProblem;
use super::super::table::{Builder, number};
use super::{Fault, shortened};

/// Reads a table that begins at `first_line` of its file.
pub(super) fn read(text: &str, first_line: usize, builder: &mut Builder) -> Result<(), Fault> {
    let mut reader = ReaderBuilder::new()
        .delimiter(delimiter(text))
        .trim(Trim::All)
        .from_reader(text.as_bytes());
    let line_of = |position: Option<&csv::Position>| {
        position.map_or(first_line, |at| at.line() as usize + first_line - 1)
    };
    let header = reader
        .headers()
        .map_err(|error| fault(&error, first_line))?;
    let header_line = line_of(header.position());
    let columns =
        columns(header, builder).map_err(|problem| Fault::at_line(header_line, problem))?;
    let mut record = StringRecord::new();
    while reader
        .read_record(&mut record)
        .map_err(|error| fault(&error, first_line))?
    {
        let line = line_of(record.position());
        let mut cells: Vec<(u32, &str)> = columns.iter().copied().zip(record.iter()).collect();
        builder
            .row(line, &mut cells)
            .map_err(|problem| Fault::at_line(line, problem))?;
    }
    Ok(())
}

fn columns(header: &StringRecord, builder: &mut Builder) -> Result<Vec<u32>, ReadProblem> {
    if let Some(cell) = header.iter().find(|cell| number(cell).is_some()) {
        let cell = shortened(cell);
        return Err(ReadProblem::NoHeader { cell });
    }
    let mut columns = Vec::with_capacity(header.len());
    for (index, name) in header.iter().enumerate() {
        if name.is_empty() {
            return Err(ReadProblem::Unnamed { number: index + 1 });
        }
        let column = builder.column(name)?;
        if columns.contains(&column) {
            let name = shortened(name);
            return Err(ReadProblem::Repeated { name });
        }
        columns.push(column);
    }
    Ok(columns)
}

/// The separator that the header has most of.
fn delimiter(text: &str) -> u8 {
    let header = text.lines().find(|line| !line.trim().is_empty());
    let mut is_quoted = false;
    let mut counts = [(b',', 0_usize), (b';', 0), (b'\t', 0)];
    for byte in header.unwrap_or_default().bytes() {
        is_quoted ^= byte == b'"';
        let counted = counts.iter_mut().find(|(separator, _)| *separator == byte);
        if let (Some((_, count)), false) = (counted, is_quoted) {
            *count += 1;
        }
    }
    // The last of several largest: commas come first and win a tie.
    let most = counts.iter().rev().max_by_key(|(_, count)| *count);
    most.map_or(b',', |(separator, _)| *separator)
}

fn fault(error: &csv::Error, first_line: usize) -> Fault {
    let line = error
        .position()
        .map_or(first_line, |at| at.line() as usize + first_line - 1);
    let problem = match error.kind() {
        ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => ReadProblem::Ragged {
            found: *len,
            named: *expected_len,
        },
        _ => ReadProblem::NotText,
    };
    Fault::at_line(line, problem)
}

/// The cells of one line, separated by commas.
pub(super) fn fields(line: &str) -> Vec<String> {
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .trim(Trim::All)
        .from_reader(line.as_bytes());
    let mut record = StringRecord::new();
    match reader.read_record(&mut record) {
        Ok(true) => record.iter().map(str::to_owned).collect(),
        // A line without any cell; as bytes it cannot fail, and text it is.
        _ => Vec::new(),
    }
}

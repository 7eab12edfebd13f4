//! Reads a header and rows separated by commas, semicolons or tabs: RFC 4180, with tolerance.

use csv::{ErrorKind, ReaderBuilder, StringRecord, Trim};

use super::super::table::{Builder, number};
use super::{Lines, NOT_TEXT, SourceFault};
use crate::units::shortened;

/// Reads a table.
pub(super) fn read(text: &str, builder: &mut Builder) -> Result<(), SourceFault> {
    let mut reader = ReaderBuilder::new()
        .delimiter(delimiter(text))
        .trim(Trim::All)
        .from_reader(text.as_bytes());
    let mut lines = Lines::new(text);
    let header = match reader.headers() {
        Ok(header) => header,
        Err(error) => return Err(fault(&error, &mut lines)),
    };
    let header_line = line_of(header.position(), &mut lines);
    let columns = columns(header, header_line, builder)?;
    let mut record = StringRecord::new();
    loop {
        match reader.read_record(&mut record) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => return Err(fault(&error, &mut lines)),
        }
        let line = line_of(record.position(), &mut lines);
        let mut cells: Vec<(u32, &str)> = columns.iter().copied().zip(record.iter()).collect();
        builder.row(line, 0, &mut cells).map_err(|problem| SourceFault::at_line(line, problem))?;
    }
}

/// The line in which a record begins. The parser's own count is that of the line end before it,
/// which with CR LF is the line before, and with empty lines one before those.
fn line_of(position: Option<&csv::Position>, lines: &mut Lines<'_>) -> usize {
    let offset = position.map_or(0, |at| at.byte() as usize);
    let rest = lines.text.as_bytes().get(offset..).unwrap_or_default();
    let ends = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
    lines.of((offset + ends.count()).min(lines.text.len()))
}

fn columns(
    header: &StringRecord,
    line: usize,
    builder: &mut Builder,
) -> Result<Vec<u32>, SourceFault> {
    if let Some(cell) = header.iter().find(|cell| number(cell).is_some()) {
        return Err(SourceFault::no_header(line, cell));
    }
    let fault = |problem: String| SourceFault::at_line(line, problem);
    let mut columns = Vec::with_capacity(header.len());
    for (index, name) in header.iter().enumerate() {
        if name.is_empty() {
            let number = index + 1;
            return Err(fault(format!("column {number} of the header has no name")));
        }
        let column = builder.column(name).map_err(fault)?;
        if columns.contains(&column) {
            let name = shortened(name);
            return Err(fault(format!("there are two columns `{name}`")));
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

fn fault(error: &csv::Error, lines: &mut Lines<'_>) -> SourceFault {
    let line = line_of(error.position(), lines);
    match error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            SourceFault::ragged(line, *len, *expected_len)
        }
        _ => SourceFault::at_line(line, NOT_TEXT),
    }
}

/// The cells of one line, separated by commas.
pub(super) fn fields(line: &str) -> Vec<String> {
    let mut reader =
        ReaderBuilder::new().has_headers(false).trim(Trim::All).from_reader(line.as_bytes());
    let mut record = StringRecord::new();
    match reader.read_record(&mut record) {
        Ok(true) => record.iter().map(str::to_owned).collect(),
        // A line without any cell; as bytes it cannot fail, and text it is.
        _ => Vec::new(),
    }
}

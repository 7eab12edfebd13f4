//! Where the document goes: stdout, and the file of `--output`.

use std::io::{self, IsTerminal, Write};

use linerate_report::json;
use linerate_report::text::Style;

use crate::args::{DocumentOptions, TableOptions};
use crate::document::Document;
use crate::failure::{Failure, printable};
use crate::files::OutputFile;
use crate::render::{self, Format};

/// The places that the document is to reach, opened before the run.
#[derive(Debug)]
pub(crate) struct Output {
    format: Format,
    file: Option<OutputFile>,
}

impl Output {
    /// Opens the file of `--output`, if there is to be one.
    ///
    /// # Errors
    /// It cannot be opened for writing.
    pub(crate) fn open(options: &DocumentOptions, format: Format) -> Result<Self, Failure> {
        let file = options
            .output
            .as_deref()
            .map(OutputFile::open)
            .transpose()?;
        Ok(Self { format, file })
    }

    /// Prints the document and writes the file.
    ///
    /// # Errors
    /// A write failed; that nobody reads stdout any more is none.
    pub(crate) fn write(self, document: &Document) -> Result<(), Failure> {
        // The file first: it is the copy that the user keeps.
        if let Some(file) = self.file {
            file.write(&json::document(document))?;
        }
        match print(&render::document(document, self.format, style())?) {
            Err(failure) if failure.is_reader_gone() => Ok(()),
            other => other,
        }
    }
}

/// The format that the options ask for; clap lets only one of them through.
pub(crate) fn format(document: &DocumentOptions, table: &TableOptions) -> Format {
    match (document.json, table.csv, table.json_stream) {
        (true, _, _) => Format::Json,
        (_, true, _) => Format::Csv,
        (_, _, true) => Format::JsonStream,
        _ => Format::Text,
    }
}

/// What stdout can show: a terminal its width, with colour unless `NO_COLOR` (no-color.org) is set.
pub(crate) fn style() -> Style {
    let width = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    match width {
        Some(width) if io::stdout().is_terminal() => Style {
            width,
            colour: !no_colour,
        },
        _ => Style::default(),
    }
}

/// Writes to stdout, to the last byte.
///
/// # Errors
/// The disk is full, or nobody reads any more.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(Failure::stdout)
}

/// Says something on stderr, on a line of its own.
pub(crate) fn note(text: &str) {
    // Where stderr cannot be written there is nobody to tell.
    let _ = writeln!(io::stderr(), "linerate: {}", printable(text));
}

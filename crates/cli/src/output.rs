//! Writes the document to stdout, to the file of `--output` and to the history.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::anyhow;
use linerate_core::units::{BitRate, printable};
use linerate_engine::{LAB_EXEC, stdout_was_closed};
use linerate_report::document::with_command;
use linerate_report::text::Style;
use linerate_report::{Document, csv};
use serde_json::Value;

use crate::args::{CsvOptions, CsvRows, DocumentOptions, TitleOptions};
use crate::config::{self, Colours};
use crate::failure::Failure;
pub(crate) use crate::failure::note;
use crate::files::OutputFile;
use crate::keep::Keeper;
use crate::{gate, typed};

/// How a document is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people: the answer.
    Text,
    /// For people, with the evidence.
    Details,
    /// One document, indented.
    Json,
    /// Comma-separated values.
    Csv(CsvRows),
    /// A line for each interval, then the document in one line.
    JsonStream,
}

/// Where the document goes: everything is opened before the run.
#[derive(Debug)]
pub(crate) struct Output {
    format: Format,
    file: Option<OutputFile>,
    keeper: Option<Keeper>,
    title: TitleOptions,
    /// The words of the command that makes or has made the document.
    command: Vec<String>,
    /// The command that reads the document again, if it was read from a file.
    source: Option<String>,
}

impl Output {
    /// Opens the file of `--output` and the history of `--save`, if they were asked for.
    ///
    /// # Errors
    /// It cannot be opened for writing.
    pub(crate) fn open(options: &DocumentOptions, format: Format) -> Result<Self, Failure> {
        let format = match format {
            Format::Text if options.details => Format::Details,
            format => format,
        };
        let opened = Self::to(options.output.as_deref(), format)?;
        let keeper = Keeper::new(&options.keep)?;
        Ok(Self { keeper, ..opened })
    }

    /// Opens only stdout and a file.
    ///
    /// # Errors
    /// It cannot be opened for writing, or there is neither a stdout nor a file.
    pub(crate) fn to(file: Option<&Path>, format: Format) -> Result<Self, Failure> {
        if file.is_none() && stdout_was_closed() {
            return Err(Failure::no_stdout());
        }
        Ok(Self {
            format,
            file: OutputFile::of_output(file)?,
            keeper: None,
            title: TitleOptions::default(),
            command: typed::line().of_document(),
            source: None,
        })
    }

    /// The same for a document from a file, which `command` has made and `reader` reads.
    pub(crate) fn read_by(self, reader: String, command: Vec<String>) -> Self {
        Self { source: Some(reader), command, ..self }
    }

    /// Adds the title that the user gave the run.
    pub(crate) fn titled(self, title: &TitleOptions) -> Self {
        let title = title.clone();
        Self { title, ..self }
    }

    /// Whether the document is kept even if nobody reads stdout.
    pub(crate) fn is_kept(&self) -> bool {
        self.file.is_some() || self.keeper.is_some()
    }

    /// Writes the file, saves the run and prints the document. Each is tried even if another fails,
    /// since the run cannot be repeated.
    ///
    /// # Errors
    /// A write failed, or the document has no rows for `--csv`.
    pub(crate) fn write(self, document: &dyn Document) -> Result<(), Failure> {
        // The file first: it is the copy that the user keeps.
        let (title, command) = (&self.title, &self.command);
        let whole = |json| titled(title, with_command(command, json));
        let of_file = self.file.as_ref().and_then(OutputFile::explained);
        let mut evidence = self.source.or(of_file);
        let kept = self.file.map_or(Ok(()), |file| file.write(&whole(document.json())));
        let saved = self.keeper.map_or(Ok(()), |keeper| {
            let id = keeper.save(document, command)?;
            let show = format!("linerate history show {id}");
            note(&format!("saved as run {id}: {show}"));
            evidence.get_or_insert(show);
            Ok(())
        });
        let evidence = evidence.map(|show| &*format!("{show} --details").leak());
        let style = Style { evidence, ..style() };
        let printed = rendered(document, self.format, style).and_then(|text| {
            print(&match (self.format, &title.title) {
                (Format::Json | Format::JsonStream, _) => whole(text),
                (Format::Text | Format::Details, Some(title)) => {
                    format!("{}\n{text}", printable(title))
                }
                _ => text,
            })
        });
        kept.and(saved).and(printed)
    }
}

/// Writes the document, then fails if the run ended early or was too slow.
///
/// # Errors
/// The document cannot be written or is partial, or a rate is below `floor`.
pub(crate) fn conclude(
    document: &dyn Document,
    error: Option<Failure>,
    output: Output,
    floor: Option<BitRate>,
) -> Result<(), Failure> {
    let stopped = why_stopped(document, error);
    output.write(document)?;
    if let Some(stopped) = stopped {
        floor.iter().for_each(|floor| gate::no_result(&format!("--fail-below {floor}")));
        return Err(stopped);
    }
    match floor {
        Some(floor) => gate::hold(document, floor).map_err(Failure::failed),
        None => Ok(()),
    }
}

/// Why a document is no result: what ended its runs, or that they are not all there.
fn why_stopped(document: &dyn Document, error: Option<Failure>) -> Option<Failure> {
    let why = || document.why_partial();
    error.or_else(|| Some(Failure::failed(anyhow!("ended before its time: {}", why()?))))
}

fn rendered(document: &dyn Document, format: Format, style: Style) -> Result<String, Failure> {
    Ok(match format {
        Format::Text => document.text(style),
        Format::Details => document.text(Style { details: true, ..style }),
        Format::Json => document.json(),
        Format::JsonStream => document.json_line(),
        Format::Csv(rows) => {
            let records = document.records().ok_or_else(|| {
                Failure::usage(anyhow!("--csv: this document has no records; give --json"))
            })?;
            let names = document.run_names();
            match rows {
                CsvRows::Runs => csv::rows(&records, document.size_figures(), &names),
                CsvRows::Intervals => csv::intervals(&records, &names),
            }
        }
    })
}

/// A document with the user's title and extra data before its own keys.
fn titled(said: &TitleOptions, json: String) -> String {
    let said = [("title", &said.title), ("extra_data", &said.extra_data)];
    let blanks = if json.starts_with("{\n") { "\n  " } else { "" };
    let keys = said.iter().filter_map(|(key, text)| {
        let text = Value::from(text.as_deref()?);
        Some(format!("{blanks}\"{key}\": {text},"))
    });
    json.replacen('{', &format!("{{{}", keys.collect::<String>()), 1)
}

/// The document as JSON, with the command that makes it.
pub(crate) fn json(document: &dyn Document) -> String {
    with_command(&typed::line().of_document(), document.json())
}

/// `--json`, or a page.
pub(crate) fn json_or_text(as_json: bool) -> Format {
    if as_json { Format::Json } else { Format::Text }
}

/// The format that the options ask for; clap lets only one of them through.
pub(crate) fn format(json: bool, csv: &CsvOptions, json_stream: bool) -> Format {
    match (json, csv.csv, json_stream) {
        (true, _, _) => Format::Json,
        (_, Some(rows), _) => Format::Csv(rows),
        (_, _, true) => Format::JsonStream,
        _ => Format::Text,
    }
}

/// The style for stdout: a terminal's width, and colour unless `NO_COLOR` (no-color.org) is set or
/// the terminal has none. Without a terminal the width is that of `COLUMNS`.
pub(crate) fn style() -> Style {
    let is = |name, holds: fn(&std::ffi::OsStr) -> bool| {
        std::env::var_os(name).is_some_and(|value| holds(&value))
    };
    let no_colour = is("NO_COLOR", |value| !value.is_empty()) || is("TERM", |term| term == "dumb");
    let terminal = terminal_size::terminal_size_of(io::stdout());
    let width = terminal.map(|(width, _)| usize::from(width.0));
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    Style {
        width: width.or(columns).unwrap_or(Style::default().width),
        colour: match config::colours() {
            Colours::Auto => io::stdout().is_terminal() && !no_colour,
            Colours::Always => true,
            Colours::Never => false,
        },
        prefix: lab_exec(),
        ..Style::default()
    }
}

/// The command that starts programs in the lab's host in which this program runs, if it does.
fn lab_exec() -> Option<&'static str> {
    let how = std::env::var(LAB_EXEC).ok()?;
    let (process, prefix) = how.split_once(' ')?;
    let is_own = process.parse() == Ok(std::process::id());
    is_own.then(|| &*prefix.to_owned().leak())
}

/// Writes all of the text to stdout.
///
/// # Errors
/// The disk is full, there is no stdout, or nobody reads any more.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    if stdout_was_closed() {
        return Err(Failure::no_stdout());
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(Failure::stdout)
}

//! A document as text: the one place that picks a view of it.

use anyhow::anyhow;
use linerate_report::text::{self, Style};
use linerate_report::{csv, json};

use crate::document::Document;
use crate::failure::Failure;
use crate::lab;

/// How a document is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For people; of a profile its functions too.
    Functions,
    /// One document, indented.
    Json,
    /// A row for each record.
    Csv,
    /// A line for each interval, then the document in one line.
    JsonStream,
}

/// The document in a format, with the line end.
///
/// # Errors
/// The format has no view of this document.
pub(crate) fn document(
    document: &Document,
    format: Format,
    style: Style,
) -> Result<String, Failure> {
    match format {
        Format::Text | Format::Functions => Ok(match document {
            Document::Record(record) => text::record(record, style),
            Document::Sweep(sweep) => text::sweep(sweep, style),
            Document::Check(check) => text::check(check, style),
            Document::Profile(profile) => {
                text::profile(profile, format == Format::Functions, style)
            }
            Document::Comparison(comparison) => text::comparison(comparison, style),
            Document::Trace(trace) => text::trace(trace, style),
            Document::Experiment(experiment) => text::experiment(experiment, style),
            Document::Analysis(analysis) => text::analysis(analysis, style),
            Document::Truth(score) => score.text(),
            Document::Labs(labs) => lab::text(labs),
            Document::Host(host) => text::host(host, false, style),
            Document::Capacity(document) => text::capacity(document, style),
        }),
        Format::Json => Ok(json::document(document)),
        Format::JsonStream => Ok(json::line(document)),
        Format::Csv => {
            let mut bytes = Vec::new();
            match document {
                Document::Record(record) => csv::record(record, &mut bytes),
                Document::Sweep(sweep) => csv::sweep(sweep, &mut bytes),
                _ => {
                    return Err(Failure::usage(anyhow!(
                        "--csv: only records and sweeps have rows; give --json"
                    )));
                }
            }
            .map_err(|error| Failure::failed(anyhow!(error)))?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        }
    }
}

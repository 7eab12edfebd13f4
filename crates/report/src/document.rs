//! The trait that every document of linerate implements, and the list of all documents.
//!
//! Adding a document takes its type, its [`Document`] beside its page (`text/`) and one entry of
//! `documents!`: schema, JSON, `--csv`, `explain` and the checked-in JSON Schema follow from these.

use std::ops::{Deref, DerefMut};
use std::{fmt, iter};

use linerate_core::analyze::{ANALYSIS_SCHEMA, Analysis};
use linerate_core::capacity::{CAPACITY_SCHEMA, CapacityDocument};
use linerate_core::ceilings;
use linerate_core::compare::{COMPARISON_SCHEMA, Comparison};
use linerate_core::connection::{CONNECTIONS_SCHEMA, ConnectionsDocument};
use linerate_core::experiment::{EXPERIMENT_SCHEMA, ExperimentDocument};
use linerate_core::host::{HOST_SCHEMA, HostDocument};
use linerate_core::lab::{LAB_SCHEMA, LabsDocument};
use linerate_core::load::{LOAD_SCHEMA, LoadDocument};
use linerate_core::profile::{PROFILE_SCHEMA, ProfileDocument};
use linerate_core::record::{
    CHECK_SCHEMA, Caveat, CaveatKind, Check, Environment, Observed, RECORD_SCHEMA, Record,
    SWEEP_SCHEMA, SizeFigure, Status, Sweep,
};
use linerate_core::throughput::{THROUGHPUT_SCHEMA, ThroughputDocument};
use linerate_core::trace::{TRACE_SCHEMA, TraceDocument};
use linerate_mesh::{MATRIX_SCHEMA, MatrixDocument};
use linerate_qos::document::{QOS_SCHEMA, QosDocument};
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{Schema, schema_for};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use serde_json::{Value, json};
use thiserror::Error;

use crate::charts;
use crate::json::{self, Json};
use crate::page::Page;
use crate::style::Style;
use crate::svg::Chart;

/// A document that a command prints, stores and reads again.
pub trait Document: Json + Charted {
    /// Writes the document's page for people, the answer first.
    fn page(&self, page: &mut Page);

    /// The page, laid out.
    fn text(&self, style: Style) -> String {
        let mut page = Page::new(style);
        self.page(&mut page);
        page.finish()
    }

    /// The answer in one sentence: the first of the page, unless the document has a better one.
    fn answer(&self) -> String {
        let mut page = Page::new(Style::default());
        self.page(&mut page);
        let first = page.answer();
        first.unwrap_or_else(|| "no result".to_owned())
    }

    /// The document's figures by name, for comparison with those of another document.
    fn observed(&self) -> Observed {
        Observed::default()
    }

    /// The document's runs, which are the rows of its CSV; `None` for a document that has no runs.
    fn records(&self) -> Option<Vec<&Record>> {
        None
    }

    /// The name of each run; empty where runs have no names.
    fn run_names(&self) -> Vec<&str> {
        Vec::new()
    }

    /// The figure over the repeats of each message size.
    fn size_figures(&self) -> &[SizeFigure] {
        &[]
    }

    /// The same runs, mutable, so that their verdicts can be computed again.
    fn records_mut(&mut self) -> Vec<&mut Record> {
        Vec::new()
    }

    /// The environment and the caveats of each run, and those of the document itself.
    fn environments_mut(&mut self) -> Vec<Surroundings<'_>> {
        let records = self.records_mut().into_iter();
        records.map(|record| (&mut record.environment, &mut record.caveats)).collect()
    }

    /// The status of the document, or of each of its runs, with the caveats that explain it.
    fn endings(&self) -> Vec<Ending<'_>> {
        let records = self.records().unwrap_or_default().into_iter();
        records.map(|record| (record.status, record.caveats.as_slice())).collect()
    }

    /// The throughputs that `--fail-below` checks, by name, in bits per second; `None` for a
    /// document without a rate.
    fn throughputs(&self) -> Option<Vec<Rate<'_>>> {
        None
    }

    /// Computes again what follows from the document's own evidence: ceilings, verdicts, limits.
    fn annotate(&mut self) {
        self.records_mut().into_iter().for_each(ceilings::annotate);
    }

    /// Why the document is partial, if it is.
    fn why_partial(&self) -> Option<String> {
        let endings = self.endings().into_iter();
        let mut partial = endings.filter(|(status, _)| *status != Status::Complete);
        let (_, caveats) = partial.next()?;
        let is_reason = |caveat: &&Caveat| caveat.kind == CaveatKind::Partial;
        let reason = caveats.iter().find(is_reason);
        Some(reason.map_or_else(|| "the reason is not known".to_owned(), Caveat::says))
    }
}

/// A document with charts of its figures, as `documents!` names them.
pub trait Charted {
    /// The charts; none for a document without figures over time, sizes or causes.
    fn charts(&self) -> Vec<Chart>;
}

/// As JSON: a derived `Debug` for each document type would only make the program larger.
impl fmt::Debug for dyn Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.json_line())
    }
}

/// The environment that figures were measured in, and its caveats.
pub type Surroundings<'a> = (&'a mut Environment, &'a mut Vec<Caveat>);

/// The status of a run, and its caveats.
pub type Ending<'a> = (Status, &'a [Caveat]);

/// A throughput with its name, in bits per second; `None` if it was not measured.
pub type Rate<'a> = (&'a str, Option<f64>);

/// The list of all documents: each type, with the value of its key `schema`, and its charts.
macro_rules! documents {
    ($($document:ty: $schema:expr $(=> $charts:path)?,)*) => {
        $(impl Charted for $document {
            fn charts(&self) -> Vec<Chart> {
                iter::empty()$(.chain($charts(self)))?.collect()
            }
        })*

        /// Every document that is printed, stored and read.
        pub const DOCUMENTS: &[DocumentKind] = &[$(DocumentKind::new::<$document>($schema)),*];

        /// The JSON Schema of each document, generated from its type. This list is separate because
        /// no command uses it: the schemas, a tenth of the program, are then not linked into it.
        const JSON_SCHEMAS: &[(&str, fn() -> Schema)] = &[$(($schema, || schema_for!($document))),*];
    };
}

documents! {
    Record: RECORD_SCHEMA => charts::record,
    Sweep: SWEEP_SCHEMA => charts::sweep,
    Check: CHECK_SCHEMA => charts::check,
    Comparison: COMPARISON_SCHEMA => charts::comparison,
    ProfileDocument: PROFILE_SCHEMA => charts::profile,
    TraceDocument: TRACE_SCHEMA => charts::trace,
    ExperimentDocument: EXPERIMENT_SCHEMA => charts::experiment,
    Analysis: ANALYSIS_SCHEMA,
    LabsDocument: LAB_SCHEMA,
    HostDocument: HOST_SCHEMA,
    CapacityDocument: CAPACITY_SCHEMA => charts::capacity,
    ThroughputDocument: THROUGHPUT_SCHEMA => charts::throughput,
    QosDocument: QOS_SCHEMA,
    ConnectionsDocument: CONNECTIONS_SCHEMA => charts::connections,
    LoadDocument: LOAD_SCHEMA => charts::load,
    MatrixDocument: MATRIX_SCHEMA => charts::matrix,
}

/// A kind of document: its schema name, and how to read it.
pub struct DocumentKind {
    /// The value of its key `schema`, such as `linerate.record/1`.
    pub schema: &'static str,
    read: fn(&[u8]) -> serde_json::Result<Box<dyn Document>>,
}

impl DocumentKind {
    const fn new<T>(schema: &'static str) -> Self
    where
        T: Document + DeserializeOwned + 'static,
    {
        Self { schema, read: |bytes| Ok(Box::new(serde_json::from_slice::<T>(bytes)?)) }
    }

    /// The name between `linerate.` and the version; `schemas/NAME.json` holds its JSON Schema.
    pub fn name(&self) -> &'static str {
        let name = self.schema.strip_prefix("linerate.").unwrap_or(self.schema);
        name.split('/').next().unwrap_or(name)
    }

    /// Its JSON Schema (2020-12), generated from the type, with the key of the command.
    pub fn json_schema(&self) -> Schema {
        let mut all = JSON_SCHEMAS.iter();
        let (_, json_schema) =
            all.find(|(schema, _)| *schema == self.schema).expect("it is of the list");
        let mut schema = json_schema();
        let keys = schema.get_mut("properties").and_then(Value::as_object_mut);
        keys.expect("a document is an object").insert(COMMAND.to_owned(), command_schema());
        described(schema)
    }
}

/// The key of the command that made a document.
const COMMAND: &str = "command";

fn command_schema() -> Value {
    json!({
        "description": "The command that made the document, word by word, without its output \
            options and without passwords: `linerate rerun` runs it again.",
        "type": "array",
        "items": {"type": "string"}
    })
}

/// A document's JSON with the command that made it before its own keys, if that is known.
pub fn with_command(command: &[String], json: String) -> String {
    if command.is_empty() {
        return json;
    }
    let (before, after) = if json.starts_with("{\n") { ("\n  ", " ") } else { ("", "") };
    let words = json::line(&command);
    json.replacen('{', &format!("{{{before}\"{COMMAND}\":{after}{},", words.trim_end()), 1)
}

/// A document as it was read, with the command that made it.
#[derive(Debug)]
pub struct StoredDocument {
    document: Box<dyn Document>,
    /// The words of the command; none if the document does not say them.
    pub command: Vec<String>,
}

impl StoredDocument {
    /// The document as JSON, as it was read.
    pub fn json(&self) -> String {
        with_command(&self.command, self.document.json())
    }

    /// The document as JSON on one line.
    pub fn json_line(&self) -> String {
        with_command(&self.command, self.document.json_line())
    }
}

impl From<Box<dyn Document>> for StoredDocument {
    fn from(document: Box<dyn Document>) -> Self {
        Self { document, command: Vec::new() }
    }
}

impl Deref for StoredDocument {
    type Target = dyn Document;

    fn deref(&self) -> &Self::Target {
        &*self.document
    }
}

impl DerefMut for StoredDocument {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.document
    }
}

/// A JSON Schema whose descriptions have a line for each paragraph: where a comment wraps in the
/// source means nothing to a reader of the schema.
pub fn described(mut schema: Schema) -> Schema {
    RecursiveTransform(join_lines).transform(&mut schema);
    schema
}

/// Joins the lines of each paragraph of a description.
fn join_lines(schema: &mut Schema) {
    let Some(Value::String(description)) = schema.get_mut("description") else {
        return;
    };
    let paragraphs = description.split("\n\n").map(|text| text.replace('\n', " "));
    *description = paragraphs.collect::<Vec<_>>().join("\n\n");
}

/// Why a text is not one of linerate's documents.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The text is not valid JSON, is incomplete, or has no `schema`.
    #[error("it is not a linerate document: {}", why(.0))]
    NotADocument(serde_json::Error),
    /// The schema is not one that this version knows.
    #[error("its schema is `{schema}`; this version explains {known}")]
    UnknownSchema {
        /// The value of `schema`, cut to 60 characters.
        schema: String,
        /// The schemas that this version reads.
        known: String,
    },
    /// The schema is one that earlier versions wrote.
    #[error("its schema is `{0}`, which is not explained any more; `linerate analyze` reads it")]
    Gone(&'static str),
    /// The document does not match its schema.
    #[error("an incomplete or damaged {schema}")]
    NotWhole {
        /// The schema that the document names.
        schema: &'static str,
        /// The parse error, with line and column.
        source: serde_json::Error,
    },
}

/// Schemas of documents that earlier versions wrote, whose figures are still read.
const GONE: &[&str] = &["linerate.qos_cost/1"];

/// Explains why a text has no readable `schema`.
fn why(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    match error.classify() {
        Category::Eof if column == 0 => "it is empty".to_owned(),
        Category::Eof => format!("it ends too early, at line {line}, column {column}"),
        Category::Data => {
            "it has no `schema`; figures of iperf3 or netperf are for `linerate analyze`".to_owned()
        }
        Category::Syntax | Category::Io => {
            format!("it is not JSON at line {line}, column {column}")
        }
    }
}

/// Reads the document that `bytes` hold, by its key `schema`.
///
/// # Errors
/// [`ReadError`], with line and column where it is not whole.
pub fn read(bytes: &[u8]) -> Result<StoredDocument, ReadError> {
    let (kind, command) = kind(bytes)?;
    let document = (kind.read)(bytes);
    let document =
        document.map_err(|source| ReadError::NotWhole { schema: kind.schema, source })?;
    Ok(StoredDocument { document, command })
}

/// The schema that `bytes` name, if it is one of linerate's.
///
/// # Errors
/// [`ReadError`] if it is not.
pub fn schema(bytes: &[u8]) -> Result<&'static str, ReadError> {
    Ok(kind(bytes)?.0.schema)
}

/// The kind of a document, and the command that made it.
fn kind(bytes: &[u8]) -> Result<(&'static DocumentKind, Vec<String>), ReadError> {
    /// Keys that every document has. The others are skipped here, but must be valid JSON.
    #[derive(Deserialize)]
    struct DocumentHead {
        schema: String,
        #[serde(default)]
        command: Vec<String>,
    }
    let head: DocumentHead = serde_json::from_slice(bytes).map_err(ReadError::NotADocument)?;
    if let Some(gone) = GONE.iter().find(|gone| **gone == head.schema) {
        return Err(ReadError::Gone(gone));
    }
    match DOCUMENTS.iter().find(|kind| kind.schema == head.schema) {
        Some(kind) => Ok((kind, head.command)),
        None => {
            let known: Vec<&str> = DOCUMENTS.iter().map(|kind| kind.schema).collect();
            Err(ReadError::UnknownSchema {
                schema: head.schema.chars().take(60).collect(),
                known: known.join(", "),
            })
        }
    }
}

//! JSON documents → rows: each figure is a column, named by its path, such as `latency_us.p99`.
//!
//! A file may hold several documents one after the other, or a list of them. They are read as a
//! stream and never stand in memory as a tree.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::super::Place;
use super::super::table::{Builder, Format, VERDICT_COLUMN};
use super::{Input, Lines, SourceFault};
use crate::capacity::CAPACITY_SCHEMA;
use crate::compare::COMPARISON_SCHEMA;
use crate::experiment::EXPERIMENT_SCHEMA;
use crate::profile::PROFILE_SCHEMA;
use crate::record::{CHECK_SCHEMA, RECORD_SCHEMA, SWEEP_SCHEMA};
use crate::trace::TRACE_SCHEMA;
use crate::units::shortened;

/// Schema of what a policy costs: a row for each run.
const QOS_COST_SCHEMA: &str = "linerate.qos_cost/1";
/// Schema of a score of `linerate-truth`: a row for each trial.
const TRUTH_SCHEMA: &str = "linerate.truth/1";

/// The documents of linerate that have figures of runs.
const SCHEMAS: [&str; 10] = [
    RECORD_SCHEMA,
    SWEEP_SCHEMA,
    CHECK_SCHEMA,
    COMPARISON_SCHEMA,
    EXPERIMENT_SCHEMA,
    PROFILE_SCHEMA,
    CAPACITY_SCHEMA,
    TRACE_SCHEMA,
    TRUTH_SCHEMA,
    QOS_COST_SCHEMA,
];

pub(super) fn read(
    input: &Input<'_>,
    text: &str,
    builder: &mut Builder,
) -> Result<(), SourceFault> {
    let mut lines = Lines::new(text);
    if text.trim_start().starts_with('[') {
        let rows: Vec<Flat> =
            serde_json::from_str(text).map_err(|error| fault(&error, Place::FIRST_LINE))?;
        builder.begin(input.file, input.label, Format::Json);
        return add(&rows, 1, builder);
    }
    let mut heads = serde_json::Deserializer::from_str(text).into_iter::<DocumentHead>();
    let mut is_begun = false;
    let mut begin = 0;
    while let Some(head) = heads.next() {
        let head = head.map_err(|error| fault(&error, Place::FIRST_LINE))?;
        let end = heads.byte_offset();
        let document = &text[begin..end];
        let blanks = document.len() - document.trim_start().len();
        let line = lines.of(begin + blanks);
        let column = Some(lines.column_of(begin + blanks));
        begin = end;
        let format = format(&head).map_err(|problem| SourceFault::at_line(line, problem))?;
        if !is_begun {
            builder.begin(input.file, input.label, format);
            is_begun = true;
        }
        let place = Place { line, column };
        let rows = rows(&head, document.trim_start()).map_err(|error| fault(&error, place))?;
        add(&rows, line, builder)?;
    }
    Ok(())
}

/// What a document says of itself; the rest is skipped, but must be whole.
#[derive(Deserialize)]
struct DocumentHead {
    schema: Option<String>,
    start: Option<IgnoredAny>,
    end: Option<IgnoredAny>,
    error: Option<serde_json::Value>,
}

fn format(head: &DocumentHead) -> Result<Format, String> {
    let is_iperf3 = head.start.is_some();
    let error = head.error.as_ref().and_then(serde_json::Value::as_str);
    match (head.schema.as_deref(), error) {
        (Some(schema), _) if schema.starts_with("linerate.") => match schema {
            known if SCHEMAS.contains(&known) => Ok(Format::Linerate),
            other => Err(format!(
                "its schema is `{}`; figures are read from {}",
                shortened(other),
                SCHEMAS.join(", ")
            )),
        },
        (_, Some(message)) if is_iperf3 => Err(format!("the run failed: {}", shortened(message))),
        _ if is_iperf3 && head.end.is_some() => Ok(Format::Iperf3),
        _ => Ok(Format::Json),
    }
}

/// The rows of one document.
fn rows(head: &DocumentHead, document: &str) -> serde_json::Result<Vec<Flat>> {
    /// Rows by the name that the document has for them.
    #[derive(Deserialize)]
    struct NamedRows {
        #[serde(alias = "hops", alias = "trials")]
        rows: Vec<Flat>,
    }
    #[derive(Deserialize)]
    struct Profile {
        record: Flat,
    }
    #[derive(Deserialize)]
    struct Check {
        up: Option<Flat>,
        down: Option<Flat>,
    }
    let mut rows = match head.schema.as_deref() {
        Some(SWEEP_SCHEMA | TRACE_SCHEMA | TRUTH_SCHEMA) => {
            serde_json::from_str::<NamedRows>(document)?.rows
        }
        Some(PROFILE_SCHEMA) => vec![serde_json::from_str::<Profile>(document)?.record],
        Some(QOS_COST_SCHEMA) => serde_json::from_str::<Cost>(document)?.rows(),
        Some(COMPARISON_SCHEMA) => serde_json::from_str::<Comparison>(document)?.rows(),
        Some(EXPERIMENT_SCHEMA) => serde_json::from_str::<Experiment>(document)?.rows(),
        Some(CHECK_SCHEMA) => {
            let check: Check = serde_json::from_str(document)?;
            check.up.into_iter().chain(check.down).collect()
        }
        _ => {
            let mut row: Flat = serde_json::from_str(document)?;
            if head.start.is_some() {
                row.add_throughput();
            }
            vec![row]
        }
    };
    rows.iter_mut().for_each(Flat::name_legs);
    Ok(rows)
}

/// Keys of a paired comparison that are read.
#[derive(Deserialize)]
struct Comparison {
    a: String,
    b: String,
    #[serde(default)]
    verdict: String,
    runs: Vec<JsonPair>,
}

/// One pair, with the figures of both runs by their paths.
#[derive(Deserialize)]
struct JsonPair {
    pair: u32,
    first: String,
    a: Flat,
    b: Flat,
    #[serde(default)]
    excluded: Vec<IgnoredAny>,
}

impl Comparison {
    /// Each run of the pairs that count, in the order in which they ran.
    fn rows(self) -> Vec<Flat> {
        let mut rows = Vec::with_capacity(2 * self.runs.len());
        let counted = self.runs.into_iter().filter(|pair| pair.excluded.is_empty());
        for pair in counted {
            let number = pair.pair.to_string();
            let row = |mut figures: Flat, side: &str, treatment: &str| {
                let names = [
                    ("pair", number.as_str()),
                    ("side", side),
                    ("treatment", treatment),
                    (VERDICT_COLUMN, &self.verdict),
                ];
                let known = names.into_iter().filter(|(_, text)| !text.is_empty());
                let cells = known.map(|(name, text)| (name.to_owned(), text.to_owned()));
                figures.0.splice(0..0, cells);
                figures
            };
            let of_a = row(pair.a, "a", &self.a);
            let of_b = row(pair.b, "b", &self.b);
            if pair.first == "b" { rows.extend([of_b, of_a]) } else { rows.extend([of_a, of_b]) }
        }
        rows
    }
}

/// Keys of an experiment that are read.
#[derive(Deserialize)]
struct Experiment {
    runs: Vec<ExperimentRun>,
}

/// One run, with its levels by the names of the factors.
#[derive(Deserialize)]
struct ExperimentRun {
    levels: BTreeMap<String, String>,
    treatments: Option<String>,
    #[serde(default)]
    faults: Vec<IgnoredAny>,
    error: Option<IgnoredAny>,
    figures: Option<Flat>,
    record: Option<Flat>,
}

impl Experiment {
    /// The runs that count; the factors are columns of their own names.
    fn rows(self) -> Vec<Flat> {
        let mut runs = self.runs;
        runs.retain(|run| run.faults.is_empty() && run.error.is_none());
        let row = |run: ExperimentRun| {
            let treatments = run.treatments.map(|text| ("treatments".to_owned(), text));
            let figures = run.figures.into_iter().chain(run.record);
            let cells = run.levels.into_iter().chain(treatments);
            Flat(cells.chain(figures.flat_map(|flat| flat.0)).collect())
        };
        runs.into_iter().map(row).collect()
    }
}

/// Keys of a policy's cost that are read.
#[derive(Deserialize)]
struct Cost {
    rows: Vec<Transfer>,
}

/// One transfer, with its runs under each treatment.
#[derive(Deserialize)]
struct Transfer {
    test: String,
    link_bps: f64,
    family: String,
    protocol: String,
    workload: String,
    message_bytes: u64,
    runs: Vec<Flat>,
}

impl Cost {
    /// Each run; its figures are columns of their own names.
    fn rows(self) -> Vec<Flat> {
        let row = |of: &Transfer, run: Flat| {
            let names = [
                ("test", of.test.clone()),
                ("link_bps", of.link_bps.to_string()),
                ("family", of.family.clone()),
                ("protocol", of.protocol.clone()),
                ("workload", of.workload.clone()),
                ("message_bytes", of.message_bytes.to_string()),
            ]
            .into_iter()
            .map(|(name, text)| (name.to_owned(), text));
            let figures = run.0.into_iter().map(|(path, text)| {
                let name = path.strip_prefix("figures.").unwrap_or(&path);
                (name.to_owned(), text)
            });
            Flat(names.chain(figures).collect())
        };
        let rows = self.rows.into_iter().flat_map(|mut transfer| {
            let runs = std::mem::take(&mut transfer.runs).into_iter();
            runs.map(|run| row(&transfer, run)).collect::<Vec<_>>()
        });
        rows.collect()
    }
}

/// Adds the rows of a document that begins at `line`.
fn add(rows: &[Flat], line: usize, builder: &mut Builder) -> Result<(), SourceFault> {
    let at = |problem| SourceFault::at_line(line, problem);
    for (number, row) in (1..).zip(rows) {
        if row.0.is_empty() {
            continue;
        }
        let mut cells = Vec::with_capacity(row.0.len());
        for (path, text) in &row.0 {
            cells.push((builder.column(path).map_err(at)?, text.as_str()));
        }
        let number = if rows.len() > 1 { number } else { 0 };
        builder.row(line, number, &mut cells).map_err(at)?;
    }
    Ok(())
}

/// The figures and words of an object, each with its path.
struct Flat(Vec<(String, String)>);

impl Flat {
    /// A record's directions by their names, `legs.up.throughput_bps`. What an only one says stands
    /// in the record's own keys.
    fn name_legs(&mut self) {
        let has_two = self.0.iter().any(|(path, _)| path.starts_with("legs.1."));
        self.0.retain(|(path, _)| has_two || !path.starts_with("legs.0."));
        for leg in ["legs.0.", "legs.1."] {
            let key = format!("{leg}direction");
            let direction = self.0.iter().find(|(path, _)| *path == key);
            let Some(direction) = direction.map(|(_, name)| name.clone()) else {
                continue;
            };
            for (path, _) in &mut self.0 {
                if let Some(rest) = path.strip_prefix(leg) {
                    *path = format!("legs.{direction}.{rest}");
                }
            }
        }
    }

    /// iperf3's throughput by the name that other tools' figures have, too: what the receiver
    /// counted, or (UDP of old versions) the only sum.
    fn add_throughput(&mut self) {
        let sums = ["end.sum_received.bits_per_second", "end.sum.bits_per_second"];
        let of = |name: &str| self.0.iter().find(|(path, _)| path == name);
        let rate = sums.iter().find_map(|name| of(name)).map(|(_, text)| text.clone());
        self.0.extend(rate.map(|text| ("throughput_bps".to_owned(), text)));
    }
}

impl<'de> Deserialize<'de> for Flat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut leaves = Vec::new();
        let mut path = String::new();
        let walk = JsonWalk { path: &mut path, leaves: &mut leaves };
        walk.deserialize(deserializer)?;
        Ok(Self(leaves))
    }
}

/// Walks down a value.
struct JsonWalk<'a> {
    path: &'a mut String,
    leaves: &'a mut Vec<(String, String)>,
}

impl JsonWalk<'_> {
    fn leaf<E: serde::de::Error>(self, text: String) -> Result<(), E> {
        if self.leaves.len() >= MAX_LEAVES {
            return Err(E::custom(format!("more than {MAX_LEAVES} figures in one object")));
        }
        let path = if self.path.is_empty() { "value" } else { self.path.as_str() };
        self.leaves.push((path.to_owned(), text));
        Ok(())
    }

    /// The walk into a member.
    fn member<T>(&mut self, name: &str, enter: impl FnOnce(JsonWalk<'_>) -> T) -> T {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        let entered = enter(JsonWalk { path: self.path, leaves: self.leaves });
        self.path.truncate(length);
        entered
    }
}

impl<'de> DeserializeSeed<'de> for JsonWalk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonWalk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a figure, a text, a list or an object")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.leaf(value.to_string())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.leaf(value.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.leaf(value.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        // With its point, also where nothing follows it: 10.0 is finer than 10.
        self.leaf(format!("{value:?}"))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.leaf(value.to_owned())
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        for number in 0..MAX_ELEMENTS {
            let next = self.member(&number.to_string(), |walk| list.next_element_seed(walk))?;
            if next.is_none() {
                return Ok(());
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut object: A) -> Result<(), A::Error> {
        let is_root = self.path.is_empty();
        while let Some(key) = object.next_key::<String>()? {
            if key.len() > MAX_NAME {
                return Err(A::Error::custom("a key that is longer than 256 bytes"));
            }
            if is_root && key == VERDICT_COLUMN {
                let found: serde_json::Value = object.next_value()?;
                let cause =
                    found.get("cause").unwrap_or(&found).as_str().unwrap_or_default().to_owned();
                self.member(&key, |walk| walk.leaf(cause))?;
            } else if is_root && SKIPPED.contains(&key.as_str()) {
                object.next_value::<IgnoredAny>()?;
            } else {
                self.member(&key, |walk| object.next_value_seed(walk))?;
            }
        }
        Ok(())
    }
}

/// Parts of a document that are no figures of the run as a whole.
const SKIPPED: [&str; 8] = [
    "intervals",
    "flows",
    "latency_histogram",
    "ceilings",
    "caveats",
    "server_output_json",
    "server_output_text",
    "notes",
];
/// Of a list; more are no figures of the run but samples.
const MAX_ELEMENTS: usize = 16;
const MAX_LEAVES: usize = 10_000;
const MAX_NAME: usize = 256;

/// An error of a document that begins at `begin`, at its place in the file.
fn fault(error: &serde_json::Error, begin: Place) -> SourceFault {
    let full = error.to_string();
    // The place stands at the end of the parser's message; ours is the file's.
    let message = full.split(" at line ").next().unwrap_or(&full).to_owned();
    let first_column = begin.column.unwrap_or(1);
    let column = match error.line() {
        1 => error.column() + first_column - 1,
        _ => error.column(),
    }
    // At the end of a text the parser counts the line that is not there.
    .max(1);
    let place = (error.line() > 0)
        .then(|| Place { line: error.line() + begin.line - 1, column: Some(column) });
    SourceFault { place: place.or(Some(begin)), problem: message }
}

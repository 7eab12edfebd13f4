//! The document of an experiment, the runs that it is built from, and the figures of a run that it
//! names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::figures;
use super::model::{Experiment, Factor, SPECIAL_FIGURES};
use crate::compare::Metric;
use crate::load::LOAD_FIGURES;
use crate::plan::Repeats;
use crate::record::{Caveat, CaveatKind, LabDirection, Record, Status};
use crate::stats::{Agreement, Figure};
use crate::units::TextError;

/// Schema of [`ExperimentDocument`].
pub const EXPERIMENT_SCHEMA: &str = "linerate.experiment/1";

/// An experiment that was run: its table, what of the report's findings agrees, and every run.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentDocument {
    /// [`EXPERIMENT_SCHEMA`].
    pub schema: String,
    /// Whether every run was made.
    pub status: Status,
    /// When the first run began, RFC 3339.
    #[serde(default, deserialize_with = "crate::units::deserialize_rfc3339")]
    pub started_at: Option<String>,
    /// The subject of the experiment.
    pub title: String,
    /// The report that it reproduces.
    pub report: Option<String>,
    /// Background for the reader.
    pub about: Option<String>,
    /// Seed of every random choice.
    pub seed: u64,
    /// Whether it is the quick form.
    pub quick: bool,
    /// The number of runs planned for each cell.
    pub repeats: Repeats,
    /// Validity faults that were declared beforehand.
    #[serde(default)]
    pub forbid: Vec<String>,
    /// The factors that were varied.
    pub factors: Vec<Factor>,
    /// The figures as the report's table has them.
    pub table: DocumentTable,
    /// The report's findings, held against these runs and against the report's own figures.
    #[serde(default)]
    pub findings: Vec<DocumentFinding>,
    /// Controls that were added, and cells that were left out or could not run.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Caveats.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
    /// Every run, in the order in which they were made.
    pub runs: Vec<Run>,
}

/// Figures by the levels of the factors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DocumentTable {
    /// The factors whose levels make the rows.
    pub row_factors: Vec<String>,
    /// The columns.
    pub columns: Vec<DocumentColumn>,
    /// The rows.
    pub rows: Vec<DocumentRow>,
}

/// A column.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DocumentColumn {
    /// The column's title.
    pub title: String,
    /// The level of the factor whose levels are columns.
    pub level: Option<String>,
    /// The figure, in the unit that its name says.
    pub metric: String,
    /// The figure is shown as a ratio to that of this level.
    pub ratio_to: Option<String>,
    /// The printed unit.
    pub unit: Option<String>,
    /// The printed number is the figure times this.
    pub scale: f64,
    /// Decimals; absent where three significant digits are printed.
    pub decimals: Option<u32>,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DocumentRow {
    /// The level of each row factor.
    pub levels: Vec<String>,
    /// A figure for each column.
    pub figures: Vec<CellFigure>,
}

/// A figure of the table.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CellFigure {
    /// What the runs that count amount to: their median with its interval or, where one figure
    /// would mislead, modes or a drift.
    pub ours: Option<Figure>,
    /// The report's figure.
    pub report: Option<f64>,
    /// Why this experiment has no figure.
    pub not_run: Option<String>,
}

/// A finding and whether the figures support it.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DocumentFinding {
    /// The finding in words.
    pub text: String,
    /// The figure that it is about.
    pub metric: String,
    /// Whether it is about a ratio instead of the figure itself.
    pub is_ratio: bool,
    /// The lowest value that is accepted; absent where there is no bound.
    pub least: Option<f64>,
    /// The highest value that is accepted; absent where there is no bound.
    pub most: Option<f64>,
    /// What the repeats amount to, with the coverage of the interval that decides.
    pub ours: Option<Figure>,
    /// Whether the runs agree.
    pub agreement: Agreement,
    /// The value from the report's own figures.
    pub report: Option<f64>,
    /// Whether the report's own figures agree.
    pub report_agreement: Agreement,
    /// Why the agreement of the runs is not known.
    pub why: Option<String>,
}

// A run of a cell, as the file of records and the document have it, and the figure of it that a
// column or a finding names.

/// A run of a cell and its results.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// The level of each factor, by name.
    pub levels: BTreeMap<String, String>,
    /// The number of the repeat, from 1.
    pub repeat: u32,
    /// Which attempt at that repeat it is, from 1: a run with a validity fault is made again.
    pub attempt: u32,
    /// The treatments in force, or `none`.
    pub treatments: String,
    /// Validity faults, in words with their figures. A run with one counts for nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    /// Why the run failed. A failed run is not evaluated.
    pub error: Option<String>,
    /// Figures that no record has, by name: of a workload that is not a network test, and
    /// `qos_packet_ns`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
    /// The record of a network test.
    pub record: Option<Box<Record>>,
}

impl Run {
    /// Reads what [`Self::to_json`] wrote. Here, because the code of a record is large, and each
    /// crate that reads one by itself has it again.
    ///
    /// # Errors
    /// The text is not JSON, or not a run.
    pub fn parse(json: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(json)
    }

    /// The run as JSON on one line, without a newline.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("runs have string keys")
    }

    /// Whether its figures count.
    pub fn counts(&self) -> bool {
        self.faults.is_empty() && self.error.is_none()
    }
}

/// A figure of a run: of its record ([`Metric`]), of the emulated links, or of a workload that is
/// no network test.
#[derive(Debug, Clone, PartialEq)]
pub enum Measure {
    /// A figure of a record; a special workload's of the same name stands beside it.
    Record(Metric),
    /// `lab.up.corrupted`: a counter of the emulated links, one direction of each, summed.
    Lab {
        /// The direction: `up` or `down`.
        direction: &'static str,
        /// The counter, a key of [`LabDirection`].
        key: String,
    },
    /// A figure that no record has: of a special workload, of a load, or [`QOS_PACKET_NS`].
    Special(&'static str),
}

/// Nanoseconds that the program of the client's `qos` treatment takes for a packet like those of
/// the test. It is measured after the run, where a column or a finding asks for it.
pub const QOS_PACKET_NS: &str = "qos_packet_ns";

impl Measure {
    /// Its value in a run, in the unit that its name says; `None` where the run has no such figure.
    pub fn of(&self, run: &Run) -> Option<f64> {
        let own = run.figures.get(&self.to_string()).copied();
        own.or_else(|| match (self, &run.record) {
            (Self::Record(metric), Some(record)) => metric.of(record),
            (Self::Lab { direction, key }, Some(record)) => lab_sum(record, direction, key),
            (Self::Special(_), _) | (_, None) => None,
        })
        .filter(|value| value.is_finite())
    }
}

impl FromStr for Measure {
    type Err = TextError;

    /// Reads the path of a figure.
    fn from_str(text: &str) -> Result<Self, TextError> {
        if let Some(counter) = lab_counter(text) {
            return Ok(counter);
        }
        let mut own = (SPECIAL_FIGURES.iter().chain(LOAD_FIGURES)).chain(&[QOS_PACKET_NS]);
        match (text.parse(), own.find(|name| **name == text)) {
            (Ok(metric), _) => Ok(Self::Record(metric)),
            (Err(_), Some(name)) => Ok(Self::Special(name)),
            (Err(error), None) => Err(error),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(metric) => metric.fmt(f),
            Self::Lab { direction, key } => write!(f, "lab.{direction}.{key}"),
            Self::Special(name) => f.write_str(name),
        }
    }
}

fn lab_counter(text: &str) -> Option<Measure> {
    let (direction, key) = text.strip_prefix("lab.")?.split_once('.')?;
    let direction = ["up", "down"].into_iter().find(|d| *d == direction)?;
    // Those that may be absent, too.
    let all = LabDirection {
        lateness_p50_us: Some(0.0),
        lateness_p99_us: Some(0.0),
        ..LabDirection::default()
    };
    serde_json::to_value(all).ok()?.get(key)?;
    Some(Measure::Lab { direction, key: key.to_owned() })
}

fn lab_sum(record: &Record, direction: &str, key: &str) -> Option<f64> {
    let links = &record.environment.lab.as_ref()?.links;
    let counts = links.iter().filter_map(|link| {
        let end = match direction {
            "up" => &link.up,
            _ => &link.down,
        };
        serde_json::to_value(end).ok()?.get(key)?.as_f64()
    });
    let counts: Vec<f64> = counts.collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}

// The document, built from its runs.

/// How an experiment ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ending {
    /// Why the experiment ended before all runs were made; `None` if all were made.
    pub partial: Option<String>,
    /// Cells that could not be run here, and why.
    pub unavailable: Vec<(usize, String)>,
}

impl Experiment {
    /// The document of the runs that were made; those of other experiments are left out.
    pub fn assemble(&self, mut runs: Vec<Run>, ending: &Ending) -> ExperimentDocument {
        runs.retain(|run| self.cell_of(run).is_some());
        let unavailable: Vec<usize> = ending.unavailable.iter().map(|(cell, _)| *cell).collect();
        let left = match ending.partial {
            Some(_) => self.remaining(&runs, &unavailable),
            None => vec![0; self.cells.len()],
        };
        let by_cell = self.by_cell(&runs);
        let table = figures::table(self, &by_cell, &ending.unavailable);
        let findings = figures::outcomes(self, &by_cell, &left);
        ExperimentDocument {
            schema: EXPERIMENT_SCHEMA.to_owned(),
            status: match ending.partial {
                None => Status::Complete,
                Some(_) => Status::Partial,
            },
            started_at: (runs.iter())
                .find_map(|run| run.record.as_ref().map(|record| record.started_at.clone())),
            title: self.title.clone(),
            report: self.report.clone(),
            about: self.about.clone(),
            seed: self.seed,
            quick: self.quick,
            repeats: self.repeats,
            forbid: self.forbid.iter().map(ToString::to_string).collect(),
            factors: self.factors.clone(),
            notes: self.all_notes(&by_cell, ending),
            caveats: caveats(&runs, ending, figure_doubts(&table, &findings)),
            table,
            findings,
            runs,
        }
    }

    fn all_notes(&self, runs: &[Vec<&Run>], ending: &Ending) -> Vec<String> {
        let lacking: BTreeSet<String> =
            (self.cells.iter()).filter_map(|cell| cell.lacks.clone()).collect();
        let mut notes = self.notes.clone();
        notes.extend(lacking.into_iter().map(|lacks| format!("not run: {lacks}")));
        let unavailable: BTreeSet<&String> =
            ending.unavailable.iter().map(|(_, why)| why).collect();
        notes.extend(unavailable.into_iter().map(|why| format!("not run: {why}")));
        notes.extend(self.exclusions(runs));
        notes.extend(self.one_sided(runs));
        notes
    }

    /// The excluded runs of each cell, as caveats.
    fn exclusions(&self, runs: &[Vec<&Run>]) -> Vec<String> {
        let note = |(cell, runs): (usize, &Vec<&Run>)| {
            let excluded: Vec<_> = runs.iter().filter(|run| !run.counts()).collect();
            let last = excluded.last()?;
            let why = last.error.as_ref().or_else(|| last.faults.first())?;
            let title = match self.cell_title(cell) {
                title if title.is_empty() => String::new(),
                title => format!("{title}: "),
            };
            let (count, all) = (excluded.len(), runs.len());
            Some(format!("{title}{count} of {all} runs excluded, the last because: {why}"))
        };
        runs.iter().enumerate().filter_map(note).collect()
    }

    /// Faults that came with one level of a factor alone: these are an outcome.
    fn one_sided(&self, runs: &[Vec<&Run>]) -> Vec<String> {
        let excluded: Vec<usize> = (runs.iter().enumerate())
            .flat_map(|(cell, runs)| runs.iter().filter(|run| !run.counts()).map(move |_| cell))
            .collect();
        // Of a single cell they have been said.
        let is_of_one_cell = excluded.iter().all(|cell| *cell == excluded[0]);
        if excluded.len() < FEWEST_TO_TELL || is_of_one_cell {
            return Vec::new();
        }
        let note = |(index, factor): (usize, &Factor)| {
            let levels: BTreeSet<usize> =
                (excluded.iter()).map(|cell| self.cells[*cell].levels[index]).collect();
            let is_alone = levels.len() == 1 && factor.levels.len() > 1;
            let level = &factor.levels[*levels.first().filter(|_| is_alone)?];
            let (count, name) = (excluded.len(), &factor.name);
            Some(format!(
                "all {count} excluded runs are of {name} {level}: a fault that it causes itself is \
                 an outcome"
            ))
        };
        self.factors.iter().enumerate().filter_map(note).collect()
    }
}

/// Of what the runs amount to: too few for their interval, or no single figure.
fn figure_doubts(table: &DocumentTable, findings: &[DocumentFinding]) -> Vec<Caveat> {
    let cells = table.rows.iter().flat_map(|row| &row.figures);
    let of_table: Vec<&Figure> = cells.filter_map(|figure| figure.ours.as_ref()).collect();
    let of_findings = findings.iter().filter_map(|finding| finding.ours.as_ref());
    let all: Vec<&Figure> = of_table.iter().copied().chain(of_findings).collect();
    let short = all.iter().filter_map(|figure| match figure {
        Figure::One(one) if !one.reaches_confidence() => Some(one),
        _ => None,
    });
    let few = short.min_by_key(|one| one.n).map(|one| {
        let message = match one.n {
            1 => "one run has no interval: nothing is known of its spread".to_owned(),
            n => format!(
                "{n} runs cannot give an interval of 95 %: the one given, by which findings are \
                 judged, is their whole range"
            ),
        };
        let remedy = if one.takes_independence() {
            "`repeats` of 6 or more, or a `precision`; the whole form in place of --quick"
        } else {
            "more `repeats`: each run is much like the one before it"
        };
        Caveat::new(CaveatKind::FewRuns, message, remedy)
    });
    let odd = |figures: &[&Figure]| {
        let is_odd = |figure: &&&Figure| !matches!(figure, Figure::One(_));
        figures.iter().filter(is_odd).count()
    };
    let several = (odd(&all) > 0).then(|| {
        let [in_table, in_findings] = [odd(&of_table), odd(&all) - odd(&of_table)];
        Caveat::new(
            CaveatKind::NotOneFigure,
            format!(
                "{in_table} figures of the table and {in_findings} of the findings are not one \
                 figure: their runs have modes, or drift"
            ),
            "look for what changes between the runs: other load, CPU frequency, placement of \
             threads",
        )
    });
    few.into_iter().chain(several).collect()
}

/// Those of the figures, and those of the runs, each kind once with the number of runs that have
/// it.
fn caveats(runs: &[Run], ending: &Ending, of_figures: Vec<Caveat>) -> Vec<Caveat> {
    let mut kinds: BTreeMap<String, (usize, Caveat)> = BTreeMap::new();
    let records = runs.iter().filter_map(|run| run.record.as_ref());
    for caveat in records.flat_map(|record| &record.caveats) {
        let kind = format!("{:?}", caveat.kind);
        kinds.entry(kind).or_insert_with(|| (0, caveat.clone())).0 += 1;
    }
    let of_runs = kinds.into_values().map(|(count, caveat)| Caveat {
        message: match count {
            _ if runs.len() == 1 => caveat.message,
            count => format!("{count} of {} runs: {}", runs.len(), caveat.message),
        },
        ..caveat
    });
    let partial = ending.partial.iter().map(|why| {
        let remedy = "the same command goes on where it was";
        Caveat::new(CaveatKind::Partial, why.clone(), remedy)
    });
    partial.chain(of_figures).chain(of_runs).collect()
}

/// Fewer exclusions than this may have one level in common by chance.
const FEWEST_TO_TELL: usize = 3;

#[cfg(test)]
mod tests {
    use schemars::schema_for;

    use super::*;

    #[test]
    fn every_count_of_a_link_is_a_figure() {
        let schema = schema_for!(LabDirection).to_value();
        let keys = schema["properties"].as_object().unwrap().keys();
        for key in keys {
            let figure = lab_counter(&format!("lab.up.{key}"));
            assert!(figure.is_some(), "{key}");
        }
        assert!(lab_counter("lab.up.luck").is_none());
    }
}

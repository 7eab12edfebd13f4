//! The document of an experiment.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::measure::Run;
use super::model::Factor;
use crate::plan::Repeats;
use crate::record::{Caveat, Status};
use crate::stats::{Agreement, Figure};

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

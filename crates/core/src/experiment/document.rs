//! The one document of an experiment.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::run::Run;
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
    pub started_at: Option<String>,
    /// What it is about.
    pub title: String,
    /// The report that it runs again.
    pub report: Option<String>,
    /// What to know beforehand.
    pub about: Option<String>,
    /// Seed of every random choice.
    pub seed: u64,
    /// The quick form.
    pub quick: bool,
    /// How often each cell was to be run.
    pub repeats: Repeats,
    /// Validity faults that were declared beforehand.
    #[serde(default)]
    pub forbid: Vec<String>,
    /// What was varied.
    pub factors: Vec<DocumentFactor>,
    /// The figures in the report's own shape.
    pub table: DocumentTable,
    /// The report's findings, held against these runs and against the report's own figures.
    #[serde(default)]
    pub findings: Vec<DocumentFinding>,
    /// What was added, left out or could not be run.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What to keep in mind.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
    /// Every run, in the order in which they were made.
    pub runs: Vec<Run>,
}

/// Something that was varied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DocumentFactor {
    /// Its name.
    pub name: String,
    /// Its levels.
    pub levels: Vec<String>,
}

/// Figures by the levels of the factors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DocumentTable {
    /// The factors whose levels make the rows.
    pub row_factors: Vec<String>,
    /// Its columns.
    pub columns: Vec<DocumentColumn>,
    /// Its rows.
    pub rows: Vec<DocumentRow>,
}

/// A column.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DocumentColumn {
    /// Its head.
    pub title: String,
    /// The level of the factor across.
    pub level: Option<String>,
    /// The figure, in the unit that its name says.
    pub metric: String,
    /// In place of the figure its ratio to that of this level.
    pub ratio_to: Option<String>,
    /// The unit that is printed.
    pub unit: Option<String>,
    /// What is printed is the figure times this.
    pub scale: f64,
    /// Digits behind the point; absent: three significant ones.
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
    /// The report's.
    pub report: Option<f64>,
    /// Why there is none of ours.
    pub not_run: Option<String>,
}

/// A finding, and what speaks for it.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DocumentFinding {
    /// What was found.
    pub text: String,
    /// Of which figure.
    pub metric: String,
    /// Whether it is claimed of a ratio, or else of the figure itself.
    pub is_ratio: bool,
    /// The least that is accepted; absent: anything.
    pub least: Option<f64>,
    /// The most that is accepted; absent: anything.
    pub most: Option<f64>,
    /// What the repeats amount to, with the coverage of the interval that decides.
    pub ours: Option<Figure>,
    /// Whether our runs agree.
    pub agreement: Agreement,
    /// What the report's own figures give.
    pub report: Option<f64>,
    /// Whether the report's own figures agree.
    pub report_agreement: Agreement,
    /// Why it is not known of ours.
    pub why: Option<String>,
}

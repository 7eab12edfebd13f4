//! The document of an analysis, `linerate.analysis/1`, and the text of its figures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::table::Source;
use crate::ceilings::{Cause, Ceiling};
use crate::stats::{Figure, MedianInterval};

/// Schema of [`Analysis`].
pub const ANALYSIS_SCHEMA: &str = "linerate.analysis/1";

/// The analysis of figures that were measured elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Analysis {
    /// [`ANALYSIS_SCHEMA`].
    pub schema: String,
    /// The files.
    pub sources: Vec<Source>,
    /// The columns that were analyzed.
    pub metrics: Vec<String>,
    /// The column whose levels are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<String>,
    /// The columns by whose values rows are grouped.
    #[serde(default)]
    pub by: Vec<String>,
    /// The levels of each metric in each group, and how they differ.
    #[serde(default)]
    pub groups: Vec<Group>,
    /// How each level of each metric differs over all groups.
    #[serde(default)]
    pub overall: Vec<Overall>,
    /// The ceilings that the columns of each row imply, for at most 1,000 rows.
    #[serde(default)]
    pub ceilings: Vec<RowCeilings>,
    /// The reports' claims, checked against the rows.
    #[serde(default)]
    pub claims: Vec<ClaimResult>,
    /// Doubts about the figures themselves.
    #[serde(default)]
    pub doubts: Vec<Doubt>,
    /// Rows and columns that were left out, with the reasons.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// A column and its value in a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// The column.
    pub column: String,
    /// Its text, the same in all rows of the group.
    pub value: String,
}

/// The figures of one metric in one group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// The metric.
    pub metric: String,
    /// The settings that all rows of the group have.
    pub settings: Vec<Setting>,
    /// The levels; the one that the others are compared with comes first.
    pub levels: Vec<Level>,
    /// Each other level compared with the first.
    #[serde(default)]
    pub comparisons: Vec<Contrast>,
}

/// The figures of one level.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Level {
    /// Its text; absent where nothing is compared.
    pub level: Option<String>,
    /// How many runs it has.
    #[serde(default)]
    pub runs: usize,
    /// The runs' mean.
    pub mean: f64,
    /// The runs' median with the distribution-free interval of it; absent where they are not one
    /// figure.
    pub median: Option<MedianInterval>,
    /// What they are where they are not one figure: modes, or a drift from the first row to the
    /// last.
    pub not_one_figure: Option<Figure>,
}

/// One level compared with the first: effect and interval, never a verdict.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Contrast {
    /// The level compared with.
    pub a: String,
    /// The level compared.
    pub b: String,
    /// Runs of `a`.
    pub n_a: usize,
    /// Runs of `b`.
    pub n_b: usize,
    /// Median of `b` minus median of `a`, in the metric's unit.
    pub difference: f64,
    /// Median of `b` over median of `a`; absent where `a`'s is 0.
    pub ratio: Option<f64>,
    /// The shift of `b` against `a` (Hodges and Lehmann, of logarithms), percent; absent where
    /// figures are not positive.
    pub effect_percent: Option<f64>,
    /// Its interval, percent; absent for one run against one.
    pub interval_percent: Option<[f64; 2]>,
    /// Confidence of the interval, percent.
    pub confidence_percent: Option<f64>,
    /// The smallest p-value that a test of ranks can give for so many runs, whatever they are.
    pub smallest_p_value: Option<f64>,
    /// The fewest runs of each level with which a test of ranks can reach 5 % at all.
    pub runs_to_reach_5_percent: Option<usize>,
    /// Runs of each level that would have shown a difference of this size in four of five cases, at
    /// the spread seen here; absent where no spread is known.
    pub runs_needed: Option<usize>,
    /// Where the time was read from a clock of whole seconds: between what the ratio of two single
    /// runs may be.
    pub ratio_by_clock: Option<[f64; 2]>,
    /// What this number of runs shows and cannot show, in sentences.
    pub shows: Vec<String>,
}

/// One level compared with the first over all groups of a metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Overall {
    /// The metric.
    pub metric: String,
    /// The level compared with.
    pub a: String,
    /// The level compared.
    pub b: String,
    /// The number of groups that have both.
    pub groups: usize,
    /// The number of groups in which `b`'s median is the larger.
    pub larger: usize,
    /// The number of groups in which `b`'s median is the smaller.
    pub smaller: usize,
    /// Median over the groups of the ratio `b` over `a`.
    pub median_ratio: f64,
    /// Smallest ratio, and the group that has it.
    pub smallest: GroupRatio,
    /// Largest ratio, and the group that has it.
    pub largest: GroupRatio,
}

/// The ratio of one group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupRatio {
    /// Median of `b` over median of `a`.
    pub ratio: f64,
    /// The group.
    pub settings: Vec<Setting>,
}

/// The ceilings that the columns of one row imply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RowCeilings {
    /// The row's file and number.
    pub row: String,
    /// Measured, payload bits per second.
    pub throughput_bps: f64,
    /// The rate that each cause admits, lowest first.
    pub ceilings: Vec<Ceiling>,
    /// The lowest, if the measured rate agrees with it; else `unexplained`. Of a record of
    /// linerate's its own verdict.
    pub explained_by: Cause,
}

/// A doubt about the figures themselves, which no statistics can remove.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Doubt {
    /// Its kind.
    pub kind: DoubtKind,
    /// The observation, with its place.
    pub message: String,
}

impl Doubt {
    /// A doubt about what was found, of which the first few are named; none where nothing was.
    pub(super) fn about(
        kind: DoubtKind,
        found: &[String],
        message: impl FnOnce(String) -> String,
    ) -> Option<Self> {
        const MAX_NAMED: usize = 5;
        (!found.is_empty()).then(|| Self { kind, message: message(listed(found, MAX_NAMED)) })
    }
}

/// Kinds of doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DoubtKind {
    /// Times were read from a clock of whole seconds.
    WholeSeconds,
    /// Two rows of different settings share figures that so many digits do not repeat by chance.
    SharedFigures,
    /// A column of percentages was taken over the other base, or has the other sign.
    OtherBase,
    /// Each level mixes the same values of a column that is not grouped by.
    MixedSettings,
    /// Another column changes together with the factor.
    Confounded,
    /// All runs of one level stand before all of the other: a drift between them looks like a
    /// difference.
    NotInterleaved,
    /// A row is faster than one of its ceilings.
    AboveCeiling,
}

/// A claim of a report, checked against the rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimResult {
    /// The report's words.
    pub says: String,
    /// The column that it is about.
    pub metric: String,
    /// The figure or range that it states, as written.
    pub claimed: String,
    /// What kind of figure that is.
    pub unit: Unit,
    /// Whether the rows support it.
    pub verdict: ClaimVerdict,
    /// The reason, with figures.
    pub explanation: String,
    /// The figure of each group.
    pub rows: Vec<ClaimRow>,
}

/// What kind of figure a claim states of `b` against `a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// 100 · (b − a) ÷ a.
    Percent,
    /// b − a in the metric's unit; of a percentage its points.
    Difference,
    /// b ÷ a.
    Ratio,
}

/// Whether the rows support a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClaimVerdict {
    /// The rows give the stated figure, rounded as it is.
    Agrees,
    /// The rows give another figure.
    Disagrees,
    /// The rows give the stated figure only relative to the other side.
    OtherBase,
    /// The rows give the stated figure with the opposite sign.
    WrongSign,
}

/// A claim's figure in one group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimRow {
    /// The settings that all rows of the group have.
    pub settings: Vec<Setting>,
    /// The average of `a`'s runs.
    pub a: f64,
    /// The average of `b`'s runs.
    pub b: f64,
    /// The figure, in the claim's unit.
    pub figure: f64,
    /// Whether it is the figure that the claim states.
    pub agrees: bool,
}

// Text of figures and groups for sentences.

/// So many significant digits, without an exponent for what reports print.
pub(super) fn digits(value: f64, significant: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    let exponent = value.abs().log10().floor() as i32;
    if !(-6..15).contains(&exponent) {
        return format!("{value:.*e}", significant.saturating_sub(1));
    }
    let decimals = (significant as i32 - 1 - exponent).max(0) as usize;
    format!("{value:.decimals$}")
}

/// With a sign, also where it is positive.
pub(super) fn signed(value: f64, decimals: usize) -> String {
    let text = format!("{value:+.decimals$}");
    if text.trim_start_matches(['+', '-', '0', '.']).is_empty() {
        // Nothing is left of it: neither sign is true.
        text.trim_start_matches(['+', '-']).to_owned()
    } else {
        text
    }
}

/// Three significant digits with a sign, also where it is positive.
pub(super) fn signed_digits(value: f64) -> String {
    let text = digits(value.abs(), 3);
    match value {
        0.0 => text,
        value if value < 0.0 => format!("-{text}"),
        _ => format!("+{text}"),
    }
}

/// `column value, column value`.
pub(super) fn settings(settings: &[Setting]) -> String {
    let each = settings.iter().map(|s| format!("{} {}", s.column, s.value));
    each.collect::<Vec<_>>().join(", ")
}

/// `1 run`, `3 runs`.
pub(super) fn runs(n: usize) -> String {
    match n {
        1 => "1 run".to_owned(),
        n => format!("{n} runs"),
    }
}

/// The first few of a list, and how many more there are.
pub(super) fn listed(items: &[String], most: usize) -> String {
    let shown = items[..items.len().min(most)].join(", ");
    match items.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_digits_asked_for() {
        assert_eq!(digits(792.53, 5), "792.53");
        assert_eq!(digits(0.001_234, 3), "0.00123");
        assert_eq!(digits(123_456.0, 3), "123456");
        assert_eq!(digits(0.0, 3), "0");
        assert_eq!(signed(-6.93, 1), "-6.9");
        assert_eq!(signed(0.12, 1), "+0.1");
        assert_eq!(signed(-0.04, 1), "0.0");
        assert_eq!(signed_digits(-0.0123), "-0.0123");
        assert_eq!(signed_digits(0.0), "0");
    }
}

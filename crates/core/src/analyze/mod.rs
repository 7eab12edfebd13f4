//! Analysis of figures that were measured elsewhere: the same statistics as for own runs, and the
//! same ceilings where the columns allow them.
//!
//! Figures of another tool, of a report or of an old spreadsheet come as rows of named columns
//! ([`Table`], read by [`read`]). [`analyze`] compares the levels of one column and says what so
//! many runs can show and what they cannot. It refuses one thing: a verdict. Runs that were not
//! paired and interleaved are an observation, whatever their number; they have an effect and an
//! interval, and never DIFFERENT. For that, there is [`crate::compare`].
//!
//! It also looks for what no statistics can mend: clocks of whole seconds, figures copied from one
//! row to another, percentages over the wrong base, columns that change together with the factor.
//! And it holds what a report says against the report's own rows ([`Claims`]).
//!
//! | module | what is in it |
//! |---|---|
//! | `source` | CSV, linerate's documents, iperf3's JSON, netperf's output → one [`Table`] |
//! | `table` | rows and named columns |
//! | `columns` | which column is the throughput, the window, the time …; clocks of whole seconds |
//! | `groups` | rows → groups → levels, with their medians; one level against another |
//! | `ceilings` | what the columns of a row explain |
//! | `doubts` | what is doubtful in the figures themselves |
//! | `claims` | what a report says, against its rows |
//! | `document` | the document `linerate.analysis/1` |

mod ceilings;
mod claims;
mod columns;
mod document;
mod doubts;
mod groups;
mod source;
mod table;

use std::collections::BTreeSet;
use std::fmt::{self, Display};

pub use claims::Claims;
use columns::{AnalysisClock, Columns, Quantity};
pub use document::{
    ANALYSIS_SCHEMA, Analysis, ClaimResult, ClaimRow, ClaimVerdict, Contrast, Doubt, DoubtKind,
    Group, GroupRatio, Level, Overall, RowCeilings, Setting, Unit,
};
use groups::{Grouping, Split, View};
pub use source::{Input, read};
use table::{Column, VERDICT_COLUMN};
pub use table::{FILE_COLUMN, Format, MAX_ROWS, Source, Table};
use thiserror::Error;

use crate::link::Framing;
use crate::units::suggestion;

/// All files together are no longer, bytes.
pub const MAX_BYTES: usize = 64 << 20;

/// Of a comparison's runs: the number of the pair, and `a` or `b`.
const PAIR_COLUMN: &str = "pair";
const SIDE_COLUMN: &str = "side";
const TREATMENT_COLUMN: &str = "treatment";

/// Questions about a table of figures.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Columns of figures; without one, the throughput, unless there are claims.
    pub metrics: Vec<String>,
    /// The column whose levels are compared; without one it is [`FILE_COLUMN`] where that has
    /// several.
    pub factor: Option<String>,
    /// Columns whose values make the groups.
    pub by: Vec<String>,
    /// The level to compare with; default: the first of the file.
    pub a: Option<String>,
    /// The level to compare; default: each other one.
    pub b: Option<String>,
    /// Pairs of a quantity's well-known name with its unit, such as `rtt_ms`, and the table's own
    /// name for it.
    pub columns: Vec<(String, String)>,
    /// What a link's or a pacing's rate counts; without it, IP packets.
    pub framing: Option<Framing>,
    /// What the report says of these figures.
    pub claims: Option<Claims>,
}

/// Says what the figures of a table can say.
///
/// # Errors
/// [`AnalyzeError`]: an option names a column or level that there is not, or a cell is not a
/// number.
pub fn analyze(table: &Table, options: &Options) -> Result<Analysis, AnalyzeError> {
    let columns = Columns::new(table, &options.columns)?;
    let asked = ResolvedOptions::new(table, &columns, options)?;
    let mut analysis = Analysis {
        schema: ANALYSIS_SCHEMA.to_owned(),
        sources: table.sources().to_vec(),
        metrics: names(table, &asked.metrics),
        factor: (asked.split.factor).map(|column| table.name(column).to_owned()),
        by: names(table, &asked.split.by),
        ..Analysis::default()
    };
    let clock = AnalysisClock::new(table, &columns);
    let grouping = asked.grouping(table, options)?;
    compare(&mut analysis, table, &asked, &grouping, &clock)?;
    explain(&mut analysis, table, &columns, options)?;
    doubt(&mut analysis, table, &columns, &asked, &grouping, &clock)?;
    if let Some(claims) = &options.claims {
        analysis.claims = claims.check(table)?;
    }
    Ok(analysis)
}

/// Why figures cannot be read or analysed as asked; the message names the file and the place where
/// there is one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct AnalyzeError(String);

impl AnalyzeError {
    fn new(message: impl Display) -> Self {
        Self(message.to_string())
    }
}

/// The options, with columns for names.
struct ResolvedOptions {
    metrics: Vec<Column>,
    split: Split,
}

impl ResolvedOptions {
    fn new(table: &Table, columns: &Columns, options: &Options) -> Result<Self, AnalyzeError> {
        let all = |names: &[String]| -> Result<Vec<Column>, AnalyzeError> {
            names.iter().map(|name| table.column(name)).collect()
        };
        let mut metrics: Vec<Column> = all(&options.metrics)?;
        if metrics.is_empty() && options.claims.is_none() {
            let throughput = columns.measure(Quantity::Throughput);
            let measure = throughput.ok_or_else(|| {
                let hint = table.column_hint("");
                AnalyzeError::new(format!(
                    "no column has the name of a throughput: choose one with \
                     --metric; {hint}"
                ))
            })?;
            metrics.push(measure.column);
        }
        let factor = match &options.factor {
            Some(name) => Some(table.column(name)?),
            None => default_factor(table),
        };
        let split = Split { by: all(&options.by)?, factor };
        let asked = Self { metrics, split };
        asked.check(table, options)?;
        Ok(asked)
    }

    /// Each column has one part to play.
    fn check(&self, table: &Table, options: &Options) -> Result<(), AnalyzeError> {
        let lists = [("in --by", &self.split.by), ("in --metric", &self.metrics)];
        for (option, columns) in lists {
            for (position, &column) in columns.iter().enumerate() {
                let other = if columns[..position].contains(&column) {
                    "in it again"
                } else if Some(column) == self.split.factor {
                    "the factor"
                } else {
                    continue;
                };
                let name = table.name(column);
                return Err(AnalyzeError::new(format!(
                    "the column `{name}` is both {option} and {other}"
                )));
            }
        }
        let no_factor = |option| {
            Err(AnalyzeError::new(format!(
                "--{option} names a level, and no --factor the column that has it"
            )))
        };
        match (self.split.factor, &options.a, &options.b) {
            (None, Some(_), _) => no_factor("a"),
            (None, _, Some(_)) => no_factor("b"),
            (_, Some(a), Some(b)) if a == b => Err(AnalyzeError::new(format!(
                "--a and --b are both `{a}`: a comparison needs two levels"
            ))),
            _ => Ok(()),
        }
    }

    /// The rows in their groups, with the levels asked for.
    fn grouping<'t>(
        &self,
        table: &'t Table,
        options: &Options,
    ) -> Result<Grouping<'t>, AnalyzeError> {
        let mut grouping = Grouping::new(table, 0..table.len(), &self.split)?;
        let Some(factor) = self.split.factor else {
            return Ok(grouping);
        };
        let factor = table.name(factor);
        match &grouping.levels[..] {
            // Nothing is left to choose from; that no metric has a figure is said later.
            [] => return Ok(grouping),
            [level] => {
                return Err(AnalyzeError::new(format!(
                    "the column `{factor}` is `{level}` in every row: a comparison needs two levels"
                )));
            }
            _ => {}
        }
        let position = |level: &Option<String>| match level {
            Some(level) => grouping.level(factor, level).map(Some),
            None => Ok(None),
        };
        let (a, b) = (position(&options.a)?, position(&options.b)?);
        // A comparison's A is the one to compare with, whichever ran first.
        let first = grouping.levels.iter().position(|level| *level == "a");
        let a = a.or(first.filter(|first| factor == SIDE_COLUMN && b != Some(*first)));
        // The first that is not the other one.
        let a = a.unwrap_or(usize::from(b == Some(0)));
        let others = (0..grouping.levels.len()).filter(|&level| level != a);
        let chosen = others.filter(|&level| b.is_none_or(|b| b == level));
        let chosen: Vec<usize> = [a].into_iter().chain(chosen).collect();
        grouping.choose(&chosen);
        Ok(grouping)
    }
}

/// Several files are compared with each other; the runs of a paired comparison by their side.
fn default_factor(table: &Table) -> Option<Column> {
    if let (Some(side), Some(_)) = (table.find(SIDE_COLUMN), table.find(PAIR_COLUMN)) {
        return Some(side);
    }
    let mut labels = table.sources().iter().map(|source| &source.label);
    let first = labels.next()?;
    let has_several = labels.any(|label| label != first);
    has_several.then_some(Column::Label)
}

fn compare(
    analysis: &mut Analysis,
    table: &Table,
    asked: &ResolvedOptions,
    grouping: &Grouping<'_>,
    clock: &AnalysisClock<'_>,
) -> Result<(), AnalyzeError> {
    let view = View { table, by: &asked.split.by, grouping, clock };
    if grouping.left_out > 0 {
        let left_out = grouping.left_out;
        analysis.notes.push(format!(
            "{left_out} rows have no value in the columns of the factor or the groups and are left \
             out"
        ));
    }
    if table.find(PAIR_COLUMN).is_some() && table.find(SIDE_COLUMN).is_some() {
        let verdict = table.find(VERDICT_COLUMN);
        let verdicts: BTreeSet<&str> =
            (0..table.len()).filter_map(|row| table.text(row, verdict?)).collect();
        let verdicts: Vec<&str> = verdicts.into_iter().collect();
        analysis.notes.push(format!(
            "these runs were paired, and the comparison's own verdict, {}, uses it; here they are \
             taken as single runs",
            verdicts.join(" and ")
        ));
    }
    for &metric in &asked.metrics {
        let (groups, without) = view.of_metric(metric)?;
        if groups.is_empty() {
            let factor = analysis.factor.as_ref();
            let level = factor.map_or(String::new(), |name| format!(" and a level in `{name}`"));
            let metric = table.name(metric);
            return Err(AnalyzeError::new(format!("no row has a figure in `{metric}`{level}")));
        }
        if without > 0 {
            let name = table.name(metric);
            analysis
                .notes
                .push(format!("{without} rows have no figure in `{name}` and are left out"));
        }
        let overall = groups::overall(&groups, &grouping.levels);
        analysis.overall.extend(overall);
        analysis.groups.extend(groups);
    }
    Ok(())
}

fn explain(
    analysis: &mut Analysis,
    table: &Table,
    columns: &Columns,
    options: &Options,
) -> Result<(), AnalyzeError> {
    let (rows, left_out) = ceilings::of_rows(table, columns, options.framing)?;
    if left_out > 0 {
        let most = ceilings::MAX_ROWS;
        analysis.notes.push(format!(
            "ceilings are given for the first {most} rows that have any; {left_out} more have some"
        ));
    }
    analysis.doubts.extend(ceilings::doubts(&rows));
    analysis.ceilings = rows;
    Ok(())
}

fn doubt(
    analysis: &mut Analysis,
    table: &Table,
    columns: &Columns,
    asked: &ResolvedOptions,
    grouping: &Grouping<'_>,
    clock: &AnalysisClock<'_>,
) -> Result<(), AnalyzeError> {
    let settings = settings(table, asked);
    let elapsed = columns.measure(Quantity::Elapsed).map(|measure| measure.column);
    let is_other = |column: &Column| {
        let split = &asked.split;
        let is_named = split.by.contains(column) || split.factor == Some(*column);
        let is_measured = asked.metrics.contains(column) || elapsed == Some(*column);
        !is_named && !is_measured && is_setting(table, *column, split.factor)
    };
    let others: Vec<Column> = table.all_columns().filter(is_other).collect();
    let doubts = &mut analysis.doubts;
    doubts.extend(clock.doubts(&asked.metrics, grouping)?);
    doubts.extend(doubts::shared_figures(table, &settings));
    doubts.extend(doubts::other_base(table));
    if grouping.levels.len() > 1 && !asked.metrics.is_empty() {
        doubts.extend(doubts::mixed(table, grouping, &others));
        doubts.extend(doubts::confounded(table, grouping, &others));
        doubts.extend(doubts::not_interleaved(grouping));
    }
    Ok(())
}

/// Whether a column may say how a run was made: not which run it was, and of linerate's own
/// documents not what it gave.
fn is_setting(table: &Table, column: Column, factor: Option<Column>) -> bool {
    const WHICH_RUN: [&str; 8] =
        ["seed", "peer", "started_at", "pair", "block", "repeat", "attempt", VERDICT_COLUMN];
    let name = table.name(column);
    let last = name.rsplit('.').next().unwrap_or(name);
    let sides = [SIDE_COLUMN, TREATMENT_COLUMN];
    let is_factor_again =
        sides.contains(&name) && factor.is_some_and(|factor| sides.contains(&table.name(factor)));
    if WHICH_RUN.contains(&last) || is_factor_again {
        return false;
    }
    let mut sources = table.sources().iter();
    let are_own = sources.all(|source| source.format == Format::Linerate);
    let is_given = name.starts_with("plan.")
        || name.starts_with("environment.") && !name.starts_with("environment.lab.")
        || name == "environment.lab.spec";
    !are_own || !name.contains('.') || is_given
}

/// Columns that say what a run was, and not what it gave: those with words, the factor and those of
/// the groups.
fn settings(table: &Table, asked: &ResolvedOptions) -> Vec<Column> {
    let has_words = |column: &Column| {
        let mut texts = (0..table.len()).filter_map(|row| table.text(row, *column));
        texts.any(|text| table::number(text).is_none())
    };
    let is_chosen =
        |column: &Column| asked.split.by.contains(column) || asked.split.factor == Some(*column);
    let is_setting = |column: &Column| is_chosen(column) || has_words(column);
    table.all_columns().filter(is_setting).collect()
}

fn names(table: &Table, columns: &[Column]) -> Vec<String> {
    let names = columns.iter().map(|&column| table.name(column).to_owned());
    names.collect()
}

/// A place in a text, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    line: usize,
    /// Character of that line, where it is known.
    column: Option<usize>,
}

impl Place {
    /// The place of an error that concerns the whole file.
    const FIRST_LINE: Self = Self { line: 1, column: None };
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        match self.column {
            Some(column) => write!(f, ", column {column}"),
            None => Ok(()),
        }
    }
}

/// The name that looks like `name`, or else all names.
fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    const MAX_LISTED: usize = 40;
    let known: Vec<&str> = known.into_iter().collect();
    if known.is_empty() {
        return "there are none".to_owned();
    }
    suggestion(name, &known).unwrap_or_else(|| {
        let rest = match known.len().saturating_sub(MAX_LISTED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let listed = known[..known.len().min(MAX_LISTED)].join(", ");
        format!("there are {listed}{rest}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_looks_alike_is_proposed_and_else_all_are_listed() {
        let known = ["mbit_per_s", "elapsed_s"];
        assert_eq!(hint("mbits_per_s", known), "did you mean `mbit_per_s`?");
        assert_eq!(hint("Elapsed_s", known), "did you mean `elapsed_s`?");
        assert_eq!(hint("cpu", known), "there are mbit_per_s, elapsed_s");
        assert_eq!(hint("cpu", []), "there are none");
    }

    #[test]
    fn a_place_is_named_as_far_as_it_is_known() {
        let exact = Place { line: 3, column: Some(7) };
        assert_eq!(Place::FIRST_LINE.to_string(), "line 1");
        assert_eq!(exact.to_string(), "line 3, column 7");
    }
}

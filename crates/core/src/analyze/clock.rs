//! Times that were read from a clock of whole units.
//!
//! Both ends of such a time are cut off to the unit, so the time itself may be off by nearly one
//! unit either way.

use super::columns::{Columns, Measure, Quantity};
use super::document::{Doubt, DoubtKind};
use super::error::AnalyzeError;
use super::grouping::Grouping;
use super::table::{Column, Table};
use super::words::signed;

/// The column of the elapsed time, and the resolution of its clock.
#[derive(Debug)]
pub(super) struct AnalysisClock<'t> {
    table: &'t Table,
    elapsed: Option<Measure>,
    is_whole: bool,
}

impl<'t> AnalysisClock<'t> {
    pub(super) fn new(table: &'t Table, columns: &Columns) -> Self {
        let elapsed = columns.measure(Quantity::Elapsed);
        let is_whole =
            elapsed.is_some_and(|it| has_whole_figures(table, 0..table.len(), it.column));
        Self { table, elapsed, is_whole }
    }

    /// Between what the ratio of `b`'s figure over `a`'s may be if each is a fixed amount of work
    /// over such a time, or the time itself; `None` where the clock is finer or the figures are
    /// something else.
    ///
    /// # Errors
    /// A time that is not a number.
    pub(super) fn ratio_range(
        &self,
        metric: Column,
        rows: [usize; 2],
        figures: [f64; 2],
    ) -> Result<Option<[f64; 2]>, AnalyzeError> {
        let Some(elapsed) = self.elapsed.filter(|_| self.is_whole) else {
            return Ok(None);
        };
        let [a, b] = rows.map(|row| self.table.number(row, elapsed.column));
        let (Some(a), Some(b)) = (a?, b?) else {
            return Ok(None);
        };
        let is_time = metric == elapsed.column;
        let work = (figures[1] * b) / (figures[0] * a);
        if !is_time && (work - 1.0).abs() > SAME_WORK {
            return Ok(None);
        }
        let (over, under) = if is_time { (b, a) } else { (a, b) };
        // A time of one unit may have been nothing.
        Ok((over > 1.0 && under > 1.0)
            .then(|| [(over - 1.0) / (under + 1.0), (over + 1.0) / (under - 1.0)]))
    }

    /// Says where times are whole numbers: the elapsed time, and metrics that are times.
    pub(super) fn doubts(
        &self,
        metrics: &[Column],
        grouping: &Grouping<'_>,
    ) -> Result<Vec<Doubt>, AnalyzeError> {
        let mut columns: Vec<Column> = self.elapsed.iter().map(|measure| measure.column).collect();
        for &metric in metrics {
            if is_time(self.table.name(metric)) && !columns.contains(&metric) {
                columns.push(metric);
            }
        }
        let mut doubts = Vec::new();
        for column in columns {
            if has_whole_figures(self.table, 0..self.table.len(), column) {
                doubts.extend(self.doubt(column, (0..self.table.len()).collect(), "")?);
                continue;
            }
            for group in grouping.groups.iter().filter(|group| !group.key.is_empty()) {
                let rows: Vec<usize> = group.all().collect();
                if rows.len() >= FEW_ROWS
                    && has_whole_figures(self.table, rows.iter().copied(), column)
                {
                    doubts.extend(self.doubt(column, rows, &group.key.join(", "))?);
                }
            }
        }
        Ok(doubts)
    }

    fn doubt(
        &self,
        column: Column,
        rows: Vec<usize>,
        group: &str,
    ) -> Result<Option<Doubt>, AnalyzeError> {
        let mut times = Vec::new();
        for row in rows {
            times.extend(self.table.number(row, column)?);
        }
        let shortest = times.iter().copied().fold(f64::INFINITY, f64::min);
        let longest = times.iter().copied().fold(0.0, f64::max);
        if times.is_empty() || shortest < 1.0 || 1.0 / shortest < FINE_ENOUGH {
            return Ok(None);
        }
        let place = match group {
            "" => String::new(),
            group => format!(" at {group}"),
        };
        let name = self.table.name(column);
        let worst = if shortest > 1.0 {
            format!(
                "{} % to {} % at {shortest}",
                signed(-100.0 / (shortest + 1.0), 0),
                signed(100.0 / (shortest - 1.0), 0)
            )
        } else {
            "anything at 1".to_owned()
        };
        Ok(Some(Doubt {
            kind: DoubtKind::WholeSeconds,
            message: format!(
                "`{name}` has whole numbers only{place} ({} rows, {shortest} to {longest}): its \
                 clock was read in steps of 1, so what is made of one time may be off by {worst}, \
                 by ±{:.1} % at {longest}",
                times.len(),
                100.0 / longest
            ),
        }))
    }
}

/// Whether a column has figures in these rows, all of them written without a point.
fn has_whole_figures(table: &Table, rows: impl Iterator<Item = usize>, column: Column) -> bool {
    let mut texts = rows.filter_map(|row| table.text(row, column)).peekable();
    texts.peek().is_some() && texts.all(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a name ends in a unit of seconds, and is neither a rate nor a time of day.
fn is_time(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let in_seconds = name.ends_with("_s") || name.ends_with("seconds") || name.ends_with("_sec");
    in_seconds && !name.contains("per_s")
}

/// Two runs did the same work if it differs by no more than this share: printed figures are
/// rounded.
const SAME_WORK: f64 = 0.02;
/// A clock whose unit is below this share of the shortest time raises no doubt.
const FINE_ENOUGH: f64 = 0.002;
/// In fewer rows than this, whole numbers may be chance.
const FEW_ROWS: usize = 4;

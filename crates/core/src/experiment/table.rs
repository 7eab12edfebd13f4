//! The figures as the report's table has them: rows by levels, one factor's levels as columns.

use super::document::{CellFigure, DocumentColumn, DocumentRow, DocumentTable};
use super::findings::{ratio, samples};
use super::measure::Run;
use super::model::{Column, Experiment};
use crate::stats::figure;

/// The table of all cells, each with its runs; `unavailable` are cells that could not be run, and
/// why.
pub(super) fn table(
    experiment: &Experiment,
    runs: &[Vec<&Run>],
    unavailable: &[(usize, String)],
) -> DocumentTable {
    let shape = Shape { experiment, runs, unavailable };
    let columns = shape.columns();
    let rows = shape.rows().into_iter().map(|levels| DocumentRow {
        figures: (columns.iter())
            .map(|(across, column)| shape.figure(&levels, *across, column))
            .collect(),
        levels: shape.row_names(&levels),
    });
    DocumentTable {
        row_factors: (shape.row_factors())
            .map(|factor| experiment.factors[factor].name.clone())
            .collect(),
        rows: rows.collect(),
        columns: (columns.iter()).map(|(across, column)| shape.head(*across, column)).collect(),
    }
}

struct Shape<'a> {
    experiment: &'a Experiment,
    runs: &'a [Vec<&'a Run>],
    unavailable: &'a [(usize, String)],
}

impl<'a> Shape<'a> {
    fn row_factors(&self) -> impl Iterator<Item = usize> + '_ {
        let factors = 0..self.experiment.factors.len();
        factors.filter(|factor| Some(*factor) != self.experiment.across)
    }

    /// The columns, each with its level of the factor across. A level has no ratio to itself.
    fn columns(&self) -> Vec<(Option<usize>, &'a Column)> {
        let Some(factor) = self.experiment.across else {
            let columns = self.experiment.columns.iter();
            return columns.map(|column| (None, column)).collect();
        };
        let levels = 0..self.experiment.factors[factor].levels.len();
        let of_level = |level| {
            let columns = self.experiment.columns.iter();
            let shown = columns.filter(move |column| column.ratio_to != Some(level));
            shown.map(move |column| (Some(level), column))
        };
        levels.flat_map(of_level).collect()
    }

    /// The levels of each row; that of the factor across is 0.
    fn rows(&self) -> Vec<Vec<usize>> {
        let cells = self.experiment.cells.iter().map(|cell| &cell.levels);
        let is_row = |levels: &&Vec<usize>| {
            let across = self.experiment.across;
            across.is_none_or(|factor| levels[factor] == 0)
        };
        cells.filter(is_row).cloned().collect()
    }

    fn row_names(&self, levels: &[usize]) -> Vec<String> {
        let name = |factor: usize| self.experiment.factors[factor].levels[levels[factor]].clone();
        self.row_factors().map(name).collect()
    }

    fn head(&self, across: Option<usize>, column: &Column) -> DocumentColumn {
        let level = |level: usize| {
            let factor = &self.experiment.factors[self.experiment.across?];
            Some(factor.levels[level].clone())
        };
        DocumentColumn {
            title: column.title.clone(),
            level: across.and_then(level),
            metric: column.measure.to_string(),
            ratio_to: column.ratio_to.and_then(level),
            unit: column.unit.clone(),
            scale: column.scale,
            decimals: column.decimals,
        }
    }

    fn cell(&self, row: &[usize], across: Option<usize>) -> usize {
        let mut levels = row.to_vec();
        if let (Some(factor), Some(level)) = (self.experiment.across, across) {
            levels[factor] = level;
        }
        self.experiment.cell_number(&levels)
    }

    fn figure(&self, row: &[usize], across: Option<usize>, column: &Column) -> CellFigure {
        let cell = self.cell(row, across);
        let base = column.ratio_to.map(|level| self.cell(row, Some(level)));
        let samples = samples(&[(cell, base)], self.runs, |run| column.measure.of(run));
        let name = column.measure.to_string();
        let figure_of = |cell: usize| self.experiment.figures[cell].get(&name).copied();
        let report = match base {
            None => figure_of(cell),
            Some(base) => ratio(figure_of(cell), figure_of(base)),
        };
        let ours = figure(&samples).ok();
        CellFigure { not_run: ours.is_none().then(|| self.why_not(cell)).flatten(), ours, report }
    }

    fn why_not(&self, cell: usize) -> Option<String> {
        if let Some(lacks) = &self.experiment.cells[cell].lacks {
            return Some(lacks.clone());
        }
        if let Some((_, why)) = self.unavailable.iter().find(|(other, _)| *other == cell) {
            return Some(why.clone());
        }
        let last = self.runs[cell].last()?;
        last.error.clone().or_else(|| last.faults.first().cloned())
    }
}

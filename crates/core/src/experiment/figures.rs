//! The figures of an experiment as the report's table has them, and what its findings say of them.

use std::collections::BTreeMap;

use super::document::{
    CellFigure, DocumentColumn, DocumentFinding, DocumentRow, DocumentTable, Run,
};
use super::model::{Column, Experiment, Finding};
use crate::stats::{Agreement, Summary, figure};

// The report's table: rows by levels, one factor's levels as columns.

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

// The report's findings, checked against the figures of runs and tables.

/// Checks each finding against the runs of its cells, of which so many are still to be made if the
/// experiment was stopped.
pub(super) fn outcomes(
    experiment: &Experiment,
    runs: &[Vec<&Run>],
    left: &[usize],
) -> Vec<DocumentFinding> {
    let outcome = |finding| outcome(experiment, finding, runs, left);
    experiment.findings.iter().map(outcome).collect()
}

fn outcome(
    experiment: &Experiment,
    finding: &Finding,
    runs: &[Vec<&Run>],
    left: &[usize],
) -> DocumentFinding {
    let accepted = finding.accepted;
    let samples = samples(&finding.pairs, runs, |run| value(finding, run));
    let is_stopped = cells(finding).any(|cell| left[cell] > 0);
    let ours = figure(&samples).ok().filter(|_| !is_stopped);
    let report = finding.report.or_else(|| of_report(experiment, finding));
    let judged = ours.as_ref().map(|ours| accepted.judge(ours, &samples));
    let agreement = judged.unwrap_or(Agreement::NotKnown);
    let report_agreement = accepted.judge_all(report);
    let other = finding.over_measure.as_ref();
    let over = other.map_or(String::new(), |over| format!(" ÷ {over}"));
    DocumentFinding {
        text: finding.text.clone(),
        metric: format!("{}{over}", finding.measure),
        is_ratio: over_other_cells(finding) || finding.over_measure.is_some(),
        least: Some(accepted.low).filter(|end| end.is_finite()),
        most: Some(accepted.high).filter(|end| end.is_finite()),
        why: match is_stopped {
            true => Some("stopped before all of its runs were made: no result".to_owned()),
            false => ours.is_none().then(|| why_not(experiment, finding, runs)),
        },
        ours,
        agreement,
        report,
        report_agreement,
    }
}

/// The cells of a finding.
fn cells(finding: &Finding) -> impl Iterator<Item = usize> {
    finding.pairs.iter().flat_map(|(cell, partner)| [Some(*cell), *partner]).flatten()
}

fn over_other_cells(finding: &Finding) -> bool {
    finding.pairs.iter().any(|(_, partner)| partner.is_some())
}

/// One value for each repeat: the median over the cells, each of which may be divided by a
/// partner's value of the same repeat.
pub(super) fn samples(
    pairs: &[(usize, Option<usize>)],
    runs: &[Vec<&Run>],
    value: impl Fn(&Run) -> Option<f64>,
) -> Vec<f64> {
    let mut by_repeat: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (cell, partner) in pairs {
        for run in runs[*cell].iter().filter(|run| run.counts()) {
            let value = match partner {
                None => value(run),
                Some(partner) => {
                    let mut others = runs[*partner].iter().filter(|other| other.counts());
                    let other = others.find(|other| other.repeat == run.repeat);
                    ratio(value(run), other.and_then(|other| value(other)))
                }
            };
            by_repeat.entry(run.repeat).or_default().extend(value);
        }
    }
    let median = |values: Vec<f64>| Some(Summary::new(&values).ok()?.median());
    by_repeat.into_values().filter_map(median).collect()
}

fn value(finding: &Finding, run: &Run) -> Option<f64> {
    let value = finding.measure.of(run);
    match &finding.over_measure {
        None => value,
        Some(over) => ratio(value, over.of(run)),
    }
}

fn of_report(experiment: &Experiment, finding: &Finding) -> Option<f64> {
    let of_cell = |cell: usize| {
        let figures = &experiment.figures[cell];
        let value = figures.get(&finding.measure.to_string()).copied();
        match &finding.over_measure {
            None => value,
            Some(over) => ratio(value, figures.get(&over.to_string()).copied()),
        }
    };
    let pairs = finding.pairs.iter();
    let values = pairs.filter_map(|(cell, partner)| match partner {
        None => of_cell(*cell),
        Some(partner) => ratio(of_cell(*cell), of_cell(*partner)),
    });
    Some(Summary::new(&values.collect::<Vec<_>>()).ok()?.median())
}

/// The ratio; `None` where a value is missing or the divisor is 0.
pub(super) fn ratio(value: Option<f64>, over: Option<f64>) -> Option<f64> {
    let over = over.filter(|over| *over != 0.0)?;
    Some(value? / over).filter(|ratio| ratio.is_finite())
}

fn why_not(experiment: &Experiment, finding: &Finding, runs: &[Vec<&Run>]) -> String {
    if finding.pairs.is_empty() {
        return "the quick form leaves its levels out".to_owned();
    }
    let lacking = cells(finding).find_map(|cell| experiment.cells[cell].lacks.clone());
    if let Some(lacks) = lacking {
        return lacks;
    }
    if cells(finding).any(|cell| runs[cell].iter().any(|run| run.counts())) {
        format!("no run has {} of both", finding.measure)
    } else {
        "no run of it counts".to_owned()
    }
}

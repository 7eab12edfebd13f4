//! Experiment files: what a report varied, measured and found, in a form that can run again.
//!
//! [`Experiment::from_toml`] reads one and resolves it to [`Cell`]s, one for each combination of
//! levels; every name in it is known then, and every test checked. [`Experiment::next`] says which
//! [`Run`] comes next, after those that there are. [`Experiment::assemble`] makes the one document
//! of them: the report's table with the report's own figures beside ours, and what of its findings
//! agrees. No agreement is typed: each is computed from the records.
//!
//! | module | what is in it |
//! |---|---|
//! | `file` | the format, and what can be wrong with a file |
//! | `model` | an experiment with everything resolved; the keys of `[workload]` |
//! | `document` | a run with its figures, and the document of all runs |
//! | `figures` | the report's table and findings, from the figures of runs |

mod document;
mod figures;
mod file;
mod model;
#[cfg(test)]
mod tests;

pub use document::{
    CellFigure, DocumentColumn, DocumentFinding, DocumentRow, DocumentTable, EXPERIMENT_SCHEMA,
    Ending, ExperimentDocument, Measure, QOS_PACKET_NS, Run,
};
pub(crate) use file::workload_of;
pub use file::{Choice, Files};
pub use model::{
    Cell, Column, Experiment, ExperimentPath, Factor, FileTransfer, Finding, Place,
    SPECIAL_FIGURES, Special, Work,
};

use crate::plan::{MAX_REPEATS, Repeats};
use crate::stats::{Precision, precision_reached};
use crate::units::Dice;

/// A run to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Index of the cell in [`Experiment::cells`].
    pub cell: usize,
    /// The number of the repeat, from 1.
    pub repeat: u32,
    /// The number of the attempt at that repeat, from 1.
    pub attempt: u32,
}

/// Attempts at one repeat of a cell, at most: what goes wrong each time is an outcome.
pub const MAX_ATTEMPTS: u32 = 3;

impl Experiment {
    /// The next run, after those in `runs`; `None` when the experiment is done. The cells in
    /// `unavailable` are left out: something that they need is not there.
    ///
    /// Every repeat runs all cells, in an order drawn from the seed, so that a drift of the hosts
    /// or the path falls on all cells alike. The next run follows from the runs that there are: an
    /// experiment that was stopped goes on where it was.
    pub fn next(&self, runs: &[Run], unavailable: &[usize]) -> Option<Slot> {
        let runs = self.by_cell(runs);
        for repeat in 1..=self.max_repeats() {
            let mut cells = (self.order(repeat).into_iter())
                .filter(|cell| self.is_runnable(*cell) && !unavailable.contains(cell))
                .filter(|cell| self.wants(&runs[*cell], repeat));
            let slot = cells.find_map(|cell| attempt_after(&runs[cell], cell, repeat));
            if slot.is_some() {
                return slot;
            }
        }
        None
    }

    /// Runs that are still to be made for each cell, as far as is known: with a precision to reach
    /// it is one more for each cell that has not reached it.
    pub fn remaining(&self, runs: &[Run], unavailable: &[usize]) -> Vec<usize> {
        let runs = self.by_cell(runs);
        let left = |cell: usize| {
            if !self.is_runnable(cell) || unavailable.contains(&cell) {
                return 0;
            }
            let done = (1..=self.max_repeats())
                .take_while(|repeat| attempt_after(&runs[cell], cell, *repeat).is_none())
                .count();
            match self.repeats {
                Repeats::Times(times) => (times as usize).saturating_sub(done),
                Repeats::Precision(_) => usize::from(self.wants(&runs[cell], done as u32 + 1)),
            }
        };
        (0..self.cells.len()).map(left).collect()
    }

    /// The seed of a run: all cells of a repeat have the same, so that they meet with the same
    /// chances; a run that is made again has another.
    pub fn seed_of(&self, slot: Slot) -> u64 {
        let number = u64::from(slot.repeat - 1) * u64::from(MAX_ATTEMPTS) + u64::from(slot.attempt);
        self.seed.wrapping_add(number - 1)
    }

    /// The index of a run's cell.
    pub fn cell_of(&self, run: &Run) -> Option<usize> {
        if run.levels.len() != self.factors.len() {
            return None;
        }
        let level = |factor: &Factor| {
            let level = run.levels.get(&factor.name)?;
            factor.levels.iter().position(|name| name == level)
        };
        let levels: Option<Vec<usize>> = self.factors.iter().map(level).collect();
        Some(self.cell_number(&levels?))
    }

    /// Whether this version can run the cell.
    pub fn is_runnable(&self, cell: usize) -> bool {
        self.cells[cell].lacks.is_none()
    }

    fn by_cell<'a>(&self, runs: &'a [Run]) -> Vec<Vec<&'a Run>> {
        let mut by_cell = vec![Vec::new(); self.cells.len()];
        for run in runs {
            if let Some(cell) = self.cell_of(run) {
                by_cell[cell].push(run);
            }
        }
        by_cell
    }

    fn max_repeats(&self) -> u32 {
        match self.repeats {
            Repeats::Times(times) => times,
            Repeats::Precision(_) => MAX_REPEATS,
        }
    }

    /// Whether a cell is to have this repeat: by what is known from those before it.
    fn wants(&self, runs: &[&Run], repeat: u32) -> bool {
        let Repeats::Precision(percent) = self.repeats else {
            return true;
        };
        let is_before = |run: &&&Run| run.counts() && run.repeat < repeat;
        let before = runs.iter().filter(is_before);
        let measure = &self.columns[0].measure;
        let samples: Vec<f64> = before.filter_map(|run| measure.of(run)).collect();
        !matches!(
            precision_reached(&samples, percent.0),
            Ok(Precision::Reached { .. } | Precision::NotRelative)
        )
    }

    /// The order of the cells in a repeat.
    pub fn order(&self, repeat: u32) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.cells.len()).collect();
        Dice::new(self.seed, u64::from(repeat)).shuffle(&mut order);
        order
    }
}

/// The next attempt at a repeat, if one is allowed.
fn attempt_after(runs: &[&Run], cell: usize, repeat: u32) -> Option<Slot> {
    let attempts: Vec<_> = runs.iter().filter(|run| run.repeat == repeat).collect();
    let is_over = attempts.iter().any(|run| run.counts());
    let attempt = attempts.len() as u32 + 1;
    (!is_over && attempt <= MAX_ATTEMPTS).then_some(Slot { cell, repeat, attempt })
}

/// Durations of the runs so far, for an estimate of the remaining time.
#[derive(Debug, Clone, Default)]
pub struct Estimate {
    /// Cell and duration of each run, seconds, including the setup of its path.
    runs: Vec<(usize, f64)>,
}

impl Estimate {
    /// Records that a run of `cell` took this many seconds, including its setup.
    pub fn add(&mut self, cell: usize, seconds: f64) {
        self.runs.push((cell, seconds));
    }

    /// Seconds that are left, given how many runs each cell still has; `None` as long as nothing is
    /// known of runs that end after so many bytes.
    pub fn remaining_s(&self, experiment: &Experiment, remaining: &[usize]) -> Option<f64> {
        let left = remaining.iter().enumerate().filter(|(_, count)| **count > 0);
        left.map(|(cell, count)| Some(self.of_cell(experiment, cell)? * *count as f64)).sum()
    }

    fn of_cell(&self, experiment: &Experiment, cell: usize) -> Option<f64> {
        let planned = |cell: usize| experiment.cells[cell].planned_s();
        if let Some(seconds) = planned(cell) {
            let runs = self.runs.iter();
            let beside = runs.filter_map(|(cell, took)| Some(took - planned(*cell)?));
            return Some(seconds + mean(beside).unwrap_or(BESIDE_S));
        }
        let own = self.runs.iter().filter(|(other, _)| *other == cell);
        let runs = self.runs.iter();
        let alike = runs.filter(|(other, _)| planned(*other).is_none());
        mean(own.map(|(_, took)| *took)).or_else(|| mean(alike.map(|(_, took)| *took)))
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

/// What a run takes besides its time, seconds, as long as none has shown it: making a lab,
/// connecting, the reports.
const BESIDE_S: f64 = 1.0;

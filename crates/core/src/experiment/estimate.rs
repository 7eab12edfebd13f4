//! How long the rest of an experiment takes.

use super::Experiment;

/// What runs took so far.
#[derive(Debug, Clone, Default)]
pub struct Estimate {
    /// Cell, and seconds from the making of its path to its end.
    runs: Vec<(usize, f64)>,
}

impl Estimate {
    /// Nothing has run.
    pub fn new() -> Self {
        Self::default()
    }

    /// A run of `cell` took so many seconds, all that belongs to it included.
    pub fn add(&mut self, cell: usize, seconds: f64) {
        self.runs.push((cell, seconds));
    }

    /// Seconds that are left, given how many runs each cell still has; `None` as long as nothing is
    /// known of runs that end after so many bytes.
    pub fn remaining_s(&self, experiment: &Experiment, remaining: &[usize]) -> Option<f64> {
        let left = remaining
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0);
        left.map(|(cell, count)| Some(self.of_cell(experiment, cell)? * *count as f64))
            .sum()
    }

    fn of_cell(&self, experiment: &Experiment, cell: usize) -> Option<f64> {
        let planned = |cell: usize| experiment.cells[cell].planned_s();
        if let Some(seconds) = planned(cell) {
            let beside = self
                .runs
                .iter()
                .filter_map(|(cell, took)| Some(took - planned(*cell)?));
            return Some(seconds + mean(beside).unwrap_or(BESIDE_S));
        }
        let own = self.runs.iter().filter(|(other, _)| *other == cell);
        let alike = self
            .runs
            .iter()
            .filter(|(other, _)| planned(*other).is_none());
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

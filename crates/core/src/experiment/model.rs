//! An experiment with everything resolved, as plain data.

use std::collections::BTreeMap;

use super::cell::Cell;
use super::measure::Measure;
use crate::compare::Fault;
use crate::plan::Repeats;

/// What a file describes, with nothing left to choose.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// What it is about.
    pub title: String,
    /// The report that it runs again.
    pub report: Option<String>,
    /// What a reader should know beforehand.
    pub about: Option<String>,
    /// Seed of every random choice.
    pub seed: u64,
    /// The quick form of it.
    pub quick: bool,
    /// How often each cell is run.
    pub repeats: Repeats,
    /// Validity faults: a run that has one does not count.
    pub forbid: Vec<Fault>,
    /// What is varied, the slowest first.
    pub factors: Vec<Factor>,
    /// All combinations of levels, in the order of the table.
    pub cells: Vec<Cell>,
    /// What was added so that a treatment changes only what its name says.
    pub notes: Vec<String>,
    /// The factor whose levels stand side by side.
    pub across: Option<usize>,
    /// What the table shows; with a precision to reach at least one, which is the first's.
    pub columns: Vec<Column>,
    /// What the report found.
    pub findings: Vec<Finding>,
    /// Of each cell the report's figures, by the name of the measure.
    pub figures: Vec<BTreeMap<String, f64>>,
}

/// Something that is varied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Factor {
    /// Its name.
    pub name: String,
    /// The names of its levels; at least one.
    pub levels: Vec<String>,
}

/// A column of the table, for each level across.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// The figure.
    pub measure: Measure,
    /// Its head.
    pub title: String,
    /// Its unit, as it is printed.
    pub unit: Option<String>,
    /// What is printed is the figure times this.
    pub scale: f64,
    /// Digits behind the point; `None` is three significant ones.
    pub decimals: Option<u32>,
    /// In place of the figure its ratio to that of this level across.
    pub ratio_to: Option<usize>,
}

/// Something that a report found, as a claim on figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// In the report's words, or about them.
    pub text: String,
    /// The figure.
    pub measure: Measure,
    /// The figure is divided by this one of the same run.
    pub over_measure: Option<Measure>,
    /// Cells, each with the one that it is held against: then the claim is on their ratio.
    pub pairs: Vec<(usize, Option<usize>)>,
    /// What is claimed of the value or the ratio.
    pub expectation: Expectation,
    /// The report's own value where no table of it has one.
    pub report: Option<f64>,
}

/// What is claimed of a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Expectation {
    /// It is within a factor of this.
    About {
        /// The value; above 0.
        value: f64,
        /// The factor, 1 or more.
        within: f64,
    },
    /// It is this or more.
    AtLeast(f64),
    /// It is this or less.
    AtMost(f64),
    /// It is one of these or between them.
    Between {
        /// The least.
        least: f64,
        /// The most.
        most: f64,
    },
    /// It is a ratio within so many percent of 1.
    NoDifference {
        /// Percent.
        margin_percent: f64,
    },
}

impl Experiment {
    /// The levels of a cell, by the names of their factors.
    pub fn level_names(&self, cell: usize) -> BTreeMap<String, String> {
        let levels = self.factors.iter().zip(&self.cells[cell].levels);
        levels
            .map(|(factor, level)| (factor.name.clone(), factor.levels[*level].clone()))
            .collect()
    }

    /// A cell in words: `window fixed, size 100`; empty where there are no factors.
    pub fn cell_title(&self, cell: usize) -> String {
        let levels = self.factors.iter().zip(&self.cells[cell].levels);
        let levels: Vec<String> = levels
            .map(|(factor, level)| format!("{} {}", factor.name, factor.levels[*level]))
            .collect();
        levels.join(", ")
    }

    /// A number that changes with everything that decides a run: cells, faults and seed. Words,
    /// columns, findings and the number of repeats may change without a run becoming another.
    pub fn identity(&self) -> String {
        let cells: Vec<String> = (0..self.cells.len())
            .map(|cell| format!("{}={}", self.cell_title(cell), self.cells[cell].identity()))
            .collect();
        let whole = format!("{} {:?} {}", self.seed, self.forbid, cells.join("\n"));
        format!("{:016x}", crate::units::checksum::fnv1a(whole.as_bytes()))
    }
}

impl Expectation {
    /// The values that it accepts, both ends included.
    pub fn range(&self) -> (f64, f64) {
        match *self {
            Self::About { value, within } => (value / within, value * within),
            Self::AtLeast(least) => (least, f64::INFINITY),
            Self::AtMost(most) => (f64::NEG_INFINITY, most),
            Self::Between { least, most } => (least, most),
            Self::NoDifference { margin_percent } => {
                let margin = margin_percent / 100.0;
                (1.0 - margin, 1.0 + margin)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectations_accept_their_ends() {
        let about = Expectation::About {
            value: 2.0,
            within: 1.25,
        };
        assert_eq!(about.range(), (1.6, 2.5));
        assert_eq!(Expectation::AtLeast(3.0).range(), (3.0, f64::INFINITY));
        let between = Expectation::Between {
            least: 0.9,
            most: 0.99,
        };
        assert_eq!(between.range(), (0.9, 0.99));
        let (low, high) = Expectation::NoDifference {
            margin_percent: 5.0,
        }
        .range();
        assert_eq!((low, high), (0.95, 1.05));
    }
}

//! Whether figures agree with what a report states of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Figure;

/// Whether figures bear a claim out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// All of the interval is in what the claim accepts; of modes and drifts, all repeats.
    Agrees,
    /// The whole interval is outside.
    Disagrees,
    /// The interval is partly inside and partly outside: the runs do not decide it.
    Undecided,
    /// There is no figure.
    NotKnown,
}

/// The figures that a claim accepts, both ends included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Accepted {
    /// The lowest value; may be infinite.
    pub low: f64,
    /// The highest value; may be infinite.
    pub high: f64,
}

impl Accepted {
    /// Whether a figure is accepted.
    pub fn contains(self, figure: f64) -> bool {
        (self.low..=self.high).contains(&figure)
    }

    /// How far a figure is outside; negative inside.
    pub fn beyond(self, figure: f64) -> f64 {
        (self.low - figure).max(figure - self.high)
    }

    /// Single figures, all of which have to say the same.
    pub fn judge_all(self, figures: impl IntoIterator<Item = f64>) -> Agreement {
        let figures = figures.into_iter();
        let (inside, outside): (Vec<f64>, Vec<f64>) = figures.partition(|it| self.contains(*it));
        match (inside.is_empty(), outside.is_empty()) {
            (false, true) => Agreement::Agrees,
            (true, false) => Agreement::Disagrees,
            (false, false) => Agreement::Undecided,
            (true, true) => Agreement::NotKnown,
        }
    }

    /// A figure of several runs, by the interval of its median. Modes and drifts have no median to
    /// speak of: there every sample has to say the same.
    pub fn judge(self, figure: &Figure, samples: &[f64]) -> Agreement {
        let Figure::One(one) = figure else {
            return self.judge_all(samples.iter().copied());
        };
        if self.contains(one.low) && self.contains(one.high) {
            Agreement::Agrees
        } else if one.high < self.low || one.low > self.high {
            Agreement::Disagrees
        } else {
            Agreement::Undecided
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_say_different_things_decide_nothing() {
        let accepted = Accepted { low: 1.0, high: f64::INFINITY };
        for (figures, agreement) in [
            (&[1.0, 7.0][..], Agreement::Agrees),
            (&[0.5, 0.9], Agreement::Disagrees),
            (&[0.5, 2.0], Agreement::Undecided),
            (&[], Agreement::NotKnown),
        ] {
            assert_eq!(accepted.judge_all(figures.iter().copied()), agreement);
        }
        assert_eq!(accepted.beyond(0.5), 0.5);
    }
}

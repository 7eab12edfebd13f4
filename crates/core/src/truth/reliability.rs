//! Whether verdicts are as sure as they are right.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::score::{Judgement, Tally, Trial};
use crate::ceilings::Cause;

/// How sure verdicts are, against how often they are right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reliability {
    /// By what the verdicts said, the least sure first; those that were never said are left out.
    pub bins: Vec<Bin>,
    /// Mean of the squared difference of the confidence and of what was right (1) or wrong (0); 0
    /// is best, and 0.25 what a coin has that says 50 %.
    pub brier: f64,
    /// Verdicts without a confidence.
    pub unknown: u64,
}

/// Verdicts that were about as sure as each other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bin {
    /// Least confidence, inclusive.
    pub from: f64,
    /// Largest confidence, exclusive but for 1.
    pub to: f64,
    /// Their mean confidence.
    pub confidence: f64,
    /// How many of them are right, with an interval.
    pub tally: Tally,
}

impl Reliability {
    /// Of all verdicts that name a cause; `None` where none says how sure it is.
    pub(super) fn new(trials: &[Trial]) -> Option<Self> {
        let named = trials.iter().filter(|trial| {
            let verdict = trial.verdict();
            verdict.is_some() && verdict != Some(Cause::Unexplained)
        });
        let answers = named.map(|trial| (trial.confidence(), trial.judgement == Judgement::Right));
        let (known, unknown): (Vec<_>, Vec<_>) = answers.partition(|(sure, _)| sure.is_some());
        let known: Vec<(f64, bool)> = known
            .into_iter()
            .filter_map(|(sure, is_right)| Some((sure?, is_right)))
            .collect();
        let bins: Vec<Bin> = (EDGES.windows(2))
            .filter_map(|edges| Bin::new(edges[0], edges[1], &known))
            .collect();
        let squares = known
            .iter()
            .map(|(sure, is_right)| (sure - f64::from(u8::from(*is_right))).powi(2));
        (!known.is_empty()).then(|| Self {
            bins,
            brier: squares.sum::<f64>() / known.len() as f64,
            unknown: unknown.len() as u64,
        })
    }
}

impl Bin {
    fn new(from: f64, to: f64, known: &[(f64, bool)]) -> Option<Self> {
        let is_in = |sure: f64| sure >= from && (sure < to || to >= 1.0);
        let own: Vec<&(f64, bool)> = known.iter().filter(|(sure, _)| is_in(*sure)).collect();
        let right = own.iter().filter(|(_, is_right)| *is_right).count() as u64;
        let sum: f64 = own.iter().map(|(sure, _)| sure).sum();
        (!own.is_empty()).then(|| Self {
            from,
            to,
            confidence: sum / own.len() as f64,
            tally: Tally::of_counts(right, own.len() as u64),
        })
    }
}

/// Below one half no cause is named.
const EDGES: [f64; 7] = [0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

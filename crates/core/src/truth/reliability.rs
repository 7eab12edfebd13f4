//! Compares the confidence of verdicts with the share of them that is right.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::score::{Judgement, Tally, Trial};
use crate::ceilings::Cause;

/// Confidence of verdicts against the share of them that is right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reliability {
    /// Verdicts by their confidence, the least sure first; empty bins are left out.
    pub bins: Vec<Bin>,
    /// Brier score: the mean squared difference of the confidence and the outcome, right (1) or
    /// wrong (0). 0 is best; 0.25 is that of a coin with a confidence of 50 %.
    pub brier: f64,
    /// Verdicts without a confidence.
    pub unknown: u64,
}

/// Verdicts of about the same confidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bin {
    /// Least confidence, inclusive.
    pub from: f64,
    /// Largest confidence, exclusive but for 1.
    pub to: f64,
    /// Their mean confidence.
    pub confidence: f64,
    /// The share of them that is right, with its interval.
    pub tally: Tally,
}

impl Reliability {
    /// Of all verdicts that name a cause; `None` if none has a confidence.
    pub(super) fn new(trials: &[Trial]) -> Option<Self> {
        let is_named = |trial: &&Trial| trial.verdict().is_some_and(|it| it != Cause::Unexplained);
        let named = trials.iter().filter(is_named);
        let known = named.clone().filter_map(|trial| {
            let is_right = trial.judgement == Judgement::Right;
            Some((trial.confidence()?, is_right))
        });
        let known: Vec<(f64, bool)> = known.collect();
        let edges = EDGES.windows(2);
        let bins = edges.filter_map(|edges| Bin::new(edges[0], edges[1], &known));
        let square =
            |(sure, is_right): &(f64, bool)| (sure - f64::from(u8::from(*is_right))).powi(2);
        (!known.is_empty()).then(|| Self {
            bins: bins.collect(),
            brier: known.iter().map(square).sum::<f64>() / known.len() as f64,
            unknown: (named.count() - known.len()) as u64,
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

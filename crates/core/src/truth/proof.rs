//! What remedies brought, against what the verdicts had predicted.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::score::Tally;
use crate::ceilings::{Cause, Verdict};
use crate::remedy::Remedy;

/// What came of a scenario's remedy.
#[derive(Debug, Clone, PartialEq)]
pub enum Remedied {
    /// It promised a rate, and the scenario was run again with it.
    Tried(Proof),
    /// There was nothing to prove.
    Untried(Untried),
}

/// A scenario that was run again with its verdict's remedy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// The scenario's number.
    pub number: u32,
    /// What the verdict blamed.
    pub cause: Cause,
    /// The remedy that was done.
    pub remedy: Remedy,
    /// What it was to bring, payload bits/s.
    pub predicted_bps: f64,
    /// What would hold the run back then.
    pub next_cause: Option<Cause>,
    /// What it brought, payload bits/s; absent if the run with it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_bps: Option<f64>,
    /// Why the run with it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Whether that is what was predicted: within 15 % where the cause is exact, within 30 % where
    /// it is modelled. A run that failed is not.
    pub held: bool,
}

/// A remedy that was not run.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Untried {
    /// The scenario's number.
    pub number: u32,
    /// What the verdict blamed; absent without one.
    pub cause: Option<Cause>,
    /// The remedy, if there is one.
    pub remedy: Option<Remedy>,
    /// What it was to bring, payload bits/s, if that was said.
    pub predicted_bps: Option<f64>,
    /// Why it was not run.
    pub why: UntriedReason,
}

/// Why a remedy was not run.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum UntriedReason {
    /// The first run failed, or has no verdict.
    NoVerdict,
    /// The verdict does not say what its remedy brings.
    NothingPredicted,
    /// A lab cannot do what the remedy says: it belongs to the whole machine or to an application.
    NotInALab,
}

/// Remedies over all scenarios.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RemedyScore {
    /// Those of exact causes that brought within 15 % what was predicted, of all that were run.
    pub exact: Tally,
    /// Those of modelled causes that brought within 30 % what was predicted, of all that were run.
    pub modelled: Tally,
    /// Share of each that is the goal, percent.
    pub goal_percent: f64,
    /// Runs with a remedy that failed, which count as not as predicted.
    pub failed: u64,
    /// Remedies that were not run, by the reason.
    pub untried: BTreeMap<UntriedReason, u64>,
}

impl Proof {
    /// A verdict's prediction, and what its remedy brought, payload bits/s, or why the run with it
    /// failed; `None` where nothing was predicted, or there is no remedy.
    pub fn new(number: u32, verdict: &Verdict, measured: Result<f64, String>) -> Option<Self> {
        let predicted_bps = verdict.predicted_bps?;
        let (measured_bps, failure) = match measured {
            Ok(bps) => (Some(bps), None),
            Err(reason) => (None, Some(reason)),
        };
        let mut proof = Self {
            number,
            cause: verdict.cause,
            remedy: verdict.remedy.clone()?,
            predicted_bps,
            next_cause: verdict.next_cause,
            held: false,
            measured_bps,
            failure,
        };
        let tolerance = if proof.is_exact() { EXACT } else { MODELLED };
        let within = |measured: f64| (measured / predicted_bps - 1.0).abs() <= tolerance;
        proof.held = measured_bps.is_some_and(within);
        Some(proof)
    }

    /// Of a cause whose ceiling follows from a figure that somebody set or the kernel tells.
    pub fn is_exact(&self) -> bool {
        matches!(
            self.cause,
            Cause::ReceiveWindow | Cause::SendBuffer | Cause::Pacing
        )
    }
}

impl Untried {
    /// Of the scenario of that number, with the verdict if there is one.
    pub fn new(number: u32, verdict: Option<&Verdict>, why: UntriedReason) -> Self {
        Self {
            number,
            cause: verdict.map(|verdict| verdict.cause),
            remedy: verdict.and_then(|verdict| verdict.remedy.clone()),
            predicted_bps: verdict.and_then(|verdict| verdict.predicted_bps),
            why,
        }
    }
}

impl RemedyScore {
    /// Counts; `None` where no remedy was looked at.
    pub(super) fn new(proofs: &[Proof], untried: &[Untried]) -> Option<Self> {
        let held = |of_exact: bool| {
            let own = proofs.iter().filter(|proof| proof.is_exact() == of_exact);
            tally(&own.collect::<Vec<_>>())
        };
        let mut reasons = BTreeMap::new();
        for one in untried {
            *reasons.entry(one.why).or_default() += 1;
        }
        let is_any = !proofs.is_empty() || !untried.is_empty();
        is_any.then(|| Self {
            exact: held(true),
            modelled: held(false),
            goal_percent: GOAL,
            failed: proofs
                .iter()
                .filter(|proof| proof.failure.is_some())
                .count() as u64,
            untried: reasons,
        })
    }
}

fn tally(proofs: &[&Proof]) -> Tally {
    let right = proofs.iter().filter(|proof| proof.held).count();
    Tally::of_counts(right as u64, proofs.len() as u64)
}

/// Shares of the prediction by which it may be missed, to both sides.
const EXACT: f64 = 0.15;
const MODELLED: f64 = 0.30;
/// Percent of the remedies that are to bring what was predicted.
const GOAL: f64 = 90.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remedy::RunOption;

    fn verdict(cause: Cause) -> Verdict {
        Verdict {
            cause,
            share_of_ceiling: Some(1.0),
            evidence: Vec::new(),
            remedy: Some(Remedy {
                command: "linerate stream pit".to_owned(),
                ..Remedy::without(RunOption::Pacing)
            }),
            predicted_bps: Some(100e6),
            next_cause: Some(Cause::PathRate),
            ..Verdict::default()
        }
    }

    fn proof(cause: Cause, measured_bps: f64) -> Proof {
        Proof::new(7, &verdict(cause), Ok(measured_bps)).expect("something was predicted")
    }

    #[test]
    fn an_exact_cause_has_the_narrower_tolerance() {
        assert!(proof(Cause::ReceiveWindow, 86e6).held);
        assert!(!proof(Cause::ReceiveWindow, 80e6).held);
        assert!(proof(Cause::Congestion, 80e6).held);
        assert!(!proof(Cause::Congestion, 140e6).held);
    }

    #[test]
    fn a_run_that_failed_is_not_as_predicted_and_says_why() {
        let failed = Proof::new(8, &verdict(Cause::Pacing), Err("peer lost".to_owned()));
        let proofs = [proof(Cause::Pacing, 99e6), failed.expect("a prediction")];
        let score = RemedyScore::new(&proofs, &[]).unwrap();
        assert_eq!((score.exact.right, score.exact.trials), (1, 2));
        assert_eq!(score.failed, 1);
    }

    #[test]
    fn exact_and_modelled_causes_are_counted_apart() {
        let proofs = [
            proof(Cause::ReceiveWindow, 99e6),
            proof(Cause::Congestion, 10e6),
        ];
        let score = RemedyScore::new(&proofs, &[]).unwrap();
        assert_eq!((score.exact.right, score.exact.trials), (1, 1));
        assert_eq!((score.modelled.right, score.modelled.trials), (0, 1));
    }

    #[test]
    fn what_was_not_run_is_counted_by_its_reason() {
        let all = [
            Untried::new(1, None, UntriedReason::NoVerdict),
            Untried::new(
                2,
                Some(&verdict(Cause::Policer)),
                UntriedReason::NothingPredicted,
            ),
            Untried::new(3, Some(&verdict(Cause::CpuSend)), UntriedReason::NotInALab),
            Untried::new(4, Some(&verdict(Cause::CpuSend)), UntriedReason::NotInALab),
        ];
        let score = RemedyScore::new(&[], &all).expect("there are some");
        let counted: Vec<u64> = score.untried.into_values().collect();
        assert_eq!(counted, [1, 1, 2]);
        assert_eq!(RemedyScore::new(&[], &[]), None);
    }
}

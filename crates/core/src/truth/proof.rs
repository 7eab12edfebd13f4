//! The effect of remedies, compared with the predictions of the verdicts.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::score::Tally;
use crate::ceilings::{Cause, Verdict};
use crate::remedy::Remedy;

/// The outcome of a scenario's remedy.
#[derive(Debug, Clone, PartialEq)]
pub enum Remedied {
    /// It promised a rate, and the scenario was run again with it.
    Tried(Proof),
    /// There was no prediction to test.
    Untried(Untried),
}

/// A scenario that was run again with its verdict's remedy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// The scenario's number.
    pub number: u32,
    /// The cause that the verdict named.
    pub cause: Cause,
    /// The remedy that was applied.
    pub remedy: Remedy,
    /// The predicted rate, payload bits/s.
    pub predicted_bps: f64,
    /// The predicted next cause.
    pub next_cause: Option<Cause>,
    /// The measured rate, payload bits/s; absent if the run with the remedy failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_bps: Option<f64>,
    /// Why the run with it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Whether the prediction held: within 15 % if the cause is exact, within 30 % if it is
    /// modelled. It did not if the run failed.
    pub held: bool,
}

/// A remedy that was not run.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Untried {
    /// The scenario's number.
    pub number: u32,
    /// The cause that the verdict named; absent without a verdict.
    pub cause: Option<Cause>,
    /// The remedy, if there is one.
    pub remedy: Option<Remedy>,
    /// The predicted rate, payload bits/s, if there was a prediction.
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
    /// The verdict predicts no rate.
    NothingPredicted,
    /// A lab cannot do what the remedy says: it belongs to the whole machine or to an application.
    NotInALab,
}

/// Remedies over all scenarios.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RemedyScore {
    /// Of the remedies of exact causes that were run, those whose prediction held within 15 %.
    pub exact: Tally,
    /// Of the remedies of modelled causes that were run, those whose prediction held within 30 %.
    pub modelled: Tally,
    /// The goal for both, percent.
    pub goal_percent: f64,
    /// Failed runs with a remedy; their predictions did not hold.
    pub failed: u64,
    /// Remedies that were not run, by the reason.
    pub untried: BTreeMap<UntriedReason, u64>,
}

impl Proof {
    /// Compares a verdict's prediction with the rate that its remedy brought, payload bits/s, or
    /// with the failure of the run. `None` without a prediction or a remedy.
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

    /// Whether the ceiling of the cause follows from a figure that was set or that the kernel
    /// tells.
    pub fn is_exact(&self) -> bool {
        matches!(
            self.cause,
            Cause::ReceiveWindow | Cause::SendBuffer | Cause::Pacing
        )
    }
}

impl Untried {
    /// The remedy of a scenario that was not run, with its verdict if there is one.
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
    /// Counts; `None` if there were no remedies.
    pub(super) fn new(proofs: &[Proof], untried: &[Untried]) -> Option<Self> {
        let held = |of_exact: bool| {
            let own = proofs.iter().filter(|proof| proof.is_exact() == of_exact);
            let right = own.clone().filter(|proof| proof.held).count();
            Tally::of_counts(right as u64, own.count() as u64)
        };
        let mut reasons = BTreeMap::new();
        for one in untried {
            *reasons.entry(one.why).or_default() += 1;
        }
        let failed = proofs.iter().filter(|proof| proof.failure.is_some());
        let is_any = !proofs.is_empty() || !untried.is_empty();
        is_any.then(|| Self {
            exact: held(true),
            modelled: held(false),
            goal_percent: GOAL,
            failed: failed.count() as u64,
            untried: reasons,
        })
    }
}

/// Largest error of a prediction, as a share of it.
const EXACT: f64 = 0.15;
const MODELLED: f64 = 0.30;
/// The goal: the share of predictions that hold, percent.
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

//! The score of a truth test: how often verdicts named the cause, and how sure they were.

use std::collections::BTreeMap;

use linerate_core::ceilings::Cause;
use linerate_core::record::ProofLevel;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::remedy::{Proof, Remedied, RemedyScore, Untried};
use crate::trial::{Judgement, Tally, Trial};

/// Name and version of the document.
pub(crate) const TRUTH_SCHEMA: &str = "linerate.truth/1";

/// The results of a family.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FamilyScore {
    /// Right verdicts of the scenarios that could be built here.
    pub(crate) tally: Tally,
    /// Verdicts that name no cause.
    pub(crate) unexplained: u64,
    /// Verdicts that name a wrong cause with a confidence of 80 % or more.
    pub(crate) confidently_wrong: u64,
    /// Scenarios that could not be built here; they are in no other count.
    pub(crate) left_out: u64,
    /// Right verdicts of those that are proved.
    #[serde(default)]
    pub(crate) proved: Tally,
    /// Right verdicts of those that are likely.
    #[serde(default)]
    pub(crate) likely: Tally,
}

/// The outcome of a truth test.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Score {
    /// [`TRUTH_SCHEMA`].
    pub(crate) schema: String,
    /// Seed of the scenarios.
    pub(crate) seed: u64,
    /// All scenarios; for other programs' traffic the verdicts of the sender's end.
    pub(crate) all: Tally,
    /// Right verdicts of those that are proved.
    #[serde(default)]
    pub(crate) proved: Tally,
    /// Right verdicts of those that are likely.
    #[serde(default)]
    pub(crate) likely: Tally,
    /// Scores of the families, by their names.
    #[serde(default)]
    pub(crate) families: BTreeMap<String, FamilyScore>,
    /// Scenarios in which the lab makes nothing but delay.
    #[serde(default)]
    pub(crate) kernels_own: u64,
    /// Right verdicts of each cause.
    pub(crate) causes: BTreeMap<Cause, Tally>,
    /// Scenarios at a border.
    pub(crate) borders: Tally,
    /// Scenarios that could not be run.
    pub(crate) failed: u64,
    /// Confidence of the verdicts against the share that is right; absent if none has a confidence.
    pub(crate) reliability: Option<Reliability>,
    /// Number of verdicts, by cause and verdict.
    pub(crate) matrix: BTreeMap<Cause, BTreeMap<Cause, u64>>,
    /// Every scenario, in the order of their numbers.
    pub(crate) trials: Vec<Trial>,
    /// Scenarios that were run again with their remedies, in the same order; absent if there are
    /// none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) proofs: Vec<Proof>,
    /// Scenarios that were not run again, in the same order, and why; absent if remedies were not
    /// asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) untried_remedies: Vec<Untried>,
    /// The results of all remedies; absent if they were not asked for.
    pub(crate) remedies: Option<RemedyScore>,
}

/// Confidence of verdicts against the share of them that is right.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Reliability {
    /// Verdicts by their confidence, the least sure first; empty bins are left out.
    pub(crate) bins: Vec<Bin>,
    /// Brier score: the mean squared difference of the confidence and the outcome, right (1) or
    /// wrong (0). 0 is best; 0.25 is that of a coin with a confidence of 50 %.
    pub(crate) brier: f64,
    /// Verdicts without a confidence.
    pub(crate) unknown: u64,
}

/// Verdicts of about the same confidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Bin {
    /// Least confidence, inclusive.
    pub(crate) from: f64,
    /// Largest confidence, exclusive but for 1.
    pub(crate) to: f64,
    /// Their mean confidence.
    pub(crate) confidence: f64,
    /// The share of them that is right, with its interval.
    pub(crate) tally: Tally,
}

impl FamilyScore {
    fn new<'a>(trials: impl Iterator<Item = &'a Trial> + Clone) -> Self {
        let count = |is: fn(&Trial) -> bool| trials.clone().filter(|t| is(t)).count() as u64;
        Self {
            tally: Tally::new(trials.clone()),
            unexplained: count(|trial| trial.verdict() == Some(Cause::Unexplained)),
            confidently_wrong: count(Trial::is_confidently_wrong),
            left_out: count(|trial| trial.judgement == Judgement::LeftOut),
            proved: of_level(trials.clone(), ProofLevel::Proved),
            likely: of_level(trials.clone(), ProofLevel::Likely),
        }
    }
}

fn of_level<'a>(trials: impl Iterator<Item = &'a Trial>, level: ProofLevel) -> Tally {
    Tally::new(trials.filter(|trial| trial.proof == Some(level)))
}

impl Score {
    /// Counts the trials. `remedied` has an entry for each scenario, or is empty if remedies were
    /// not asked for.
    pub(crate) fn new(seed: u64, mut trials: Vec<Trial>, remedied: Vec<Remedied>) -> Self {
        trials.sort_by_key(|trial| trial.number);
        let (mut proofs, mut untried) = (Vec::new(), Vec::new());
        for one in remedied {
            match one {
                Remedied::Tried(proof) => proofs.push(proof),
                Remedied::Untried(one) => untried.push(one),
            }
        }
        proofs.sort_by_key(|proof| proof.number);
        untried.sort_by_key(|one| one.number);
        let mut matrix: BTreeMap<Cause, BTreeMap<Cause, u64>> = BTreeMap::new();
        let (mut causes, mut families) = (BTreeMap::new(), BTreeMap::new());
        let was_run = |trial: &&Trial| trial.judgement != Judgement::LeftOut && trial.is_of_cause();
        for trial in &trials {
            let family = trials.iter().filter(|other| other.family == trial.family);
            (families.entry(trial.family.clone())).or_insert_with(|| FamilyScore::new(family));
        }
        for trial in trials.iter().filter(was_run) {
            let is_own = |other: &&Trial| other.is_of_cause() && other.cause == trial.cause;
            let own = || Tally::new(trials.iter().filter(is_own));
            causes.entry(trial.cause).or_insert_with(own);
            if let Some(verdict) = trial.verdict() {
                let verdicts = matrix.entry(trial.cause).or_default();
                *verdicts.entry(verdict).or_default() += 1;
            }
        }
        let of_cause = trials.iter().filter(|trial| trial.is_of_cause());
        let failed = of_cause.clone().filter(|trial| trial.judgement == Judgement::Failed);
        let kernels_own = trials.iter().filter(|trial| was_run(trial) && trial.is_kernels_own);
        Self {
            schema: TRUTH_SCHEMA.to_owned(),
            seed,
            all: Tally::new(of_cause.clone()),
            proved: of_level(of_cause.clone(), ProofLevel::Proved),
            likely: of_level(of_cause.clone(), ProofLevel::Likely),
            families,
            kernels_own: kernels_own.count() as u64,
            causes,
            borders: Tally::new(trials.iter().filter(|trial| trial.is_border)),
            failed: failed.count() as u64,
            reliability: Reliability::new(&trials),
            matrix,
            trials,
            remedies: RemedyScore::new(&proofs, &untried),
            proofs,
            untried_remedies: untried,
        }
    }
}

impl Reliability {
    /// Compares all verdicts that name a cause; `None` if none has a confidence.
    fn new(trials: &[Trial]) -> Option<Self> {
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

/// Edges of the bins. Below one half no cause is named.
const EDGES: [f64; 7] = [0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use linerate_report::document::described;
    use linerate_report::json;
    use schemars::schema_for;

    use super::*;
    use crate::scenario::{SINGLE_LIMIT, Scenario, draw, families_named};
    use crate::trial::Answer;

    #[test]
    fn the_checked_in_schema_is_that_of_the_type() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema.json");
        let generated = json::document(&described(schema_for!(Score)));
        if std::env::var_os("UPDATE_SCHEMAS").is_some() {
            fs::write(&path, &generated).unwrap();
        }
        let checked_in = fs::read_to_string(&path).unwrap();
        assert!(checked_in == generated, "UPDATE_SCHEMAS=1 cargo test -p linerate-truth");
    }

    fn drawn(seed: u64, count: u32) -> Vec<Scenario> {
        draw(seed, count, &families_named(SINGLE_LIMIT).unwrap())
    }

    #[test]
    fn at_a_border_the_rival_and_unexplained_are_right_and_elsewhere_wrong() {
        for scenario in drawn(1, 600) {
            assert_eq!(scenario.judge(scenario.cause), Judgement::Right);
            let expected = if scenario.is_border { Judgement::Right } else { Judgement::Wrong };
            assert_eq!(scenario.judge(Cause::Unexplained), expected);
            assert_eq!(scenario.judge(scenario.rivals[0].0), expected);
            let last = scenario.rivals.last().unwrap().0;
            assert_eq!(scenario.judge(last), Judgement::Wrong);
        }
    }

    #[test]
    fn what_is_as_true_is_right_and_what_was_left_out_is_in_no_tally() {
        let scenarios = draw(4, 4, &families_named("full_speed").unwrap());
        assert_eq!(scenarios[0].judge(Cause::CpuReceive), Judgement::Right);
        assert_eq!(scenarios[0].judge(Cause::PathRate), Judgement::Wrong);
        let reason = "no such queue".to_owned();
        let answer = Answer::LeftOut { reason };
        let trials = vec![
            Trial::new(&scenarios[0], answer, Vec::new()),
            answered(&scenarios[1], Cause::PathRate, Some(0.9)),
            answered(&scenarios[2], Cause::CpuSend, Some(0.7)),
            answered(&scenarios[3], Cause::Unexplained, None),
        ];
        let score = Score::new(4, trials, Vec::new());
        let family = score.families["full_speed"];
        assert_eq!((family.tally.right, family.tally.trials), (1, 3));
        let counts = (family.left_out, family.unexplained, family.confidently_wrong);
        assert_eq!(counts, (1, 1, 1));
        let sure = score.reliability.unwrap();
        assert!((sure.brier - (0.81 + 0.09) / 2.0).abs() < 1e-9);
        let bins: Vec<_> = sure.bins.iter().map(|bin| (bin.from, bin.tally.right)).collect();
        assert_eq!(bins, [(0.7, 1), (0.9, 0)]);
    }

    fn answered(scenario: &Scenario, cause: Cause, confidence: Option<f64>) -> Trial {
        let answer = Answer::Verdict { cause, throughput_bps: 1e9, confidence };
        Trial::new(scenario, answer, Vec::new())
    }

    fn trial(scenario: &Scenario, verdict: Option<Cause>) -> Trial {
        let answer = match verdict {
            Some(cause) => Answer::Verdict {
                cause,
                throughput_bps: scenario.limit_bps.unwrap(),
                confidence: None,
            },
            None => Answer::Failed { reason: "no namespaces".to_owned() },
        };
        Trial::new(scenario, answer, Vec::new())
    }

    #[test]
    fn a_failed_trial_is_not_right_and_is_counted() {
        let scenarios = drawn(3, 12);
        let mut trials: Vec<Trial> = scenarios.iter().map(|s| trial(s, Some(s.cause))).collect();
        trials[0] = trial(&scenarios[0], None);
        trials[1] = trial(&scenarios[1], Some(Cause::QosClass));
        let score = Score::new(3, trials, Vec::new());
        assert_eq!((score.all.right, score.all.trials, score.failed), (10, 12, 1));
        assert_eq!(score.causes[&scenarios[0].cause].right, 0);
        assert_eq!(score.matrix.values().flat_map(|row| row.values()).sum::<u64>(), 11);
        let json = serde_json::to_string(&score).unwrap();
        let again: Score = serde_json::from_str(&json).unwrap();
        assert_eq!(again, score);
    }
}

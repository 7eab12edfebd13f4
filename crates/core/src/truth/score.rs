//! How often the verdict named the cause.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::proof::{Proof, Remedied, RemedyScore, Untried};
use super::scenario::Scenario;
use crate::ceilings::Cause;
use crate::stats::{Proportion, wilson};

/// Name and version of the document.
pub const TRUTH_SCHEMA: &str = "linerate.truth/1";

/// What came of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It ran.
    Verdict {
        /// What the record was explained by.
        cause: Cause,
        /// Payload bits/s measured.
        throughput_bps: f64,
    },
    /// It could not be run.
    Failed {
        /// Why.
        reason: String,
    },
}

/// Whether an answer is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// The verdict names the cause, or at a border its rival or none.
    Right,
    /// It names another.
    Wrong,
    /// There is no verdict. Not counted as right.
    Failed,
}

/// One scenario and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// The scenario's number.
    pub number: u32,
    /// Its cause by construction.
    pub cause: Cause,
    /// Another limit is within 10 %.
    pub is_border: bool,
    /// The limit by construction, payload bits/s.
    pub limit_bps: f64,
    /// The scenario in one line.
    pub describe: String,
    /// What came of it.
    pub answer: Answer,
    /// What that is worth.
    pub judgement: Judgement,
    /// What spoiled the run, in the record's words.
    pub caveats: Vec<String>,
}

/// Right ones of some scenarios.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tally {
    /// Verdicts that were right.
    pub right: u64,
    /// Scenarios, those that failed included.
    pub trials: u64,
    /// Their share with its 95 % interval (Wilson); absent without scenarios.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Proportion>,
}

/// The outcome of a truth test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Score {
    /// [`TRUTH_SCHEMA`].
    pub schema: String,
    /// Seed of the scenarios.
    pub seed: u64,
    /// Over all.
    pub all: Tally,
    /// By cause.
    pub causes: BTreeMap<Cause, Tally>,
    /// Borders alone.
    pub borders: Tally,
    /// Scenarios that could not be run.
    pub failed: u64,
    /// How often each cause was given each verdict.
    pub matrix: BTreeMap<Cause, BTreeMap<Cause, u64>>,
    /// Every scenario, in the order of their numbers.
    pub trials: Vec<Trial>,
    /// Scenarios that were run again with their remedies, in the same order; absent where none was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proofs: Vec<Proof>,
    /// Scenarios that were not run again, in the same order, and why; absent where remedies were
    /// not asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untried_remedies: Vec<Untried>,
    /// What remedies brought, over all of them; absent where they were not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedies: Option<RemedyScore>,
}

impl Trial {
    /// Judges an answer.
    pub fn new(scenario: &Scenario, answer: Answer, caveats: Vec<String>) -> Self {
        let judgement = match &answer {
            Answer::Verdict { cause, .. } => scenario.judge(*cause),
            Answer::Failed { .. } => Judgement::Failed,
        };
        Self {
            number: scenario.number,
            cause: scenario.cause,
            is_border: scenario.is_border,
            limit_bps: scenario.limit_bps,
            describe: scenario.describe.clone(),
            answer,
            judgement,
            caveats,
        }
    }

    /// The verdict, if there is one.
    pub fn verdict(&self) -> Option<Cause> {
        match self.answer {
            Answer::Verdict { cause, .. } => Some(cause),
            Answer::Failed { .. } => None,
        }
    }
}

impl Tally {
    fn new<'a>(trials: impl Iterator<Item = &'a Trial>) -> Self {
        let (mut right, mut all) = (0, 0);
        for trial in trials {
            all += 1;
            right += u64::from(trial.judgement == Judgement::Right);
        }
        Self::of_counts(right, all)
    }

    /// So many right ones of so many.
    pub fn of_counts(right: u64, trials: u64) -> Self {
        Self {
            right,
            trials,
            share: wilson(right, trials).ok(),
        }
    }
}

impl Score {
    /// Counts; `remedied` is empty where remedies were not asked for, and else has one of each
    /// scenario.
    pub fn new(seed: u64, mut trials: Vec<Trial>, remedied: Vec<Remedied>) -> Self {
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
        let mut causes = BTreeMap::new();
        for trial in &trials {
            let own = trials.iter().filter(|other| other.cause == trial.cause);
            causes.entry(trial.cause).or_insert_with(|| Tally::new(own));
            if let Some(verdict) = trial.verdict() {
                *matrix
                    .entry(trial.cause)
                    .or_default()
                    .entry(verdict)
                    .or_default() += 1;
            }
        }
        Self {
            schema: TRUTH_SCHEMA.to_owned(),
            seed,
            all: Tally::new(trials.iter()),
            causes,
            borders: Tally::new(trials.iter().filter(|trial| trial.is_border)),
            failed: trials
                .iter()
                .filter(|trial| trial.judgement == Judgement::Failed)
                .count() as u64,
            matrix,
            trials,
            remedies: RemedyScore::new(&proofs, &untried),
            proofs,
            untried_remedies: untried,
        }
    }
}

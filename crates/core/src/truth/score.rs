//! Counts how often the verdict named the cause.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::proof::{Proof, Remedied, RemedyScore, Untried};
use super::reliability::Reliability;
use super::scenario::Scenario;
use super::strangers::SeenFrom;
use crate::ceilings::Cause;
use crate::record::Record;
use crate::stats::{Proportion, wilson};

/// Name and version of the document.
pub const TRUTH_SCHEMA: &str = "linerate.truth/1";

/// The outcome of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It ran.
    Verdict {
        /// The cause that the verdict names.
        cause: Cause,
        /// Payload bits/s measured.
        throughput_bps: f64,
        /// Confidence, 0 to 1, if the verdict has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        confidence: Option<f64>,
    },
    /// It could not be built here as it was drawn: the kernel has no such queue, a program is
    /// missing, or the host is too slow at this moment.
    LeftOut {
        /// Why.
        reason: String,
    },
    /// The run failed.
    Failed {
        /// Why.
        reason: String,
    },
}

/// Whether an answer is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// The verdict names the cause; at a border also its rival or no cause.
    Right,
    /// The verdict names another cause.
    Wrong,
    /// There is no verdict. Not counted as right.
    Failed,
    /// The scenario was not run, and is in no tally.
    LeftOut,
}

/// One scenario and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// The scenario's number.
    pub number: u32,
    /// Its family.
    #[serde(default = "old")]
    pub family: String,
    /// Where another program's traffic was seen; absent for linerate's own traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_from: Option<SeenFrom>,
    /// Its cause by construction; for packets, the verdict from the sender's socket.
    pub cause: Cause,
    /// Other verdicts that are right.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accepted: Vec<Cause>,
    /// The lab makes nothing but delay.
    #[serde(default)]
    pub is_kernels_own: bool,
    /// Another limit is within 10 %.
    pub is_border: bool,
    /// The limit by construction, payload bits/s; absent if nothing sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bps: Option<f64>,
    /// The scenario in one line.
    pub describe: String,
    /// Its outcome.
    pub answer: Answer,
    /// The judgement of the outcome.
    pub judgement: Judgement,
    /// The caveats of the record.
    pub caveats: Vec<String>,
}

/// The right verdicts of some scenarios.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tally {
    /// Verdicts that were right.
    pub right: u64,
    /// Scenarios, including those that failed.
    pub trials: u64,
    /// Share of right verdicts with its 95 % interval (Wilson); absent without scenarios.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Proportion>,
}

/// The results of a family.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FamilyScore {
    /// Right verdicts of the scenarios that could be built here.
    pub tally: Tally,
    /// Verdicts that name no cause.
    pub unexplained: u64,
    /// Verdicts that name a wrong cause with a confidence of 80 % or more.
    pub confidently_wrong: u64,
    /// Scenarios that could not be built here; they are in no other count.
    pub left_out: u64,
}

/// The outcome of a truth test.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Score {
    /// [`TRUTH_SCHEMA`].
    pub schema: String,
    /// Seed of the scenarios.
    pub seed: u64,
    /// All scenarios; for other programs' traffic the verdicts of the sender's end.
    pub all: Tally,
    /// By family.
    #[serde(default)]
    pub families: BTreeMap<String, FamilyScore>,
    /// Scenarios in which the lab makes nothing but delay.
    #[serde(default)]
    pub kernels_own: u64,
    /// By cause.
    pub causes: BTreeMap<Cause, Tally>,
    /// Scenarios at a border.
    pub borders: Tally,
    /// Scenarios that could not be run.
    pub failed: u64,
    /// Confidence of the verdicts against the share that is right; absent if none has a confidence.
    pub reliability: Option<Reliability>,
    /// Number of verdicts, by cause and verdict.
    pub matrix: BTreeMap<Cause, BTreeMap<Cause, u64>>,
    /// Every scenario, in the order of their numbers.
    pub trials: Vec<Trial>,
    /// Scenarios that were run again with their remedies, in the same order; absent if there are
    /// none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proofs: Vec<Proof>,
    /// Scenarios that were not run again, in the same order, and why; absent if remedies were not
    /// asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untried_remedies: Vec<Untried>,
    /// The results of all remedies; absent if they were not asked for.
    pub remedies: Option<RemedyScore>,
}

impl Trial {
    /// Judges an answer.
    pub fn new(scenario: &Scenario, answer: Answer, caveats: Vec<String>) -> Self {
        let judgement = match &answer {
            Answer::Verdict { cause, .. } => scenario.judge(*cause),
            Answer::Failed { .. } => Judgement::Failed,
            Answer::LeftOut { .. } => Judgement::LeftOut,
        };
        Self {
            number: scenario.number,
            family: scenario.family.clone(),
            seen_from: None,
            cause: scenario.cause,
            accepted: scenario.accepted.clone(),
            is_kernels_own: scenario.is_kernels_own(),
            is_border: scenario.is_border,
            limit_bps: scenario.limit_bps,
            describe: scenario.describe.clone(),
            answer,
            judgement,
            caveats,
        }
    }

    /// Judges the verdict of a run that came to its end.
    pub fn from_record(scenario: &Scenario, record: &Record) -> Self {
        let caveats = record.caveats.iter().map(|caveat| caveat.message.clone());
        let answer = match record.verdict() {
            Some(verdict) => Answer::Verdict {
                cause: verdict.cause,
                throughput_bps: record.throughput_bps().unwrap_or(0.0),
                confidence: verdict.confidence,
            },
            None => Answer::Failed {
                reason: "the record has no verdict".to_owned(),
            },
        };
        Self::new(scenario, answer, caveats.collect())
    }

    /// The verdict, if there is one.
    pub fn verdict(&self) -> Option<Cause> {
        match self.answer {
            Answer::Verdict { cause, .. } => Some(cause),
            Answer::Failed { .. } | Answer::LeftOut { .. } => None,
        }
    }

    /// Confidence of the verdict, if it has one.
    pub fn confidence(&self) -> Option<f64> {
        match self.answer {
            Answer::Verdict { confidence, .. } => confidence,
            Answer::Failed { .. } | Answer::LeftOut { .. } => None,
        }
    }

    /// Whether it is counted by cause: of another program's traffic only the sender's end is.
    fn is_of_cause(&self) -> bool {
        self.seen_from.is_none_or(|from| from == SeenFrom::Sender)
    }

    fn is_confidently_wrong(&self) -> bool {
        let is_named = self.verdict() != Some(Cause::Unexplained);
        let is_wrong = self.judgement == Judgement::Wrong && is_named;
        is_wrong && self.confidence().is_some_and(|sure| sure >= SURE)
    }
}

impl FamilyScore {
    fn new<'a>(trials: impl Iterator<Item = &'a Trial> + Clone) -> Self {
        let count = |is: fn(&Trial) -> bool| trials.clone().filter(|t| is(t)).count() as u64;
        Self {
            tally: Tally::new(trials.clone()),
            unexplained: count(|trial| trial.verdict() == Some(Cause::Unexplained)),
            confidently_wrong: count(Trial::is_confidently_wrong),
            left_out: count(|trial| trial.judgement == Judgement::LeftOut),
        }
    }
}

impl Tally {
    fn new<'a>(trials: impl Iterator<Item = &'a Trial>) -> Self {
        let (mut right, mut all) = (0, 0);
        for trial in trials.filter(|trial| trial.judgement != Judgement::LeftOut) {
            all += 1;
            right += u64::from(trial.judgement == Judgement::Right);
        }
        Self::of_counts(right, all)
    }

    /// A tally of so many right verdicts in so many trials.
    pub fn of_counts(right: u64, trials: u64) -> Self {
        Self {
            right,
            trials,
            share: wilson(right, trials).ok(),
        }
    }
}

impl Score {
    /// Counts the trials. `remedied` has an entry for each scenario, or is empty if remedies were
    /// not asked for.
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
        let (mut causes, mut families) = (BTreeMap::new(), BTreeMap::new());
        let was_run = |trial: &&Trial| trial.judgement != Judgement::LeftOut && trial.is_of_cause();
        for trial in &trials {
            let family = trials.iter().filter(|other| other.family == trial.family);
            (families.entry(trial.family.clone())).or_insert_with(|| FamilyScore::new(family));
        }
        for trial in trials.iter().filter(was_run) {
            let own = trials.iter().filter(|other| other.is_of_cause());
            let own = own.filter(|other| other.cause == trial.cause);
            causes.entry(trial.cause).or_insert_with(|| Tally::new(own));
            if let Some(verdict) = trial.verdict() {
                let verdicts = matrix.entry(trial.cause).or_default();
                *verdicts.entry(verdict).or_default() += 1;
            }
        }
        let of_cause = trials.iter().filter(|trial| trial.is_of_cause());
        let failed = of_cause
            .clone()
            .filter(|trial| trial.judgement == Judgement::Failed);
        let kernels_own = trials.iter().filter(was_run);
        let kernels_own = kernels_own.filter(|trial| trial.is_kernels_own);
        Self {
            schema: TRUTH_SCHEMA.to_owned(),
            seed,
            all: Tally::new(of_cause.clone()),
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

/// Confidence from which on a wrong verdict misleads.
const SURE: f64 = 0.8;

/// The family in documents from before there were families.
fn old() -> String {
    super::OLD.to_owned()
}

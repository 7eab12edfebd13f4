//! One scenario's trial: its answer, and whether that is right.

use linerate_core::ceilings::Cause;
use linerate_core::connection::{Connection, ConnectionsDocument};
use linerate_core::record::{ProofLevel, Record};
use linerate_core::stats::{Proportion, wilson};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::scenario::{BORDER, SINGLE_LIMIT, Scenario};

/// The outcome of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The verdict of a run.
    Verdict {
        /// The cause that the verdict names.
        cause: Cause,
        /// Payload bits/s measured.
        throughput_bps: f64,
        /// Confidence, 0 to 1, if the verdict has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        confidence: Option<f64>,
    },
    /// Nothing, as the scenario could not be built here as it was drawn: the kernel has no such
    /// queue, a program is missing, or the host is too slow at this moment.
    LeftOut {
        /// Reason, for people.
        reason: String,
    },
    /// Nothing, as the run failed.
    Failed {
        /// Reason, for people.
        reason: String,
    },
}

/// Whether an answer is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Judgement {
    /// The verdict names the cause; at a border also its rival or no cause.
    Right,
    /// The verdict names another cause.
    Wrong,
    /// There is no verdict, which is not counted as right.
    Failed,
    /// The scenario was not run, and is in no tally.
    LeftOut,
}

/// The place where another program's traffic was seen.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SeenFrom {
    /// The sender's sockets.
    Sender,
    /// The receiver's sockets.
    Receiver,
    /// Packets captured at the sender.
    SentPackets,
    /// Packets captured at the receiver.
    ReceivedPackets,
}

/// One scenario and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Trial {
    /// The scenario's number.
    pub(crate) number: u32,
    /// The scenario's family.
    #[serde(default = "single_limit")]
    pub(crate) family: String,
    /// The place where another program's traffic was seen; absent for linerate's own traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seen_from: Option<SeenFrom>,
    /// The cause by construction; for packets, the verdict from the sender's socket.
    pub(crate) cause: Cause,
    /// Other verdicts that are right.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) accepted: Vec<Cause>,
    /// Whether the lab makes nothing but delay.
    #[serde(default)]
    pub(crate) is_kernels_own: bool,
    /// Whether another limit is within 10 %.
    pub(crate) is_border: bool,
    /// The limit by construction, payload bits/s; absent if nothing sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limit_bps: Option<f64>,
    /// The scenario in one line.
    pub(crate) describe: String,
    /// The outcome of its run.
    pub(crate) answer: Answer,
    /// The judgement of the outcome.
    pub(crate) judgement: Judgement,
    /// How sure the verdict is by changes; absent if none were made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) proof: Option<ProofLevel>,
    /// The caveats of the record.
    pub(crate) caveats: Vec<String>,
}

/// The right verdicts of some scenarios.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Tally {
    /// Verdicts that were right.
    pub(crate) right: u64,
    /// Scenarios, including those that failed.
    pub(crate) trials: u64,
    /// Share of right verdicts with its 95 % interval (Wilson); absent without scenarios.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) share: Option<Proportion>,
}

impl Trial {
    /// Judges an answer.
    pub(crate) fn new(scenario: &Scenario, answer: Answer, caveats: Vec<String>) -> Self {
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
            proof: None,
            caveats,
        }
    }

    /// Judges the verdict of a run that came to its end.
    pub(crate) fn from_record(scenario: &Scenario, record: &Record) -> Self {
        let caveats = record.caveats.iter().map(|caveat| caveat.message.clone());
        let answer = match record.verdict() {
            Some(verdict) => Answer::Verdict {
                cause: verdict.cause,
                throughput_bps: record.throughput_bps().unwrap_or(0.0),
                confidence: verdict.confidence,
            },
            None => Answer::Failed { reason: "the record has no verdict".to_owned() },
        };
        let trial = Self::new(scenario, answer, caveats.collect());
        let Some(proof) = record.verdict().and_then(|verdict| verdict.proof.as_ref()) else {
            return trial;
        };
        let mut causes = proof.causes.iter().map(|cause| scenario.judge(*cause));
        let is_right = causes.any(|judgement| judgement == Judgement::Right);
        let judgement = if is_right { Judgement::Right } else { trial.judgement };
        Self { judgement, proof: Some(proof.level), ..trial }
    }

    /// Judges the verdicts on another program's traffic, one trial for each document.
    ///
    /// From the sender's end the cause is to be named, unless it is the receiver's program or CPU,
    /// which that end cannot know. From the receiver's end `unexplained` is right, too. From
    /// packets the verdict is to be that of the sockets, or the true cause if the sockets had
    /// another one.
    pub(crate) fn from_observations(
        scenario: &Scenario,
        observed: &[(SeenFrom, ConnectionsDocument)],
    ) -> Vec<Self> {
        let seen = |from| {
            let document = observed.iter().find(|(at, _)| *at == from);
            document.and_then(|(_, document)| largest(document))
        };
        let verdict_from = |from| seen(from).and_then(|one| Some(one.verdict.as_ref()?.cause));
        let sockets = [SeenFrom::Sender, SeenFrom::Receiver].map(verdict_from);
        let trial = |(from, document): &(SeenFrom, ConnectionsDocument)| {
            let scenario = scenario.seen_from(*from, sockets)?;
            let answer = answer(largest(document));
            let caveats = document.caveats.iter().map(|one| one.message.clone());
            Some(Self { seen_from: Some(*from), ..Self::new(&scenario, answer, caveats.collect()) })
        };
        observed.iter().filter_map(trial).collect()
    }

    /// The verdict, if there is one.
    pub(crate) fn verdict(&self) -> Option<Cause> {
        match self.answer {
            Answer::Verdict { cause, .. } => Some(cause),
            Answer::Failed { .. } | Answer::LeftOut { .. } => None,
        }
    }

    /// Confidence of the verdict, if it has one.
    pub(crate) fn confidence(&self) -> Option<f64> {
        match self.answer {
            Answer::Verdict { confidence, .. } => confidence,
            Answer::Failed { .. } | Answer::LeftOut { .. } => None,
        }
    }

    /// Whether it is counted by cause: of another program's traffic only the sender's end is.
    pub(crate) fn is_of_cause(&self) -> bool {
        self.seen_from.is_none_or(|from| from == SeenFrom::Sender)
    }

    /// Whether a wrong cause is named with much confidence.
    pub(crate) fn is_confidently_wrong(&self) -> bool {
        let is_named = self.verdict() != Some(Cause::Unexplained);
        let is_wrong = self.judgement == Judgement::Wrong && is_named;
        is_wrong && self.confidence().is_some_and(|sure| sure >= SURE)
    }
}

impl Scenario {
    /// Judges a verdict: right are the cause and the accepted causes, and at a border also a rival
    /// within 10 % and `unexplained`.
    pub(crate) fn judge(&self, verdict: Cause) -> Judgement {
        let near = |(cause, bps): &(Cause, f64)| {
            (*cause == verdict || verdict == Cause::Unexplained)
                && *bps <= BORDER * self.limit_bps.unwrap_or(0.0)
        };
        let is_named = verdict == self.cause || self.accepted.contains(&verdict);
        if is_named || self.rivals.iter().any(near) { Judgement::Right } else { Judgement::Wrong }
    }

    /// The scenario with the verdicts that are right from a place. `sockets` are the verdicts
    /// from the sockets of both ends; without them packets are not judged.
    fn seen_from(&self, from: SeenFrom, sockets: [Option<Cause>; 2]) -> Option<Self> {
        let mut seen = self.clone();
        let of_receiver = [Cause::ApplicationReceive, Cause::CpuReceive].contains(&self.cause);
        match from {
            SeenFrom::Sender if of_receiver => seen.accepted.push(Cause::Unexplained),
            SeenFrom::Sender => {}
            SeenFrom::Receiver => seen.accepted.push(Cause::Unexplained),
            SeenFrom::SentPackets | SeenFrom::ReceivedPackets => {
                let [sender, receiver] = sockets;
                seen.cause = sender?;
                seen.accepted.extend(receiver);
                seen.accepted.retain(|cause| *cause != Cause::Unexplained);
                seen.accepted.push(self.cause);
                seen.accepted.extend(as_packets_have_it(seen.cause));
                seen.rivals.clear();
            }
        }
        if from != SeenFrom::Sender {
            seen.family = format!("{}_{}", self.family, from.name());
        }
        Some(seen)
    }
}

impl SeenFrom {
    /// Name in files and families.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
            Self::SentPackets => "sent_packets",
            Self::ReceivedPackets => "received_packets",
        }
    }
}

impl Tally {
    /// A tally of trials; those that were left out do not count.
    pub(crate) fn new<'a>(trials: impl Iterator<Item = &'a Trial>) -> Self {
        let (mut right, mut all) = (0, 0);
        for trial in trials.filter(|trial| trial.judgement != Judgement::LeftOut) {
            all += 1;
            right += u64::from(trial.judgement == Judgement::Right);
        }
        Self::of_counts(right, all)
    }

    /// A tally of so many right verdicts in so many trials.
    pub(crate) fn of_counts(right: u64, trials: u64) -> Self {
        Self { right, trials, share: wilson(right, trials).ok() }
    }
}

/// The connection with the most payload.
fn largest(document: &ConnectionsDocument) -> Option<&Connection> {
    document.connections.iter().max_by_key(|one| one.bytes())
}

/// The answer that a connection's verdict is.
fn answer(connection: Option<&Connection>) -> Answer {
    let verdict = connection.and_then(|one| Some((one, one.verdict.as_ref()?)));
    match verdict {
        Some((connection, verdict)) => Answer::Verdict {
            cause: verdict.cause,
            throughput_bps: connection.throughput_bps,
            confidence: verdict.confidence,
        },
        None => Answer::Failed { reason: "nothing was seen of it".to_owned() },
    }
}

/// The cause that packets cannot tell from this one: no packet shows whether a late program waits
/// or works.
fn as_packets_have_it(cause: Cause) -> Option<Cause> {
    match cause {
        Cause::CpuSend => Some(Cause::ApplicationSend),
        Cause::CpuReceive => Some(Cause::ApplicationReceive),
        Cause::QosClass => Some(Cause::PathRate),
        _ => None,
    }
}

/// Confidence from which on a wrong verdict misleads.
const SURE: f64 = 0.8;

/// The family of documents from before there were families.
fn single_limit() -> String {
    SINGLE_LIMIT.to_owned()
}

//! The conclusion as the record has it: the JSON contract.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::record::Cause;
use crate::units::End;

/// How sure a verdict is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProofLevel {
    /// The rate followed the cause, and every other cause was excluded by a change.
    Proved,
    /// The evidence is for it, and no change contradicts it.
    Likely,
    /// Neither; see what has been ruled out.
    Open,
}

/// One change and what it brought: an entry of `experiments`.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InterventionEntry {
    /// The change, such as `streams=2`.
    pub change: String,
    /// The end that it concerns; absent where it concerns both.
    pub end: Option<End>,
    /// Rate with the change over the rate without, from blocks of a plain and a changed run each.
    pub ratio: f64,
    /// Where the true ratio is, wrong in one of 500; absent of a single block.
    pub interval: Option<[f64; 2]>,
    /// Changed runs; each has a plain run beside it.
    pub runs: u32,
    /// The ratio that each cause predicts, without its tolerance. Causes that say nothing are
    /// missing.
    pub predicted: BTreeMap<Cause, f64>,
}

/// A cause that is not the limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuledOut {
    /// The cause.
    pub cause: Cause,
    /// The change whose result disagrees with it.
    pub by: String,
}

/// A change that was not made, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotMade {
    /// The change.
    pub change: String,
    /// The reason in words.
    pub why: String,
}

impl NotMade {
    pub(super) fn new(change: &str, why: &str) -> Self {
        Self { change: change.to_owned(), why: why.to_owned() }
    }
}

/// Why the runs prove nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProofDoubt {
    /// The plain runs went one way: the path or its traffic changed meanwhile.
    Drift,
    /// Equal runs scatter so much that the changes that were made tell nothing.
    Scatter,
}

/// What the changes showed of one direction.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProofFindings {
    /// How sure it is.
    pub proof: ProofLevel,
    /// The causes; two if both limits are near to each other, none if it is open.
    pub causes: Vec<Cause>,
    /// The causes that changes have ruled out.
    pub ruled_out: Vec<RuledOut>,
    /// Why the runs prove nothing, if that is the reason.
    pub doubt: Option<ProofDoubt>,
    /// The changes, in the order of the table.
    pub experiments: Vec<InterventionEntry>,
    /// The changes that would have told more, but were not possible.
    pub not_made: Vec<NotMade>,
    /// All runs, plain ones included.
    pub runs: u32,
}

//! What changes of one thing at a time have shown of a direction: how sure its verdict is, and why.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::Cause;
use crate::names::names;
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

names! {
    /// The word as pages print it.
    ProofLevel::word: Proved "proved", Likely "likely", Open "open";
}

/// What the changes have shown.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// How sure it is.
    #[serde(rename = "proof")]
    pub level: ProofLevel,
    /// The causes; two if both limits are near to each other, none if it is open.
    #[serde(default)]
    pub causes: Vec<Cause>,
    /// The causes that changes have ruled out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ruled_out: Vec<RuledOut>,
    /// Why the runs prove nothing, if that is the reason.
    pub doubt: Option<ProofDoubt>,
}

/// One change and what it brought.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeResult {
    /// The change, such as `streams=2`.
    pub change: String,
    /// The end that it concerns; absent where it concerns both.
    pub end: Option<End>,
    /// Rate with the change over the rate without, from a plain and a changed run beside each
    /// other.
    pub ratio: f64,
    /// Where the true ratio is, 95 %, by the scatter of all runs.
    pub interval: [f64; 2],
    /// Changed runs; each has a plain run beside it.
    pub runs: u32,
    /// The receive window that the sender saw over that of the plain runs, where the change is of
    /// it: an end may give less than was asked for, or more.
    pub window_ratio: Option<f64>,
    /// The ratio that each cause predicts, without its tolerance. Causes that say nothing are
    /// missing.
    pub predicted: BTreeMap<Cause, f64>,
    /// The cause whose limit it lifts as far as a test can; absent where it is no remedy.
    #[serde(default)]
    pub lifts: Option<Cause>,
    /// The cause that held the last changed run back, by its own evidence; absent where none was
    /// found.
    pub cause_then: Option<Cause>,
}

impl ChangeResult {
    /// How much the change tells of a cause: how far its prediction is from what others predict,
    /// as a logarithm. `None` if the cause predicts nothing.
    pub fn tells(&self, cause: Cause) -> Option<f64> {
        let own = self.predicted.get(&cause)?;
        let gaps = self.predicted.values().map(|other| (other / own).ln().abs());
        Some(gaps.fold(0.0, f64::max))
    }

    /// Whether the rate changes with it if this cause is the limit: by a tenth, more than what a
    /// link loses to the headers of smaller segments.
    pub fn follows(&self, cause: Cause) -> bool {
        self.predicted.get(&cause).is_some_and(|ratio| ratio.ln().abs() > 0.1)
    }
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

/// Why the runs prove nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProofDoubt {
    /// The plain runs went one way: the path or its traffic changed meanwhile.
    Drift,
    /// Equal runs scatter so much that the changes that were made tell nothing.
    Scatter,
}

//! The document of a comparison.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ComparedMetric, ComparedPair, Fault, OneSidedFault, Verdict3};
use crate::plan::Test;
use crate::record::{Caveat, Environment, Status};
use crate::treatment::Treatments;

/// Schema of [`Comparison`].
pub const COMPARISON_SCHEMA: &str = "linerate.comparison/1";

/// Treatment A against treatment B.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// [`COMPARISON_SCHEMA`].
    pub schema: String,
    /// Whether it ended by itself.
    pub status: Status,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// The endpoint as the user named it.
    pub host: String,
    /// Its address and port.
    pub peer: String,
    /// The answer on the first metric.
    pub verdict: Verdict3,
    /// By how much B's figure of the first metric differs from A's, percent of A's; absent without
    /// a pair that counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect_percent: Option<f64>,
    /// The interval of `effect_percent`, percent; its confidence is in `metrics`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_percent: Option<[f64; 2]>,
    /// Pairs that `effect_percent` is of: those up to the look that decided. All pairs are in
    /// `runs`.
    pub pairs: u32,
    /// What each metric amounts to, the first one first.
    pub metrics: Vec<ComparedMetric>,
    /// Faults that came under one treatment alone: outcomes, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub one_sided_faults: Vec<OneSidedFault>,
    /// The first treatment, with the controls that were added to it.
    pub a: Treatments,
    /// The second.
    pub b: Treatments,
    /// What the two hosts had in force under each treatment, as they read it back.
    #[serde(default)]
    pub read_back: ReadBack,
    /// What was run under both.
    pub plan: Test,
    /// Difference in percent below which the two are called equivalent; absent if none was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub margin_percent: Option<f64>,
    /// Pairs that count at most.
    pub max_pairs: u32,
    /// Faults declared before the first run.
    #[serde(default)]
    pub forbidden: Vec<Fault>,
    /// Every pair with its figures, in the order in which they ran, those that were excluded too.
    pub runs: Vec<ComparedPair>,
    /// How busy both hosts were before the first run.
    #[serde(default)]
    pub idle: IdleLoad,
    /// What was added or done that was not asked for.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What to keep in mind.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
    /// Both ends.
    pub environment: Environment,
    /// Seed of the order in the pairs and of every run.
    pub seed: u64,
}

/// Settings in force, in words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReadBack {
    /// Under A.
    pub a: Vec<String>,
    /// Under B.
    pub b: Vec<String>,
}

/// Share of all CPUs of a host that was busy while next to nothing was sent, percent (0–100).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IdleLoad {
    /// This host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cpu_percent: Option<f64>,
    /// The endpoint's host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_cpu_percent: Option<f64>,
}

//! The conclusion of a comparison.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The answer of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ComparisonVerdict {
    /// A and B differ. It may still be by less than the margin: see `equivalent`.
    Different,
    /// If they differ, then by less than the margin.
    Equivalent,
    /// Neither could be shown with so many pairs.
    Inconclusive,
}

impl ComparisonVerdict {
    /// As in the document: `DIFFERENT`, `EQUIVALENT` or `INCONCLUSIVE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Different => "DIFFERENT",
            Self::Equivalent => "EQUIVALENT",
            Self::Inconclusive => "INCONCLUSIVE",
        }
    }
}

impl fmt::Display for ComparisonVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What all metrics together say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Conclusion {
    /// DIFFERENT if one metric is, EQUIVALENT if all are, else INCONCLUSIVE. If A and B are the
    /// same, DIFFERENT comes up in at most 5 % of comparisons, however many metrics there are.
    pub verdict: ComparisonVerdict,
    /// Each metric, in the order of the log ratios.
    pub metrics: Vec<MetricConclusion>,
    /// Pairs that were entered.
    pub pairs: u32,
}

/// What one metric says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricConclusion {
    /// DIFFERENT wherever `different` is true, also where `equivalent` is: real, and small.
    pub verdict: ComparisonVerdict,
    /// Whether a difference was shown.
    pub different: bool,
    /// Whether a difference as large as the margin was ruled out.
    pub equivalent: bool,
    /// By how much B's figure differs from A's, in percent of A's (Hodges–Lehmann, of the log
    /// ratios). Where a difference stopped the comparison early it is overstated on average,
    /// because it stopped where the effect happened to look large.
    pub effect_percent: f64,
    /// The effects that the test behind the verdict does not refuse, in percent: without 0 if
    /// DIFFERENT, within the margin if EQUIVALENT. Where figures are exactly equal in many pairs, 0
    /// can be an end.
    pub interval_percent: [f64; 2],
    /// How often such an interval holds the effect at least, in percent, over all looks: 95 for one
    /// metric, 90 if EQUIVALENT (which are two tests of 5 %), nearer to 100 for one of several
    /// metrics, less with fewer than 6 pairs.
    pub confidence_percent: f64,
    /// The same for the look at which it stopped, taken by itself, in percent. That is what the
    /// interval was made for.
    pub look_confidence_percent: f64,
    /// Pairs up to the look that decided; all of them if none did.
    pub pairs: u32,
}

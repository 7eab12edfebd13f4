//! The document of a comparison.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use super::{
    ComparedMetric, ComparedPair, ComparisonVerdict, Fault, MAX_PAIRS, MetricConclusion,
    OneSidedFault,
};
use crate::plan::Test;
use crate::record::{Baseline, Caveat, Environment, Observed, Status, asked};
use crate::stats::median;
use crate::treatment::Treatments;

/// Schema of [`Comparison`].
pub const COMPARISON_SCHEMA: &str = "linerate.comparison/1";

/// A comparison of treatment A with treatment B.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// [`COMPARISON_SCHEMA`].
    pub schema: String,
    /// Whether the comparison was completed.
    pub status: Status,
    /// When it began, RFC 3339.
    #[serde(deserialize_with = "crate::units::deserialize_rfc3339")]
    pub started_at: String,
    /// The endpoint as the user named it.
    pub host: String,
    /// The endpoint's address and port.
    pub peer: String,
    /// The answer on the first metric.
    pub verdict: ComparisonVerdict,
    /// By how much B's figure of the first metric differs from A's, percent of A's; absent without
    /// a pair that counts.
    pub effect_percent: Option<f64>,
    /// The interval of `effect_percent`, percent; its confidence is in `metrics`.
    pub interval_percent: Option<[f64; 2]>,
    /// Pairs that `effect_percent` is of: those up to the look that decided. All pairs are in
    /// `runs`.
    pub pairs: u32,
    /// What would decide the first metric, where it is INCONCLUSIVE.
    pub would_decide: Option<WouldDecide>,
    /// The result of each metric, in the order asked for.
    pub metrics: Vec<ComparedMetric>,
    /// Faults that came under one treatment alone, which are outcomes too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub one_sided_faults: Vec<OneSidedFault>,
    /// The first treatment, with the controls that were added to it.
    pub a: Treatments,
    /// The second treatment, likewise.
    pub b: Treatments,
    /// The emulated path of B, where it has one of its own.
    pub lab_b: Option<String>,
    /// What the two hosts had in force under each treatment, as they read it back.
    #[serde(default)]
    pub read_back: ReadBack,
    /// The test that was run under both.
    pub plan: Test,
    /// The load that ran beside every run; what it got is in `runs`, as `with.throughput_bps`.
    pub with: Option<Test>,
    /// Difference in percent below which the two are called equivalent; absent if none was given.
    pub margin_percent: Option<f64>,
    /// The most pairs that may count.
    pub max_pairs: u32,
    /// Faults declared before the first run.
    #[serde(default)]
    pub forbidden: Vec<Fault>,
    /// Every pair with its figures, in the order in which they ran, those that were excluded too.
    pub runs: Vec<ComparedPair>,
    /// How busy both hosts were before the first run.
    #[serde(default)]
    pub idle: IdleLoad,
    /// Controls and other changes that were added without being asked for.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Caveats.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
    /// The environment of both ends.
    pub environment: Environment,
    /// Seed of the order in the pairs and of every run.
    pub seed: u64,
    /// How the effects have changed since an earlier comparison, which was asked for.
    pub baseline: Option<Baseline>,
}

impl Comparison {
    /// The observed effects, for a comparison with other figures.
    pub fn observed(&self) -> Observed {
        let options = asked_of_both(&self.plan, [&self.a, &self.b], self.with.as_ref());
        let effects = self.metrics.iter().map(|metric| {
            let found = &metric.conclusion;
            (metric.metric.as_str(), found.effect_percent, found.interval_percent)
        });
        Observed::effects(&self.started_at, options, effects)
    }
}

/// The options of a comparison, as a user types them.
pub fn asked_of_both(test: &Test, sides: [&Treatments; 2], with: Option<&Test>) -> Vec<String> {
    let sides =
        ["--a", "--b"].into_iter().zip(sides).map(|(option, side)| format!("{option} {side}"));
    let with = with.map(|with| format!("--with \"{}\"", asked(with).join(" ")));
    asked(test).into_iter().chain(sides).chain(with).collect()
}

/// What would decide a comparison, as far as its pairs tell: an estimate, and no part of the test.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WouldDecide {
    /// How far the changes of single pairs lie from their middle, percent: the median distance,
    /// made a standard deviation.
    pub scatter_percent: f64,
    /// The number of pairs that would show the difference seen so far; absent where there is almost
    /// none.
    pub pairs: Option<u32>,
    /// So many times as long runs would show it in [`super::MAX_PAIRS`] pairs, where chance evens
    /// out over time; absent where no longer ones are needed.
    pub times_as_long: Option<f64>,
    /// A margin that the pairs so far are within, percent.
    pub margin_percent: f64,
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
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IdleLoad {
    /// This host.
    pub client_cpu_percent: Option<f64>,
    /// The endpoint's host.
    pub server_cpu_percent: Option<f64>,
}

impl WouldDecide {
    /// From what the metric amounts to so far and the changes of its pairs, percent.
    pub(super) fn new(so_far: &MetricConclusion, changes: &[f64]) -> Self {
        let middle = median(changes);
        let distances = changes.iter().map(|change| (change - middle).abs());
        let scatter_percent = NORMAL * median(&distances.collect::<Vec<_>>());
        let share = scatter_percent / so_far.effect_percent.abs();
        let pairs = (POWER * share * share).ceil();
        let is_known = pairs.is_finite() && pairs <= MAX_TO_TELL;
        // The next looks.
        let pairs = (pairs as u32).max(so_far.pairs + 1);
        let next = [8, 10, 13, 17, 23, MAX_PAIRS].into_iter().find(|look| *look >= pairs);
        let times_as_long = (f64::from(pairs) / f64::from(MAX_PAIRS)).ceil();
        let [low, high] = so_far.interval_percent.map(f64::abs);
        Self {
            scatter_percent,
            pairs: is_known.then_some(next.unwrap_or(pairs)),
            times_as_long: (is_known && next.is_none()).then_some(times_as_long),
            margin_percent: rounded_up(low.max(high)),
        }
    }
}

/// Of normal figures the standard deviation is so many times the median distance.
const NORMAL: f64 = 1.4826;
/// (z of 97.5 % + z of 80 %)² ÷ 0.955, the efficiency of signed ranks: pairs for a difference as
/// large as the scatter, found in four comparisons of five.
const POWER: f64 = 8.2;
/// A difference that would take more pairs than this is negligible.
const MAX_TO_TELL: f64 = 1000.0;

/// Rounds up to one significant digit: 0.3, 2, 40.
fn rounded_up(percent: f64) -> f64 {
    let unit = 10_f64.powf(percent.max(0.01).log10().floor());
    // 3 × 0.1 is not 0.3.
    let digits = (percent.max(0.01) / unit - 1e-9).ceil();
    let scale = 1.0 / unit;
    if unit < 1.0 { digits / scale.round() } else { digits * unit }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn so_far(effect_percent: f64, interval_percent: [f64; 2]) -> MetricConclusion {
        MetricConclusion {
            verdict: ComparisonVerdict::Inconclusive,
            different: false,
            equivalent: false,
            effect_percent,
            interval_percent,
            confidence_percent: 95.0,
            look_confidence_percent: 95.0,
            pairs: 30,
        }
    }

    #[test]
    fn a_small_difference_takes_more_pairs_or_longer_runs_or_a_margin() {
        let changes = [-3.0, -1.0, 0.5, 1.0, 1.5, 3.0, 5.0];
        let would = WouldDecide::new(&so_far(1.0, [-0.4, 2.3]), &changes);
        assert!((would.scatter_percent - 2.9652).abs() < 1e-9);
        assert_eq!((would.pairs, would.times_as_long), (Some(73), Some(3.0)));
        assert_eq!(would.margin_percent, 3.0);
    }

    #[test]
    fn next_to_no_difference_takes_a_margin_alone() {
        let changes = [-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0];
        for effect in [0.0, 0.01] {
            let would = WouldDecide::new(&so_far(effect, [-0.24, 0.21]), &changes);
            assert_eq!((would.pairs, would.times_as_long), (None, None));
            assert_eq!(would.margin_percent, 0.3);
        }
    }
}

//! Runs in pairs, and what a pair says: the ratio of both sides.

use linerate_core::stats::Summary;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::Serialize;

use crate::cases::{Bound, Goal};
use crate::measurement::{Measurement, Metric};

/// Both sides of a pair; without a peer linerate alone.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Pair {
    pub(crate) linerate: Measurement,
    pub(crate) peer: Option<Measurement>,
    /// Which side ran first.
    pub(crate) linerate_first: bool,
}

/// A fair coin for the order in each pair.
pub(crate) struct Coin(ChaCha8Rng);

impl Coin {
    pub(crate) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    pub(crate) fn toss(&mut self) -> bool {
        self.0.next_u32() & 1 == 1
    }
}

/// Median and range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` where there is no figure, or one that is none.
    fn of(figures: impl Iterator<Item = Option<f64>>) -> Option<Self> {
        let figures: Vec<f64> = figures.collect::<Option<_>>()?;
        let summary = Summary::new(&figures).ok()?;
        Some(Self {
            median: summary.median(),
            min: summary.min(),
            max: summary.max(),
        })
    }
}

/// One figure over all pairs.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) metric: Metric,
    pub(crate) bound: Bound,
    pub(crate) linerate: Option<Spread>,
    pub(crate) peer: Option<Spread>,
    /// linerate's figure over the peer's, pair by pair.
    pub(crate) ratio: Option<Spread>,
    /// `None` where nothing is asked.
    pub(crate) passed: Option<bool>,
}

impl Finding {
    /// A goal whose figure a run does not have is missed.
    pub(crate) fn new(goal: Goal, pairs: &[Pair]) -> Self {
        let Goal { metric, bound } = goal;
        let ours = |pair: &Pair| metric.of(&pair.linerate);
        let theirs = |pair: &Pair| metric.of(pair.peer.as_ref()?);
        let linerate = Spread::of(pairs.iter().map(ours));
        let ratio = Spread::of(pairs.iter().map(|pair| {
            let ratio = ours(pair)? / theirs(pair)?;
            ratio.is_finite().then_some(ratio)
        }));
        let median = |spread: Option<Spread>| spread.map_or(f64::NAN, |spread| spread.median);
        let passed = match bound {
            Bound::RatioAtLeast(least) => Some(median(ratio) >= least),
            Bound::RatioAtMost(most) => Some(median(ratio) <= most),
            Bound::Below(limit) => Some(median(linerate) < limit),
            Bound::Shown => None,
        };
        Self {
            metric,
            bound,
            linerate,
            peer: Spread::of(pairs.iter().map(theirs)),
            ratio,
            passed,
        }
    }
}

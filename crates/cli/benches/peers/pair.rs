//! Runs in pairs, and what they say: the ratio of both sides.

use linerate_core::stats::{MedianInterval, median_interval};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::cases::{Bound, Goal};
use crate::measurement::{Measurement, Metric};

/// Both sides of a pair; without a peer linerate alone.
#[derive(Debug, Clone, Serialize, Deserialize)]
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

/// One figure over all pairs.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) metric: Metric,
    pub(crate) bound: Bound,
    pub(crate) linerate: Option<MedianInterval>,
    pub(crate) peer: Option<MedianInterval>,
    /// linerate's figure over the peer's, pair by pair.
    pub(crate) ratio: Option<MedianInterval>,
    /// `None` where nothing is asked.
    pub(crate) verdict: Option<Verdict>,
}

/// What the interval of the median says of a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Met,
    Missed,
    /// The bound is within the interval, or there are too few pairs for one.
    Open,
}

impl Finding {
    /// A goal whose figure a run does not have is missed.
    pub(crate) fn new(goal: Goal, pairs: &[Pair]) -> Self {
        let Goal { metric, bound } = goal;
        let ours = |pair: &Pair| metric.of(&pair.linerate);
        let theirs = |pair: &Pair| metric.of(pair.peer.as_ref()?);
        let linerate = interval(pairs.iter().map(ours));
        let ratio = interval(pairs.iter().map(|pair| {
            let ratio = ours(pair)? / theirs(pair)?;
            ratio.is_finite().then_some(ratio)
        }));
        let verdict = match bound {
            Bound::RatioAtLeast(least) => Some(judge(ratio, |ratio| ratio >= least)),
            Bound::RatioAtMost(most) => Some(judge(ratio, |ratio| ratio <= most)),
            Bound::Below(limit) => Some(judge(linerate, |figure| figure < limit)),
            Bound::Shown => None,
        };
        Self { metric, bound, linerate, peer: interval(pairs.iter().map(theirs)), ratio, verdict }
    }
}

/// `None` where there is no figure, or one that is none.
fn interval(figures: impl Iterator<Item = Option<f64>>) -> Option<MedianInterval> {
    let figures: Vec<f64> = figures.collect::<Option<_>>()?;
    median_interval(&figures).ok()
}

fn judge(figure: Option<MedianInterval>, is_met: impl Fn(f64) -> bool) -> Verdict {
    let Some(figure) = figure else {
        return Verdict::Missed;
    };
    match (is_met(figure.low), is_met(figure.high)) {
        _ if !figure.reaches_confidence() => Verdict::Open,
        (true, true) => Verdict::Met,
        (false, false) => Verdict::Missed,
        _ => Verdict::Open,
    }
}

//! What the runs so far tell for and against each cause.
//!
//! Each changed run is a witness: its log ratio to the plain run beside it, against what each cause
//! predicts. Its surprise under a cause is the logarithm of how much less likely the ratio is there
//! than where the cause puts it, by Student's t with few degrees of freedom: runs scatter with
//! heavy tails, and how far was seen in few of them. A single witness is not believed, however
//! clear it is ([`MOST_OF_ONE`]).

use super::offer::{Offer, RunFigures};
use super::predict::{APART, Predicted, SAME, WATCHED, Watched, is_outside};
use crate::record::{Cause, ChangeResult, ProofDoubt, RuledOut};

/// A possible cause.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) cause: Cause,
    /// Weight by the plain runs' evidence.
    pub(super) weight: f64,
}

/// Least weight of a cause that the evidence names: of two it is the likelier one, or not far from
/// it.
pub const NAMED: f64 = 0.25;

/// Weight that every cause has, where the evidence gives those that it names 1 together: seven
/// others weigh as much as a single one that it names.
const UNNAMED_WEIGHT: f64 = 1.0 / 7.0;

/// A change and the blocks that were made with it: a plain and a changed run each.
#[derive(Debug)]
pub(super) struct OfferState {
    pub(super) offer: Offer,
    pub(super) is_refused: bool,
    /// The log ratios of the blocks, one list for each watched figure.
    ratios: [Vec<f64>; WATCHED.len()],
    pub(super) blocks: usize,
    /// Sums of the windows of the plain and the changed runs, where the change is of them.
    windows: [f64; 2],
    /// The cause that the last changed run's own evidence names.
    cause_then: Option<Cause>,
}

impl OfferState {
    pub(super) fn new(offer: Offer) -> Self {
        let ratios = WATCHED.map(|_| Vec::new());
        Self { offer, is_refused: false, ratios, blocks: 0, windows: [0.0; 2], cause_then: None }
    }

    pub(super) fn record(&mut self, plain: RunFigures, changed: RunFigures) {
        for (watched, ratios) in WATCHED.iter().zip(&mut self.ratios) {
            let logs = changed.log(*watched).zip(plain.log(*watched));
            ratios.extend(logs.map(|(changed, plain)| changed - plain));
        }
        self.blocks += 1;
        self.cause_then = changed.cause;
        if let Some(windows) = plain.window_bytes.zip(changed.window_bytes)
            && self.offer.changes_window()
        {
            self.windows[0] += windows.0;
            self.windows[1] += windows.1;
            let mean = self.windows[0] / self.blocks as f64;
            self.window_ratio().iter().for_each(|ratio| self.offer.follow_window(mean, *ratio));
        }
    }

    /// The changed window over the plain one.
    fn window_ratio(&self) -> Option<f64> {
        let [plain, changed] = self.windows;
        Some(changed / plain).filter(|ratio| ratio.is_finite() && *ratio > 0.0)
    }

    fn predicted(&self, watched: Watched, cause: Cause) -> Option<&Predicted> {
        self.offer.predicted.get(&(watched, cause))
    }

    fn ratios(&self, watched: Watched) -> &[f64] {
        &self.ratios[watched as usize]
    }
}

/// What the runs so far tell.
pub(super) struct Evidence<'a> {
    candidates: &'a [Candidate],
    offers: &'a [OfferState],
    /// Logs of the plain runs' rates, in their order.
    plain: Vec<f64>,
    /// Standard deviation of a block's log ratio, for each watched figure.
    scales: [f64; WATCHED.len()],
    /// Of each candidate the surprise of each change's blocks.
    surprises: Vec<Vec<f64>>,
}

impl<'a> Evidence<'a> {
    pub(super) fn new(
        candidates: &'a [Candidate],
        offers: &'a [OfferState],
        plain: &[RunFigures],
    ) -> Self {
        let scales = WATCHED.map(|watched| scale(watched, plain, offers));
        let mut evidence = Self {
            candidates,
            offers,
            plain: plain.iter().filter_map(|run| run.log(Watched::Rate)).collect(),
            scales,
            surprises: Vec::new(),
        };
        let of = |candidate: &Candidate| {
            offers.iter().map(|state| evidence.surprise_of(state, candidate.cause)).collect()
        };
        evidence.surprises = candidates.iter().map(of).collect();
        evidence
    }

    fn surprise_of(&self, state: &OfferState, cause: Cause) -> f64 {
        let of = |watched: Watched| {
            let predicted = state.predicted(watched, cause)?;
            let gaps = state.ratios(watched).iter().map(|log| predicted.distance(*log));
            Some(gaps.map(|gap| self.surprise(watched, gap)).sum::<f64>())
        };
        // Several figures of one run are not as many witnesses.
        WATCHED.into_iter().filter_map(of).fold(0.0, f64::max)
    }

    fn surprise(&self, watched: Watched, gap: f64) -> f64 {
        let x = gap / self.scales[watched as usize];
        ((FREEDOM + 1.0) / 2.0 * (x * x / FREEDOM).ln_1p()).min(MOST_OF_ONE)
    }

    fn against(&self, at: usize) -> f64 {
        self.surprises[at].iter().sum()
    }

    /// The candidates that nothing excludes, by their place.
    fn left(&self) -> Vec<usize> {
        (0..self.candidates.len()).filter(|at| self.against(*at) < EXCLUDED).collect()
    }

    fn left_causes(&self) -> Vec<Cause> {
        self.left().into_iter().map(|at| self.candidates[at].cause).collect()
    }

    /// How probable a candidate is beside the others: its weight, less what speaks against it.
    fn weight(&self, at: usize) -> f64 {
        (self.candidates[at].weight + UNNAMED_WEIGHT) * (-self.against(at)).exp()
    }

    // The choice.

    /// What one block more of a change tells: the pairs of causes that it separates, by their
    /// weights; of a cause that is left alone, whether it holds there.
    pub(super) fn gain(&self, offer: usize) -> f64 {
        let state = &self.offers[offer];
        let left = self.left();
        if let [alone] = left[..] {
            return self.test_gain(state, self.candidates[alone].cause);
        }
        let mut gain = 0.0;
        for (first, one) in left.iter().enumerate() {
            for other in &left[first + 1..] {
                let tells = WATCHED.map(|watched| self.tells(state, watched, [*one, *other]));
                gain +=
                    self.weight(*one) * self.weight(*other) * tells.into_iter().fold(0.0, f64::max);
            }
        }
        gain
    }

    /// Which part of what is still needed one block more would tell of two causes, if either is
    /// the limit. With blocks made already the ratio is where it was seen.
    fn tells(&self, state: &OfferState, watched: Watched, pair: [usize; 2]) -> f64 {
        let predicted = pair.map(|at| state.predicted(watched, self.candidates[at].cause));
        let [Some(one), Some(other)] = predicted else {
            return 0.0;
        };
        let seen = state.ratios(watched);
        let expected = |of: &Predicted| if seen.is_empty() { of.expected.ln() } else { mean(seen) };
        let part = |of: &Predicted, at: usize, truth: &Predicted| {
            let surprise = self.surprise(watched, of.distance(expected(truth)));
            (surprise / (EXCLUDED - self.against(at))).min(1.0)
        };
        (part(one, pair[0], other) + part(other, pair[1], one)) / 2.0
    }

    fn test_gain(&self, state: &OfferState, cause: Cause) -> f64 {
        if self.is_far(state, cause) {
            return 1.0;
        }
        let is_new = state.blocks == 0;
        let says = WATCHED.iter().any(|watched| state.predicted(*watched, cause).is_some());
        if self.is_tested(cause) {
            // Any other change will do as the second one.
            return f64::from(u8::from(is_new && says));
        }
        let changes = WATCHED.iter().filter_map(|watched| {
            let predicted = state.predicted(*watched, cause)?;
            predicted.is_a_change().then(|| self.surprise(*watched, predicted.expected.ln().abs()))
        });
        let follows = changes.fold(0.0, f64::max);
        let stays = if self.raises_others(state, cause) {
            self.surprise(Watched::Rate, APART.ln())
        } else {
            0.0
        };
        follows.max(stays) / MOST_OF_ONE
    }

    // The conclusion.

    /// How clearly the figures of a change have changed as the cause predicts: the surprise under
    /// no change; 0 where it predicts none.
    fn follows(&self, state: &OfferState, cause: Cause) -> f64 {
        let of = |watched: Watched| {
            let seen = state.ratios(watched);
            let predicted = state.predicted(watched, cause)?;
            let holds = predicted.is_a_change() && predicted.distance(mean(seen)) <= CLOSE;
            let clear = || seen.iter().map(|log| self.surprise(watched, log.abs())).sum::<f64>();
            (holds && !seen.is_empty()).then(clear)
        };
        WATCHED.into_iter().filter_map(of).fold(0.0, f64::max)
    }

    /// Whether the rate stayed, as a cause outside the hosts predicts, where the change raises it
    /// for most others.
    fn stays(&self, state: &OfferState, cause: Cause) -> bool {
        let seen = state.ratios(Watched::Rate);
        !seen.is_empty() && mean(seen).abs() < APART.ln() && self.raises_others(state, cause)
    }

    fn raises_others(&self, state: &OfferState, cause: Cause) -> bool {
        let rate = |cause| state.predicted(Watched::Rate, cause);
        let stays = rate(cause).is_some_and(|own| !own.is_a_change());
        if self.is_out_of_reach(cause) {
            // Another window changes nothing.
            return stays && rate(Cause::ReceiveWindow).is_some_and(|other| other.is_a_change());
        }
        // Those that exact evidence has ruled out are ruled out once more.
        let rates = state
            .offer
            .predicted
            .iter()
            .filter(|((watched, other), _)| *watched == Watched::Rate && !is_outside(*other));
        let said: Vec<&Predicted> = rates.map(|(_, predicted)| predicted).collect();
        let raised = said.iter().filter(|other| other.low > 1.0).count();
        is_outside(cause) && stays && 2 * raised > said.len()
    }

    /// Whether it is a reader that no change reaches: another tool's.
    fn is_out_of_reach(&self, cause: Cause) -> bool {
        let mut predicted = self.offers.iter().filter_map(|s| s.predicted(Watched::Rate, cause));
        cause == Cause::ApplicationReceive && !predicted.any(Predicted::is_a_change)
    }

    /// The causes that are proved; none if nothing is.
    pub(super) fn proved(&self) -> Vec<Cause> {
        if self.doubt().is_some() {
            return Vec::new();
        }
        let causes = self.left_causes();
        let is_proved = match causes[..] {
            [alone] => self.is_confirmed(alone),
            [one, other] => self.are_near(one, other),
            _ => false,
        };
        if is_proved { causes } else { Vec::new() }
    }

    /// Whether a cause holds where it is tested, in two different changes: one could be met by
    /// something else that no candidate stands for.
    fn is_confirmed(&self, cause: Cause) -> bool {
        let far = self.offers.iter().any(|state| self.is_far(state, cause));
        let said = self.offers.iter().filter(|state| {
            let says =
                |w: &Watched| state.predicted(*w, cause).is_some() && !state.ratios(*w).is_empty();
            WATCHED.iter().any(says)
        });
        self.is_tested(cause) && !far && said.count() >= 2
    }

    /// Whether figures have clearly changed as the cause predicts, in two runs at least, or stayed
    /// where they would have changed for others.
    fn is_tested(&self, cause: Cause) -> bool {
        let clear: f64 = self.offers.iter().map(|state| self.follows(state, cause)).sum();
        clear >= CLEAR || self.offers.iter().any(|state| self.stays(state, cause))
    }

    /// Whether a figure is not where the cause predicts it.
    fn is_far(&self, state: &OfferState, cause: Cause) -> bool {
        WATCHED.iter().any(|watched| {
            let seen = state.ratios(*watched);
            let predicted = state.predicted(*watched, cause);
            !seen.is_empty() && predicted.is_some_and(|p| p.distance(mean(seen)) > CLOSE)
        })
    }

    /// Whether the rate rose with one of the two, by more than what stays does and by less than
    /// [`NEAR`], because the other one came next: in two blocks, so that it is no fluke.
    fn are_near(&self, one: Cause, other: Cause) -> bool {
        let near = |state: &OfferState| {
            let seen = state.ratios(Watched::Rate);
            raises_one(state, one, other)
                && seen.len() >= 2
                && seen.iter().all(|log| *log > 0.0 && *log < NEAR.ln())
                && mean(seen) > SAME.high.ln()
        };
        // Behind a late reader the window is less than half of what it can be: it is not near.
        let is_reader = [one, other].iter().any(|cause| self.is_out_of_reach(*cause));
        let far = |state: &OfferState| self.is_far(state, one) || self.is_far(state, other);
        !is_reader
            && !self.offers.iter().any(far)
            && self.offers.iter().any(near)
            && [one, other].iter().any(|cause| self.is_tested(*cause))
    }

    /// Why the runs prove nothing.
    pub(super) fn doubt(&self) -> Option<ProofDoubt> {
        if drifts(&self.plain) {
            return Some(ProofDoubt::Drift);
        }
        let of_a_run = self.scales[Watched::Rate as usize] / std::f64::consts::SQRT_2;
        (of_a_run > MOST_SCATTER).then_some(ProofDoubt::Scatter)
    }

    /// The most probable cause of those that no change contradicts, if the plain runs' evidence
    /// names it or a change is a test of it.
    pub(super) fn likely(&self) -> Option<Cause> {
        let agree = |at: &usize| self.surprises[*at].iter().all(|of| *of < CONTRADICTED);
        // Of equals the first of the table, which is the more frequent one.
        let left = self.left().into_iter().rev().filter(agree);
        let is_tested = |at: usize| self.is_tested(self.candidates[at].cause);
        let first = left.max_by(|a, b| {
            let weights = self.weight(*a).total_cmp(&self.weight(*b));
            weights.then_with(|| is_tested(*a).cmp(&is_tested(*b)))
        })?;
        let Candidate { cause, weight } = self.candidates[first];
        (weight >= NAMED || self.is_tested(cause)).then_some(cause)
    }

    pub(super) fn ruled_out(&self) -> Vec<RuledOut> {
        let excluded = (0..self.candidates.len()).filter(|at| self.against(*at) >= EXCLUDED);
        let entry = |at: usize| {
            let surprises = self.surprises[at].iter().zip(self.offers);
            let most = surprises.max_by(|a, b| a.0.total_cmp(b.0))?;
            Some(RuledOut { cause: self.candidates[at].cause, by: most.1.offer.change.to_owned() })
        };
        excluded.filter_map(entry).collect()
    }

    pub(super) fn entries(&self) -> Vec<ChangeResult> {
        let made = self.offers.iter().filter(|state| !state.ratios(Watched::Rate).is_empty());
        let entry = |state: &OfferState| {
            let seen = state.ratios(Watched::Rate);
            let rate = state.offer.predicted.iter().filter(|((w, _), _)| *w == Watched::Rate);
            let half = INTERVAL * self.scales[0] / (seen.len() as f64).sqrt();
            ChangeResult {
                change: state.offer.change.to_owned(),
                end: state.offer.end,
                ratio: mean(seen).exp(),
                interval: [mean(seen) - half, mean(seen) + half].map(f64::exp),
                runs: state.blocks as u32,
                window_ratio: state.window_ratio(),
                predicted: rate.map(|((_, cause), ratio)| (*cause, ratio.expected)).collect(),
                lifts: state.offer.lifts,
                cause_then: state.cause_then,
            }
        };
        made.map(entry).collect()
    }
}

/// Whether a change raises the rate for one of two causes alone.
fn raises_one(state: &OfferState, one: Cause, other: Cause) -> bool {
    let raises = |cause| Some(state.predicted(Watched::Rate, cause)?.low > 1.0);
    raises(one).zip(raises(other)).is_some_and(|(one, other)| one != other)
}

/// Whether plain runs went one way by more than what tells two limits apart.
fn drifts(logs: &[f64]) -> bool {
    let n = logs.len() as f64;
    if logs.len() < 4 {
        return false;
    }
    let (center, middle) = (mean(logs), (n - 1.0) / 2.0);
    let products =
        logs.iter().zip(0_u32..).map(|(log, at)| (log - center) * (f64::from(at) - middle));
    let slope = products.sum::<f64>() / (n * (n * n - 1.0) / 12.0);
    let total: f64 = logs.iter().map(|log| (log - center).powi(2)).sum();
    let by_slope = slope * slope * n * (n * n - 1.0) / 12.0;
    // Four fifths of the variance: a correlation of 0.9 with the time.
    (slope * (n - 1.0)).abs() > APART.ln() && by_slope > 0.8 * total
}

/// The scatter of a block's log ratio: of plain runs beside each other, of repeated blocks, and
/// what is assumed before there are any.
fn scale(watched: Watched, plain: &[RunFigures], offers: &[OfferState]) -> f64 {
    let assumed = assumed_sd(watched);
    let mut squares = ASSUMED_FREEDOM * assumed * assumed;
    let mut freedom = ASSUMED_FREEDOM;
    for ratios in offers.iter().map(|state| state.ratios(watched)).filter(|r| r.len() > 1) {
        let center = mean(ratios);
        squares += ratios.iter().map(|log| (log - center).powi(2)).sum::<f64>();
        freedom += ratios.len() as f64 - 1.0;
    }
    // Neighbours share a run, and the blocks have these runs too: each step counts half.
    let plain: Vec<f64> = plain.iter().filter_map(|run| run.log(watched)).collect();
    for step in plain.windows(2) {
        squares += (step[1] - step[0]).powi(2) / 2.0;
        freedom += 0.5;
    }
    (squares / freedom).sqrt()
}

/// The mean of the logs; of none 0.
fn mean(logs: &[f64]) -> f64 {
    logs.iter().sum::<f64>() / logs.len().max(1) as f64
}

/// Scatter that is assumed before there are runs. Two runs cannot tell that a path never scatters:
/// runs of a second over quiet paths scattered by 0.5 to 3 %, so that their ratio does by 4 % at
/// most; half as much more is for the modes that few runs do not show. A queue and a share of
/// losses are counted with few events.
const fn assumed_sd(watched: Watched) -> f64 {
    match watched {
        Watched::Rate => 0.055,
        Watched::Queue | Watched::Retransmissions => 0.3,
    }
}

/// Weight of that assumption, as so many runs more.
const ASSUMED_FREEDOM: f64 = 3.0;

/// Degrees of freedom of a ratio's distribution: its tails are those of outliers that one run in
/// thirty is (docs/error-rates.md).
const FREEDOM: f64 = 3.0;

/// The most that one block tells against a cause, so that an outlier alone excludes none.
const MOST_OF_ONE: f64 = 5.0;

/// Surprise with which a cause is excluded. With this value and the one above, a wrong proof is
/// rarer than one in a hundred in each simulation (docs/error-rates.md).
const EXCLUDED: f64 = 10.0;

/// Surprise of one change with which it contradicts a cause: its ratio is three standard deviations
/// from what the cause predicts.
const CONTRADICTED: f64 = 2.77;

/// Surprise of no change with which figures have clearly changed.
const CLEAR: f64 = 7.0;

/// How far from its prediction the mean of a proved cause's figure may be: a tenth, as one block
/// of runs that scatter by 5 % is at times.
const CLOSE: f64 = 0.1;

/// The most by which the rate rises where two limits are near to each other: [`APART`], and half as
/// much for the scatter.
const NEAR: f64 = 1.25;

/// Standard deviation of a run's logarithm beyond which half and all of a rate cannot be told apart
/// by four blocks.
const MOST_SCATTER: f64 = 0.3;

/// Half width of the interval of a block's log ratio over its standard deviation: 95 % with six
/// degrees of freedom.
const INTERVAL: f64 = 2.45;

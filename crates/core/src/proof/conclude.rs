//! What the runs so far show: which causes are excluded, which one is followed.

use super::choice::{Candidate, OfferState, Prover};
use super::document::{InterventionEntry, ProofDoubt, ProofFindings, ProofLevel, RuledOut};
use super::predict::{APART, WATCHED, Watched};
use super::scatter::{Scatter, mean};
use crate::record::Cause;

/// The intervals of all changes, and what they exclude.
pub(super) struct Evidence<'a> {
    prover: &'a Prover,
    scatters: [Scatter; WATCHED.len()],
    /// Of each offer the interval of each figure's log ratio.
    intervals: Vec<[Option<[f64; 2]>; WATCHED.len()]>,
    /// The change that excludes each candidate.
    excluded: Vec<Option<&'static str>>,
}

impl<'a> Evidence<'a> {
    pub(super) fn new(prover: &'a Prover) -> Self {
        let scatters = WATCHED.map(|watched| scatter(prover, watched));
        let intervals = prover.offers.iter().map(|state| {
            let at = |watched: Watched| {
                scatters[watched as usize].interval(&state.ratios[watched as usize])
            };
            WATCHED.map(at)
        });
        let mut evidence =
            Self { prover, scatters, intervals: intervals.collect(), excluded: Vec::new() };
        let causes = prover.candidates.iter().map(|candidate| candidate.cause);
        evidence.excluded = causes.map(|cause| evidence.excluded_by(cause)).collect();
        evidence
    }

    /// The first change whose interval does not meet what a cause predicts.
    fn excluded_by(&self, cause: Cause) -> Option<&'static str> {
        let disagrees = |(at, state): &(usize, &OfferState)| {
            WATCHED.iter().any(|watched| {
                let interval = self.intervals[*at][*watched as usize];
                let both = state.predicted(*watched, cause).zip(interval);
                both.is_some_and(|(predicted, interval)| !predicted.meets(interval))
            })
        };
        let found = self.offers().find(disagrees);
        found.map(|(_, state)| state.offer.change)
    }

    fn offers(&self) -> impl Iterator<Item = (usize, &'a OfferState)> {
        self.prover.offers.iter().enumerate()
    }

    /// The candidates that nothing excludes.
    pub(super) fn left(&self) -> Vec<Candidate> {
        let all = self.prover.candidates.iter().zip(&self.excluded);
        all.filter(|(_, excluded)| excluded.is_none()).map(|(candidate, _)| *candidate).collect()
    }

    pub(super) fn expected_half_width(&self, watched: Watched, blocks: usize) -> f64 {
        self.scatters[watched as usize].expected_half_width(blocks)
    }

    /// How far what a change shows would be from what one cause predicts, if the other is the
    /// limit, and the other way round. With blocks made already it is seen where it is.
    pub(super) fn gaps(&self, at: usize, watched: Watched, one: Cause, other: Cause) -> [f64; 2] {
        let state = &self.prover.offers[at];
        let both = state.predicted(watched, one).zip(state.predicted(watched, other));
        let Some((one, other)) = both else {
            return [0.0; 2];
        };
        let ratios = &state.ratios[watched as usize];
        if ratios.is_empty() {
            return [one.distance(other.expected.ln()), other.distance(one.expected.ln())];
        }
        let seen = mean(ratios);
        [one.distance(seen), other.distance(seen)]
    }

    /// How far from no change the figure must be for a cause that is left alone to hold there; 0
    /// if it is no test of it, or was made already.
    pub(super) fn test_of(&self, at: usize, watched: Watched, alone: Candidate) -> f64 {
        let state = &self.prover.offers[at];
        let predicted = state.predicted(watched, alone.cause);
        if self.is_far(at, alone.cause) {
            return CLOSE;
        }
        let is_made = self.intervals[at][watched as usize].is_some();
        if is_made && (self.tests(at, alone.cause) || self.is_tested(alone.cause)) {
            return 0.0;
        }
        match predicted {
            // Any other change will do as the second one.
            Some(_) if self.is_tested(alone.cause) => f64::INFINITY,
            Some(predicted) if predicted.is_a_change() => predicted.expected.ln().abs(),
            Some(_) if self.raises_others(at, alone.cause) => APART.ln(),
            _ => 0.0,
        }
    }

    /// Whether a change, made at least twice, holds for a cause and is a test of it.
    fn tests(&self, at: usize, cause: Cause) -> bool {
        self.follows(at, cause) || self.stays(at, cause)
    }

    /// Whether a figure has clearly changed, as the cause predicts.
    fn follows(&self, at: usize, cause: Cause) -> bool {
        let state = &self.prover.offers[at];
        WATCHED.iter().any(|watched| {
            let interval = self.intervals[at][*watched as usize];
            let both = state.predicted(*watched, cause).zip(interval);
            both.is_some_and(|(predicted, [low, high])| {
                let has_changed = low > 0.0 || high < 0.0;
                predicted.is_a_change() && has_changed && predicted.meets([low, high])
            })
        })
    }

    /// Whether the rate stayed, as a cause outside the hosts predicts, where the change raises it
    /// for most others.
    fn stays(&self, at: usize, cause: Cause) -> bool {
        let near = |[low, high]: [f64; 2]| -low < APART.ln() && high < APART.ln();
        self.raises_others(at, cause)
            && self.intervals[at][Watched::Rate as usize].is_some_and(near)
    }

    fn raises_others(&self, at: usize, cause: Cause) -> bool {
        let state = &self.prover.offers[at];
        let outside = matches!(cause, Cause::PathRate | Cause::Policer | Cause::QosClass);
        let stays = state.predicted(Watched::Rate, cause).is_some_and(|own| !own.is_a_change());
        let others = self.prover.candidates.iter().filter(|other| other.cause != cause);
        let said: Vec<_> =
            others.filter_map(|other| state.predicted(Watched::Rate, other.cause)).collect();
        let raised = said.iter().filter(|other| other.low > 1.0).count();
        outside && stays && raised > 0 && 2 * raised >= said.len()
    }

    /// The causes that are proved; none if nothing is.
    fn proved(&self) -> Vec<Cause> {
        if self.doubt().is_some() {
            return Vec::new();
        }
        let left = self.left();
        let causes: Vec<Cause> = left.iter().map(|candidate| candidate.cause).collect();
        let is_proved = match causes[..] {
            [alone] => self.is_confirmed(alone),
            [one, other] => self.are_near(one, other),
            _ => false,
        };
        if is_proved { causes } else { Vec::new() }
    }

    pub(super) fn is_proved(&self) -> bool {
        !self.proved().is_empty()
    }

    /// Whether a cause holds where it is tested, in two different changes: one could be met by
    /// something else that no candidate stands for.
    fn is_confirmed(&self, cause: Cause) -> bool {
        let far = self.offers().any(|(at, _)| self.is_far(at, cause));
        let said = self.offers().filter(|(at, state)| {
            WATCHED.iter().any(|watched| {
                let made = self.intervals[*at][*watched as usize].is_some();
                made && state.predicted(*watched, cause).is_some()
            })
        });
        self.is_tested(cause) && !far && said.count() >= 2
    }

    fn is_tested(&self, cause: Cause) -> bool {
        self.offers().any(|(at, _)| self.tests(at, cause))
    }

    /// Whether a figure is not where the cause predicts it, though its interval reaches there.
    fn is_far(&self, at: usize, cause: Cause) -> bool {
        let state = &self.prover.offers[at];
        WATCHED.iter().any(|watched| {
            let ratios = &state.ratios[*watched as usize];
            let predicted = state.predicted(*watched, cause);
            ratios.len() > 1 && predicted.is_some_and(|p| p.distance(mean(ratios)) > CLOSE)
        })
    }

    /// Whether the rate rose with one of the two, but by less than [`NEAR`], because the other one
    /// came next.
    fn are_near(&self, one: Cause, other: Cause) -> bool {
        let near = |(at, state): (usize, &OfferState)| {
            let interval = self.intervals[at][Watched::Rate as usize];
            raises_one(state, one, other)
                && interval.is_some_and(|[low, high]| low > 0.0 && high < NEAR.ln())
        };
        self.offers().any(near) && [one, other].iter().any(|cause| self.is_tested(*cause))
    }

    /// How narrow the interval of a change must be to show that two causes are near to each other;
    /// 0 if it does not look so.
    pub(super) fn near_gap(&self, at: usize, one: Candidate, other: Candidate) -> f64 {
        let state = &self.prover.offers[at];
        let ratios = &state.ratios[Watched::Rate as usize];
        if ratios.is_empty() || !raises_one(state, one.cause, other.cause) {
            return 0.0;
        }
        let seen = mean(ratios);
        seen.min(NEAR.ln() - seen).max(0.0)
    }

    /// Why the runs prove nothing.
    fn doubt(&self) -> Option<ProofDoubt> {
        let plain: Vec<f64> =
            self.prover.plain.iter().filter_map(|run| run.log(Watched::Rate)).collect();
        if drifts(&plain) {
            return Some(ProofDoubt::Drift);
        }
        let scatter = self.scatters[Watched::Rate as usize].of_a_run();
        (scatter > MOST_SCATTER).then_some(ProofDoubt::Scatter)
    }
}

/// Whether a change raises the rate for one of two causes alone.
fn raises_one(state: &OfferState, one: Cause, other: Cause) -> bool {
    let raises = |cause| Some(state.predicted(Watched::Rate, cause)?.low > 1.0);
    raises(one).zip(raises(other)).is_some_and(|(one, other)| one != other)
}

/// The most by which the rate rises where two limits are near to each other: [`APART`], and half as
/// much for the interval.
const NEAR: f64 = 1.25;

/// How far from its prediction the mean of a proved cause's figure may be: as far as a tenth, which
/// is twice the error of two blocks of runs that scatter by 5 %.
const CLOSE: f64 = 0.1;

/// Standard deviation of a run's logarithm beyond which half and all of a rate cannot be told apart
/// by four blocks.
const MOST_SCATTER: f64 = 0.3;

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

fn scatter(prover: &Prover, watched: Watched) -> Scatter {
    let plain: Vec<f64> = prover.plain.iter().filter_map(|run| run.log(watched)).collect();
    let changes = prover.offers.iter().map(|state| &state.ratios[watched as usize][..]);
    let within: Vec<f64> = prover.plain.iter().filter_map(|run| run.spread).collect();
    let within = if watched == Watched::Rate { mean(&within) } else { 0.0 };
    Scatter::new(watched, &plain, changes, within)
}

impl Prover {
    /// What the runs so far show.
    pub fn findings(&self) -> ProofFindings {
        let evidence = Evidence::new(self);
        let proved = evidence.proved();
        let (proof, causes) = match (proved.is_empty(), evidence.likely()) {
            (false, _) => (ProofLevel::Proved, proved),
            (true, Some(likely)) => (ProofLevel::Likely, vec![likely]),
            (true, None) => (ProofLevel::Open, Vec::new()),
        };
        let candidates = self.candidates.iter().zip(&evidence.excluded);
        let ruled_out = candidates.filter_map(|(candidate, by)| {
            Some(RuledOut { cause: candidate.cause, by: (*by)?.to_owned() })
        });
        ProofFindings {
            proof,
            causes,
            ruled_out: ruled_out.collect(),
            doubt: evidence.doubt(),
            experiments: evidence.entries(),
            not_made: self.not_made.clone(),
            runs: self.spent.runs,
        }
    }
}

impl Evidence<'_> {
    /// The cause that the plain runs' evidence names first, if nothing contradicts it.
    fn likely(&self) -> Option<Cause> {
        let candidates = self.prover.candidates.iter().zip(&self.excluded);
        let first = candidates.max_by(|a, b| a.0.weight.total_cmp(&b.0.weight));
        let (candidate, excluded) = first?;
        (candidate.weight > 0.0 && excluded.is_none()).then_some(candidate.cause)
    }

    fn entries(&self) -> Vec<InterventionEntry> {
        let made = self.offers().filter(|(_, state)| !state.ratios[0].is_empty());
        let entry = |(at, state): (usize, &OfferState)| {
            let rate = state.offer.predicted.iter().filter(|((w, _), _)| *w == Watched::Rate);
            InterventionEntry {
                change: state.offer.change.to_owned(),
                end: state.offer.end,
                ratio: mean(&state.ratios[0]).exp(),
                interval: self.intervals[at][0].map(|interval| interval.map(f64::exp)),
                runs: state.blocks as u32,
                predicted: rate.map(|((_, cause), ratio)| (*cause, ratio.expected)).collect(),
            }
        };
        made.map(entry).collect()
    }
}

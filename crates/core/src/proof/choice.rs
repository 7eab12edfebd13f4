//! The choice of the next run, and the conclusion.

use std::collections::BTreeMap;

use super::change::{INTERVENTIONS, Intervention, PlainRuns, Refusal};
use super::conclude::Evidence;
use super::document::NotMade;
use super::predict::{CAUSES, Case, Predicted, WATCHED, Watched, ruled_out};
use super::scatter::mean;
use crate::plan::{Extent, Test};
use crate::record::Cause;
use crate::units::{Dice, End};

/// The most that a proof may cost; runs that were made before count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProofBudget {
    /// Runs, plain ones included.
    pub runs: u32,
    /// Time of the runs, seconds.
    pub seconds: f64,
    /// Payload bytes.
    pub bytes: f64,
}

impl Default for ProofBudget {
    fn default() -> Self {
        Self { runs: 16, seconds: f64::INFINITY, bytes: f64::INFINITY }
    }
}

/// A change that can be made here, with what each cause predicts.
#[derive(Debug, Clone)]
pub struct Offer {
    /// Name of the intervention.
    pub change: &'static str,
    /// The end that it concerns; `None` for both.
    pub end: Option<End>,
    /// The changed test.
    pub test: Test,
    /// Time of one run over the time of a plain run.
    pub length: f64,
    /// The predictions; a cause that says nothing of a figure is missing.
    pub predicted: BTreeMap<(Watched, Cause), Predicted>,
}

impl Offer {
    /// The change of a test, with what these causes predict.
    ///
    /// # Errors
    /// Why the change cannot be made here.
    pub fn new(
        intervention: &Intervention,
        plain: &Test,
        seen: &PlainRuns,
        causes: &[Cause],
    ) -> Result<Self, Refusal> {
        let test = intervention.changed(plain, seen)?;
        let pairs =
            WATCHED.iter().flat_map(|watched| causes.iter().map(|cause| (*watched, *cause)));
        let predicted = pairs.filter_map(|(watched, cause)| {
            let case = Case { test: plain, seen, watched, cause };
            Some(((watched, cause), intervention.predicted(&case)?))
        });
        Ok(Self {
            change: intervention.name,
            end: intervention.end.of(plain),
            length: length(&test) / length(plain),
            predicted: predicted.collect(),
            test,
        })
    }
}

/// The figures of one run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RunFigures {
    /// Goodput over all flows, in the unit of the plain runs.
    pub rate: f64,
    /// Time that it took, seconds.
    pub seconds: f64,
    /// The RTT under load above the smallest, seconds.
    pub queue_s: Option<f64>,
    /// Segments retransmitted over segments sent.
    pub retransmitted_share: Option<f64>,
    /// Standard error of the rate by its intervals within the run, as a share of it.
    pub spread: Option<f64>,
}

impl RunFigures {
    fn bytes(&self) -> f64 {
        self.rate / 8.0 * self.seconds
    }

    /// The logarithm of a figure, with its floor.
    pub(super) fn log(&self, watched: Watched) -> Option<f64> {
        let figure = match watched {
            Watched::Rate => Some(self.rate),
            Watched::Queue => self.queue_s,
            Watched::Retransmissions => self.retransmitted_share,
        };
        Some((figure? + watched.floor()).ln()).filter(|log| log.is_finite())
    }
}

/// The run that comes next.
#[derive(Debug, Clone, PartialEq)]
pub enum ProofRun {
    /// The test as it was asked for.
    Plain,
    /// This change of it.
    Changed {
        /// Name of the intervention.
        change: &'static str,
        /// The changed test.
        test: Box<Test>,
    },
}

/// A possible cause.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) cause: Cause,
    /// Weight by the evidence; 0 for one that it does not name.
    pub(super) weight: f64,
}

/// A change and the blocks that were made with it.
#[derive(Debug)]
pub(super) struct OfferState {
    pub(super) offer: Offer,
    pub(super) is_refused: bool,
    /// The log ratios of each block, one list for each watched figure.
    pub(super) ratios: [Vec<f64>; WATCHED.len()],
    /// Whether the plain run came first in the last block.
    was_plain_first: bool,
    pub(super) blocks: usize,
}

impl OfferState {
    fn new(offer: Offer) -> Self {
        let ratios = WATCHED.map(|_| Vec::new());
        Self { offer, is_refused: false, ratios, was_plain_first: false, blocks: 0 }
    }

    /// Draws the order of the next block: by a coin, and every second block the other way round
    /// than the one before, so that a drift and an order that matters cancel.
    fn is_plain_first(&self, dice: &mut Dice) -> bool {
        if self.blocks % 2 == 1 { !self.was_plain_first } else { dice.chance(0.5) }
    }

    fn record(&mut self, plain: RunFigures, changed: RunFigures, was_plain_first: bool) {
        for (watched, ratios) in WATCHED.iter().zip(&mut self.ratios) {
            let logs = changed.log(*watched).zip(plain.log(*watched));
            ratios.extend(logs.map(|(changed, plain)| changed - plain));
        }
        self.blocks += 1;
        self.was_plain_first = was_plain_first;
    }

    /// What a cause predicts for a figure.
    pub(super) fn predicted(&self, watched: Watched, cause: Cause) -> Option<&Predicted> {
        self.offer.predicted.get(&(watched, cause))
    }

    /// The largest rate that any cause predicts, over the plain one.
    fn most(&self) -> f64 {
        let rates =
            self.offer.predicted.iter().filter(|((watched, _), _)| *watched == Watched::Rate);
        rates.map(|(_, predicted)| predicted.expected).fold(1.0, f64::max)
    }
}

/// The block under way: a plain and a changed run.
#[derive(Debug)]
struct Block {
    offer: usize,
    is_plain_first: bool,
    first: Option<RunFigures>,
}

/// Decides which runs prove what limits one direction.
///
/// [`Prover::next_run`] says which run to make. Then comes [`Prover::record`] with its figures, or
/// [`Prover::skip`] if an end refused it. After `None`, or at any time before, [`Prover::findings`]
/// is what the runs so far show.
#[derive(Debug)]
pub struct Prover {
    pub(super) candidates: Vec<Candidate>,
    pub(super) offers: Vec<OfferState>,
    pub(super) not_made: Vec<NotMade>,
    budget: ProofBudget,
    pub(super) spent: ProofBudget,
    pub(super) plain: Vec<RunFigures>,
    block: Option<Block>,
    dice: Dice,
}

/// Plain runs before the first change: two, so that there is a scatter.
const FIRST_PLAIN: usize = 2;
/// Blocks of one change at most: what five do not tell, the scatter hides.
const MAX_BLOCKS: usize = 5;
/// Weight that every cause has, where the evidence gives those that it names 1 together: seven
/// others weigh as much as a single one that it names.
const UNNAMED_WEIGHT: f64 = 1.0 / 7.0;

impl Prover {
    /// A proof for the plain test, from the table of interventions.
    ///
    /// `ranking` has the causes by the evidence of the plain runs, with weights. Every cause that
    /// exact evidence does not rule out is a candidate, named there or not. `plain` has the plain
    /// runs that were made already; they count.
    pub fn new(
        test: &Test,
        seen: &PlainRuns,
        ranking: &[(Cause, f64)],
        plain: &[RunFigures],
        budget: ProofBudget,
        seed: u64,
    ) -> Self {
        let causes: Vec<Cause> =
            CAUSES.into_iter().filter(|cause| ruled_out(*cause, test, seen).is_none()).collect();
        let mut not_made = Vec::new();
        let mut offers = Vec::new();
        for intervention in &INTERVENTIONS {
            match Offer::new(intervention, test, seen, &causes) {
                Ok(offer) => offers.push(offer),
                Err(why) => not_made.push(NotMade::new(intervention.name, &why.to_string())),
            }
        }
        let mut prover = Self::with_offers(offers, &causes, ranking, budget, seed);
        prover.not_made = not_made;
        plain.iter().for_each(|run| prover.record_plain(*run));
        prover
    }

    /// A proof among these causes with these changes, whatever table they are from.
    pub fn with_offers(
        offers: Vec<Offer>,
        causes: &[Cause],
        ranking: &[(Cause, f64)],
        budget: ProofBudget,
        seed: u64,
    ) -> Self {
        let total: f64 = ranking.iter().map(|(_, weight)| weight.max(0.0)).sum();
        let weight = |cause: Cause| {
            let named = ranking.iter().find(|(named, _)| *named == cause);
            named.map_or(0.0, |(_, weight)| weight.max(0.0) / total.max(f64::MIN_POSITIVE))
        };
        let candidates =
            causes.iter().map(|cause| Candidate { cause: *cause, weight: weight(*cause) });
        Self {
            candidates: candidates.collect(),
            offers: offers.into_iter().map(OfferState::new).collect(),
            not_made: Vec::new(),
            budget,
            spent: ProofBudget { runs: 0, seconds: 0.0, bytes: 0.0 },
            plain: Vec::new(),
            block: None,
            dice: Dice::new(seed, 0),
        }
    }

    /// The run to make; the same one until it is recorded or skipped. `None`: there is nothing
    /// more to find out, or to spend.
    pub fn next_run(&mut self) -> Option<ProofRun> {
        if self.block.is_none() {
            if self.plain.len() < FIRST_PLAIN {
                return self.affords_plain().then_some(ProofRun::Plain);
            }
            let offer = self.choose()?;
            let is_plain_first = self.offers[offer].is_plain_first(&mut self.dice);
            self.block = Some(Block { offer, is_plain_first, first: None });
        }
        let block = self.block.as_ref()?;
        if block.is_plain_first == block.first.is_none() {
            return Some(ProofRun::Plain);
        }
        let offer = &self.offers[block.offer].offer;
        Some(ProofRun::Changed { change: offer.change, test: Box::new(offer.test.clone()) })
    }

    /// Takes the figures of the run that [`Prover::next_run`] named.
    pub fn record(&mut self, figures: RunFigures) {
        let Some(block) = self.block.take() else {
            self.record_plain(figures);
            return;
        };
        let Some(first) = block.first else {
            if block.is_plain_first {
                self.record_plain(figures);
            } else {
                self.spend(figures);
            }
            self.block = Some(Block { first: Some(figures), ..block });
            return;
        };
        let (plain, changed) =
            if block.is_plain_first { (first, figures) } else { (figures, first) };
        if block.is_plain_first {
            self.spend(figures);
        } else {
            self.record_plain(figures);
        }
        self.offers[block.offer].record(plain, changed, block.is_plain_first);
    }

    /// Takes note that the run could not be made: an end refused the change, or it failed. It is
    /// never asked for again; a plain run that fails ends the proof.
    pub fn skip(&mut self, why: &str) {
        let next = self.next_run();
        match self.block.take().zip(next) {
            Some((block, ProofRun::Changed { change, .. })) => {
                self.offers[block.offer].is_refused = true;
                self.not_made.push(NotMade::new(change, why));
            }
            _ => self.budget.runs = 0,
        }
    }

    fn record_plain(&mut self, figures: RunFigures) {
        self.spend(figures);
        self.plain.push(figures);
    }

    fn spend(&mut self, figures: RunFigures) {
        self.spent.runs += 1;
        self.spent.seconds += figures.seconds;
        self.spent.bytes += figures.bytes();
    }

    /// Whether one plain run more is allowed, beside another one. What the first one takes is not
    /// known before.
    fn affords_plain(&self) -> bool {
        let (seconds, bytes) =
            self.plain.last().map_or((0.0, 0.0), |run| (run.seconds, run.bytes()));
        self.spent.runs < self.budget.runs
            && self.spent.seconds + seconds <= self.budget.seconds
            && self.spent.bytes + bytes <= self.budget.bytes
    }

    /// Whether there is enough for so many blocks: a plain run each, and a changed one, which may
    /// be longer and carry more.
    fn affords_blocks(&self, blocks: usize, state: &OfferState) -> bool {
        let times: Vec<f64> = self.plain.iter().map(|run| run.seconds).collect();
        let bytes: Vec<f64> = self.plain.iter().map(RunFigures::bytes).collect();
        let length = state.offer.length;
        let n = blocks as f64;
        self.spent.runs + 2 * blocks as u32 <= self.budget.runs
            && self.spent.seconds + n * mean(&times) * (1.0 + length) <= self.budget.seconds
            && self.spent.bytes + n * mean(&bytes) * (1.0 + length * state.most())
                <= self.budget.bytes
    }
}

// The choice.

impl Prover {
    /// The change to make next: the one that tells most of what is left apart for its cost.
    fn choose(&self) -> Option<usize> {
        let evidence = Evidence::new(self);
        if evidence.is_proved() {
            return None;
        }
        let mut best = None;
        for (at, state) in self.offers.iter().enumerate().filter(|(_, state)| !state.is_refused) {
            let gain = self.gain(&evidence, at) / (1.0 + state.offer.length);
            if gain > best.map_or(0.0, |(_, most)| most) {
                best = Some((at, gain));
            }
        }
        best.map(|(at, _)| at)
    }

    /// What a change tells for each of its blocks: the pairs of causes that it separates, by their
    /// weights; of a cause that is left alone, whether it holds there.
    fn gain(&self, evidence: &Evidence<'_>, at: usize) -> f64 {
        let state = &self.offers[at];
        let blocks_left = (1..=MAX_BLOCKS.saturating_sub(state.blocks))
            .take_while(|n| self.affords_blocks(*n, state))
            .count();
        let left = evidence.left();
        let for_each_block = |watched: Watched, gap: f64| {
            let needed = (1..=blocks_left)
                .find(|more| evidence.expected_half_width(watched, state.blocks + more) < gap);
            needed.map_or(0.0, |blocks| 1.0 / blocks as f64)
        };
        if let [alone] = left[..] {
            let gaps =
                WATCHED.iter().map(|watched| (*watched, evidence.test_of(at, *watched, alone)));
            return gaps.map(|(watched, gap)| for_each_block(watched, gap)).fold(0.0, f64::max);
        }
        let weight = |cause: &Candidate| cause.weight + UNNAMED_WEIGHT;
        let mut gain = match left[..] {
            [one, other] => for_each_block(Watched::Rate, evidence.near_gap(at, one, other)),
            _ => 0.0,
        };
        for (first, one) in left.iter().enumerate() {
            for other in &left[first + 1..] {
                let tells = WATCHED.iter().map(|watched| {
                    let gaps = evidence.gaps(at, *watched, one.cause, other.cause);
                    mean(&gaps.map(|gap| for_each_block(*watched, gap)))
                });
                gain += weight(one) * weight(other) * tells.fold(0.0, f64::max);
            }
        }
        gain
    }
}

/// Length of a test, as far as it is asked for.
fn length(test: &Test) -> f64 {
    match test.extent {
        Extent::Time(_) => test.seconds().unwrap_or(1.0),
        Extent::Bytes(bytes) => bytes.0 as f64,
        Extent::Count(count) => count as f64,
    }
}

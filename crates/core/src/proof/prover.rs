//! The choice of the next run, and what a proof may cost.

use super::change::{INTERVENTIONS, Refusal};
use super::evidence::{Candidate, Evidence, OfferState};
use super::offer::{Offer, RunFigures};
use super::plain_runs::PlainRuns;
use super::predict::{CAUSES, ruled_out};
use crate::plan::Test;
use crate::record::{Cause, ChangeResult, NotMade, Proof, ProofLevel};
use crate::units::Dice;

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

/// A proof that nobody waits for takes at most so many times what a plain run takes. Clear cases
/// take six to ten.
pub const PROOF_RUNS: u64 = 12;

impl Default for ProofBudget {
    fn default() -> Self {
        Self { runs: 16, seconds: f64::INFINITY, bytes: f64::INFINITY }
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

/// What the runs show of one direction.
#[derive(Debug, Clone, PartialEq)]
pub struct ProofFindings {
    /// The conclusion.
    pub proof: Proof,
    /// The changes, in the order of the table.
    pub experiments: Vec<ChangeResult>,
    /// The changes that would have told more, but were not possible.
    pub not_made: Vec<NotMade>,
    /// All runs, plain ones included.
    pub runs: u32,
    /// Their payload, bytes.
    pub bytes: u64,
}

fn not_made_because(change: &str, why: &str) -> NotMade {
    NotMade { change: change.to_owned(), why: why.to_owned() }
}

/// The block under way: a plain and a changed run, in drawn order.
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
    candidates: Vec<Candidate>,
    offers: Vec<OfferState>,
    not_made: Vec<NotMade>,
    budget: ProofBudget,
    spent: ProofBudget,
    plain: Vec<RunFigures>,
    block: Option<Block>,
    dice: Dice,
}

/// What a second block of the only change so far is worth beside the first one of another.
const AGAIN: f64 = 0.5;

/// Blocks of one change at most: what four do not tell, the scatter hides.
const MAX_BLOCKS: usize = 4;

impl Prover {
    /// A proof for the plain test, from the table of interventions.
    ///
    /// `ranking` has the causes by the evidence of the plain runs, with weights from 0 to 1: from
    /// [`super::NAMED`] on the evidence names a cause. Every cause that
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
            match Offer::new(intervention, test, seen) {
                Ok(offer) => offers.push(offer),
                // It could tell nothing.
                Err(Refusal::NotOfThisTest | Refusal::AlreadySo) => {}
                Err(_) if intervention.is_remedy_alone() => {}
                Err(why) => not_made.push(not_made_because(intervention.name, &why.to_string())),
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
            named.map_or(0.0, |(_, weight)| weight.max(0.0) / total.max(1.0))
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
            if self.plain.is_empty() {
                return self.affords_plain().then_some(ProofRun::Plain);
            }
            self.block = Some(self.begin_block()?);
        }
        let block = self.block.as_ref()?;
        if block.is_plain_first == block.first.is_none() {
            return Some(ProofRun::Plain);
        }
        let offer = &self.offers[block.offer].offer;
        Some(ProofRun::Changed { change: offer.change, test: Box::new(offer.test.clone()) })
    }

    /// The first block has the first plain run, that of a remedy the last one; the order of the
    /// others is drawn.
    fn begin_block(&mut self) -> Option<Block> {
        let is_first = self.offers.iter().all(|state| state.blocks == 0);
        let proved = self.evidence().proved().first().copied();
        let first = self.plain.last().copied().filter(|_| is_first || proved.is_some());
        let offer = match proved {
            Some(cause) => self.remedy(cause)?,
            None => self.choose(first.is_some())?,
        };
        let is_plain_first = first.is_some() || self.dice.chance(0.5);
        Some(Block { offer, is_plain_first, first })
    }

    /// Takes the figures of the run that [`Prover::next_run`] named.
    pub fn record(&mut self, figures: RunFigures) {
        let is_plain = self.next_run() == Some(ProofRun::Plain);
        if is_plain {
            self.record_plain(figures);
        } else {
            self.spend(figures);
        }
        let Some(block) = self.block.take() else {
            return;
        };
        let Some(first) = block.first else {
            self.block = Some(Block { first: Some(figures), ..block });
            return;
        };
        let (plain, changed) = if is_plain { (figures, first) } else { (first, figures) };
        self.offers[block.offer].record(plain, changed);
    }

    /// Takes note that the run could not be made: an end refused the change, or it failed. It is
    /// never asked for again; a plain run that fails ends the proof.
    pub fn skip(&mut self, why: &str) {
        let next = self.next_run();
        match self.block.take().zip(next) {
            Some((block, ProofRun::Changed { change, .. })) => {
                self.offers[block.offer].is_refused = true;
                self.not_made.push(not_made_because(change, why));
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

    /// Whether there is enough for a block: a changed run, which may be longer and carry more, and
    /// a plain one unless it is made.
    fn affords_block(&self, offer: &Offer, has_plain: bool) -> bool {
        let n = self.plain.len() as f64;
        let seconds = self.plain.iter().map(|run| run.seconds).sum::<f64>() / n;
        let bytes = self.plain.iter().map(RunFigures::bytes).sum::<f64>() / n;
        let (runs, plain) = if has_plain { (1, 0.0) } else { (2, 1.0) };
        self.spent.runs + runs <= self.budget.runs
            && self.spent.seconds + seconds * (plain + offer.length) <= self.budget.seconds
            && self.spent.bytes + bytes * (plain + offer.length * offer.most()) <= self.budget.bytes
    }

    /// The change to make next: the one that tells most of what is left apart for its cost.
    fn choose(&self, has_plain: bool) -> Option<usize> {
        let evidence = self.evidence();
        let made = self.offers.iter().filter(|state| state.blocks > 0).count();
        let mut best = None;
        for (at, state) in self.offers.iter().enumerate() {
            let told = if self.is_possible(state, has_plain) { evidence.gain(at) } else { 0.0 };
            // A proof takes two different changes.
            let worth = if made == 1 && state.blocks > 0 { AGAIN } else { 1.0 };
            let gain = worth * told / (1.0 + state.offer.length);
            if gain > best.map_or(0.0, |(_, most)| most) {
                best = Some((at, gain));
            }
        }
        best.map(|(at, _)| at)
    }

    /// The remedy of a cause that is proved, unless it was tried.
    fn remedy(&self, cause: Cause) -> Option<usize> {
        let lifts = |state: &OfferState| state.offer.lifts == Some(cause) && state.blocks == 0;
        self.offers.iter().position(|state| lifts(state) && self.is_possible(state, true))
    }

    fn is_possible(&self, state: &OfferState, has_plain: bool) -> bool {
        let is_left = !state.is_refused && state.blocks < MAX_BLOCKS;
        is_left && self.affords_block(&state.offer, has_plain)
    }

    fn evidence(&self) -> Evidence<'_> {
        Evidence::new(&self.candidates, &self.offers, &self.plain)
    }

    /// What the runs so far show.
    pub fn findings(&self) -> ProofFindings {
        let evidence = self.evidence();
        let proved = evidence.proved();
        let (level, causes) = match (proved.is_empty(), evidence.likely()) {
            (false, _) => (ProofLevel::Proved, proved),
            (true, Some(likely)) => (ProofLevel::Likely, vec![likely]),
            (true, None) => (ProofLevel::Open, Vec::new()),
        };
        ProofFindings {
            proof: Proof {
                level,
                causes,
                ruled_out: evidence.ruled_out(),
                doubt: evidence.doubt(),
            },
            experiments: evidence.entries(),
            not_made: self.not_made.clone(),
            runs: self.spent.runs,
            bytes: self.spent.bytes as u64,
        }
    }
}

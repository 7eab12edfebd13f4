//! A proof under way: which run comes next, and what the runs have shown.
//!
//! [`linerate_core::proof`] decides; whoever makes the runs of a direction asks it here.

use std::time::Instant;

use linerate_core::ceilings;
use linerate_core::plan::Test;
use linerate_core::proof::{NAMED, PlainRuns, ProofBudget, ProofRun, Prover, RunFigures, words};
use linerate_core::record::{Cause, Record, median_run};
use linerate_core::units::BitRate;

use crate::campaign::Observer;
use crate::error::MeasureError;
use crate::partner::Partner;

/// The proof of one direction, which begins with its first plain run.
#[derive(Debug)]
pub(crate) struct Proof {
    prover: Prover,
    /// The pace that the plain test asks for, and the one that it had: an owner may limit it.
    paces: [Option<BitRate>; 2],
}

impl Proof {
    /// A proof for the plain test, after its first run of so many seconds in all; `None` where that
    /// run has no rate.
    pub(crate) fn new(
        test: &Test,
        first: &Record,
        seconds: f64,
        budget: ProofBudget,
    ) -> Option<Self> {
        let seen = PlainRuns::of(first)?;
        let figures = RunFigures::of(first, seconds)?;
        let mut ranking = ranking(first);
        let names = |(_, weight): &(Cause, f64)| *weight >= NAMED;
        if !ranking.iter().any(names) && seen.has_closing_window() {
            ranking.push((Cause::ApplicationReceive, 1.0));
        }
        let prover = Prover::new(test, &seen, &ranking, &[figures], budget, test.seed);
        Some(Self { prover, paces: paces(test, first) })
    }

    /// The run to make; `None` once there is nothing more to find out or to spend.
    pub(crate) fn next_run(&mut self) -> Option<ProofRun> {
        self.prover.next_run()
    }

    /// Takes the run of `asked` that was made, which took so many seconds in all.
    pub(crate) fn record(&mut self, asked: &Test, record: &Record, seconds: f64) {
        let paces @ [wanted, had] = paces(asked, record);
        match RunFigures::of(record, seconds) {
            // More than the one thing was changed.
            Some(_) if wanted != had && paces != self.paces => {
                self.skip("an owner limits the rate of all flows together");
            }
            Some(figures) => self.prover.record(figures),
            None => self.skip("nothing arrived"),
        }
    }

    /// Takes note that the run could not be made, and why.
    pub(crate) fn skip(&mut self, why: &str) {
        self.prover.skip(why);
    }

    /// Writes what the runs have shown into a record of one of the plain ones.
    pub(crate) fn conclude(&self, record: &mut Record) {
        let findings = self.prover.findings();
        if let [leg] = &mut record.legs[..] {
            leg.experiments = findings.experiments;
            leg.experiments_not_made = findings.not_made;
            leg.experiments_bytes = Some(findings.bytes);
        }
        ceilings::prove(record, &findings.proof);
    }
}

/// The pace that a test asks for, and the one that its run had.
fn paces(asked: &Test, made: &Record) -> [Option<BitRate>; 2] {
    [asked, &made.plan].map(|test| test.options.pacing_bps)
}

/// The causes by the run's own evidence, with weights. What comes nearest where nothing was found
/// says which change to begin with, and is not named by it.
fn ranking(record: &Record) -> Vec<(Cause, f64)> {
    let Some(verdict) = record.verdict() else {
        return Vec::new();
    };
    let sure = verdict.confidence.unwrap_or(UNJUDGED);
    let rest = if verdict.cause == Cause::Unexplained { NAMED / 2.0 } else { 1.0 - sure };
    let next = verdict.runner_up.as_ref().map(|next| (next.cause, rest));
    let all = [(verdict.cause, sure)].into_iter().chain(next);
    all.filter(|(cause, _)| *cause != Cause::Unexplained).collect()
}

/// Weight of a cause of a kind of which too few verdicts were ever judged: it is tested first.
const UNJUDGED: f64 = 0.9;

/// The runs of a proof of one test, whoever makes them.
#[derive(Debug)]
pub(crate) struct ProofRuns {
    test: Test,
    budget: ProofBudget,
    plain: Vec<Record>,
    proof: Option<Proof>,
    next: Option<ProofRun>,
}

impl ProofRuns {
    pub(crate) fn new(test: Test, budget: ProofBudget) -> Self {
        Self { test, budget, plain: Vec::new(), proof: None, next: Some(ProofRun::Plain) }
    }

    /// The test to run, and what is changed, in words; `None` once there is nothing more to find
    /// out or to spend.
    pub(crate) fn next(&self) -> Option<(&Test, Option<&'static str>)> {
        Some(match self.next.as_ref()? {
            ProofRun::Plain => (&self.test, None),
            ProofRun::Changed { change, test } => (test, Some(words(change))),
        })
    }

    /// Whether that run is longer than a plain one.
    pub(crate) fn is_longer(&self) -> bool {
        self.next().is_some_and(|(asked, _)| asked.seconds() > self.test.seconds())
    }

    /// Takes the run that was made, which took so many seconds in all.
    pub(crate) fn take(&mut self, record: Record, seconds: f64) {
        let is_plain = self.next == Some(ProofRun::Plain);
        let asked = self.next().map_or(&self.test, |(asked, _)| asked).clone();
        match &mut self.proof {
            Some(proof) => proof.record(&asked, &record, seconds),
            None => self.proof = Proof::new(&asked, &record, seconds, self.budget),
        }
        self.plain.extend(is_plain.then_some(record));
        self.next = self.proof.as_mut().and_then(Proof::next_run);
    }

    /// Takes note that the run could not be made, and why. A plain one that cannot be made ends the
    /// proof.
    pub(crate) fn skip(&mut self, why: &str) {
        let is_plain = self.next == Some(ProofRun::Plain);
        let proof = self.proof.as_mut().filter(|_| !is_plain);
        self.next = proof.and_then(|proof| {
            proof.skip(why);
            proof.next_run()
        });
    }

    /// The median of the plain runs, with what was found; `None` without any.
    pub(crate) fn conclude(&self) -> Option<Record> {
        let mut record = median_run(&self.plain)?.clone();
        if let Some(proof) = &self.proof {
            proof.conclude(&mut record);
        }
        Some(record)
    }
}

/// Runs a test of one direction again and again, and changes of it between, until what holds it
/// back is proved or the budget is spent. The record is the median of the plain runs, with what was
/// found; the error beside it is what ended the runs early.
///
/// # Errors
/// The first run could not begin.
pub fn prove_bottleneck(
    partner: &mut Partner,
    test: &Test,
    budget: ProofBudget,
    observer: &mut dyn Observer,
) -> Result<(Record, Option<MeasureError>), MeasureError> {
    let mut runs = ProofRuns::new(test.clone(), budget);
    let mut ended = None;
    for number in 1.. {
        let Some((asked, change)) = runs.next().filter(|_| ended.is_none()) else {
            break;
        };
        let change = change.map(|change| format!(": {change}"));
        observer.phase(&format!("run {number}{}", change.as_deref().unwrap_or("")));
        let began = Instant::now();
        match partner.run_once(asked, observer) {
            Ok((record, None)) => runs.take(record, began.elapsed().as_secs_f64()),
            Ok((record, error)) => {
                runs.plain.extend(change.is_none().then_some(record));
                ended = error;
            }
            Err(error) if runs.plain.is_empty() => return Err(error),
            Err(error) if change.is_none() => ended = Some(error),
            Err(error) => match refusal(error, partner) {
                Ok(why) => runs.skip(&why),
                Err(error) => ended = Some(error),
            },
        }
    }
    let record = runs.conclude().expect("the first run left a record or an error");
    Ok((record, ended))
}

/// Why an end refused a run; another error is given back. What this end's kernel refused has left a
/// test half open at the endpoint: the session is renewed.
pub(crate) fn refusal(error: MeasureError, partner: &mut Partner) -> Result<String, MeasureError> {
    match error {
        // Another tool's server has a session for each test, and may not do this one.
        MeasureError::Refused { .. }
        | MeasureError::Lacks { .. }
        | MeasureError::Foreign { .. } => {}
        MeasureError::Option(_) => partner.renew()?,
        _ => return Err(error),
    }
    Ok(error.to_string())
}

//! A proof under way: which run comes next, and what the runs have shown.
//!
//! [`linerate_core::proof`] decides; whoever makes the runs of a direction asks it here.

use std::time::Instant;

use linerate_core::ceilings;
use linerate_core::plan::Test;
use linerate_core::proof::{PlainRuns, ProofBudget, ProofRun, Prover, RunFigures, words};
use linerate_core::record::{Cause, Record, median_run};

use crate::campaign::Observer;
use crate::error::MeasureError;
use crate::partner::Partner;

/// The proof of one direction, which begins with its first plain run.
#[derive(Debug)]
pub(crate) struct Proof {
    prover: Prover,
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
        if ranking.is_empty() && seen.has_closing_window() {
            ranking.push((Cause::ApplicationReceive, 1.0));
        }
        let prover = Prover::new(test, &seen, &ranking, &[figures], budget, test.seed);
        Some(Self { prover })
    }

    /// The run to make; `None` once there is nothing more to find out or to spend.
    pub(crate) fn next_run(&mut self) -> Option<ProofRun> {
        self.prover.next_run()
    }

    /// Takes the run that was made, which took so many seconds in all.
    pub(crate) fn record(&mut self, record: &Record, seconds: f64) {
        match RunFigures::of(record, seconds) {
            Some(figures) => self.prover.record(figures),
            None => self.prover.skip("nothing arrived"),
        }
    }

    /// Takes note that an end refused the run; another error is given back. What this end's kernel
    /// refused has left a test half open at the endpoint: the session is renewed.
    pub(crate) fn refused(
        &mut self,
        error: MeasureError,
        partner: &mut Partner,
    ) -> Result<(), MeasureError> {
        match error {
            // Another tool's server has a session for each test, and may not do this one.
            MeasureError::Refused { .. }
            | MeasureError::Lacks { .. }
            | MeasureError::Foreign { .. } => {}
            MeasureError::Option(_) => partner.renew()?,
            _ => return Err(error),
        }
        self.prover.skip(&error.to_string());
        Ok(())
    }

    /// Writes what the runs have shown into a record of one of the plain ones.
    pub(crate) fn conclude(&self, record: &mut Record) {
        let findings = self.prover.findings();
        if let [leg] = &mut record.legs[..] {
            leg.experiments = findings.experiments;
            leg.experiments_not_made = findings.not_made;
        }
        ceilings::prove(record, &findings.proof);
    }
}

/// The causes that the run's own evidence names, with weights. What comes nearest where nothing was
/// found is not named by it.
fn ranking(record: &Record) -> Vec<(Cause, f64)> {
    let found = record.verdict().filter(|verdict| verdict.cause != Cause::Unexplained);
    let Some(verdict) = found else {
        return Vec::new();
    };
    let sure = verdict.confidence.unwrap_or(0.0);
    let next = verdict.runner_up.as_ref().filter(|next| next.cause != Cause::Unexplained);
    let next = next.map(|next| (next.cause, 1.0 - sure));
    [(verdict.cause, sure)].into_iter().chain(next).collect()
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
    let mut plain: Vec<Record> = Vec::new();
    let mut proof: Option<Proof> = None;
    let mut ended = None;
    for number in 1.. {
        let run = match &mut proof {
            None => ProofRun::Plain,
            Some(proof) => match proof.next_run() {
                Some(run) => run,
                None => break,
            },
        };
        let asked = match &run {
            ProofRun::Plain => {
                observer.phase(&format!("run {number}"));
                test
            }
            ProofRun::Changed { change, test } => {
                observer.phase(&format!("run {number}: {}", words(change)));
                test
            }
        };
        let began = Instant::now();
        let (record, error) = match (partner.run_once(asked, observer), &mut proof) {
            (Ok(made), _) => made,
            (Err(error), None) => return Err(error),
            (Err(error), Some(_)) if run == ProofRun::Plain => {
                ended = Some(error);
                break;
            }
            (Err(error), Some(proof)) => match proof.refused(error, partner) {
                Ok(()) => continue,
                Err(error) => {
                    ended = Some(error);
                    break;
                }
            },
        };
        let seconds = began.elapsed().as_secs_f64();
        match &mut proof {
            Some(proof) if error.is_none() => proof.record(&record, seconds),
            Some(_) => {}
            None => proof = Proof::new(test, &record, seconds, budget),
        }
        if run == ProofRun::Plain {
            plain.push(record);
        }
        ended = error;
        if ended.is_some() || proof.is_none() {
            break;
        }
    }
    let mut record = median_run(plain.iter()).unwrap_or(&plain[0]).clone();
    if let Some(proof) = &proof {
        proof.conclude(&mut record);
    }
    Ok((record, ended))
}

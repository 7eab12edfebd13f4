//! A proof under way: which run comes next, and what the runs have shown.
//!
//! [`linerate_core::proof`] decides; whoever makes the runs of a direction asks it here.

use linerate_core::ceilings;
use linerate_core::plan::Test;
use linerate_core::proof::{PlainRuns, ProofBudget, ProofRun, Prover, RunFigures, intervention};
use linerate_core::record::{Cause, Record};

use crate::error::MeasureError;

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
        let ranking = ranking(first);
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

    /// Takes note that an end refused the run; another error is given back.
    pub(crate) fn refused(&mut self, error: MeasureError) -> Result<(), MeasureError> {
        let is_refusal = matches!(
            error,
            MeasureError::Refused { .. } | MeasureError::Lacks { .. } | MeasureError::Option(_)
        );
        if is_refusal { Ok(self.prover.skip(&error.to_string())) } else { Err(error) }
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

/// The change in words, for the line that says what goes on.
pub(crate) fn words(change: &str) -> &'static str {
    intervention(change).map_or("", |intervention| intervention.words)
}

/// The causes that the run's own evidence names, with weights.
fn ranking(record: &Record) -> Vec<(Cause, f64)> {
    let Some(verdict) = record.verdict() else {
        return Vec::new();
    };
    let sure = verdict.confidence.unwrap_or(0.0);
    let next = verdict.runner_up.as_ref().map(|next| (next.cause, 1.0 - sure));
    let all = [(verdict.cause, sure)].into_iter().chain(next);
    all.filter(|(cause, weight)| *cause != Cause::Unexplained && *weight > 0.0).collect()
}

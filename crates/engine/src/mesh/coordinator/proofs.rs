//! Proofs of what limits the pairs of suspects.
//!
//! When all pairs of a test have a result more, the matrix is asked which sites and groups explain
//! the bad ones. The worst pair of each is proved: its runs are tasks like all others, each within
//! the limits of both owners, and changed as the proof says. They are no results of the pair, but
//! for the one at the end that has the proof.

use std::time::{Duration, Instant};

use linerate_core::plan::{Direction, Test};
use linerate_core::proof::{PROOF_RUNS, ProofBudget, is_provable};
use linerate_core::record::Record;
use linerate_core::units::format_rfc3339_seconds;
use linerate_history::{Filter, HistoryError, PairRun, Since};
use linerate_mesh::message::{Outcome, Report};
use linerate_mesh::{Assignment, Input, MatrixCell, MatrixDocument, Mesh, Offered};

use super::{Coordinator, test_of};
use crate::clock::since_1970_s;
use crate::monitor::PROOF;
use crate::proof::ProofRuns;

/// A suspect is proved once in so many seconds, for as long as it is one.
const PROVED_FOR_S: u64 = 86_400;
/// Most sites of a test whose matrix is looked at: its pairs are held in memory meanwhile.
const MAX_SITES_PROVED: usize = 300;
/// What the runs of a proof may take, by their number alone: each is within all budgets.
const BUDGET: ProofBudget =
    ProofBudget { runs: PROOF_RUNS as u32, seconds: f64::INFINITY, bytes: f64::INFINITY };

/// A proof under way of what limits a pair of sites.
pub(super) struct PairProof {
    /// The test, and the sites as in an assignment.
    pair: (usize, usize, usize),
    /// The suspect as a label.
    suspect: String,
    /// When it is given up.
    until: Instant,
    /// Its runs; `None` until the first is asked for.
    runs: Option<ProofRuns>,
}

impl PairProof {
    /// The test of the run that is asked for; `plain` is that of the file.
    pub(super) fn work(&mut self, plain: Test) -> Test {
        let runs = self.runs.get_or_insert_with(|| ProofRuns::new(plain.clone(), BUDGET));
        runs.next().map_or(plain, |(test, _)| test.clone())
    }

    /// Takes a run, or why there is none. True if another one is to be made.
    fn take(&mut self, made: Result<Record, String>) -> bool {
        let Some(runs) = &mut self.runs else {
            return false;
        };
        match made {
            Ok(record) => {
                let seconds = record.seconds + record.plan.warm_up.as_secs_f64();
                runs.take(record, seconds);
            }
            Err(why) => runs.skip(&why),
        }
        // A task has the time of a plain run.
        while runs.is_longer() {
            runs.skip("the runs of a mesh have one length");
        }
        runs.next().is_some()
    }
}

impl Coordinator<'_> {
    /// Counts a result of a test, and asks for proofs when there are as many as pairs.
    pub(super) fn count(&mut self, test: usize) {
        self.results[test] += 1;
        let mesh_test = &self.mesh.tests[test];
        let sites = mesh_test.sites.len();
        if self.results[test] < sites * (sites - 1) / 2 {
            return;
        }
        self.results[test] = 0;
        let work =
            test_of(&mesh_test.work).filter(|work| sites <= MAX_SITES_PROVED && is_provable(work));
        let Some(direction) = work.map(|work| work.direction) else {
            return;
        };
        if let Err(error) = self.prove_suspects(test, direction) {
            (self.say)(&format!(
                "suspects were not proved, tried again in the next cycle: {error}"
            ));
        }
    }

    fn prove_suspects(&mut self, test: usize, direction: Direction) -> Result<(), HistoryError> {
        let until = format_rfc3339_seconds(since_1970_s() + 1);
        let name = self.mesh.tests[test].name.clone();
        let runs = self.history.matrix(&name, Some(&until))?;
        let cells = runs.iter().filter_map(|run| matrix_cell(&self.mesh, run));
        let matrix = MatrixDocument::new(&self.mesh, test, &until, cells);
        for suspect in &matrix.suspects {
            let Some([sender, receiver]) = suspect.pair.map(|pair| pair.map(|it| it as usize))
            else {
                continue;
            };
            let label = suspect.label();
            let of_today =
                Filter { since: Some(Since::Ago(PROVED_FOR_S)), ..proofs_of(&name, &label) };
            let (from, to) = match direction {
                Direction::Down => (receiver, sender),
                Direction::Up | Direction::Both => (sender, receiver),
            };
            let pair = (test, from, to);
            let is_same =
                |it: &PairProof| it.pair == pair || (it.pair.0 == test && it.suspect == label);
            if self.proofs.iter().any(is_same) || !self.history.list(&of_today)?.is_empty() {
                continue;
            }
            let longest = Duration::from_nanos(self.mesh.tests[test].max_duration().0);
            self.proofs.push(PairProof {
                pair,
                suspect: label,
                until: Instant::now() + longest * 2 * PROOF_RUNS as u32,
                runs: None,
            });
            self.schedule.handle_input(self.now(), Input::Prove { test, from, to });
        }
        Ok(())
    }

    /// The proof of which an assignment is a run.
    pub(super) fn proof_of(&mut self, assignment: &Assignment) -> Option<&mut PairProof> {
        let pair = (assignment.test, assignment.from, assignment.to);
        self.proofs.iter_mut().find(|it| assignment.is_proof && it.pair == pair)
    }

    /// Gives up the proofs that take too long: their sites are away, or their budgets spent.
    pub(super) fn give_up_proofs(&mut self) {
        for late in self.proofs.extract_if(.., |it| Instant::now() >= it.until) {
            (self.say)(&format!("{} was not proved: its runs took too long", late.suspect));
        }
    }

    /// Takes the report on a run of a proof. What an earlier coordinator asked for is dropped: the
    /// proof has ended with it.
    pub(super) fn take_of_proof(&mut self, report: &Report, said: &str, offered: &Offered) {
        let Some(open) = self.open.get(&report.id) else {
            return;
        };
        let waited = Some(self.now() - open.assignment.assigned_at);
        let made = match &report.outcome {
            Outcome::Started => return self.note(report, None),
            Outcome::Finished { .. } if self.is_too_soon(report) => {
                Err("its result came sooner than its test lasts".to_owned())
            }
            Outcome::Finished { document } => self.record(offered, waited, document),
            Outcome::Failed { why } | Outcome::Refused { why } => Err(why.clone()),
        };
        let bytes = made.as_ref().ok().map(Record::bytes);
        let pair = (offered.test, offered.from, offered.to);
        if let Some(at) = self.proofs.iter().position(|it| it.pair == pair) {
            let mut proof = self.proofs.swap_remove(at);
            if proof.take(made) {
                let (test, from, to) = pair;
                // Before the sites are free for others.
                self.schedule.handle_input(self.now(), Input::Prove { test, from, to });
                self.proofs.push(proof);
            } else {
                self.end_proof(report, said, offered, proof);
            }
        }
        self.note(report, bytes);
    }

    fn end_proof(&mut self, report: &Report, said: &str, offered: &Offered, proof: PairProof) {
        let PairProof { suspect, runs, .. } = proof;
        let has_proof = |record: &Record| record.verdict().is_some_and(|it| it.proof.is_some());
        let Some(record) = runs.as_ref().and_then(ProofRuns::conclude).filter(has_proof) else {
            return (self.say)(&format!("{suspect} was not proved: no run of it had a rate"));
        };
        let label = (PROOF.to_owned(), suspect);
        if let Err(error) = self.save_record(report, said, offered, &record, Some(label)) {
            (self.say)(&format!("{said}: its proof was not saved: {error}"));
        }
    }
}

/// The filter that finds the last proof of a suspect of a test.
pub fn proofs_of(test: &str, suspect: &str) -> Filter {
    let labels =
        [(PROOF, suspect), ("test", test)].map(|(key, value)| (key.to_owned(), value.to_owned()));
    Filter { labels: labels.to_vec(), most: Some(1), ..Filter::default() }
}

/// The result of a run; none if one of its sites is not in the file.
pub fn matrix_cell(mesh: &Mesh, run: &PairRun) -> Option<MatrixCell> {
    let it = &run.figures;
    // A cause that only a later version knows is left out.
    let known = |name: &String| serde_json::from_value(name.as_str().into()).ok();
    Some(MatrixCell {
        from: mesh.site(&it.from)? as u32,
        to: mesh.site(&it.to)? as u32,
        started_at: run.started_at.clone(),
        throughput_bps: it.throughput_bps,
        loss_percent: it.loss_percent,
        rtt_us: it.rtt_us,
        cause: it.cause.as_ref().and_then(known),
        confidence: it.confidence,
    })
}

//! One run of a task, by the same engine as the commands and without a terminal.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use linerate_core::monitor::{Monitor, MonitoredPath, MonitoredWork, Task};
use linerate_core::plan::{Plan, Test};
use linerate_core::proof::ProofBudget;
use linerate_core::units::ByteCount;
use linerate_engine::monitor::{MonitorRun, parts};
use linerate_engine::{BulkOptions, CheckOptions, Target};
use linerate_report::Document;

use crate::args::PathOptions;
use crate::failure::Failure;
use crate::plan::fresh_seed;
use crate::progress::Progress;
use crate::run::{self, Measured};
use crate::target::{check_sizes, look_up};
use crate::turn::Turn;

/// Runs a task; with `proof`, runs and changes of it that carry so many bytes together at most.
/// `turn` shows its progress to other processes.
///
/// # Errors
/// Nothing was measured, or the run ended early.
pub(crate) fn measure(
    monitor: &Monitor,
    task: Task,
    turn: Option<Arc<Turn>>,
    proof: Option<u64>,
) -> Result<MonitorRun<Box<dyn Document>>, Failure> {
    let (test, path) = parts(monitor, task);
    let mut progress = Progress::of_turn(turn);
    let options = PathOptions {
        family: path.family.into(),
        key_file: path.key_file.as_ref().map(PathBuf::from),
        ..PathOptions::default()
    };
    let target = look_up(path.host.clone(), &options, &mut progress)?;
    let is_proof = proof.is_some();
    let runs = test.work.proof_runs().filter(|_| is_proof).unwrap_or(1);
    let seconds = runs * test.work.seconds();
    let budget = proof.map(|bytes| ProofBudget {
        seconds: seconds as f64,
        bytes: bytes as f64,
        ..ProofBudget::default()
    });
    let _slot = run::slot(&target, seconds, &mut progress)?;
    let begun = Instant::now();
    let (document, error) = document(target, path, &test.work, budget, progress)?;
    match error {
        // What a proof has shown until then stays true.
        Some(error) if !is_proof => Err(error),
        _ => {
            let carried = carried(&*document, begun.elapsed().as_secs_f64());
            Ok(MonitorRun { document, carried, is_proof })
        }
    }
}

fn document(
    target: Target,
    path: &MonitoredPath,
    work: &MonitoredWork,
    proof: Option<ProofBudget>,
    progress: Progress,
) -> Result<(Box<dyn Document>, Option<Failure>), Failure> {
    let seed = fresh_seed();
    match work {
        MonitoredWork::Test(test) => {
            let plan = Plan::from(Test { seed, ..(**test).clone() });
            check_sizes(&target, &plan)?;
            let (measured, error) = match (proof, &plan.tests[..]) {
                (Some(budget), [test]) => run::prove(&target, None, test, budget, progress, true)?,
                _ => run::plan(&target, None, &plan, progress, true)?,
            };
            let document: Box<dyn Document> = match measured {
                Measured::Record(record) => record,
                Measured::Sweep(sweep) => sweep,
            };
            Ok((document, error))
        }
        MonitoredWork::Load(mix) => {
            let (document, error) = run::load(&[target], mix, seed, progress)?;
            Ok((Box::new(document), error))
        }
        MonitoredWork::Check(check) => {
            let examination = CheckOptions {
                target: Some(target),
                via: None,
                family: path.family,
                quick: check.quick && proof.is_none(),
                prove: proof.is_some(),
                // Each way a quarter: what else a check sends is less than its runs.
                max_bytes: proof.map(|budget| ByteCount((budget.bytes / 4.0) as u64)),
                bulk: BulkOptions {
                    time: check.time.map(|time| time.0),
                    streams: check.streams,
                    ..BulkOptions::default()
                },
                seed,
            };
            let (document, error) = run::check(&examination, progress)?;
            Ok((Box::new(document), error))
        }
    }
}

/// The measured rate, over the whole time that the run took; of a proof what all its runs carried,
/// which had other rates.
fn carried(document: &dyn Document, seconds: f64) -> u64 {
    if let Some([only]) = document.records().as_deref()
        && let Some(bytes) = only.leg().and_then(|leg| leg.experiments_bytes)
    {
        return bytes;
    }
    let rates = document.throughputs().unwrap_or_default();
    let bps: f64 = rates.into_iter().filter_map(|(_, rate)| rate).sum();
    (bps / 8.0 * seconds) as u64
}

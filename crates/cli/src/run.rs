//! The engine's calls that several commands share: a checked plan goes in, a document comes out.

use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use linerate_core::foreign::Tool;
use linerate_core::load::{LoadDocument, Mix};
use linerate_core::plan::{Plan, Repeats, Test};
use linerate_core::proof::ProofBudget;
use linerate_core::record::{Baseline, Check, Record, Sweep};
use linerate_core::units::Span;
use linerate_engine::{
    Campaign, CheckOptions, Partner, Slot, Stop, Target, prove_bottleneck, stop_on_signal,
};
use linerate_report::Document;

use crate::failure::Failure;
use crate::progress::Progress;

/// Runs a plan against an endpoint. If it ends early, the document has a caveat that says why, and
/// the error stands beside it.
///
/// # Errors
/// Nothing was measured: refused, unreachable, timed out, or this host lacks something.
pub(crate) fn plan(
    target: &Target,
    via: Option<Tool>,
    plan: &Plan,
    progress: Progress,
    is_kept: bool,
) -> Result<(Measured, Option<Failure>), Failure> {
    let mut client = Partner::connect(target.clone(), via, signals()?)?;
    let mut shown = of_plan(progress, plan).keeps(is_kept);
    let campaign = client.run_plan(plan, &mut shown)?;
    Ok(document(campaign, plan))
}

/// The progress in the unit of a plan's tests.
fn of_plan(progress: Progress, plan: &Plan) -> Progress {
    progress.counts(plan.tests.first().map(Test::workload))
}

/// Runs a plan until the user ends it, which is no early end, or the endpoint's owner does.
///
/// # Errors
/// As [`plan`].
pub(crate) fn until_stopped(
    target: &Target,
    via: Option<Tool>,
    plan: &Plan,
    mut progress: Progress,
    is_kept: bool,
) -> Result<(Measured, Option<Failure>), Failure> {
    let mut client = Partner::connect(target.clone(), via, signals()?)?;
    let longest = client.set_open_ended().and_then(Span::from_secs_f64);
    let limit = longest.map(|longest| format!(", or for {longest}, the endpoint's limit"));
    progress.line(&format!("until Ctrl-C{}", limit.unwrap_or_default()));
    let mut shown = of_plan(progress, plan).keeps(is_kept);
    let campaign = client.run_plan(plan, &mut shown)?;
    Ok(document(campaign, plan))
}

/// Runs a test, and changes of it that prove what holds it back.
///
/// # Errors
/// As [`plan`].
pub(crate) fn prove(
    target: &Target,
    via: Option<Tool>,
    test: &Test,
    budget: ProofBudget,
    progress: Progress,
    is_kept: bool,
) -> Result<(Measured, Option<Failure>), Failure> {
    let mut partner = Partner::connect(target.clone(), via, signals()?)?;
    if let Partner::Own(client) = &mut partner {
        client.find_link_rate(test.direction, test.seed);
    }
    let mut shown = progress.keeps(is_kept);
    let (record, error) = prove_bottleneck(&mut partner, test, budget, &mut shown)?;
    Ok((Measured::Record(Box::new(record)), error.map(Failure::from)))
}

/// Longest wait for the slot of an endpoint: a monitor has other paths to measure.
const SLOT_PATIENCE: Duration = Duration::from_secs(60);

/// Takes the endpoint's slot for a test of about `seconds`.
///
/// # Errors
/// Another client keeps it for longer than [`SLOT_PATIENCE`], or the endpoint cannot be reached.
pub(crate) fn slot(
    target: &Target,
    seconds: u64,
    progress: &mut Progress,
) -> Result<Slot, Failure> {
    // The slot is given back after the test; a test that is slow must not lose it before.
    let lasts = Duration::from_secs(2 * seconds + 10);
    let mut told = |left: Duration| {
        let left = left.as_secs() + 1;
        progress.phase(&format!(
            "waiting: another client has the endpoint's slot, for {left} s more at most"
        ));
    };
    Slot::take(target.clone(), lasts, SLOT_PATIENCE, &signals()?, &mut told).map_err(Failure::from)
}

/// What a plan leaves: a record, or several in a sweep.
#[derive(Debug)]
pub(crate) enum Measured {
    Record(Box<Record>),
    Sweep(Box<Sweep>),
}

impl Measured {
    pub(crate) fn document(&mut self) -> &mut dyn Document {
        match self {
            Self::Record(record) => &mut **record,
            Self::Sweep(sweep) => &mut **sweep,
        }
    }

    /// What changed since an earlier run.
    pub(crate) fn baseline(&mut self) -> &mut Option<Baseline> {
        match self {
            Self::Record(record) => &mut record.baseline,
            Self::Sweep(sweep) => &mut sweep.baseline,
        }
    }
}

fn document(campaign: Campaign, plan: &Plan) -> (Measured, Option<Failure>) {
    let Campaign { mut rows, figures, caveats, error } = campaign;
    let failed = error.map(Failure::from);
    let single = plan.tests.len() == 1 && matches!(plan.repeats, Repeats::Times(1));
    if single && let Some(record) = rows.pop() {
        return (Measured::Record(Box::new(record)), failed);
    }
    let sweep = Sweep::new(rows, figures, caveats);
    (Measured::Sweep(Box::new(sweep)), failed)
}

/// Examines a path.
///
/// # Errors
/// As [`plan`].
pub(crate) fn check(
    options: &CheckOptions,
    progress: Progress,
) -> Result<(Check, Option<Failure>), Failure> {
    let mut shown = progress.keeps(true);
    let (check, error) = linerate_engine::check(options, &signals()?, &mut shown)?;
    Ok((check, error.map(Failure::from)))
}

/// Runs a mix of tests.
///
/// # Errors
/// As [`plan`].
pub(crate) fn load(
    targets: &[Target],
    mix: &Mix,
    seed: u64,
    progress: Progress,
) -> Result<(LoadDocument, Option<Failure>), Failure> {
    let mut shown = progress.keeps(true);
    let loaded = linerate_engine::load(targets, mix, seed, &signals()?, &mut shown);
    let (document, error) = loaded?;
    Ok((document, error.map(Failure::from)))
}

/// The stop that SIGINT, SIGTERM and SIGHUP request, the same for everything in this process.
///
/// # Errors
/// The signals cannot be caught.
pub(crate) fn signals() -> Result<Stop, Failure> {
    static STOP: OnceLock<Stop> = OnceLock::new();
    if let Some(stop) = STOP.get() {
        return Ok(stop.clone());
    }
    let stop = stop_on_signal().context("cannot catch signals").map_err(Failure::unsupported)?;
    Ok(STOP.get_or_init(|| stop).clone())
}

/// Waits until a signal ends the command, while other threads do its work.
pub(crate) fn wait_for(stop: &Stop) {
    while !stop.is_requested() {
        thread::sleep(Duration::from_millis(100));
    }
}

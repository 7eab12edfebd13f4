//! What a policy costs: every cell of a plan on an emulated link of its own rate, its three
//! treatments in turn.
//!
//! What is run and what it amounts to is in [`linerate_qos::cost`]; this gives it the runs, and
//! what the programs take by themselves (`direct`).

mod direct;
mod error;

use std::path::Path;
use std::time::SystemTime;

use linerate_core::experiment::Run;
use linerate_core::link::PathSpec;
use linerate_core::record::{Caveat, CaveatKind, Interval, Status};
use linerate_core::units::format_rfc3339;
use linerate_qos::cost::{
    Book, COST_SCHEMA, Cell, CostPolicy, Plan, QosCost, TREATMENTS, Treatment,
};

pub use error::CostError;

use crate::experiment::{ExperimentObserver, ExperimentProgress, ExperimentSite, make_runs};
use crate::host;
use crate::lab::{LabOptions, LabPath};
use crate::stop::Stop;
use crate::words::chain;

/// What is measured.
#[derive(Debug, Clone)]
pub struct CostOptions {
    /// The runs.
    pub plan: Plan,
    /// The user's policy: its file's name, and its text with the adapter `*`.
    pub policy: Option<(String, String)>,
    /// Differences up to so many percent count as none.
    pub margin_percent: f64,
}

/// A run that begins.
#[derive(Debug, Clone, Copy)]
pub struct CostProgress<'a> {
    /// Its cell.
    pub cell: &'a Cell,
    /// Of which block, from 1.
    pub block: u32,
    /// Under which treatment.
    pub treatment: Treatment,
    /// How many runs have ended.
    pub done: usize,
    /// How many there are to be.
    pub all: usize,
}

/// Makes all runs, each said to `observe` as it begins. What ends them early is in the document as
/// a caveat, and in the error beside it.
///
/// # Errors
/// No row came about: this host has no labs or no eBPF, a policy is wrong, a run failed, or it was
/// interrupted.
pub fn qos_cost(
    options: &CostOptions,
    stop: &Stop,
    observe: &mut (dyn FnMut(CostProgress<'_>) + Send),
) -> Result<(QosCost, Option<CostError>), CostError> {
    let started_at = format_rfc3339(SystemTime::now());
    let policies = policies(options)?;
    // First: a policy that cannot be compiled or loaded is to be known before anything is run.
    let direct = direct::measure(options)?;
    let mut course = Course {
        options,
        book: Book::new(&options.plan, options.margin_percent),
        caveats: Vec::new(),
        done: 0,
    };
    let error = course.run(stop, observe).err();
    let rows = course.book.rows()?;
    let error = match error {
        Some(error) if rows.is_empty() => return Err(error),
        error => error,
    };
    let links = course.book.links();
    let mut caveats: Vec<Caveat> = error.iter().map(partial).collect();
    caveats.extend(course.book.empty_runs());
    caveats.extend(course.caveats);
    caveats.push(one_machine());
    let document = QosCost {
        schema: COST_SCHEMA.to_owned(),
        status: match error {
            Some(_) => Status::Partial,
            None => Status::Complete,
        },
        started_at,
        time_s: options.plan.time.as_secs_f64(),
        blocks: options.plan.pairs,
        margin_percent: options.margin_percent,
        policies,
        links,
        direct,
        rows,
        caveats,
        host: host::facts(None),
        seed: options.plan.seed,
    };
    Ok((document, error))
}

/// What there is of it so far.
struct Course<'a> {
    options: &'a CostOptions,
    book: Book<'a>,
    caveats: Vec<Caveat>,
    done: usize,
}

impl Course<'_> {
    /// Cells of one link and family share a lab: what is left of one run does no harm to the next,
    /// since all three treatments come after each other in random order.
    fn run(
        &mut self,
        stop: &Stop,
        observe: &mut (dyn FnMut(CostProgress<'_>) + Send),
    ) -> Result<(), CostError> {
        let cells = &self.options.plan.cells;
        let kind = |cell: &Cell| (cell.lab(), cell.family);
        let mut number = 0;
        for group in cells.chunk_by(|a, b| kind(a) == kind(b)) {
            let path = build(&group[0], self.options.plan.seed)?;
            let outcome = group.iter().try_for_each(|_| {
                number += 1;
                self.run_cell(number - 1, &path, stop, observe)
            });
            for caveat in path.caveats() {
                if !self.caveats.contains(&caveat) {
                    self.caveats.push(caveat);
                }
            }
            outcome?;
        }
        Ok(())
    }

    fn run_cell(
        &mut self,
        number: usize,
        path: &LabPath,
        stop: &Stop,
        observe: &mut (dyn FnMut(CostProgress<'_>) + Send),
    ) -> Result<(), CostError> {
        let plan = &self.options.plan;
        let cell = &plan.cells[number];
        let experiment = plan.experiment(number, &policy_of(self.options, cell))?;
        let site = ExperimentSite {
            directory: Path::new(""),
            traces: &[],
            target: None,
            path: Some(path),
        };
        let mut shown = Shown {
            observe,
            cell,
            before: self.done,
            all: plan.runs(),
        };
        let made = make_runs(
            &experiment,
            &site,
            Vec::new(),
            &mut |_| Ok(()),
            stop,
            &mut shown,
        )?;
        self.done += made.runs.iter().filter(|run| run.counts()).count();
        self.book.enter(number, &experiment, &made.runs);
        let failed = made.runs.iter().filter(|run| !run.counts());
        self.caveats.extend(failed.map(|run| again(cell, run)));
        made.error.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Of an experiment's runs, for who looks on.
struct Shown<'a> {
    observe: &'a mut (dyn FnMut(CostProgress<'_>) + Send),
    cell: &'a Cell,
    before: usize,
    all: usize,
}

impl ExperimentObserver for Shown<'_> {
    fn begins(&mut self, progress: &ExperimentProgress) {
        (self.observe)(CostProgress {
            cell: self.cell,
            block: progress.slot.repeat,
            treatment: TREATMENTS[progress.slot.cell],
            done: self.before + progress.done,
            all: self.all,
        });
    }

    fn interval(&mut self, _: &Interval) -> bool {
        true
    }

    fn made(&mut self, _: &Run) {}
}

/// A run that failed, as on a machine that was busy with something else.
fn again(cell: &Cell, run: &Run) -> Caveat {
    let why = run.error.clone().unwrap_or_else(|| run.faults.join("; "));
    Caveat::new(
        CaveatKind::ExcludedPairs,
        format!(
            "{}, {}, {} B, block {}, {}: {why}; this run is left out",
            cell.link, cell.test, cell.message_bytes, run.repeat, run.treatments
        ),
        "run it on a machine that does less",
    )
}

fn build(cell: &Cell, seed: u64) -> Result<LabPath, CostError> {
    let spec: PathSpec = cell.lab().parse().map_err(CostError::Link)?;
    let options = LabOptions {
        seed,
        ..LabOptions::default()
    };
    Ok(LabPath::build(&spec, Some(cell.family), &options)?)
}

/// The text of the policy that is in force in a cell.
fn policy_of(options: &CostOptions, cell: &Cell) -> String {
    match &options.policy {
        Some((_, text)) if cell.takes_users_policy() => text.clone(),
        _ => cell.policy(),
    }
}

/// What is in force in which tests.
fn policies(options: &CostOptions) -> Result<Vec<CostPolicy>, CostError> {
    let mut policies: Vec<CostPolicy> = Vec::new();
    for cell in &options.plan.cells {
        let file = match &options.policy {
            Some((name, _)) if cell.takes_users_policy() => Some(name.clone()),
            _ => None,
        };
        let filters = direct::read(&policy_of(options, cell))?.filters.len();
        let known = policies
            .iter_mut()
            .find(|known| known.file == file && known.filters == filters);
        match known {
            Some(known) if known.tests.contains(&cell.test) => {}
            Some(known) => known.tests.push(cell.test),
            None => policies.push(CostPolicy {
                tests: vec![cell.test],
                file,
                filters,
            }),
        }
    }
    Ok(policies)
}

fn partial(error: &CostError) -> Caveat {
    Caveat::new(
        CaveatKind::Partial,
        chain(error),
        "run it again; the rows that have a whole block are in the document",
    )
}

fn one_machine() -> Caveat {
    Caveat::new(
        CaveatKind::SharedKernel,
        "both ends and the emulated link run on this machine: its CPU and service demand count \
         them all, for all \
         treatments alike",
        "",
    )
}

//! What a policy costs: every cell of a plan on an emulated link of its own rate, its three
//! treatments in turn.
//!
//! What is run and what it amounts to is in [`linerate_qos::cost`]; this gives it the runs, and
//! what the programs take by themselves (`direct`).

mod direct;
mod error;

use std::thread;
use std::time::SystemTime;

use linerate_core::link::PathSpec;
use linerate_core::record::{Caveat, CaveatKind, Status};
use linerate_core::session::SessionError;
use linerate_core::session::message::RefusalReason;
use linerate_core::treatment::Treatments;
use linerate_core::units::Span;
use linerate_qos::cost::{Book, COST_SCHEMA, Cell, CostPolicy, Plan, QosCost, Slot, Treatment};
use linerate_sys::clock::format_rfc3339;

pub use error::CostError;

use crate::client::Client;
use crate::error::MeasureError;
use crate::host;
use crate::lab::{LabOptions, LabPath};
use crate::stop::Stop;
use crate::treated::run_treated;
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

/// Who looks on.
pub trait CostObserver: Send {
    /// A run begins; `done` of `all` have ended.
    fn begins(&mut self, cell: &Cell, slot: Slot, done: usize, all: usize);
}

impl CostObserver for () {
    fn begins(&mut self, _: &Cell, _: Slot, _: usize, _: usize) {}
}

/// Makes all runs. What ends them early is in the document as a caveat, and in the error beside it.
///
/// # Errors
/// No row came about: this host has no labs or no eBPF, a policy is wrong, a run failed, or it was
/// interrupted.
pub fn qos_cost(
    options: &CostOptions,
    stop: &Stop,
    observer: &mut dyn CostObserver,
) -> Result<(QosCost, Option<CostError>), CostError> {
    let started_at = format_rfc3339(SystemTime::now());
    let policies = policies(options)?;
    // First: a policy that cannot be compiled or loaded is to be known before anything is run.
    let direct = direct::measure(options)?;
    let mut course = Course {
        options,
        book: Book::new(&options.plan, options.margin_percent),
        caveats: Vec::new(),
        excluded: None,
        done: 0,
    };
    let error = course.run(stop, observer).err();
    let rows = course.book.rows()?;
    let error = match (error, course.excluded) {
        (Some(error), _) if rows.is_empty() => return Err(error),
        (None, Some(excluded)) if rows.is_empty() => return Err(excluded.into()),
        (error, _) => error,
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

/// The runs under way.
struct Course<'a> {
    options: &'a CostOptions,
    book: Book<'a>,
    caveats: Vec<Caveat>,
    /// Why the last run was left out that was.
    excluded: Option<MeasureError>,
    done: usize,
}

impl Course<'_> {
    /// Cells of one link and family share a lab: what is left of one run does no harm to the next,
    /// since all three treatments come after each other in random order.
    fn run(&mut self, stop: &Stop, observer: &mut dyn CostObserver) -> Result<(), CostError> {
        let cells = &self.options.plan.cells;
        let mut first = 0;
        let kind = |cell: &Cell| (cell.lab(), cell.family);
        for group in cells.chunk_by(|a, b| kind(a) == kind(b)) {
            let numbers = first..first + group.len();
            first += group.len();
            let path = build(&group[0], self.options.plan.seed)?;
            // The calling thread stays where it is: the next lab is made from there.
            let outcome = thread::scope(|scope| {
                let runs = scope.spawn(|| {
                    path.enter()?;
                    numbers
                        .into_iter()
                        .try_for_each(|cell| self.run_cell(cell, &path, stop, observer))
                });
                runs.join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
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
        observer: &mut dyn CostObserver,
    ) -> Result<(), CostError> {
        let plan = &self.options.plan;
        let cell = &plan.cells[number];
        let all = plan.cells.len() * 3 * plan.pairs as usize;
        let mut client = Client::connect(path.target(), stop.clone())?;
        // Connections that begin after a pause, caches that are cold: none of it is the first run's
        // fault.
        run_treated(
            &mut client,
            &cell.run(SHORT, plan.seed),
            &Treatments::default(),
            &mut (),
        )?;
        for slot in plan.slots(number) {
            observer.begins(cell, slot, self.done, all);
            let seed = plan.seed.wrapping_add(u64::from(slot.block));
            let treatments = treatments(self.options, cell, slot.treatment)?;
            let test = cell.run(plan.time, seed);
            match run_treated(&mut client, &test, &treatments, &mut ()) {
                Ok(record) => self.book.enter(slot, &record),
                Err(error) if is_timeout(&error) => {
                    self.exclude(cell, slot, error);
                    client = Client::connect(path.target(), stop.clone())?;
                }
                Err(error) => return Err(error.into()),
            }
            self.done += 1;
        }
        Ok(())
    }

    /// A run that did not come about is left out, and its block with it; the others go on.
    fn exclude(&mut self, cell: &Cell, slot: Slot, error: MeasureError) {
        self.caveats.push(Caveat::new(
            CaveatKind::ExcludedPairs,
            format!(
                "{}, {}, {} B, block {}, {}: {}; the block is left out",
                cell.link,
                cell.test,
                cell.message_bytes,
                slot.block + 1,
                slot.treatment.name(),
                chain(&error)
            ),
            "run it on a machine that does less",
        ));
        self.excluded = Some(error);
    }
}

/// An answer that a busy machine did not give in time: the next run may well have its own.
fn is_timeout(error: &MeasureError) -> bool {
    match error {
        MeasureError::Session { reason, .. } => match reason {
            SessionError::Refused(refusal) => refusal.reason == RefusalReason::Timeout,
            reason => matches!(reason, SessionError::Timeout(_)),
        },
        MeasureError::Refused { refusal, .. } => refusal.reason == RefusalReason::Timeout,
        _ => false,
    }
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

fn treatments(
    options: &CostOptions,
    cell: &Cell,
    treatment: Treatment,
) -> Result<Treatments, CostError> {
    let text = match treatment {
        Treatment::Without => "none",
        Treatment::Passthrough => "qos=passthrough",
        Treatment::Policy => "qos=policy",
    };
    let mut treatments: Treatments = text.parse()?;
    treatments.load(&|_| Ok(policy_of(options, cell)))?;
    Ok(treatments)
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
        "both ends and the emulated link run on this machine: its CPU and service demand count them all, for all \
         treatments alike",
        "",
    )
}

/// A warm-up that nobody counts.
const SHORT: Span = Span(std::time::Duration::from_millis(50));

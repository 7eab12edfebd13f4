//! Two treatments against each other: pairs of runs in random order until there is an answer.
//!
//! What decides is in [`linerate_core::compare`]; this gives it the runs.

mod document;
mod preflight;

use linerate_core::compare::{
    Comparison, Design, Fault, Ledger, Metric, Order, ReadBack, Schedule, Side, Standing,
};
use linerate_core::plan::Test;
use linerate_core::record::Record;
use linerate_core::treatment::Treatments;

use crate::campaign::Observer;
use crate::client::Client;
use crate::error::MeasureError;
use crate::treated::{self, Treated};

/// What is compared and how.
#[derive(Debug, Clone)]
pub struct CompareOptions {
    /// The treatment that the other is compared with, its controls added.
    pub a: Treatments,
    /// The treatment whose effect is told, its controls added.
    pub b: Treatments,
    /// What is run under both.
    pub test: Test,
    /// Figures to compare, the one that decides first; not empty.
    pub metrics: Vec<Metric>,
    /// How many pairs, with which seed and margin.
    pub design: Design,
    /// Faults that exclude a pair.
    pub forbidden: Vec<Fault>,
    /// What the document is to say besides, such as the controls that were added.
    pub notes: Vec<String>,
}

/// Who looks on while treatments are compared.
pub trait CompareObserver: Observer {
    /// A pair has ended.
    fn pair(&mut self, standing: &Standing<'_>);
}

impl CompareObserver for () {
    fn pair(&mut self, _: &Standing<'_>) {}
}

/// Compares two treatments. What ends it early is in the document as a caveat, and in the error
/// beside it.
///
/// # Errors
/// No pair came about: a treatment cannot be applied, a figure is not there, the endpoint refuses,
/// the run fails, or it was interrupted. Nothing is left changed then.
pub fn compare(
    client: &mut Client,
    options: &CompareOptions,
    observer: &mut dyn CompareObserver,
) -> Result<(Comparison, Option<MeasureError>), MeasureError> {
    let mut ledger = Ledger::new(options.metrics.clone(), &options.forbidden, &options.design)?;
    let preflight = preflight::examine(client, options, observer)?;
    let mut read_back = ReadBack::default();
    let mut error = None;
    for order in Schedule::new(options.design.seed) {
        if ledger.is_over() {
            break;
        }
        match run_pair(client, options, order, &ledger, &mut read_back, observer) {
            Ok([a, b]) => ledger.enter(order, &a, &b)?,
            Err(failed) if ledger.pairs().is_empty() => return Err(failed),
            Err(failed) => {
                error = Some(failed);
                break;
            }
        }
        if let Some(standing) = ledger.standing() {
            observer.pair(&standing);
        }
    }
    let document = document::assemble(
        client,
        options,
        &ledger,
        preflight,
        read_back,
        error.as_ref(),
    )?;
    Ok((document, error))
}

/// One run under each treatment, in this order; A's record first.
fn run_pair(
    client: &mut Client,
    options: &CompareOptions,
    order: Order,
    ledger: &Ledger,
    read_back: &mut ReadBack,
    observer: &mut dyn CompareObserver,
) -> Result<[Record; 2], MeasureError> {
    let number = ledger.pairs().len() as u64 + 1;
    // Both runs of a pair draw the same random choices.
    let test = Test {
        seed: options.test.seed.wrapping_add(number),
        ..options.test.clone()
    };
    let mut run = |side: Side| {
        observer.phase(&format!("pair {number}, {}", side.name()));
        let Treated {
            record,
            read_back: settings,
        } = treated::run(client, &test, options.treatments(side), observer)?;
        match side {
            Side::A => read_back.a = settings,
            Side::B => read_back.b = settings,
        }
        Ok::<_, MeasureError>(record)
    };
    let [first, second] = order.sides();
    let (first_record, second_record) = (run(first)?, run(second)?);
    Ok(match first {
        Side::A => [first_record, second_record],
        Side::B => [second_record, first_record],
    })
}

impl CompareOptions {
    fn treatments(&self, side: Side) -> &Treatments {
        match side {
            Side::A => &self.a,
            Side::B => &self.b,
        }
    }
}

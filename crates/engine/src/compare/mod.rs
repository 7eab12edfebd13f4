//! Two treatments against each other: pairs of runs in random order until there is an answer, and
//! the document of them.
//!
//! What decides is in [`linerate_core::compare`]; this gives it the runs.

mod preflight;

use std::io;
use std::time::{Duration, Instant};

use linerate_core::compare::{
    COMPARISON_SCHEMA, Comparison, ComparisonVerdict, Design, Fault, Ledger, Metric, Order,
    ReadBack, Schedule, Side, Standing,
};
use linerate_core::plan::Test;
use linerate_core::record::{Caveat, CaveatKind, Status};
use linerate_core::stats::Figure;
use linerate_core::treatment::Treatments;
use preflight::Preflight;

use crate::campaign::Observer;
use crate::client::Client;
use crate::error::MeasureError;
use crate::lab::LabPath;
use crate::load::LoadBeside;
use crate::treated::{self, Treated, What};
use crate::words::chain;

/// Test, treatments and metrics of a comparison.
#[derive(Debug, Clone)]
pub struct CompareOptions {
    /// The treatment that the other is compared with, its controls added.
    pub a: Treatments,
    /// The treatment whose effect is told, its controls added.
    pub b: Treatments,
    /// Test that is run under both treatments.
    pub test: Test,
    /// A load beside every run, which ends with it.
    pub with: Option<Test>,
    /// Figures to compare, the one that decides first; not empty.
    pub metrics: Vec<Metric>,
    /// Figures to compare besides, where the runs have them.
    pub metrics_if_there: Vec<Metric>,
    /// How many pairs, with which seed and margin, of all these figures.
    pub design: Design,
    /// Faults that exclude a pair.
    pub forbidden: Vec<Fault>,
    /// What the document is to say besides, such as the controls that were added.
    pub notes: Vec<String>,
    /// What is to be kept in mind and is known before the first run.
    pub caveats: Vec<Caveat>,
}

/// Where each side is run.
#[derive(Debug)]
pub struct Sides<'a> {
    /// The endpoint of A, and of B where that has no path of its own.
    pub a: &'a mut Client,
    /// The endpoint at the end of B's emulated path, and both paths.
    pub b: Option<(&'a mut Client, [&'a LabPath; 2])>,
}

impl Sides<'_> {
    /// The side's endpoint; this thread is moved to the client's end of its path.
    fn of(&mut self, side: Side) -> Result<&mut Client, MeasureError> {
        let Some((b, paths)) = &mut self.b else {
            return Ok(self.a);
        };
        let (path, client) = match side {
            Side::A => (paths[0], &mut *self.a),
            Side::B => (paths[1], &mut **b),
        };
        let refused = |error| MeasureError::host("cannot enter the lab")(io::Error::other(error));
        path.enter().map_err(refused)?;
        Ok(client)
    }
}

/// Who looks on while treatments are compared.
pub trait CompareObserver: Observer {
    /// The first pair begins: there is an answer after so many at least and at most.
    fn begins(&mut self, _pairs: [u32; 2]) {}

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
    let mut sides = Sides { a: client, b: None };
    compare_sides(&mut sides, options, observer)
}

/// The same of two sides that can have a path each; the document is of that of A.
///
/// # Errors
/// As [`compare()`].
pub fn compare_sides(
    sides: &mut Sides<'_>,
    options: &CompareOptions,
    observer: &mut dyn CompareObserver,
) -> Result<(Comparison, Option<MeasureError>), MeasureError> {
    let with = options.with.as_ref();
    let connected = with.map(|with| LoadBeside::connect(sides.a, with, &options.test));
    let mut load = connected.transpose()?;
    if let Some(run_s) = options.test.seconds() {
        let all = options.metrics.iter().chain(&options.metrics_if_there);
        let pairs = options.ledger(all.cloned().collect())?.least_and_most();
        let pair = Duration::from_secs_f64(2.0 * (run_s + BESIDE_S));
        // Before the first pair both ends are watched, and each side runs once.
        observer.takes(pairs.map(|pairs| pair * (pairs + 1)));
    }
    let preflight = preflight::examine(sides, options, &mut load, observer)?;
    let mut ledger = options.ledger(preflight.metrics.clone())?;
    let pairs = ledger.least_and_most();
    observer.begins(pairs);
    observer.takes(pairs.map(|pairs| preflight.pair * pairs));
    let mut read_back = ReadBack::default();
    let mut error = None;
    let began = Instant::now();
    for order in Schedule::new(options.design.seed) {
        if ledger.is_over() {
            break;
        }
        match run_pair(sides, options, order, &ledger, &mut load, observer) {
            Ok([a, b]) => {
                ledger.enter(order, &a.record, &b.record)?;
                if let (Some(a), Some(b)) = (a.load, b.load) {
                    ledger.add_load(a, b);
                }
                read_back = ReadBack { a: a.read_back, b: b.read_back };
            }
            Err(failed) if ledger.pairs().is_empty() => return Err(failed),
            Err(failed) => {
                error = Some(failed);
                break;
            }
        }
        let pair_s = began.elapsed().as_secs_f64() / ledger.pairs().len() as f64;
        if let Some(standing) = ledger.standing(pair_s) {
            observer.takes(standing.left_s().map(Duration::from_secs_f64));
            observer.pair(&standing);
        }
    }
    let document = assemble(sides.a, options, &ledger, preflight, read_back, error.as_ref())?;
    Ok((document, error))
}

/// One run under each treatment, in this order; A's first.
fn run_pair(
    sides: &mut Sides<'_>,
    options: &CompareOptions,
    order: Order,
    ledger: &Ledger,
    load: &mut Option<LoadBeside>,
    observer: &mut dyn CompareObserver,
) -> Result<[Treated; 2], MeasureError> {
    let number = ledger.pairs().len() as u64 + 1;
    // Both runs of a pair draw the same random choices.
    let test = Test { seed: options.test.seed.wrapping_add(number), ..options.test.clone() };
    let mut run = |side: Side| {
        observer.phase(&format!("pair {number}, {}", side.name()));
        let (client, what) = (sides.of(side)?, options.what());
        let treatments = options.treatments(side);
        treated::run(client, &test, what, treatments, load.as_mut(), observer)
    };
    let [first, second] = order.sides();
    let (first_run, second_run) = (run(first)?, run(second)?);
    Ok(match first {
        Side::A => [first_run, second_run],
        Side::B => [second_run, first_run],
    })
}

/// What a run takes besides its own time, seconds: to connect, to treat, to tell.
const BESIDE_S: f64 = 0.3;

impl CompareOptions {
    /// The pairs of runs that are to come, by these figures.
    fn ledger(&self, metrics: Vec<Metric>) -> Result<Ledger, MeasureError> {
        let design = Design { metrics: metrics.len(), ..self.design.clone() };
        Ok(Ledger::new(metrics, &self.forbidden, &design)?)
    }

    fn what(&self) -> What {
        let is_responsiveness = self.metrics.iter().any(Metric::is_responsiveness);
        if is_responsiveness { What::Responsiveness } else { What::Run }
    }

    fn treatments(&self, side: Side) -> &Treatments {
        match side {
            Side::A => &self.a,
            Side::B => &self.b,
        }
    }
}

// The document of a comparison.

/// Puts it together; `error` is what ended it early.
fn assemble(
    client: &Client,
    options: &CompareOptions,
    ledger: &Ledger,
    preflight: Preflight,
    read_back: ReadBack,
    error: Option<&MeasureError>,
) -> Result<Comparison, MeasureError> {
    let metrics = ledger.metrics()?;
    let first = metrics.first().map(|metric| &metric.conclusion);
    let mut caveats: Vec<Caveat> = error.map(partial).into_iter().collect();
    caveats.extend(options.caveats.iter().cloned());
    caveats.extend(preflight.caveats);
    caveats.extend(ledger.caveats());
    caveats.extend(metrics.iter().filter_map(|metric| {
        not_one_figure(metric.metric.as_str(), [("A", &metric.a), ("B", &metric.b)])
    }));
    Ok(Comparison {
        schema: COMPARISON_SCHEMA.to_owned(),
        status: match error {
            Some(_) => Status::Partial,
            None => Status::Complete,
        },
        started_at: preflight.started_at,
        host: client.host().to_owned(),
        peer: client.peer().to_string(),
        would_decide: ledger.would_decide(),
        verdict: first.map_or(ComparisonVerdict::Inconclusive, |first| first.verdict),
        effect_percent: first.map(|first| first.effect_percent),
        interval_percent: first.map(|first| first.interval_percent),
        pairs: first.map_or(0, |first| first.pairs),
        metrics,
        one_sided_faults: ledger.one_sided(),
        a: options.a.clone(),
        b: options.b.clone(),
        lab_b: None,
        read_back,
        plan: options.test.clone(),
        with: options.with.clone(),
        margin_percent: options.design.margin_percent,
        max_pairs: options.design.max_pairs,
        forbidden: options.forbidden.clone(),
        runs: ledger.pairs().to_vec(),
        idle: preflight.idle,
        notes: options.notes.clone(),
        caveats,
        environment: preflight.environment,
        seed: options.design.seed,
        baseline: None,
    })
}

fn partial(error: &MeasureError) -> Caveat {
    Caveat::new(
        CaveatKind::Partial,
        chain(error),
        "run it again; the pairs that ran are in the document",
    )
}

/// The pairs stand up to modes and drifts; a single figure of a side does not.
fn not_one_figure(metric: &str, sides: [(&str, &Figure); 2]) -> Option<Caveat> {
    let odd: Vec<&str> = sides
        .iter()
        .filter(|(_, figure)| !matches!(figure, Figure::One(_)))
        .map(|(name, _)| *name)
        .collect();
    (!odd.is_empty()).then(|| {
        Caveat::new(
            CaveatKind::NotOneFigure,
            format!(
                "{metric} under {} is not one figure: its runs fall into groups, or rise or fall \
                 with time. The comparison is of pairs, which this does not mislead",
                odd.join(" and ")
            ),
            "",
        )
    })
}

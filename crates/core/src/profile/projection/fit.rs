//! Fits the model of an end's CPU time to the runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::design;
use super::document::End;
use super::error::NotProjected;
use super::linear::{Matrix, collinear, dot, non_negative};
use super::observation::{EndWork, Observation};
use super::term::{PerTerm, Term};
use crate::plan::Protocol;
use crate::units::Dice;

/// The costs of the terms at each end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostModel {
    /// The transport.
    pub protocol: Protocol,
    /// The sender and the receiver, or both together where they have one kernel.
    pub ends: Vec<EndModel>,
    /// Points of the design, in the order in which they came to the model.
    pub points: Vec<String>,
}

/// The costs of the terms at one end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EndModel {
    /// The end.
    pub end: End,
    /// The cost of each term that a run exercised.
    pub terms: Vec<TermCost>,
    /// Terms that the design cannot tell apart: their sum is known, their parts are not.
    pub not_told_apart: Vec<Vec<Term>>,
    /// Root of the mean square of what the runs' CPU time differs from the model's, percent of it.
    pub residual_percent: f64,
    /// Number of runs in the fit.
    pub runs: usize,
    #[serde(skip)]
    pub(super) costs: PerTerm,
    /// Costs of the resampled runs.
    #[serde(skip)]
    pub(super) draws: Vec<PerTerm>,
    /// The relative error of each run: measured ÷ modelled − 1.
    #[serde(skip)]
    pub(super) residuals: Vec<f64>,
}

/// The cost of one term.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TermCost {
    /// The term.
    pub term: Term,
    /// CPU time of one event, ns; 0 where none is attributed to it.
    pub ns: f64,
    /// Interval at 95 %, by resampling of residuals, ns.
    pub interval_ns: [f64; 2],
    /// Its part of the CPU time of the design's first point, percent.
    pub share_percent: f64,
}

/// Fits, to runs of one transport, CPU time = Σ count × cost at each end: least squares of relative
/// errors, no cost below 0. Intervals are those of
/// `DRAWS` fits to resampled residuals (Efron and Tibshirani, An Introduction to the Bootstrap,
/// 1993, section 9.4), the residuals made as large as the degrees of freedom say; `seed` draws
/// them.
///
/// # Errors
/// Too few runs for the terms that they exercise; a run without CPU time.
pub fn fit<'a>(runs: &'a [Observation], seed: u64) -> Result<CostModel, NotProjected> {
    let first = runs.first().ok_or_else(|| too_few(0, 0))?;
    let mut points: Vec<String> = Vec::new();
    for run in runs {
        if !points.contains(&run.point) {
            points.push(run.point.clone());
        }
    }
    let base = design::points(first.protocol).next().map_or("", |point| point.name);
    let mut ends = Vec::new();
    for (place, (end, _)) in first.works().into_iter().enumerate() {
        let work = |run: &'a Observation| Some((run.point.as_str(), run.works().get(place)?.1));
        let of_end: Vec<(&str, EndWork)> = runs.iter().filter_map(work).collect();
        ends.push(fit_end(end, &of_end, base, seed.wrapping_add(place as u64))?);
    }
    Ok(CostModel { protocol: first.protocol, ends, points })
}

fn fit_end(
    end: End,
    runs: &[(&str, EndWork)],
    base: &str,
    seed: u64,
) -> Result<EndModel, NotProjected> {
    let terms = terms_of(runs)?;
    // Each run by its own CPU time: relative errors are alike, however dear the run was.
    let row = |(_, run): &(&str, EndWork)| {
        terms.iter().map(|term| run.counts.at(*term) / run.cpu_ns).collect()
    };
    let design: Matrix = runs.iter().map(row).collect();
    let found = robust(&design, &vec![1.0; design.len()]);
    let fitted: Vec<f64> = design.iter().map(|row| dot(row, &found)).collect();
    let residuals = Vec::from_iter(fitted.iter().map(|fitted| 1.0 / fitted.max(MIN_FIT) - 1.0));
    let draws = resample(&design, &terms, &fitted, &residuals, seed);
    let costs = per_term(&terms, &found);
    // The runs come in random order.
    let of_base = runs.iter().filter(|(point, _)| *point == base);
    let first = of_base.fold(PerTerm::default(), |sum, (_, run)| sum.plus(&run.counts));
    let whole = first.dot(&costs);
    let squares = dot(&residuals, &residuals);
    let of_term = |term: &Term| term_cost(*term, &costs, &draws, first, whole);
    let named = |columns: Vec<usize>| columns.into_iter().map(|at| terms[at]).collect();
    Ok(EndModel {
        end,
        terms: terms.iter().map(of_term).collect(),
        not_told_apart: collinear(&design).into_iter().map(named).collect(),
        residual_percent: 100.0 * (squares / residuals.len() as f64).sqrt(),
        runs: runs.len(),
        costs,
        draws,
        residuals,
    })
}

/// The terms that the runs exercise, if there are enough runs to tell them.
fn terms_of(runs: &[(&str, EndWork)]) -> Result<Vec<Term>, NotProjected> {
    let is_used = |term: &Term| runs.iter().any(|(_, run)| run.counts.at(*term) > 0.0);
    let terms: Vec<Term> = Term::ALL.into_iter().filter(is_used).collect();
    if runs.len() < terms.len() + SPARE {
        return Err(too_few(runs.len(), terms.len()));
    }
    let without_time = |(_, run): &&(&str, EndWork)| run.cpu_ns.is_nan() || run.cpu_ns <= 0.0;
    match runs.iter().find(without_time) {
        None => Ok(terms),
        Some((point, _)) => {
            let why =
                format!("a run of the design (`{point}`) took no CPU time that could be seen");
            let remedy = "give a longer --time: no run of the design is longer than that";
            Err(NotProjected::new(why).or(remedy))
        }
    }
}

fn too_few(runs: usize, terms: usize) -> NotProjected {
    let needed = terms + SPARE;
    let why = format!("{runs} runs for {terms} terms: a model needs at least {needed}");
    NotProjected::new(why)
        .or("see why points of the design were left out: each that can be run is more to fit to")
}

fn term_cost(
    term: Term,
    costs: &PerTerm,
    draws: &[PerTerm],
    first: PerTerm,
    whole: f64,
) -> TermCost {
    let ns = costs.at(term);
    let percent = 100.0 * first.at(term) * ns / whole;
    TermCost {
        term,
        ns,
        interval_ns: interval(draws.iter().map(|draw| draw.at(term)).collect()),
        share_percent: if whole > 0.0 { percent } else { 0.0 },
    }
}

/// Costs fitted to resampled runs.
fn resample(
    design: &Matrix,
    terms: &[Term],
    fitted: &[f64],
    residuals: &[f64],
    seed: u64,
) -> Vec<PerTerm> {
    let mut dice = Dice::new(seed, 0);
    let rows = design.len();
    let widen = (rows as f64 / (rows - terms.len()) as f64).sqrt();
    let mut draw = || {
        let drawn =
            |fitted: &f64| fitted * (1.0 + widen * residuals[dice.below(rows)]).max(MIN_FIT);
        let y: Vec<f64> = fitted.iter().map(drawn).collect();
        per_term(terms, &robust(design, &y))
    };
    (0..DRAWS).map(|_| draw()).collect()
}

/// Least squares in which runs far off count for less, by Huber's weights (Robust Statistics, 1981,
/// section 7.8): what else a machine does makes single runs dear, and never cheap.
fn robust(design: &Matrix, y: &[f64]) -> Vec<f64> {
    let mut x = non_negative(design, y);
    for _ in 0..ROUNDS {
        let off = |(row, y): (&Vec<f64>, &f64)| (y - dot(row, &x)).abs();
        let off: Vec<f64> = design.iter().zip(y).map(off).collect();
        let mut sorted = off.clone();
        sorted.sort_by(f64::total_cmp);
        // The median of the sizes, as a standard deviation of a normal distribution.
        let usual = 1.4826 * sorted[sorted.len() / 2];
        if usual <= MIN_SCATTER {
            break;
        }
        let weight = |row: usize| (HUBER * usual / off[row]).min(1.0).sqrt();
        let weights: Vec<f64> = (0..y.len()).map(weight).collect();
        let rows = design.iter().zip(&weights);
        let rows = Vec::from_iter(rows.map(|(row, w)| row.iter().map(|v| v * w).collect()));
        let y = Vec::from_iter(y.iter().zip(&weights).map(|(y, w)| y * w));
        x = non_negative(&rows, &y);
    }
    x
}

fn per_term(terms: &[Term], costs: &[f64]) -> PerTerm {
    PerTerm::new(terms.iter().copied().zip(costs.iter().copied()))
}

/// The middle 95 % of the values; `None` without values.
pub(super) fn interval(mut values: Vec<f64>) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = (share * (values.len().saturating_sub(1)) as f64).round() as usize;
        values.get(place).copied().unwrap_or(f64::NAN)
    };
    [at(0.025), at(0.975)]
}

/// Fits to resampled runs: enough that the ends of a 95 % interval are of five of them each.
const DRAWS: usize = 200;
/// Rounds of weighting: the weights hardly change after them.
const ROUNDS: u32 = 3;
/// Standard deviations from which on a run counts for less: 95 % as good as least squares on normal
/// errors.
const HUBER: f64 = 1.345;
/// Smaller relative errors are rounding errors.
const MIN_SCATTER: f64 = 1e-9;
/// Required runs beyond the number of terms.
const SPARE: usize = 3;
/// Smallest modelled share of a run's CPU time.
const MIN_FIT: f64 = 1e-3;

//! The model, fitted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::design;
use super::document::End;
use super::error::ProjectionError;
use super::linear::{Matrix, collinear, dot, non_negative};
use super::observation::{EndWork, Observation};
use super::term::{PerTerm, Term};
use crate::plan::Protocol;
use crate::units::Dice;

/// What CPU time costs at each end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostModel {
    /// Transport that it is of.
    pub protocol: Protocol,
    /// The sender and the receiver, or both together where they have one kernel.
    pub ends: Vec<EndModel>,
    /// Points of the design, in the order in which they came to the model.
    pub points: Vec<String>,
}

/// What CPU time costs at one end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EndModel {
    /// Which.
    pub end: End,
    /// What each term costs; a term that no run exercised is left out.
    pub terms: Vec<TermCost>,
    /// Terms that the design cannot tell apart: their sum is known, their parts are not.
    pub not_told_apart: Vec<Vec<Term>>,
    /// Root of the mean square of what the runs' CPU time differs from the model's, percent of it.
    pub residual_percent: f64,
    /// Runs that it was fitted to.
    pub runs: usize,
    #[serde(skip)]
    pub(super) costs: PerTerm,
    /// Costs of the resampled runs.
    #[serde(skip)]
    pub(super) draws: Vec<PerTerm>,
    /// Measured over modelled, less 1, of each run.
    #[serde(skip)]
    pub(super) residuals: Vec<f64>,
}

/// What one term costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TermCost {
    /// Which.
    pub term: Term,
    /// CPU time each time, ns; 0 where nothing of the CPU time goes with it.
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
pub fn fit(runs: &[Observation], seed: u64) -> Result<CostModel, ProjectionError> {
    let mut points: Vec<String> = Vec::new();
    for run in runs {
        if !points.contains(&run.point) {
            points.push(run.point.clone());
        }
    }
    let protocol = runs.first().map_or(Protocol::Tcp, |run| run.protocol);
    let base = design::points(protocol)
        .next()
        .map_or("", |point| point.name);
    let works: Vec<Vec<(End, EndWork)>> = runs.iter().map(Observation::works).collect();
    let ends: Vec<End> = works
        .first()
        .into_iter()
        .flatten()
        .map(|(end, _)| *end)
        .collect();
    let mut models = Vec::new();
    for (place, end) in ends.iter().enumerate() {
        let of_end = runs.iter().zip(&works);
        let of_end =
            of_end.filter_map(|(run, works)| Some((run.point.as_str(), works.get(place)?.1)));
        let of_end: Vec<(&str, EndWork)> = of_end.collect();
        models.push(fit_end(
            *end,
            &of_end,
            base,
            seed.wrapping_add(place as u64),
        )?);
    }
    if models.is_empty() {
        return Err(ProjectionError::TooFew {
            runs: 0,
            terms: 0,
            needed: SPARE,
        });
    }
    Ok(CostModel {
        protocol,
        ends: models,
        points,
    })
}

fn fit_end(
    end: End,
    runs: &[(&str, EndWork)],
    base: &str,
    seed: u64,
) -> Result<EndModel, ProjectionError> {
    let terms = terms_of(runs)?;
    // Each run by its own CPU time: relative errors are alike, however dear the run was.
    let rows = runs.iter().map(|(_, run)| {
        let count = |term: &Term| run.counts.at(*term) / run.cpu_ns;
        terms.iter().map(count).collect::<Vec<f64>>()
    });
    let design = Matrix::new(terms.len(), rows);
    let found = robust(&design, &vec![1.0; design.rows()]);
    let fitted: Vec<f64> = (0..design.rows())
        .map(|row| dot(design.row(row), &found))
        .collect();
    let residuals: Vec<f64> = fitted
        .iter()
        .map(|fitted| 1.0 / fitted.max(MIN_FIT) - 1.0)
        .collect();
    let draws = resample(&design, &terms, &fitted, &residuals, seed);
    let costs = per_term(&terms, &found);
    // The runs come in random order.
    let of_base = runs.iter().filter(|(point, _)| *point == base);
    let first = of_base.fold(PerTerm::default(), |sum, (_, run)| sum.plus(&run.counts));
    let whole = first.dot(&costs);
    let squares = residuals
        .iter()
        .map(|residual| residual * residual)
        .sum::<f64>();
    Ok(EndModel {
        end,
        terms: terms
            .iter()
            .map(|term| term_cost(*term, &costs, &draws, first, whole))
            .collect(),
        not_told_apart: collinear(&design)
            .into_iter()
            .map(|group| group.into_iter().map(|column| terms[column]).collect())
            .collect(),
        residual_percent: 100.0 * (squares / residuals.len() as f64).sqrt(),
        runs: runs.len(),
        costs,
        draws,
        residuals,
    })
}

/// The terms that the runs exercise, if there are enough runs to tell them.
fn terms_of(runs: &[(&str, EndWork)]) -> Result<Vec<Term>, ProjectionError> {
    let is_used = |term: &Term| runs.iter().any(|(_, run)| run.counts.at(*term) > 0.0);
    let terms: Vec<Term> = Term::ALL.into_iter().filter(is_used).collect();
    let needed = terms.len() + SPARE;
    if runs.len() < needed {
        return Err(ProjectionError::TooFew {
            runs: runs.len(),
            terms: terms.len(),
            needed,
        });
    }
    if let Some((point, _)) = runs
        .iter()
        .find(|(_, run)| run.cpu_ns.is_nan() || run.cpu_ns <= 0.0)
    {
        return Err(ProjectionError::NoTime {
            point: (*point).to_owned(),
        });
    }
    Ok(terms)
}

fn term_cost(
    term: Term,
    costs: &PerTerm,
    draws: &[PerTerm],
    first: PerTerm,
    whole: f64,
) -> TermCost {
    let ns = costs.at(term);
    let part = first.at(term) * ns;
    TermCost {
        term,
        ns,
        interval_ns: interval(draws.iter().map(|draw| draw.at(term)).collect()),
        share_percent: if whole > 0.0 {
            100.0 * part / whole
        } else {
            0.0
        },
    }
}

/// Costs fitted to runs as they might have come out.
fn resample(
    design: &Matrix,
    terms: &[Term],
    fitted: &[f64],
    residuals: &[f64],
    seed: u64,
) -> Vec<PerTerm> {
    let mut dice = Dice::new(seed, 0);
    let rows = design.rows();
    let widen = (rows as f64 / (rows - design.columns()) as f64).sqrt();
    let mut draw = || {
        let y: Vec<f64> = fitted
            .iter()
            .map(|fitted| fitted * (1.0 + widen * residuals[dice.below(rows)]).max(MIN_FIT))
            .collect();
        per_term(terms, &robust(design, &y))
    };
    (0..DRAWS).map(|_| draw()).collect()
}

/// Least squares in which runs far off count for less, by Huber's weights (Robust Statistics, 1981,
/// section 7.8): what else a machine does makes single runs dear, and never cheap.
fn robust(design: &Matrix, y: &[f64]) -> Vec<f64> {
    let mut x = non_negative(design, y);
    for _ in 0..ROUNDS {
        let off: Vec<f64> = (0..design.rows())
            .map(|row| (y[row] - dot(design.row(row), &x)).abs())
            .collect();
        let mut sorted = off.clone();
        sorted.sort_by(f64::total_cmp);
        // The median of the sizes, as a standard deviation of a normal distribution.
        let usual = 1.4826 * sorted[sorted.len() / 2];
        if usual <= MIN_SCATTER {
            break;
        }
        let weight = |row: usize| (HUBER * usual / off[row]).min(1.0).sqrt();
        let rows =
            (0..design.rows()).map(|row| design.row(row).iter().map(|v| v * weight(row)).collect());
        let weighted = Matrix::new(design.columns(), rows);
        let y: Vec<f64> = y
            .iter()
            .enumerate()
            .map(|(row, y)| y * weight(row))
            .collect();
        x = non_negative(&weighted, &y);
    }
    x
}

fn per_term(terms: &[Term], costs: &[f64]) -> PerTerm {
    PerTerm::new(terms.iter().copied().zip(costs.iter().copied()))
}

/// The middle 95 % of values; of none, nothing.
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
/// Relative errors of less are the arithmetic's.
const MIN_SCATTER: f64 = 1e-9;
/// Runs beyond the number of terms.
const SPARE: usize = 3;
/// A model that says next to nothing of a run is none of it.
const MIN_FIT: f64 = 1e-3;

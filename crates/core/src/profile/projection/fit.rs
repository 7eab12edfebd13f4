//! Fits the model of an end's CPU time to the runs, by least squares.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::observation::{EndWork, Observation};
use super::state::{PerTerm, Term};
use super::{End, NotProjected, design};
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

// Least squares for a handful of columns: Householder's QR, non-negative coefficients, and which
// columns the rows cannot tell apart.

/// A matrix as rows of equal length; at least one row.
type Matrix = Vec<Vec<f64>>;

/// The matrix of the selected columns, in order.
fn of_columns(a: &Matrix, columns: &[usize]) -> Matrix {
    a.iter().map(|row| columns.iter().map(|c| row[*c]).collect()).collect()
}

/// Length of each column.
fn lengths(a: &Matrix) -> Vec<f64> {
    let square = |column: usize| a.iter().map(|row| row[column].powi(2)).sum::<f64>();
    (0..a[0].len()).map(|column| square(column).sqrt()).collect()
}

fn times(a: &Matrix, x: &[f64]) -> Vec<f64> {
    a.iter().map(|row| dot(row, x)).collect()
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The x for which |Ax − y| is least; `None` where the columns depend on each other to the accuracy
/// of the arithmetic, or there are fewer rows than columns. Householder (1958); the columns are
/// scaled first, so that "depend" does not hang on their units.
fn least_squares(a: &Matrix, y: &[f64]) -> Option<Vec<f64>> {
    let (rows, columns) = (a.len(), a[0].len());
    let lengths = lengths(a);
    if rows < columns || lengths.iter().any(|length| !(*length > 0.0 && length.is_finite())) {
        return None;
    }
    let scaled = |row: &Vec<f64>| row.iter().zip(&lengths).map(|(v, l)| v / l).collect();
    let mut r: Matrix = a.iter().map(scaled).collect();
    let mut y = y.to_vec();
    for column in 0..columns {
        reflect(&mut r, &mut y, column)?;
    }
    let mut x = vec![0.0; columns];
    for column in (0..columns).rev() {
        let known: f64 = (column + 1..columns).map(|c| r[column][c] * x[c]).sum();
        x[column] = (y[column] - known) / r[column][column];
    }
    let x = x.iter().zip(&lengths).map(|(x, length)| x / length);
    Some(x.collect())
}

/// Zeroes a column below its diagonal; `None` where the column vanishes.
fn reflect(r: &mut [Vec<f64>], y: &mut [f64], column: usize) -> Option<()> {
    let squares = r[column..].iter().map(|row| row[column].powi(2));
    let norm = squares.sum::<f64>().sqrt();
    if norm < DEPENDENT {
        return None;
    }
    let alpha = if r[column][column] > 0.0 { -norm } else { norm };
    let mut v: Vec<f64> = r[column..].iter().map(|row| row[column]).collect();
    v[0] -= alpha;
    let square = dot(&v, &v);
    let width = r[column].len();
    for other in column..width {
        let rows = v.iter().zip(&r[column..]);
        let along: f64 = rows.map(|(v, row)| v * row[other]).sum();
        for (v, row) in v.iter().zip(&mut r[column..]) {
            row[other] -= 2.0 * along / square * v;
        }
    }
    let along = dot(&v, &y[column..]);
    for (v, y) in v.iter().zip(&mut y[column..]) {
        *y -= 2.0 * along / square * v;
    }
    Some(())
}

/// The x ≥ 0 for which |Ax − y| is least (Lawson and Hanson, Solving Least Squares Problems, 1974,
/// chapter 23). Of columns that depend on each other some stay at 0.
fn non_negative(a: &Matrix, y: &[f64]) -> Vec<f64> {
    let (lengths, columns) = (lengths(a), a[0].len());
    let scale = dot(y, y).sqrt();
    let mut x = vec![0.0; columns];
    let mut passive: Vec<usize> = Vec::new();
    let mut refused: Vec<usize> = Vec::new();
    // Each round brings a column in or refuses it for good, and may put others out again; so many
    // rounds are never needed.
    for _ in 0..10 * columns {
        let rest = Vec::from_iter(y.iter().zip(times(a, &x)).map(|(y, fitted)| y - fitted));
        let gain = |column: &usize| -> f64 {
            let products = a.iter().zip(&rest).map(|(row, rest)| row[*column] * rest);
            products.sum::<f64>() / lengths[*column]
        };
        let candidates = (0..columns)
            .filter(|column| !passive.contains(column) && !refused.contains(column))
            .filter(|column| lengths[*column] > 0.0);
        let Some(best) = candidates.max_by(|a, b| gain(a).total_cmp(&gain(b))) else {
            break;
        };
        if gain(&best) <= GAIN * scale {
            break;
        }
        let before = (passive.clone(), x.clone());
        passive.push(best);
        if !settle(a, y, &mut passive, &mut x) || !passive.contains(&best) {
            // It depends on the others, or brings no more than the arithmetic's own error.
            (passive, x) = before;
            refused.push(best);
        }
    }
    x
}

/// Solves for the passive columns, and takes out those that would become negative; false where they
/// depend on each other.
fn settle(a: &Matrix, y: &[f64], passive: &mut Vec<usize>, x: &mut [f64]) -> bool {
    while !passive.is_empty() {
        let Some(solved) = least_squares(&of_columns(a, passive), y) else {
            return false;
        };
        let steps = passive.iter().zip(&solved).filter(|(_, s)| **s <= 0.0);
        let step = steps.map(|(c, s)| x[*c] / (x[*c] - s)).fold(f64::INFINITY, f64::min);
        if step.is_infinite() {
            x.fill(0.0);
            passive.iter().zip(&solved).for_each(|(c, s)| x[*c] = *s);
            return true;
        }
        let step = if step.is_finite() { step } else { 0.0 };
        for (column, solved) in passive.iter().zip(&solved) {
            x[*column] += step * (solved - x[*column]);
        }
        let before = passive.len();
        passive
            .retain(|column| x[*column] > f64::EPSILON * x.iter().fold(0.0, |m: f64, x| m.max(*x)));
        if passive.len() == before {
            return false;
        }
    }
    x.fill(0.0);
    true
}

/// Groups of columns that the rows cannot tell apart, by Belsley, Kuh and Welsch, Regression
/// Diagnostics (1980), section 3.2: of each condition index above 30 the columns more than half of
/// whose variance it makes. Columns of zeros are in none.
fn collinear(a: &Matrix) -> Vec<Vec<usize>> {
    let lengths = lengths(a);
    let used: Vec<usize> = (0..lengths.len()).filter(|c| lengths[*c] > 0.0).collect();
    let entry = |i: usize, j: usize| -> f64 {
        let products = a.iter().map(|row| row[i] * row[j]);
        products.sum::<f64>() / (lengths[i] * lengths[j])
    };
    let gram: Vec<Vec<f64>> =
        used.iter().map(|i| used.iter().map(|j| entry(*i, *j)).collect()).collect();
    let (values, vectors) = eigen(gram);
    let largest = values.iter().fold(0.0, |a: f64, b| a.max(*b));
    let values = Vec::from_iter(values.iter().map(|value| value.max(largest * 1e-14)));
    let part = |column: usize, k: usize| vectors[column][k].powi(2) / values[k];
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (k, value) in values.iter().enumerate() {
        if (largest / value).sqrt() <= CONDITION {
            continue;
        }
        let of_half = |column: &usize| {
            let all: f64 = (0..values.len()).map(|k| part(*column, k)).sum();
            part(*column, k) > HALF * all
        };
        let group: Vec<usize> = (0..used.len()).filter(of_half).map(|c| used[c]).collect();
        if group.len() > 1 {
            groups.push(group);
        }
    }
    groups
}

/// Eigenvalues of a symmetric matrix and its eigenvectors by columns: Jacobi's rotations.
fn eigen(mut m: Vec<Vec<f64>>) -> (Vec<f64>, Vec<Vec<f64>>) {
    let n = m.len();
    let mut v: Vec<Vec<f64>> =
        (0..n).map(|i| (0..n).map(|j| if i == j { 1.0 } else { 0.0 }).collect()).collect();
    // Convergence is quadratic: ten rounds are plenty for a dozen columns.
    for _ in 0..50 {
        let pairs = (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j)));
        for (p, q) in pairs {
            if m[p][q].abs() < f64::MIN_POSITIVE {
                continue;
            }
            let theta = (m[q][q] - m[p][p]) / (2.0 * m[p][q]);
            let t = theta.signum() / (theta.abs() + theta.hypot(1.0));
            let cosine = 1.0 / t.hypot(1.0);
            let sine = t * cosine;
            for row in &mut m {
                (row[p], row[q]) =
                    (cosine * row[p] - sine * row[q], sine * row[p] + cosine * row[q]);
            }
            let (above, below) = m.split_at_mut(q);
            for (of_p, of_q) in above[p].iter_mut().zip(&mut below[0]) {
                (*of_p, *of_q) = (cosine * *of_p - sine * *of_q, sine * *of_p + cosine * *of_q);
            }
            for row in &mut v {
                (row[p], row[q]) =
                    (cosine * row[p] - sine * row[q], sine * row[p] + cosine * row[q]);
            }
        }
    }
    ((0..n).map(|i| m[i][i]).collect(), v)
}

/// Remainder below which a column of length 1 depends on those before it.
const DEPENDENT: f64 = 1e-9;
/// A column that would explain less of y than this is not added.
const GAIN: f64 = 1e-10;
/// Condition index from which on columns are said to be collinear; Belsley's own figure.
const CONDITION: f64 = 30.0;
/// Share of a column's variance.
const HALF: f64 = 0.5;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matrix(rows: &[&[f64]]) -> Matrix {
        rows.iter().map(|row| row.to_vec()).collect()
    }

    #[test]
    fn a_line_is_found_again() {
        let a = matrix(&[&[1.0, 1.0], &[1.0, 2.0], &[1.0, 3.0], &[1.0, 4.0]]);
        let x = least_squares(&a, &[3.0, 5.0, 7.0, 9.0]).unwrap();
        assert!((x[0] - 1.0).abs() < 1e-12 && (x[1] - 2.0).abs() < 1e-12, "{x:?}");
    }

    #[test]
    fn dependent_columns_have_no_solution_and_are_named() {
        let a = matrix(&[&[1.0, 2.0, 1.0], &[2.0, 4.0, 5.0], &[3.0, 6.0, 2.0], &[4.0, 8.0, 9.0]]);
        assert_eq!(least_squares(&a, &[1.0, 2.0, 3.0, 4.0]), None);
        assert_eq!(collinear(&a), [[0, 1]]);
        let x = non_negative(&a, &[1.0, 2.0, 3.0, 4.0]);
        assert!(x.iter().all(|x| *x >= 0.0));
        let fitted = times(&a, &x);
        assert!((fitted[3] - 4.0).abs() < 1e-9, "{x:?} {fitted:?}");
    }

    #[test]
    fn columns_that_differ_are_in_no_group() {
        let a = matrix(&[&[1.0, 0.0], &[0.0, 1.0], &[1.0, 1.0]]);
        assert!(collinear(&a).is_empty());
    }

    #[test]
    fn a_negative_coefficient_stays_at_zero() {
        let a = matrix(&[&[1.0, 0.0], &[1.0, 1.0], &[1.0, 2.0]]);
        let x = non_negative(&a, &[3.0, 2.0, 1.0]);
        assert!((x[0] - 2.0).abs() < 1e-12 && x[1] == 0.0, "{x:?}");
    }

    proptest! {
        /// Kuhn and Tucker: no coefficient below zero, no gain left in one at zero, none in one
        /// above. Of the columns two depend on others, and one nearly.
        #[test]
        fn the_solution_has_the_least_squares_with_no_negative_coefficient(
            rows in prop::collection::vec(prop::collection::vec(0.0..10.0_f64, 4), 8..30),
            y in prop::collection::vec(-5.0..20.0_f64, 30),
            scale in prop::sample::select(vec![1e-6, 1.0, 1e6]),
        ) {
            let a: Matrix = rows.into_iter().enumerate().map(|(number, mut row)| {
                row.push(row[0] + row[1]);
                row.push(row[2] * scale);
                row.push(row[3] + 1e-4 * (number % 3) as f64);
                row
            }).collect();
            let y = &y[..a.len()];
            let x = non_negative(&a, y);
            let rest: Vec<f64> = y.iter().zip(times(&a, &x)).map(|(y, f)| y - f).collect();
            for (column, &cost) in x.iter().enumerate().take(7) {
                let gain: f64 = a.iter().zip(&rest).map(|(row, rest)| row[column] * rest).sum();
                prop_assert!(cost >= 0.0);
                prop_assert!(gain <= 1e-6 * (1.0 + lengths(&a)[column] * dot(y, y).sqrt()));
                prop_assert!(cost == 0.0
                    || gain.abs() <= 1e-6 * (1.0 + lengths(&a)[column] * dot(y, y).sqrt()));
            }
        }
    }
}

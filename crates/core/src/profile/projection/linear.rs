//! Least squares for a handful of columns: Householder's QR, non-negative coefficients, and which
//! columns the rows cannot tell apart.

/// A matrix as rows of equal length; at least one row.
pub(super) type Matrix = Vec<Vec<f64>>;

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
pub(super) fn least_squares(a: &Matrix, y: &[f64]) -> Option<Vec<f64>> {
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
pub(super) fn non_negative(a: &Matrix, y: &[f64]) -> Vec<f64> {
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
pub(super) fn collinear(a: &Matrix) -> Vec<Vec<usize>> {
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

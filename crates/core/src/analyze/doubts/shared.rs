//! Two rows of different settings that share several figures.

use std::collections::HashMap;

use super::super::document::{Doubt, DoubtKind};
use super::super::table::{Column, Table, number};
use super::super::words::listed;
use super::MAX_NAMED;

/// Two rows.
type Pair = [usize; 2];
/// A column, and how many digits say something in the figure shared.
type Digits = (Column, u32);

/// Pairs of rows that differ in a setting and share more digits than chance makes equal anywhere in
/// the table.
///
/// Figures that exactly two rows have are looked at. With so many significant digits two rows agree
/// in 1 of 10^digits cases; over all pairs of rows and several columns that must come to less than
/// one in a thousand tables. Columns that are one figure in two units count once.
pub(in super::super) fn shared_figures(table: &Table, settings: &[Column]) -> Vec<Doubt> {
    let figures = measured(table, settings);
    let pairs_of_rows = (table.len() * table.len().saturating_sub(1) / 2) as f64;
    let mut shared: Vec<(Pair, Vec<Digits>)> = pairs(table, &figures).into_iter().collect();
    shared.sort_by_key(|(rows, _)| *rows);
    let mut found = Vec::new();
    for (rows, columns) in shared {
        let differs =
            |column: &Column| table.text(rows[0], *column) != table.text(rows[1], *column);
        let independent = independent(table, &columns);
        let digits: u32 = independent.iter().map(|(_, digits)| digits).sum();
        let by_chance = pairs_of_rows * 10_f64.powi(-(digits as i32));
        let is_copy = independent.len() >= 2 && by_chance < CHANCE;
        if is_copy && settings.iter().any(differs) && figures.iter().any(differs) {
            found.push(sentence(table, rows, &independent));
        }
    }
    if found.is_empty() {
        return Vec::new();
    }
    vec![Doubt {
        kind: DoubtKind::SharedFigures,
        message: format!(
            "rows of different settings that share figures to the last digit, where others differ: \
             {}. Was one of them copied?",
            listed(&found, MAX_NAMED)
        ),
    }]
}

fn sentence(table: &Table, rows: Pair, columns: &[Digits]) -> String {
    let shared: Vec<String> = columns
        .iter()
        .map(|&(column, _)| {
            let figure = table.text(rows[0], column).unwrap_or_default();
            format!("{} {figure}", table.name(column))
        })
        .collect();
    format!(
        "{} and {} ({})",
        table.place(rows[0]),
        table.place(rows[1]),
        shared.join(", ")
    )
}

/// Columns of figures, settings left out.
fn measured(table: &Table, settings: &[Column]) -> Vec<Column> {
    if table.len() > MAX_ROWS {
        return Vec::new();
    }
    let is_figures = |column: &Column| {
        let mut texts = (0..table.len())
            .filter_map(|row| table.text(row, *column))
            .peekable();
        texts.peek().is_some() && texts.all(|text| number(text).is_some())
    };
    let columns = table
        .all_columns()
        .filter(|column| !settings.contains(column));
    columns.filter(is_figures).take(MAX_COLUMNS).collect()
}

/// Pairs of rows that alone have a figure, with the columns and its digits.
fn pairs(table: &Table, figures: &[Column]) -> HashMap<Pair, Vec<Digits>> {
    let mut pairs: HashMap<Pair, Vec<Digits>> = HashMap::new();
    for &column in figures {
        let mut rows_of: HashMap<&str, Vec<usize>> = HashMap::new();
        for row in 0..table.len() {
            if let Some(text) = table.text(row, column) {
                rows_of.entry(text).or_default().push(row);
            }
        }
        for (text, rows) in rows_of {
            // Without a point it may be a setting, such as a window.
            if let ([one, other], true) = (&rows[..], text.contains('.')) {
                let (one, other) = (*one, *other);
                let digits = significant(text);
                pairs
                    .entry([one, other])
                    .or_default()
                    .push((column, digits));
            }
        }
    }
    pairs
}

/// The columns without those that are one of the others in another unit.
fn independent(table: &Table, columns: &[Digits]) -> Vec<Digits> {
    let mut kept: Vec<Digits> = Vec::new();
    for &(column, digits) in columns {
        let same = kept
            .iter_mut()
            .find(|(other, _)| is_multiple(table, *other, column));
        match same {
            Some(known) if digits > known.1 => *known = (column, digits),
            Some(_) => {}
            None => kept.push((column, digits)),
        }
    }
    kept
}

/// Whether one column is the other times a constant, or a constant over it.
fn is_multiple(table: &Table, one: Column, other: Column) -> bool {
    let figures = |row| {
        let of = |column| number(table.text(row, column)?).filter(|value| *value > 0.0);
        Some((of(one)?, of(other)?))
    };
    let both: Vec<(f64, f64)> = (0..table.len()).filter_map(figures).collect();
    let spread = |combine: fn(f64, f64) -> f64| {
        let values = both.iter().map(|&(a, b)| combine(a, b));
        let low = values.clone().fold(f64::INFINITY, f64::min);
        values.fold(0.0, f64::max) / low - 1.0
    };
    both.len() >= 2 && (spread(|a, b| a / b) < SAME_FIGURE || spread(|a, b| a * b) < SAME_FIGURE)
}

/// Digits that say something: `0.0012` has 2, `54.920` has 5.
fn significant(text: &str) -> u32 {
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    let digits = mantissa.bytes().filter(u8::is_ascii_digit);
    let counted = digits.skip_while(|digit| *digit == b'0').count();
    (counted as u32).min(MAX_DIGITS)
}

/// Expected pairs of rows that chance makes equal.
const CHANCE: f64 = 1e-3;
/// Figures of one measurement have no more that are not noise.
const MAX_DIGITS: u32 = 6;
/// Rounding of printed figures, as a share.
const SAME_FIGURE: f64 = 0.02;
const MAX_ROWS: usize = 10_000;
const MAX_COLUMNS: usize = 64;

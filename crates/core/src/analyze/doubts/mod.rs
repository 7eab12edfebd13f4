//! Doubts about figures that no statistics can remove: settings that are mixed within a level or
//! change with the factor, percentages over the wrong base, figures that two rows share.

use std::collections::{BTreeSet, HashMap};

use super::document::{Doubt, DoubtKind};
use super::groups::Grouping;
use super::table::{Column, Table, number};

/// Columns that have the same several values in each level, such as sizes: like should be compared
/// with like.
pub(super) fn mixed(table: &Table, grouping: &Grouping<'_>, others: &[Column]) -> Option<Doubt> {
    let group = grouping.groups.first()?;
    let is_mixed = |column: &&Column| {
        let levels = group.of_level.iter().filter(|rows| !rows.is_empty());
        let mut values = levels.map(|rows| values(table, rows, **column));
        let Some(Some(first)) = values.next() else {
            return false;
        };
        first.len() > 1 && values.all(|other| other.as_ref() == Some(&first))
    };
    if group.of_level.len() < 2 {
        return None;
    }
    let names = quoted(table, others.iter().filter(is_mixed));
    Doubt::about(DoubtKind::MixedSettings, &names, |listed| {
        let example = names[0].trim_matches('`');
        format!(
            "each level has the same several values of {listed}: their differences are in the \
             spread. To compare like with like, give --by {example}"
        )
    })
}

/// Columns that are one value in each level, and another one in the other.
pub(super) fn confounded(
    table: &Table,
    grouping: &Grouping<'_>,
    others: &[Column],
) -> Option<Doubt> {
    let changes = |column: &&Column| {
        let mut any = false;
        let agrees = grouping.groups.iter().all(|group| {
            let levels = group.of_level.iter().filter(|rows| rows.len() >= FEWEST_RUNS);
            let sets: Vec<_> = levels.map(|rows| values(table, rows, **column)).collect();
            let single =
                |set: &Option<BTreeSet<&str>>| set.as_ref().is_some_and(|set| set.len() == 1);
            let distinct: BTreeSet<_> = sets.iter().flatten().collect();
            let constant = sets.iter().all(single);
            any |= sets.len() >= 2;
            sets.len() < 2 || (constant && distinct.len() == sets.len())
        });
        any && agrees
    };
    let names = quoted(table, others.iter().filter(changes));
    Doubt::about(DoubtKind::Confounded, &names, |listed| {
        format!("{listed} changes together with the factor: a difference may as well be its own")
    })
}

fn quoted<'a>(table: &Table, columns: impl Iterator<Item = &'a Column>) -> Vec<String> {
    let names = columns.map(|&column| format!("`{}`", table.name(column)));
    names.collect()
}

/// Groups whose levels were measured one after the other, not interleaved.
pub(super) fn not_interleaved(grouping: &Grouping<'_>) -> Option<Doubt> {
    let mut apart = 0;
    let mut repeated = 0;
    for group in &grouping.groups {
        let levels: Vec<&Vec<usize>> =
            group.of_level.iter().filter(|rows| rows.len() > 1).collect();
        if levels.len() < 2 {
            continue;
        }
        repeated += 1;
        let mut spans: Vec<(usize, usize)> = levels
            .iter()
            .filter_map(|rows| rows.first().copied().zip(rows.last().copied()))
            .collect();
        spans.sort_unstable();
        apart += usize::from(spans.windows(2).all(|two| two[0].1 < two[1].0));
    }
    if apart == 0 {
        return None;
    }
    let of = match grouping.groups.len() {
        1 => String::new(),
        _ => format!(" (in {apart} of {repeated} groups with repeated runs)"),
    };
    Some(Doubt {
        kind: DoubtKind::NotInterleaved,
        message: format!(
            "all runs of one level stand before all of another{of}: if they ran in this order, \
             whatever drifted meanwhile is in the difference"
        ),
    })
}

/// The different texts of a column in these rows; `None` where one has none or is a measured
/// figure, or there are more than are kept.
fn values<'t>(table: &'t Table, rows: &[usize], column: Column) -> Option<BTreeSet<&'t str>> {
    let mut values = BTreeSet::new();
    for &row in rows {
        let text = table.text(row, column)?;
        // What has a point was measured, and is no setting.
        if number(text).is_some() && text.contains('.') {
            return None;
        }
        values.insert(text);
        if values.len() > MAX_VALUES {
            return None;
        }
    }
    Some(values)
}

const MAX_VALUES: usize = 1_000;
/// With one run, every column has a single value.
const FEWEST_RUNS: usize = 2;

/// Columns whose name says that they are a change in percent, and which are the change between two
/// other columns over its end instead of its beginning, in every row.
pub(super) fn other_base(table: &Table) -> Option<Doubt> {
    let columns: Vec<Column> = table.all_columns().take(MAX_CHANGE_COLUMNS).collect();
    let is_change = |column: &&Column| {
        let name = table.name(**column).to_ascii_lowercase();
        CHANGES.iter().any(|word| name.contains(word))
    };
    let mut found = Vec::new();
    for &change in columns.iter().filter(is_change) {
        let others = || columns.iter().copied().filter(|&column| column != change);
        let pairs = others().flat_map(|from| others().map(move |to| (from, to)));
        let of =
            |(from, to): (Column, Column)| from != to && is_over_its_end(table, change, from, to);
        if let Some((from, to)) = pairs.into_iter().find(|&pair| of(pair)) {
            found.push(format!(
                "`{}` is the change from `{}` to `{}`, divided by `{}`",
                table.name(change),
                table.name(from),
                table.name(to),
                table.name(to)
            ));
        }
    }
    Doubt::about(DoubtKind::OtherBase, &found, |found| {
        format!("percentages over the wrong base: {found}")
    })
}

/// Whether every row has 100 · (to − from) ÷ to, rounded as it is written, and some row not 100 ·
/// (to − from) ÷ from.
fn is_over_its_end(table: &Table, change: Column, from: Column, to: Column) -> bool {
    let mut rows = 0;
    let mut differ = 0;
    for row in 0..table.len() {
        let [change, from, to] = [change, from, to].map(|column| table.text(row, column));
        let (Some(text), Some(from), Some(to)) =
            (change, from.and_then(number), to.and_then(number))
        else {
            continue;
        };
        let Some(stated) = number(text.trim_end_matches(['%', ' '])) else {
            return false;
        };
        let decimals =
            text.split_once('.').map_or(0, |(_, after)| after.trim_end_matches(['%', ' ']).len());
        let rounding = 0.5 * 10_f64.powi(-(decimals as i32)) * (1.0 + 1e-9);
        let [over_from, over_to] = [from, to].map(|base| 100.0 * (to - from) / base);
        if (stated - over_to).abs() > rounding {
            return false;
        }
        rows += 1;
        differ += usize::from((stated - over_from).abs() > rounding);
    }
    rows >= FEWEST_ROWS && differ >= FEWEST_ROWS
}

/// Words in the names of columns that hold changes.
const CHANGES: [&str; 4] = ["change", "difference", "gain", "delta"];
/// Fewer rows than this may fit by chance.
const FEWEST_ROWS: usize = 3;
const MAX_CHANGE_COLUMNS: usize = 40;

/// The numbers of two rows.
type Pair = [usize; 2];
/// A column, and the number of significant digits of the figure that two rows share.
type Digits = (Column, u32);

/// Pairs of rows that differ in a setting and share more digits than chance makes equal anywhere in
/// the table.
///
/// Figures that exactly two rows have are looked at. With so many significant digits two rows agree
/// in 1 of 10^digits cases; over all pairs of rows and several columns that must come to less than
/// one in a thousand tables. Columns that are one figure in two units count once.
pub(super) fn shared_figures(table: &Table, settings: &[Column]) -> Option<Doubt> {
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
    Doubt::about(DoubtKind::SharedFigures, &found, |found| {
        format!(
            "rows of different settings that share figures to the last digit, where others differ: \
             {found}. Was one of them copied?"
        )
    })
}

fn sentence(table: &Table, rows: Pair, columns: &[Digits]) -> String {
    let shared: Vec<String> = columns
        .iter()
        .map(|&(column, _)| {
            let figure = table.text(rows[0], column).unwrap_or_default();
            format!("{} {figure}", table.name(column))
        })
        .collect();
    format!("{} and {} ({})", table.place(rows[0]), table.place(rows[1]), shared.join(", "))
}

/// The columns of measured figures, without the settings.
fn measured(table: &Table, settings: &[Column]) -> Vec<Column> {
    if table.len() > MAX_ROWS {
        return Vec::new();
    }
    let is_figures = |column: &Column| {
        let mut texts = (0..table.len()).filter_map(|row| table.text(row, *column)).peekable();
        texts.peek().is_some() && texts.all(|text| number(text).is_some())
    };
    let columns = table.all_columns().filter(|column| !settings.contains(column));
    columns.filter(is_figures).take(MAX_COLUMNS).collect()
}

/// Pairs of rows that share a figure which no other row has, with the columns and the digits.
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
                let of_pair = pairs.entry([one, other]).or_default();
                of_pair.push((column, digits));
            }
        }
    }
    pairs
}

/// The columns, without those that are another column in another unit.
fn independent(table: &Table, columns: &[Digits]) -> Vec<Digits> {
    let mut kept: Vec<Digits> = Vec::new();
    for &(column, digits) in columns {
        let same = kept.iter_mut().find(|(other, _)| is_multiple(table, *other, column));
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

/// The number of significant digits: `0.0012` has 2, `54.920` has 5.
fn significant(text: &str) -> u32 {
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    let digits = mantissa.bytes().filter(u8::is_ascii_digit);
    let counted = digits.skip_while(|digit| *digit == b'0').count();
    (counted as u32).min(MAX_DIGITS)
}

/// The expected number of pairs of rows that are equal by chance.
const CHANCE: f64 = 1e-3;
/// Digits of a measured figure beyond these are noise.
const MAX_DIGITS: u32 = 6;
/// Rounding of printed figures, as a share.
const SAME_FIGURE: f64 = 0.02;
const MAX_ROWS: usize = 10_000;
const MAX_COLUMNS: usize = 64;

#[cfg(test)]
mod tests;

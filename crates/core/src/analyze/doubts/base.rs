//! Columns of percentages that were taken over the other base.

use super::super::document::{Doubt, DoubtKind};
use super::super::table::{Column, Table, number};
use super::super::words::listed;
use super::MAX_NAMED;

/// Columns whose name says that they are a change in percent, and which are the change between two
/// other columns over its end instead of its beginning, in every row.
pub(in super::super) fn other_base(table: &Table) -> Vec<Doubt> {
    let columns: Vec<Column> = table.all_columns().take(MAX_COLUMNS).collect();
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
    if found.is_empty() {
        return Vec::new();
    }
    vec![Doubt {
        kind: DoubtKind::OtherBase,
        message: format!(
            "percentages over the wrong base: {}",
            listed(&found, MAX_NAMED)
        ),
    }]
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
        let decimals = text
            .split_once('.')
            .map_or(0, |(_, after)| after.trim_end_matches(['%', ' ']).len());
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

/// Words in the names of such columns.
const CHANGES: [&str; 4] = ["change", "difference", "gain", "delta"];
/// Fewer rows may fit by chance.
const FEWEST_ROWS: usize = 3;
const MAX_COLUMNS: usize = 40;

//! Columns beside the factor: what is mixed within a level, what changes with it, in which order
//! the runs stand.

use std::collections::BTreeSet;

use super::super::document::{Doubt, DoubtKind};
use super::super::grouping::Grouping;
use super::super::table::{Column, Table, number};
use super::super::words::listed;
use super::MAX_NAMED;

/// Columns that have the same several values in each level, such as sizes: like should be compared
/// with like.
pub(in super::super) fn mixed(
    table: &Table,
    grouping: &Grouping<'_>,
    others: &[Column],
) -> Vec<Doubt> {
    let Some(group) = grouping.groups.first() else {
        return Vec::new();
    };
    let is_mixed = |column: &&Column| {
        let mut values = group
            .of_level
            .iter()
            .filter(|rows| !rows.is_empty())
            .map(|rows| values(table, rows, **column));
        let Some(Some(first)) = values.next() else {
            return false;
        };
        first.len() > 1 && values.all(|other| other.as_ref() == Some(&first))
    };
    if group.of_level.len() < 2 {
        return Vec::new();
    }
    let names: Vec<String> = others
        .iter()
        .filter(is_mixed)
        .map(|&column| format!("`{}`", table.name(column)))
        .collect();
    if names.is_empty() {
        return Vec::new();
    }
    let example = names[0].trim_matches('`');
    let message = format!(
        "each level has the same several values of {}: their differences are in the spread. To \
         compare like with like, give \
         --by {example}",
        listed(&names, MAX_NAMED)
    );
    vec![Doubt {
        kind: DoubtKind::MixedSettings,
        message,
    }]
}

/// Columns that are one value in each level, and another one in the other.
pub(in super::super) fn confounded(
    table: &Table,
    grouping: &Grouping<'_>,
    others: &[Column],
) -> Vec<Doubt> {
    let changes = |column: &&Column| {
        let mut any = false;
        let agrees = grouping.groups.iter().all(|group| {
            let levels = group
                .of_level
                .iter()
                .filter(|rows| rows.len() >= FEWEST_RUNS);
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
    let names: Vec<String> = others
        .iter()
        .filter(changes)
        .map(|&column| format!("`{}`", table.name(column)))
        .collect();
    if names.is_empty() {
        return Vec::new();
    }
    vec![Doubt {
        kind: DoubtKind::Confounded,
        message: format!(
            "{} changes together with the factor: a difference may as well be its own",
            listed(&names, MAX_NAMED)
        ),
    }]
}

/// Groups whose levels stand one after the other.
pub(in super::super) fn not_interleaved(table: &Table, grouping: &Grouping<'_>) -> Vec<Doubt> {
    let mut apart = 0;
    let mut repeated = 0;
    for group in &grouping.groups {
        let levels: Vec<&Vec<usize>> = group
            .of_level
            .iter()
            .filter(|rows| rows.len() > 1)
            .collect();
        if levels.len() < 2 {
            continue;
        }
        repeated += 1;
        let mut spans: Vec<(usize, usize)> = levels
            .iter()
            .filter_map(|rows| Some((*rows.first()?, *rows.last()?)))
            .collect();
        spans.sort_unstable();
        apart += usize::from(spans.windows(2).all(|two| two[0].1 < two[1].0));
    }
    if apart == 0 || table.is_empty() {
        return Vec::new();
    }
    let of = match grouping.groups.len() {
        1 => String::new(),
        _ => format!(" (in {apart} of {repeated} groups with repeated runs)"),
    };
    vec![Doubt {
        kind: DoubtKind::NotInterleaved,
        message: format!(
            "all runs of one level stand before all of another{of}: if they ran in this order, \
             whatever drifted \
             meanwhile is in the difference"
        ),
    }]
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
/// One run has one value of every column.
const FEWEST_RUNS: usize = 2;

//! Checks one claim of a report against the rows that it is about.

use super::super::AnalyzeError;
use super::super::document::{
    ClaimResult, ClaimRow, ClaimVerdict, Unit, digits, listed, settings, signed,
};
use super::super::groups::{Grouping, Rows, Split};
use super::super::table::{Column, Table};
use super::{Average, Claim, Written};
use crate::stats::{Accepted, Agreement, median};

/// The claim's figure of each group, and what they say of it.
///
/// # Errors
/// The rows do not have a column, level or figure of the claim.
pub(super) fn check(claim: &Claim, table: &Table) -> Result<ClaimResult, AnalyzeError> {
    let rows = figures(claim, table)?;
    let (verdict, explanation) = judge(claim, &rows);
    Ok(ClaimResult {
        says: claim.entry.says.clone(),
        metric: claim.entry.metric.clone(),
        claimed: claimed(claim),
        unit: claim.entry.unit,
        verdict,
        explanation,
        rows,
    })
}

fn claimed(claim: &Claim) -> String {
    let texts: Vec<&str> = claim.stated.iter().map(|it| it.text.as_str()).collect();
    let text = texts.join(" to ");
    match claim.entry.unit {
        Unit::Percent => format!("{text} %"),
        Unit::Difference | Unit::Ratio => text,
    }
}

fn figures(claim: &Claim, table: &Table) -> Result<Vec<ClaimRow>, AnalyzeError> {
    let entry = &claim.entry;
    let metric = table.column(&entry.metric)?;
    let by = entry.by.iter().map(|name| table.column(name));
    let split =
        Split { by: by.collect::<Result<_, _>>()?, factor: Some(table.column(&entry.factor)?) };
    let only = (entry.only.iter())
        .map(|(name, word)| Ok((table.column(name)?, word.text())))
        .collect::<Result<Vec<(Column, String)>, AnalyzeError>>()?;
    let is_meant = |row: &usize| {
        let mut only = only.iter();
        only.all(|(column, text)| table.text(*row, *column) == Some(text.as_str()))
    };
    let rows = (0..table.len()).filter(is_meant);
    let mut grouping = Grouping::new(table, rows, &split)?;
    if grouping.groups.is_empty() {
        return Err(AnalyzeError::new("no row matches its `where`"));
    }
    let level = |word: &super::Word| grouping.level(&entry.factor, &word.text());
    let chosen = [level(&entry.a)?, level(&entry.b)?];
    grouping.choose(&chosen);
    let mut found = Vec::new();
    for group in &grouping.groups {
        let [a, b] = [0, 1].map(|side| average(claim, table, metric, group, side));
        if let (Some(a), Some(b)) = (a?, b?) {
            let figure = figure(entry.unit, a, b);
            found.push(ClaimRow {
                settings: group.settings(table, &split.by),
                a,
                b,
                figure,
                agrees: accepted(&claim.stated).contains(figure),
            });
        }
    }
    if found.is_empty() {
        let metric = &entry.metric;
        let message = format!("no group has figures of both sides in `{metric}`");
        Err(AnalyzeError::new(message))
    } else {
        Ok(found)
    }
}

fn average(
    claim: &Claim,
    table: &Table,
    metric: Column,
    group: &Rows<'_>,
    side: usize,
) -> Result<Option<f64>, AnalyzeError> {
    let mut figures = Vec::new();
    for &row in &group.of_level[side] {
        figures.extend(table.number(row, metric)?);
    }
    if figures.is_empty() {
        return Ok(None);
    }
    Ok(Some(match claim.entry.of {
        Average::Mean => figures.iter().sum::<f64>() / figures.len() as f64,
        Average::Median => median(&figures),
    }))
}

fn figure(unit: Unit, a: f64, b: f64) -> f64 {
    match unit {
        Unit::Percent => 100.0 * (b - a) / a,
        Unit::Difference => b - a,
        Unit::Ratio => b / a,
    }
}

/// The range of values that round to the stated figure, or to one in the stated range.
fn accepted(stated: &[Written]) -> Accepted {
    let (low, high) = (&stated[0], &stated[stated.len() - 1]);
    Accepted { low: low.value - rounding(low), high: high.value + rounding(high) }
}

/// Half a unit of the last digit, plus the error of a float.
fn rounding(value: &Written) -> f64 {
    0.5 * 10_f64.powi(-(value.decimals as i32)) + 1e-9 * value.value.abs().max(1.0)
}

fn judge(claim: &Claim, rows: &[ClaimRow]) -> (ClaimVerdict, String) {
    match (&claim.stated[..], rows) {
        ([_], [row]) => judge_one(claim, row),
        _ => judge_all(claim, rows),
    }
}

/// A figure of one group: if it is not what the rows give, then perhaps over the other base, or
/// with the other sign.
fn judge_one(claim: &Claim, row: &ClaimRow) -> (ClaimVerdict, String) {
    let (a, b) = (row.a, row.b);
    let unit = claim.entry.unit;
    let told = told(claim, row.figure);
    let over = match unit {
        Unit::Percent => format!("over {} (`{}`)", digits(a, 5), claim.entry.a.text()),
        Unit::Difference | Unit::Ratio => {
            format!("({} against {})", digits(b, 5), digits(a, 5))
        }
    };
    let printed = claim.printed.as_ref().map(|[a, b]| ([a.value, b.value], "as printed"));
    let sides = [Some(([a, b], average_of(claim))), printed];
    let fits = |of: fn(Unit, f64, f64) -> f64| {
        let mut sides = sides.into_iter().flatten();
        sides.find(|([a, b], _)| accepted(&claim.stated).contains(of(unit, *a, *b)))
    };
    let (verdict, mut why) = if row.agrees {
        (ClaimVerdict::Agrees, format!("{told} {over}"))
    } else if let Some(([_, base], whose)) = fits(other_base) {
        let wrong = match unit {
            Unit::Ratio => "a over b".to_owned(),
            _ => {
                let (base, b) = (digits(base, 5), claim.entry.b.text());
                format!("over {base} (`{b}`, {whose})")
            }
        };
        let why = format!("{} is {wrong}; it is {told} {over}", claimed(claim));
        (ClaimVerdict::OtherBase, why)
    } else if fits(other_sign).is_some() {
        let why = format!("the sign is wrong: {told} {over}");
        (ClaimVerdict::WrongSign, why)
    } else {
        (ClaimVerdict::Disagrees, format!("{told} {over}"))
    };
    why.push_str(&misprinted(claim, row));
    (verdict, why)
}

fn average_of(claim: &Claim) -> &'static str {
    match claim.entry.of {
        Average::Mean => "the mean of its rows",
        Average::Median => "the median of its rows",
    }
}

/// The change as a part of the other side's figure.
fn other_base(unit: Unit, a: f64, b: f64) -> f64 {
    match unit {
        Unit::Percent => 100.0 * (b - a) / b,
        Unit::Ratio => a / b,
        // It has no base.
        Unit::Difference => f64::NAN,
    }
}

fn other_sign(unit: Unit, a: f64, b: f64) -> f64 {
    match unit {
        Unit::Percent | Unit::Difference => -figure(unit, a, b),
        Unit::Ratio => f64::NAN,
    }
}

/// Says so where the report prints another figure for a side than its rows give.
fn misprinted(claim: &Claim, row: &ClaimRow) -> String {
    let Some(printed) = &claim.printed else {
        return String::new();
    };
    let sides = printed.iter().zip([row.a, row.b]);
    let wrong = sides.filter(|(written, rows)| (written.value - rows).abs() > rounding(written));
    let each = wrong.map(|(written, rows)| {
        let (text, decimals) = (&written.text, written.decimals);
        format!("; the report prints {text} where its rows give {rows:.decimals$}")
    });
    each.collect()
}

/// A range, or a figure of several groups: all of them must be what is stated.
fn judge_all(claim: &Claim, rows: &[ClaimRow]) -> (ClaimVerdict, String) {
    const MAX_NAMED: usize = 3;
    let by_figure = |a: &&ClaimRow, b: &&ClaimRow| a.figure.total_cmp(&b.figure);
    let extremes = [rows.iter().min_by(by_figure), rows.iter().max_by(by_figure)];
    let [Some(least), Some(most)] = extremes else {
        return (ClaimVerdict::Disagrees, "no figures".to_owned());
    };
    let range = match rows.len() {
        1 => told(claim, least.figure),
        n => {
            let [least, most] = [least, most].map(|row| told(claim, row.figure));
            format!("{least} to {most} in {n} groups")
        }
    };
    let accepted = accepted(&claim.stated);
    if accepted.judge_all(rows.iter().map(|row| row.figure)) == Agreement::Agrees {
        return (ClaimVerdict::Agrees, range);
    }
    let mut outside: Vec<&ClaimRow> = rows.iter().filter(|row| !row.agrees).collect();
    let beyond = |row: &ClaimRow| accepted.beyond(row.figure);
    outside.sort_by(|a, b| beyond(b).total_cmp(&beyond(a)));
    let name = |row: &&ClaimRow| match &row.settings[..] {
        [] => told(claim, row.figure),
        of_group => format!("{} at {}", told(claim, row.figure), settings(of_group)),
    };
    let names: Vec<String> = outside.iter().map(name).collect();
    let (count, named) = (outside.len(), listed(&names, MAX_NAMED));
    let why = format!("{range}; {count} outside: {named}");
    (ClaimVerdict::Disagrees, why)
}

/// A figure with one digit more than the claim has where that is a range, as many where it is a
/// figure.
fn told(claim: &Claim, figure: f64) -> String {
    let decimals = match &claim.stated[..] {
        [low, high] => low.decimals.max(high.decimals) + 1,
        stated => stated[0].decimals,
    };
    match claim.entry.unit {
        Unit::Percent => format!("{} %", signed(figure, decimals)),
        Unit::Difference => signed(figure, decimals),
        Unit::Ratio => format!("{figure:.decimals$}"),
    }
}

//! Reads `[table]` and `[[column]]`, and `[figures]`: the report's own figures, from a file of
//! comma-separated values.

use std::collections::BTreeMap;

use super::super::document::Measure;
use super::super::model::Column;
use super::levels::{Factors, FileFactor, FileLevel, all_levels, factor_index, level_index, texts};
use super::{Files, file_fault, file_text};
use crate::stats::Summary;
use crate::toml_reader::{At, Fault, Section};
use crate::units::{listed, shortened};

/// The factor across, and the columns. Those over a level that the quick form leaves out are left
/// out as well.
pub(super) fn columns(
    root: &Section<'_>,
    factors: &Factors<'_>,
) -> Result<(Option<usize>, Vec<Column>), Fault> {
    let table = root.section("table", "[table]", "across")?;
    let name = table.map(|table| table.string("across")).transpose()?.flatten();
    let across = name.map(|name| factor_index(&factors.full, name)).transpose()?;
    let sections = root.sections("column", "[[column]]", COLUMN_KEYS)?;
    if sections.is_empty() {
        let hint = "[[column]] with a `metric` for each figure of the table";
        return Err(root.missing("column", hint));
    }
    let mut columns = Vec::new();
    for section in sections {
        let level = ratio_level(&section, across.map(|factor| &factors.full[factor]))?;
        let of_used = match (level, across) {
            (Some(level), Some(factor)) => match factors.used[factor].position(level) {
                None => continue,
                found => found,
            },
            _ => None,
        };
        columns.push(column(&section, of_used)?);
    }
    if columns.is_empty() {
        let hint = "the quick form leaves out the levels that they are over";
        return Fault::contradiction(root.offset, "all columns are ratios", hint);
    }
    Ok((across, columns))
}

/// The level to which a column's ratios refer.
fn ratio_level<'a>(
    section: &Section<'a>,
    across: Option<&FileFactor<'_>>,
) -> Result<Option<&'a str>, Fault> {
    let Some(name) = section.string("ratio_to")? else {
        return Ok(None);
    };
    let Some(factor) = across else {
        let hint = "it is over a level of the factor `across`, and [table] has none";
        return Fault::contradiction(name.offset, "`ratio_to`", hint);
    };
    level_index(factor, name)?;
    Ok(Some(name.value))
}

fn column(section: &Section<'_>, ratio_to: Option<usize>) -> Result<Column, Fault> {
    let metric = section.required("metric", "such as \"throughput_bps\"")?;
    let unit = section.string("unit")?;
    let title = section.string("title")?.unwrap_or(metric);
    Ok(Column {
        measure: metric.read()?,
        title: title.value.to_owned(),
        unit: unit.map(|at| at.value.to_owned()),
        scale: match (section.float("scale")?, unit) {
            (Some(at), _) if at.value > 0.0 => at.value,
            (Some(at), _) => return Fault::contradiction(at.offset, "`scale`", "it is above 0"),
            (None, Some(unit)) if ratio_to.is_none() => unit_scale(metric.value, unit)?,
            (None, _) => 1.0,
        },
        decimals: section.number("decimals", 0..=9)?,
        ratio_to,
    })
}

/// What a figure in the unit of its key is multiplied with. A unit that is not known here is that
/// of the key.
fn unit_scale(metric: &str, unit: At<&str>) -> Result<f64, Fault> {
    let units: &[(&str, f64)] = match metric {
        _ if metric.ends_with("_bps") => RATE_UNITS,
        _ if metric.contains("_us") => TIME_UNITS,
        _ => return Ok(1.0),
    };
    if let Some((_, scale)) = units.iter().find(|(name, _)| *name == unit.value) {
        return Ok(*scale);
    }
    if metric.contains("per") {
        return Ok(1.0);
    }
    let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
    let hint = format!("write {}, or give `scale`", listed(&names, "or"));
    Fault::malformed(unit, "unit of that figure", &hint)
}

const RATE_UNITS: &[(&str, f64)] = &[
    ("bit/s", 1.0),
    ("kbit/s", 1e-3),
    ("Mbit/s", 1e-6),
    ("Gbit/s", 1e-9),
    ("KB/s", 1.0 / 8e3),
    ("KiB/s", 1.0 / (8.0 * 1024.0)),
    ("MB/s", 1.0 / 8e6),
    ("MiB/s", 1.0 / (8.0 * 1024.0 * 1024.0)),
];
const TIME_UNITS: &[(&str, f64)] = &[("µs", 1.0), ("us", 1.0), ("ms", 1e-3), ("s", 1e-6)];

/// Of each cell the report's figures by the name of the measure: the median, or the mean, of the
/// rows that are the cell's.
pub(super) fn figures(
    root: &Section<'_>,
    factors: &[FileFactor<'_>],
    files: Files<'_>,
) -> Result<Vec<BTreeMap<String, f64>>, Fault> {
    let cells = all_levels(factors);
    let Some(section) = root.section("figures", "[figures]", FIGURE_KEYS)? else {
        return Ok(vec![BTreeMap::new(); cells.len()]);
    };
    let file = section.required("file", "a CSV file beside this one")?;
    let table = FiguresTable::read(file, files)?;
    let keys = keys(&section, factors, &table)?;
    let texts = section.texts("where")?;
    let filters = (texts.iter())
        .map(|(name, text)| Ok((table.column(*name)?, &text.value)))
        .collect::<Result<Vec<_>, Fault>>()?;
    let values = values(&section, &table)?;
    let averages = [("median", false), ("mean", true)];
    let average = match section.choice("of", "way to put rows together", &averages)? {
        Some(true) => Summary::mean,
        _ => Summary::median,
    };
    let figures_of = |levels: &Vec<usize>| {
        let of_factors = keys.iter().flat_map(|(factor, columns)| {
            let level = &factors[*factor].levels[levels[*factor]];
            columns.iter().copied().zip(&level.figure)
        });
        let wanted: Vec<(usize, &String)> = of_factors.chain(filters.iter().copied()).collect();
        let has = |row: &&csv::StringRecord| {
            let mut wanted = wanted.iter();
            wanted.all(|(column, text)| is_same(&row[*column], text))
        };
        let own: Vec<&csv::StringRecord> = table.rows.iter().filter(has).collect();
        let figure = |value: &FigureValue| {
            let sample =
                |row: &&csv::StringRecord| Some(number_of(&row[value.column])? * value.scale);
            let samples: Vec<f64> = own.iter().filter_map(sample).collect();
            Some((value.name.clone(), average(&Summary::new(&samples).ok()?)))
        };
        values.iter().filter_map(figure).collect()
    };
    Ok(cells.iter().map(figures_of).collect())
}

struct FiguresTable<'a> {
    file: At<&'a str>,
    head: csv::StringRecord,
    rows: Vec<csv::StringRecord>,
}

/// A figure: its name, its column, and the scale to the figure's unit.
struct FigureValue {
    name: String,
    column: usize,
    scale: f64,
}

impl<'a> FiguresTable<'a> {
    fn read(file: At<&'a str>, files: Files<'_>) -> Result<Self, Fault> {
        let text = file_text(file, files)?;
        let fault = |error| file_fault(file, error);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let head = reader.headers().map_err(fault)?.clone();
        let rows = reader.records().collect::<Result<Vec<_>, _>>().map_err(fault)?;
        Ok(Self { file, head, rows })
    }

    fn column(&self, name: At<&str>) -> Result<usize, Fault> {
        name.index_in("column", &self.head.iter().collect::<Vec<_>>())
    }

    /// The figure that `column`, or `column * 1e6`, is.
    fn value(&self, name: At<&str>, formula: At<&str>) -> Result<FigureValue, Fault> {
        let (column, scale) = match formula.value.split_once('*') {
            None => (formula.value, Some(1.0)),
            Some((column, scale)) => (column, number_of(scale)),
        };
        let Some(scale) = scale else {
            return Fault::malformed(formula, "figure", "write \"column\" or \"column * 1e6\"");
        };
        let column = self.column(formula.map(|_| column.trim()))?;
        if !(self.rows.iter()).any(|row| number_of(&row[column]).is_some()) {
            let why = format!("its column {} has no number", &self.head[column]);
            return Err(file_fault(self.file, why));
        }
        let name = name.read::<Measure>()?.to_string();
        Ok(FigureValue { name, column, scale })
    }
}

/// `keys = { window = "treatment", transfer = ["source", "destination"] }`: factors, and their
/// columns in the file.
fn keys(
    section: &Section<'_>,
    factors: &[FileFactor<'_>],
    table: &FiguresTable<'_>,
) -> Result<Vec<(usize, Vec<usize>)>, Fault> {
    let mut keys = Vec::new();
    for (name, value) in section.entries("keys")? {
        let factor = factor_index(factors, name)?;
        let names = texts(name.value, value)?;
        let column = |at: &At<String>| table.column(at.as_str());
        let columns = names.iter().map(column).collect::<Result<Vec<_>, _>>()?;
        let other = |level: &&FileLevel| level.figure.len() != columns.len();
        if let Some(level) = factors[factor].levels.iter().find(other) {
            let what = format!("`figure` of the level {}", shortened(&level.name));
            let hint = "it has one text for each column of the factor in [figures] keys";
            return Fault::contradiction(level.setting.offset, what, hint);
        }
        keys.push((factor, columns));
    }
    if keys.is_empty() {
        return Err(section.missing("keys", "which column has the level of which factor"));
    }
    Ok(keys)
}

/// `values = { throughput_bps = "mbit_per_s * 1e6" }`
fn values(section: &Section<'_>, table: &FiguresTable<'_>) -> Result<Vec<FigureValue>, Fault> {
    let values = section.texts("values")?;
    if values.is_empty() {
        return Err(section.missing("values", "which column has which figure"));
    }
    let values = values.iter();
    values.map(|(name, formula)| table.value(*name, formula.as_str())).collect()
}

/// Compares as numbers where both are numbers: 100 equals 100.0.
fn is_same(cell: &str, wanted: &str) -> bool {
    match (number_of(cell), number_of(wanted)) {
        (Some(cell), Some(wanted)) => cell == wanted,
        _ => cell.trim() == wanted.trim(),
    }
}

fn number_of(text: &str) -> Option<f64> {
    let number: Option<f64> = text.trim().parse().ok();
    number.filter(|number| number.is_finite())
}

const COLUMN_KEYS: &str = "metric title unit scale decimals ratio_to";
const FIGURE_KEYS: &str = "file keys where values of";

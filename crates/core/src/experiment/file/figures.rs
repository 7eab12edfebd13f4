//! Reads `[figures]`: the report's own figures, from a file of comma-separated values.

use std::collections::BTreeMap;

use super::columns::{factor_index, measure};
use super::factors::{FileFactor, Level, all_levels, texts};
use super::{Files, file_fault, file_text};
use crate::stats::Summary;
use crate::toml_reader::{At, Fault, Section, text};
use crate::units::shortened;

/// Of each cell the report's figures by the name of the measure: the median, or the mean, of the
/// rows that are the cell's.
pub(super) fn read(
    root: &Section<'_>,
    factors: &[FileFactor<'_>],
    files: Files<'_>,
) -> Result<Vec<BTreeMap<String, f64>>, Fault> {
    let cells = all_levels(factors);
    let Some(section) = root.section("figures", "[figures]", KEYS)? else {
        return Ok(vec![BTreeMap::new(); cells.len()]);
    };
    let file = section.required("file", "a CSV file beside this one")?;
    let table = Table::read(file, files)?;
    let keys = keys(&section, factors, &table)?;
    let filters = filters(&section, &table)?;
    let values = values(&section, &table)?;
    let of_rows = of_rows(&section)?;
    let figures_of = |levels: &Vec<usize>| {
        let mut wanted = wanted(factors, &keys, levels);
        wanted.extend(filters.iter().map(|(column, text)| (*column, text)));
        let has = |row: &&csv::StringRecord| {
            let mut wanted = wanted.iter();
            wanted.all(|(column, text)| is_same(&row[*column], text))
        };
        let own: Vec<&csv::StringRecord> = table.rows.iter().filter(has).collect();
        let figure = |value: &Value| {
            let samples = own.iter().filter_map(|row| number_of(&row[value.column]));
            let samples: Vec<f64> = samples.map(|sample| sample * value.scale).collect();
            Some((value.name.clone(), of_rows(&Summary::new(&samples).ok()?)))
        };
        values.iter().filter_map(figure).collect()
    };
    Ok(cells.iter().map(figures_of).collect())
}

struct Table {
    file: At<String>,
    head: csv::StringRecord,
    rows: Vec<csv::StringRecord>,
}

/// A figure: its name, its column, and the scale to the figure's unit.
struct Value {
    name: String,
    column: usize,
    scale: f64,
}

/// A factor, and its columns in the file.
struct Key {
    factor: usize,
    columns: Vec<usize>,
}

impl Table {
    fn read(file: At<&str>, files: Files<'_>) -> Result<Self, Fault> {
        let text = file_text(file, files)?;
        let fault = |error| file_fault(file, error);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let head = reader.headers().map_err(fault)?.clone();
        let rows = reader.records().collect::<Result<Vec<_>, _>>();
        Ok(Self {
            file: file.map(str::to_owned),
            head,
            rows: rows.map_err(fault)?,
        })
    }

    fn column(&self, name: At<&str>) -> Result<usize, Fault> {
        let found = self.head.iter().position(|head| head == name.value);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.head.iter().collect();
            Fault::unknown(name, "column", &names)
        })
    }
}

/// `keys = { window = "treatment", transfer = ["source", "destination"] }`
fn keys(
    section: &Section<'_>,
    factors: &[FileFactor<'_>],
    table: &Table,
) -> Result<Vec<Key>, Fault> {
    let mut keys = Vec::new();
    for (name, value) in section.entries("keys")? {
        let factor = factor_index(factors, name)?;
        let columns = texts(name.value, value)?;
        let columns = columns.iter().map(|at| table.column(at.as_str()));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let levels = &factors[factor].levels;
        let other = |level: &&Level| level.figure.len() != columns.len();
        if let Some(level) = levels.iter().find(other) {
            let what = format!("`figure` of the level {}", shortened(&level.name));
            let hint = "it has one text for each column of the factor in [figures] keys";
            return Fault::contradiction(level.setting.offset, what, hint);
        }
        keys.push(Key { factor, columns });
    }
    if keys.is_empty() {
        let hint = "which column has the level of which factor";
        return Err(section.missing("keys", hint));
    }
    Ok(keys)
}

fn filters(section: &Section<'_>, table: &Table) -> Result<Vec<(usize, String)>, Fault> {
    let mut filters = Vec::new();
    for (name, value) in section.entries("where")? {
        filters.push((table.column(name)?, text(name.value, value)?.value));
    }
    Ok(filters)
}

/// `values = { throughput_bps = "mbit_per_s * 1e6" }`
fn values(section: &Section<'_>, table: &Table) -> Result<Vec<Value>, Fault> {
    let mut values = Vec::new();
    for (name, value) in section.entries("values")? {
        let formula = text(name.value, value)?;
        let (column, scale) = column_and_scale(table, &formula)?;
        values.push(Value {
            name: measure(name)?.to_string(),
            column,
            scale,
        });
    }
    if values.is_empty() {
        let hint = "which column has which figure";
        return Err(section.missing("values", hint));
    }
    Ok(values)
}

/// How several rows of a cell are reduced to the one figure of the report.
fn of_rows(section: &Section<'_>) -> Result<fn(&Summary) -> f64, Fault> {
    let Some(at) = section.string("of")? else {
        return Ok(Summary::median);
    };
    match at.value {
        "median" => Ok(Summary::median),
        "mean" => Ok(Summary::mean),
        _ => {
            let known = ["median", "mean"];
            Err(Fault::unknown(at, "way to put rows together", &known))
        }
    }
}

/// `column`, or `column * 1e6`.
fn column_and_scale(table: &Table, formula: &At<String>) -> Result<(usize, f64), Fault> {
    let (column, scale) = match formula.value.split_once('*') {
        None => (formula.value.trim(), Some(1.0)),
        Some((column, scale)) => (column.trim(), number_of(scale.trim())),
    };
    let Some(scale) = scale else {
        let hint = "write \"column\" or \"column * 1e6\"";
        return Fault::malformed(formula.as_str(), "figure", hint);
    };
    let column = table.column(formula.as_str().map(|_| column))?;
    if !(table.rows.iter()).any(|row| number_of(&row[column]).is_some()) {
        let why = format!("its column {} has no number", &table.head[column]);
        return Err(file_fault(table.file.as_str(), why));
    }
    Ok((column, scale))
}

/// The columns that select a cell's rows, with the values they must have.
fn wanted<'f>(
    factors: &'f [FileFactor<'_>],
    keys: &[Key],
    levels: &[usize],
) -> Vec<(usize, &'f String)> {
    let of_key = |key: &Key| {
        let level = &factors[key.factor].levels[levels[key.factor]];
        key.columns.clone().into_iter().zip(&level.figure)
    };
    keys.iter().flat_map(of_key).collect()
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

const KEYS: &str = "file keys where values of";

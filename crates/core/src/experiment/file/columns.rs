//! Reads `[table]` and `[[column]]`.

use super::super::measure::Measure;
use super::super::model::Column;
use super::factors::FileFactor;
use crate::toml_reader::{At, Fault, Section};
use crate::units::listed;

/// The factor across, and the columns. Those over a level that the quick form leaves out are left
/// out as well.
pub(super) fn read(
    root: &Section<'_>,
    full: &[FileFactor<'_>],
    used: &[FileFactor<'_>],
) -> Result<(Option<usize>, Vec<Column>), Fault> {
    let across = across(root, full)?;
    let sections = root.sections("column", "[[column]]", KEYS)?;
    if sections.is_empty() {
        let hint = "[[column]] with a `metric` for each figure of the table";
        return Err(root.missing("column", hint));
    }
    let mut columns = Vec::new();
    for section in sections {
        let level = ratio_level(&section, across.map(|factor| &full[factor]))?;
        let of_used = match (level, across) {
            (Some(level), Some(factor)) => {
                let mut levels = used[factor].levels.iter();
                match levels.position(|other| other.name == level) {
                    None => continue,
                    found => found,
                }
            }
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

fn across(root: &Section<'_>, factors: &[FileFactor<'_>]) -> Result<Option<usize>, Fault> {
    let table = root.section("table", "[table]", "across")?;
    let name = table.map(|table| table.string("across"));
    let name = name.transpose()?.flatten();
    name.map(|name| factor_index(factors, name)).transpose()
}

/// The number of the factor of that name.
pub(super) fn factor_index(factors: &[FileFactor<'_>], name: At<&str>) -> Result<usize, Fault> {
    let found = factors.iter().position(|factor| factor.name == name.value);
    found.ok_or_else(|| {
        let names: Vec<&str> = factors.iter().map(|factor| factor.name).collect();
        Fault::unknown(name, "factor", &names)
    })
}

/// The level to which a column's ratios refer.
fn ratio_level(
    section: &Section<'_>,
    across: Option<&FileFactor<'_>>,
) -> Result<Option<String>, Fault> {
    let Some(name) = section.string("ratio_to")? else {
        return Ok(None);
    };
    let Some(factor) = across else {
        let hint = "it is over a level of the factor `across`, and [table] has none";
        return Fault::contradiction(name.offset, "`ratio_to`", hint);
    };
    super::factors::level_index(factor, name)?;
    Ok(Some(name.value.to_owned()))
}

fn column(section: &Section<'_>, ratio_to: Option<usize>) -> Result<Column, Fault> {
    let metric = section.required("metric", "such as \"throughput_bps\"")?;
    let measure = measure(metric)?;
    let unit = section.string("unit")?;
    let scale = match (section.float("scale")?, unit) {
        (Some(at), _) if at.value > 0.0 => at.value,
        (Some(at), _) => {
            return Fault::contradiction(at.offset, "`scale`", "it is above 0");
        }
        (None, Some(unit)) if ratio_to.is_none() => unit_scale(metric.value, unit)?,
        (None, _) => 1.0,
    };
    let title = section.string("title")?;
    Ok(Column {
        measure,
        title: title.map_or_else(|| metric.value.to_owned(), |at| at.value.to_owned()),
        unit: unit.map(|at| at.value.to_owned()),
        scale,
        decimals: section.number("decimals", 0..=9)?.map(|at| at.value),
        ratio_to,
    })
}

/// A figure by its path.
pub(super) fn measure(at: At<&str>) -> Result<Measure, Fault> {
    Measure::parse(at.value).map_err(|error| Fault::new(at.offset, error))
}

/// What a figure in the unit of its key is multiplied with. A unit that is not known here is that
/// of the key.
fn unit_scale(metric: &str, unit: At<&str>) -> Result<f64, Fault> {
    let kind = match metric {
        _ if metric.ends_with("_bps") => "_bps",
        _ if metric.contains("_us") => "_us",
        _ => return Ok(1.0),
    };
    let known = UNITS.iter().filter(|(of, _, _)| *of == kind);
    let known = known.map(|(_, name, scale)| (*name, *scale));
    if let Some((_, scale)) = known.clone().find(|(name, _)| *name == unit.value) {
        return Ok(scale);
    }
    if metric.contains("per") {
        return Ok(1.0);
    }
    let names: Vec<&str> = known.map(|(name, _)| name).collect();
    let hint = format!("write {}, or give `scale`", listed(&names, "or"));
    Fault::malformed(unit, "unit of that figure", &hint)
}

const UNITS: &[(&str, &str, f64)] = &[
    ("_bps", "bit/s", 1.0),
    ("_bps", "kbit/s", 1e-3),
    ("_bps", "Mbit/s", 1e-6),
    ("_bps", "Gbit/s", 1e-9),
    ("_bps", "KB/s", 1.0 / 8e3),
    ("_bps", "KiB/s", 1.0 / (8.0 * 1024.0)),
    ("_bps", "MB/s", 1.0 / 8e6),
    ("_bps", "MiB/s", 1.0 / (8.0 * 1024.0 * 1024.0)),
    ("_us", "µs", 1.0),
    ("_us", "us", 1.0),
    ("_us", "ms", 1e-3),
    ("_us", "s", 1e-6),
];

const KEYS: &str = "metric title unit scale decimals ratio_to";

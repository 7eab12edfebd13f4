//! Reads `[[factor]]` and `[[factor.level]]`.

use toml::de::DeValue;

use super::super::model::Factor;
use super::setting::Setting;
use crate::toml_reader::{At, Fault, Section, Value, text, wrong_type};
use crate::units::Sizes;

/// The factors, complete and reduced to the levels of the quick form.
pub(super) struct Factors<'a> {
    pub(super) full: Vec<FileFactor<'a>>,
    pub(super) quick: Vec<FileFactor<'a>>,
}

/// A factor: something that is varied.
#[derive(Debug, Clone)]
pub(super) struct FileFactor<'a> {
    pub(super) name: &'a str,
    pub(super) levels: Vec<Level<'a>>,
}

/// A level of a factor.
#[derive(Debug, Clone)]
pub(super) struct Level<'a> {
    pub(super) name: String,
    /// How the figures' file calls it, one text for each of the factor's columns there.
    pub(super) figure: Vec<String>,
    pub(super) setting: Setting<'a>,
    pub(super) lacks: Option<&'a str>,
}

impl<'a> Factors<'a> {
    pub(super) fn read(root: &Section<'a>, quick: Option<&Section<'a>>) -> Result<Self, Fault> {
        let mut full: Vec<FileFactor> = Vec::new();
        for section in root.sections("factor", "[[factor]]", FACTOR_KEYS)? {
            let name = section.required("name", "what is varied")?;
            if full.iter().any(|other| other.name == name.value) {
                return Fault::repeated(name.offset, "factors", name.value);
            }
            full.push(FileFactor {
                name: name.value,
                levels: levels(&section)?,
            });
        }
        let count = full.iter().map(|factor| factor.levels.len());
        let count = count.fold(1, usize::saturating_mul);
        if count > MAX_CELLS {
            let problem =
                format!("{count} combinations of levels: an experiment has at most {MAX_CELLS}");
            return Err(Fault::new(0, problem));
        }
        let quick = match quick {
            Some(section) => narrowed(&full, section)?,
            None => full.clone(),
        };
        Ok(Self { full, quick })
    }
}

impl FileFactor<'_> {
    pub(super) fn model(&self) -> Factor {
        Factor {
            name: self.name.to_owned(),
            levels: self.levels.iter().map(|level| level.name.clone()).collect(),
        }
    }
}

/// The levels of a factor: `[[factor.level]]`, or `key` and `values`.
fn levels<'a>(section: &Section<'a>) -> Result<Vec<Level<'a>>, Fault> {
    let tables = section.sections("level", "[[factor.level]]", LEVEL_KEYS)?;
    let key = section.string("key")?;
    let values = section.value("values");
    let levels = match (tables.is_empty(), key, values) {
        (false, None, None) => tables.iter().map(level).collect::<Result<Vec<_>, _>>()?,
        (true, Some(key), Some(values)) => of_values(key, values)?,
        (false, _, _) => {
            let hint = "either [[factor.level]], or `key` and `values`";
            return Fault::contradiction(section.offset, "[[factor]]", hint);
        }
        (true, _, _) => {
            let hint = "and `values`: or [[factor.level]] for each level";
            return Err(section.missing("key", hint));
        }
    };
    for (index, level) in levels.iter().enumerate() {
        if levels[..index].iter().any(|other| other.name == level.name) {
            return Fault::repeated(level.setting.offset, "levels of the factor", &level.name);
        }
    }
    Ok(levels)
}

fn level<'a>(section: &Section<'a>) -> Result<Level<'a>, Fault> {
    let name = section.required("name", "what the level is called")?;
    let figure = match section.value("figure") {
        None => vec![name.value.to_owned()],
        Some(value) => {
            let figures = texts("figure", value)?.into_iter();
            figures.map(|at| at.value).collect()
        }
    };
    Ok(Level {
        name: name.value.to_owned(),
        figure,
        setting: Setting::of_level(section)?,
        lacks: section.string("lacks")?.map(|at| at.value),
    })
}

/// A level for each value of one key.
fn of_values<'a>(key: At<&'a str>, values: &Value<'a>) -> Result<Vec<Level<'a>>, Fault> {
    let offset = values.span().start;
    let texts = match values.get_ref() {
        DeValue::String(range) => {
            let Ok(sizes) = range.parse::<Sizes>() else {
                let hint = "write a list, or sizes such as \"100..9100/500\"";
                let value = range.as_ref();
                return Fault::malformed(At { offset, value }, "list of values", hint);
            };
            let values = sizes.as_slice().iter().map(u64::to_string);
            values.map(|value| At { offset, value }).collect()
        }
        _ => self::texts("values", values)?,
    };
    if texts.is_empty() {
        return Fault::contradiction(offset, "`values`", "a factor has at least one level");
    }
    let level = |value: At<String>| Level {
        name: value.value.clone(),
        figure: vec![value.value.clone()],
        setting: Setting {
            offset: value.offset,
            workload: vec![(key, value)],
            ..Setting::default()
        },
        lacks: None,
    };
    Ok(texts.into_iter().map(level).collect())
}

/// One value, or a list of them, as texts.
pub(super) fn texts(key: &str, value: &Value<'_>) -> Result<Vec<At<String>>, Fault> {
    match value.get_ref() {
        DeValue::Array(items) => items.iter().map(|item| text(key, item)).collect(),
        DeValue::Table(_) => Err(wrong_type(key, value, "a text, or a list of texts")),
        _ => Ok(vec![text(key, value)?]),
    }
}

/// The factors with only the levels that `[quick]` keeps.
fn narrowed<'a>(
    full: &[FileFactor<'a>],
    quick: &Section<'a>,
) -> Result<Vec<FileFactor<'a>>, Fault> {
    let mut factors = full.to_vec();
    for (name, value) in quick.entries("levels")? {
        let Some(factor) = factors.iter_mut().find(|factor| factor.name == name.value) else {
            let names: Vec<&str> = full.iter().map(|factor| factor.name).collect();
            return Err(Fault::unknown(name, "factor", &names));
        };
        let wanted = texts(name.value, value)?;
        for at in &wanted {
            level_index(factor, at.as_str())?;
        }
        let is_wanted = |level: &Level| wanted.iter().any(|at| at.value == level.name);
        factor.levels.retain(is_wanted);
        if factor.levels.is_empty() {
            return Fault::contradiction(name.offset, "`levels`", "name at least one");
        }
    }
    Ok(factors)
}

/// The levels of every cell, in the order of their numbers ([`cell_number`]).
///
/// [`cell_number`]: super::super::model::cell_number
pub(super) fn all_levels(factors: &[FileFactor<'_>]) -> Vec<Vec<usize>> {
    let none = vec![Vec::new()];
    factors.iter().fold(none, |cells: Vec<Vec<usize>>, factor| {
        let longer = cells.iter().flat_map(|cell| {
            (0..factor.levels.len()).map(|level| [cell.as_slice(), &[level]].concat())
        });
        longer.collect()
    })
}

/// The number of the level of that name.
pub(super) fn level_index(factor: &FileFactor<'_>, name: At<&str>) -> Result<usize, Fault> {
    let mut levels = factor.levels.iter();
    let found = levels.position(|level| level.name == name.value);
    found.ok_or_else(|| {
        let names = factor.levels.iter().map(|level| &level.name);
        Fault::unknown(name, "level", &names.collect::<Vec<_>>())
    })
}

const FACTOR_KEYS: &str = "name level key values";

const LEVEL_KEYS: &str = "\
    name figure workload treatments lab topology client server address family client_cpu \
    server_cpu lacks";

/// Largest number of cells: a longer table is not readable.
const MAX_CELLS: usize = 1000;

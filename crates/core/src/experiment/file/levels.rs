//! What is varied: the factors and their levels, and the settings of which a cell is built.

use toml::de::DeValue;

use super::super::model::Factor;
use super::Choice;
use crate::toml_reader::{At, Fault, KeyText, Section, Value, text, wrong_type};
use crate::treatment::Treatments;
use crate::units::Sizes;

/// The settings of a table: `[path]` and `[workload]`, a level, or `[quick]`.
#[derive(Debug, Clone, Default)]
pub(super) struct LevelSetting<'a> {
    /// The place in the file.
    pub(super) offset: usize,
    pub(super) workload: Vec<KeyText<'a>>,
    pub(super) path: PathKeys,
    pub(super) treatments: Option<At<&'a str>>,
}

/// The keys of a path. A later one takes the place of those of its name before it, but for `lab`:
/// these are the fragments of a spec.
#[derive(Debug, Clone, Default)]
pub(super) struct PathKeys(Vec<(&'static str, At<String>)>);

impl<'a> LevelSetting<'a> {
    /// What the file sets for all cells, with the path that the user chose in its place.
    pub(super) fn of_file(root: &Section<'a>, choice: &Choice) -> Result<Self, Fault> {
        let mut setting = Self::read(root)?;
        if let Some(section) = root.section("path", "[path]", PATH_KEYS)? {
            setting.offset = section.offset;
            setting.path = PathKeys::read(&section)?;
        }
        let (offset, path) = (setting.offset, &mut setting.path.0);
        if choice.host.is_some() || choice.lab.is_some() {
            path.retain(|(key, _)| *key == "family");
        }
        let host = choice.host.as_ref().map(ToString::to_string);
        for (key, value) in [("host", host), ("lab", choice.lab.clone())] {
            path.extend(value.map(|value| (key, At { offset, value })));
        }
        let kinds = (path.iter()).filter(|(key, _)| ["lab", "topology", "host"].contains(key));
        if kinds.count() > 1 {
            let hint = "give one of `lab`, `topology` and `host`";
            return Fault::contradiction(offset, "[path]", hint);
        }
        Ok(setting)
    }

    /// Reads the settings that a table has.
    pub(super) fn read(section: &Section<'a>) -> Result<Self, Fault> {
        let treatments = section.string("treatments")?;
        if let Some(at) = treatments {
            at.read::<Treatments>()?;
        }
        Ok(Self {
            offset: section.offset,
            workload: section.texts("workload")?,
            path: PathKeys::read(section)?,
            treatments,
        })
    }
}

impl PathKeys {
    fn read(section: &Section<'_>) -> Result<Self, Fault> {
        let mut keys = Vec::new();
        for key in PATH_KEYS.split(' ') {
            let value = section.string(key)?;
            keys.extend(value.map(|at| (key, at.map(str::to_owned))));
        }
        Ok(Self(keys))
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<At<&str>> {
        let found = self.0.iter().rfind(|(own, _)| *own == key);
        found.map(|(_, at)| at.as_str())
    }

    /// The fragments of the spec, in order.
    pub(super) fn fragments(&self) -> impl Iterator<Item = At<&str>> {
        let fragments = self.0.iter().filter(|(key, _)| *key == "lab");
        fragments.map(|(_, at)| at.as_str())
    }

    /// Adds the keys of a table that comes after; a topology takes the place of a spec.
    pub(super) fn extend(&mut self, other: &Self) {
        if other.get("topology").is_some() {
            self.0.retain(|(key, _)| *key != "lab");
        }
        self.0.extend(other.0.iter().cloned());
    }
}

/// The factors, complete, and with the levels of the form that is used.
pub(super) struct Factors<'a> {
    pub(super) full: Vec<FileFactor<'a>>,
    pub(super) used: Vec<FileFactor<'a>>,
}

/// A factor: something that is varied.
#[derive(Debug, Clone)]
pub(super) struct FileFactor<'a> {
    pub(super) name: &'a str,
    pub(super) levels: Vec<FileLevel<'a>>,
}

/// A level of a factor.
#[derive(Debug, Clone)]
pub(super) struct FileLevel<'a> {
    pub(super) name: String,
    /// How the figures' file calls it, one text for each of the factor's columns there.
    pub(super) figure: Vec<String>,
    pub(super) setting: LevelSetting<'a>,
    pub(super) lacks: Option<&'a str>,
}

impl<'a> Factors<'a> {
    /// Reads the factors; the levels of `quick` are used if `is_quick`, and checked in any case.
    pub(super) fn read(
        root: &Section<'a>,
        quick: Option<&Section<'a>>,
        is_quick: bool,
    ) -> Result<Self, Fault> {
        let mut full: Vec<FileFactor> = Vec::new();
        for section in root.sections("factor", "[[factor]]", FACTOR_KEYS)? {
            let name = section.required("name", "what is varied")?;
            if full.iter().any(|other| other.name == name.value) {
                return Fault::repeated(name.offset, "factors", name.value);
            }
            full.push(FileFactor { name: name.value, levels: levels(&section)? });
        }
        let counts = full.iter().map(|factor| factor.levels.len());
        let count = counts.fold(1, usize::saturating_mul);
        if count > MAX_CELLS {
            let what = format!("{count} combinations of levels");
            return Fault::contradiction(0, what, "an experiment has at most 1000");
        }
        let narrowed = quick.map(|quick| narrowed(&full, quick)).transpose()?;
        let used = narrowed.filter(|_| is_quick).unwrap_or_else(|| full.clone());
        Ok(Self { full, used })
    }
}

impl FileFactor<'_> {
    /// The number of the level of that name, if it has one.
    pub(super) fn position(&self, level: &str) -> Option<usize> {
        self.levels.iter().position(|other| other.name == level)
    }

    pub(super) fn model(&self) -> Factor {
        Factor {
            name: self.name.to_owned(),
            levels: self.levels.iter().map(|level| level.name.clone()).collect(),
        }
    }
}

/// The levels of a factor: `[[factor.level]]`, or `key` and `values`.
fn levels<'a>(section: &Section<'a>) -> Result<Vec<FileLevel<'a>>, Fault> {
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

fn level<'a>(section: &Section<'a>) -> Result<FileLevel<'a>, Fault> {
    let name = section.required("name", "what the level is called")?;
    let figure = match section.value("figure") {
        None => vec![name.value.to_owned()],
        Some(value) => {
            let figures = texts("figure", value)?.into_iter();
            figures.map(|at| at.value).collect()
        }
    };
    Ok(FileLevel {
        name: name.value.to_owned(),
        figure,
        setting: LevelSetting::read(section)?,
        lacks: section.string("lacks")?.map(|at| at.value),
    })
}

/// A level for each value of one key.
fn of_values<'a>(key: At<&'a str>, values: &Value<'a>) -> Result<Vec<FileLevel<'a>>, Fault> {
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
    let level = |value: At<String>| FileLevel {
        name: value.value.clone(),
        figure: vec![value.value.clone()],
        setting: LevelSetting {
            offset: value.offset,
            workload: vec![(key, value)],
            ..LevelSetting::default()
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
    quick: &Section<'_>,
) -> Result<Vec<FileFactor<'a>>, Fault> {
    let mut factors = full.to_vec();
    for (name, value) in quick.entries("levels")? {
        let factor = &mut factors[factor_index(full, name)?];
        let wanted = texts(name.value, value)?;
        for at in &wanted {
            level_index(factor, at.as_str())?;
        }
        let is_wanted = |level: &FileLevel| wanted.iter().any(|at| at.value == level.name);
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

/// The number of the factor of that name.
pub(super) fn factor_index(factors: &[FileFactor<'_>], name: At<&str>) -> Result<usize, Fault> {
    let names: Vec<&str> = factors.iter().map(|factor| factor.name).collect();
    name.index_in("factor", &names)
}

/// The number of the level of that name.
pub(super) fn level_index(factor: &FileFactor<'_>, name: At<&str>) -> Result<usize, Fault> {
    let names: Vec<&String> = factor.levels.iter().map(|level| &level.name).collect();
    name.index_in("level", &names)
}

const FACTOR_KEYS: &str = "name level key values";

const LEVEL_KEYS: &str = "\
    name figure workload treatments lab topology client server address family client_cpu \
    server_cpu lacks";

/// Largest number of cells: a longer table is not readable.
const MAX_CELLS: usize = 1000;
const PATH_KEYS: &str = "lab topology client server address host family client_cpu server_cpu";

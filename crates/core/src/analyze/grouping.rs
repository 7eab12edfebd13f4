//! Sorts rows into groups with the same settings, and each group's rows by level.

use std::collections::HashMap;

use super::document::Setting;
use super::error::{AnalyzeError, hint};
use super::table::{Column, Table};

/// The most groups of one analysis.
pub(super) const MAX_GROUPS: usize = 10_000;
/// The most levels of one factor.
pub(super) const MAX_LEVELS: usize = 1_000;

/// The columns by which rows are divided.
#[derive(Debug, Clone)]
pub(super) struct Split {
    pub(super) by: Vec<Column>,
    pub(super) factor: Option<Column>,
}

/// The rows in their groups.
#[derive(Debug)]
pub(super) struct Grouping<'t> {
    /// Levels, in the order of the file; a single empty one without a factor.
    pub(super) levels: Vec<&'t str>,
    /// The groups, in the order of the file.
    pub(super) groups: Vec<Rows<'t>>,
    /// Rows without a setting or level.
    pub(super) left_out: usize,
}

/// The rows of one group.
#[derive(Debug)]
pub(super) struct Rows<'t> {
    /// The values of the columns that define the group.
    pub(super) key: Vec<&'t str>,
    /// The rows of each level, in the order of the file.
    pub(super) of_level: Vec<Vec<usize>>,
}

impl<'t> Grouping<'t> {
    /// Puts the rows into groups.
    ///
    /// # Errors
    /// There are too many groups or levels.
    pub(super) fn new(
        table: &'t Table,
        rows: impl Iterator<Item = usize>,
        split: &Split,
    ) -> Result<Self, AnalyzeError> {
        let mut levels = Index::default();
        let mut keys = Index::default();
        let mut placed = Vec::new();
        let mut left_out = 0;
        for row in rows {
            let key: Option<Vec<&str>> = split.by.iter().map(|&c| table.text(row, c)).collect();
            let level = match split.factor {
                Some(factor) => table.text(row, factor),
                None => Some(""),
            };
            let (Some(key), Some(level)) = (key, level) else {
                left_out += 1;
                continue;
            };
            let group = keys.number(key);
            let level = levels.number(level);
            let limits = [
                (keys.names.len(), MAX_GROUPS, "groups: give fewer columns to --by"),
                (levels.names.len(), MAX_LEVELS, "levels: choose two by --a and --b"),
            ];
            if let Some((_, max, what)) = limits.iter().find(|(count, max, _)| count > max) {
                let message = format!("the columns make more than {max} {what}");
                return Err(AnalyzeError::new(message));
            }
            placed.push((group, level, row));
        }
        let mut groups: Vec<Rows<'t>> = keys
            .names
            .into_iter()
            .map(|key| Rows { key, of_level: vec![Vec::new(); levels.names.len()] })
            .collect();
        for (group, level, row) in placed {
            groups[group].of_level[level].push(row);
        }
        Ok(Self { levels: levels.names, groups, left_out })
    }

    /// Keeps only these levels, in this order.
    pub(super) fn choose(&mut self, chosen: &[usize]) {
        self.levels = chosen.iter().map(|&level| self.levels[level]).collect();
        for group in &mut self.groups {
            let mut taken = std::mem::take(&mut group.of_level);
            let picked = chosen.iter().map(|&level| std::mem::take(&mut taken[level]));
            group.of_level = picked.collect();
        }
        self.groups.retain(|group| group.of_level.iter().any(|rows| !rows.is_empty()));
    }

    /// The position of a level.
    ///
    /// # Errors
    /// There is no such level.
    pub(super) fn level(&self, factor: &str, level: &str) -> Result<usize, AnalyzeError> {
        let found = self.levels.iter().position(|known| *known == level);
        found.ok_or_else(|| {
            let hint = hint(level, self.levels.iter().copied());
            AnalyzeError::new(format!("the column `{factor}` has no level `{level}`; {hint}"))
        })
    }
}

impl Rows<'_> {
    /// The key with its columns' names.
    pub(super) fn settings(&self, table: &Table, by: &[Column]) -> Vec<Setting> {
        let named = by.iter().zip(&self.key);
        named
            .map(|(&column, value)| Setting {
                column: table.name(column).to_owned(),
                value: (*value).to_owned(),
            })
            .collect()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = usize> {
        self.of_level.iter().flatten().copied()
    }
}

/// Numbers names in the order in which they come.
struct Index<K> {
    names: Vec<K>,
    numbers: HashMap<K, usize>,
}

impl<K> Default for Index<K> {
    fn default() -> Self {
        Self { names: Vec::new(), numbers: HashMap::new() }
    }
}

impl<K: Clone + Eq + std::hash::Hash> Index<K> {
    fn number(&mut self, name: K) -> usize {
        if let Some(&number) = self.numbers.get(&name) {
            return number;
        }
        let number = self.names.len();
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }
}

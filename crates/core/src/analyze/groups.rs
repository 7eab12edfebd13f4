//! Groups of rows with the same settings, and the figures of each: a summary of each level, and
//! each level compared with the first.

use std::collections::HashMap;

use super::columns::AnalysisClock;
use super::document::{Contrast, Group, GroupRatio, Level, Overall, Setting, runs, signed_digits};
use super::table::{Column, Table};
use super::{AnalyzeError, hint};
use crate::compare::{Observation, observational};
use crate::stats::{Figure, Summary, figure, median_interval};

/// The table with the columns that are analyzed.
pub(super) struct View<'t, 'g> {
    pub(super) table: &'t Table,
    pub(super) by: &'g [Column],
    pub(super) grouping: &'g Grouping<'t>,
    pub(super) clock: &'g AnalysisClock<'t>,
}

/// The figures of one level of one group.
struct GroupSide<'t> {
    name: &'t str,
    level: Level,
    figures: Vec<f64>,
    /// Of the figures, also where they are not one: what differences and ratios are of.
    median: f64,
    first_row: usize,
}

impl<'t> View<'t, '_> {
    /// One metric in each group that has it, and the rows without a figure.
    ///
    /// # Errors
    /// A cell that is not a number.
    pub(super) fn of_metric(&self, metric: Column) -> Result<(Vec<Group>, usize), AnalyzeError> {
        let mut groups = Vec::new();
        let mut without = 0;
        for rows in &self.grouping.groups {
            let (sides, missing) = self.sides(rows, metric)?;
            without += missing;
            if !sides.is_empty() {
                groups.push(self.group(rows, metric, sides)?);
            }
        }
        Ok((groups, without))
    }

    fn group(
        &self,
        rows: &Rows<'t>,
        metric: Column,
        sides: Vec<GroupSide<'t>>,
    ) -> Result<Group, AnalyzeError> {
        let mut comparisons = Vec::new();
        // Only against the level that is to be compared with: another one would answer another
        // question.
        let base = self.grouping.levels[0];
        if let Some(first) = sides.first().filter(|side| side.name == base) {
            for side in &sides[1..] {
                let is_single = first.figures.len() == 1 && side.figures.len() == 1;
                let rows = [first.first_row, side.first_row];
                let figures = [first.figures[0], side.figures[0]];
                let by_clock = self.clock.ratio_range(metric, rows, figures);
                let ratio_by_clock = if is_single { by_clock? } else { None };
                comparisons.push(contrast(first, side, ratio_by_clock));
            }
        }
        Ok(Group {
            metric: self.table.name(metric).to_owned(),
            settings: rows.settings(self.table, self.by),
            levels: sides.into_iter().map(|side| side.level).collect(),
            comparisons,
        })
    }

    /// The levels that have figures, and the rows without one.
    fn sides(
        &self,
        rows: &Rows<'t>,
        metric: Column,
    ) -> Result<(Vec<GroupSide<'t>>, usize), AnalyzeError> {
        let mut sides = Vec::new();
        let mut missing = 0;
        for (&name, rows) in self.grouping.levels.iter().zip(&rows.of_level) {
            let mut figures = Vec::with_capacity(rows.len());
            let mut first_row = None;
            for &row in rows {
                let Some(figure) = self.table.number(row, metric)? else {
                    missing += 1;
                    continue;
                };
                first_row.get_or_insert(row);
                figures.push(figure);
            }
            sides.extend(first_row.and_then(|row| GroupSide::new(name, figures, row)));
        }
        Ok((sides, missing))
    }
}

impl<'t> GroupSide<'t> {
    /// The figures of a level; `None` where one is not finite.
    fn new(name: &'t str, figures: Vec<f64>, first_row: usize) -> Option<Self> {
        let summary = Summary::new(&figures).ok()?;
        let (median, not_one_figure) = match figure(&figures).ok()? {
            Figure::One(one) => (Some(one), None),
            several if is_rounding(&several, &figures) => (median_interval(&figures).ok(), None),
            several => (None, Some(several)),
        };
        Some(Self {
            name,
            level: Level {
                level: (!name.is_empty()).then(|| name.to_owned()),
                runs: summary.count(),
                mean: summary.mean(),
                median,
                not_one_figure,
            },
            median: summary.median(),
            figures,
            first_row,
        })
    }

    fn is_several(&self) -> bool {
        self.level.not_one_figure.is_some()
    }
}

/// Whether all modes are neighbours in the last decimal that the figures are printed with: 10.00,
/// 10.01 and 10.02 s are what rounding makes of one figure.
fn is_rounding(figure: &Figure, figures: &[f64]) -> bool {
    let Figure::Modes { modes } = figure else {
        return false;
    };
    let is_step = |step: &f64| {
        let mut steps = figures.iter().map(|figure| figure / step);
        steps.all(|steps| (steps - steps.round()).abs() < 1e-6)
    };
    let step = [1.0, 0.1, 0.01, 0.001, 0.0001].into_iter().find(is_step);
    step.is_some_and(|step| {
        let mut pairs = modes.windows(2);
        pairs.all(|pair| pair[1].min - pair[0].max < 1.5 * step)
    })
}

/// Each other level over all groups of a metric; empty for a single group.
pub(super) fn overall(groups: &[Group], levels: &[&str]) -> Vec<Overall> {
    let mut all = Vec::new();
    for level in levels.iter().skip(1) {
        let mut ratios: Vec<GroupRatio> = Vec::new();
        for group in groups {
            let mut contrasts = group.comparisons.iter();
            let found = contrasts.find(|contrast| contrast.b == *level);
            ratios.extend(
                found
                    .and_then(|contrast| contrast.ratio)
                    .map(|ratio| GroupRatio { ratio, settings: group.settings.clone() }),
            );
        }
        ratios.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        if let ([smallest, .., largest], Some(metric)) = (&ratios[..], groups.first()) {
            let n = ratios.len();
            all.push(Overall {
                metric: metric.metric.clone(),
                a: levels[0].to_owned(),
                b: (*level).to_owned(),
                groups: n,
                larger: ratios.iter().filter(|group| group.ratio > 1.0).count(),
                smaller: ratios.iter().filter(|group| group.ratio < 1.0).count(),
                median_ratio: f64::midpoint(ratios[(n - 1) / 2].ratio, ratios[n / 2].ratio),
                smallest: smallest.clone(),
                largest: largest.clone(),
            });
        }
    }
    all
}

/// Effect and interval, and what this number of runs can show.
fn contrast(a: &GroupSide<'_>, b: &GroupSide<'_>, ratio_by_clock: Option<[f64; 2]>) -> Contrast {
    let (n_a, n_b) = (a.figures.len(), b.figures.len());
    // Figures that are not positive have no ratio; the difference remains.
    let seen = observational(&a.figures, &b.figures).ok();
    let with_spread = seen.as_ref().filter(|_| n_a + n_b > 2);
    let ratio = b.median / a.median;
    let mut contrast = Contrast {
        a: a.name.to_owned(),
        b: b.name.to_owned(),
        n_a,
        n_b,
        difference: b.median - a.median,
        ratio: ratio.is_finite().then_some(ratio),
        effect_percent: seen.as_ref().map(|seen| seen.effect_percent),
        interval_percent: with_spread.map(|seen| seen.interval_percent),
        confidence_percent: with_spread.map(|seen| seen.confidence_percent),
        smallest_p_value: seen.as_ref().map(|seen| seen.smallest_p_value),
        runs_to_reach_5_percent: seen.as_ref().map(|seen| seen.runs_to_reach_5_percent),
        runs_needed: seen.as_ref().and_then(|seen| seen.runs_needed),
        ratio_by_clock,
        shows: several([a, b]).into_iter().collect(),
    };
    contrast.shows.extend(shows(&contrast, seen.as_ref()));
    contrast
}

/// Warns where a side has several modes: the difference of medians that hardly occur says little.
fn several(sides: [&GroupSide<'_>; 2]) -> Option<String> {
    let several = sides.into_iter().filter(|side| side.is_several());
    let names: Vec<&str> = several.map(|side| side.name).collect();
    (!names.is_empty()).then(|| {
        format!(
            "the figures under {} are not one but have modes, or drift from row to row: find out \
             what changed between them before their medians are compared",
            names.join(" and ")
        )
    })
}

/// What this number of runs shows and cannot show.
fn shows(contrast: &Contrast, seen: Option<&Observation>) -> Vec<String> {
    let mut say = Vec::new();
    let Some(seen) = seen else {
        return vec![
            "not all figures are above 0: there is no ratio and no effect in percent".to_owned(),
        ];
    };
    if seen.runs_a == 1 && seen.runs_b == 1 {
        say.push(
            "one run each: the ratio is all there is, and whether it would come again is not known"
                .to_owned(),
        );
    } else if !seen.can_reach_5_percent() {
        let each = seen.runs_to_reach_5_percent;
        say.push(format!(
            "{} against {}: no test of ranks can reach 5 %, however large the difference (the \
             smallest p is {:.2}); {each} against {each} can",
            runs(seen.runs_a),
            seen.runs_b,
            seen.smallest_p_value
        ));
    }
    match contrast.ratio_by_clock {
        Some([low, high]) if low < 1.0 && 1.0 < high => {
            say.push("the clock of whole seconds alone can make the difference".to_owned());
        }
        Some(_) => {
            say.push("the clock of whole seconds alone does not make the difference".to_owned());
        }
        None => {}
    }
    say.extend(interval_says(contrast));
    let fewest = seen.runs_a.min(seen.runs_b);
    if let Some(needed) = seen.runs_needed.filter(|needed| *needed > fewest) {
        say.push(format!(
            "a difference of this size, at the spread seen here, takes about {} of each to show in \
             four of five cases",
            runs(needed)
        ));
    }
    say
}

/// Whether the interval contains 0, in words.
fn interval_says(contrast: &Contrast) -> Option<String> {
    let [low, high] = contrast.interval_percent?;
    let confidence = contrast.confidence_percent?;
    if low == 0.0 && high == 0.0 {
        return Some("all runs of both have the same figure".to_owned());
    }
    let range = format!("{} to {} %", signed_digits(low), signed_digits(high));
    Some(if low <= 0.0 && high >= 0.0 {
        format!("no difference is shown: {range} at {confidence:.0} % confidence has 0 in it")
    } else {
        format!(
            "{range} at {confidence:.0} % confidence leaves 0 out, if nothing but the factor \
             changed between the runs, which were not paired and interleaved"
        )
    })
}

// Rows sorted into groups with the same settings, and each group's rows by level.

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

/// The most groups of one analysis.
const MAX_GROUPS: usize = 10_000;
/// The most levels of one factor.
const MAX_LEVELS: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    const OFF: [f64; 3] = [793.65, 786.84, 797.10];
    const ON: [f64; 3] = [780.14, 762.83, 669.91];

    fn of(a: &[f64], b: &[f64]) -> Contrast {
        let side = |name, figures: &[f64]| GroupSide::new(name, figures.to_vec(), 0).unwrap();
        contrast(&side("off", a), &side("on", b), None)
    }

    #[test]
    fn a_verdict_does_not_depend_on_the_unit() {
        let scaled = [OFF, ON].map(|side| side.map(|value| value * 1e6));
        assert_eq!(of(&OFF, &ON).shows, of(&scaled[0], &scaled[1]).shows);
    }

    #[test]
    fn three_against_three_are_told_that_they_cannot_reach_5_percent_and_four_are_not() {
        let three = of(&OFF, &ON);
        assert!(three.shows[0].contains("no test of ranks can reach 5 %"));
        assert!(three.shows[1].contains("at 90 % confidence leaves 0 out"));
        let four = of(&[100.0, 101.0, 102.0, 103.0], &[90.0, 91.0, 92.0, 93.0]);
        assert!(
            four.shows.iter().all(|words| !words.contains("cannot") && !words.contains("no test"))
        );
    }

    #[test]
    fn one_run_each_has_a_ratio_and_no_interval() {
        let single = of(&[298.54], &[238.83]);
        assert_eq!(single.interval_percent, None);
        assert!((single.ratio.unwrap() - 0.8).abs() < 1e-3);
        assert!(single.shows[0].starts_with("one run each"));
    }

    #[test]
    fn figures_of_0_have_a_difference_and_no_effect() {
        let losses = of(&[0.0, 0.0], &[0.1, 0.2]);
        assert_eq!(losses.effect_percent, None);
        assert_eq!(losses.ratio, None);
        assert!(losses.difference > 0.0);
    }
}

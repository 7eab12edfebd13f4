//! The figures of each group: their levels, and each level against the first.

use super::clock::Clock;
use super::contrast::{Sides, contrast};
use super::document::{Group, GroupRatio, Level, Overall};
use super::error::AnalyzeError;
use super::grouping::{Grouping, Rows};
use super::table::{Column, Table};
use crate::stats::{Figure, Summary, figure, median_interval};

/// What is looked at.
pub(super) struct View<'t, 'g> {
    pub(super) table: &'t Table,
    pub(super) by: &'g [Column],
    pub(super) grouping: &'g Grouping<'t>,
    pub(super) clock: &'g Clock<'t>,
}

/// The figures of one level of one group.
struct Side<'t> {
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
        sides: Vec<Side<'t>>,
    ) -> Result<Group, AnalyzeError> {
        let mut comparisons = Vec::new();
        // Only against the level that is to be compared with: another one would answer another
        // question.
        let first = sides
            .first()
            .filter(|side| side.name == self.grouping.levels[0]);
        if let Some(first) = first {
            for side in &sides[1..] {
                let is_single = first.figures.len() == 1 && side.figures.len() == 1;
                let ratio_by_clock = if is_single {
                    self.clock.ratio_range(
                        metric,
                        [first.first_row, side.first_row],
                        [first.figures[0], side.figures[0]],
                    )?
                } else {
                    None
                };
                comparisons.push(contrast(&Sides {
                    a: first.name,
                    b: side.name,
                    of_a: &first.figures,
                    of_b: &side.figures,
                    median_a: first.median,
                    median_b: side.median,
                    not_one_figure: [first, side].map(Side::is_several),
                    ratio_by_clock,
                }));
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
    ) -> Result<(Vec<Side<'t>>, usize), AnalyzeError> {
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
            sides.extend(first_row.and_then(|row| Side::new(name, figures, row)));
        }
        Ok((sides, missing))
    }
}

impl<'t> Side<'t> {
    /// `None` where figures are not finite.
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

/// Each other level over the groups of a metric; none for a single group.
pub(super) fn overall(groups: &[Group], levels: &[&str]) -> Vec<Overall> {
    let mut all = Vec::new();
    for level in levels.iter().skip(1) {
        let mut ratios: Vec<GroupRatio> = Vec::new();
        for group in groups {
            let found = group
                .comparisons
                .iter()
                .find(|contrast| contrast.b == *level);
            ratios.extend(
                found
                    .and_then(|contrast| contrast.ratio)
                    .map(|ratio| GroupRatio {
                        ratio,
                        settings: group.settings.clone(),
                    }),
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

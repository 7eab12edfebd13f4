//! The figures of each group: a summary of each level, and each level compared with the first.

use super::clock::AnalysisClock;
use super::document::{Contrast, Group, GroupRatio, Level, Overall};
use super::error::AnalyzeError;
use super::grouping::{Grouping, Rows};
use super::table::{Column, Table};
use super::words::{runs, signed_digits};
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

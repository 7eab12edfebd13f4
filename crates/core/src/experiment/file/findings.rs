//! `[[finding]]`.

use super::super::error::Fault;
use super::super::model::{Expectation, Finding};
use super::columns::{factor_index, measure};
use super::factors::{FileFactor, level_index, texts};
use crate::toml_reader::{At, Section};
use crate::units::Percent;

/// All findings. Of cells that the quick form leaves out there are no pairs.
pub(super) fn read(
    root: &Section<'_>,
    full: &[FileFactor<'_>],
    used: &[FileFactor<'_>],
) -> Result<Vec<Finding>, Fault> {
    let sections = root.sections("finding", "[[finding]]", KEYS)?;
    let read = |section: &Section<'_>| finding(section, full, used);
    sections.iter().map(read).collect()
}

fn finding(
    section: &Section<'_>,
    full: &[FileFactor<'_>],
    used: &[FileFactor<'_>],
) -> Result<Finding, Fault> {
    let metric = section.required("metric", "the figure that it is about")?;
    let over_metric = section.string("over_metric")?;
    let is_ratio = section.value("over").is_some();
    let expectation = expectation(section, is_ratio)?;
    Ok(Finding {
        text: section.required("text", "what was found")?.value.to_owned(),
        measure: measure(metric)?,
        over_measure: over_metric.map(measure).transpose()?,
        pairs: pairs(section, full, used)?,
        expectation,
        report: section.float("report")?.map(|at| at.value),
    })
}

fn expectation(section: &Section<'_>, is_ratio: bool) -> Result<Expectation, Fault> {
    let about = section.float("about")?;
    let within = section.float("within")?;
    let least = section.float("at_least")?;
    let most = section.float("at_most")?;
    let same = section.string("no_difference")?;
    if let (Some(within), None) = (within, about) {
        return Fault::contradiction(within.offset, "`within`", "it is of `about`");
    }
    match (about, least, most, same) {
        (Some(about), None, None, None) => is_about(about, within),
        (None, Some(least), Some(most), None) if least.value > most.value => {
            let hint = "`at_most` is the larger one";
            Fault::contradiction(least.offset, "`at_least` and `at_most`", hint)
        }
        (None, Some(least), Some(most), None) => Ok(Expectation::Between {
            least: least.value,
            most: most.value,
        }),
        (None, Some(least), None, None) => Ok(Expectation::AtLeast(least.value)),
        (None, None, Some(most), None) => Ok(Expectation::AtMost(most.value)),
        (None, None, None, Some(margin)) => no_difference(margin, is_ratio),
        _ => {
            let hint = "give `about`, `no_difference`, or `at_least`, `at_most` or both of them";
            Fault::contradiction(section.offset, "[[finding]]", hint)
        }
    }
}

fn is_about(about: At<f64>, within: Option<At<f64>>) -> Result<Expectation, Fault> {
    if about.value <= 0.0 {
        return Fault::contradiction(about.offset, "`about`", "it is above 0");
    }
    let factor = within.map_or(DEFAULT_WITHIN, |at| at.value);
    if factor < 1.0 {
        let hint = "it is a factor, 1 or more";
        return Fault::contradiction(about.offset, "`within`", hint);
    }
    Ok(Expectation::About {
        value: about.value,
        within: factor,
    })
}

fn no_difference(margin: At<&str>, is_ratio: bool) -> Result<Expectation, Fault> {
    match margin.value.parse::<Percent>() {
        _ if !is_ratio => {
            let hint = "it is of a ratio: give `over`";
            Fault::contradiction(margin.offset, "`no_difference`", hint)
        }
        Ok(percent) if percent.0 > 0.0 && percent.0 < 100.0 => Ok(Expectation::NoDifference {
            margin_percent: percent.0,
        }),
        _ => Fault::malformed(margin, "margin", "write \"5%\", above 0 % and below 100 %"),
    }
}

/// A cell as the level of each factor; `None` is any.
type Selection = Vec<Option<Vec<usize>>>;

/// The levels that `[[finding]]` names under a key.
fn selection(
    section: &Section<'_>,
    key: &str,
    factors: &[FileFactor<'_>],
) -> Result<Selection, Fault> {
    let mut selection = vec![None; factors.len()];
    for (name, value) in section.entries(key)? {
        let factor = factor_index(factors, name)?;
        let levels = texts(name.value, value)?;
        let index = |at: &At<String>| level_index(&factors[factor], at.offset, &at.value);
        selection[factor] = Some(levels.iter().map(index).collect::<Result<Vec<_>, _>>()?);
    }
    Ok(selection)
}

/// The cells of a finding, each with the one that it is held against, as their numbers in the form
/// that is used.
fn pairs(
    section: &Section<'_>,
    full: &[FileFactor<'_>],
    used: &[FileFactor<'_>],
) -> Result<Vec<(usize, Option<usize>)>, Fault> {
    let [of, over, common] = ["of", "over", "where"].map(|key| selection(section, key, full));
    let (of, over, common) = (of?, over?, common?);
    let is_ratio = section.value("over").is_some();
    if over.iter().flatten().any(|levels| levels.len() != 1) {
        let hint = "name one level of a factor";
        return Fault::contradiction(section.offset, "`over`", hint);
    }
    let numbers = Numbers { full, used };
    let mut pairs = Vec::new();
    let wanted = |levels: &Vec<usize>| allows(&of, levels) && allows(&common, levels);
    for levels in numbers.all().into_iter().filter(wanted) {
        let partner = held_against(&levels, &over);
        if is_ratio && partner == levels {
            let hint = "a cell would be held against itself: `of` names another level than `over`";
            return Fault::contradiction(section.offset, "`of` and `over`", hint);
        }
        match (numbers.used(&levels), numbers.used(&partner)) {
            (Some(cell), _) if !is_ratio => pairs.push((cell, None)),
            (Some(cell), Some(partner)) => pairs.push((cell, Some(partner))),
            _ => {}
        }
    }
    Ok(pairs)
}

fn allows(selection: &Selection, levels: &[usize]) -> bool {
    let mut factors = selection.iter().zip(levels);
    factors.all(|(allowed, level)| allowed.as_ref().is_none_or(|levels| levels.contains(level)))
}

/// The cell with the levels of `over` in place of its own.
fn held_against(levels: &[usize], over: &Selection) -> Vec<usize> {
    let factors = levels.iter().zip(over);
    factors
        .map(|(own, over)| over.as_ref().map_or(*own, |levels| levels[0]))
        .collect()
}

/// Cells of the whole form, and their numbers in the one that is used.
struct Numbers<'f, 'a> {
    full: &'f [FileFactor<'a>],
    used: &'f [FileFactor<'a>],
}

impl Numbers<'_, '_> {
    fn all(&self) -> Vec<Vec<usize>> {
        let start = vec![Vec::new()];
        self.full
            .iter()
            .fold(start, |cells: Vec<Vec<usize>>, factor| {
                let longer = cells.iter().flat_map(|cell| {
                    (0..factor.levels.len()).map(|level| [cell.as_slice(), &[level]].concat())
                });
                longer.collect()
            })
    }

    fn used(&self, levels: &[usize]) -> Option<usize> {
        let factors = self.full.iter().zip(self.used).zip(levels);
        factors
            .into_iter()
            .try_fold(0, |number, ((full, used), level)| {
                let name = &full.levels[*level].name;
                let level = used.levels.iter().position(|other| other.name == *name)?;
                Some(number * used.levels.len() + level)
            })
    }
}

/// How far a value may be off that a report gives in round figures.
const DEFAULT_WITHIN: f64 = 1.25;

const KEYS: &str =
    "text metric over_metric of over where about within at_least at_most no_difference report";

//! Reads `[[finding]]`, and adds the controls that a comparison of cells needs.

use super::super::model::{Experiment, Finding, cell_number};
use super::levels::{Factors, FileFactor, all_levels, factor_index, level_index, texts};
use crate::stats::Accepted;
use crate::toml_reader::{At, Fault, Section};
use crate::treatment::pair;
use crate::units::Percent;

/// Reads all findings. Pairs with cells that the quick form omits are left out.
pub(super) fn read(root: &Section<'_>, factors: &Factors<'_>) -> Result<Vec<Finding>, Fault> {
    let sections = root.sections("finding", "[[finding]]", KEYS)?;
    sections.iter().map(|section| finding(section, factors)).collect()
}

fn finding(section: &Section<'_>, factors: &Factors<'_>) -> Result<Finding, Fault> {
    let metric = section.required("metric", "the figure that it is about")?;
    let over_measure = section.string("over_metric")?.map(At::read);
    let is_ratio = section.value("over").is_some();
    Ok(Finding {
        text: section.required("text", "what was found")?.value.to_owned(),
        measure: metric.read()?,
        over_measure: over_measure.transpose()?,
        pairs: pairs(section, factors)?,
        accepted: accepted(section, is_ratio)?,
        report: section.float("report")?.map(|at| at.value),
    })
}

fn accepted(section: &Section<'_>, is_ratio: bool) -> Result<Accepted, Fault> {
    let about = section.float("about")?;
    let within = section.float("within")?;
    let min = section.float("at_least")?;
    let max = section.float("at_most")?;
    let same = section.string("no_difference")?;
    if let (Some(within), None) = (within, about) {
        return Fault::contradiction(within.offset, "`within`", "it is of `about`");
    }
    match (about, min, max, same) {
        (Some(about), None, None, None) => around(about, within),
        (None, Some(min), Some(max), None) if min.value > max.value => {
            let hint = "`at_most` is the larger one";
            Fault::contradiction(min.offset, "`at_least` and `at_most`", hint)
        }
        (None, None, None, Some(margin)) => no_difference(margin, is_ratio),
        (None, min, max, None) if min.is_some() || max.is_some() => Ok(Accepted {
            low: min.map_or(f64::NEG_INFINITY, |at| at.value),
            high: max.map_or(f64::INFINITY, |at| at.value),
        }),
        _ => {
            let hint = "give `about`, `no_difference`, or `at_least`, `at_most` or both of them";
            Fault::contradiction(section.offset, "[[finding]]", hint)
        }
    }
}

fn around(about: At<f64>, within: Option<At<f64>>) -> Result<Accepted, Fault> {
    if about.value <= 0.0 {
        return Fault::contradiction(about.offset, "`about`", "it is above 0");
    }
    let factor = within.map_or(DEFAULT_WITHIN, |at| at.value);
    if factor < 1.0 {
        return Fault::contradiction(about.offset, "`within`", "it is a factor, 1 or more");
    }
    Ok(Accepted { low: about.value / factor, high: about.value * factor })
}

fn no_difference(margin: At<&str>, is_ratio: bool) -> Result<Accepted, Fault> {
    if !is_ratio {
        let hint = "it is of a ratio: give `over`";
        return Fault::contradiction(margin.offset, "`no_difference`", hint);
    }
    let hint = "write \"5%\", above 0 % and below 100 %";
    let is_margin = |percent: &Percent| percent.0 > 0.0 && percent.0 < 100.0;
    let margin = margin.parsed("margin", hint, is_margin)?.0 / 100.0;
    Ok(Accepted { low: 1.0 - margin, high: 1.0 + margin })
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
        let index = |at: &At<String>| level_index(&factors[factor], at.as_str());
        selection[factor] = Some(levels.iter().map(index).collect::<Result<Vec<_>, _>>()?);
    }
    Ok(selection)
}

/// The cells of a finding, each with the one that it is held against, as their numbers in the form
/// that is used.
fn pairs(
    section: &Section<'_>,
    factors: &Factors<'_>,
) -> Result<Vec<(usize, Option<usize>)>, Fault> {
    let full = &factors.full;
    let [of, over, common] = ["of", "over", "where"].map(|key| selection(section, key, full));
    let (of, over, common) = (of?, over?, common?);
    let is_ratio = section.value("over").is_some();
    if over.iter().flatten().any(|levels| levels.len() != 1) {
        let hint = "name one level of a factor";
        return Fault::contradiction(section.offset, "`over`", hint);
    }
    let mut pairs = Vec::new();
    let wanted = |levels: &Vec<usize>| allows(&of, levels) && allows(&common, levels);
    for levels in all_levels(full).into_iter().filter(wanted) {
        let partner = held_against(&levels, &over);
        if is_ratio && partner == levels {
            let hint = "a cell would be held against itself: `of` names another level than `over`";
            return Fault::contradiction(section.offset, "`of` and `over`", hint);
        }
        let number = |levels: &[usize]| number_of(factors, levels);
        match (number(&levels), number(&partner)) {
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

/// The cell that a cell is compared with: `over` replaces its levels.
fn held_against(levels: &[usize], over: &Selection) -> Vec<usize> {
    let factors = levels.iter().zip(over);
    factors.map(|(own, over)| over.as_ref().map_or(*own, |levels| levels[0])).collect()
}

/// The number in the form that is used of a cell of the whole form; `None` if the form leaves the
/// cell out.
fn number_of(factors: &Factors<'_>, levels: &[usize]) -> Option<usize> {
    let forms = factors.full.iter().zip(&factors.used).zip(levels);
    let places = forms.map(|((full, used), level)| used.position(&full.levels[*level].name));
    let own: Vec<usize> = places.collect::<Option<_>>()?;
    let counts = factors.used.iter().map(|factor| factor.levels.len());
    Some(cell_number(counts, &own))
}

/// Adds the controls that findings and columns of ratios need to the cells that they compare, and
/// says so in the experiment's notes. A control that one comparison adds to a cell may be needed by
/// the other cells that this one is held against, so all are looked at until nothing changes.
pub(super) fn add_controls(experiment: &mut Experiment) -> Result<(), Fault> {
    let compared = compared(experiment);
    loop {
        let mut is_settled = true;
        for (cell, other) in &compared {
            is_settled &= !control(experiment, *cell, *other)?;
        }
        if is_settled {
            return Ok(());
        }
    }
}

/// Adds controls to two compared cells; true if any was needed.
fn control(experiment: &mut Experiment, cell: usize, other: usize) -> Result<bool, Fault> {
    let [a, b] = [cell, other].map(|cell| &experiment.cells[cell].treatments);
    if a == b {
        return Ok(false);
    }
    let paired = pair(a, b).map_err(|error| Fault::new(0, error))?;
    let is_other = paired.a != *a || paired.b != *b;
    experiment.cells[cell].treatments = paired.a;
    experiment.cells[other].treatments = paired.b;
    for note in paired.notes {
        if !experiment.notes.contains(&note) {
            experiment.notes.push(note);
        }
    }
    Ok(is_other)
}

/// The pairs of cells that findings or ratios compare.
fn compared(experiment: &Experiment) -> Vec<(usize, usize)> {
    let findings = experiment.findings.iter();
    let pairs = findings.flat_map(|finding| &finding.pairs);
    let of_findings = pairs.filter_map(|(cell, other)| Some((*cell, (*other)?)));
    let columns = experiment.columns.iter();
    let levels = columns.filter_map(|column| column.ratio_to);
    let Some(across) = experiment.across else {
        return of_findings.collect();
    };
    let of_columns = levels.flat_map(|level| {
        let cells = experiment.cells.iter().enumerate();
        let others = cells.filter(move |(_, cell)| cell.levels[across] != level);
        others.map(move |(number, cell)| {
            let mut levels = cell.levels.clone();
            levels[across] = level;
            (number, experiment.cell_number(&levels))
        })
    });
    of_findings.chain(of_columns).collect()
}

/// Default tolerance for a value that a report gives in round figures, a factor.
const DEFAULT_WITHIN: f64 = 1.25;

const KEYS: &str =
    "text metric over_metric of over where about within at_least at_most no_difference report";

//! Treatments that change more than their name says get their control, where cells are held against
//! each other.

use super::super::error::{ExperimentProblem, Fault};
use super::super::model::Experiment;
use crate::treatment::pair;

/// Adds the controls that findings and columns of ratios need to the cells that they compare, and
/// says so in the experiment's notes. A control that one comparison adds to a cell may be needed by
/// the other cells that this one is held against, so all are looked at until nothing changes.
pub(super) fn add(experiment: &mut Experiment) -> Result<(), Fault> {
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

/// Whether the treatments of two cells had to be added to.
fn control(experiment: &mut Experiment, cell: usize, other: usize) -> Result<bool, Fault> {
    let [a, b] = [cell, other].map(|cell| &experiment.cells[cell].treatments);
    if a == b {
        return Ok(false);
    }
    let paired = pair(a, b).map_err(|error| Fault::new(0, ExperimentProblem::Treatment(error)))?;
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

/// Pairs of cells that findings or ratios are of.
fn compared(experiment: &Experiment) -> Vec<(usize, usize)> {
    let pairs = experiment
        .findings
        .iter()
        .flat_map(|finding| &finding.pairs);
    let of_findings = pairs.filter_map(|(cell, other)| Some((*cell, (*other)?)));
    let levels = experiment
        .columns
        .iter()
        .filter_map(|column| column.ratio_to);
    let Some(across) = experiment.across else {
        return of_findings.collect();
    };
    let stride: usize = (experiment.factors[across + 1..].iter())
        .map(|factor| factor.levels.len())
        .product();
    let of_columns = levels.flat_map(|level| {
        let cells = experiment.cells.iter().enumerate();
        cells.filter_map(move |(number, cell)| {
            let own = cell.levels[across];
            (own != level).then(|| (number, number - own * stride + level * stride))
        })
    });
    of_findings.chain(of_columns).collect()
}

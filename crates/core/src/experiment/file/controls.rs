//! Adds controls: where cells are compared, a treatment that changes more than its name says needs
//! one.

use super::super::model::Experiment;
use crate::toml_reader::Fault;
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
        let cells = cells.filter(move |(_, cell)| cell.levels[across] != level);
        cells.map(move |(number, cell)| {
            let mut levels = cell.levels.clone();
            levels[across] = level;
            (number, experiment.cell_number(&levels))
        })
    });
    of_findings.chain(of_columns).collect()
}

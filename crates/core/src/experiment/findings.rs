//! What of a report's findings the figures bear out. Computed from runs and tables, never typed.

use std::collections::BTreeMap;

use super::document::DocumentFinding;
use super::model::{Experiment, Finding};
use super::run::Run;
use crate::stats::{Accepted, Agreement, Summary, figure};

/// Each finding, held against the runs of each cell.
pub(super) fn outcomes(experiment: &Experiment, runs: &[Vec<&Run>]) -> Vec<DocumentFinding> {
    let outcome = |finding| outcome(experiment, finding, runs);
    experiment.findings.iter().map(outcome).collect()
}

fn outcome(experiment: &Experiment, finding: &Finding, runs: &[Vec<&Run>]) -> DocumentFinding {
    let (least, most) = finding.expectation.range();
    let accepted = Accepted {
        low: least,
        high: most,
    };
    let samples = samples(finding, runs);
    let ours = figure(&samples).ok();
    let report = finding.report.or_else(|| of_report(experiment, finding));
    let agreement = ours
        .as_ref()
        .map_or(Agreement::NotKnown, |ours| accepted.judge(ours, &samples));
    let report_agreement = accepted.judge_all(report);
    let over = finding.over_measure.as_ref();
    let over = over.map_or(String::new(), |over| format!(" ÷ {over}"));
    DocumentFinding {
        text: finding.text.clone(),
        metric: format!("{}{over}", finding.measure),
        is_ratio: over_other_cells(finding) || finding.over_measure.is_some(),
        least: Some(least).filter(|end| end.is_finite()),
        most: Some(most).filter(|end| end.is_finite()),
        why: ours.is_none().then(|| why_not(experiment, finding, runs)),
        ours,
        agreement,
        report,
        report_agreement,
    }
}

fn over_other_cells(finding: &Finding) -> bool {
    finding.pairs.iter().any(|(_, partner)| partner.is_some())
}

/// One value for each repeat: the median over the cells of the finding, so that cells of one repeat
/// are held against each other.
fn samples(finding: &Finding, runs: &[Vec<&Run>]) -> Vec<f64> {
    let mut by_repeat: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (cell, partner) in &finding.pairs {
        for run in runs[*cell].iter().filter(|run| run.counts()) {
            let held_against = partner.map(|partner| counted(&runs[partner], run.repeat));
            let value = match held_against {
                None => value(finding, run),
                Some(None) => None,
                Some(Some(other)) => ratio(value(finding, run), value(finding, other)),
            };
            by_repeat.entry(run.repeat).or_default().extend(value);
        }
    }
    let medians = by_repeat.into_values();
    medians
        .filter_map(|values| Some(Summary::new(&values).ok()?.median()))
        .collect()
}

fn value(finding: &Finding, run: &Run) -> Option<f64> {
    let value = finding.measure.of(run);
    match &finding.over_measure {
        None => value,
        Some(over) => ratio(value, over.of(run)),
    }
}

fn of_report(experiment: &Experiment, finding: &Finding) -> Option<f64> {
    let of_cell = |cell: usize| {
        let figures = &experiment.figures[cell];
        let value = figures.get(&finding.measure.to_string()).copied();
        match &finding.over_measure {
            None => value,
            Some(over) => ratio(value, figures.get(&over.to_string()).copied()),
        }
    };
    let values = finding
        .pairs
        .iter()
        .filter_map(|(cell, partner)| match partner {
            None => of_cell(*cell),
            Some(partner) => ratio(of_cell(*cell), of_cell(*partner)),
        });
    Some(Summary::new(&values.collect::<Vec<_>>()).ok()?.median())
}

/// The run of a repeat that counts.
pub(super) fn counted<'a>(runs: &[&'a Run], repeat: u32) -> Option<&'a Run> {
    let mut counted = runs.iter().filter(|run| run.counts());
    counted.find(|run| run.repeat == repeat).copied()
}

/// `None` where one is missing, or there is nothing to divide by.
pub(super) fn ratio(value: Option<f64>, over: Option<f64>) -> Option<f64> {
    let over = over.filter(|over| *over != 0.0)?;
    Some(value? / over).filter(|ratio| ratio.is_finite())
}

fn why_not(experiment: &Experiment, finding: &Finding, runs: &[Vec<&Run>]) -> String {
    let cells = || {
        let pairs = finding.pairs.iter();
        pairs
            .flat_map(|(cell, partner)| [Some(*cell), *partner])
            .flatten()
    };
    if finding.pairs.is_empty() {
        return "the quick form leaves its levels out".to_owned();
    }
    let lacking = cells().find_map(|cell| experiment.cells[cell].lacks.clone());
    if let Some(lacks) = lacking {
        return lacks;
    }
    if cells().any(|cell| runs[cell].iter().any(|run| run.counts())) {
        format!("no run has {} of both", finding.measure)
    } else {
        "no run of it counts".to_owned()
    }
}

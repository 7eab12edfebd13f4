//! Checks a report's findings against the figures, computed from runs and tables.

use std::collections::BTreeMap;

use super::document::DocumentFinding;
use super::measure::Run;
use super::model::{Experiment, Finding};
use crate::stats::{Agreement, Summary, figure};

/// Checks each finding against the runs of its cells.
pub(super) fn outcomes(experiment: &Experiment, runs: &[Vec<&Run>]) -> Vec<DocumentFinding> {
    let outcome = |finding| outcome(experiment, finding, runs);
    experiment.findings.iter().map(outcome).collect()
}

fn outcome(experiment: &Experiment, finding: &Finding, runs: &[Vec<&Run>]) -> DocumentFinding {
    let accepted = finding.accepted;
    let samples = samples(&finding.pairs, runs, |run| value(finding, run));
    let ours = figure(&samples).ok();
    let report = finding.report.or_else(|| of_report(experiment, finding));
    let judged = ours.as_ref().map(|ours| accepted.judge(ours, &samples));
    let agreement = judged.unwrap_or(Agreement::NotKnown);
    let report_agreement = accepted.judge_all(report);
    let other = finding.over_measure.as_ref();
    let over = other.map_or(String::new(), |over| format!(" ÷ {over}"));
    DocumentFinding {
        text: finding.text.clone(),
        metric: format!("{}{over}", finding.measure),
        is_ratio: over_other_cells(finding) || finding.over_measure.is_some(),
        least: Some(accepted.low).filter(|end| end.is_finite()),
        most: Some(accepted.high).filter(|end| end.is_finite()),
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

/// One value for each repeat: the median over the cells, each of which may be divided by a
/// partner's value of the same repeat.
pub(super) fn samples(
    pairs: &[(usize, Option<usize>)],
    runs: &[Vec<&Run>],
    value: impl Fn(&Run) -> Option<f64>,
) -> Vec<f64> {
    let mut by_repeat: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (cell, partner) in pairs {
        for run in runs[*cell].iter().filter(|run| run.counts()) {
            let value = match partner {
                None => value(run),
                Some(partner) => {
                    let mut others = runs[*partner].iter().filter(|other| other.counts());
                    let other = others.find(|other| other.repeat == run.repeat);
                    ratio(value(run), other.and_then(|other| value(other)))
                }
            };
            by_repeat.entry(run.repeat).or_default().extend(value);
        }
    }
    let median = |values: Vec<f64>| Some(Summary::new(&values).ok()?.median());
    by_repeat.into_values().filter_map(median).collect()
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
    let pairs = finding.pairs.iter();
    let values = pairs.filter_map(|(cell, partner)| match partner {
        None => of_cell(*cell),
        Some(partner) => ratio(of_cell(*cell), of_cell(*partner)),
    });
    Some(Summary::new(&values.collect::<Vec<_>>()).ok()?.median())
}

/// The ratio; `None` where a value is missing or the divisor is 0.
pub(super) fn ratio(value: Option<f64>, over: Option<f64>) -> Option<f64> {
    let over = over.filter(|over| *over != 0.0)?;
    Some(value? / over).filter(|ratio| ratio.is_finite())
}

fn why_not(experiment: &Experiment, finding: &Finding, runs: &[Vec<&Run>]) -> String {
    let cells = || {
        let pairs = finding.pairs.iter();
        let cells = pairs.flat_map(|(cell, partner)| [Some(*cell), *partner]);
        cells.flatten()
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

//! Builds the document of an experiment from its runs.

use std::collections::{BTreeMap, BTreeSet};

use super::document::{DocumentFinding, DocumentTable, EXPERIMENT_SCHEMA, ExperimentDocument};
use super::measure::Run;
use super::model::{Experiment, Factor};
use super::{findings, table};
use crate::record::{Caveat, CaveatKind, Status};
use crate::stats::Figure;

/// How an experiment ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ending {
    /// Why the experiment ended before all runs were made; `None` if all were made.
    pub partial: Option<String>,
    /// Cells that could not be run here, and why.
    pub unavailable: Vec<(usize, String)>,
}

impl Experiment {
    /// The document of the runs that were made; those of other experiments are left out.
    pub fn assemble(&self, mut runs: Vec<Run>, ending: &Ending) -> ExperimentDocument {
        runs.retain(|run| self.cell_of(run).is_some());
        let by_cell = self.by_cell(&runs);
        let table = table::table(self, &by_cell, &ending.unavailable);
        let findings = findings::outcomes(self, &by_cell);
        ExperimentDocument {
            schema: EXPERIMENT_SCHEMA.to_owned(),
            status: match ending.partial {
                None => Status::Complete,
                Some(_) => Status::Partial,
            },
            started_at: (runs.iter())
                .find_map(|run| run.record.as_ref().map(|record| record.started_at.clone())),
            title: self.title.clone(),
            report: self.report.clone(),
            about: self.about.clone(),
            seed: self.seed,
            quick: self.quick,
            repeats: self.repeats,
            forbid: self.forbid.iter().map(ToString::to_string).collect(),
            factors: self.factors.clone(),
            notes: self.all_notes(&by_cell, ending),
            caveats: caveats(&runs, ending, figure_doubts(&table, &findings)),
            table,
            findings,
            runs,
        }
    }

    fn all_notes(&self, runs: &[Vec<&Run>], ending: &Ending) -> Vec<String> {
        let lacking: BTreeSet<String> =
            (self.cells.iter()).filter_map(|cell| cell.lacks.clone()).collect();
        let mut notes = self.notes.clone();
        notes.extend(lacking.into_iter().map(|lacks| format!("not run: {lacks}")));
        let unavailable: BTreeSet<&String> =
            ending.unavailable.iter().map(|(_, why)| why).collect();
        notes.extend(unavailable.into_iter().map(|why| format!("not run: {why}")));
        notes.extend(self.exclusions(runs));
        notes.extend(self.one_sided(runs));
        notes
    }

    /// The excluded runs of each cell, as caveats.
    fn exclusions(&self, runs: &[Vec<&Run>]) -> Vec<String> {
        let note = |(cell, runs): (usize, &Vec<&Run>)| {
            let excluded: Vec<_> = runs.iter().filter(|run| !run.counts()).collect();
            let last = excluded.last()?;
            let why = last.error.as_ref().or_else(|| last.faults.first())?;
            let title = match self.cell_title(cell) {
                title if title.is_empty() => String::new(),
                title => format!("{title}: "),
            };
            let (count, all) = (excluded.len(), runs.len());
            Some(format!("{title}{count} of {all} runs excluded, the last because: {why}"))
        };
        runs.iter().enumerate().filter_map(note).collect()
    }

    /// Faults that came with one level of a factor alone: these are an outcome.
    fn one_sided(&self, runs: &[Vec<&Run>]) -> Vec<String> {
        let excluded: Vec<usize> = (runs.iter().enumerate())
            .flat_map(|(cell, runs)| runs.iter().filter(|run| !run.counts()).map(move |_| cell))
            .collect();
        // Of a single cell they have been said.
        let is_of_one_cell = excluded.iter().all(|cell| *cell == excluded[0]);
        if excluded.len() < FEWEST_TO_TELL || is_of_one_cell {
            return Vec::new();
        }
        let note = |(index, factor): (usize, &Factor)| {
            let levels: BTreeSet<usize> =
                (excluded.iter()).map(|cell| self.cells[*cell].levels[index]).collect();
            let is_alone = levels.len() == 1 && factor.levels.len() > 1;
            let level = &factor.levels[*levels.first().filter(|_| is_alone)?];
            let (count, name) = (excluded.len(), &factor.name);
            Some(format!(
                "all {count} excluded runs are of {name} {level}: a fault that it causes itself is \
                 an outcome"
            ))
        };
        self.factors.iter().enumerate().filter_map(note).collect()
    }
}

/// Of what the runs amount to: too few for their interval, or no single figure.
fn figure_doubts(table: &DocumentTable, findings: &[DocumentFinding]) -> Vec<Caveat> {
    let cells = table.rows.iter().flat_map(|row| &row.figures);
    let of_table: Vec<&Figure> = cells.filter_map(|figure| figure.ours.as_ref()).collect();
    let of_findings = findings.iter().filter_map(|finding| finding.ours.as_ref());
    let all: Vec<&Figure> = of_table.iter().copied().chain(of_findings).collect();
    let short = all.iter().filter_map(|figure| match figure {
        Figure::One(one) if !one.reaches_confidence() => Some(one.n),
        _ => None,
    });
    let few = short.min().map(|n| {
        let message = match n {
            1 => "one run has no interval: nothing is known of its spread".to_owned(),
            n => format!(
                "{n} runs cannot give an interval of 95 %: the one given, by which findings are \
                 judged, is their whole range"
            ),
        };
        let remedy = "`repeats` of 6 or more, or a `precision`; the whole form in place of --quick";
        Caveat::new(CaveatKind::FewRuns, message, remedy)
    });
    let odd = |figures: &[&Figure]| {
        let is_odd = |figure: &&&Figure| !matches!(figure, Figure::One(_));
        figures.iter().filter(is_odd).count()
    };
    let several = (odd(&all) > 0).then(|| {
        let [in_table, in_findings] = [odd(&of_table), odd(&all) - odd(&of_table)];
        Caveat::new(
            CaveatKind::NotOneFigure,
            format!(
                "{in_table} figures of the table and {in_findings} of the findings are not one \
                 figure: their runs have modes, or drift"
            ),
            "look for what changes between the runs: other load, CPU frequency, placement of \
             threads",
        )
    });
    few.into_iter().chain(several).collect()
}

/// Those of the figures, and those of the runs, each kind once with the number of runs that have
/// it.
fn caveats(runs: &[Run], ending: &Ending, of_figures: Vec<Caveat>) -> Vec<Caveat> {
    let mut kinds: BTreeMap<String, (usize, Caveat)> = BTreeMap::new();
    let records = runs.iter().filter_map(|run| run.record.as_ref());
    for caveat in records.flat_map(|record| &record.caveats) {
        let kind = format!("{:?}", caveat.kind);
        kinds.entry(kind).or_insert_with(|| (0, caveat.clone())).0 += 1;
    }
    let of_runs = kinds.into_values().map(|(count, caveat)| Caveat {
        message: match count {
            _ if runs.len() == 1 => caveat.message,
            count => format!("{count} of {} runs: {}", runs.len(), caveat.message),
        },
        ..caveat
    });
    let partial = ending.partial.iter().map(|why| {
        let remedy = "the same command goes on where it was";
        Caveat::new(CaveatKind::Partial, why.clone(), remedy)
    });
    partial.chain(of_figures).chain(of_runs).collect()
}

/// Fewer exclusions than this may have one level in common by chance.
const FEWEST_TO_TELL: usize = 3;

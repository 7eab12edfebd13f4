//! The page of an experiment: the report's table with its figures beside ours, and its findings.

use std::collections::BTreeSet;

use linerate_core::experiment::{
    CellFigure, DocumentColumn, DocumentFinding, DocumentRow, DocumentTable, ExperimentDocument,
};
use linerate_core::plan::Repeats;
use linerate_core::record::{Record, Status};
use linerate_core::stats::{Agreement, Figure, MedianInterval};

use super::number::{NBSP, digits, if_known, joined, named, some_joined};
use super::parts::{DRIFT, MODES, caveats, figure as repeats, middle};
use crate::document::{Document, Ending, Surroundings};
use crate::page::{Emphasis, Head, Page, Table};

impl Document for ExperimentDocument {
    /// Title, table, findings, notes, doubts.
    fn page(&self, page: &mut Page) {
        page.heading(&self.title);
        page.facts("report", self.report.clone());
        page.entry("runs", &runs(self));
        if let Some(about) = self.about.as_ref().filter(|_| page.has_details()) {
            page.gap();
            for paragraph in about.split("\n\n") {
                page.words(&paragraph.replace('\n', " "));
            }
        }
        page.gap();
        page.table(&table(&self.table));
        let legends = [spread(&self.table), legend(&self.table)];
        legends.iter().flatten().for_each(|line| page.indented(line));
        findings(page, self);
        let details = page.has_details();
        for note in self.notes.iter().filter(|_| details) {
            page.gap();
            page.entry("note", note);
        }
        caveats(page, &self.caveats);
    }

    fn records(&self) -> Option<Vec<&Record>> {
        let runs = self.runs.iter();
        Some(runs.filter_map(|run| run.record.as_deref()).collect())
    }

    fn records_mut(&mut self) -> Vec<&mut Record> {
        let runs = self.runs.iter_mut();
        runs.filter_map(|run| run.record.as_deref_mut()).collect()
    }

    // Each run has a path of its own.
    fn environments_mut(&mut self) -> Vec<Surroundings<'_>> {
        Vec::new()
    }

    fn endings(&self) -> Vec<Ending<'_>> {
        vec![(self.status, &self.caveats)]
    }
}

fn runs(document: &ExperimentDocument) -> String {
    let made = document.runs.len();
    let counted = document.runs.iter().filter(|run| run.counts()).count();
    let each = match document.repeats {
        Repeats::Times(times) => format!("{times} of each cell"),
        Repeats::Precision(percent) => format!("of each cell until ±{percent}"),
    };
    let is_partial = document.status == Status::Partial;
    let facts = [
        Some(format!("{made} made, {each}")),
        (counted < made).then(|| format!("{} excluded", made - counted)),
        Some(format!("seed {}", document.seed)),
        document.quick.then(|| "quick form".to_owned()),
        is_partial.then(|| "STOPPED EARLY".to_owned()),
    ];
    joined(facts, ", ")
}

/// The levels of the rows, then for each column our figure and, if there is one, the report's.
fn table(table: &DocumentTable) -> Table<&DocumentRow> {
    let rows = || table.rows.iter();
    let mut shown = Table::of(rows());
    for (factor, name) in table.row_factors.iter().enumerate() {
        let is_number = |row: &DocumentRow| row.levels[factor].parse::<f64>().is_ok();
        let level = |row: &&DocumentRow| row.levels[factor].clone();
        shown = if rows().all(is_number) {
            shown.right(name.as_str(), level)
        } else {
            shown.left(name.as_str(), level)
        };
    }
    for (number, column) in table.columns.iter().enumerate() {
        shown = shown.right(head(column), |row| ours(&row.figures[number], column));
        if rows().any(|row| row.figures[number].report.is_some()) {
            let report = |row: &&DocumentRow| row.figures[number].report;
            shown = shown.right("report", |row| Some(scaled(report(row)?, column)));
        }
    }
    shown
}

fn head(column: &DocumentColumn) -> Head {
    let unit = column.unit.clone().filter(|unit| *unit != column.title);
    let over = named("over", column.ratio_to.clone(), |level| level);
    let title = Some(column.title.clone());
    let lines = [column.level.clone(), title, unit, over];
    lines.into_iter().flatten().collect()
}

fn ours(figure: &CellFigure, column: &DocumentColumn) -> Option<String> {
    let write = |value: f64| scaled(value, column);
    let Some(ours) = &figure.ours else {
        return figure.not_run.as_ref().map(|_| "not run".to_owned());
    };
    let half_width = match ours {
        Figure::One(one) => half_width_percent(one),
        Figure::Modes { .. } | Figure::Drift { .. } => None,
    };
    let spread = if_known(half_width, |percent| format!("{NBSP}±{percent}%"));
    Some(middle(ours, write) + &spread)
}

/// The farther end of the interval in percent of the median, without decimals from 1 % on; `None`
/// for a single run.
fn half_width_percent(interval: &MedianInterval) -> Option<String> {
    let percent = interval.half_width() / interval.median.abs() * 100.0;
    if interval.n < 2 || !percent.is_finite() {
        return None;
    }
    Some(match percent {
        0.0 => "0".to_owned(),
        ..1.0 => format!("{percent:.1}"),
        _ => format!("{percent:.0}"),
    })
}

fn scaled(value: f64, column: &DocumentColumn) -> String {
    let value = value * column.scale;
    match column.decimals {
        Some(decimals) => format!("{value:.*}", decimals as usize),
        None => digits(value),
    }
}

/// Explains how figures with modes or a drift are written.
fn legend(table: &DocumentTable) -> Option<String> {
    let figures = table.rows.iter().flat_map(|row| &row.figures);
    let ours: Vec<&Figure> = figures.filter_map(|figure| figure.ours.as_ref()).collect();
    let has = |is: fn(&Figure) -> bool| ours.iter().any(|figure| is(figure));
    let modes = has(|figure| matches!(figure, Figure::Modes { .. }))
        .then(|| format!("a{MODES}b: the runs fall into groups, each with its median"));
    let drift = has(|figure| matches!(figure, Figure::Drift { .. })).then(|| {
        format!("a{DRIFT}b: the runs change with time, from the first third's median to the last's")
    });
    some_joined([modes, drift], "; ")
}

/// Explains the ± of the table.
fn spread(table: &DocumentTable) -> Option<String> {
    let figures = table.rows.iter().flat_map(|row| &row.figures);
    let ours = figures.filter_map(|figure| figure.ours.as_ref());
    let intervals = ours.filter_map(|figure| match figure {
        Figure::One(one) => Some(one),
        _ => None,
    });
    let counts: BTreeSet<usize> = intervals.clone().map(|interval| interval.n).collect();
    let (least, most) = (*counts.first()?, *counts.last()?);
    let runs = match least == most {
        true => most.to_string(),
        false => format!("{least} to {most}"),
    };
    if most < 2 {
        return Some("one run each: their spread is not known".to_owned());
    }
    let coverages = intervals.clone().map(|interval| 100.0 * interval.coverage);
    let coverage = coverages.fold(100.0, f64::min);
    let takes = intervals.clone().any(|interval| interval.takes_independence());
    let condition = if takes { " if the runs are independent" } else { "" };
    let level = match least {
        ..2 => String::new(),
        _ => format!(", which holds the true one with at least {coverage:.1} %{condition}"),
    };
    let what = format!("median of {runs} runs each");
    Some(format!("{what}; ± is the farther end of its interval{level}"))
}

fn findings(page: &mut Page, document: &ExperimentDocument) {
    if document.findings.is_empty() {
        return;
    }
    page.gap();
    page.title("findings of the report, held against these runs");
    for finding in &document.findings {
        let (word, emphasis) = match finding.agreement {
            Agreement::Agrees => ("agrees", Emphasis::None),
            Agreement::Disagrees => ("DISAGREES", Emphasis::Warning),
            Agreement::Undecided => ("undecided", Emphasis::None),
            Agreement::NotKnown => ("not known", Emphasis::None),
        };
        page.marked(emphasis, word, &finding.text);
        if page.has_details() {
            page.entry("", &evidence(finding, &document.table));
        }
    }
    if document.report.is_some() {
        page.indented(OTHER_MACHINES);
    }
}

/// The evidence on a finding: our figure, the accepted range, and what the report's own figures
/// give.
fn evidence(finding: &DocumentFinding, table: &DocumentTable) -> String {
    let write = |value: f64| in_unit(value, finding, table);
    let ours = match (&finding.ours, &finding.why) {
        (Some(ours), _) => repeats(ours, write),
        (None, why) => why.clone().unwrap_or_default(),
    };
    let expected = match (finding.least, finding.most) {
        (Some(least), Some(most)) => format!("{} to {}", write(least), write(most)),
        (Some(least), None) => format!("{} or more", write(least)),
        (None, Some(most)) => format!("{} or less", write(most)),
        (None, None) => "anything".to_owned(),
    };
    let what = if finding.is_ratio { "ratio of " } else { "" };
    let report = finding.report.map_or(String::new(), |value| {
        let verdict = match finding.report_agreement {
            Agreement::Agrees => "as claimed",
            _ => "NOT as claimed",
        };
        let value = write(value);
        format!("; the report's own figures give {value}, {verdict}")
    });
    let metric = &finding.metric;
    format!("{what}{metric}: {ours}; accepted: {expected}{report}")
}

/// A ratio as it is; another figure in the unit of its column.
fn in_unit(value: f64, finding: &DocumentFinding, table: &DocumentTable) -> String {
    let is_own = |it: &&DocumentColumn| it.ratio_to.is_none() && it.metric == finding.metric;
    let own = table.columns.iter().find(is_own);
    let Some(own) = own.filter(|_| !finding.is_ratio) else {
        return digits(value);
    };
    let unit = own.unit.as_ref().map(|unit| format!("{NBSP}{unit}"));
    scaled(value, own) + &unit.unwrap_or_default()
}

const OTHER_MACHINES: &str = "These machines, kernels and paths are not the report's: what can \
    agree is the kind of effect, not its figure.";

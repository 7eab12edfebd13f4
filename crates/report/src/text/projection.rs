//! What CPU time costs, and what changes would bring.

use std::borrow::Cow;

use linerate_core::plan::Protocol;
use linerate_core::profile::projection::{
    Basis, CostModel, End, EndModel, Projection, Proof, Term, TermCost, Unprojected,
    median_cpu_error_percent, median_error_percent,
};

use super::Style;
use super::number::{NBSP, digits, percent, rate, with_unit};
use super::page::{Emphasis, Page};
use super::table::{Align, Table};

/// The costs of each model, what changes would bring, those that were proved beside their
/// measurement, the doubts, and changes of which nothing is said.
pub fn projections(
    models: &[CostModel],
    projections: &[Projection],
    others: &[Unprojected],
    style: Style,
) -> String {
    let mut page = Page::new(style);
    write(&mut page, models, projections, others);
    page.finish()
}

/// [`projections`], as a part of a larger page.
pub(super) fn write(
    page: &mut Page,
    models: &[CostModel],
    projections: &[Projection],
    others: &[Unprojected],
) {
    for model in models {
        costs(page, model);
    }
    if !projections.is_empty() {
        page.gap();
        page.line(Emphasis::Strong, "What a change would bring: throughput");
        page.table(&throughput(projections));
        page.gap();
        page.line(
            Emphasis::Strong,
            "What a change would bring: CPU time for each KiB that arrives, µs",
        );
        page.table(&cpu(projections));
        page.paragraph(Emphasis::None, "", 0, FOOT);
        proofs(page, projections);
        doubts(page, projections);
    }
    if !others.is_empty() {
        page.gap();
        page.line(Emphasis::Strong, "Not projected");
    }
    for other in others {
        let words = format!("{}: {}", other.what_if, other.why);
        page.paragraph(Emphasis::None, "  ", 4, &words);
    }
}

const FOOT: &str = "Intervals are at 95 %. CPU time is of the sender and the receiver, or of both where they have one \
    kernel. Basis: model, the change itself was never run; design, it was, at these or other sizes; layers, from the \
    profile's shares; assumed, nothing that was measured bears on it.";

fn costs(page: &mut Page, model: &CostModel) {
    page.gap();
    let transport = match model.protocol {
        Protocol::Udp => "UDP in single datagrams at MTU 1500",
        Protocol::Tcp | Protocol::Mptcp => "TCP",
    };
    page.line(
        Emphasis::Strong,
        &format!("What CPU time costs, {transport}"),
    );
    let heads = model.ends.iter().flat_map(|end| {
        let name = end.end.name();
        [
            format!("{name}\nns"),
            "\n95 %".to_owned(),
            "\nshare".to_owned(),
        ]
    });
    let heads = heads.map(|head| (Cow::from(head), Align::Right));
    let mut table =
        Table::with_heads(std::iter::once((Cow::from("\nper"), Align::Left)).chain(heads));
    let of = |end: &EndModel, term| end.terms.iter().find(|cost| cost.term == term).copied();
    for term in Term::ALL {
        let ends: Vec<Option<TermCost>> = model.ends.iter().map(|end| of(end, term)).collect();
        if ends.iter().any(Option::is_some) {
            let cells = ends.into_iter().flat_map(cost_cells);
            table.row(std::iter::once(Some(term.per().to_owned())).chain(cells));
        }
    }
    page.table(&table);
    for end in &model.ends {
        let mut facts = vec![format!(
            "{} runs, whose CPU time the model misses by {}",
            end.runs,
            percent(end.residual_percent)
        )];
        facts.extend(end.not_told_apart.iter().map(|group| {
            let parts: Vec<&str> = group.iter().map(|term| term.per()).collect();
            format!("not told apart: {}", parts.join(" and "))
        }));
        page.facts(end.end.name(), &facts);
    }
}

fn cost_cells(cost: Option<TermCost>) -> [Option<String>; 3] {
    let Some(cost) = cost else {
        return [None, None, None];
    };
    [
        Some(digits(cost.ns)),
        Some(interval(cost.interval_ns)),
        Some(percent(cost.share_percent)),
    ]
}

fn throughput(projections: &[Projection]) -> Table {
    let mut table = Table::new(&[
        ("change", Align::Left),
        ("now", Align::Right),
        ("then", Align::Right),
        ("95 %", Align::Right),
        ("ceiling then", Align::Left),
        ("basis", Align::Left),
    ]);
    for one in projections {
        table.row([
            Some(one.what_if.clone()),
            Some(rate(one.throughput_now_bps)),
            Some(rate(one.throughput_bps)),
            Some(rates(one.throughput_interval_bps)),
            Some(one.ceiling.name().to_owned()),
            Some(basis(one.basis).to_owned()),
        ]);
    }
    table
}

/// The unit once, where both have the same.
fn rates(interval: [f64; 2]) -> String {
    let [low, high] = interval.map(rate);
    match (low.split_once(NBSP), high.split_once(NBSP)) {
        (Some((figure, unit)), Some((_, other))) if unit == other => format!("{figure} – {high}"),
        _ => format!("{low} – {high}"),
    }
}

fn cpu(projections: &[Projection]) -> Table {
    let mut table = Table::new(&[
        ("change", Align::Left),
        ("of", Align::Left),
        ("now", Align::Right),
        ("then", Align::Right),
        ("95 %", Align::Right),
        ("what the change is", Align::Left),
    ]);
    for one in projections {
        for (number, end) in one.ends.iter().enumerate() {
            table.row([
                Some(of_first(number, &one.what_if)),
                Some(end.end.name().to_owned()),
                Some(digits(end.now_us_per_kib)),
                Some(digits(end.then_us_per_kib)),
                Some(interval(end.interval_us_per_kib)),
                Some(of_first(number, &one.says)),
            ]);
        }
    }
    table
}

/// In the first of several rows.
fn of_first(row: usize, cell: &str) -> String {
    if row == 0 {
        cell.to_owned()
    } else {
        String::new()
    }
}

fn interval([low, high]: [f64; 2]) -> String {
    format!("{} – {}", digits(low), digits(high))
}

fn basis(basis: Basis) -> &'static str {
    match basis {
        Basis::Model => "model",
        Basis::Design => "design",
        Basis::Layers => "layers",
        Basis::Assumed => "assumed",
    }
}

fn proofs(page: &mut Page, projections: &[Projection]) {
    let proved: Vec<(&Projection, &Proof)> = projections
        .iter()
        .filter_map(|one| Some((one, one.proof.as_ref()?)))
        .collect();
    if proved.is_empty() {
        return;
    }
    page.gap();
    page.line(
        Emphasis::Strong,
        "Projected and then done: with the change over without it",
    );
    page.table(&proved_table(&proved));
    let medians = [
        ("throughput", median_error_percent(projections)),
        ("CPU time", median_cpu_error_percent(projections)),
    ];
    let medians = medians
        .into_iter()
        .filter_map(|(name, median)| Some(format!("of {name} {}", with_unit(median?, "%"))));
    let medians: Vec<String> = medians.collect();
    if !medians.is_empty() {
        let words = format!(
            "Median error over the {} that could be had: {}.",
            proved.len(),
            medians.join(", ")
        );
        page.paragraph(Emphasis::None, "", 0, &words);
    }
}

fn proved_table(proofs: &[(&Projection, &Proof)]) -> Table {
    let mut table = Table::new(&[
        ("change", Align::Left),
        ("of", Align::Left),
        ("projected", Align::Right),
        ("measured", Align::Right),
        ("interval", Align::Right),
        ("error", Align::Right),
        ("pairs", Align::Right),
    ]);
    for (one, proof) in proofs {
        let ends = one.ends.iter().map(|end| match end.end {
            End::Both => "CPU".to_owned(),
            end => format!("CPU, {}", end.name()),
        });
        let cpu = ends.zip(&proof.cpu);
        let rows = std::iter::once(("throughput".to_owned(), &proof.throughput)).chain(cpu);
        for (number, (of, proved)) in rows.enumerate() {
            table.row([
                Some(of_first(number, &one.what_if)),
                Some(of),
                Some(digits(proved.projected_ratio)),
                Some(digits(proved.measured_ratio)),
                proved.measured_interval.map(interval),
                Some(signed(proved.error_percent)),
                Some(of_first(number, &proof.pairs.to_string())),
            ]);
        }
    }
    table
}

fn signed(percent: f64) -> String {
    let sign = if percent >= 0.0 { "+" } else { "" };
    format!("{sign}{}{NBSP}%", digits(percent))
}

fn doubts(page: &mut Page, projections: &[Projection]) {
    let of = |one: &Projection| {
        let not = one
            .not_proved
            .iter()
            .map(|why| format!("not proved: {why}"));
        let words: Vec<String> = one.doubts.iter().cloned().chain(not).collect();
        (!words.is_empty()).then(|| format!("{}: {}", one.what_if, words.join("; ")))
    };
    let all: Vec<String> = projections.iter().filter_map(of).collect();
    if !all.is_empty() {
        page.gap();
    }
    for words in all {
        page.paragraph(Emphasis::Warning, "  ", 4, &words);
    }
}

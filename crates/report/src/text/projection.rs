//! What CPU time costs, and what changes would bring.

use std::borrow::Cow;

use linerate_core::plan::Protocol;
use linerate_core::profile::projection::{
    Basis, CostModel, EndModel, Projection, Proof, Proved, Term, TermCost,
    median_cpu_error_percent, median_error_percent,
};

use super::Style;
use super::number::{NBSP, digits, percent, rate, with_unit};
use super::page::{Emphasis, Page};
use super::table::{Align, Table};

/// The costs of each model, a table of projections, those that were proved beside their measurement, and the doubts.
pub fn projections(models: &[CostModel], projections: &[Projection], style: Style) -> String {
    let mut page = Page::new(style);
    write(&mut page, models, projections);
    page.finish()
}

/// [`projections`], as a part of a larger page.
pub(super) fn write(page: &mut Page, models: &[CostModel], projections: &[Projection]) {
    for model in models {
        costs(page, model);
    }
    if projections.is_empty() {
        return;
    }
    page.gap();
    page.line(Emphasis::Strong, "What a change would bring");
    page.table(&projected(projections));
    page.paragraph(Emphasis::None, "", 0, FOOT);
    proofs(page, projections);
    doubts(page, projections);
}

const FOOT: &str = "In brackets intervals at 95 %. CPU is time for each KiB of payload that arrives: of the sender and the receiver, \
    or of both where they have one kernel. Basis: model, the change \
    itself was never run; design, it was, at these or other sizes; layers, from the profile's shares; assumed, nothing that \
    was measured bears on it.";

fn costs(page: &mut Page, model: &CostModel) {
    page.gap();
    let transport = match model.protocol {
        Protocol::Udp => "UDP",
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
    let [low, high] = cost.interval_ns;
    [
        Some(digits(cost.ns)),
        Some(format!("{} – {}", digits(low), digits(high))),
        Some(percent(cost.share_percent)),
    ]
}

fn projected(projections: &[Projection]) -> Table {
    let mut table = Table::new(&[
        ("\nchange", Align::Left),
        ("\nnow", Align::Right),
        ("\nthen", Align::Right),
        ("\n95 %", Align::Right),
        ("CPU\nµs/KiB", Align::Right),
        ("\nceiling then", Align::Left),
        ("\nbasis", Align::Left),
    ]);
    for one in projections {
        let [low, high] = one.throughput_interval_bps;
        let ends: Vec<String> = one
            .ends
            .iter()
            .map(|end| {
                format!(
                    "{} → {}",
                    digits(end.now_us_per_kib),
                    digits(end.then_us_per_kib)
                )
            })
            .collect();
        table.row([
            Some(one.what_if.clone()),
            Some(rate(one.throughput_now_bps)),
            Some(rate(one.throughput_bps)),
            Some(format!("{} – {}", rate(low), rate(high))),
            Some(ends.join(", ")),
            Some(one.ceiling.name().to_owned()),
            Some(basis(one.basis).to_owned()),
        ]);
    }
    table
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
    let mut table = Table::new(&[
        ("\nchange", Align::Left),
        ("throughput\nprojected", Align::Right),
        ("\nmeasured", Align::Right),
        ("\ninterval", Align::Right),
        ("\nerror", Align::Right),
        ("CPU\nproj. / meas.", Align::Right),
        ("\nerror", Align::Right),
        ("\npairs", Align::Right),
    ]);
    let pair = |proved: &Proved| {
        format!(
            "{} / {}",
            digits(proved.projected_ratio),
            digits(proved.measured_ratio)
        )
    };
    let error = |proved: &Proved| signed(proved.error_percent);
    let all = |proved: &[Proved], words: &dyn Fn(&Proved) -> String| {
        (!proved.is_empty()).then(|| proved.iter().map(words).collect::<Vec<_>>().join(", "))
    };
    for (one, proof) in &proved {
        let throughput = &proof.throughput;
        let interval = throughput.measured_interval;
        table.row([
            Some(one.what_if.clone()),
            Some(digits(throughput.projected_ratio)),
            Some(digits(throughput.measured_ratio)),
            interval.map(|[low, high]| format!("{} – {}", digits(low), digits(high))),
            Some(error(throughput)),
            all(&proof.cpu, &pair),
            all(&proof.cpu, &error),
            Some(proof.pairs.to_string()),
        ]);
    }
    page.table(&table);
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

//! What CPU time costs, and what changes would bring.

use linerate_core::plan::Protocol;
use linerate_core::profile::projection::{
    Basis, CostModel, EndModel, Projection, Proof, Proved, TermCost, median_error_percent,
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

const FOOT: &str = "In brackets intervals at 95 %. CPU is time for each KiB of payload that arrives. Basis: model, the change \
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
    let mut table = Table::new(&[
        ("\nper", Align::Left),
        ("sender\nns", Align::Right),
        ("\n95 %", Align::Right),
        ("\nshare", Align::Right),
        ("receiver\nns", Align::Right),
        ("\n95 %", Align::Right),
        ("\nshare", Align::Right),
    ]);
    let of = |end: &EndModel, term| end.terms.iter().find(|cost| cost.term == term).copied();
    for term in linerate_core::profile::projection::Term::ALL {
        let ends = [of(&model.sender, term), of(&model.receiver, term)];
        if ends.iter().any(Option::is_some) {
            let cells = ends.into_iter().flat_map(cost_cells);
            table.row(std::iter::once(Some(term.per().to_owned())).chain(cells));
        }
    }
    page.table(&table);
    for (name, end) in [("sender", &model.sender), ("receiver", &model.receiver)] {
        let mut facts = vec![format!(
            "{} runs, of which the model misses the CPU time by {}",
            end.runs,
            percent(end.residual_percent)
        )];
        facts.extend(end.not_told_apart.iter().map(|group| {
            let parts: Vec<&str> = group.iter().map(|term| term.per()).collect();
            format!("not told apart: {}", parts.join(" and "))
        }));
        page.facts(name, &facts);
    }
    if model.shared_kernel {
        page.facts(
            "one kernel",
            &["soft interrupts of both ends run in either's threads".to_owned()],
        );
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
        ("CPU µs/KiB\nsender", Align::Right),
        ("\nreceiver", Align::Right),
        ("\nceiling then", Align::Left),
        ("\nbasis", Align::Left),
    ]);
    for one in projections {
        let [low, high] = one.throughput_interval_bps;
        let end = |end: &linerate_core::profile::projection::ProjectedEnd| {
            Some(format!(
                "{} → {}",
                digits(end.now_us_per_kib),
                digits(end.then_us_per_kib)
            ))
        };
        table.row([
            Some(one.what_if.clone()),
            Some(rate(one.throughput_now_bps)),
            Some(rate(one.throughput_bps)),
            Some(format!("{} – {}", rate(low), rate(high))),
            end(&one.sender),
            end(&one.receiver),
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
        ("sender CPU\nproj. / meas.", Align::Right),
        ("\nerror", Align::Right),
        ("receiver CPU\nproj. / meas.", Align::Right),
        ("\nerror", Align::Right),
        ("\npairs", Align::Right),
    ]);
    let pair = |proved: &Proved| {
        Some(format!(
            "{} / {}",
            digits(proved.projected_ratio),
            digits(proved.measured_ratio)
        ))
    };
    let error = |proved: &Proved| Some(signed(proved.error_percent));
    for (one, proof) in &proved {
        let throughput = &proof.throughput;
        let interval = throughput.measured_interval;
        table.row([
            Some(one.what_if.clone()),
            Some(digits(throughput.projected_ratio)),
            Some(digits(throughput.measured_ratio)),
            interval.map(|[low, high]| format!("{} – {}", digits(low), digits(high))),
            error(throughput),
            pair(&proof.sender_cpu),
            error(&proof.sender_cpu),
            pair(&proof.receiver_cpu),
            error(&proof.receiver_cpu),
            Some(proof.pairs.to_string()),
        ]);
    }
    page.table(&table);
    if let Some(median) = median_error_percent(projections) {
        let words = format!(
            "Median error of throughput over {} that could be had: {}.",
            proved.len(),
            with_unit(median, "%")
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

//! Models of what CPU time costs, and projections of what changes would bring.

use linerate_core::plan::Protocol;
use linerate_core::profile::projection::{
    Basis, CostModel, End, EndModel, ProjectedEnd, Projection, Proof, Proved, Term, Unprojected,
    median_cpu_error_percent, median_error_percent,
};

use super::Style;
use super::number::{NBSP, digits, joined, named, percent, plural, rate, some_joined, span};
use crate::page::{Emphasis, Page, Table, table};

/// A page of cost models, projections, their proofs and doubts, and changes that are not projected.
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

/// Writes [`projections`] as a part of a larger page.
pub(super) fn write(
    page: &mut Page,
    models: &[CostModel],
    projections: &[Projection],
    others: &[Unprojected],
) {
    if page.has_details() {
        models.iter().for_each(|model| costs(page, model));
    }
    page.section("What a change would bring: throughput");
    page.table(&throughput(projections));
    if page.has_details() && !projections.is_empty() {
        page.section("What a change would bring: CPU time for each KiB received, µs");
        page.table(&cpu(projections));
        page.words(FOOT);
    }
    proofs(page, projections);
    doubts(page, projections);
    page.section("Not projected");
    for other in others {
        let words = format!("{}: {}", other.what_if, other.why);
        page.paragraph(Emphasis::None, "  ", 4, &words);
    }
}

const FOOT: &str = "Intervals are at 95 %. CPU time is of the sender and the receiver, or of both \
    where they have one kernel. Basis: model = computed, the change itself was not run; design = \
    it was run, at these or other sizes; layers = from the profile's shares; assumed = from no \
    measurement.";

fn costs(page: &mut Page, model: &CostModel) {
    let transport = match model.protocol {
        Protocol::Udp => "UDP in single datagrams at MTU 1500",
        Protocol::Tcp | Protocol::Mptcp => "TCP",
    };
    page.section(format!("What CPU time costs, {transport}"));
    let of = |end: &EndModel, term| end.terms.iter().find(|cost| cost.term == term).copied();
    let has_cost = |term: &Term| model.ends.iter().any(|end| of(end, *term).is_some());
    let terms = Term::ALL.into_iter().filter(has_cost);
    let mut table = Table::of(terms).left(["", "per"], |term| term.per());
    for end in &model.ends {
        table = table! { to table, term =>
            right [end.end.name(), "ns"] => digits(of(end, *term)?.ns);
            right ["", "95 %"] => interval(of(end, *term)?.interval_ns);
            right ["", "share"] => percent(of(end, *term)?.share_percent);
        };
    }
    page.table(&table);
    for end in &model.ends {
        let (runs, misses) = (end.runs, percent(end.residual_percent));
        let fits = format!("{runs} runs, whose CPU time the model misses by {misses}");
        let not_told_apart = end.not_told_apart.iter().map(|group| {
            let parts = group.iter().map(|term| term.per().to_owned());
            format!("not told apart: {}", joined(parts, " and "))
        });
        page.facts(end.end.name(), std::iter::once(fits).chain(not_told_apart));
    }
}

fn throughput(projections: &[Projection]) -> Table<&Projection> {
    let range = |[low, high]: [String; 2]| span(&low, &high, "–");
    table! { projections, one =>
        left "change" => one.what_if.clone();
        right "now" => rate(one.throughput_now_bps);
        right "then" => rate(one.throughput_bps);
        right "95 %" => range(one.throughput_interval_bps.map(rate));
        left "ceiling then" => one.ceiling.name();
        left "basis" => basis(one.basis);
    }
}

fn cpu(projections: &[Projection]) -> Table<(usize, &Projection, &ProjectedEnd)> {
    let rows = projections.iter().flat_map(|one| {
        let ends = one.ends.iter().enumerate();
        ends.map(move |(number, end)| (number, one, end))
    });
    table! { rows, (number, one, end) =>
        left "change" => of_first(*number, &one.what_if);
        left "of" => end.end.name();
        right "now" => digits(end.now_us_per_kib);
        right "then" => digits(end.then_us_per_kib);
        right "95 %" => interval(end.interval_us_per_kib);
        left "what the change is" => of_first(*number, &one.says);
    }
}

/// `cell` in the first of several rows, empty in the others.
fn of_first(row: usize, cell: &str) -> String {
    if row == 0 { cell } else { "" }.to_owned()
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
    let all = projections.iter();
    let with_proof = all.filter_map(|one| Some((one, one.proof.as_ref()?)));
    let proved: Vec<(&Projection, &Proof)> = with_proof.collect();
    page.section("Projected and then measured: with the change over without it");
    page.table(&proved_table(&proved));
    let cpu = median_cpu_error_percent(projections);
    let medians = [
        named("of throughput", median_error_percent(projections), percent),
        named("of CPU time", cpu, percent),
    ];
    let medians = some_joined(medians, ", ").filter(|_| !proved.is_empty());
    if let Some(medians) = medians {
        let number = plural(proved.len() as u64, "measured change");
        page.words(&format!("Median error over {number}: {medians}."));
    }
}

fn proved_table<'a>(proofs: &[(&'a Projection, &'a Proof)]) -> Table<([String; 3], &'a Proved)> {
    let rows = proofs.iter().flat_map(|(one, proof)| {
        let ends = one.ends.iter().map(|end| match end.end {
            End::Both => "CPU".to_owned(),
            end => format!("CPU, {}", end.name()),
        });
        let cpu = ends.zip(&proof.cpu);
        let rows = std::iter::once(("throughput".to_owned(), &proof.throughput)).chain(cpu);
        let pairs = proof.pairs.to_string();
        rows.enumerate().map(move |(number, (of, proved))| {
            let names = [of_first(number, &one.what_if), of, of_first(number, &pairs)];
            (names, proved)
        })
    });
    table! { rows, (names, proved) =>
        left "change" => names[0].clone();
        left "of" => names[1].clone();
        right "projected" => digits(proved.projected_ratio);
        right "measured" => digits(proved.measured_ratio);
        right "interval" => proved.measured_interval.map(interval);
        right "error" => signed(proved.error_percent);
        right "pairs" => names[2].clone();
    }
}

fn signed(percent: f64) -> String {
    let sign = if percent >= 0.0 { "+" } else { "" };
    format!("{sign}{}{NBSP}%", digits(percent))
}

fn doubts(page: &mut Page, projections: &[Projection]) {
    page.gap();
    for one in projections {
        let reasons = one.not_proved.iter();
        let not = reasons.map(|why| format!("not proved: {why}"));
        if let Some(words) = some_joined(one.doubts.iter().cloned().chain(not), "; ") {
            let words = format!("{}: {words}", one.what_if);
            page.paragraph(Emphasis::Warning, "  ", 4, &words);
        }
    }
}

//! Ceilings, verdict, remedy and caveats of a run.

use linerate_core::ceilings::{Cause, Ceiling, Verdict};
use linerate_core::plan::Direction;
use linerate_core::record::{Caveat, CaveatKind, CaveatRemedy, Leg};

use super::number::{NBSP, bar, percent, plural, rate, span};
use super::page::{Emphasis, Page};
use super::table::Table;

/// Writes a table of the lowest `most` ceilings, with the measured rate as a share of each.
pub(super) fn ceilings(
    page: &mut Page,
    ceilings: &[Ceiling],
    measured_bps: Option<f64>,
    most: usize,
) {
    if ceilings.is_empty() {
        return;
    }
    let shown = &ceilings[..ceilings.len().min(most)];
    let reached = |ceiling: &&Ceiling| {
        let measured = measured_bps.filter(|_| ceiling.limit_bps > 0.0)?;
        Some(percent(100.0 * measured / ceiling.limit_bps))
    };
    let table = Table::of(shown)
        .left("", |ceiling| if ceiling.independent { " " } else { "*" })
        .left("ceiling", |ceiling| ceiling.cause.words())
        .right("limit", |ceiling| rate(ceiling.limit_bps))
        .right("reached", reached)
        .left("formula", |ceiling| ceiling.formula.clone());
    page.table(&table);
    let mut notes = Vec::new();
    if shown.iter().any(|ceiling| !ceiling.independent) {
        notes.push("* derived from the measured rate; cannot confirm".to_owned());
    }
    if shown.len() < ceilings.len() {
        let left_out = ceilings.len() - shown.len();
        notes.push(format!("{left_out} higher left out"));
    }
    if !notes.is_empty() {
        page.paragraph(Emphasis::None, "", 2, &notes.join("; "));
    }
}

/// Writes the verdict of a direction as a sentence, its evidence, and the remedy as a command.
///
/// `direction` is given where there are several. Without details, one sentence of evidence is
/// enough.
pub(super) fn verdict(page: &mut Page, direction: Option<Direction>, leg: &Leg) {
    let Some(verdict) = &leg.verdict else { return };
    let subject = match direction {
        Some(Direction::Up) => "Bottleneck up",
        Some(Direction::Down) => "Bottleneck down",
        Some(Direction::Both) | None => "Bottleneck",
    };
    let sentence = verdict_sentence(subject, verdict, leg);
    page.paragraph(Emphasis::Strong, "", 2, &sentence);
    let few = if direction.is_some() { 0 } else { 1 };
    let most = if page.has_details() { usize::MAX } else { few };
    for evidence in verdict.evidence.iter().take(most) {
        page.paragraph(Emphasis::None, "    -", 6, evidence);
    }
    if let Some(remedy) = &verdict.remedy {
        page.plain(&format!(
            "  {}",
            remedy_promise(verdict, leg.throughput_bps)
        ));
        page.command(&remedy.command);
    }
    runner_up(page, verdict);
}

/// Writes the second most likely cause, and the run that would tell both apart: with the details,
/// and where the bottleneck is unexplained.
fn runner_up(page: &mut Page, verdict: &Verdict) {
    let is_unexplained = verdict.cause == Cause::Unexplained;
    let Some(next) = &verdict.runner_up else {
        return;
    };
    if !page.has_details() && !is_unexplained {
        return;
    }
    let words = match (is_unexplained, next.cause) {
        (true, Cause::Unexplained) => "The run that would tell more:".to_owned(),
        (true, cause) => format!("Nearest: {}; the run that would tell:", cause.words()),
        (false, Cause::Unexplained) => "The run that would confirm it:".to_owned(),
        (false, cause) => format!("Else: {}; the run that tells them apart:", cause.words()),
    };
    page.plain(&format!("  {words}"));
    page.command(&next.tell_apart.command);
}

/// Draws the lowest ceiling of each of the first `most` causes as a bar. A ceiling that is derived
/// from the measured rate is left out, unless it is the verdict's.
pub(super) fn bars(page: &mut Page, leg: &Leg, most: usize) {
    if page.has_pictures() {
        return;
    }
    let found = leg.verdict.as_ref().map(|verdict| verdict.cause);
    let mut lowest: Vec<&Ceiling> = Vec::new();
    for ceiling in &leg.ceilings {
        let is_known = lowest.iter().any(|known| known.cause == ceiling.cause);
        if !is_known && (ceiling.independent || Some(ceiling.cause) == found) {
            lowest.push(ceiling);
        }
    }
    let verdicts = lowest.iter().position(|one| Some(one.cause) == found);
    if let Some(at) = verdicts.filter(|at| most > 0 && *at >= most) {
        lowest.swap(at, most - 1);
    }
    let share = |ceiling: &Ceiling| {
        let share = leg.throughput_bps? / ceiling.limit_bps;
        (ceiling.limit_bps > 0.0).then_some(share)
    };
    let table = Table::of(lowest.into_iter().take(most))
        .left("", |ceiling| ceiling.cause.words())
        .right("", |ceiling| rate(ceiling.limit_bps))
        .left("", |ceiling| share(ceiling).map(bar))
        .right("", |ceiling| Some(percent(100.0 * share(ceiling)?)));
    page.table(&table);
}

fn verdict_sentence(subject: &str, verdict: &Verdict, leg: &Leg) -> String {
    if verdict.cause == Cause::Unexplained {
        return format!(
            "{subject}: unexplained. No cause has both the kernel's evidence and a ceiling that \
             agrees."
        );
    }
    if verdict.cause == Cause::AsAsked {
        return format!("{subject}: none. The sender kept to the rate that was asked for.");
    }
    let sure = verdict.confidence.map_or_else(String::new, |share| {
        // Neither 0 nor 100 % is ever certain.
        format!(", {:.0}{NBSP}% sure", (100.0 * share).clamp(1.0, 99.0))
    });
    let cause = format!("{}{sure}", verdict.cause.words());
    match (verdict.share_of_ceiling, verdicts_ceiling(verdict, leg)) {
        // A ceiling that is derived from the measured rate is always reached.
        (Some(share), Some(ceiling)) if ceiling.independent => format!(
            "{subject}: {cause}, at {} of its ceiling of {}.",
            percent(100.0 * share),
            rate(ceiling.limit_bps)
        ),
        _ => format!("{subject}: {cause}."),
    }
}

/// The ceiling that the verdict's share refers to, among those of its cause.
fn verdicts_ceiling<'a>(verdict: &Verdict, leg: &'a Leg) -> Option<&'a Ceiling> {
    let limit_bps = leg.throughput_bps? / verdict.share_of_ceiling?;
    let off = |ceiling: &Ceiling| (ceiling.limit_bps / limit_bps).ln().abs();
    leg.ceilings
        .iter()
        .filter(|ceiling| ceiling.cause == verdict.cause)
        .min_by(|a, b| off(a).total_cmp(&off(b)))
}

fn remedy_promise(verdict: &Verdict, measured_bps: Option<f64>) -> String {
    let now = measured_bps.map(rate);
    let brings = verdict.predicted_bps.map(|bps| match now {
        Some(now) => format!("expected: {}", span(&now, &rate(bps), "→")),
        None => format!("expected: {}", rate(bps)),
    });
    let next = verdict
        .next_cause
        .map(|next| format!("next: {}", next.words()));
    if let (Some(bps), Some(Cause::AsAsked)) = (verdict.predicted_bps, verdict.next_cause) {
        return format!("Remedy (expected: the {} asked for):", rate(bps));
    }
    let facts: Vec<String> = brings.into_iter().chain(next).collect();
    if facts.is_empty() {
        return "Remedy:".to_owned();
    }
    format!("Remedy ({}):", facts.join("; "))
}

/// Writes caveats, each with its remedy on a line of its own. Without details, only those that
/// change how the figures are to be read, and the number of the others.
pub(super) fn caveats<'a>(page: &mut Page, caveats: impl IntoIterator<Item = &'a Caveat>) {
    let mut all: Vec<&Caveat> = Vec::new();
    for caveat in caveats {
        if !all.contains(&caveat) {
            all.push(caveat);
        }
    }
    if all.is_empty() {
        return;
    }
    let shown: Vec<&Caveat> = if page.has_details() {
        all.clone()
    } else {
        let matters = all.iter().filter(|caveat| changes_the_reading(caveat.kind));
        matters.take(MAX_CAVEATS).copied().collect()
    };
    page.gap();
    for caveat in &shown {
        page.doubt(&caveat.says());
        match &caveat.remedy {
            CaveatRemedy::Command(command) => page.command(command),
            CaveatRemedy::Words(words) if words.is_empty() => {}
            CaveatRemedy::Words(words) => page.paragraph(Emphasis::None, "", 4, words),
        }
    }
    let others = (all.len() - shown.len()) as u64;
    if others > 0 {
        let notes = if shown.is_empty() {
            "note"
        } else {
            "more note"
        };
        let place = page.place_of_evidence();
        page.plain(&format!("  {}: {place}", plural(others, notes)));
    }
}

/// Maximum number of caveats without details.
const MAX_CAVEATS: usize = 2;

/// Whether a caveat changes how figures are to be read; the other kinds say where figures are from.
fn changes_the_reading(kind: CaveatKind) -> bool {
    !matches!(
        kind,
        CaveatKind::SharedKernel
            | CaveatKind::Discarded
            | CaveatKind::FewRuns
            | CaveatKind::NotReadable
            | CaveatKind::LocalPath
            | CaveatKind::IdleSpinners
    )
}

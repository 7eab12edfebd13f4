//! Ceilings, verdict, remedy and caveats of a run.

use linerate_core::ceilings::{Cause, Ceiling, Verdict};
use linerate_core::plan::Direction;
use linerate_core::record::{Caveat, CaveatKind, CaveatRemedy, Leg};
use linerate_core::remedy::Remedy;

use super::number::{bar, counted, joined, percent, plural, rate, span, sure};
use super::page::Page;
use super::table::table;
use crate::charts;

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
    page.table(&table! { shown, ceiling =>
        left "" => if ceiling.independent { " " } else { "*" };
        left "ceiling" => ceiling.cause.words();
        right "limit" => rate(ceiling.limit_bps);
        right "reached" => reached(ceiling);
        left "formula" => ceiling.formula.clone();
    });
    let is_derived = shown.iter().any(|ceiling| !ceiling.independent);
    let derived = is_derived.then(|| "* derived from the measured rate; cannot confirm".to_owned());
    let others = counted((ceilings.len() - shown.len()) as u64, "higher left out");
    if is_derived || others.is_some() {
        page.indented(&joined([derived, others], "; "));
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
    page.verdict(&sentence);
    let few = if direction.is_some() { 0 } else { 1 };
    let most = if page.has_details() { usize::MAX } else { few };
    page.evidence(verdict.evidence.iter().take(most));
    if let Some(remedy) = &verdict.remedy {
        let promise = remedy_promise(verdict, remedy, leg.throughput_bps);
        page.plain(&format!("  {promise}"));
        page.command(remedy.command_without_reason());
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

/// Draws the lowest ceilings, one of each cause, as bars. A ceiling that is derived from the
/// measured rate is left out, unless it is the verdict's; that is the last to be spared.
pub(super) fn bars(page: &mut Page, leg: &Leg) {
    if page.has_pictures() {
        return;
    }
    let found = leg.verdict.as_ref().map(|verdict| verdict.cause);
    let is_found = |ceiling: &&Ceiling| Some(ceiling.cause) == found;
    let mut lowest = charts::lowest(&leg.ceilings, |it| it.independent || is_found(&it));
    let at = lowest.iter().position(is_found);
    if let Some(at) = at.filter(|at| *at >= MAX_BARS) {
        lowest.swap(at, MAX_BARS - 1);
    }
    lowest.truncate(MAX_BARS);
    let first = at.map_or(1, |_| 2);
    let others = lowest.iter().filter(|ceiling| !is_found(ceiling));
    let others: Vec<Cause> = others.map(|ceiling| ceiling.cause).collect();
    let rank = |cause| others.iter().position(|other| *other == cause);
    let share = |ceiling: &Ceiling| {
        let share = leg.throughput_bps? / ceiling.limit_bps;
        (ceiling.limit_bps > 0.0).then_some(share)
    };
    let bars = table! { lowest, ceiling =>
        left "" => ceiling.cause.words();
        right "" => rate(ceiling.limit_bps);
        left "" => share(ceiling).map(bar);
        right "" => percent(100.0 * share(ceiling)?);
    };
    page.table(&bars.spare_rows(|one| rank(one.cause).map_or(1, |place| place as u8 + first)));
}

/// Maximum number of ceilings that are drawn.
const MAX_BARS: usize = 3;

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
    let cause = format!("{}{}", verdict.cause.words(), sure(verdict.confidence));
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
    let ceilings = leg.ceilings.iter();
    let ceilings = ceilings.filter(|ceiling| ceiling.cause == verdict.cause);
    ceilings.min_by(|a, b| off(a).total_cmp(&off(b)))
}

/// What a remedy brings, and what else is to be said of it.
fn remedy_promise(verdict: &Verdict, remedy: &Remedy, measured_bps: Option<f64>) -> String {
    let expected = verdict.predicted_bps.map(rate);
    if let (Some(asked), Some(Cause::AsAsked)) = (&expected, verdict.next_cause) {
        return format!("Remedy (expected: the {asked} asked for):");
    }
    let reason = Some(remedy.reason.clone()).filter(|reason| !reason.is_empty());
    let expected = expected.map(|then| match measured_bps.map(rate) {
        Some(now) => format!("expected: {}", span(&now, &then, "→")),
        None => format!("expected: {then}"),
    });
    let next = verdict
        .next_cause
        .map(|next| format!("next: {}", next.words()));
    match joined([expected, next, reason], "; ") {
        none if none.is_empty() => "Remedy:".to_owned(),
        facts => format!("Remedy ({facts}):"),
    }
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
    let number = all.len();
    if !page.has_details() {
        all.retain(|caveat| changes_the_reading(caveat.kind));
        all.truncate(MAX_CAVEATS);
    }
    page.gap();
    for caveat in &all {
        page.doubt(&caveat.says());
        match &caveat.remedy {
            CaveatRemedy::Command(command) => page.command(command),
            CaveatRemedy::Words(words) if words.is_empty() => {}
            CaveatRemedy::Words(words) => page.reason(words),
        }
    }
    let others = (number - all.len()) as u64;
    if others > 0 {
        let is_first = all.is_empty();
        let notes = if is_first { "note" } else { "more note" };
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

//! What each cause would let through, the verdict, its remedy, the caveats.

use linerate_core::ceilings::{Cause, Ceiling, Verdict};
use linerate_core::plan::Direction;
use linerate_core::record::{Caveat, CaveatRemedy};

use super::number::{percent, rate};
use super::page::{Emphasis, Page};
use super::table::Table;

/// The lowest `most` ceilings with the measured rate as a share of each.
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
        .left("ceiling", |ceiling| cause_name(ceiling.cause))
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

/// The verdict in a sentence with its evidence, then the remedy as a command of its own.
///
/// `direction` is named where there are several.
pub(super) fn verdict(
    page: &mut Page,
    direction: Option<Direction>,
    verdict: &Verdict,
    ceilings: &[Ceiling],
) {
    let subject = match direction {
        Some(Direction::Up) => "Bottleneck up",
        Some(Direction::Down) => "Bottleneck down",
        Some(Direction::Both) | None => "Bottleneck",
    };
    page.gap();
    let sentence = verdict_sentence(subject, verdict, ceilings);
    page.paragraph(Emphasis::Strong, "", 2, &sentence);
    for evidence in &verdict.evidence {
        page.paragraph(Emphasis::None, "    -", 6, evidence);
    }
    if let Some(remedy) = &verdict.remedy {
        page.plain(&format!("  {}", remedy_promise(verdict)));
        page.command(&remedy.command);
    }
}

fn verdict_sentence(subject: &str, verdict: &Verdict, ceilings: &[Ceiling]) -> String {
    if verdict.cause == Cause::Unexplained {
        return format!(
            "{subject}: unexplained. No cause has both the kernel's evidence and a ceiling that agrees."
        );
    }
    if verdict.cause == Cause::AsAsked {
        return format!("{subject}: none. The sender kept to the rate that was asked for.");
    }
    let cause = cause_name(verdict.cause);
    let limit = ceilings
        .iter()
        .find(|ceiling| ceiling.cause == verdict.cause);
    match (verdict.share_of_ceiling, limit) {
        (Some(share), Some(ceiling)) => format!(
            "{subject}: {cause}, at {} of its ceiling of {}.",
            percent(100.0 * share),
            rate(ceiling.limit_bps)
        ),
        _ => format!("{subject}: {cause}."),
    }
}

fn remedy_promise(verdict: &Verdict) -> String {
    match (verdict.predicted_bps, verdict.next_cause) {
        (Some(bps), Some(Cause::AsAsked)) => {
            format!("Remedy, should bring the {} asked for:", rate(bps))
        }
        (Some(bps), Some(next)) => format!(
            "Remedy, should bring {} (next bottleneck: {}):",
            rate(bps),
            cause_name(next)
        ),
        (Some(bps), None) => format!("Remedy, should bring {}:", rate(bps)),
        (None, Some(next)) => format!("Remedy (next bottleneck: {}):", cause_name(next)),
        (None, None) => "Remedy:".to_owned(),
    }
}

/// Doubts, each with its way out on a line of its own.
pub(super) fn caveats<'a>(page: &mut Page, caveats: impl IntoIterator<Item = &'a Caveat>) {
    let mut seen: Vec<&Caveat> = Vec::new();
    for caveat in caveats {
        if seen.contains(&caveat) {
            continue;
        }
        if seen.is_empty() {
            page.gap();
        }
        seen.push(caveat);
        page.doubt(&caveat.says());
        match &caveat.remedy {
            CaveatRemedy::Command(command) => page.command(command),
            CaveatRemedy::Words(words) if words.is_empty() => {}
            CaveatRemedy::Words(words) => page.paragraph(Emphasis::None, "", 4, words),
        }
    }
}

/// A cause in words.
pub(super) fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::ReceiveWindow => "receive window",
        Cause::SendBuffer => "send buffer",
        Cause::Congestion => "congestion",
        Cause::Pacing => "pacing",
        Cause::SegmentSize => "segment size",
        Cause::PathRate => "path rate",
        Cause::Policer => "policer",
        Cause::ApplicationSend => "sending application",
        Cause::ApplicationReceive => "receiving application",
        Cause::CpuSend => "sender's CPU",
        Cause::CpuReceive => "receiver's CPU",
        Cause::QosClass => "QoS class",
        Cause::Startup => "slow start",
        Cause::AsAsked => "as asked",
        Cause::Unexplained => "unexplained",
    }
}

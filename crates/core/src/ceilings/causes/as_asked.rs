//! A sender of datagrams that kept to the rate it was asked for: nothing holds it back.

use super::super::signals::DatagramLosses;
use super::super::thresholds::{DATAGRAMS_LOST, EXACT_TOLERANCE, MODEL_TOLERANCE};
use super::super::view::{View, bps, percent};
use super::{Basis, Cause, Ceiling, Rule, Signs};

pub(super) const RULE: Rule = Rule {
    cause: Cause::AsAsked,
    basis: Basis::Computed,
    // What was lost on the path is missing from the rate.
    tolerance: MODEL_TOLERANCE,
    ceiling,
    signs,
    remedy: |_, _| None,
};

fn ceiling(view: &View<'_>) -> Option<Ceiling> {
    let asked = view.asked_bps()?;
    let formula = "Σ rate asked of the sender";
    Some(Ceiling::new(asked, formula).input("asked_bps", Some(asked)))
}

/// The loss is what such a run measures. If it is that of a full link or a bucket, the path carries
/// less than was asked for; if nothing tells, a large one.
fn signs(view: &View<'_>) -> Option<Signs> {
    let asked = view.asked_bps()?;
    let sent = view.asked_share()?;
    let (lost, place) = match view.datagrams_lost() {
        Some(lost) => (lost, " on the path"),
        None => (view.datagrams_missing()?, ""),
    };
    let losses = view.datagram_losses();
    let by_chance = losses == Some(DatagramLosses::ByChance);
    let how = if by_chance { ", at any moment and without a queue: noise" } else { "" };
    let say = [
        format!("{} of the datagrams were lost{place}{how}", percent(lost)),
        format!("{} of the asked {} was sent", percent(sent), bps(asked)),
    ];
    let kept = (sent - 1.0).abs() <= EXACT_TOLERANCE;
    let is_carried = match losses {
        Some(DatagramLosses::FullQueue | DatagramLosses::Bucket) => false,
        Some(DatagramLosses::Unknown) | None => lost < DATAGRAMS_LOST,
        Some(DatagramLosses::ByChance) => true,
    };
    Signs::new(kept && is_carried, say)
}

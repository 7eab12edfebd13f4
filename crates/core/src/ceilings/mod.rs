//! The ceiling of each cause, and the verdict: which cause holds a run back.
//!
//! A verdict is a pure function of a record, so that a later version can explain a stored record
//! again. The rules see a `View` alone, which [`crate::connection`] fills for connections of other
//! programs. The kernel's evidence decides first, and a ceiling then confirms it. A run without a
//! cause that has both stays `unexplained`.
//!
//! | module | what is in it |
//! |---|---|
//! | [`formulas`] | the models: windows, Reno, CUBIC, PFTK, slow start, framing |
//! | `view`, `signals` | the evidence about one direction, and figures derived from it |
//! | `causes` | one file for each cause: its ceiling, its evidence, its remedy |
//! | `confidence` | how sure a verdict is |
//! | `thresholds` | the thresholds of the evidence, with the reasons |
//! | `remedy` | remedies, with values computed from the path |
//! | `small_segments` | why segments are smaller than the interface carries |
//! | `verdict` | the choice of the cause, and the next limit when it is lifted |

mod causes;
mod confidence;
pub mod formulas;
mod remedy;
mod signals;
mod small_segments;
#[cfg(test)]
pub(crate) mod tests;
mod thresholds;
mod verdict;
mod view;

pub(crate) use causes::{is_closing, is_held_by_receiver};
pub use thresholds::{EXACT_TOLERANCE, MODEL_TOLERANCE};
pub use verdict::agrees;
pub(crate) use verdict::explain as explain_view;
pub(crate) use view::View;

use crate::plan::Direction;
pub use crate::record::{Cause, Ceiling, Verdict};
use crate::record::{CaveatKind, Environment, Proof, Record};
use small_segments::small_segments_caveat;
use view::views;

/// One direction of a record, explained.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Explained {
    /// Which way the payload goes.
    pub direction: Direction,
    /// What each cause would let through, lowest first.
    pub ceilings: Vec<Ceiling>,
    /// What holds it back.
    pub verdict: Verdict,
}

/// The verdict on each direction of a bulk transfer; empty for requests and responses.
pub(crate) fn explain(record: &Record) -> Vec<Explained> {
    let typed = |view: &View<'_>| {
        let explained = explain_view(view);
        Explained { verdict: explained.verdict.typed(&view.run()), ..explained }
    };
    views(record).iter().map(typed).collect()
}

/// The rate of the slower of both ends' links, bits per second; `None` where no device tells one
/// that is true.
pub fn link_bps(environment: &Environment) -> Option<f64> {
    causes::slower_link_bps(environment.hosts_of(Direction::Up))
}

/// Whether most steps had the same rate; without enough steps, whether the intervals had.
pub(crate) fn is_even(view: &View<'_>) -> bool {
    let varies_little = || view.variation().is_some_and(|share| share <= thresholds::EVEN);
    view.is_even() || (view.steps.is_none() && varies_little())
}

/// Writes the verdict on each direction into the record, in place of earlier ones, and a caveat if
/// segments are small for their interface. What changes have shown of a direction stands.
pub fn annotate(record: &mut Record) {
    let explained = explain(record);
    let proofs: Vec<Option<Proof>> =
        record.legs.iter().map(|leg| leg.verdict.as_ref()?.proof.clone()).collect();
    let small = views(record).iter().find_map(small_segments_caveat);
    record.caveats.retain(|caveat| caveat.kind != CaveatKind::SmallSegments);
    record.caveats.extend(small);
    for leg in &mut record.legs {
        leg.ceilings.clear();
        leg.verdict = None;
    }
    for Explained { direction, ceilings, verdict } in explained {
        let mut legs = record.legs.iter_mut();
        if let Some(leg) = legs.find(|leg| leg.direction == direction) {
            leg.ceilings = ceilings;
            leg.verdict = Some(verdict);
        }
    }
    if let [Some(proof)] = &proofs[..] {
        prove(record, proof);
    }
}

/// Writes what changes have shown of the only direction into its verdict: its cause is that of the
/// proof, how sure it is follows from the proof alone, and what was measured of its remedy is in
/// place of what was predicted.
pub fn prove(record: &mut Record, proof: &Proof) {
    let cause = proof.causes.first().copied().unwrap_or(Cause::Unexplained);
    let found = record.verdict().map(|verdict| verdict.cause);
    let verdict = if found == Some(cause) { None } else { verdict_of(record, cause) };
    let Some(leg) = record.legs.first_mut() else {
        return;
    };
    let kept = verdict.or(leg.verdict.take());
    let Some(explained) = kept else {
        return;
    };
    let proved = Verdict { confidence: None, proof: Some(proof.clone()), ..explained };
    let worth = leg.experiments.iter().find(|change| {
        // What may be nothing is no worth.
        change.lifts == Some(cause) && change.interval[0] > 1.0
    });
    leg.verdict = Some(match worth {
        Some(change) => Verdict {
            remedied_bps: leg.throughput_bps.map(|rate| rate * change.ratio),
            next_cause: change.cause_then,
            predicted_bps: None,
            ..proved
        },
        None => proved,
    });
}

fn verdict_of(record: &Record, cause: Cause) -> Option<Verdict> {
    let views = views(record);
    let [view] = &views[..] else {
        return None;
    };
    Some(verdict::explain_as(view, cause).typed(&view.run()))
}

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
//! | `thresholds` | the thresholds of the evidence, with the reasons |
//! | `remedy` | remedies, with values computed from the path |
//! | `small_segments` | why segments are smaller than the interface carries |
//! | `verdict` | the choice of the cause |
//! | `doubt` | the confidence of a verdict, and the next most likely cause |
//! | `prediction` | the next limit when the cause is lifted |

mod causes;
mod doubt;
pub mod formulas;
mod prediction;
mod remedy;
mod signals;
mod small_segments;
#[cfg(test)]
pub(crate) mod tests;
mod text;
mod thresholds;
mod verdict;
mod view;

use self::small_segments::small_segments_caveat;
use self::view::views;
use crate::plan::Direction;
use crate::record::{CaveatKind, Record};

pub use crate::record::{Cause, Ceiling, Verdict};
pub use thresholds::{EXACT_TOLERANCE, MODEL_TOLERANCE};
pub use verdict::agrees;

pub(crate) use causes::{is_closing, is_held_by_receiver};
pub(crate) use verdict::explain as explain_view;
pub(crate) use view::View;

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

/// Whether most steps had the same rate; without enough steps, whether the intervals had.
pub(crate) fn is_even(view: &View<'_>) -> bool {
    let varies_little = || view.variation().is_some_and(|share| share <= thresholds::EVEN);
    view.is_even() || (view.steps.is_none() && varies_little())
}

/// Writes the verdict on each direction into the record, in place of earlier ones, and a caveat if
/// segments are small for their interface.
pub fn annotate(record: &mut Record) {
    let explained = explain(record);
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
}

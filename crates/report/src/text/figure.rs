//! Figures over repeated runs, for a line or for a cell.

use linerate_core::stats::{CONFIDENCE, Figure};

use super::number::{NBSP, joined, span};

/// The figure with `write` as the way to write one of its values: the median with its interval, or,
/// where one figure would mislead, the modes or the drift.
pub(super) fn figure(figure: &Figure, write: impl Fn(f64) -> String) -> String {
    match figure {
        Figure::One(one) if one.n == 1 => {
            format!("{} in one run, its spread is not known", write(one.median))
        }
        Figure::One(one) => {
            let few = match one.reaches_confidence() {
                true => String::new(),
                false => format!(", too few for {:.0}{NBSP}%", CONFIDENCE * 100.0),
            };
            let (median, n, coverage) = (write(one.median), one.n, one.coverage * 100.0);
            let interval = span(&write(one.low), &write(one.high), "–");
            format!(
                "{median} [{interval}], median of {n} runs ({coverage:.1}{NBSP}% confidence{few})"
            )
        }
        Figure::Modes { modes } => {
            let modes = modes.iter();
            let modes = modes.map(|mode| format!("{} ({} runs)", write(mode.median), mode.n));
            format!(
                "not one figure: groups of runs at {}",
                joined(modes, " and ")
            )
        }
        Figure::Drift { from, to, .. } => {
            let [from, to] = [*from, *to].map(write);
            format!("not one figure: it changes with time from {from} to {to}")
        }
    }
}

/// The median, or what stands in its place where there is no one figure: `modes / modes`,
/// `from → to`.
pub(super) fn middle(figure: &Figure, write: impl Fn(f64) -> String) -> String {
    match figure {
        Figure::One(one) => write(one.median),
        Figure::Modes { modes } => joined(modes.iter().map(|mode| write(mode.median)), MODES),
        Figure::Drift { from, to, .. } => format!("{}{DRIFT}{}", write(*from), write(*to)),
    }
}

/// Separators between modes, and between the ends of a drift.
pub(super) const MODES: &str = "\u{a0}/\u{a0}";
pub(super) const DRIFT: &str = "\u{a0}→\u{a0}";

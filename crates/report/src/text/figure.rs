//! What repeated runs amount to, on one line.

use linerate_core::stats::Figure;

/// The figure with `value` as the way to write one of its values: the median with its interval, or,
/// where one figure would mislead, the modes or the drift.
pub(super) fn figure(figure: &Figure, value: fn(f64) -> String) -> String {
    match figure {
        Figure::One(one) => {
            let level = one.coverage * 100.0;
            format!(
                "{} [{} – {}], {level:.1} % of {} runs",
                value(one.median),
                value(one.low),
                value(one.high),
                one.n
            )
        }
        Figure::Modes { modes } => {
            let modes: Vec<String> = modes
                .iter()
                .map(|mode| format!("{} ({} runs)", value(mode.median), mode.n))
                .collect();
            format!("not one figure: modes at {}", modes.join(" and "))
        }
        Figure::Drift { from, to, .. } => format!(
            "not one figure: drifts from {} to {}",
            value(*from),
            value(*to)
        ),
    }
}

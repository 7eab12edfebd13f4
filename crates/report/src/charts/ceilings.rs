//! Chart of the ceiling of each cause, with the measured rate as a line: the lowest bar that the
//! line reaches is the bottleneck.

use linerate_core::ceilings::{Ceiling, Verdict};

use super::lowest;
use crate::number::{joined, percent, rate};
use crate::svg::{Bar, Bars, Chart, Fill, Unit};

/// Bars of the lowest ceiling of each cause.
pub(super) fn ceilings(
    name: &str,
    title: String,
    ceilings: &[Ceiling],
    verdict: Option<&Verdict>,
    measured_bps: Option<f64>,
) -> Option<Chart> {
    let measured = measured_bps.filter(|bps| *bps > 0.0)?;
    let lowest = lowest(ceilings, |one| one.limit_bps.is_finite() && one.limit_bps > 0.0);
    let nearest = lowest.first()?.limit_bps;
    let cause = verdict.map(|verdict| verdict.cause);
    let expected = verdict.and_then(|verdict| verdict.predicted_bps);
    let expected =
        expected.filter(|bps| *bps < FAR * measured && (bps / measured - 1.0).abs() > 0.02);
    let mut levels = vec![(measured, format!("measured {}", rate(measured)))];
    levels.extend(expected.map(|bps| (bps, format!("expected {}", rate(bps)))));
    // What matters is near the measured rate; longer bars are cut off.
    let near = nearest.min(FAR * measured).max(measured);
    let end = 1.25 * near.max(expected.unwrap_or(0.0));
    // A ceiling that is derived from the measured rate says something only if it is near.
    let tells = |ceiling: &&&Ceiling| {
        ceiling.independent || ceiling.limit_bps < end || Some(ceiling.cause) == cause
    };
    let shown = lowest.iter().filter(tells);
    let rows: Vec<Bar> =
        shown.map(|ceiling| bar(ceiling, measured, Some(ceiling.cause) == cause)).collect();
    let highest = rows.iter().map(|row| row.value).fold(0.0, f64::max);
    let named = rows.iter().map(|row| format!("{} {}", row.label, rate(row.value)));
    let named = joined(named, ", ");
    let says = format!("Measured: {}. Ceilings: {named}.", rate(measured));
    let bars = Bars { levels, end: (highest > end).then_some(end), ..Bars::new(Unit::Rate, rows) };
    Some(Chart::new(name, title, says, bars))
}

fn bar(ceiling: &Ceiling, measured: f64, is_bottleneck: bool) -> Bar {
    let reached = percent(100.0 * measured / ceiling.limit_bps);
    let proves = if ceiling.independent {
        ""
    } else {
        "; derived from the measured rate, so it cannot confirm"
    };
    Bar {
        label: ceiling.cause.words().to_owned(),
        value: ceiling.limit_bps,
        colour: match (is_bottleneck, ceiling.independent) {
            (true, _) => Fill::Accent,
            (false, true) => Fill::Plain,
            (false, false) => Fill::Hollow,
        },
        tip: format!("{}; {reached} of it reached{proves}", ceiling.formula),
        ..Bar::default()
    }
}

/// A ceiling above this multiple of the measured rate is far away.
const FAR: f64 = 8.0;

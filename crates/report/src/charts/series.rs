//! Chart of a test's runs over days.

use super::unit_of;
use crate::number::plural;
use crate::svg::{Body, Chart, Mark, Panel, Plot, Series, Unit};

/// A run of a series.
#[derive(Debug, Clone)]
pub struct PastRun {
    /// Start of the run, seconds since 1970.
    pub at_s: u64,
    /// The run's figure.
    pub value: f64,
    /// The run's bottleneck.
    pub cause: Option<String>,
}

/// A dot for each run in the colour of its bottleneck, and the median between changes as a line;
/// `None` if all runs began at the same moment. A change has the index of the first run after it,
/// and the medians before and after.
pub(crate) fn time_line(
    metric: &str,
    runs: &[PastRun],
    changes: &[(usize, [f64; 2])],
) -> Option<Chart> {
    let [first, .., last] = runs else { return None };
    if first.at_s == last.at_s {
        return None;
    }
    let mut causes: Vec<Option<&str>> = runs.iter().map(|run| run.cause.as_deref()).collect();
    causes.sort_unstable();
    causes.dedup();
    let of_cause = |(colour, cause): (usize, &Option<&str>)| {
        let own = runs.iter().filter(|run| run.cause.as_deref() == *cause);
        let name = cause.map_or_else(
            || "no bottleneck named".to_owned(),
            |it| it.replace('_', " "),
        );
        // The second colour is that of the line.
        let colour = if colour == 0 { 0 } else { colour + 1 };
        Series::new(
            name,
            Mark::Points,
            colour,
            own.map(|run| [run.at_s as f64, run.value]),
        )
    };
    let mut series: Vec<Series> = causes.iter().enumerate().map(of_cause).collect();
    if let [(_, [earliest, _]), .., (_, [_, latest])] | [(_, [earliest, latest])] = changes {
        let mut line = vec![[first.at_s as f64, *earliest]];
        for (place, [before, after]) in changes {
            let at = runs[*place].at_s as f64;
            line.extend([[at, *before], [at, *after]]);
        }
        line.push([last.at_s as f64, *latest]);
        series.push(Series::new(
            "median, from change to change",
            Mark::Line,
            1,
            line,
        ));
    }
    let unit = unit_of(metric);
    let values = || runs.iter().map(|run| run.value);
    let says = format!(
        "{} runs, {metric} from {} to {}, {}.",
        runs.len(),
        unit.write(values().fold(f64::INFINITY, f64::min)),
        unit.write(values().fold(f64::NEG_INFINITY, f64::max)),
        plural(changes.len() as u64, "change")
    );
    let plot = Plot {
        x: "Begun, UTC",
        x_unit: Unit::Moment,
        log: false,
        panels: vec![Panel::new("Figure", unit, series)],
    };
    Some(Chart::new("runs", metric, says, Body::Plot(plot)))
}

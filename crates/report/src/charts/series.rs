//! Chart of a test's runs over days.

use super::unit_of;
use crate::number::{ends, plural};
use crate::svg::{Chart, Mark, Panel, Plot, Series, Unit};

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
        let name = cause.unwrap_or("no bottleneck named").replace('_', " ");
        // The second colour is that of the line.
        let colour = if colour == 0 { 0 } else { colour + 1 };
        let points = own.map(|run| [run.at_s as f64, run.value]);
        Series::new(name, Mark::Points, colour, points)
    };
    let mut series: Vec<Series> = causes.iter().enumerate().map(of_cause).collect();
    if let [(_, [earliest, _]), .., (_, [_, latest])] | [(_, [earliest, latest])] = changes {
        let mut line = vec![[first.at_s as f64, *earliest]];
        for (place, [before, after]) in changes {
            let at = runs[*place].at_s as f64;
            line.extend([[at, *before], [at, *after]]);
        }
        line.push([last.at_s as f64, *latest]);
        let name = "median, from change to change";
        series.push(Series::new(name, Mark::Line, 1, line));
    }
    let unit = unit_of(metric);
    let [low, high] = ends(runs.iter().map(|run| run.value)).map(|value| unit.write(value));
    let (number, changes) = (runs.len(), plural(changes.len() as u64, "change"));
    let says = format!("{number} runs, {metric} from {low} to {high}, {changes}.");
    let panel = Panel::new("Figure", unit, series);
    let plot = Plot::new("Begun, UTC", Unit::Moment, vec![panel]);
    Some(Chart::new("runs", metric, says, plot))
}

//! Chart of the distribution of round-trip times, idle and loaded.

use linerate_core::stats::{LatencyBuckets, LatencySummary};

use crate::number::{ends, joined, micros};
use crate::svg::{Chart, Mark, Panel, Plot, Series, Unit};

/// Round-trip times of one kind.
pub(super) struct Trips<'a> {
    pub(super) name: String,
    pub(super) summary: &'a LatencySummary,
    pub(super) buckets: Option<&'a LatencyBuckets>,
    /// Whether they were measured without load.
    pub(super) idle: bool,
    pub(super) colour: usize,
}

impl<'a> Trips<'a> {
    pub(super) fn new(name: &str, summary: &'a LatencySummary, idle: bool, colour: usize) -> Self {
        Self { name: name.to_owned(), summary, buckets: None, idle, colour }
    }
}

/// The share of round trips that took no longer than a time.
pub(super) fn distribution(name: &str, all: &[Trips<'_>]) -> Option<Chart> {
    let series = all.iter().map(|trips| {
        let mark = if trips.idle { Mark::Dashed } else { Mark::Line };
        let points = match trips.buckets {
            Some(buckets) => shares(buckets),
            None => quantiles(trips.summary),
        };
        let on_scale = points.into_iter().filter(|point| point[0] > 0.0);
        Series::new(&trips.name, mark, trips.colour, on_scale)
    });
    let series: Vec<Series> = series.filter(|series| series.points.len() > 1).collect();
    if series.is_empty() {
        return None;
    }
    let says = all.iter().map(|trips| {
        let all = trips.summary;
        let p99 = (all.count >= 100).then(|| format!(", 99 % {}", micros(all.p99)));
        let (p50, p99, max) = (micros(all.p50), p99.unwrap_or_default(), micros(all.max));
        format!("{}: half take at most {p50}{p99}, all {max}.", trips.name)
    });
    let points = series.iter().flat_map(|series| &series.points);
    let [least, most] = ends(points.map(|point| point[0]));
    let panel = Panel::new("Share that took no longer", Unit::Percent, series);
    let plot =
        Plot { log: most > WIDE * least, ..Plot::new("Round trip", Unit::Micros, vec![panel]) };
    Some(Chart::new(name, "Latency", joined(says, " "), plot))
}

/// The axis is logarithmic if the longest time is more than this multiple of the shortest.
const WIDE: f64 = 20.0;

/// The quantiles for which there are enough samples.
fn quantiles(all: &LatencySummary) -> Vec<[f64; 2]> {
    let known = [
        (all.min, 0.0, 1),
        (all.p50, 50.0, 2),
        (all.p90, 90.0, 10),
        (all.p99, 99.0, 100),
        (all.p999, 99.9, 1000),
        (all.max, 100.0, 1),
    ]
    .into_iter()
    .filter(|(.., least)| all.count >= *least);
    known.map(|(us, share, _)| [us, share]).collect()
}

/// Points of a step function: where in a bucket its samples lie is not known.
fn shares(buckets: &LatencyBuckets) -> Vec<[f64; 2]> {
    let total: u64 = buckets.0.iter().map(|(_, count)| count).sum();
    let share = |count: u64| 100.0 * count as f64 / total.max(1) as f64;
    let mut so_far = 0;
    let mut points = Vec::new();
    for (upper_us, count) in &buckets.0 {
        points.push([*upper_us, share(so_far)]);
        so_far += count;
        points.push([*upper_us, share(so_far)]);
    }
    points
}

//! Chart of the distribution of round-trip times, idle and loaded.

use linerate_core::stats::{LatencyBuckets, LatencySummary};

use crate::number::micros;
use crate::svg::{Body, Chart, Mark, Panel, Plot, Series, Unit};

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
        Self {
            name: name.to_owned(),
            summary,
            buckets: None,
            idle,
            colour,
        }
    }
}

/// The share of round trips that took no longer than a time.
pub(super) fn distribution(name: &str, all: &[Trips<'_>]) -> Option<Chart> {
    let series = all.iter().map(|trips| {
        let mark = if trips.idle { Mark::Dashed } else { Mark::Line };
        let points = trips
            .buckets
            .map_or_else(|| quantiles(trips.summary), shares);
        let points = points.into_iter().filter(|point| point[0] > 0.0);
        Series::new(&trips.name, mark, trips.colour, points)
    });
    let series: Vec<Series> = series.filter(|series| series.points.len() > 1).collect();
    if series.is_empty() {
        return None;
    }
    let says = all.iter().map(|trips| {
        let all = trips.summary;
        let p99 = (all.count >= 100).then(|| format!(", 99 % {}", micros(all.p99)));
        let (p50, p99) = (micros(all.p50), p99.unwrap_or_default());
        format!(
            "{}: half take at most {p50}{p99}, all {}.",
            trips.name,
            micros(all.max)
        )
    });
    let times = || {
        series
            .iter()
            .flat_map(|series| series.points.iter().map(|point| point[0]))
    };
    let [least, most] = [
        times().fold(f64::INFINITY, f64::min),
        times().fold(0.0, f64::max),
    ];
    let plot = Plot {
        x: "Round trip",
        x_unit: Unit::Micros,
        log: most > WIDE * least,
        panels: vec![Panel::new(
            "Share that took no longer",
            Unit::Percent,
            series,
        )],
    };
    let says = says.collect::<Vec<_>>().join(" ");
    Some(Chart::new(name, "Latency", says, Body::Plot(plot)))
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
    ];
    let known = known
        .into_iter()
        .filter(|(_, _, least)| all.count >= *least);
    known.map(|(us, share, _)| [us, share]).collect()
}

/// Points of a step function: where in a bucket its samples lie is not known.
fn shares(buckets: &LatencyBuckets) -> Vec<[f64; 2]> {
    let total: u64 = buckets.0.iter().map(|(_, count)| count).sum();
    let mut so_far = 0;
    let mut points = Vec::new();
    for (upper_us, count) in &buckets.0 {
        points.push([*upper_us, 100.0 * so_far as f64 / total.max(1) as f64]);
        so_far += count;
        points.push([*upper_us, 100.0 * so_far as f64 / total.max(1) as f64]);
    }
    points
}

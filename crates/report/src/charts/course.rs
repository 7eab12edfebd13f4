//! Chart of runs over time, with one time axis.

use linerate_core::record::Interval;

use crate::number::{count, ends, joined, rate, seconds};
use crate::svg::{Chart, Mark, Panel, Plot, Series, Unit};

/// The intervals of one direction of one run.
pub(super) struct Course<'a> {
    pub(super) name: String,
    pub(super) intervals: Vec<&'a Interval>,
    /// Start of the run on the common time axis, s.
    pub(super) begin_s: f64,
}

/// A panel: its title, unit and mark, and how to find the figure of an interval.
type Shown = (&'static str, Unit, Mark, fn(&Interval) -> Option<f64>);

/// The panels, the most important first.
const SHOWN: [Shown; 6] = [
    ("Goodput", Unit::Rate, Mark::Line, |interval| {
        (interval.bytes > 0 || interval.transactions.is_none()).then_some(interval.throughput_bps)
    }),
    ("Requests answered", Unit::Count, Mark::Line, |interval| Some(interval.transactions? as f64)),
    ("Round-trip time", Unit::Micros, Mark::Line, |interval| interval.rtt_us),
    ("Congestion window", Unit::Bytes, Mark::Line, |interval| {
        interval.cwnd_bytes.map(|bytes| bytes as f64)
    }),
    ("Segments retransmitted", Unit::Count, Mark::Stems, |it| {
        it.retransmitted_segments.map(|count| count as f64)
    }),
    ("Datagrams lost", Unit::Count, Mark::Stems, |interval| {
        interval.lost.map(|count| count as f64)
    }),
];

/// The runs over time; `None` if no run has two intervals. `levels` are rates that are drawn as
/// lines in the first panel.
pub(super) fn over_time(name: &str, courses: &[Course<'_>]) -> Option<Chart> {
    let courses: Vec<&Course> = courses.iter().filter(|it| it.intervals.len() > 1).collect();
    let panels: Vec<Panel> = SHOWN.iter().filter_map(|shown| panel(shown, &courses)).collect();
    if panels.is_empty() {
        return None;
    }
    let says = joined(courses.iter().map(|course| says(course)), " ");
    let plot = Plot::new("Time", Unit::Seconds, panels);
    Some(Chart::new(name, "Over time", says, plot))
}

fn panel((y, unit, mark, of): &Shown, courses: &[&Course<'_>]) -> Option<Panel> {
    let mut series = Vec::new();
    for (colour, course) in courses.iter().enumerate() {
        let points = course.intervals.iter().filter_map(|interval| {
            let middle = course.begin_s + interval.start_s + interval.seconds / 2.0;
            Some([middle, of(interval)?])
        });
        let mark = match mark {
            Mark::Line if colour % 2 == 1 => Mark::Dashed,
            mark => *mark,
        };
        series.push(Series::new(&course.name, mark, colour, points));
    }
    series.retain(|series| series.points.len() > 1);
    let is_known = series.iter().any(|it| it.points.iter().any(|p| p[1] > 0.0));
    is_known.then(|| Panel::new(y, *unit, series))
}

/// `up: 10 intervals in 10.0 s, goodput from 12.1 to 14.0 Mbit/s, 12 segments retransmitted.`
fn says(course: &Course<'_>) -> String {
    let intervals = &course.intervals;
    let [low, high] = ends(intervals.iter().map(|interval| interval.throughput_bps));
    let length = intervals.iter().map(|interval| interval.seconds).sum();
    let lost =
        intervals.iter().filter_map(|it| it.retransmitted_segments).reduce(u64::saturating_add);
    let lost = lost.map(|n| format!(", {} segments retransmitted", count(n)));
    format!(
        "{}: {} intervals in {}, goodput from {} to {}{}.",
        course.name,
        intervals.len(),
        seconds(length),
        rate(low),
        rate(high),
        lost.unwrap_or_default()
    )
}

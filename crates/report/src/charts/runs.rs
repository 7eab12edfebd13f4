//! Charts of runs: rates and round trips over time, what each cause would let through, the
//! distribution of round-trip times. Records, checks, sweeps, mixes and connections are made of
//! these.

use linerate_core::ceilings::{Ceiling, Verdict};
use linerate_core::connection::ConnectionsDocument;
use linerate_core::load::{LoadDocument, LoadMember};
use linerate_core::plan::{Direction, Workload};
use linerate_core::proof::words;
use linerate_core::record::{ChangeResult, Check, Interval, Leg, Record, Sweep, median_run};
use linerate_core::stats::{LatencyBuckets, LatencySummary};

use super::{fill, lowest, middle, unit_of};
use crate::number::{count, ends, joined, micros, percent, rate, ratio, seconds};
use crate::svg::{Bar, Bars, Chart, Fill, Mark, Panel, Plot, Series, Unit};

pub(crate) fn record(record: &Record) -> Vec<Chart> {
    let legs = record.legs.iter();
    let mut charts: Vec<Chart> = legs.clone().filter_map(|leg| of_leg(record, leg)).collect();
    charts.extend(legs.filter_map(changes));
    let courses: Vec<Course> = match record.legs.as_slice() {
        [] | [_] => vec![whole_course(record.direction, record)],
        legs => legs
            .iter()
            .map(|leg| course(leg.direction.word(), record.intervals_of(leg), 0.0))
            .collect(),
    };
    charts.extend(over_time("time", &courses));
    if let Some(summary) = &record.latency_us {
        let trips = Trips {
            buckets: record.latency_histogram.as_ref(),
            ..Trips::new("requests", summary, false, 0)
        };
        charts.extend(distribution("latency", &[trips]));
    }
    charts
}

fn course<'a>(
    name: &str,
    intervals: impl Iterator<Item = &'a Interval>,
    begin_s: f64,
) -> Course<'a> {
    Course { name: name.to_owned(), intervals: intervals.collect(), begin_s }
}

fn whole_course(direction: Direction, record: &Record) -> Course<'_> {
    course(direction.word(), record.intervals.iter(), 0.0)
}

fn of_leg(record: &Record, leg: &Leg) -> Option<Chart> {
    let direction = leg.direction.word();
    let title = format!("What holds it back, {direction}");
    let rate = leg.throughput_bps.or(record.throughput_bps());
    let name = format!("ceilings-{direction}");
    ceilings(&name, title, &leg.ceilings, leg.verdict.as_ref(), rate)
}

pub(crate) fn check(check: &Check) -> Vec<Chart> {
    let ways = [(Direction::Down, &check.down), (Direction::Up, &check.up)]
        .into_iter()
        .filter_map(|(way, record)| Some((way, record.as_ref()?)));
    let mut charts = Vec::new();
    for (_, record) in ways.clone() {
        charts.extend(record.legs.iter().filter_map(|leg| of_leg(record, leg)));
        charts.extend(record.legs.iter().filter_map(changes));
    }
    let mut trips = Vec::new();
    let idle = check.idle_latency_us.as_ref();
    trips.extend(idle.map(|idle| Trips::new("idle", idle, true, 2)));
    for (direction, colour) in [("down", 0), ("up", 1)] {
        let loaded = check.loaded_latency_by_direction_us.get(direction);
        let name = format!("loaded {direction}");
        trips.extend(loaded.map(|loaded| Trips::new(&name, loaded, false, colour)));
    }
    charts.extend(distribution("latency", &trips));
    let courses = ways.map(|(direction, record)| whole_course(direction, record));
    charts.extend(over_time("time", &courses.collect::<Vec<_>>()));
    charts.extend(check.route.iter().flat_map(|route| super::trace(route)));
    charts
}

/// The rate with each change over the rate without, and what the verdict's cause predicts.
fn changes(leg: &Leg) -> Option<Chart> {
    let verdict = leg.verdict.as_ref()?;
    let bar = |change: &ChangeResult| {
        let words = words(&change.change);
        let expected = change.predicted.get(&verdict.cause).copied();
        let cause = verdict.cause.words();
        let expected_words =
            expected.map_or(String::new(), |it| format!("; {cause} predicts {}", ratio(it)));
        Bar {
            label: words.to_owned(),
            value: change.ratio,
            interval: Some(change.interval),
            beside: expected,
            colour: fill(expected.is_some()),
            note: Some(ratio(change.ratio)),
            tip: format!("{words}: {} of the rate{expected_words}", ratio(change.ratio)),
            ..Bar::default()
        }
    };
    let rows: Vec<Bar> = leg.experiments.iter().map(bar).collect();
    if rows.is_empty() {
        return None;
    }
    let says = joined(rows.iter().map(|row| row.tip.clone()), ". ") + ".";
    let way = leg.direction.word();
    let levels = vec![(1.0, "without the change".to_owned())];
    let bars = Bars { levels, ..Bars::new(Unit::Count, rows) };
    let title = format!("What changes bring, {way} (diamonds: as predicted)");
    Some(Chart::new(&format!("changes-{way}"), title, says, bars))
}

/// A chart of each run over its size, or over its number if all have the same size; the median of
/// each size as a line.
pub(crate) fn sweep(sweep: &Sweep) -> Vec<Chart> {
    let Some(first) = sweep.rows.first() else {
        return Vec::new();
    };
    let Some((metric, _)) = first.headline() else {
        return record(first);
    };
    let size = |row: &Record| row.plan.traffic.message_bytes() as f64;
    let is_sweep = sweep.rows.iter().any(|row| size(row) != size(first));
    let runs = (1..).zip(&sweep.rows).filter_map(|(number, row)| {
        let x = if is_sweep { size(row) } else { f64::from(number) };
        Some([x, row.headline()?.1])
    });
    let runs: Vec<[f64; 2]> = runs.collect();
    let medians = medians(sweep, is_sweep, &runs);
    let (size_name, y) = match first.workload {
        Workload::Stream => ("Message", "Goodput"),
        _ => ("Request", "Requests answered each second"),
    };
    let (title, x, x_unit) = match is_sweep {
        true => ("By size", size_name, Unit::Bytes),
        false => ("Run by run", "Run", Unit::Count),
    };
    let unit = unit_of(metric);
    let says = runs
        .iter()
        .take(MAX_SAID)
        .map(|[x, y]| format!("{}: {}", x_unit.write(*x), unit.write(*y)));
    let says = joined(says, "; ") + ".";
    let mut panel = Panel::new(y, unit, vec![Series::new("each run", Mark::Dots, 0, runs)]);
    if medians.len() > 1 {
        let medians = Series::new("median", Mark::Line, 0, medians);
        panel.series.insert(0, medians);
    } else if let Some((median, interval)) = sweep.figures.first().and_then(|of| middle(&of.figure))
    {
        panel.levels = vec![(median, format!("median {}", unit.write(median)))];
        panel.band = interval;
    }
    let plot = Plot { log: is_sweep, ..Plot::new(x, x_unit, vec![panel]) };
    let mut charts = vec![Chart::new("runs", title, says, plot)];
    if !is_sweep {
        charts.extend(median_run(&sweep.rows).into_iter().flat_map(record));
    }
    charts
}

/// The median of each size of a sweep. A size without a figure has one run.
fn medians(sweep: &Sweep, is_sweep: bool, runs: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let mut medians: Vec<[f64; 2]> = match sweep.figures.as_slice() {
        figures if is_sweep && !figures.is_empty() => figures
            .iter()
            .filter_map(|of| Some([of.message_bytes as f64, middle(&of.figure)?.0]))
            .collect(),
        _ if is_sweep => runs.to_vec(),
        _ => Vec::new(),
    };
    medians.sort_by(|a, b| a[0].total_cmp(&b[0]));
    medians
}

/// Maximum number of figures in a description.
const MAX_SAID: usize = 40;

pub(crate) fn load(load: &LoadDocument) -> Vec<Chart> {
    let streams = load.members.iter().filter(|it| it.record.workload == Workload::Stream);
    let courses = streams.flat_map(|member: &LoadMember| {
        let begin_s = member.started_s.unwrap_or(member.start_s);
        member.record.legs.iter().map(move |leg| {
            let name = format!("{} {}", member.name, leg.direction.word());
            course(&name, member.record.intervals_of(leg), begin_s)
        })
    });
    let mut trips = Vec::new();
    for (colour, class) in load.latency.iter().enumerate() {
        for (state, summary) in [("idle", &class.idle_us), ("loaded", &class.loaded_us)] {
            let name = format!("{} {state}", class.member);
            let mut members = load.members.iter().filter(|_| state == "loaded");
            let member = members.find(|member| member.name == class.member);
            let trip = |summary| Trips {
                buckets: member.and_then(|it| it.record.latency_histogram.as_ref()),
                ..Trips::new(&name, summary, state == "idle", colour)
            };
            trips.extend(summary.as_ref().map(trip));
        }
    }
    let mut charts: Vec<Chart> = distribution("latency", &trips).into_iter().collect();
    charts.extend(over_time("time", &courses.collect::<Vec<_>>()));
    let busiest = load.busiest();
    charts.extend(busiest.and_then(|(member, leg)| of_leg(&member.record, leg)));
    charts
}

/// Charts of the largest connection.
pub(crate) fn connections(document: &ConnectionsDocument) -> Vec<Chart> {
    let Some(first) = document.connections.first() else {
        return Vec::new();
    };
    let title = format!("What holds {} back", first.remote);
    let (verdict, rate) = (first.verdict.as_ref(), Some(first.throughput_bps));
    let ceilings = ceilings("ceilings", title, &first.ceilings, verdict, rate);
    let course = course(first.direction.word(), first.intervals.iter(), 0.0);
    ceilings.into_iter().chain(over_time("time", &[course])).collect()
}

// The ceiling of each cause, with the measured rate as a line: the lowest bar that the line reaches
// is the bottleneck.

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
    let reached = if ceiling.independent {
        format!("{} of it reached", percent(100.0 * measured / ceiling.limit_bps))
    } else {
        "derived from the measured rate, so it cannot confirm".to_owned()
    };
    Bar {
        label: ceiling.cause.words().to_owned(),
        value: ceiling.limit_bps,
        colour: match (is_bottleneck, ceiling.independent) {
            (_, false) => Fill::Hollow,
            (true, true) => Fill::Accent,
            (false, true) => Fill::Plain,
        },
        tip: format!("{}; {reached}", ceiling.formula),
        ..Bar::default()
    }
}

/// A ceiling above this multiple of the measured rate is far away.
const FAR: f64 = 8.0;

// Runs over time, with one time axis.

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

// The distribution of round-trip times, idle and loaded.

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

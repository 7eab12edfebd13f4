//! Charts of runs: rates, round trips and ceilings.

use linerate_core::connection::ConnectionsDocument;
use linerate_core::load::{LoadDocument, LoadMember};
use linerate_core::plan::{Direction, Workload};
use linerate_core::record::{Check, Interval, Leg, Record, Sweep, median_run};

use super::ceilings::ceilings;
use super::course::{Course, over_time};
use super::latency::{Trips, distribution};
use super::{middle, unit_of};
use crate::number::joined;
use crate::svg::{Chart, Mark, Panel, Plot, Series, Unit};

pub(crate) fn record(record: &Record) -> Vec<Chart> {
    let legs = record.legs.iter();
    let mut charts: Vec<Chart> = legs.filter_map(|leg| of_leg(record, leg)).collect();
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
            let trip = |summary| Trips::new(&name, summary, state == "idle", colour);
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

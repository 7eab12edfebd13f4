//! Charts of what is no run over time: hops, populations, layers of CPU time, experiments, the
//! mesh, comparisons, and runs over the days.

use std::fmt::Write;

use linerate_core::capacity::{CapacityDocument, LatencyAt};
use linerate_core::compare::{ComparedMetric, ComparedPair, Comparison};
use linerate_core::experiment::{DocumentRow, ExperimentDocument};
use linerate_core::plan::Direction;
use linerate_core::profile::{EndLayers, Layer, LayerCost, ProfileDocument};
use linerate_core::stats::LatencySummary;
use linerate_core::throughput::{PREAMBLE_AND_GAP, ThroughputDocument};
use linerate_core::trace::delay::{DelayAnalysis, HopDelay};
use linerate_core::trace::{HopDocument, TraceDocument};
use linerate_mesh::MatrixDocument;

use super::{fill, middle, unit_of};
use crate::number::{count, digits, ends, joined, micros, percent, plural, rate};
use crate::svg::{
    Bar, Bars, Body, Chart, Mark, Panel, Plot, Series, Unit, escaped, flame_picture, layer_name,
};

/// Each hop's smallest round-trip time; the step that adds most is emphasised.
pub(crate) fn trace(trace: &TraceDocument) -> Vec<Chart> {
    let delays = &trace.delay;
    let largest = delays.largest.and_then(|step| delays.steps.get(step));
    let mut before = 0.0;
    let mut rows = Vec::new();
    for hop in &delays.hops {
        let [added, least] = [(hop.path_us - before).max(0.0), hop.least_us].map(micros);
        let (note, tip) = if is_in_tunnel(hop, delays) {
            (least.clone(), format!("least round trip {least}, inside an MPLS tunnel"))
        } else {
            (
                format!("{least} (+{added})"),
                format!("least round trip {least}, {added} of it added here"),
            )
        };
        let document = trace.hops.iter().find(|of| of.ttl == hop.ttl);
        // Older documents do not have `seen_from_ttl`.
        let is_largest = largest.is_some_and(|step| match step.seen_from_ttl {
            0 => step.to_ttl == hop.ttl,
            first => first == hop.ttl,
        });
        rows.push(Bar {
            label: format!("{}  {}", hop.ttl, document.map_or_else(String::new, router)),
            from: before.min(hop.path_us),
            value: hop.path_us,
            colour: fill(is_largest),
            note: Some(note),
            tip,
            ..Bar::default()
        });
        if !is_in_tunnel(hop, delays) {
            before = hop.path_us;
        }
    }
    if rows.is_empty() {
        return Vec::new();
    }
    let says = if delays.words.is_empty() {
        format!("{} answered.", plural(rows.len() as u64, "hop"))
    } else {
        delays.words.join(" ")
    };
    let bars = Bars::new(Unit::Micros, rows);
    vec![Chart::new("hops", "Where the delay is added", says, bars)]
}

/// Whether the delay up to a hop is that of a tunnel which goes on beyond it.
fn is_in_tunnel(hop: &HopDelay, delays: &DelayAnalysis) -> bool {
    let step = delays.steps.get(hop.step).filter(|step| step.to_ttl != hop.ttl);
    let ttls = step.and_then(|step| step.tunnel_ttls);
    ttls.is_some_and(|[first, last]| (first..=last).contains(&hop.ttl))
}

fn router(hop: &HopDocument) -> String {
    let address = hop.address.map(|address| address.to_string());
    let name = hop.name.clone().or(address).unwrap_or_default();
    match name.char_indices().nth(MAX_NAME) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name,
    }
}

/// A router's name is cut to this many characters.
const MAX_NAME: usize = 28;

/// Latency by the number of connections held, and how they were opened over time.
pub(crate) fn capacity(document: &CapacityDocument) -> Vec<Chart> {
    let latency = latency_by_number(&document.latency);
    latency.into_iter().chain(opened(document)).collect()
}

fn latency_by_number(latency: &[LatencyAt]) -> Option<Chart> {
    let at = |us: fn(&LatencySummary) -> f64| {
        let points = latency.iter();
        points.map(move |at| [at.population as f64, us(&at.latency_us)])
    };
    let series = vec![
        Series::new("p50", Mark::Line, 0, at(|all| all.p50)),
        Series::new("p99", Mark::Dashed, 1, at(|all| all.p99)),
    ];
    let says = latency.iter().map(|at| {
        let [p50, p99] = [at.latency_us.p50, at.latency_us.p99].map(micros);
        format!("beside {}: p50 {p50}, p99 {p99}", count(at.population))
    });
    let says = joined(says, "; ") + ".";
    let panel = Panel::new("Round trip of an active one", Unit::Micros, series);
    let plot = Plot::new("Idle connections beside it", Unit::Count, vec![panel]);
    (latency.len() > 1).then(|| Chart::new("latency", "Latency by number", says, plot))
}

fn opened(document: &CapacityDocument) -> Option<Chart> {
    let pools = [("TCP", &document.tcp), ("UDP", &document.udp)]
        .into_iter()
        .filter_map(|(name, pool)| Some((name, pool.as_ref()?)));
    let mut series = Vec::new();
    let mut says = Vec::new();
    for (colour, (name, pool)) in pools.enumerate() {
        let points = pool.ramp.iter().map(|step| [step.at_s, step.opened as f64]);
        series.push(Series::new(name, Mark::Line, colour, points));
        let [opened, asked] = [pool.opened, pool.asked].map(count);
        says.push(format!("{name}: {opened} of {asked} opened."));
    }
    series.retain(|series| series.points.len() > 1);
    if series.is_empty() {
        return None;
    }
    let panel = Panel::new("Open", Unit::Count, series);
    let plot = Plot::new("Time", Unit::Seconds, vec![panel]);
    Some(Chart::new("opened", "How they were opened", says.join(" "), plot))
}

/// The rate that was carried by frame size, in each direction, beside what the link carries.
pub(crate) fn throughput(document: &ThroughputDocument) -> Vec<Chart> {
    let of = |direction: Direction| {
        let rows = document.rows.iter().filter(move |row| row.direction == direction);
        rows.filter_map(|row| Some([row.frame_bytes as f64, row.frames_bps?]))
    };
    let ways = [("up", Direction::Up), ("down", Direction::Down)];
    let mut series: Vec<Series> = (0..)
        .zip(ways)
        .map(|(colour, (name, way))| Series::new(name, Mark::Line, colour, of(way)))
        .collect();
    series.retain(|series| series.points.len() > 1);
    if series.is_empty() {
        return Vec::new();
    }
    if let Some(link_bps) = document.link_bps {
        let share = |frame: u64| frame as f64 / (frame + PREAMBLE_AND_GAP) as f64;
        let line = |frame: u64| [frame as f64, link_bps * share(frame)];
        let sizes = document.test.frame_bytes.iter().map(|frame| line(*frame));
        series.push(Series::new("the link", Mark::Dashed, 2, sizes));
    }
    let says = document
        .rows
        .iter()
        .filter_map(|row| Some(format!("{} bytes: {}", row.frame_bytes, rate(row.frames_bps?))));
    let says = joined(says, "; ") + ".";
    let panel = Panel::new("Frames carried", Unit::Rate, series);
    let plot = Plot::new("Frame", Unit::Bytes, vec![panel]);
    vec![Chart::new("throughput", "Rate by frame size", says, plot)]
}

/// The layers of each end, and the flame graph.
pub(crate) fn profile(document: &ProfileDocument) -> Vec<Chart> {
    let ends = [("sender", &document.sender), ("receiver", &document.receiver)];
    let mut charts: Vec<Chart> =
        ends.into_iter().filter_map(|(name, end)| layers(name, end.as_ref()?)).collect();
    if !charts.is_empty() {
        let says =
            "Flame graph of both ends: width is CPU time, height the depth of the call chain.";
        let picture = Body::Picture(flame_picture(document));
        charts.push(Chart::new("flame", "Flame graph", says.to_owned(), picture));
    }
    charts
}

fn layers(end: &str, of: &EndLayers) -> Option<Chart> {
    let is_shown = |cost: &&LayerCost| cost.layer != Layer::Idle && cost.share_percent > 0.0;
    let shown: Vec<&LayerCost> = of.layers.iter().filter(is_shown).collect();
    let largest = shown.first()?.layer;
    let rows = shown.iter().map(|cost| Bar {
        label: layer_name(cost.layer).to_owned(),
        value: cost.share_percent,
        interval: Some(cost.share_interval_percent),
        colour: fill(cost.layer == largest),
        tip: format!("{} s of CPU time", cost.cpu_seconds),
        ..Bar::default()
    });
    let bars = Bars::new(Unit::Percent, rows.collect());
    let says = bars.rows.iter().map(|row| format!("{} {}", row.label, percent(row.value)));
    let says = joined(says, ", ") + ".";
    let title = format!("CPU time of the {end}, by layer");
    Some(Chart::new(&format!("layers-{end}"), title, says, bars))
}

/// A chart for each column of the table, with the report's figures as diamonds.
pub(crate) fn experiment(document: &ExperimentDocument) -> Vec<Chart> {
    let columns = document.table.columns.iter().enumerate().take(MAX_COLUMNS);
    let charts = columns.filter_map(|(number, column)| {
        let rows: Vec<Bar> =
            document.table.rows.iter().filter_map(|row| figure(row, number)).collect();
        let unit = match column.ratio_to {
            Some(_) => Unit::Count,
            None => unit_of(&column.metric),
        };
        let level = column.level.as_ref().map(|level| format!("{level}, "));
        let title = level.unwrap_or_default() + &column.title;
        let figures = rows.iter().map(|row| {
            let report = row.beside.map(|it| format!(" (report {})", unit.write(it)));
            let (value, report) = (unit.write(row.value), report.unwrap_or_default());
            format!("{} {value}{report}", row.label)
        });
        let figures = joined(figures, "; ");
        let key = match rows.iter().any(|row| row.beside.is_some()) {
            true => " Diamonds are the report's figures.",
            false => "",
        };
        let name = format!("column-{}", number + 1);
        let says = format!("{figures}.{key}");
        (!rows.is_empty()).then(|| Chart::new(&name, title, says, Bars::new(unit, rows)))
    });
    charts.collect()
}

fn figure(row: &DocumentRow, column: usize) -> Option<Bar> {
    let cell = row.figures.get(column)?;
    let (value, interval) = middle(cell.ours.as_ref()?)?;
    Some(Bar {
        label: row.levels.join(", "),
        value,
        interval,
        beside: cell.report,
        ..Bar::default()
    })
}

/// Columns of an experiment that have a chart; the table has all.
const MAX_COLUMNS: usize = 8;

// A mesh: sites against sites, a heat map.

/// Heat map of the rate from each site to each other: darker is faster. Empty for more sites than a
/// picture can show.
pub(crate) fn matrix(document: &MatrixDocument) -> Vec<Chart> {
    let sites = document.sites.len();
    let rates = document.cells.iter().filter_map(|cell| cell.throughput_bps);
    let most = rates.fold(0.0, f64::max);
    if sites > MOST_SITES || most <= 0.0 {
        return Vec::new();
    }
    let slowest = document.slowest();
    let worst = slowest.first().map_or_else(String::new, |cell| {
        let (from, to) = (document.name(cell.from), document.name(cell.to));
        let least = rate(cell.throughput_bps.unwrap_or(0.0));
        format!("; the slowest is {from} to {to}, {least}")
    });
    let pairs = plural(slowest.len() as u64, "pair");
    let most_of_all = rate(most);
    let says = format!("Rows send, columns receive: {pairs} up to {most_of_all}{worst}.");
    let title = format!("{} between the sites", document.test);
    let picture = Body::Picture(drawn(document, most));
    vec![Chart::new("matrix", title, says, picture)]
}

fn drawn(document: &MatrixDocument, most: f64) -> String {
    let sites = document.sites.len() as f64;
    let letters = document.sites.iter().map(|site| site.name.chars().count());
    let label = 7.0 * letters.max().unwrap_or(0).min(MOST_LETTERS) as f64 + 12.0;
    let side = label + sites * CELL;
    let mut svg = format!(
        "<svg class=\"chart\" width=\"{side:.0}\" height=\"{side:.0}\" viewBox=\"0 0 {side:.0} {side:.0}\">\
         <desc></desc>"
    );
    for (place, site) in document.sites.iter().enumerate() {
        let name: String = site.name.chars().take(MOST_LETTERS).collect();
        let (name, at) = (escaped(&name), label + (place as f64 + 0.5) * CELL + 4.0);
        let x = label - 6.0;
        let _ = write!(
            svg,
            "<text x=\"{x:.1}\" y=\"{at:.1}\" class=\"end\">{name}</text>\
             <text transform=\"translate({at:.1} {x:.1}) rotate(-90)\">{name}</text>"
        );
    }
    for cell in &document.cells {
        let Some(bps) = cell.throughput_bps else {
            continue;
        };
        let at = |place: u32| label + f64::from(place) * CELL + 1.0;
        let (x, y, size) = (at(cell.to), at(cell.from), CELL - 2.0);
        let opacity = 0.12 + 0.88 * (bps / most).clamp(0.0, 1.0);
        let (from, to) = (document.name(cell.from), document.name(cell.to));
        let tip = escaped(&format!("{from} to {to}: {}", rate(bps)));
        let _ = write!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{size}\" height=\"{size}\" class=\"f0\" \
             opacity=\"{opacity:.2}\"><title>{tip}</title></rect>"
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Width and height of a cell, pixels.
const CELL: f64 = 18.0;
/// With more sites there is no picture.
const MOST_SITES: usize = 60;
/// A site's name is cut to this many characters.
const MOST_LETTERS: usize = 16;

// A comparison: both figures of each pair, and their change with the effect.

/// One chart for each metric.
pub(crate) fn comparison(comparison: &Comparison) -> Vec<Chart> {
    let metrics = comparison.metrics.iter();
    let charts = metrics.map(|metric| of_metric(metric, comparison));
    charts.collect()
}

fn of_metric(metric: &ComparedMetric, comparison: &Comparison) -> Chart {
    let path = metric.metric.as_str();
    let counted = || comparison.runs.iter().filter(|pair| pair.counts());
    let number = |pair: &ComparedPair| f64::from(pair.pair);
    let side = |name, mark, colour, of: fn(&ComparedPair, &str) -> Option<f64>| {
        let points = counted().filter_map(|pair| Some([number(pair), of(pair, path)?]));
        Series::new(name, mark, colour, points)
    };
    let sides = vec![
        side("A", Mark::Line, 0, |pair, path| pair.a.get(path).copied()),
        side("B", Mark::Dashed, 1, |pair, path| pair.b.get(path).copied()),
    ];
    let mut figures = Panel::new("Figures", unit_of(path), sides);
    figures.close = true;
    let excluded = comparison
        .runs
        .iter()
        .filter(|pair| !pair.counts())
        .filter_map(|pair| Some([number(pair), pair.change_percent(path)?]));
    let mut changes =
        vec![side("B against A", Mark::Dots, 2, |pair, path| pair.change_percent(path))];
    let excluded = Series::new("does not count", Mark::Rings, 2, excluded);
    changes.extend((!excluded.points.is_empty()).then_some(excluded));
    let mut changes = Panel::new("Change", Unit::Percent, changes);
    let found = &metric.conclusion;
    changes.band = Some(found.interval_percent);
    let effect = found.effect_percent;
    changes.levels = vec![(effect, format!("effect {} %", digits(effect)))];
    let [low, high] = found.interval_percent.map(digits);
    let says = format!(
        "{path}: {}, B against A {} %, interval {low} to {high} %, {} pairs. The band is the interval.",
        found.verdict.name(),
        digits(effect),
        found.pairs,
    );
    let plot = Plot::new("Pair", Unit::Count, vec![changes, figures]);
    let name = path.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let title = format!("Pair by pair: {path}");
    Chart::new(&format!("pairs-{name}"), title, says, plot)
}

// A test's runs over days.

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

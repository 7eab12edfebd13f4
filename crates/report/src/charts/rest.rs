//! Hops with what each adds, latency by population, layers of CPU time, an experiment's table.

use linerate_core::capacity::{CapacityDocument, LatencyAt};
use linerate_core::experiment::{DocumentRow, ExperimentDocument};
use linerate_core::profile::{EndLayers, Layer, LayerCost, ProfileDocument};
use linerate_core::stats::LatencySummary;
use linerate_core::trace::{HopDocument, TraceDocument};

use super::{fill, middle, unit_of};
use crate::number::{count, joined, micros, percent, plural};
use crate::svg::{
    Bar, Bars, Body, Chart, Mark, Panel, Plot, Series, Unit, flame_picture, layer_name,
};

/// Each hop's smallest round-trip time; the step that adds most is emphasised.
pub(crate) fn trace(trace: &TraceDocument) -> Vec<Chart> {
    let delays = &trace.delay;
    let largest = delays.largest.and_then(|step| delays.steps.get(step));
    let mut before = 0.0;
    let mut rows = Vec::new();
    for hop in &delays.hops {
        let [added, least] = [(hop.path_us - before).max(0.0), hop.least_us].map(micros);
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
            note: Some(format!("{least} (+{added})")),
            tip: format!("least round trip {least}, {added} of it added here"),
            ..Bar::default()
        });
        before = hop.path_us;
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

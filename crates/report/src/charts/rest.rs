//! Hops with what each adds, latency by population, layers of CPU time, an experiment's table.

use linerate_core::capacity::{CapacityDocument, LatencyAt};
use linerate_core::experiment::{DocumentRow, ExperimentDocument};
use linerate_core::profile::{EndLayers, Layer, LayerCost, ProfileDocument};
use linerate_core::stats::LatencySummary;
use linerate_core::trace::{HopDocument, TraceDocument};

use super::{middle, unit_of};
use crate::number::{count, micros, percent, plural};
use crate::svg::{
    Bar, Bars, Body, Chart, Fill, Mark, Panel, Plot, Series, Unit, flame_picture, layer_name,
};

/// Each hop's smallest round-trip time; the step that adds most is emphasised.
pub(crate) fn trace(trace: &TraceDocument) -> Vec<Chart> {
    let delays = &trace.delay;
    let largest = delays.largest.and_then(|step| delays.steps.get(step));
    let mut before = 0.0;
    let mut rows = Vec::new();
    for hop in &delays.hops {
        let added = (hop.path_us - before).max(0.0);
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
            colour: if is_largest {
                Fill::Accent
            } else {
                Fill::Plain
            },
            note: Some(format!("{} (+{})", micros(hop.least_us), micros(added))),
            tip: format!(
                "least round trip {}, {} of it added here",
                micros(hop.least_us),
                micros(added)
            ),
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
    let bars = Bars {
        unit: Unit::Micros,
        rows,
        levels: Vec::new(),
        end: None,
    };
    vec![Chart::new(
        "hops",
        "Where the delay is added",
        says,
        Body::Bars(bars),
    )]
}

fn router(hop: &HopDocument) -> String {
    let address = hop.address.map(|address| address.to_string());
    let name = hop.name.clone().or(address).unwrap_or_default();
    let short: String = name.chars().take(MAX_NAME).collect();
    if short.len() < name.len() {
        short + "…"
    } else {
        short
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
    let says = says.collect::<Vec<_>>().join("; ") + ".";
    let panel = Panel::new("Round trip of an active one", Unit::Micros, series);
    let plot = Plot {
        x: "Idle connections beside it",
        x_unit: Unit::Count,
        log: false,
        panels: vec![panel],
    };
    let chart = || Chart::new("latency", "Latency by number", says, Body::Plot(plot));
    (latency.len() > 1).then(chart)
}

fn opened(document: &CapacityDocument) -> Option<Chart> {
    let pools = [("TCP", &document.tcp), ("UDP", &document.udp)];
    let pools = pools
        .into_iter()
        .filter_map(|(name, pool)| Some((name, pool.as_ref()?)));
    let mut series = Vec::new();
    let mut says = Vec::new();
    for (colour, (name, pool)) in pools.enumerate() {
        let points = pool.ramp.iter().map(|step| [step.at_s, step.opened as f64]);
        series.push(Series::new(name, Mark::Line, colour, points));
        says.push(format!(
            "{name}: {} of {} opened.",
            count(pool.opened),
            count(pool.asked)
        ));
    }
    series.retain(|series| series.points.len() > 1);
    if series.is_empty() {
        return None;
    }
    let plot = Plot {
        x: "Time",
        x_unit: Unit::Seconds,
        log: false,
        panels: vec![Panel::new("Open", Unit::Count, series)],
    };
    let (title, says) = ("How they were opened", says.join(" "));
    Some(Chart::new("opened", title, says, Body::Plot(plot)))
}

/// The layers of each end, and the flame graph.
pub(crate) fn profile(document: &ProfileDocument) -> Vec<Chart> {
    let ends = [
        ("sender", &document.sender),
        ("receiver", &document.receiver),
    ];
    let ends = ends
        .into_iter()
        .filter_map(|(name, end)| Some((name, end.as_ref()?)));
    let mut charts: Vec<Chart> = ends.filter_map(|(name, end)| layers(name, end)).collect();
    if !charts.is_empty() {
        let says =
            "Flame graph of both ends: width is CPU time, height the depth of the call chain.";
        let picture = Body::Picture(flame_picture(document));
        charts.push(Chart::new("flame", "Flame graph", says.to_owned(), picture));
    }
    charts
}

fn layers(end: &str, of: &EndLayers) -> Option<Chart> {
    let shown: Vec<&LayerCost> = of
        .layers
        .iter()
        .filter(|cost| cost.layer != Layer::Idle && cost.share_percent > 0.0)
        .collect();
    let largest = shown.first()?.layer;
    let rows = shown.iter().map(|cost| Bar {
        label: layer_name(cost.layer).to_owned(),
        value: cost.share_percent,
        interval: Some(cost.share_interval_percent),
        colour: if cost.layer == largest {
            Fill::Accent
        } else {
            Fill::Plain
        },
        tip: format!("{} s of CPU time", cost.cpu_seconds),
        ..Bar::default()
    });
    let bars = Bars {
        unit: Unit::Percent,
        rows: rows.collect(),
        levels: Vec::new(),
        end: None,
    };
    let says = shown
        .iter()
        .map(|cost| format!("{} {}", layer_name(cost.layer), percent(cost.share_percent)));
    let says = says.collect::<Vec<_>>().join(", ") + ".";
    let title = format!("CPU time of the {end}, by layer");
    Some(Chart::new(
        &format!("layers-{end}"),
        title,
        says,
        Body::Bars(bars),
    ))
}

/// A chart for each column of the table, with the report's figures as diamonds.
pub(crate) fn experiment(document: &ExperimentDocument) -> Vec<Chart> {
    let table = &document.table;
    let columns = table.columns.iter().enumerate().take(MAX_COLUMNS);
    columns
        .filter_map(|(number, column)| {
            let rows = table.rows.iter().filter_map(|row| figure(row, number));
            let rows: Vec<Bar> = rows.collect();
            let is_ratio = column.ratio_to.is_some();
            let unit = if is_ratio {
                Unit::Count
            } else {
                unit_of(&column.metric)
            };
            let level = column.level.iter().map(|level| format!("{level}, "));
            let title = format!("{}{}", level.collect::<String>(), column.title);
            let said = rows.iter().map(|row| {
                let report = row.beside.map(|it| format!(" (report {})", unit.write(it)));
                format!(
                    "{} {}{}",
                    row.label,
                    unit.write(row.value),
                    report.unwrap_or_default()
                )
            });
            let says = said.collect::<Vec<_>>().join("; ");
            let has_report = rows.iter().any(|row| row.beside.is_some());
            let key = if has_report {
                " Diamonds are the report's figures."
            } else {
                ""
            };
            let bars = Bars {
                unit,
                rows,
                levels: Vec::new(),
                end: None,
            };
            let chart = || {
                Chart::new(
                    &format!("column-{}", number + 1),
                    title,
                    says + "." + key,
                    Body::Bars(bars),
                )
            };
            (!table.rows.is_empty()).then(chart)
        })
        .filter(|chart| matches!(&chart.body, Body::Bars(bars) if !bars.rows.is_empty()))
        .collect()
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

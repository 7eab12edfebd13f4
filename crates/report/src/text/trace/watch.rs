//! The rounds of a watch: the report's table, the screen's, and the changes of the path.

use linerate_core::trace::{PathChange, WatchDocument, WatchRow};

use super::super::page::{Emphasis, Page};
use super::super::table::{Align, Table};
use super::hops::{named, network};

/// Changes of the path that are shown, the newest.
const MAX_CHANGES: usize = 8;

/// The columns of mtr's report.
pub(super) fn figures(page: &mut Page, watch: &WatchDocument) {
    let heads = [
        "Loss%", "Snt", "Last", "Avg", "Best", "Wrst", "StDev", "p50", "p99",
    ];
    let mut table = table_of(&heads, None);
    for row in &watch.rows {
        table.row(figures_of(row));
    }
    page.table(&table);
    changes(page, watch);
}

pub(super) fn screen(page: &mut Page, watch: &WatchDocument) {
    let heads = [
        "Loss%", "Snt", "Last", "Avg", "Best", "Wrst", "StDev", "p50", "p99", "Jttr",
    ];
    let mut table = table_of(&heads, Some("recent"));
    for row in &watch.rows {
        let mut cells = figures_of(row);
        cells.push(row.rtt_us.map(|rtt| ms(rtt.jitter)));
        cells.push(Some(sparkline(&row.recent_us)));
        table.row(cells);
    }
    page.table(&table);
}

fn table_of(figures: &[&'static str], last: Option<&'static str>) -> Table {
    let fixed = [
        ("hop", Align::Right),
        ("router, times in ms", Align::Left),
        ("AS", Align::Left),
    ];
    let figures = figures.iter().map(|head| (*head, Align::Right));
    let last = last.map(|head| (head, Align::Left));
    let columns: Vec<_> = fixed.into_iter().chain(figures).chain(last).collect();
    Table::new(&columns)
}

fn figures_of(row: &WatchRow) -> Vec<Option<String>> {
    let router = row.address.map_or_else(
        || "*".to_owned(),
        |address| named(address, row.name.as_deref()),
    );
    let rtt = row.rtt_us;
    vec![
        Some(row.ttl.to_string()),
        Some(router),
        row.origin.as_ref().map(network),
        Some(format!("{:.1}", row.loss_percent)),
        Some(row.sent.to_string()),
        rtt.map(|rtt| ms(rtt.last)),
        rtt.map(|rtt| ms(rtt.mean)),
        rtt.map(|rtt| ms(rtt.best)),
        rtt.map(|rtt| ms(rtt.worst)),
        rtt.map(|rtt| ms(rtt.deviation)),
        rtt.map(|rtt| ms(rtt.p50)),
        rtt.map(|rtt| ms(rtt.p99)),
    ]
}

fn ms(us: f64) -> String {
    format!("{:.2}", us / 1e3)
}

/// One character for each of the last probes: its height from the least to the largest of them, `?`
/// for none.
fn sparkline(recent: &[Option<f64>]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const MAX_MARKS: usize = 20;
    let recent = &recent[recent.len().saturating_sub(MAX_MARKS)..];
    let known = || recent.iter().flatten().copied();
    let least = known().fold(f64::INFINITY, f64::min);
    let span = known().fold(0.0, f64::max) - least;
    let bar = |us: f64| {
        // Differences below a tenth of the RTT are no news.
        let height = (us - least) / span.max(least / 10.0).max(1.0);
        BARS[((height * 7.0).round() as usize).min(7)]
    };
    recent.iter().map(|us| us.map_or('?', bar)).collect()
}

pub(super) fn changes(page: &mut Page, watch: &WatchDocument) {
    let hidden = watch.changes.len().saturating_sub(MAX_CHANGES) as u64 + watch.forgotten_changes;
    if !watch.changes.is_empty() {
        page.gap();
    }
    if hidden > 0 {
        page.line(
            Emphasis::None,
            &format!("{hidden} earlier changes of the path"),
        );
    }
    let shown = watch.changes.len().saturating_sub(MAX_CHANGES);
    for change in &watch.changes[shown..] {
        page.line(Emphasis::Warning, &change_of(change));
    }
}

fn change_of(change: &PathChange) -> String {
    let PathChange {
        at_s,
        ttl,
        from,
        to,
    } = change;
    format!("after {at_s:.1} s: hop {ttl} was {from} and is {to}")
}

//! Tables of the rounds of a watch, for the report and for the screen, and the changes of the path.

use linerate_core::trace::{PathChange, WatchDocument, WatchRow};

use super::super::number::ends;
use super::super::page::{Emphasis, Page};
use super::super::table::{Table, table};
use super::hops::{named, network};

/// Changes of the path that are shown, the newest ones.
const MAX_CHANGES: usize = 8;

/// The columns of mtr's report.
pub(super) fn figures(page: &mut Page, watch: &WatchDocument) {
    page.table(&table(watch));
    changes(page, watch);
}

/// Says which hops limit their answers: the path does not lose the probes that they leave
/// unanswered, since hops beyond answer more of theirs.
pub(super) fn limited(watch: &WatchDocument) -> Option<String> {
    let rows = &watch.rows;
    let answers_less = |(place, row): &(usize, &WatchRow)| {
        let beyond = rows.iter().skip(place + 1);
        let least = beyond.map(|row| row.loss_percent).reduce(f64::min);
        least.is_some_and(|least| row.rtt_us.is_some() && row.loss_percent >= least + CLEAR_PERCENT)
    };
    let hops = rows.iter().enumerate().filter(answers_less);
    let hops: Vec<String> = hops.map(|(_, row)| row.ttl.to_string()).collect();
    let (hop, answer) = match hops.len() {
        0 => return None,
        1 => ("Hop", "answers"),
        _ => ("Hops", "answer"),
    };
    Some(format!(
        "{hop} {} {answer} some probes only, and hops beyond lose fewer: that is a limit of answers, \
         not loss of the path.",
        hops.join(", ")
    ))
}

/// A loss that is so much larger than that of a hop beyond is not the path's, percentage points.
const CLEAR_PERCENT: f64 = 5.0;

pub(super) fn screen(page: &mut Page, watch: &WatchDocument) {
    let table = table(watch)
        .right("Jttr", |row| Some(ms(row.rtt_us?.jitter)))
        .spare(3, 1)
        .left("recent", |row| sparkline(&row.recent_us));
    page.table(&table);
}

fn table(watch: &WatchDocument) -> Table<&WatchRow> {
    let router = |row: &&WatchRow| {
        let named = |address| named(address, row.name.as_deref());
        row.address.map_or("*".to_owned(), named)
    };
    table! { &watch.rows, row =>
        right "hop" => row.ttl.to_string();
        left "router, times in ms" => router(row);
        left @1 "AS" => row.origin.as_ref().map(network);
        right "Loss%" => format!("{:.1}", row.loss_percent);
        right "Snt" => row.sent.to_string();
        right "Last" => ms(row.rtt_us?.last);
        right "Avg" => ms(row.rtt_us?.mean);
        right "Best" => ms(row.rtt_us?.best);
        right "Wrst" => ms(row.rtt_us?.worst);
        right "StDev" => ms(row.rtt_us?.deviation);
        right @2 "p50" => ms(row.rtt_us?.p50);
        right @2 "p99" => ms(row.rtt_us?.p99);
    }
}

fn ms(us: f64) -> String {
    format!("{:.2}", us / 1e3)
}

/// A character for each of the last probes, its height between the smallest and the largest RTT;
/// `?` for a missing answer.
fn sparkline(recent: &[Option<f64>]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const MAX_MARKS: usize = 20;
    let recent = &recent[recent.len().saturating_sub(MAX_MARKS)..];
    let [least, most] = ends(recent.iter().flatten().copied());
    let span = most - least;
    let bar = |us: f64| {
        // Differences below a tenth of the RTT are not significant.
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
        page.plain(&format!("{hidden} earlier changes of the path"));
    }
    let shown = watch.changes.len().saturating_sub(MAX_CHANGES);
    for change in &watch.changes[shown..] {
        page.line(Emphasis::Warning, &change_of(change));
    }
}

fn change_of(change: &PathChange) -> String {
    let (at_s, ttl, from, to) = (change.at_s, change.ttl, &change.from, &change.to);
    format!("after {at_s:.1} s: hop {ttl} was {from} and is {to}")
}

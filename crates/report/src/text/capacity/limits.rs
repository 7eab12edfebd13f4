//! What stopped a capacity test, what would come next, and the table of all limits.

use linerate_core::capacity::{
    CapacityDocument, LimitEnd, LimitKind, LimitRow, SearchFound, StoppedBy,
};
use linerate_core::remedy::Remedy;

use super::super::number::{bytes, count};
use super::super::page::{Emphasis, Page};
use super::super::table::Table;

/// Writes what ended the test, or the limit that would come first.
pub(super) fn verdict(page: &mut Page, document: &CapacityDocument) {
    page.gap();
    match (&document.stopped_by, &document.next_limit) {
        (Some(by), _) => stopped(page, by, noun(document)),
        (None, Some(next)) => coming(page, next, noun(document)),
        (None, None) => {}
    }
}

/// The unit that limits are counted in.
fn noun(document: &CapacityDocument) -> &'static str {
    if document.tcp.is_some() {
        "TCP connections"
    } else {
        "UDP sockets"
    }
}

fn stopped(page: &mut Page, by: &StoppedBy, noun: &str) {
    let place = by.end.map_or("", place);
    let sentence = match by.limit {
        LimitKind::Unknown => format!(
            "Stopped at {} {noun}, and the evidence names no limit.",
            count(by.at)
        ),
        limit => format!(
            "Stopped at {} {noun} by: {}{place}.",
            count(by.at),
            name(limit)
        ),
    };
    page.paragraph(Emphasis::Strong, "", 2, &sentence);
    for evidence in &by.evidence {
        page.paragraph(Emphasis::None, "    -", 6, evidence);
    }
    remedy(page, by.remedy.as_ref());
}

fn coming(page: &mut Page, next: &LimitRow, noun: &str) {
    let Some(at) = next.would_stop_at else {
        return;
    };
    let sentence = format!(
        "The next limit would be: {}{}, at {} {noun}.",
        name(next.limit),
        place(next.end),
        count(at)
    );
    page.paragraph(Emphasis::Strong, "", 2, &sentence);
    page.paragraph(Emphasis::None, "    -", 6, &next.formula);
    remedy(page, next.remedy.as_ref());
}

fn remedy(page: &mut Page, remedy: Option<&Remedy>) {
    if let Some(remedy) = remedy {
        page.plain("  Remedy:");
        page.command(&remedy.command);
    }
}

/// Writes a table of the limits, the lowest first.
pub(super) fn table(page: &mut Page, document: &CapacityDocument) {
    let bounds = || {
        document
            .limits
            .iter()
            .filter(|row| row.would_stop_at.is_some())
    };
    if bounds().next().is_none() {
        return;
    }
    let amount = |row: &LimitRow, value: u64| match row.unit.as_str() {
        "bytes" => bytes(value),
        _ => count(value),
    };
    let table = Table::of(bounds().take(MAX_ROWS))
        .left("limit", |row| name(row.limit))
        .left("of", |row| short(row.end))
        .right("value", |row| amount(row, row.value))
        .right("in use", |row| row.used.map(|used| amount(row, used)))
        .spare(1, 1)
        .right("would\nstop at", |row| row.would_stop_at.map(count))
        .left("formula", |row| row.formula.clone());
    page.gap();
    page.table(&table);
    let others = document.limits.len() - bounds().take(MAX_ROWS).count();
    if others > 0 {
        let note =
            format!("{others} more in the JSON document: further away, or not of the number held");
        page.plain(&format!("  {note}"));
    }
}

/// Limits further away are only in the document.
const MAX_ROWS: usize = 6;

pub(super) fn search(page: &mut Page, document: &CapacityDocument) {
    let Some(SearchFound {
        holds,
        stops_at,
        most,
        rounds,
    }) = &document.search
    else {
        return;
    };
    let found = match stops_at {
        Some(stops) => format!("holds {}, not {}", count(*holds), count(*stops)),
        None => format!("holds all {} that the search may try", count(*most)),
    };
    let tried: Vec<String> = rounds
        .iter()
        .map(|round| {
            if round.held >= round.asked {
                count(round.asked)
            } else {
                format!("{} ({} held)", count(round.asked), count(round.held))
            }
        })
        .collect();
    page.gap();
    page.facts("search", &[found, format!("tried {}", tried.join(", "))]);
}

/// A limit in words.
fn name(limit: LimitKind) -> &'static str {
    match limit {
        LimitKind::ProcessDescriptors => "descriptors of processes",
        LimitKind::HostFiles => "open files of the host",
        LimitKind::Ports => "local ports",
        LimitKind::Owner => "serve's --max-connections",
        LimitKind::AcceptQueue => "accept queue",
        LimitKind::SynQueue => "SYN queue",
        LimitKind::TcpMemory => "TCP buffers",
        LimitKind::UdpMemory => "UDP buffers",
        LimitKind::GroupMemory => "memory of the control group",
        LimitKind::HostMemory => "memory of the host",
        LimitKind::Conntrack => "connection tracking",
        LimitKind::Watches => "epoll watches",
        LimitKind::Orphans => "orphans",
        LimitKind::TimeWait => "TIME-WAIT",
        LimitKind::Forbidden => "a rule that forbids it",
        LimitKind::Unknown => "unknown",
    }
}

fn place(end: LimitEnd) -> &'static str {
    match end {
        LimitEnd::Client => ", here",
        LimitEnd::Server => ", at the endpoint",
        LimitEnd::Both => ", of the one host of both ends",
    }
}

fn short(end: LimitEnd) -> &'static str {
    match end {
        LimitEnd::Client => "here",
        LimitEnd::Server => "there",
        LimitEnd::Both => "both",
    }
}

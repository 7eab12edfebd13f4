//! What stopped a capacity test, what would come next, and the table of all limits.

use linerate_core::capacity::{CapacityDocument, LimitEnd, LimitKind, LimitRow, StoppedBy};
use linerate_core::remedy::Remedy;

use super::super::number::{bytes, count, joined};
use super::super::page::Page;
use super::super::table::table;

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
    let why = match by.limit {
        LimitKind::Unknown => ", and the evidence names no limit".to_owned(),
        limit => format!(" by: {}{place}", name(limit)),
    };
    page.verdict(&format!("Stopped at {} {noun}{why}.", count(by.at)));
    page.evidence(&by.evidence);
    remedy(page, by.remedy.as_ref());
}

fn coming(page: &mut Page, next: &LimitRow, noun: &str) {
    let Some(at) = next.would_stop_at.map(count) else {
        return;
    };
    let (name, place) = (name(next.limit), place(next.end));
    page.verdict(&format!(
        "The next limit would be: {name}{place}, at {at} {noun}."
    ));
    page.evidence([&next.formula]);
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
    let limits = document.limits.iter();
    let bounds = limits.filter(|row| row.would_stop_at.is_some());
    let bounds: Vec<&LimitRow> = bounds.take(MAX_ROWS).collect();
    if bounds.is_empty() {
        return;
    }
    let others = document.limits.len() - bounds.len();
    let amount = |row: &LimitRow, value: u64| match row.unit.as_str() {
        "bytes" => bytes(value),
        _ => count(value),
    };
    page.gap();
    page.table(&table! { bounds, row =>
        left "limit" => name(row.limit);
        left "of" => short(row.end);
        right "value" => amount(row, row.value);
        right @1 "in use" => row.used.map(|used| amount(row, used));
        right ["would", "stop at"] => row.would_stop_at;
        left "formula" => row.formula.clone();
    });
    if others > 0 {
        page.plain(&format!(
            "  {others} more in the JSON document: further away, or not of the number held"
        ));
    }
}

/// Limits further away are only in the document.
const MAX_ROWS: usize = 6;

pub(super) fn search(page: &mut Page, document: &CapacityDocument) {
    let Some(search) = &document.search else {
        return;
    };
    let found = match search.stops_at {
        Some(stops) => format!("holds {}, not {}", count(search.holds), count(stops)),
        None => format!("holds all {} that the search may try", count(search.most)),
    };
    let tried = search
        .rounds
        .iter()
        .map(|round| match round.held >= round.asked {
            true => count(round.asked),
            false => format!("{} ({} held)", count(round.asked), count(round.held)),
        });
    page.gap();
    page.facts("search", [found, format!("tried {}", joined(tried, ", "))]);
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
        LimitEnd::Both => ", on the host of both ends",
    }
}

fn short(end: LimitEnd) -> &'static str {
    match end {
        LimitEnd::Client => "here",
        LimitEnd::Server => "there",
        LimitEnd::Both => "both",
    }
}

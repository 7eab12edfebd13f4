//! The table of hops, with remarks on each.

use std::net::IpAddr;

use linerate_core::trace::{
    AnswerKind, HopDocument, HopFate, Origin, TraceDocument, unreachable_reason,
};
use linerate_core::units::Family;

use super::super::number::{joined, plural};
use super::super::page::Page;
use super::super::table::table;

/// Further addresses of a hop that are named; the rest is counted.
const MAX_OTHERS: usize = 3;
/// A network's name is cut to this many characters; the JSON document has all of it.
const MAX_OF_NAME: usize = 20;

pub(super) fn hops(page: &mut Page, trace: &TraceDocument) {
    let columns = usize::from(trace.probes_per_hop.min(MAX_COLUMNS));
    let mut table = table! { &trace.hops, hop =>
        right "hop" => hop.ttl.to_string();
        left "router" => router(hop);
        left "AS" => hop.origin.as_ref().map(network);
    };
    for place in 0..columns {
        let head = if place == 0 { "ms" } else { "" };
        table = table.right(head, |hop| time(hop, place));
    }
    page.table(&table.left(" ", |hop| marks_of(hop, trace)));
}

/// RTTs that are shown of a hop; further ones are only in the JSON document.
const MAX_COLUMNS: u8 = 5;

/// RTT of a probe of the first round; if it has no answer, that of a later round.
fn time(hop: &HopDocument, place: usize) -> String {
    let ms = |us: f64| format!("{:.2}", us / 1e3);
    let mut first = hop.probes.iter().filter(|probe| probe.attempt == 0);
    let again = hop.probes.iter().filter(|probe| probe.attempt > 0);
    let missing = first.clone().take(place).filter(|p| p.rtt_us.is_none());
    let missing = missing.count();
    let rtt = match first.nth(place) {
        Some(probe) if probe.rtt_us.is_some() => probe.rtt_us,
        _ => again.filter_map(|probe| probe.rtt_us).nth(missing),
    };
    rtt.map_or_else(|| "*".to_owned(), ms)
}

fn router(hop: &HopDocument) -> String {
    let address = hop.address;
    address.map_or("*".to_owned(), |address| {
        named(address, hop.name.as_deref())
    })
}

pub(super) fn named(address: IpAddr, name: Option<&str>) -> String {
    name.map_or_else(|| address.to_string(), |name| format!("{name} ({address})"))
}

/// An AS by its number and the beginning of its name.
pub(super) fn network(origin: &Origin) -> String {
    let others = origin.others.iter().map(|asn| format!("/{asn}"));
    let numbers: String = [origin.asn.to_string()].into_iter().chain(others).collect();
    let name: String = origin.name.chars().take(MAX_OF_NAME).collect();
    let name = Some(name).filter(|name| !name.is_empty());
    joined([Some(numbers), name], " ")
}

/// Remarks on a hop besides its times.
fn marks_of(hop: &HopDocument, trace: &TraceDocument) -> String {
    let mut marks: Vec<String> = Vec::new();
    marks.extend(fate(hop));
    marks.extend(refusal(hop, trace));
    marks.extend(others(hop));
    if let (true, Some(dscp), Some(ecn)) = (hop.is_remarked, hop.dscp, hop.ecn) {
        marks.push(format!("DSCP {dscp}, ECN {ecn} from here on"));
    }
    if first_translated(trace) == Some(hop.ttl) {
        marks.push("behind a NAT".into());
    }
    if let Some(label) = hop.mpls.first() {
        marks.push(format!("MPLS label {}", label.label));
    }
    if let Some(back) = hop.return_hops.filter(|back| *back != hop.ttl) {
        marks.push(format!("answers over {}", plural(back.into(), "hop")));
    }
    if let Some(before) = hop.repeats {
        marks.push(format!("the same as hop {before}"));
    }
    for narrowing in trace.mtu.iter().flat_map(|mtu| &mtu.narrowings) {
        if narrowing.after_ttl == Some(hop.ttl) {
            marks.push(format!("MTU {} behind it", narrowing.mtu_bytes));
        }
    }
    marks.join("; ")
}

fn fate(hop: &HopDocument) -> Option<String> {
    let first = hop.probes.iter().filter(|probe| probe.attempt == 0);
    let sent = first.clone().count();
    let missing = first.filter(|probe| probe.rtt_us.is_none()).count();
    match hop.fate {
        HopFate::Answers => None,
        HopFate::RateLimited => Some("limits its answers".into()),
        HopFate::Lossy => Some(format!("{missing} of {sent} lost")),
        HopFate::SomeMissing => Some(format!("{missing} of {sent} missing")),
        HopFate::Silent => Some("silent".into()),
    }
}

fn refusal(hop: &HopDocument, trace: &TraceDocument) -> Option<String> {
    let family = Family::from(trace.target);
    let answers = hop.probes.iter().filter_map(|probe| probe.answer);
    answers.into_iter().find_map(|answer| match answer {
        AnswerKind::Unreachable { code } => Some(unreachable_reason(family, code).to_owned()),
        AnswerKind::TooBig { mtu: 0 } => Some("too big".into()),
        AnswerKind::TooBig { mtu } => Some(format!("too big, {mtu} would fit")),
        AnswerKind::TcpSynAck => Some("port open".into()),
        AnswerKind::TcpRst => Some("port closed".into()),
        AnswerKind::TimeExceeded | AnswerKind::PortUnreachable | AnswerKind::EchoReply => None,
    })
}

fn others(hop: &HopDocument) -> Option<String> {
    let others = &hop.other_addresses;
    let named = joined(others.iter().take(MAX_OTHERS).map(IpAddr::to_string), ", ");
    match others.len().saturating_sub(MAX_OTHERS) {
        _ if others.is_empty() => None,
        0 => Some(format!("also {named}")),
        more => Some(format!("also {named} and {more} more")),
    }
}

pub(super) fn first_translated(trace: &TraceDocument) -> Option<u8> {
    let mut hops = trace.hops.iter();
    let first = hops.find(|hop| hop.is_translated == Some(true));
    first.map(|hop| hop.ttl)
}

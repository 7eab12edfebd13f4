//! The page of one connection of any program, explained.

use linerate_core::connection::{Connection, ConnectionsDocument, Source, Vantage};
use linerate_core::plan::Direction;
use linerate_core::record::{Cause, EndReport, Status};

use super::baseline::baseline;
use super::ceilings::{ceilings, verdict};
use super::connections::{Ends, bottleneck, list};
use super::evidence;
use super::number::{bytes, joined, micros, named, percent, plural, rate, seconds};
use super::page::{Emphasis, Page};
use super::sweep::frequencies;

/// Connections that are listed above the explanation.
const LISTED: usize = 6;

/// Explains the largest connection; several connections are summed up and listed before it.
pub(super) fn explained(page: &mut Page, document: &ConnectionsDocument) {
    let ends = telling_ends(&document.connections);
    let Some(largest) = ends.first() else {
        page.heading("No connection was seen.");
        return;
    };
    if document.connections.len() > 1 {
        together(page, document, &ends);
        list(page, &document.connections, LISTED, true);
        page.gap();
    }
    one(page, document, largest);
    baseline(page, document.baseline.as_ref());
}

/// The connections, each by the end that knows more where both are on this host; in the document's
/// order.
fn telling_ends(all: &[Connection]) -> Vec<&Connection> {
    let ends = Ends::new(all);
    let tells_more = |one: &&Connection| std::ptr::eq(ends.telling(one), *one);
    all.iter().filter(tells_more).collect()
}

/// `93.1 Mbit/s: 3 connections with port 443, 10.0 s`
fn together(page: &mut Page, document: &ConnectionsDocument, all: &[&Connection]) {
    let sum: f64 = all.iter().map(|one| one.throughput_bps).sum();
    let of = document.asked.as_ref();
    let of = of.map_or_else(String::new, |asked| format!(" {asked}"));
    let mut causes = frequencies(all.iter().map(|one| bottleneck(one)));
    causes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let causes = causes.iter().map(|(name, count)| format!("{count} {name}"));
    page.heading(&format!(
        "{}: {}{of}, {}{}",
        rate(sum),
        plural(all.len() as u64, "connection"),
        seconds(document.seconds),
        match all.len() {
            number if number == document.connections.len() => "",
            number if 2 * number == document.connections.len() => ", both ends on this host",
            _ => ", some with both ends on this host",
        }
    ));
    page.facts("bottleneck", causes);
}

fn one(page: &mut Page, document: &ConnectionsDocument, connection: &Connection) {
    let leg = connection.leg();
    page.heading(&headline(document, connection));
    let facts = match joined(evidence::in_short(&leg), ", ") {
        none if none.is_empty() => joined(receiver_facts(connection), ", "),
        facts => facts,
    };
    page.indented(&facts);
    if connection.verdict.is_none() {
        page.plain("  It is idle: nothing was sent.");
        return;
    }
    page.gap();
    let cause = connection.verdict.as_ref().map(|verdict| verdict.cause);
    match (&connection.needs_other_end, cause) {
        (Some(_), Some(Cause::Unexplained)) => {
            let end = match connection.vantage {
                Vantage::Receiver => "the receiver's end",
                Vantage::Sender => "the sender's end",
                Vantage::Between => "what was captured",
            };
            let sentence = format!("Bottleneck: not known at {end}.");
            page.verdict(&sentence);
            let says = connection.verdict.iter();
            let says = says.flat_map(|verdict| &verdict.evidence);
            for sentence in says.take(if page.has_details() { usize::MAX } else { 1 }) {
                page.paragraph(Emphasis::None, "    -", 6, sentence);
            }
        }
        _ => verdict(page, None, &leg),
    }
    let is_here = Ends::new(&document.connections).other(connection).is_some();
    if let Some(remedy) = connection.needs_other_end.as_ref().filter(|_| !is_here) {
        page.plain("  The other end knows more:");
        page.command(&remedy.command);
    }
    if page.has_details() {
        details(page, connection);
    }
}

/// `93.1 Mbit/s: nginx (pid 4711) sends 198.18.0.1:443 → 198.18.0.2:50000, 10.0 s`
fn headline(document: &ConnectionsDocument, connection: &Connection) -> String {
    let process = connection.process.as_ref();
    let who = process.map_or_else(
        || match document.source {
            Source::Host { .. } => "this host".to_owned(),
            Source::Capture { .. } => "the connection".to_owned(),
        },
        |process| format!("{} (pid {})", process.name, process.pid),
    );
    let (local, remote) = (&connection.local, &connection.remote);
    let what = match connection.direction {
        Direction::Down => format!("receives {local} ← {remote}"),
        Direction::Up | Direction::Both => format!("sends {local} → {remote}"),
    };
    // A capture always has connections that have ended.
    let watched = matches!(document.source, Source::Host { .. });
    let ended = match (connection.ended && watched, document.status) {
        (true, _) => ", IT ENDED MEANWHILE",
        (false, Status::Partial) => ", STOPPED EARLY",
        (false, Status::Complete) => "",
    };
    let (rate, time) = (rate(connection.throughput_bps), seconds(connection.seconds));
    format!("{rate}: {who} {what}, {time}{ended}")
}

fn receiver_facts(connection: &Connection) -> [Option<String>; 3] {
    let tcp = connection.tcp.as_ref();
    let receiver = tcp.and_then(|tcp| tcp.receiver.as_ref());
    let rtt_us = receiver.and_then(|end| end.rtt_mean_us);
    let unread = receiver.and_then(|end| end.unread_bytes);
    [
        named("RTT", rtt_us, |us| micros(us.into())),
        named("window", receiver.and_then(|end| end.window_bytes), bytes),
        unread.map(|unread| format!("{} unread", bytes(unread))),
    ]
}

fn details(page: &mut Page, connection: &Connection) {
    page.gap();
    let [sent, received] = [connection.bytes_sent, connection.bytes_received].map(bytes);
    let moved = format!("{sent} sent, {received} received");
    page.facts("payload", [moved, connection.state.name().to_owned()]);
    if let Some(tcp) = &connection.tcp {
        if let Some(sender) = tcp.sender() {
            page.facts("windows", evidence::windows(sender, tcp.receiver.as_ref()));
            page.facts("limited", evidence::limited_times(sender));
            page.facts("segments", evidence::segments(sender));
            page.facts("losses", evidence::retransmissions(sender));
            page.facts("control", evidence::control(sender));
        } else {
            page.facts("TCP", evidence::seen_by_receiver(tcp));
        }
    }
    if let Some(end) = &connection.end {
        page.facts("threads", threads(end, connection.seconds));
    }
    page.gap();
    let reached = Some(connection.throughput_bps);
    ceilings(page, &connection.ceilings, reached, usize::MAX);
}

fn threads(end: &EndReport, total: f64) -> [Option<String>; 3] {
    let share = |us: u64| percent(us as f64 / 1e4 / total);
    [
        named("the busiest ran for", end.busiest_thread_percent, percent),
        named("waited for a CPU for", end.run_delay_us, share),
        named("the socket kept it waiting for", end.blocked_us, share),
    ]
}

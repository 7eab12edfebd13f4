//! The page of many connections: totals, then a line for each, the largest rate first; or of
//! listening sockets.

use std::collections::BTreeMap;

use linerate_core::connection::{
    Connection, ConnectionsDocument, LimitSource, Process, Source, State,
};
use linerate_core::plan::Direction;
use linerate_core::record::Cause;

use super::Style;
use super::ceilings::caveats;
use super::connection::explained;
use super::number::{bytes, count, digits, joined, micros, named, plural, rate, seconds};
use super::page::Page;
use super::table::{Table, table};
use crate::charts;
use crate::document::{Document, Ending, Rate, Surroundings};
use crate::svg::Chart;

/// What connections are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupBy {
    /// The bottleneck.
    Cause,
    /// The process that holds them.
    Process,
    /// The other end's address.
    Peer,
}

/// A connection with its recent rates, the oldest first, bits per second.
#[derive(Debug)]
pub struct ConnectionRow<'a> {
    /// The connection.
    pub connection: &'a Connection,
    /// Its recent rates.
    pub recent_bps: Vec<f64>,
}

impl Document for ConnectionsDocument {
    /// A table of all connections or, if an explanation was asked for, the largest one in full.
    fn page(&self, page: &mut Page) {
        if self.explained {
            explained(page, self);
        } else if self.listeners.is_empty() {
            page.title(&connections_headline(self));
            page.gap();
            lines(page, self);
        } else {
            listeners(page, self);
        }
        caveats(page, &self.caveats);
    }

    fn charts(&self) -> Vec<Chart> {
        charts::connections(self)
    }

    fn environments_mut(&mut self) -> Vec<Surroundings<'_>> {
        vec![(&mut self.environment, &mut self.caveats)]
    }

    fn endings(&self) -> Vec<Ending<'_>> {
        vec![(self.status, &self.caveats)]
    }

    fn throughputs(&self) -> Option<Vec<Rate<'_>>> {
        let sum = self.connections.iter().map(|one| one.throughput_bps).sum();
        Some(vec![("throughput", Some(sum))])
    }

    fn annotate(&mut self) {
        self.explain();
    }
}

fn lines(page: &mut Page, document: &ConnectionsDocument) {
    let most = match page.has_details() {
        true => usize::MAX,
        false => CONNECTION_ROWS,
    };
    list(page, &document.connections, most, false);
    let others = document.connections.get(most..).unwrap_or_default();
    if !others.is_empty() {
        let idle = others.iter().filter(|one| is_idle(one)).count() as u64;
        let others = others.len() as u64;
        let idle = match idle {
            idle if idle == others => "all idle".to_owned(),
            idle => format!("{} idle", count(idle)),
        };
        page.plain(&format!("  {} more, {idle}; -v lists them", count(others)));
    }
}

/// The first `most` connections, one a line. With `ends`, connections whose both ends are on this
/// host say which end each line is.
pub(super) fn list(page: &mut Page, connections: &[Connection], most: usize, ends: bool) {
    let rows = connections.iter().take(most);
    let row = |connection| ConnectionRow {
        connection,
        recent_bps: Vec::new(),
    };
    let rows: Vec<ConnectionRow<'_>> = rows.map(row).collect();
    page.table(&table(&rows, page.columns(), ends));
}

/// The number of connections, how many are active, their rates, and the most frequent bottleneck.
pub fn connections_headline(document: &ConnectionsDocument) -> String {
    let all = &document.connections;
    let place = match &document.source {
        Source::Host { namespace } => {
            named(" in network namespace", namespace.as_ref(), String::clone)
        }
        Source::Capture { file, .. } => Some(format!(" in {file}")),
    };
    let place = place.unwrap_or_default();
    let number = plural(all.len() as u64, "TCP connection");
    let group = Group::from_iter(all);
    let time = seconds(document.seconds);
    if all.is_empty() {
        return format!("no TCP connection{place} in {time}");
    }
    if group.active == 0 {
        return format!("{number}{place}, all idle for {time}");
    }
    let cause = group.most_frequent();
    let cause = cause.map_or_else(String::new, |cause| format!("; most often {cause}"));
    let (out, into) = (rate(group.out_bps), rate(group.in_bps));
    let active = count(group.active);
    format!("{number}{place}, {active} active: {out} out, {into} in{cause}")
}

/// Connections as lines of a screen: the heads, and one line for each.
pub fn connection_lines(rows: &[ConnectionRow<'_>], style: Style) -> (Vec<String>, Vec<String>) {
    let table = table(rows, style.columns(), false);
    let layout = table.grid.layout(style.width, 0);
    (layout.heads, layout.rows)
}

fn table<'a>(
    rows: &'a [ConnectionRow<'a>],
    columns: usize,
    has_ends: bool,
) -> Table<&'a ConnectionRow<'a>> {
    let is_wide = columns >= WIDE;
    let local = move |row: &&ConnectionRow<'_>| match row.connection.local.rsplit_once(':') {
        Some((_, port)) if !is_wide => format!(":{port}"),
        _ => row.connection.local.clone(),
    };
    let ends = Ends::new(rows.iter().map(|row| row.connection));
    let end = |row: &&ConnectionRow<'_>| {
        let is_here = has_ends && ends.other(row.connection).is_some();
        is_here.then_some(match row.connection.direction {
            Direction::Down => "receiver",
            Direction::Up | Direction::Both => "sender",
        })
    };
    table! { rows, row =>
        left "remote" => row.connection.remote.clone();
        left @3 "local" => local(row);
        left @1 "process" => process(row.connection.process.as_ref());
        left "end" => end(row);
        left @5 "state" => state(row.connection);
        right ["out", "bit/s"] => short_rate(out_bps(row.connection));
        right ["in", "bit/s"] => short_rate(in_bps(row.connection));
        right @2 "RTT" => rtt_us(row.connection);
        right @4 "retr" => retransmitted(row.connection);
        right @6 "cwnd" => cwnd_bytes(row.connection).map(bytes);
        left @7 "" => sparkline(&row.recent_bps);
        left "bottleneck" => bottleneck(ends.telling(row.connection));
    }
}

/// Connections by their addresses: both ends of one may be on this host.
pub(super) struct Ends<'a>(BTreeMap<(&'a str, &'a str), (usize, &'a Connection)>);

impl<'a> Ends<'a> {
    pub(super) fn new(all: impl IntoIterator<Item = &'a Connection>) -> Self {
        let placed = all.into_iter().enumerate();
        let by_address = placed.map(|(at, one)| ((&*one.local, &*one.remote), (at, one)));
        Self(by_address.collect())
    }

    /// The other end, if it is among them.
    pub(super) fn other(&self, one: &Connection) -> Option<&'a Connection> {
        let found = self.0.get(&(one.remote.as_str(), one.local.as_str()));
        found.map(|(_, other)| *other)
    }

    /// The end that knows more of the bottleneck; of two that know as much the first.
    pub(super) fn telling<'b>(&self, one: &'b Connection) -> &'b Connection
    where
        'a: 'b,
    {
        let rank = |end: &Connection| {
            let verdict = end.verdict.as_ref();
            let is_known = verdict.is_some_and(|verdict| verdict.cause != Cause::Unexplained);
            let at = self.0.get(&(end.local.as_str(), end.remote.as_str()));
            let at = at.map(|(at, _)| *at);
            (!is_known, end.needs_other_end.is_some(), at)
        };
        match self.other(one) {
            Some(other) if rank(other) < rank(one) => other,
            _ => one,
        }
    }
}

/// The text that a filter of the screen is matched against.
pub fn connection_words(connection: &Connection) -> String {
    let process = process(connection.process.as_ref()).unwrap_or_default();
    let (local, remote) = (&connection.local, &connection.remote);
    let (state, bottleneck) = (connection.state.name(), bottleneck(connection));
    format!("{local} {remote} {process} {state} {bottleneck}")
}

/// A table of sums over groups of connections, the largest rate first.
pub fn connections_by(document: &ConnectionsDocument, by: GroupBy, style: Style) -> String {
    let mut groups: BTreeMap<String, Vec<&Connection>> = BTreeMap::new();
    for connection in &document.connections {
        let group = groups.entry(key(connection, by)).or_default();
        group.push(connection);
    }
    let groups = groups.into_iter();
    let groups = groups.map(|(key, connections)| (key, Group::from_iter(connections)));
    let mut groups: Vec<(String, Group)> = groups.collect();
    groups.sort_by(|(_, a), (_, b)| b.rate_bps().total_cmp(&a.rate_bps()));
    let head = match by {
        GroupBy::Cause => "bottleneck",
        GroupBy::Process => "process",
        GroupBy::Peer => "peer",
    };
    let often =
        |(_, group): &&(String, Group)| group.most_frequent().filter(|_| by != GroupBy::Cause);
    let table = table! { &groups, row @ (key, group) =>
        left head => key.clone();
        right "connections" => group.all;
        right "active" => group.active;
        right ["out", "bit/s"] => short_rate(group.out_bps);
        right ["in", "bit/s"] => short_rate(group.in_bps);
        right "retr" => group.retransmitted;
        left "most often" => often(row);
    };
    let mut page = Page::new(style);
    page.title(&connections_headline(document));
    page.gap();
    page.table(&table);
    caveats(&mut page, &document.caveats);
    page.finish()
}

fn key(connection: &Connection, by: GroupBy) -> String {
    match by {
        GroupBy::Cause => bottleneck(connection).to_owned(),
        GroupBy::Process => {
            let process = connection.process.as_ref();
            process.map_or("not known".to_owned(), |process| process.name.clone())
        }
        GroupBy::Peer => {
            let remote = &connection.remote;
            let address = remote.rsplit_once(':').map(|(address, _)| address);
            address.unwrap_or(remote).to_owned()
        }
    }
}

/// Sums over connections.
#[derive(Default)]
struct Group {
    all: u64,
    active: u64,
    out_bps: f64,
    in_bps: f64,
    retransmitted: u64,
    causes: BTreeMap<&'static str, u64>,
}

impl<'a> FromIterator<&'a Connection> for Group {
    fn from_iter<T: IntoIterator<Item = &'a Connection>>(connections: T) -> Self {
        let mut group = Self::default();
        for one in connections {
            group.all += 1;
            if is_idle(one) {
                continue;
            }
            group.active += 1;
            group.out_bps += out_bps(one);
            group.in_bps += in_bps(one);
            group.retransmitted += retransmitted(one).unwrap_or(0);
            *group.causes.entry(bottleneck(one)).or_default() += 1;
        }
        group
    }
}

impl Group {
    fn rate_bps(&self) -> f64 {
        self.out_bps + self.in_bps
    }

    fn most_frequent(&self) -> Option<String> {
        let causes = self.causes.iter().rev().max_by_key(|(_, number)| **number);
        causes.map(|(cause, number)| format!("{cause} ({number})"))
    }
}

fn is_idle(connection: &Connection) -> bool {
    connection.bytes_sent == 0 && connection.bytes_received == 0
}

/// The bottleneck in words; `idle` if nothing was transferred.
pub(super) fn bottleneck(connection: &Connection) -> &'static str {
    match &connection.verdict {
        _ if is_idle(connection) => "idle",
        Some(verdict) if verdict.cause != Cause::Unexplained => verdict.cause.words(),
        _ if connection.needs_other_end.is_some() => "needs the other end",
        Some(verdict) => verdict.cause.words(),
        None => "not known",
    }
}

fn process(process: Option<&Process>) -> Option<String> {
    process.map(|process| format!("{}/{}", process.name, process.pid))
}

/// The state, unless it is the usual one.
fn state(connection: &Connection) -> Option<String> {
    match connection.state {
        _ if connection.ended => Some("ended".to_owned()),
        State::Established => None,
        state => Some(state.name().to_owned()),
    }
}

fn of_time(connection: &Connection, bytes: u64) -> f64 {
    let bps = bytes as f64 * 8.0 / connection.seconds;
    if connection.seconds > 0.0 { bps } else { 0.0 }
}

fn out_bps(connection: &Connection) -> f64 {
    of_time(connection, connection.bytes_sent)
}

fn in_bps(connection: &Connection) -> f64 {
    of_time(connection, connection.bytes_received)
}

/// A sender's mean RTT while it was watched; a receiver's mean or smallest RTT.
fn rtt_us(connection: &Connection) -> Option<String> {
    let tcp = connection.tcp.as_ref()?;
    let rtt_us = match (tcp.sender(), &tcp.receiver) {
        (Some(sender), _) => Some(sender.rtt_mean_us),
        (None, receiver) => {
            let receiver = receiver.as_ref()?;
            receiver.rtt_mean_us.or(receiver.rtt_min_us)
        }
    };
    rtt_us.map(|us| micros(us.into()))
}

fn retransmitted(connection: &Connection) -> Option<u64> {
    connection.tcp.as_ref()?.retransmitted_segments()
}

fn cwnd_bytes(connection: &Connection) -> Option<u64> {
    let sender = connection.tcp.as_ref()?.sender()?;
    Some(sender.cwnd_bytes).filter(|cwnd| *cwnd > 0)
}

/// A rate such as `94.1M`, for a column whose head has the unit.
fn short_rate(bps: f64) -> Option<String> {
    if bps <= 0.0 {
        return None;
    }
    let prefixes = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    // The threshold takes rounding to three digits into account.
    let prefix = prefixes.iter().find(|(scale, _)| bps >= scale * 0.9995);
    Some(match prefix {
        Some((scale, letter)) => digits(bps / scale) + letter,
        None => digits(bps.max(1.0)),
    })
}

/// A character for each rate, its height relative to the largest.
fn sparkline(rates: &[f64]) -> Option<String> {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = rates.iter().copied().fold(0.0, f64::max);
    (most > 0.0).then(|| {
        let bar = |rate: &f64| BARS[((rate / most * 8.0).ceil() as usize).min(8)];
        rates.iter().map(bar).collect()
    })
}

fn listeners(page: &mut Page, document: &ConnectionsDocument) {
    let all = &document.listeners;
    let waiting: u64 = all.iter().map(|one| one.waiting).sum();
    let full = all.iter().filter(|one| one.waiting > one.limit).count() as u64;
    let sockets = plural(all.len() as u64, "listening TCP socket");
    let waiting = format!("{} to be accepted", plural(waiting, "connection"));
    let full = (full > 0).then(|| format!("{} full", plural(full, "queue")));
    page.title(&joined([Some(sockets), Some(waiting), full], ", "));
    if let Some(totals) = document.listen_totals {
        let all = [totals.overflows, totals.drops, totals.syn_cookies];
        let [overflows, drops, cookies] = all.map(count);
        page.words(&format!(
            "Since boot {overflows} found an accept queue full, {drops} SYNs or connections were \
             dropped, {cookies} SYN cookies were sent."
        ));
    }
    page.gap();
    page.table(&table! { all, one =>
        left "local" => one.local.clone();
        left "process" => process(one.process.as_ref());
        right "waiting" => one.waiting;
        right "limit" => one.limit;
        right "half-open" => one.half_open;
        right "dropped" => one.dropped;
        left "limit set by" => match one.limit_by {
            LimitSource::Somaxconn => "net.core.somaxconn",
            LimitSource::Program => "the program",
        };
    });
}

/// Rows without details: with the title and caveats they make 24 lines.
pub const CONNECTION_ROWS: usize = 17;
/// Terminal width from which both addresses fit.
const WIDE: usize = 110;

//! The pages of connections of any program: a line for each, the largest explained, sums over
//! groups, listening sockets.

use std::collections::BTreeMap;

use linerate_core::capture::{ConnectFailure, Requests, Whose};
use linerate_core::connection::{
    BesidePath, Connection, ConnectionsDocument, LimitSource, PacketKind, Process, Source, State,
    Vantage,
};
use linerate_core::plan::Direction;
use linerate_core::record::{Cause, EndReport, Status, TcpReceiver};

use super::history::baseline;
use super::number::{
    bytes, count, counted, digits, frequencies, if_known, joined, micros, named, percent, plural,
    rate, seconds, some_joined,
};
use super::parts::{caveats, ceilings, changes, concluded, verdict};
use super::requests::Length;
use super::{Style, evidence, requests};
use crate::document::{Document, Ending, Rate, Surroundings};
use crate::page::{Page, Table, table};

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
    let idle = others.iter().filter(|one| is_idle(one)).count();
    let idle = match idle == others.len() {
        true => "all".to_owned(),
        false => count(idle as u64),
    };
    if let Some(others) = counted(others.len() as u64, "more") {
        page.plain(&format!("  {others}, {idle} idle; -v lists them"));
    }
}

/// The first `most` connections, one a line. With `ends`, connections whose both ends are on this
/// host say which end each line is.
fn list(page: &mut Page, connections: &[Connection], most: usize, ends: bool) {
    let row = |connection| ConnectionRow { connection, recent_bps: Vec::new() };
    let rows: Vec<_> = connections.iter().take(most).map(row).collect();
    page.table(&table(&rows, page.columns(), ends));
}

/// The number of connections, how many are active, their rates, and the most frequent bottleneck.
pub fn connections_headline(document: &ConnectionsDocument) -> String {
    let all = &document.connections;
    let place = match &document.source {
        Source::Host { namespace: None } => String::new(),
        Source::Host { namespace: Some(name) } => format!(" in network namespace {name}"),
        Source::Capture { file, .. } => format!(" in {file}"),
    };
    let number = plural(all.len() as u64, "TCP connection");
    let group = ConnectionGroup::from_iter(all);
    let time = seconds(document.seconds);
    if all.is_empty() {
        return format!("no TCP connection{place} in {time}");
    }
    if group.active == 0 {
        return format!("{number}{place}, all idle for {time}");
    }
    let cause = if_known(group.most_frequent(), |cause| format!("; most often {cause}"));
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
        left @8 "inside" => inside(&row.connection.inside);
        right ["out", "bit/s"] => short_rate(bps(row.connection, row.connection.bytes_sent));
        right ["in", "bit/s"] => short_rate(bps(row.connection, row.connection.bytes_received));
        right @2 "RTT" => rtt_us(row.connection);
        right @4 "retr" => retransmitted(row.connection);
        right @6 "cwnd" => bytes(Some(row.connection.tcp.as_ref()?.sender()?.cwnd_bytes).filter(|n| *n > 0)?);
        left @7 "" => sparkline(&row.recent_bps);
        left "bottleneck" => bottleneck(ends.telling(row.connection));
    }
}

/// Connections by their addresses: both ends of one may be on this host.
struct Ends<'a>(BTreeMap<(&'a str, &'a str), (usize, &'a Connection)>);

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
    fn telling<'b>(&self, one: &'b Connection) -> &'b Connection
    where
        'a: 'b,
    {
        let rank = |end: &Connection| {
            let verdict = end.verdict.as_ref();
            let is_known = verdict.is_some_and(|verdict| verdict.cause != Cause::Unexplained);
            let found = self.0.get(&(end.local.as_str(), end.remote.as_str()));
            let at = found.map(|(at, _)| *at);
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
    let sums = |(key, connections)| (key, ConnectionGroup::from_iter::<Vec<_>>(connections));
    let mut groups: Vec<(String, ConnectionGroup)> = groups.into_iter().map(sums).collect();
    groups.sort_by(|(_, a), (_, b)| b.rate_bps().total_cmp(&a.rate_bps()));
    let head = match by {
        GroupBy::Cause => "bottleneck",
        GroupBy::Process => "process",
        GroupBy::Peer => "peer",
    };
    let often = |(_, group): &&(String, ConnectionGroup)| {
        group.most_frequent().filter(|_| by != GroupBy::Cause)
    };
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
        GroupBy::Peer => match connection.remote.rsplit_once(':') {
            Some((address, _)) => address.to_owned(),
            None => connection.remote.clone(),
        },
    }
}

/// Sums over connections.
#[derive(Default)]
struct ConnectionGroup {
    all: u64,
    active: u64,
    out_bps: f64,
    in_bps: f64,
    retransmitted: u64,
    causes: BTreeMap<&'static str, u64>,
}

impl<'a> FromIterator<&'a Connection> for ConnectionGroup {
    fn from_iter<T: IntoIterator<Item = &'a Connection>>(connections: T) -> Self {
        let mut group = Self::default();
        for one in connections {
            group.all += 1;
            if is_idle(one) {
                continue;
            }
            group.active += 1;
            group.out_bps += bps(one, one.bytes_sent);
            group.in_bps += bps(one, one.bytes_received);
            group.retransmitted += retransmitted(one).unwrap_or(0);
            *group.causes.entry(bottleneck(one)).or_default() += 1;
        }
        group
    }
}

impl ConnectionGroup {
    fn rate_bps(&self) -> f64 {
        self.out_bps + self.in_bps
    }

    fn most_frequent(&self) -> Option<String> {
        let causes = self.causes.iter().rev().max_by_key(|(_, number)| **number);
        causes.map(|(cause, number)| format!("{cause} ({number})"))
    }
}

fn is_idle(connection: &Connection) -> bool {
    let bytes = connection.bytes_sent + connection.bytes_received;
    bytes == 0 && connection.requests.is_none()
}

/// The bottleneck in words, or whose time requests took; `idle` if nothing was transferred.
fn bottleneck(connection: &Connection) -> &'static str {
    if let Some(words) = waited(connection) {
        return words;
    }
    match &connection.verdict {
        _ if is_idle(connection) => "idle",
        Some(verdict) if verdict.cause != Cause::Unexplained => verdict.cause.words(),
        _ if connection.needs_other_end.is_some() => "needs the other end",
        Some(verdict) => verdict.cause.words(),
        None => "not known",
    }
}

/// What the requests of a connection waited for; `None` where a large transfer waited for the
/// network, whose verdict says more.
fn waited(connection: &Connection) -> Option<&'static str> {
    let requests = connection.requests.as_ref()?;
    match requests.failed {
        Some(ConnectFailure::Refused) => return Some("refused"),
        Some(ConnectFailure::Unanswered) => return Some("no answer"),
        None => {}
    }
    let whose = requests.spent.verdict()?.whose;
    let is_small = connection.bytes() < BULK_BYTES;
    (is_small || whose != Whose::Network).then(|| requests::mostly(whose))
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

/// Payload per second while it was watched.
fn bps(connection: &Connection, bytes: u64) -> f64 {
    let bps = bytes as f64 * 8.0 / connection.seconds;
    if connection.seconds > 0.0 { bps } else { 0.0 }
}

/// A sender's mean RTT while it was watched; a receiver's mean or smallest RTT.
fn rtt_us(connection: &Connection) -> Option<String> {
    let tcp = connection.tcp.as_ref()?;
    let of_receiver = |end: &TcpReceiver| end.rtt_mean_us.or(end.rtt_min_us);
    let of_receiver = tcp.receiver.as_ref().and_then(of_receiver);
    let of_sender = tcp.sender().map(|sender| sender.rtt_mean_us);
    let rtt_us = of_sender.or(of_receiver)?;
    Some(micros(rtt_us.into()))
}

fn retransmitted(connection: &Connection) -> Option<u64> {
    connection.tcp.as_ref()?.retransmitted_segments()
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

/// Part of the transfer's time from which on an idle time is told.
const IDLE_SHARE: f64 = 0.1;

/// Terminal width from which both addresses fit.
const WIDE: usize = 110;

/// Connections that are listed above the explanation, and kinds of packets below it.
const LISTED: usize = 6;

/// Payload from which on a connection's rate is asked for, and not the times of its requests.
const BULK_BYTES: u64 = 1_000_000;

/// Explains the requests and the largest connection, first what was asked for more likely.
fn explained(page: &mut Page, document: &ConnectionsDocument) {
    let Some(found) = document.requests.as_deref() else {
        return largest(page, document);
    };
    let of_largest = document.connections.first();
    let is_bulk = of_largest.is_some_and(|one| one.bytes() >= BULK_BYTES && waited(one).is_none());
    let with_requests = document.connections.iter().filter_map(|one| one.requests.as_ref());
    let connections = with_requests.filter(|requests| requests.count > 0).count();
    let write = |page: &mut Page, length| requests::requests(page, found, connections, length);
    if is_bulk {
        largest(page, document);
        page.gap();
        write(page, Length::Answer);
    } else if tells_more(page, document, found) {
        write(page, Length::Phases);
        page.gap();
        largest(page, document);
    } else {
        if document.connections.is_empty() {
            page.heading("No connection was seen.");
        }
        write(page, Length::Whole);
        kinds(page, &document.source);
    }
}

/// Whether the largest connection says more than its requests do: why the network took long.
fn tells_more(page: &Page, document: &ConnectionsDocument, found: &Requests) -> bool {
    let largest = document.connections.first();
    let has_verdict = largest.is_some_and(|one| one.verdict.is_some());
    let is_networks = found.verdict.is_none_or(|verdict| verdict.whose == Whose::Network);
    has_verdict && (page.has_details() || is_networks)
}

/// Explains the largest connection; several connections are summed up and listed before it.
fn largest(page: &mut Page, document: &ConnectionsDocument) {
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
    kinds(page, &document.source);
    path(page, document);
    baseline(page, document.baseline.as_ref());
}

/// `On the path to 198.18.0.2, a test flow carried 94.1 Mbit/s (path rate, proved); this connection
/// carried 24.2 Mbit/s: it is limited by its own ends (receive window).`
fn path(page: &mut Page, document: &ConnectionsDocument) {
    let path = document.path.as_ref().and_then(|record| Some((record, record.leg()?)));
    let known = document.beside_path().zip(document.connections.first());
    let (Some((record, leg)), Some((beside, connection))) = (path, known) else {
        return;
    };
    let verdict = leg.verdict.as_ref();
    let proof = verdict.and_then(|verdict| verdict.proof.as_ref());
    let limit = if_known(proof, |proof| format!(" ({})", concluded(proof)));
    let found = connection.verdict.as_ref().map(|verdict| verdict.cause);
    let cause = found.filter(|cause| *cause != Cause::Unexplained);
    let meaning = match (beside, cause) {
        (BesidePath::Own, Some(cause)) => {
            format!("it is limited by its own ends ({})", cause.words())
        }
        (BesidePath::Own, None) => "it is limited by its own ends, not by the path".to_owned(),
        (BesidePath::Full, _) => "it gets what the path gives a flow".to_owned(),
        (BesidePath::More, _) => "a flow beside it gets less: they share the path".to_owned(),
        (BesidePath::Shared, _) => "other traffic was on the path, too".to_owned(),
    };
    let [gave, carried] = [leg.throughput_bps.unwrap_or(0.0), connection.throughput_bps].map(rate);
    page.gap();
    page.verdict(&format!(
        "On the path to {}, a test flow carried {gave}{limit}; this connection carried {carried}: \
         {meaning}.",
        record.host
    ));
    if let Some(verdict) = verdict.filter(|_| page.has_details()) {
        changes(page, verdict, leg);
    }
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
    let of = document.asked.as_ref().map(|asked| format!(" {asked}"));
    let mut causes = frequencies(all.iter().map(|one| bottleneck(one)));
    causes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let causes = causes.iter().map(|(name, count)| format!("{count} {name}"));
    let here = match all.len() {
        number if number == document.connections.len() => "",
        number if 2 * number == document.connections.len() => ", both ends on this host",
        _ => ", some with both ends on this host",
    };
    let number = plural(all.len() as u64, "connection") + &of.unwrap_or_default();
    page.heading(&format!("{}: {number}, {}{here}", rate(sum), seconds(document.seconds)));
    page.facts("bottleneck", causes);
}

fn one(page: &mut Page, document: &ConnectionsDocument, connection: &Connection) {
    let leg = connection.leg();
    page.heading(&headline(document, connection));
    let of_sender = some_joined(evidence::in_short(&leg), ", ");
    page.indented(&of_sender.unwrap_or_else(|| joined(receiver_facts(connection), ", ")));
    for row in idle_times(connection).into_iter().flatten() {
        page.indented(&row);
    }
    if connection.verdict.is_none() {
        page.plain(match connection.bytes() {
            0 => "  It is idle: nothing was sent.",
            _ => "  The times of its packets tell neither its rate nor its bottleneck.",
        });
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
            page.verdict(&format!("Bottleneck: not known at {end}."));
            let verdict = connection.verdict.iter();
            let says = verdict.flat_map(|verdict| &verdict.evidence);
            let most = if page.has_details() { usize::MAX } else { 1 };
            page.evidence(says.take(most));
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

/// The idle times of a captured connection, within its transfer and after it.
fn idle_times(connection: &Connection) -> [Option<String>; 2] {
    let sender = connection.tcp.as_ref().and_then(|tcp| tcp.sender());
    let is_long = |time: &f64| *time >= IDLE_SHARE * connection.seconds;
    let within = sender.and_then(|tcp| {
        let idle = tcp.idle_us.map(|us| us as f64 / 1e6).filter(is_long)?;
        let asked = tcp.idle_until_asked_us.unwrap_or(0) as f64 / 1e6;
        let whose = if asked * 2.0 >= idle {
            "the receiver asked for nothing"
        } else {
            "the sender had nothing to send"
        };
        (idle > 0.0).then(|| format!("idle for {} of it: {whose}", seconds(idle)))
    });
    let receiver = match connection.direction {
        Direction::Down => &connection.local,
        Direction::Up | Direction::Both => &connection.remote,
    };
    let after = connection.silent_after_s.filter(is_long).map(|silent| {
        let time = seconds(silent);
        match connection.unanswered_timeouts {
            Some(timeouts) => {
                let timeouts = plural(timeouts, "timeout");
                format!("then {timeouts} in {time}: {receiver} does not answer any more")
            }
            None => format!("then idle for {time}: no more data was sent"),
        }
    });
    [within, after]
}

/// `93.1 Mbit/s: nginx (pid 4711) sends 198.18.0.1:443 → 198.18.0.2:50000, 10.0 s`
fn headline(document: &ConnectionsDocument, connection: &Connection) -> String {
    let process = connection.process.as_ref();
    // A capture always has connections that have ended.
    let watched = matches!(document.source, Source::Host { .. });
    let who = match process {
        Some(process) => format!("{} (pid {})", process.name, process.pid),
        None if watched => "this host".to_owned(),
        None => "the connection".to_owned(),
    };
    let (local, remote) = (&connection.local, &connection.remote);
    let what = match connection.direction {
        Direction::Down => format!("receives {local} ← {remote}"),
        Direction::Up | Direction::Both => format!("sends {local} → {remote}"),
    };
    let ended = match (connection.ended && watched, document.status) {
        (true, _) => ", ENDED WHILE WATCHED",
        (false, Status::Partial) => ", STOPPED EARLY",
        (false, Status::Complete) => "",
    };
    let (rate, time) = (rate(connection.throughput_bps), seconds(connection.seconds));
    let inside = if_known(inside(&connection.inside), |inside| format!(", inside {inside}"));
    format!("{rate}: {who} {what}, {time}{inside}{ended}")
}

/// `GRE in VXLAN`: the innermost encapsulation first.
fn inside(encapsulations: &[String]) -> Option<String> {
    let inwards = encapsulations.iter().rev().map(String::as_str);
    (!encapsulations.is_empty()).then(|| inwards.collect::<Vec<_>>().join(" in "))
}

/// What the packets of a capture are, where some are in tunnels or details are asked for.
fn kinds(page: &mut Page, source: &Source) {
    let Source::Capture { kinds, .. } = source else {
        return;
    };
    if page.has_details() || kinds.iter().any(|kind| !kind.inside.is_empty()) {
        let words = |kind: &PacketKind| {
            let inside = if_known(inside(&kind.inside), |inside| format!(" inside {inside}"));
            format!("{} {}{inside}", count(kind.packets), kind.what)
        };
        let most = if page.has_details() { usize::MAX } else { LISTED };
        page.facts("packets", kinds.iter().take(most).map(words));
    }
}

fn receiver_facts(connection: &Connection) -> [Option<String>; 3] {
    let tcp = connection.tcp.as_ref();
    let receiver = tcp.and_then(|tcp| tcp.receiver.as_ref());
    receiver.map_or([const { None }; 3], |end| {
        [
            named("RTT", end.rtt_mean_us, |us| micros(us.into())),
            named("window", end.window_bytes, bytes),
            end.unread_bytes.map(|unread| format!("{} unread", bytes(unread))),
        ]
    })
}

fn details(page: &mut Page, connection: &Connection) {
    page.gap();
    let [sent, received] = [connection.bytes_sent, connection.bytes_received].map(bytes);
    let moved = format!("{sent} sent, {received} received");
    page.facts("payload", [moved, connection.state.name().to_owned()]);
    evidence::write(page, connection.tcp.as_ref(), None);
    let threads = |end| threads(end, connection.seconds);
    page.facts("threads", connection.end.iter().flat_map(threads));
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

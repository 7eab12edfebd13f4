//! The pages of a trace and of a watch: what can be said of the route, then a line for each hop.

use std::collections::BTreeSet;
use std::iter::{once, repeat};
use std::net::IpAddr;

use linerate_core::record::Observed;
use linerate_core::trace::delay::{DelayStep, LinkRate};
use linerate_core::trace::{
    AnswerKind, HopDocument, HopFate, MtuOutcome, Narrowing, Origin, PathChange, PathsDocument,
    ProbeKind, ReverseDocument, RoutedPath, TraceDocument, WatchDocument, WatchRow,
    unreachable_reason,
};
use linerate_core::units::{End, Family};

use super::Style;
use super::number::{
    digits, ends, exact_bytes, if_known, joined, micros, percent, plural, rate, seconds,
    some_joined,
};
use super::parts::caveats;
use crate::document::Document;
use crate::page::{Emphasis, Page, Table, table};

impl Document for TraceDocument {
    /// A trace as a page: the end, the delay, what changes packets; then the hops.
    fn page(&self, page: &mut Page) {
        page.title(&headline(self));
        let mut end = self.end_words.clone();
        if self.hops.iter().any(|hop| hop.address == Some(self.target)) {
            end = end.replacen(&self.target.to_string(), &self.host, 1);
        }
        page.words(&format!("{end}."));
        let limited = self.watch.as_ref().and_then(limited);
        let route = changed(self).into_iter().chain(balanced(self));
        let says = (self.delay.words.iter().cloned())
            .chain(route)
            .chain(self.mtu.as_ref().map(fits))
            .chain(limited);
        says.for_each(|sentence| page.words(&sentence));
        page.gap();
        match &self.watch {
            Some(watch) => {
                page.table(&rounds(watch));
                changes(page, watch);
            }
            None => hops(page, self),
        }
        rates(page, &self.link_rates);
        if let Some(paths) = &self.paths {
            all_paths(page, paths);
        }
        if let Some(reverse) = &self.reverse {
            way_back(page, reverse);
        }
        caveats(page, &self.caveats);
    }

    fn answer(&self) -> String {
        let delay = if_known(self.delay.words.first(), |words| format!(". {words}"));
        format!("{}: {}{delay}", self.host, self.end_words)
    }

    fn observed(&self) -> Observed {
        let last = self.delay.hops.last();
        let figures = [
            ("hops", last.map(|hop| f64::from(hop.ttl))),
            ("path_us", last.map(|hop| hop.path_us)),
        ];
        Observed::figures_of(&self.started_at, figures)
    }
}

/// A watch as a screen: the figures of each hop with a sparkline, and the latest changes of the
/// path.
pub fn watch(trace: &TraceDocument, style: Style) -> String {
    let mut page = Page::new(style);
    page.title(&headline(trace));
    if let Some(watch) = &trace.watch {
        let jitter = |row: &&WatchRow| Some(ms(row.rtt_us?.jitter));
        let rounds = rounds(watch).right("Jttr", jitter).spare(3, 1);
        page.table(&rounds.left("recent", |row| sparkline(&row.recent_us)));
        changes(&mut page, watch);
    }
    page.finish()
}

fn headline(trace: &TraceDocument) -> String {
    let host = Some(trace.host.as_str()).filter(|host| *host != trace.target.to_string());
    let target = router(Some(trace.target), host);
    let kind = match trace.kind {
        ProbeKind::Udp => "UDP",
        ProbeKind::Icmp => "ICMP",
        ProbeKind::Tcp => "TCP SYN",
    };
    let (size, most) = (exact_bytes(trace.size_bytes), trace.last_ttl);
    let probes = plural(trace.probes_sent.into(), "probe");
    let extent = match &trace.watch {
        Some(watch) => plural(watch.rounds, "round"),
        None => format!("{probes} in {}", seconds(trace.seconds)),
    };
    format!("trace to {target}: {kind} of {size}, {most} hops at most, {extent}")
}

/// Says where packets are changed, a sentence each.
fn changed(trace: &TraceDocument) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut seen = (trace.dscp.octet() >> 2, trace.ecn);
    let mut before = None;
    for hop in &trace.hops {
        if let (true, Some(dscp), Some(ecn)) = (hop.is_remarked, hop.dscp, hop.ecn) {
            let place = between(before, hop.ttl);
            let (was, had) = seen;
            sentences.push(format!(
                "Packets are remarked {place}: DSCP {was} becomes {dscp}, ECN {had} becomes {ecn}."
            ));
        }
        if let (Some(dscp), Some(ecn)) = (hop.dscp, hop.ecn) {
            seen = (dscp, ecn);
            before = Some(hop.ttl);
        }
    }
    let nat = |ttl| format!("A NAT before hop {ttl} rewrites addresses, ports or checksums.");
    sentences.extend(first_translated(trace).map(nat));
    sentences
}

/// Says at which hops packets are balanced one by one.
fn balanced(trace: &TraceDocument) -> Option<String> {
    let hops = trace.hops.iter().filter(|hop| hop.is_by_packet).map(|hop| hop.ttl);
    let all = trace.paths.iter().flat_map(|paths| &paths.levels);
    let levels = all.filter(|level| level.is_by_packet).map(|level| level.ttl);
    let ttls: BTreeSet<u8> = hops.chain(levels).collect();
    let hop = if ttls.len() == 1 { "hop" } else { "hops" };
    let named = some_joined(ttls.iter().map(u8::to_string), ", ")?;
    Some(format!(
        "Probes of one flow were answered by several routers at {hop} {named}: a router before \
         balances by packet, so that packets of one connection may overtake each other."
    ))
}

fn between(before: Option<u8>, ttl: u8) -> String {
    match before {
        None if ttl == 1 => "before hop 1".into(),
        None => format!("between this host and hop {ttl}"),
        Some(before) => format!("between hop {before} and hop {ttl}"),
    }
}

fn fits(mtu: &MtuOutcome) -> String {
    let whole = match mtu.mtu_bytes {
        Some(bytes) => format!("Packets of up to {} reach the target", exact_bytes(bytes)),
        None => "The path MTU is not known".into(),
    };
    let narrow = some_joined(mtu.narrowings.iter().map(narrowing), "; ");
    let narrow = narrow.unwrap_or_else(|| "no smaller MTU was found on the path".to_owned());
    format!("{whole}; {narrow}.")
}

fn narrowing(narrowing: &Narrowing) -> String {
    let place = match narrowing.after_ttl {
        Some(ttl) => format!("behind hop {ttl}"),
        None => "at a router that the trace has not seen".into(),
    };
    let says = match narrowing.is_told {
        true => ", as it says",
        false => {
            " and NO message says so: a black hole, where TCP stalls unless it probes by itself"
        }
    };
    format!("{place} {} fit{says}", exact_bytes(narrowing.mtu_bytes))
}

fn rates(page: &mut Page, rates: &[LinkRate]) {
    page.gap();
    let from = |link: &LinkRate| {
        let ttl = link.after_ttl.map(|ttl| ttl.to_string());
        ttl.unwrap_or_else(|| "here".to_owned())
    };
    page.table(&table! { rates, link =>
        left "link" => format!("{} to {}", from(link), link.to_ttl);
        right "rate" => link.rate_bps.map(rate);
        right "at least" => link.at_least_bps.map(rate);
        right "at most" => link.at_most_bps.map(rate);
    });
}

fn all_paths(page: &mut Page, paths: &PathsDocument) {
    page.gap();
    let sure = percent(100.0 * paths.confidence);
    let complete = match paths.is_complete {
        true => "",
        false => "; some probes were not answered, so there may be more",
    };
    let (probes, time) = (paths.probes_sent, seconds(paths.seconds));
    let (number, what) = match paths.paths.len() {
        1 => (1, "path"),
        number => (number, "equal-cost paths"),
    };
    page.title(&format!(
        "{number} {what}; with {sure} probability none was missed at any one router{complete}; \
         {probes} probes in {time}"
    ));
    for (number, path) in (1..).zip(&paths.paths) {
        one_path(page, number, path, paths);
    }
}

/// Writes the hops at which the paths differ, or all hops if there is only one path.
fn one_path(page: &mut Page, number: usize, path: &RoutedPath, paths: &PathsDocument) {
    let flows = path.flows.len();
    let end = if path.is_whole { "" } else { ", not to the target" };
    page.plain(&format!("path {number}: {flows} of the flows{end}"));
    let level = paths.levels.first();
    let first = level.map_or(1, |level| usize::from(level.ttl));
    for (place, address) in path.hops.iter().enumerate() {
        let differs = |other: &RoutedPath| other.hops.get(place) != Some(address);
        if paths.paths.len() > 1 && !paths.paths.iter().any(differs) {
            continue;
        }
        let balanced = paths.levels.get(place).filter(|level| level.is_by_packet);
        let rtts = path.rtt_us.get(place).map_or(&[][..], Vec::as_slice);
        let least =
            if_known(rtts.iter().copied().min_by(f64::total_cmp), |us| format!("  {} ms", ms(us)));
        let router = match (address, balanced) {
            (Some(address), _) => address.to_string(),
            (None, Some(level)) => {
                let nodes = level.nodes.iter().map(|node| node.address.to_string());
                format!("{}, by packet", joined(nodes, " or "))
            }
            (None, None) => "*".to_owned(),
        };
        page.plain(&format!("  {:>3}  {router}{least}", first + place));
    }
}

/// Further addresses of a hop that are named; the rest is counted.
const MAX_OTHERS: usize = 3;

/// A network's name is cut to this many characters; the JSON document has all of it.
const MAX_OF_NAME: usize = 20;

fn hops(page: &mut Page, trace: &TraceDocument) {
    let columns = usize::from(trace.probes_per_hop.min(MAX_COLUMNS));
    let mut table = table! { &trace.hops, hop =>
        right "hop" => hop.ttl.to_string();
        left "router" => router(hop.address, hop.name.as_deref());
        left "AS" => hop.origin.as_ref().map(network);
    };
    for (place, head) in (0..columns).zip(once("ms").chain(repeat(""))) {
        table = table.right(head, |hop| time(hop, place));
    }
    page.table(&table.left(" ", |hop| marks_of(hop, trace)));
}

/// RTTs that are shown of a hop; further ones are only in the JSON document.
const MAX_COLUMNS: u8 = 5;

/// RTT of a probe of the first round; if it has no answer, that of a later round.
fn time(hop: &HopDocument, place: usize) -> String {
    let mut first = hop.probes.iter().filter(|probe| probe.attempt == 0);
    let again = hop.probes.iter().filter(|probe| probe.attempt > 0);
    let before = first.clone().take(place);
    let missing = before.filter(|probe| probe.rtt_us.is_none()).count();
    let rtt = match first.nth(place) {
        Some(probe) if probe.rtt_us.is_some() => probe.rtt_us,
        _ => again.filter_map(|probe| probe.rtt_us).nth(missing),
    };
    rtt.map_or_else(|| "*".to_owned(), ms)
}

/// A router by its name and address; `*` if nothing answered.
fn router(address: Option<IpAddr>, name: Option<&str>) -> String {
    match (address, name) {
        (None, _) => "*".to_owned(),
        (Some(address), None) => address.to_string(),
        (Some(address), Some(name)) => format!("{name} ({address})"),
    }
}

/// An AS by its number and the beginning of its name.
fn network(origin: &Origin) -> String {
    let others = origin.others.iter().map(|asn| format!("/{asn}"));
    let numbers: String = [origin.asn.to_string()].into_iter().chain(others).collect();
    let name: String = origin.name.chars().take(MAX_OF_NAME).collect();
    let name = Some(name).filter(|name| !name.is_empty());
    joined([Some(numbers), name], " ")
}

/// Remarks on a hop besides its times.
fn marks_of(hop: &HopDocument, trace: &TraceDocument) -> String {
    let mut marks: Vec<String> = Vec::new();
    let said = [fate(hop), refusal(hop, trace), others(hop)];
    marks.extend(said.into_iter().flatten());
    if let (true, Some(dscp), Some(ecn)) = (hop.is_remarked, hop.dscp, hop.ecn) {
        marks.push(format!("DSCP {dscp}, ECN {ecn} from here on"));
    }
    if first_translated(trace) == Some(hop.ttl) {
        marks.push("behind a NAT".into());
    }
    if hop.is_by_packet {
        marks.push("balanced by packet".into());
    }
    let label = hop.mpls.first();
    marks.extend(label.map(|label| format!("MPLS label {}", label.label)));
    let back = hop.return_hops.filter(|back| *back != hop.ttl);
    marks.extend(back.map(|back| format!("answers over {}", plural(back.into(), "hop"))));
    let is_here = |step: &&DelayStep| step.to_ttl == hop.ttl && step.is_known_to_add;
    let step = trace.delay.steps.iter().find(is_here);
    let detour = step.filter(|step| step.return_extra_hops.is_some_and(|extra| extra != 0));
    marks.extend(
        detour.map(|step| format!("its step of {} may be on the way back", micros(step.added_us))),
    );
    let same = |before| format!("the same as hop {before}");
    marks.extend(hop.repeats.map(same));
    let narrowings = trace.mtu.iter().flat_map(|mtu| &mtu.narrowings);
    let behind = narrowings.filter(|narrowing| narrowing.after_ttl == Some(hop.ttl));
    marks.extend(behind.map(|narrowing| format!("MTU {} behind it", narrowing.mtu_bytes)));
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

fn first_translated(trace: &TraceDocument) -> Option<u8> {
    let mut hops = trace.hops.iter();
    let first = hops.find(|hop| hop.is_translated == Some(true));
    first.map(|hop| hop.ttl)
}

/// The way back beside the way there.
fn way_back(page: &mut Page, reverse: &ReverseDocument) {
    let endpoint = &reverse.endpoint;
    let back = reverse.trace.as_ref();
    page.gap();
    page.title(&match back {
        Some(back) => format!("the way back, as {endpoint} traces it to {}", back.target),
        None => format!("the way back is not known: {endpoint} has not traced it"),
    });
    if let Some(back) = back {
        page.words(&format!("{}.", back.end_words));
    }
    let delay = back.iter().flat_map(|back| &back.delay.words);
    delay.chain(&reverse.words).for_each(|sentence| page.words(sentence));
    if let Some(back) = back {
        page.gap();
        hops(page, back);
    }
    let of_trace = back.iter().flat_map(|back| &back.caveats);
    let told = of_trace.map(|caveat| caveat.clone().told_by(End::Server));
    let doubts: Vec<_> = told.chain(reverse.caveats.iter().cloned()).collect();
    caveats(page, &doubts);
}

/// Changes of the path that are shown, the newest ones.
const MAX_CHANGES: usize = 8;

/// Says which hops limit their answers: the path does not lose the probes that they leave
/// unanswered, since hops beyond answer more of theirs.
fn limited(watch: &WatchDocument) -> Option<String> {
    let rows = &watch.rows;
    let answers_less = |(place, row): &(usize, &WatchRow)| {
        let beyond = rows.iter().skip(place + 1);
        let least = beyond.map(|row| row.loss_percent).reduce(f64::min);
        least.is_some_and(|least| row.rtt_us.is_some() && row.loss_percent >= least + CLEAR_PERCENT)
    };
    let limited = rows.iter().enumerate().filter(answers_less);
    let hops: Vec<String> = limited.map(|(_, row)| row.ttl.to_string()).collect();
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

/// The rounds of a watch with the columns of mtr's report.
fn rounds(watch: &WatchDocument) -> Table<&WatchRow> {
    table! { &watch.rows, row =>
        right "hop" => row.ttl.to_string();
        left "router, times in ms" => router(row.address, row.name.as_deref());
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
    let ms = us / 1e3;
    if ms < 99.995 { format!("{ms:.2}") } else { digits(ms) }
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

fn changes(page: &mut Page, watch: &WatchDocument) {
    let hidden = watch.changes.len().saturating_sub(MAX_CHANGES) as u64 + watch.forgotten_changes;
    page.gap();
    if hidden > 0 {
        page.plain(&format!("{hidden} earlier changes of the path"));
    }
    let shown = watch.changes.len().saturating_sub(MAX_CHANGES);
    for PathChange { at_s, ttl, from, to, .. } in &watch.changes[shown..] {
        let words = format!("after {}: hop {ttl} was {from} and is {to}", seconds(*at_s));
        page.line(Emphasis::Warning, &words);
    }
}

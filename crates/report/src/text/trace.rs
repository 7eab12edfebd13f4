//! The route to a host: a line for each hop, then what can be said of it.

use std::net::IpAddr;

use linerate_core::plan::Family;
use linerate_core::trace::delay::LinkRate;
use linerate_core::trace::{
    AnswerKind, HopDocument, HopFate, MtuOutcome, Narrowing, PathChange, PathsDocument, ProbeKind,
    RoutedPath, TraceDocument, WatchDocument, WatchRow, unreachable_reason,
};

use super::Style;
use super::ceilings::caveats;
use super::number::{exact_bytes, percent, rate, seconds};
use super::page::{Emphasis, Page};
use super::table::{Align, Table};

/// Further addresses of a hop that are named; others are counted.
const MOST_OTHERS: usize = 3;
/// Changes of the path that are shown, the newest.
const MOST_CHANGES: usize = 8;

/// A trace as a page: the hops, the end, the delay, what changes packets.
pub fn trace(trace: &TraceDocument, style: Style) -> String {
    let mut page = Page::new(style);
    page.line(Emphasis::Strong, &headline(trace));
    match &trace.watch {
        Some(watch) => figures(&mut page, watch),
        None => hops(&mut page, trace),
    }
    page.gap();
    let mut end = trace.end_words.clone();
    if trace
        .hops
        .iter()
        .any(|hop| hop.address == Some(trace.target))
    {
        end = end.replacen(&trace.target.to_string(), &trace.host, 1);
    }
    page.paragraph(Emphasis::None, "", 0, &format!("{end}."));
    for sentence in trace.delay.words.iter().filter(|_| trace.watch.is_none()) {
        page.paragraph(Emphasis::None, "", 0, sentence);
    }
    for sentence in changed(trace) {
        page.paragraph(Emphasis::None, "", 0, &sentence);
    }
    if let Some(mtu) = &trace.mtu {
        page.paragraph(Emphasis::None, "", 0, &fits(mtu));
    }
    if !trace.link_rates.is_empty() {
        rates(&mut page, &trace.link_rates);
    }
    if let Some(paths) = &trace.paths {
        all_paths(&mut page, paths);
    }
    caveats(&mut page, &trace.caveats);
    page.finish()
}

/// A watch as a screen: the figures of each hop with a sparkline, and the last changes of the path.
pub fn watch(trace: &TraceDocument, style: Style) -> String {
    let mut page = Page::new(style);
    page.line(Emphasis::Strong, &headline(trace));
    if let Some(watch) = &trace.watch {
        screen(&mut page, watch);
        changes(&mut page, watch);
    }
    page.finish()
}

fn headline(trace: &TraceDocument) -> String {
    let target = trace.target.to_string();
    let target = match trace.host == target {
        true => target,
        false => format!("{} ({target})", trace.host),
    };
    let kind = match trace.kind {
        ProbeKind::Udp => "UDP",
        ProbeKind::Icmp => "ICMP",
        ProbeKind::Tcp => "TCP SYN",
    };
    let size = exact_bytes(trace.size_bytes);
    let rounds = trace.watch.as_ref().map(|watch| watch.rounds);
    let extent = match rounds {
        Some(rounds) => format!("{rounds} rounds"),
        None => format!("{} probes in {}", trace.probes_sent, seconds(trace.seconds)),
    };
    let most = trace.last_ttl;
    format!("trace to {target}: {kind} of {size}, {most} hops at most, {extent}")
}

fn hops(page: &mut Page, trace: &TraceDocument) {
    let columns = usize::from(trace.probes_per_hop.min(MOST_COLUMNS));
    let heads = (0..columns).map(|place| match place {
        0 => ("ms".into(), Align::Right),
        _ => ("".into(), Align::Right),
    });
    let fixed = [("hop".into(), Align::Right), ("router".into(), Align::Left)];
    let marks = [(" ".into(), Align::Left)];
    let mut table = Table::with_heads(fixed.into_iter().chain(heads).chain(marks));
    for hop in &trace.hops {
        let mut cells = vec![Some(hop.ttl.to_string()), Some(router(hop))];
        cells.extend((0..columns).map(|place| Some(time(hop, place))));
        cells.push(Some(marks_of(hop, trace)));
        table.row(cells);
    }
    page.table(&table);
}

/// RTTs of more probes than this are in the JSON document alone.
const MOST_COLUMNS: u8 = 5;

/// RTT of a probe of the first round. If that has no answer, one of a later round stands for it.
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
    hop.address.map_or_else(
        || "*".to_owned(),
        |address| named(address, hop.name.as_deref()),
    )
}

fn named(address: IpAddr, name: Option<&str>) -> String {
    name.map_or_else(|| address.to_string(), |name| format!("{name} ({address})"))
}

/// What is worth knowing of a hop besides its times.
fn marks_of(hop: &HopDocument, trace: &TraceDocument) -> String {
    let mut marks: Vec<String> = Vec::new();
    marks.extend(fate(hop));
    marks.extend(refusal(hop, trace));
    marks.extend(others(hop));
    if let (true, Some(dscp), Some(ecn)) = (hop.is_remarked, hop.dscp, hop.ecn) {
        marks.push(format!("DSCP {dscp}, ECN {ecn} from here on"));
    }
    if hop.is_translated == Some(true) && is_first_translated(hop, trace) {
        marks.push("behind a NAT".into());
    }
    if let Some(label) = hop.mpls.first() {
        marks.push(format!("MPLS label {}", label.label));
    }
    if let Some(back) = hop.return_hops.filter(|back| *back != hop.ttl) {
        marks.push(format!("answers over {back} hops"));
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
    let family = match trace.target {
        IpAddr::V4(_) => Family::Ipv4,
        IpAddr::V6(_) => Family::Ipv6,
    };
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
    let named = others.iter().take(MOST_OTHERS).map(IpAddr::to_string);
    let named: Vec<String> = named.collect();
    match others.len().saturating_sub(MOST_OTHERS) {
        _ if others.is_empty() => None,
        0 => Some(format!("also {}", named.join(", "))),
        more => Some(format!("also {} and {more} more", named.join(", "))),
    }
}

fn is_first_translated(hop: &HopDocument, trace: &TraceDocument) -> bool {
    let first = trace
        .hops
        .iter()
        .find(|hop| hop.is_translated == Some(true));
    first.is_some_and(|first| first.ttl == hop.ttl)
}

/// Where packets are changed, a sentence each.
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
    let translated = trace
        .hops
        .iter()
        .find(|hop| hop.is_translated == Some(true));
    if let Some(hop) = translated {
        sentences.push(format!(
            "A NAT before hop {} rewrites addresses, ports or checksums.",
            hop.ttl
        ));
    }
    sentences
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
        None => "What fits through the path is not known".into(),
    };
    let narrow: Vec<String> = mtu.narrowings.iter().map(narrowing).collect();
    match narrow.is_empty() {
        true => format!("{whole}; the path gets narrower nowhere."),
        false => format!("{whole}; {}.", narrow.join("; ")),
    }
}

fn narrowing(narrowing: &Narrowing) -> String {
    let place = match narrowing.after_ttl {
        Some(ttl) => format!("behind hop {ttl}"),
        None => "at a router that the trace has not seen".into(),
    };
    let bytes = exact_bytes(narrowing.mtu_bytes);
    match narrowing.is_told {
        true => format!("{place} {bytes} fit, as it says"),
        false => format!(
            "{place} {bytes} fit and NO message says so: a black hole, where TCP stalls unless it probes by itself"
        ),
    }
}

fn rates(page: &mut Page, rates: &[LinkRate]) {
    page.gap();
    let columns = [
        ("link", Align::Left),
        ("rate", Align::Right),
        ("at least", Align::Right),
        ("at most", Align::Right),
    ];
    let mut table = Table::new(&columns);
    for link in rates {
        let from = link
            .after_ttl
            .map_or_else(|| "here".into(), |ttl| ttl.to_string());
        table.row([
            Some(format!("{from} to {}", link.to_ttl)),
            link.rate_bps.map(rate),
            link.at_least_bps.map(rate),
            link.at_most_bps.map(rate),
        ]);
    }
    page.table(&table);
}

fn all_paths(page: &mut Page, paths: &PathsDocument) {
    page.gap();
    let sure = percent(100.0 * paths.confidence);
    let complete = match paths.is_complete {
        true => "",
        false => "; some answers stayed out, so that there may be more",
    };
    let number = paths.paths.len();
    page.line(
        Emphasis::Strong,
        &format!(
            "{number} {}, none missed at a router with {sure}{complete}; {} probes in {}",
            if number == 1 {
                "path"
            } else {
                "equal-cost paths"
            },
            paths.probes_sent,
            seconds(paths.seconds)
        ),
    );
    for (number, path) in (1..).zip(&paths.paths) {
        one_path(page, number, path, paths);
    }
}

/// The hops of a path at which the paths differ; all of them if there is one alone.
fn one_path(page: &mut Page, number: usize, path: &RoutedPath, paths: &PathsDocument) {
    let flows = path.flows.len();
    let end = if path.is_whole {
        ""
    } else {
        ", not to the target"
    };
    page.line(
        Emphasis::None,
        &format!("path {number}: {flows} of the flows{end}"),
    );
    let first = paths
        .levels
        .first()
        .map_or(1, |level| usize::from(level.ttl));
    for (place, address) in path.hops.iter().enumerate() {
        let differs = |other: &RoutedPath| other.hops.get(place) != Some(address);
        if paths.paths.len() > 1 && !paths.paths.iter().any(differs) {
            continue;
        }
        let rtts = path.rtt_us.get(place).map_or(&[][..], Vec::as_slice);
        let least = rtts.iter().copied().min_by(f64::total_cmp);
        let least = least.map_or_else(String::new, |us| format!("  {:.2} ms", us / 1e3));
        let address = address.map_or_else(|| "*".to_owned(), |address| address.to_string());
        page.line(
            Emphasis::None,
            &format!("  {:>3}  {address}{least}", first + place),
        );
    }
}

/// The columns of mtr's report.
fn figures(page: &mut Page, watch: &WatchDocument) {
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

fn screen(page: &mut Page, watch: &WatchDocument) {
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
    let fixed = [("hop", Align::Right), ("router, times in ms", Align::Left)];
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

/// One character for each of the last probes: its height from the least to the largest of them, `?` for none.
fn sparkline(recent: &[Option<f64>]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const MOST: usize = 20;
    let recent = &recent[recent.len().saturating_sub(MOST)..];
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

fn changes(page: &mut Page, watch: &WatchDocument) {
    let hidden = watch.changes.len().saturating_sub(MOST_CHANGES) as u64 + watch.forgotten_changes;
    if !watch.changes.is_empty() {
        page.gap();
    }
    if hidden > 0 {
        page.line(
            Emphasis::None,
            &format!("{hidden} earlier changes of the path"),
        );
    }
    let shown = watch.changes.len().saturating_sub(MOST_CHANGES);
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

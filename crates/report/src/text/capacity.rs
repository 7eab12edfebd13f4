//! The page of a capacity test: how many connections were held, their cost, and their limits.

use linerate_core::capacity::{
    CapacityDocument, CapacityHalf, Failure, LimitEnd, LimitKind, LimitRow, LoadPace,
    MemoryReading, PoolResult, StoppedBy,
};
use linerate_core::record::{Observed, Status};
use linerate_core::remedy::Remedy;
use linerate_core::stats::LatencySummary;

use super::number::{
    bytes, chosen_bytes, count, counted, digits, joined, named, percent, seconds, some_joined,
    with_unit,
};
use super::parts::{caveats, destination, emulated, latencies};
use crate::document::{Document, Ending, Surroundings};
use crate::page::{Page, table};

impl Document for CapacityDocument {
    /// What was held, and what stopped it or would stop it; then the costs and the limits.
    fn page(&self, page: &mut Page) {
        page.heading(&headline(self));
        emulated(page, &self.environment);
        verdict(page, self);
        search(page, self);
        pools(page, self);
        for (name, pool) in named_pools(self) {
            trouble(page, name, pool);
        }
        page.gap();
        page.facts("held by", held_by(self));
        page.facts("load", load(self));
        page.facts("churn", churn(self));
        if page.has_details() {
            page.facts("run", run(self));
            times(page, self);
            page.gap();
            page.facts("active", beside(self));
            page.facts("CPU", cpu(self));
            page.facts("sockets", course(self, |reading| reading.tcp_allocated, count));
            page.facts("slab", course(self, |reading| reading.slab_bytes, bytes));
            table(page, self);
        }
        caveats(page, &self.caveats);
    }

    fn observed(&self) -> Observed {
        let pool = |pool: &Option<PoolResult>| Some(pool.as_ref()?.alive as f64);
        let [tcp, udp] = [&self.tcp, &self.udp].map(pool);
        let figures = [("tcp.alive", tcp), ("udp.alive", udp)];
        Observed::figures_of(&self.started_at, figures)
    }

    fn environments_mut(&mut self) -> Vec<Surroundings<'_>> {
        vec![(&mut self.environment, &mut self.caveats)]
    }

    fn endings(&self) -> Vec<Ending<'_>> {
        vec![(self.status, &self.caveats)]
    }

    fn annotate(&mut self) {
        linerate_core::capacity::annotate(self);
    }
}

/// `12,000 of 20,000 TCP connections and all 10,000 UDP sockets alive after 5.00 s, none lost: to
/// pit (…)`
fn headline(document: &CapacityDocument) -> String {
    let pools = named_pools(document).map(|(name, pool)| {
        let alive = match pool.alive >= pool.asked {
            true => "all".to_owned(),
            false => format!("{} of", count(pool.alive)),
        };
        format!("{alive} {} {name}", count(pool.asked))
    });
    let pools = joined(pools, " and ");
    let peer = destination(&document.host, &document.peer, None);
    let when = match document.status {
        Status::Complete => format!("after {}", seconds(document.test.hold.as_secs_f64())),
        Status::Partial => "when it was ended".to_owned(),
    };
    let each = named_pools(document).map(|(_, pool)| pool.lost);
    let lost = each.fold(0, u64::saturating_add);
    let lost = counted(lost, "LOST").unwrap_or_else(|| "none lost".to_owned());
    format!("{pools} alive {when}, {lost}: to {peer}")
}

fn run(document: &CapacityDocument) -> [Option<String>; 7] {
    let asked = document.test.rate_per_s;
    let heartbeat = seconds(document.test.heartbeat.as_secs_f64());
    let status = match document.status {
        Status::Complete => "complete",
        Status::Partial => "ended before its time",
    };
    let processes = match document.client.workers {
        1 => "process",
        _ => "processes",
    };
    let here = format!("{} {processes} here", count(document.client.workers.into()));
    let server = document.server.as_ref();
    let there = server.map(|server| format!("{} there", count(server.workers.into())));
    [
        Some(format!("over {}", document.family)),
        asked.map(|rate| format!("asked {}/s", count(rate))),
        Some(format!("a heartbeat on each every {heartbeat}, {status}")),
        Some(format!("{} in all", seconds(document.seconds))),
        named("closing", document.close_seconds, seconds),
        Some(joined([Some(here), there], ", ")),
        Some(format!("begun {}", document.started_at)),
    ]
}

fn named_pools(document: &CapacityDocument) -> impl Iterator<Item = (&'static str, &PoolResult)> {
    let tcp = document.tcp.as_ref().map(|pool| ("TCP connections", pool));
    let udp = document.udp.as_ref().map(|pool| ("UDP sockets", pool));
    tcp.into_iter().chain(udp)
}

fn pools(page: &mut Page, document: &CapacityDocument) {
    let each = |memory: Option<f64>| memory.map(|memory| bytes(memory.max(0.0).round() as u64));
    page.gap();
    page.table(&table! { named_pools(document), (name, pool) =>
        left "" => *name;
        right "asked" => pool.asked;
        right "opened" => pool.opened;
        right "alive" => pool.alive;
        right "lost" => pool.lost;
        right @3 ["opened", "in"] => pool.connect_seconds.map(seconds);
        right ["each", "second"] => pool.connect_per_s.map(digits);
        right @2 ["SYN", "retrans."] => pool.syn_retransmissions;
        right ["kernel", "each"] => each(pool.kernel_bytes_each);
        right @1 ["here", "each"] => each(pool.user_bytes_each);
        right @1 ["there", "each"] => each(pool.server_user_bytes_each);
    });
    let has_kernel = named_pools(document).any(|(_, pool)| pool.kernel_bytes_each.is_some());
    if has_kernel && document.environment.shared_kernel {
        page.plain("  kernel memory is that of both ends: they run on one kernel");
    }
}

/// Writes the causes of connections that were not opened or were lost.
fn trouble(page: &mut Page, name: &str, pool: &PoolResult) {
    for (what, list) in [("not opened", &pool.failures), ("lost", &pool.losses)] {
        let failure = |it: &Failure| format!("{} {}", count(it.count), it.cause.words());
        if let Some(failures) = some_joined(list.iter().map(failure), "; ") {
            page.doubt(&format!("{name} {what}: {failures}"));
        }
    }
}

/// Writes every latency that was measured.
fn times(page: &mut Page, document: &CapacityDocument) {
    let mut rows: Vec<(String, Option<&LatencySummary>)> = Vec::new();
    for (name, pool) in [("TCP", &document.tcp), ("UDP", &document.udp)] {
        let Some(pool) = pool else { continue };
        if let Some(connect) = &pool.connect_latency_us {
            rows.push((format!("{name} connect"), connect.first_try.as_ref()));
            let retransmitted = connect.retransmitted.as_ref();
            rows.push((format!("{name} connect, SYN retrans."), retransmitted));
        }
        let heartbeat = pool.heartbeat_latency_us.as_ref();
        rows.push((format!("{name} heartbeat"), heartbeat));
    }
    for at in &document.latency {
        let beside = format!("RTT with {} idle", count(at.population));
        rows.push((beside, Some(&at.latency_us)));
    }
    let load = document.load.as_ref();
    let latency = load.and_then(|load| load.latency_us.as_ref());
    rows.push(("load".to_owned(), latency));
    latencies(page, rows.iter().map(|(name, of)| (name.as_str(), *of)));
}

/// The median latency beside the most idle connections, compared with that beside the fewest.
fn beside(document: &CapacityDocument) -> Option<String> {
    let (first, last) = (document.latency.first()?, document.latency.last()?);
    if first.population == last.population || first.latency_us.p50 <= 0.0 {
        return None;
    }
    let change = 100.0 * (last.latency_us.p50 / first.latency_us.p50 - 1.0);
    let more = if change < 0.0 { "less" } else { "more" };
    let [few, many] = [first.population, last.population].map(count);
    Some(format!(
        "the median round trip of one is {} {more} beside {many} idle ones than beside {few}",
        percent(change.abs())
    ))
}

/// The number of processes, if a single one could not hold as many connections.
fn held_by(document: &CapacityDocument) -> Option<String> {
    let half = &document.client;
    let each = half.limits.descriptors_each.filter(|_| half.workers > 1)?;
    let (workers, each) = (count(half.workers.into()), count(each));
    Some(format!("{workers} processes here: one has at most {each} descriptors (ulimit -Hn)"))
}

fn load(document: &CapacityDocument) -> Vec<String> {
    let Some(load) = &document.load else {
        return Vec::new();
    };
    let mut facts = vec![
        with_unit(load.transactions_per_s, "trans/s"),
        format!("over {} connections at random", count(load.connections)),
        format!("{} transactions", count(load.transactions)),
    ];
    if let Some(asked) = &document.test.load {
        let [request, response] = [asked.request_bytes, asked.response_bytes];
        facts.push(format!("requests of {}", chosen_bytes(request.0)));
        facts.push(format!("responses of {}", chosen_bytes(response.0)));
        if let LoadPace::PerSecond(rate) = asked.pace {
            facts.push(format!("asked {} trans/s", count(rate)));
            facts.push(format!("{} waited for their connection", count(load.late)));
        }
    }
    facts
}

fn churn(document: &CapacityDocument) -> Option<String> {
    let churn = document.churn.as_ref()?;
    let [asked, closed, opened] = [churn.asked_per_s, churn.closed, churn.opened].map(count);
    let per_s = digits(churn.per_s);
    Some(format!("{per_s}/s of {asked}/s asked, {closed} closed, {opened} opened in their place"))
}

fn ends(document: &CapacityDocument) -> impl Iterator<Item = (&'static str, &CapacityHalf)> {
    let server = document.server.iter().map(|server| ("there", server));
    std::iter::once(("here", &document.client)).chain(server)
}

fn cpu(document: &CapacityDocument) -> Vec<String> {
    let figures = |(end, half): (&str, &CapacityHalf)| {
        let cpu = half.cpu_seconds;
        let [user, system] = [cpu.user, cpu.system].map(seconds);
        format!("{end} {user} user and {system} system")
    };
    ends(document).map(figures).collect()
}

/// Memory before, at the height and after, so that leaks are visible.
fn course(
    document: &CapacityDocument,
    figure: impl Fn(&MemoryReading) -> Option<u64>,
    words: impl Fn(u64) -> String,
) -> Vec<String> {
    let of_end = |(end, half): (&str, &CapacityHalf)| {
        let course = &half.memory;
        let [before, height, after] = [&course.before, &course.height, &course.after].map(&figure);
        let after = after.map(|after| format!(", {} after", words(after)));
        let [before, height] = [before?, height?].map(&words);
        let after = after.unwrap_or_default();
        Some(format!("{end} {before} before, {height} at the height{after}"))
    };
    let is_shared = document.environment.shared_kernel;
    let shown = if is_shared { 1 } else { 2 };
    ends(document).take(shown).filter_map(of_end).collect()
}

/// Writes what ended the test, or the limit that would come first.
fn verdict(page: &mut Page, document: &CapacityDocument) {
    page.gap();
    match (&document.stopped_by, &document.next_limit) {
        (Some(by), _) => stopped(page, by, noun(document)),
        (None, Some(next)) => coming(page, next, noun(document)),
        (None, None) => {}
    }
}

/// The unit that limits are counted in.
fn noun(document: &CapacityDocument) -> &'static str {
    let first = named_pools(document).next();
    first.map_or("connections", |(name, _)| name)
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
    let limit = format!("{}{}", name(next.limit), place(next.end));
    page.verdict(&format!("The next limit would be: {limit}, at {at} {noun}."));
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
fn table(page: &mut Page, document: &CapacityDocument) {
    let limits = document.limits.iter();
    let bounding = limits.filter(|row| row.would_stop_at.is_some());
    let bounds: Vec<&LimitRow> = bounding.take(MAX_ROWS).collect();
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

fn search(page: &mut Page, document: &CapacityDocument) {
    let Some(search) = &document.search else {
        return;
    };
    let found = match search.stops_at {
        Some(stops) => format!("holds {}, not {}", count(search.holds), count(stops)),
        None => format!("holds all {} that the search may try", count(search.most)),
    };
    let tried = search.rounds.iter().map(|round| {
        let held = (round.held < round.asked).then(|| format!("({} held)", count(round.held)));
        joined([Some(count(round.asked)), held], " ")
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

//! The page of `linerate check`.

use linerate_core::plan::Direction;
use linerate_core::record::{
    CaveatKind, Check, EndReport, HostFacts, Leg, Observed, PathFacts, Record, Status,
};
use linerate_core::remedy::{Name, shell_word};
use linerate_core::responsiveness::{Place, Queue, Responsiveness};
use linerate_core::stats::{Figure, LatencySummary};
use linerate_core::trace::HopDocument;

use super::evidence::{retransmitted, retransmitted_percent, service_demand_doubt};
use super::history::baseline;
use super::number::{
    count, digits, exact_bytes, if_known, joined, micros, named, percent, rate, some_joined,
};
use super::parts::{self, bars, caveats, emulated, figure, held, latencies};
use crate::document::{Document, Ending, Rate, Surroundings};
use crate::page::{Emphasis, Page, table};

impl Document for Check {
    /// For each direction: the rate, the ceilings, the bottleneck and the remedy; then the path,
    /// the hosts and the evidence. Without details, as many ceilings as fit on a screen.
    fn page(&self, page: &mut Page) {
        page.fit_screen();
        page.heading(&headline(self));
        in_short(page, self);
        let ways = [
            (Direction::Up, &self.up, &self.up_throughput_bps),
            (Direction::Down, &self.down, &self.down_throughput_bps),
        ];
        for (direction, record, runs) in ways {
            let leg = record.iter().find_map(Record::leg);
            leg.into_iter().for_each(|leg| explanation(page, direction, leg, runs.as_ref(), self));
        }
        hidden_fault(page, self);
        let records: Vec<&Record> = self.up.iter().chain(&self.down).collect();
        if page.has_details() {
            page.gap();
            path(page, self);
            route(page, self);
            hosts(page, self);
            throughputs(page, &records);
            latency(page, self);
            responsiveness_table(page, self);
        }
        baseline(page, self.baseline.as_ref());
        let of_runs = records.iter().flat_map(|record| &record.caveats);
        caveats(page, self.caveats.iter().chain(of_runs));
    }

    fn answer(&self) -> String {
        let runs = [(Direction::Down, &self.down), (Direction::Up, &self.up)];
        let ways = runs.into_iter().filter_map(|(direction, record)| {
            let held = if_known(held("", record.as_ref()?.leg()?), |held| format!(" ({held})"));
            let reached = rate(self.throughput_bps(direction)?);
            Some(format!("{} {reached}{held}", direction.word()))
        });
        let not_measured = || "throughput was not measured".to_owned();
        format!("{}: {}", self.host, some_joined(ways, ", ").unwrap_or_else(not_measured))
    }

    fn observed(&self) -> Observed {
        Observed::check(self)
    }

    fn records(&self) -> Option<Vec<&Record>> {
        Some(self.up.iter().chain(&self.down).collect())
    }

    fn records_mut(&mut self) -> Vec<&mut Record> {
        self.up.iter_mut().chain(&mut self.down).collect()
    }

    fn environments_mut(&mut self) -> Vec<Surroundings<'_>> {
        let records = self.up.iter_mut().chain(&mut self.down);
        let runs = records.map(|record| (&mut record.environment, &mut record.caveats));
        let own = (&mut self.environment, &mut self.caveats);
        runs.chain([own]).collect()
    }

    fn endings(&self) -> Vec<Ending<'_>> {
        vec![(self.status, &self.caveats)]
    }

    fn throughputs(&self) -> Option<Vec<Rate<'_>>> {
        let directions = [Direction::Up, Direction::Down];
        let rate = |direction: Direction| (direction.word(), self.throughput_bps(direction));
        Some(directions.map(rate).to_vec())
    }
}

/// Writes what was wrong with the demonstration's path, now that it is over.
fn hidden_fault(page: &mut Page, check: &Check) {
    let Some(fault) = &check.hidden_fault else {
        return;
    };
    let measured = match fault.direction {
        Direction::Down => &check.down,
        _ => &check.up,
    };
    let (direction, what) = (fault.direction.word(), &fault.description);
    let words = match (measured, fault.found) {
        (None, _) => ": not looked for, its direction was not measured.".to_owned(),
        (_, true) => format!(", {direction}: found. {what}"),
        (_, false) => format!(", {direction}: NOT FOUND. {what}"),
    };
    page.gap();
    page.heading(&format!("Hidden fault{words}"));
}

/// Writes what the path is like without load.
fn in_short(page: &mut Page, check: &Check) {
    let path = &check.path;
    let idle = named("idle latency", check.idle_latency_us.as_ref(), |idle| {
        let p99 = (idle.count >= 100).then(|| format!(" (p99 {})", micros(idle.p99)));
        micros(idle.p50) + &p99.unwrap_or_default()
    });
    let is_whole = check.loaded_latency_by_direction_us.is_empty();
    let loaded = check.loaded_latency_us.as_ref().filter(|_| is_whole);
    let mtu_bytes = path.pmtu_bytes.or(path.device_mtu_bytes);
    let facts = [
        idle,
        named("loaded", loaded.map(|all| all.p50), micros),
        named("path MTU", mtu_bytes, exact_bytes),
        mss(path, ", NOT ", ""),
    ];
    page.indented(&joined(facts, ", "));
    if check.hidden_fault.is_none() {
        // In a demonstration this would give the fault away.
        emulated(page, &check.environment);
    }
}

/// The MSS, and the one that the MTU carries if that is larger, between `before` and `after`.
fn mss(path: &PathFacts, before: &str, after: &str) -> Option<String> {
    let expected = larger_mss(path).map(|size| format!("{before}{}{after}", exact_bytes(size)));
    named("MSS", path.mss_bytes, |mss| exact_bytes(mss) + &expected.unwrap_or_default())
}

/// The MSS that the MTU allows, if the path's is smaller. TCP limits a segment to half of a 64 KiB
/// window, and a device may round: a few bytes are no sign of a fault.
fn larger_mss(path: &PathFacts) -> Option<u32> {
    let expected = path.mss_expected_bytes?;
    let least = expected.saturating_sub(FEW_BYTES).min(HALF_WINDOW);
    path.mss_bytes.filter(|mss| *mss < least).map(|_| expected)
}

fn headline(check: &Check) -> String {
    let what = match check.hidden_fault {
        Some(_) => "demonstration on an emulated path".to_owned(),
        None => format!("check of {}", check.host),
    };
    let mut kinds = check.caveats.iter().map(|caveat| caveat.kind);
    let is_quick = kinds.any(|kind| kind == CaveatKind::FewRuns);
    let remarks = [
        (check.one_sided, ", from this end alone"),
        (is_quick, ", in short (RPM: without --quick)"),
        (check.status == Status::Partial, ", STOPPED EARLY"),
    ];
    let holding = remarks.into_iter().filter(|(holds, _)| *holds);
    what + &holding.map(|(_, remark)| remark).collect::<String>()
}

/// Writes the hops with their smallest RTT, the end of the path if it is not the endpoint, and
/// where delay is added.
fn route(page: &mut Page, check: &Check) {
    let Some(route) = &check.route else { return };
    let hop = |hop: &HopDocument| {
        let who = match (&hop.name, hop.address) {
            (Some(name), _) => name.clone(),
            (None, Some(address)) => address.to_string(),
            (None, None) => "silent".to_owned(),
        };
        let least = hop.rtt_us.iter().copied().min_by(f64::total_cmp);
        joined([Some(format!("{} {who}", hop.ttl)), least.map(micros)], " ")
    };
    page.facts("route", route.hops.iter().map(hop));
    let end = (!route.reached).then(|| route.end_words.clone());
    let first = route.delay.words.first().filter(|_| route.hops.len() > 1);
    let largest = first.map(|words| words.trim_end_matches('.').to_owned());
    page.facts("", end.into_iter().chain(largest));
}

fn path(page: &mut Page, check: &Check) {
    let path = &check.path;
    let is_named = !path.addresses.is_empty() && path.addresses != [check.host.as_str()];
    let addresses = is_named.then(|| format!("→ {}", path.addresses.join(" ")));
    let way = [
        Some(check.host.clone()),
        addresses,
        named("by", path.device.clone(), |name| name),
        named("from", path.source.clone(), |name| name),
        named("through", path.gateway.clone(), |name| name),
    ];
    let connects = named("connects in", path.connect_us, micros);
    page.facts("path", [Some(joined(way, " ")), connects]);
    let sizes = [
        named("MTU", path.device_mtu_bytes, exact_bytes),
        named("path MTU", path.pmtu_bytes, exact_bytes),
        mss(path, ", SMALLER than the ", " that this MTU carries"),
    ];
    page.facts("sizes", sizes);
    let metric = |(name, value): (&String, _)| format!("{name} {value}");
    page.facts("route has", path.route_metrics.iter().map(metric));
}

/// Less than the header of any tunnel or option.
const FEW_BYTES: u32 = 4;

/// Largest segment that every connection can be expected to use (`tcp_bound_to_half_wnd`,
/// net/ipv4/tcp.h).
const HALF_WINDOW: u32 = 32_768;

fn hosts(page: &mut Page, check: &Check) {
    let (one, environment) = (check.environment.shared_kernel, &check.environment);
    let this = if one { "both ends" } else { "this end" };
    page.facts(this, host_facts(&environment.client));
    let server = environment.server.iter().filter(|_| !one);
    page.facts("far end", server.flat_map(host_facts));
}

fn host_facts(host: &HostFacts) -> [Option<String>; 5] {
    let known = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let device = host.device.as_ref().map(|device| {
        let speed = device.speed_bps.map(|bps| rate(bps as f64));
        joined([Some(device.name.clone()), speed], " ")
    });
    [
        known(&host.hostname),
        named("Linux", known(&host.kernel), |kernel| kernel),
        (host.cpu.count > 0).then(|| format!("{} CPUs", host.cpu.count)),
        host.congestion.clone(),
        device,
    ]
}

fn throughputs(page: &mut Page, records: &[&Record]) {
    let of_one_leg = records.iter().filter_map(|of| Some((*of, of.leg()?)));
    let legs: Vec<(&Record, &Leg)> = of_one_leg.collect();
    let doubt_of = |(of, leg): &(&Record, &Leg)| service_demand_doubt(of, leg);
    let doubt = legs.iter().find_map(doubt_of);
    let demand = |record: &Record, leg: &Leg, end: &Option<EndReport>| {
        let of_host = end.as_ref()?.service_demand_us_per_kib;
        let is_meaningful = service_demand_doubt(record, leg).is_none();
        of_host.filter(|_| is_meaningful).map(digits)
    };
    let core = |end: &Option<EndReport>| end.as_ref()?.busiest_core_percent.map(digits);
    page.gap();
    page.table(&table! { legs, (record, leg) =>
        left "" => leg.direction.word();
        right ["RTT", "min"] => micros(leg.tcp_sender()?.rtt_min_us?.into());
        right ["", "mean"] => micros(leg.tcp_sender()?.rtt_mean_us.into());
        right ["sent", "again"] => leg.tcp.as_ref()?.retransmitted_segments();
        right ["", "share"] => retransmitted_percent(leg.tcp_sender()?).map(percent);
        right ["time-", "outs"] => leg.tcp_sender()?.timeouts;
        right ["core %", "send"] => core(&leg.sender);
        right ["", "recv"] => core(&leg.receiver);
        right ["µs/KiB", "send"] => demand(record, leg, &leg.sender);
        right ["", "recv"] => demand(record, leg, &leg.receiver);
    });
    if let Some(doubt) = doubt {
        page.plain(&format!("  host's service demand {doubt}"));
    }
}

fn latency(page: &mut Page, check: &Check) {
    let idle = check.idle_latency_us.as_ref();
    let loaded = loaded(check);
    let rows = loaded.iter().map(|&(name, latency)| (name, Some(latency)));
    latencies(page, std::iter::once(("idle", idle)).chain(rows));
    let idle = idle.filter(|idle| idle.p50 > 0.0);
    let grown = |(name, loaded): &(&str, &LatencySummary)| {
        let (more, times) = (loaded.p50 - idle?.p50, digits(loaded.p50 / idle?.p50));
        let sign = if more < 0.0 { "-" } else { "+" };
        let more = micros(more.abs());
        Some(format!("{name} {sign}{more} ({times} times idle)"))
    };
    page.facts("median is", loaded.iter().map(grown));
}

/// Latency under load by direction where it is known, else the larger of both.
fn loaded(check: &Check) -> Vec<(&'static str, &LatencySummary)> {
    let by = &check.loaded_latency_by_direction_us;
    let parts = [("loaded up", by.get("up")), ("loaded down", by.get("down"))];
    let known = |(name, latency)| Some((name, latency?));
    let parts: Vec<_> = parts.into_iter().filter_map(known).collect();
    if parts.is_empty() {
        let whole = ("loaded", check.loaded_latency_us.as_ref());
        return known(whole).into_iter().collect();
    }
    parts
}

/// `latency 268 ms under load (9.21 times idle)`
fn under_load(check: &Check, direction: &str) -> Option<String> {
    let loaded = check.loaded_latency_by_direction_us.get(direction)?.p50;
    let idle = check.idle_latency_us.as_ref().map(|idle| loaded / idle.p50);
    let noticeable = idle.filter(|times| times.is_finite() && *times >= NOTICEABLE);
    let times = if_known(noticeable, |times| format!(" ({} times idle)", digits(times)));
    Some(format!("latency {} under load{times}", micros(loaded)))
}

/// `187 RPM under load, grade D (+239 ms)`
fn responsiveness(found: &Responsiveness) -> String {
    let doubt = if found.stable { "" } else { ", not stable" };
    let (rpm, added) = (count(found.rpm.round() as u64), micros(found.added_us));
    let grade = found.grade.letter();
    format!("{rpm} RPM under load, grade {grade} (+{added}{doubt})")
}

/// `on the path 239 ms, in the sender's socket 30.1 ms (120,000 B a flow)`
fn queue(queue: &Queue) -> String {
    let place = match queue.place {
        Place::SendSocket => "unsent in the sender's socket",
        Place::SendQdisc => "in the sender's queueing discipline",
        Place::Path => "on the path",
        Place::ReceiveSocket => "unread in the receiver's socket",
    };
    let bytes = queue.bytes.map(|bytes| format!("({})", exact_bytes(bytes)));
    let delay = format!("{place} {}", micros(queue.delay_us));
    joined([Some(delay), bytes], " ")
}

/// Writes what the round trips per minute consist of, where packets of the loaded flows wait, and
/// what helps.
fn responsiveness_table(page: &mut Page, check: &Check) {
    page.gap();
    page.table(&table! { check.responsiveness.iter().rev(), (direction, found) =>
        left "load" => direction.as_str();
        right "flows" => u64::from(found.flows);
        right ["", "rate"] => rate(found.throughput_bps);
        right ["connect", "idle"] => micros(found.idle_us);
        right ["", "loaded"] => micros(found.connect_us);
        right ["request", "loaded"] => micros(found.request_us);
        right ["on loaded", "flow"] => found.loaded_flow_us.map(micros);
        right "probes" => found.probes;
        right "RPM" => found.rpm.round() as u64;
    });
    for (direction, found) in check.responsiveness.iter().rev() {
        page.facts(&format!("{direction} waits"), found.queues.iter().map(queue));
        let remedies = found.queues.iter().filter_map(|queue| queue.remedy.clone());
        remedies.for_each(|remedy| page.command(&remedy.typed(None).command));
    }
    for (direction, found) in check.outcomes.iter().rev() {
        page.facts(&format!("QoO {direction}"), [parts::qoo([found])]);
    }
}

/// Smallest growth of latency under load that is mentioned, as a multiple of the idle latency.
const NOTICEABLE: f64 = 1.1;

/// Writes the rate of a direction, the reason for it, and what would make it faster.
fn explanation(page: &mut Page, way: Direction, leg: &Leg, runs: Option<&Figure>, check: &Check) {
    let name = way.word();
    let over_runs = runs.map(|runs| figure(runs, rate));
    let reached = over_runs.or(leg.throughput_bps.map(rate));
    let mut facts = vec![reached.unwrap_or_else(|| "no figure".to_owned())];
    facts.extend(leg.tcp.as_ref().and_then(retransmitted));
    let responsive = check.responsiveness.get(name).map(responsiveness);
    facts.extend(responsive.or_else(|| under_load(check, name)));
    page.gap();
    page.paragraph(Emphasis::Strong, name, 6, &facts.join(", "));
    if page.has_details() {
        parts::ceilings(page, &leg.ceilings, leg.throughput_bps, usize::MAX);
    } else {
        bars(page, leg);
    }
    parts::verdict(page, Some(way), leg);
    // The demonstration's hosts, whose settings were its fault, no longer exist.
    let verdict = leg.verdict.as_ref();
    let has_remedy = verdict.is_some_and(|found| found.remedy.is_some());
    if page.has_details() && has_remedy && check.hidden_fault.is_none() {
        proof(page, name, check);
    }
}

/// Writes commands for the same test before and after the remedy, with as many runs as an interval
/// of the median needs.
fn proof(page: &mut Page, direction: &str, check: &Check) {
    let target = match &check.environment.lab {
        Some(lab) => format!("--lab {}", shell_word(&lab.spec)),
        None => shell_word(Name::new(&check.host).map_or("HOST", |_| &check.host)),
    };
    page.plain("  To prove it, run the first of these, apply the remedy, run the second:");
    for when in ["before", "after"] {
        page.command(&format!(
            "linerate stream {target} --direction {direction} --repeat {RUNS} --output \
             {direction}-{when}.json"
        ));
    }
}

/// The fewest runs whose range covers the median with 95 %: 1 − 2·½⁶ = 97 %.
const RUNS: u32 = 6;

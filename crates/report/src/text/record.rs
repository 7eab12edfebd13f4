//! The page of one run.

use linerate_core::one_way::OneWay;
use linerate_core::plan::{Direction, Extent, Protocol, Traffic, Workload};
use linerate_core::record::{EndReport, FlowRecord, Leg, Observed, Record, Status, TcpSender};
use linerate_core::stats::LatencySummary;

use super::evidence::{self, service_demand_doubt, share_percent};
use super::history::baseline;
use super::number::{
    bytes, chosen_bytes, count, counted, digits, ends, if_known, joined, micros, named, percent,
    plural, rate, seconds, span, with_unit,
};
use super::parts::{
    caveats, ceilings, clock, emulated, held, latencies, single_figure, traffic_and_peer, verdict,
    video,
};
use crate::document::{Document, Rate};
use crate::page::{Emphasis, Page, table};

impl Document for Record {
    /// The rate, the bottleneck and the remedy; then the evidence of both kernels.
    fn page(&self, page: &mut Page) {
        answer(page, self);
        if page.has_details() {
            evidence_of(page, self);
        }
        baseline(page, self.baseline.as_ref());
        caveats(page, &self.caveats);
    }

    fn answer(&self) -> String {
        let way = match (self.workload, self.direction) {
            (Workload::Stream, Direction::Up) => "up to",
            (Workload::Stream, Direction::Down) => "down from",
            _ => "with",
        };
        let of_two = self.legs.len() > 1;
        let held = self.legs.iter().filter_map(|leg| {
            let name = if of_two { leg.direction.word() } else { "" };
            Some(format!("; {}", held(name, leg)?))
        });
        let (figure, held) = (single_figure(self), joined(held, ""));
        format!("{figure} {way} {}{held}", self.host)
    }

    fn observed(&self) -> Observed {
        Observed::runs([self])
    }

    fn records(&self) -> Option<Vec<&Record>> {
        Some(vec![self])
    }

    fn records_mut(&mut self) -> Vec<&mut Record> {
        vec![self]
    }

    fn throughputs(&self) -> Option<Vec<Rate<'_>>> {
        let legs = self.legs.iter();
        let named = legs.map(|leg| (leg.direction.word(), leg.throughput_bps));
        Some(match self.leg() {
            Some(only) => vec![("throughput", only.throughput_bps)],
            None => named.collect(),
        })
    }
}

fn answer(page: &mut Page, record: &Record) {
    let legs = &record.legs;
    page.heading(&headline(record));
    if record.workload != Workload::Stream {
        exchange_facts(page, record);
    }
    for leg in legs {
        let mut facts = evidence::in_short(leg);
        facts.extend(leg.tcp_sender().and_then(|tcp| tcp.congestion.clone()));
        facts.extend(slowest_and_fastest(record.flows_of(leg)));
        if legs.len() > 1 {
            facts.insert(0, leg.throughput_bps.map(rate).unwrap_or_default());
            let name = format!("  {}", leg.direction.word());
            page.paragraph(Emphasis::None, &name, 8, &facts.join(", "));
        } else if !facts.is_empty() {
            page.indented(&facts.join(", "));
        }
    }
    emulated(page, &record.environment);
    if legs.iter().any(|leg| leg.verdict.is_some()) {
        page.gap();
    }
    for leg in legs {
        verdict(page, (legs.len() > 1).then_some(leg.direction), leg);
    }
}

/// Writes the latencies of requests, and the requests without an answer.
fn exchange_facts(page: &mut Page, record: &Record) {
    let latency = record.latency_us.iter().flat_map(|all| {
        let quantiles = [
            ("latency p50", all.p50, 0),
            ("p90", all.p90, 10),
            ("p99", all.p99, 100),
            ("max", all.max, 1),
        ];
        let known = quantiles.into_iter().filter(|(.., least)| all.count >= *least);
        known.map(|(name, us, _)| format!("{name} {}", micros(us)))
    });
    page.indented(&joined(latency, ", "));
    let bad =
        [counted(record.failed, "failed"), counted(record.requests_not_sent, "due and not sent")];
    let facts = plan_facts(record).into_iter().map(Some).chain(bad);
    page.indented(&joined(facts, ", "));
    if let Some(all) = &record.page_us {
        let [median, max] = [all.p50, all.max].map(micros);
        let pages = plural(all.count, "page");
        page.indented(&format!("{pages}: median {median}, max {max}"));
    }
    if let Some(played) = &record.video {
        page.indented(&video(played).join(", "));
    }
    let ways = record.one_way.iter().flat_map(one_way);
    ways.for_each(|facts| page.indented(&facts));
}

/// `up p50 10.1 ms, max 12.2 ms, 1 lost`, and the same down; what both owe to the clocks.
fn one_way(ways: &OneWay) -> [String; 3] {
    let way = |name, delay: &LatencySummary, lost: Option<u64>| {
        let [p50, max] = [delay.p50, delay.max].map(micros);
        let lost = lost.map(|lost| format!("{} lost", count(lost)));
        joined([Some(format!("{name} p50 {p50}, max {max}")), lost], ", ")
    };
    [
        way("up", &ways.up_us, ways.up_lost),
        way("down", &ways.down_us, ways.down_lost),
        clock(&ways.clock),
    ]
}

/// `flows 1.20 – 3.40 Mbit/s`, where there are several.
fn slowest_and_fastest<'a>(flows: impl Iterator<Item = &'a FlowRecord>) -> Option<String> {
    let rates: Vec<f64> = flows.map(|flow| flow.throughput_bps).collect();
    let [low, high] = ends(rates.iter().copied()).map(rate);
    (rates.len() > 1).then(|| format!("flows {}", span(&low, &high, "–")))
}

/// Writes the evidence of both kernels.
fn evidence_of(page: &mut Page, record: &Record) {
    let legs = &record.legs;
    page.gap();
    page.facts("run", run_facts(record));
    for leg in legs {
        if legs.len() > 1 {
            page.gap();
            page.title(leg.direction.word());
        }
        direction(page, record, leg);
    }
    let ways = record.one_way.as_ref();
    let rows = [
        ("latency", record.latency_us.as_ref()),
        ("send lag", record.send_lag_us.as_ref()),
        ("page", record.page_us.as_ref()),
        ("up", ways.map(|ways| &ways.up_us)),
        ("down", ways.map(|ways| &ways.down_us)),
    ];
    latencies(page, rows);
}

/// `13.9 Mbit/s: TCP up to pit.example (198.18.0.2:5201), 10.0 s, 1 flow`
fn headline(record: &Record) -> String {
    let reached = match record.legs.len() {
        2 => String::new(),
        _ => format!("{}{}: ", single_figure(record), lost(record)),
    };
    let mut time = seconds(record.seconds);
    if record.status == Status::Partial {
        let of = match record.plan.extent {
            Extent::Time(asked) => format!(" of {}", seconds(asked.as_secs_f64())),
            _ => String::new(),
        };
        time += &format!("{of}, STOPPED EARLY");
    }
    let flows = plural(record.plan.flows().into(), "flow");
    format!("{reached}{}, {time}, {flows}", traffic_and_peer(record))
}

/// `, 3.20 % lost`, of datagrams.
fn lost(record: &Record) -> String {
    let udp = record.leg().and_then(|leg| leg.udp.as_ref());
    let lost = udp.filter(|udp| udp.lost > 0);
    if_known(lost, |udp| format!(", {} lost", percent(share_percent(udp.lost, udp.sent))))
}

/// Amount and time of the run, and its plan.
fn run_facts(record: &Record) -> Vec<String> {
    let received = Some(record.bytes())
        .filter(|received| *received > 0)
        .map(|received| format!("{} in", bytes(received)));
    let mut facts = vec![joined([received, Some(seconds(record.seconds))], " ")];
    facts.extend(plan_facts(record));
    let counted = [
        (record.transactions, "transactions"),
        (record.failed, "failed"),
        (record.requests_not_sent, "due and not sent"),
        (record.corrupted_bytes, "bytes changed on the way"),
    ];
    for (figure, what) in counted {
        facts.extend(figure.map(|n| format!("{} {what}", count(n))));
    }
    facts.push(format!("over {}", record.family));
    facts.push(format!("begun {}", record.started_at));
    facts
}

/// Amount and message sizes of the test.
fn plan_facts(record: &Record) -> Vec<String> {
    match &record.plan.traffic {
        Traffic::Stream(stream) => {
            let pieces = match record.protocol {
                Protocol::Udp => "datagrams",
                Protocol::Tcp | Protocol::Mptcp => "messages",
            };
            let size = chosen_bytes(stream.message_bytes);
            let pieces = format!("{pieces} of {size}");
            vec![joined([record.messages.map(count), Some(pieces)], " ")]
        }
        Traffic::Rr(exchange) | Traffic::Crr(exchange) => {
            let depth = exchange.depth;
            let asked = exchange.rate_per_s;
            let facts = [
                named("requests of", Some(exchange.request_bytes), chosen_bytes),
                named("responses of", Some(exchange.response_bytes), chosen_bytes),
                (depth > 1).then(|| format!("{depth} at once")),
                named("asked", asked, |n| with_unit(n, "trans/s")),
            ];
            facts.into_iter().flatten().collect()
        }
    }
}

/// Writes what both ends counted of one direction.
fn direction(page: &mut Page, record: &Record, leg: &Leg) {
    page.facts("intervals", interval_facts(record, leg));
    evidence::write(page, leg.tcp.as_ref(), leg.udp.as_ref());
    flows(page, record.flows_of(leg).collect());
    cpu_of_ends(page, record, leg);
    page.gap();
    ceilings(page, &leg.ceilings, leg.throughput_bps, usize::MAX);
}

/// The spread of the intervals within the run.
fn interval_facts(record: &Record, leg: &Leg) -> Vec<String> {
    let mut intervals: Vec<_> = record.intervals_of(leg).collect();
    if intervals.len() < 2 || leg.throughput_bps.is_none() {
        return Vec::new();
    }
    intervals.sort_by(|a, b| a.throughput_bps.total_cmp(&b.throughput_bps));
    let number = intervals.len();
    let [slowest, fastest] = [intervals[0], intervals[number - 1]]
        .map(|it| format!("{} at {}", rate(it.throughput_bps), seconds(it.start_s)));
    let figures = [("slowest", slowest), ("fastest", fastest)].map(|(is, it)| format!("{is} {it}"));
    [vec![format!("{number} of them")], figures.to_vec()].concat()
}

/// Writes a row for each flow if there are several; of many flows, the slowest and the fastest.
fn flows(page: &mut Page, flows: Vec<&FlowRecord>) {
    let mut ranked = flows;
    if ranked.len() < 2 {
        return;
    }
    let left_out = ranked.len().saturating_sub(2 * MAX_FLOWS);
    if left_out > 0 {
        ranked.sort_by(|a, b| a.throughput_bps.total_cmp(&b.throughput_bps));
        ranked.drain(MAX_FLOWS..MAX_FLOWS + left_out);
    }
    page.gap();
    page.table(&table! { ranked, flow =>
        right "flow" => flow.id.to_string();
        right "throughput" => rate(flow.throughput_bps);
        right "mean RTT" => micros(sender(flow)?.rtt_mean_us.into());
        right "retransmitted" => flow.tcp.as_ref()?.retransmitted_segments();
        right ["congestion", "window"] => bytes(sender(flow)?.cwnd_bytes);
        right ["receive", "window"] => sender(flow)?.send_window_bytes.map(bytes);
        right "lost" => flow.udp.as_ref()?.lost;
        right "jitter" => micros(flow.udp.as_ref()?.jitter_us);
        left "from and to" => format!("{} {}", flow.local, flow.remote);
    });
    if left_out > 0 {
        page.plain(&format!(
            "  the slowest and the fastest; {left_out} flows between them in the JSON"
        ));
    }
}

fn sender(flow: &FlowRecord) -> Option<&TcpSender> {
    flow.tcp.as_ref()?.sender()
}

/// If there are more than twice as many flows, this many of the slowest and of the fastest are
/// shown.
const MAX_FLOWS: usize = 8;

/// Writes the CPU time of both ends.
fn cpu_of_ends(page: &mut Page, record: &Record, leg: &Leg) {
    let [first, second] = match record.workload {
        Workload::Stream => ["sender", "receiver"],
        Workload::Rr | Workload::Crr => ["client", "endpoint"],
    };
    let both = [(first, &leg.sender), (second, &leg.receiver)].into_iter();
    let ends = both.filter_map(|(name, end)| Some((name, end.as_ref()?)));
    let doubt = service_demand_doubt(record, leg).filter(|_| leg.ends().next().is_some());
    let host_demand = |end: &EndReport| end.service_demand_us_per_kib.filter(|_| doubt.is_none());
    page.gap();
    page.table(&table! { ends, (name, end) =>
        left "CPU" => *name;
        right ["host", "%"] => end.host_cpu_percent.map(digits);
        right ["max", "core", "%"] => end.busiest_core_percent.map(digits);
        right ["max", "thread", "%"] => end.busiest_thread_percent.map(digits);
        right ["steal", "%"] => end.steal_percent.map(digits);
        right ["user", "s"] => digits(end.cpu_seconds.user);
        right ["system", "s"] => digits(end.cpu_seconds.system);
        right ["soft", "irq s"] => end.softirq_seconds.map(digits);
        right ["host", "µs/KiB"] => host_demand(end).map(digits);
        right ["thread", "µs/KiB"] => end.service_demand_threads_us_per_kib.map(digits);
        left "by" => end.method.clone();
    });
    if let Some(doubt) = doubt {
        page.plain(&format!("  host's service demand {doubt}"));
    }
}

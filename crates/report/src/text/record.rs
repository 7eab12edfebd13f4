//! One run on one screen.

use linerate_core::plan::{Direction, Extent, Protocol, Traffic, Workload};
use linerate_core::record::{EndReport, Environment, FlowRecord, Leg, Record, Status};
use linerate_core::stats::LatencySummary;

use super::Style;
use super::ceilings::{caveats, ceilings, verdict};
use super::evidence::{self, service_demand_doubt};
use super::number::{bytes, chosen_bytes, count, digits, micros, rate, seconds, with_unit};
use super::page::Page;
use super::table::Table;
use crate::document::{Document, Rate};

impl Document for Record {
    /// A record as a screen: what was reached, what both kernels say about it, what holds it back, and
    /// what to do.
    fn text(&self, style: Style) -> String {
        let mut page = Page::new(style);
        let legs = &self.legs;
        page.heading(&headline(self));
        page.facts("run", &run_facts(self));
        emulated(&mut page, &self.environment);
        for leg in legs {
            if legs.len() > 1 {
                page.gap();
                let reached = leg.throughput_bps.map(rate).unwrap_or_default();
                let title = format!("{} {reached}", direction_name(leg.direction));
                page.title(&title);
            }
            direction(&mut page, self, leg);
        }
        latencies(
            &mut page,
            [
                ("latency", self.latency_us.as_ref()),
                ("send lag", self.send_lag_us.as_ref()),
            ],
        );
        for leg in legs {
            let named = (legs.len() > 1).then_some(leg.direction);
            if let Some(found) = &leg.verdict {
                verdict(&mut page, named, found, &leg.ceilings);
            }
        }
        caveats(&mut page, &self.caveats);
        page.finish()
    }

    fn records(&self) -> Option<Vec<&Record>> {
        Some(vec![self])
    }

    fn records_mut(&mut self) -> Vec<&mut Record> {
        vec![self]
    }

    fn throughputs(&self) -> Option<Vec<Rate<'_>>> {
        let legs = self.legs.iter();
        let named = legs.map(|leg| (leg.direction.name(), leg.throughput_bps));
        Some(match self.leg() {
            Some(only) => vec![("throughput", only.throughput_bps)],
            None => named.collect(),
        })
    }
}

/// The path, where it was emulated.
pub(super) fn emulated(page: &mut Page, environment: &Environment) {
    let spec = environment.lab.iter().map(|lab| lab.spec.clone());
    page.facts("emulated", &spec.collect::<Vec<_>>());
}

/// What was reached, by what, with whom.
fn headline(record: &Record) -> String {
    let reached = match record.legs.as_slice() {
        [up, down] => [up, down]
            .map(|leg| {
                let reached = leg.throughput_bps.map(rate).unwrap_or_default();
                format!("{reached} {}", direction_name(leg.direction))
            })
            .join(" and "),
        _ => single_figure(record),
    };
    format!("{reached}, {}", traffic_and_peer(record))
}

fn single_figure(record: &Record) -> String {
    let per_second = match record.workload {
        Workload::Stream => None,
        Workload::Rr => record.transactions_per_s.map(|n| with_unit(n, "trans/s")),
        Workload::Crr => record.connections_per_s.map(|n| with_unit(n, "conn/s")),
    };
    per_second
        .or_else(|| record.throughput_bps().map(rate))
        .unwrap_or_else(|| "no figure".to_owned())
}

/// `stream, TCP over IPv4, to pit.example (198.18.0.2:5201)`; with another tool at the other end
/// `…:5201, iperf3)`, and where that was the client `…:5201), for iperf3`.
pub(super) fn traffic_and_peer(record: &Record) -> String {
    let family = record.family;
    let (server, client) = match (record.via, record.served) {
        (None, _) => (String::new(), String::new()),
        (Some(tool), false) => (format!(", {tool}"), String::new()),
        (Some(tool), true) => (String::new(), format!(", for {tool}")),
    };
    format!(
        "{}, {} over {family}, {} {} ({}{server}){client}",
        workload_name(record.workload),
        protocol_name(record.protocol),
        towards(record.direction),
        record.host,
        record.peer
    )
}

pub(super) fn workload_name(workload: Workload) -> &'static str {
    match workload {
        Workload::Stream => "stream",
        Workload::Rr => "request/response",
        Workload::Crr => "connect/request/response",
    }
}

pub(super) fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Mptcp => "MPTCP",
    }
}

/// Which way the payload goes, seen from the client.
pub(super) fn towards(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "to",
        Direction::Down => "from",
        Direction::Both => "to and from",
    }
}

pub(super) fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "up",
        Direction::Down => "down",
        Direction::Both => "both",
    }
}

/// How much was sent in what time, by which plan, and whether it came to its end.
fn run_facts(record: &Record) -> Vec<String> {
    let time = seconds(record.seconds);
    let mut facts = vec![match record.bytes() {
        0 => time,
        received => format!("{} in {time}", bytes(received)),
    }];
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
    facts.push(match (record.status, record.plan.extent) {
        (Status::Complete, _) => "complete".to_owned(),
        (Status::Partial, Extent::Time(time)) => {
            format!("STOPPED EARLY of {}", seconds(time.as_secs_f64()))
        }
        (Status::Partial, _) => "STOPPED EARLY".to_owned(),
    });
    facts.push(format!("begun {}", record.started_at));
    facts
}

/// What was sent, in which pieces.
fn plan_facts(record: &Record) -> Vec<String> {
    let mut facts = Vec::new();
    match &record.plan.traffic {
        Traffic::Stream(stream) => {
            let pieces = match record.protocol {
                Protocol::Udp => "datagrams",
                Protocol::Tcp | Protocol::Mptcp => "messages",
            };
            let number = record.messages.map(|n| format!("{} ", count(n)));
            let size = chosen_bytes(stream.message_bytes);
            facts.push(format!("{}{pieces} of {size}", number.unwrap_or_default()));
        }
        Traffic::Rr(exchange) | Traffic::Crr(exchange) => {
            facts.push(format!(
                "requests of {}",
                chosen_bytes(exchange.request_bytes)
            ));
            facts.push(format!(
                "responses of {}",
                chosen_bytes(exchange.response_bytes)
            ));
            if exchange.depth > 1 {
                facts.push(format!("{} at once", exchange.depth));
            }
            let open = exchange.rate_per_s;
            facts.extend(open.map(|n| format!("asked {}", with_unit(n, "trans/s"))));
        }
    }
    if record.plan.flows() > 1 {
        facts.push(format!("{} flows", record.plan.flows()));
    }
    facts
}

/// What both ends counted of one direction.
fn direction(page: &mut Page, record: &Record, leg: &Leg) {
    page.facts("intervals", &interval_facts(record, leg));
    tcp(page, leg);
    udp(page, leg);
    let own: Vec<&FlowRecord> = record.flows_of(leg).collect();
    flows(page, &own);
    ends(page, record, leg);
    if !leg.ceilings.is_empty() {
        page.gap();
    }
    ceilings(page, &leg.ceilings, leg.throughput_bps, usize::MAX);
}

/// The spread within the run.
fn interval_facts(record: &Record, leg: &Leg) -> Vec<String> {
    let mut intervals: Vec<_> = record.intervals_of(leg).collect();
    if intervals.len() < 2 || leg.throughput_bps.is_none() {
        return Vec::new();
    }
    intervals.sort_by(|a, b| a.throughput_bps.total_cmp(&b.throughput_bps));
    let slowest = intervals[0];
    let fastest = intervals[intervals.len() - 1];
    vec![
        format!("{} of them", intervals.len()),
        format!(
            "slowest {} at {}",
            rate(slowest.throughput_bps),
            seconds(slowest.start_s)
        ),
        format!(
            "fastest {} at {}",
            rate(fastest.throughput_bps),
            seconds(fastest.start_s)
        ),
    ]
}

fn tcp(page: &mut Page, leg: &Leg) {
    let Some(tcp) = &leg.tcp else { return };
    let mut rtt = Vec::new();
    rtt.extend(
        tcp.rtt_min_us
            .map(|us| format!("smallest {}", micros(us.into()))),
    );
    rtt.push(format!("mean {}", micros(tcp.rtt_mean_us.into())));
    rtt.push(format!("deviation {}", micros(tcp.rtt_var_us.into())));
    page.facts("RTT", &rtt);
    page.facts("loss", &evidence::retransmissions(tcp));
    page.facts("windows", &evidence::windows(tcp));
    page.facts("segments", &evidence::segments(tcp));
    page.facts("time", &evidence::limited_times(tcp));
    page.facts("TCP", &evidence::control(tcp));
}

fn udp(page: &mut Page, leg: &Leg) {
    let Some(udp) = &leg.udp else { return };
    page.facts("datagrams", &evidence::datagrams(udp));
    page.facts("lost", &evidence::losses(udp));
    page.facts("order", &evidence::order(udp));
    page.facts("timing", &evidence::timing(udp));
}

/// A row for each flow where there are several; of many, the slowest and the fastest.
fn flows(page: &mut Page, flows: &[&FlowRecord]) {
    if flows.len() < 2 {
        return;
    }
    let mut ranked = flows.to_vec();
    let left_out = ranked.len().saturating_sub(2 * MAX_FLOWS);
    if left_out > 0 {
        ranked.sort_by(|a, b| a.throughput_bps.total_cmp(&b.throughput_bps));
        ranked.drain(MAX_FLOWS..MAX_FLOWS + left_out);
    }
    page.gap();
    page.table(&flow_table(ranked));
    if left_out > 0 {
        page.plain(&format!(
            "  the slowest and the fastest; {left_out} flows between them in the JSON"
        ));
    }
}

fn flow_table(flows: Vec<&FlowRecord>) -> Table<&FlowRecord> {
    Table::of(flows)
        .right("flow", |flow| flow.id.to_string())
        .right("throughput", |flow| rate(flow.throughput_bps))
        .right("mean RTT", |flow| {
            Some(micros(flow.tcp.as_ref()?.rtt_mean_us.into()))
        })
        .right("retransmitted", |flow| {
            Some(count(flow.tcp.as_ref()?.retransmitted_segments))
        })
        .right("congestion\nwindow", |flow| {
            Some(bytes(flow.tcp.as_ref()?.cwnd_bytes))
        })
        .right("receive\nwindow", |flow| {
            flow.tcp.as_ref()?.send_window_bytes.map(bytes)
        })
        .right("lost", |flow| Some(count(flow.udp.as_ref()?.lost)))
        .right("jitter", |flow| Some(micros(flow.udp.as_ref()?.jitter_us)))
        .left("from and to", |flow| {
            format!("{} {}", flow.local, flow.remote)
        })
}

/// Of more than twice as many flows, this many of the slowest and of the fastest are shown.
const MAX_FLOWS: usize = 8;

/// What the run cost both ends.
fn ends(page: &mut Page, record: &Record, leg: &Leg) {
    let [first, second] = match record.workload {
        Workload::Stream => ["sender", "receiver"],
        Workload::Rr | Workload::Crr => ["client", "endpoint"],
    };
    let ends = [(first, &leg.sender), (second, &leg.receiver)];
    let ends: Vec<_> = ends
        .into_iter()
        .filter_map(|(name, end)| Some((name, end.as_ref()?)))
        .collect();
    if ends.is_empty() {
        return;
    }
    let doubt = service_demand_doubt(record, leg);
    let host_demand = |end: &EndReport| end.service_demand_us_per_kib.filter(|_| doubt.is_none());
    let table = Table::of(ends)
        .left("CPU", |(name, _)| *name)
        .right("host\n%", |(_, end)| end.host_cpu_percent.map(digits))
        .right("max\ncore\n%", |(_, end)| {
            end.busiest_core_percent.map(digits)
        })
        .right("max\nthread\n%", |(_, end)| {
            end.busiest_thread_percent.map(digits)
        })
        .right("steal\n%", |(_, end)| end.steal_percent.map(digits))
        .right("user\ns", |(_, end)| digits(end.cpu_seconds.user))
        .right("system\ns", |(_, end)| digits(end.cpu_seconds.system))
        .right("soft\nirq s", |(_, end)| end.softirq_seconds.map(digits))
        .right("host\nµs/KiB", |(_, end)| host_demand(end).map(digits))
        .right("thread\nµs/KiB", |(_, end)| {
            end.service_demand_threads_us_per_kib.map(digits)
        })
        .left("by", |(_, end)| end.method.clone());
    page.gap();
    page.table(&table);
    if let Some(doubt) = doubt {
        page.plain(&format!("  host's service demand {doubt}"));
    }
}

/// A row for each summary that there is.
pub(super) fn latencies<'a>(
    page: &mut Page,
    rows: impl IntoIterator<Item = (&'a str, Option<&'a LatencySummary>)>,
) {
    let rows = rows.into_iter();
    let rows: Vec<_> = rows
        .filter_map(|(name, latency)| Some((name, latency?)))
        .collect();
    if rows.is_empty() {
        return;
    }
    // With fewer samples beyond it than one, a quantile is the maximum by another name.
    let known = |us: f64, count: u64, one_in: u64| (count >= one_in).then(|| micros(us));
    page.gap();
    let table = Table::of(rows)
        .left("", |(name, _)| *name)
        .right("min", |(_, all)| micros(all.min))
        .right("mean", |(_, all)| micros(all.mean))
        .right("p50", |(_, all)| micros(all.p50))
        .right("p90", |(_, all)| known(all.p90, all.count, 10))
        .right("p99", |(_, all)| known(all.p99, all.count, 100))
        .right("p99.9", |(_, all)| known(all.p999, all.count, 1000))
        .right("max", |(_, all)| micros(all.max))
        .right("count", |(_, all)| count(all.count));
    page.table(&table);
}

//! The page of what a policy costs: for each kind of transfer, figures as in the white paper, and
//! the effect of each treatment.

use crate::page::{Page, Table};
use linerate_core::compare::MetricConclusion;
use linerate_core::plan::Workload;
use linerate_core::record::Status;
use linerate_core::stats::MedianInterval;
use linerate_qos::cost::{
    CostRow, DirectCost, LinkRates, QosCost, TREATMENTS, Test, Treatment, paper,
};

use super::number::{
    NBSP, chosen_bytes, count, digits, joined, named, plural, rate, seconds, with_unit,
};
use super::parts::caveats;
use super::parts::protocol_name;
use crate::document::{Document, Ending};

impl Document for QosCost {
    /// Policies, packet rates, a table of figures and one of effects for each kind of transfer, the
    /// programs by themselves.
    fn page(&self, page: &mut Page) {
        match answer(self) {
            Some(answer) => {
                page.heading(&answer);
                page.indented(&headline(self));
            }
            None => page.heading(&headline(self)),
        }
        page.gap();
        for policy in &self.policies {
            let tests = joined(policy.tests.iter().map(|test| test.name().to_owned()), ", ");
            let named = policy.file.as_deref().unwrap_or("the test's own");
            let filters = plural(policy.filters as u64, "filter");
            page.facts("policy", [format!("{tests}: {named}, {filters}")]);
        }
        for link in &self.links {
            page.facts("link", [packets(link)]);
        }
        for group in groups(&self.rows) {
            page.gap();
            page.title(&title(&group[0]));
            if page.has_details() {
                page.table(&figures(group));
            }
            page.table(&effects(group));
        }
        direct(page, self);
        if page.has_details() && !self.rows.is_empty() {
            page.gap();
            page.words(FOOT);
        }
        caveats(page, &self.caveats);
    }

    fn endings(&self) -> Vec<Ending<'_>> {
        vec![(self.status, &self.caveats)]
    }
}

const FOOT: &str = "Effects are against being without, in brackets their interval; each has its \
    own 5 % of error, and \
    none of fewer than 6 blocks a verdict. µs/packet is the white paper's rule: added service \
    demand × 1.46. Service \
    demand is CPU time of the whole host for each KiB (netperf's), the emulated link and the other \
    end included; the \
    rule is applied to that of the sending threads and the soft interrupts.";

/// `the policy slows 2 of 14 transfers, and takes up to 19.0 ns of each packet`
fn answer(document: &QosCost) -> Option<String> {
    let rates = document.rows.iter();
    let rates = rates.filter_map(|row| compared(row, rate_of(row), Treatment::Policy));
    let decided: Vec<_> = rates.filter(|rate| rate.pairs >= FEWEST_PAIRS).collect();
    let is_slower = |rate: &&&MetricConclusion| rate.different && rate.effect_percent < 0.0;
    let slower = decided.iter().filter(is_slower);
    let slows = (!decided.is_empty()).then(|| {
        let all = plural(decided.len() as u64, "transfer");
        format!("slows {} of {all}", slower.count())
    });
    let most = document.direct.iter().map(|cost| cost.policy_ns.median);
    let takes = most.reduce(f64::max).map(|ns| {
        let ns = with_unit(ns, "ns");
        format!("takes up to {ns} of each packet")
    });
    let facts = Some(joined([slows, takes], ", and ")).filter(|facts| !facts.is_empty());
    named("the policy", facts, |facts| facts)
}

fn headline(document: &QosCost) -> String {
    let end = match document.status {
        Status::Complete => "",
        Status::Partial => " (STOPPED EARLY)",
    };
    format!(
        "What a policy costs: without, pass-through and policy in turn, {} of {} each, sockets of \
         {}, seed {}{end}",
        plural(document.blocks.into(), "block"),
        seconds(document.time_s),
        chosen_bytes(paper::SOCKET_BYTES),
        document.seed
    )
}

fn packets(link: &LinkRates) -> String {
    let whole = |value: f64| count(value.round() as u64);
    format!(
        "{}: {} packets/s as the white paper counts, of 20 bytes each; Ethernet carries {} of its \
         smallest frames and {} \
         with 1500 bytes",
        rate(link.link_bps),
        whole(link.paper_packets_per_s),
        whole(link.smallest_frames_per_s),
        whole(link.largest_frames_per_s)
    )
}

/// Rows of one test, link, family and protocol stand in one table.
fn groups(rows: &[CostRow]) -> impl Iterator<Item = &[CostRow]> {
    rows.chunk_by(|a, b| {
        let kind = |row: &CostRow| (row.test, row.family, row.protocol, row.workload);
        kind(a) == kind(b) && a.link_bps == b.link_bps
    })
}

fn title(row: &CostRow) -> String {
    let what = match row.test {
        Test::Sizes => "bulk transfer",
        Test::Filters => "long and complex filters",
        Test::Udp => "UDP packets",
        Test::Rr => "request and response",
        Test::Unmatched => "filters that do not match",
        Test::Fragments => "fragmented packets",
        Test::Large => "large packets",
    };
    let mtu = match row.mtu_bytes {
        1500 => String::new(),
        bytes => format!(", MTU {bytes}"),
    };
    let (link, protocol, family) = (rate(row.link_bps), protocol_name(row.protocol), row.family);
    format!("{link}, {protocol} over {family}: {what}{mtu}")
}

/// A metric, the heads of its columns, and its divisor.
/// Metric, the first column's head, and the scale.
type Column = (&'static str, [&'static str; 2], f64);

const THROUGHPUT: &str = "throughput_bps";
const TRANSACTIONS: &str = "transactions_per_s";

const COLUMNS: [Column; 5] = [
    (THROUGHPUT, ["", "Mbit/s"], 1e6),
    (TRANSACTIONS, ["requests", "per s"], 1.0),
    ("latency_us.p50", ["p50", "µs"], 1.0),
    ("sender.host_cpu_percent", ["CPU", "%"], 1.0),
    (DEMAND, ["demand", "µs/KiB"], 1.0),
];
const DEMAND: &str = "sender.service_demand_us_per_kib";

fn figures(rows: &[CostRow]) -> Table<&CostRow> {
    let mut table = Table::of(rows).right(["", "size"], |row| chosen_bytes(row.message_bytes));
    for (metric, head, scale) in COLUMNS {
        let heads = [head, ["pass-", "through"], ["", "policy"]];
        for (treatment, head) in TREATMENTS.into_iter().zip(heads) {
            table = table.right(head, |row| {
                let figure = figure(row, metric, treatment).filter(|_| is_told(row, metric))?;
                Some(digits(figure.median / scale))
            });
        }
    }
    table
}

fn figure<'a>(row: &'a CostRow, metric: &str, treatment: Treatment) -> Option<&'a MedianInterval> {
    let mut figures = row.figures.iter();
    let found = figures.find(|one| one.metric == metric && one.treatment == treatment);
    found.map(|one| &one.figure)
}

/// The metric that a transfer is measured by: bytes, or answers.
fn rate_of(row: &CostRow) -> &'static str {
    match row.workload {
        Workload::Stream => THROUGHPUT,
        Workload::Rr | Workload::Crr => TRANSACTIONS,
    }
}

/// Whether a metric applies: exchanges are not measured in bits.
fn is_told(row: &CostRow, metric: &str) -> bool {
    metric != THROUGHPUT || rate_of(row) == THROUGHPUT
}

/// For each size a line for each treatment: its effect on the rate, and on the cost of a packet.
fn effects(rows: &[CostRow]) -> Table<(&CostRow, Treatment)> {
    let treatments = [Treatment::Passthrough, Treatment::Policy];
    let rows = rows
        .iter()
        .flat_map(|row| treatments.map(|treatment| (row, treatment)));
    let rate = |row, treatment| compared(row, rate_of(row), treatment);
    let demand = |row, treatment| compared(row, DEMAND, treatment);
    let packet = |row: &CostRow, treatment| {
        let cost = row.packet.iter().find(|cost| cost.treatment == treatment);
        cost.cloned()
    };
    Table::of(rows)
        .right(["", "size"], |(row, _)| chosen_bytes(row.message_bytes))
        .left(["", "against without"], |(_, treatment)| treatment.name())
        .right(["rate", "effect"], |&(row, t)| rate(row, t).map(effect))
        .left(["", "interval"], |&(row, t)| rate(row, t).map(interval))
        .left(["", "verdict"], |&(row, t)| rate(row, t).map(verdict))
        .right(["demand", "effect"], |&(row, t)| demand(row, t).map(effect))
        .left(["", "interval"], |&(row, t)| demand(row, t).map(interval))
        .spare(1, 2)
        .right(["packet", "µs"], |&(row, t)| {
            packet(row, t).map(|cost| signed(cost.paper_us))
        })
        .left(["", "interval"], |&(row, t)| {
            packet(row, t).map(|it| range(it.paper_interval_us))
        })
        .spare(2, 2)
}

fn compared<'a>(
    row: &'a CostRow,
    metric: &str,
    treatment: Treatment,
) -> Option<&'a MetricConclusion> {
    let mut all = row.comparisons.iter();
    let found = all.find(|one| one.metric == metric && one.treatment == treatment);
    found.map(|one| &one.conclusion)
}

fn effect(found: &MetricConclusion) -> String {
    format!("{}{NBSP}%", signed(found.effect_percent))
}

fn signed(value: f64) -> String {
    let sign = if value > 0.0 { "+" } else { "" };
    format!("{sign}{value:.2}")
}

fn interval(found: &MetricConclusion) -> String {
    range(found.interval_percent)
}

fn range(ends: [f64; 2]) -> String {
    let [low, high] = ends.map(signed);
    format!("({low}{NBSP}to{NBSP}{high})")
}

/// The verdict; with too few blocks there is none.
fn verdict(found: &MetricConclusion) -> String {
    match (found.different, found.equivalent) {
        (true, true) => "DIFFERENT, small".to_owned(),
        _ if found.pairs < FEWEST_PAIRS => "too few blocks".to_owned(),
        _ => found.verdict.name().to_owned(),
    }
}

/// See [`linerate_core::compare`]: with fewer pairs, a sign test has no verdict.
const FEWEST_PAIRS: u32 = 6;

fn direct(page: &mut Page, document: &QosCost) {
    if document.direct.is_empty() {
        return;
    }
    page.gap();
    page.title(
        "The programs by themselves (BPF_PROG_TEST_RUN, the same packet again and again), \
        ns per packet",
    );
    let fastest = document.links.iter().map(|link| link.smallest_frames_per_s);
    let fastest = fastest.fold(0.0, f64::max);
    let table = Table::of(&document.direct)
        .left("policy of", |cost| cost.test.name())
        .left("packets", |cost| {
            format!("{} over {}", protocol_name(cost.protocol), cost.family)
        })
        .right("pass-through", |cost| nanoseconds(&cost.passthrough_ns))
        .right("policy", |cost| nanoseconds(&cost.policy_ns))
        .right("instructions", |cost| cost.instructions as u64)
        .spare(2, 1)
        .left("of the time of a smallest frame", |cost| {
            share(cost, fastest, document)
        })
        .spare(1, 1);
    page.table(&table);
}

fn nanoseconds(figure: &MedianInterval) -> String {
    let [median, low, high] = [figure.median, figure.low, figure.high].map(digits);
    format!("{median} ({low} to {high})")
}

/// The policy's time as a share of the time between two smallest frames on the fastest link.
fn share(cost: &DirectCost, frames_per_s: f64, document: &QosCost) -> Option<String> {
    let links = document.links.iter().map(|link| link.link_bps);
    let link = links.fold(0.0, f64::max);
    (frames_per_s > 0.0).then(|| {
        let percent = cost.policy_ns.median * frames_per_s / 1e9 * 100.0;
        format!("{} at {}", with_unit(percent, "%"), rate(link))
    })
}

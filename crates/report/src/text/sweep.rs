//! Sizes in one table, as XPPERF and netperf printed them.

use linerate_core::plan::{Direction, Traffic, Workload};
use linerate_core::record::{Caveat, EndReport, Record, SizeFigure, Status, Sweep};

use super::Style;
use super::ceilings::{cause_name, caveats};
use super::evidence::service_demand_doubt;
use super::figure::figure;
use super::number::{count, digits, rate, with_unit};
use super::page::{Emphasis, Page};
use super::record::{emulated, traffic_and_peer};
use super::table::{Align, Table};
use crate::document::{Document, Rate};

impl Document for Sweep {
    /// One row for each run. Where sizes are repeated, one row for each size: its median run; and the
    /// figure of each size below.
    fn text(&self, style: Style) -> String {
        let mut page = Page::new(style);
        let rows = median_runs(&self.rows);
        let Some(first) = rows.first() else {
            page.line(Emphasis::Strong, "sweep without a run");
            caveats(&mut page, &self.caveats);
            return page.finish();
        };
        page.paragraph(Emphasis::Strong, "", 0, &traffic_and_peer(first));
        page.line(Emphasis::None, &format!("  {}", extent(self, rows.len())));
        emulated(&mut page, &first.environment);
        page.gap();
        page.table(&match first.workload {
            Workload::Stream => streams(&rows),
            Workload::Rr | Workload::Crr => exchanges(&rows),
        });
        let doubt = rows
            .iter()
            .find_map(|row| service_demand_doubt(row, row.legs.first()?));
        if let Some(doubt) = doubt {
            page.line(
                Emphasis::None,
                &format!("  host's CPU and service demand {doubt}"),
            );
        }
        figures(&mut page, &self.figures);
        caveats(
            &mut page,
            self.caveats.iter().chain(&row_caveats(&self.rows)),
        );
        page.finish()
    }

    fn records(&self) -> Option<Vec<&Record>> {
        Some(self.rows.iter().collect())
    }

    fn records_mut(&mut self) -> Vec<&mut Record> {
        self.rows.iter_mut().collect()
    }

    fn throughputs(&self) -> Option<Vec<Rate<'_>>> {
        let rows = self.rows.iter().filter_map(Document::throughputs);
        Some(rows.flatten().collect())
    }
}

fn extent(sweep: &Sweep, sizes: usize) -> String {
    let runs = sweep.rows.len();
    let partial = sweep
        .rows
        .iter()
        .filter(|row| row.status == Status::Partial);
    let stopped = match partial.count() {
        0 => String::new(),
        partial => format!(", {partial} of them STOPPED EARLY"),
    };
    if runs == sizes {
        format!("{runs} runs{stopped}")
    } else {
        {
            let sizes = if sizes == 1 {
                "1 size".to_owned()
            } else {
                format!("{sizes} sizes")
            };
            format!("{sizes}, {runs} runs{stopped}; of each size its median run")
        }
    }
}

/// Of each size the run in the middle, the lower one of two; sizes in the order in which they came
/// first.
fn median_runs(rows: &[Record]) -> Vec<&Record> {
    let mut sizes: Vec<Vec<&Record>> = Vec::new();
    for row in rows {
        let same = sizes
            .iter_mut()
            .find(|runs| runs[0].plan.traffic == row.plan.traffic);
        match same {
            Some(runs) => runs.push(row),
            None => sizes.push(vec![row]),
        }
    }
    for runs in &mut sizes {
        runs.sort_by(|a, b| metric(a).total_cmp(&metric(b)));
    }
    sizes
        .iter()
        .map(|runs| runs[(runs.len() - 1) / 2])
        .collect()
}

/// What runs are ranked by.
fn metric(row: &Record) -> f64 {
    row.transactions_per_s
        .or(row.throughput_bps())
        .unwrap_or(f64::NEG_INFINITY)
}

/// The first caveat of each kind with the number of runs that have one; each run may word it
/// otherwise.
fn row_caveats(rows: &[Record]) -> Vec<Caveat> {
    let mut firsts: Vec<Caveat> = Vec::new();
    for caveat in rows.iter().flat_map(|row| &row.caveats) {
        if firsts.iter().all(|first| first.kind != caveat.kind) {
            firsts.push(caveat.clone());
        }
    }
    for first in &mut firsts {
        let has = |row: &&Record| row.caveats.iter().any(|caveat| caveat.kind == first.kind);
        let runs = rows.iter().filter(has).count();
        first.message = format!("{} (in {runs} of {} runs)", first.message, rows.len());
    }
    firsts
}

fn streams(rows: &[&Record]) -> Table {
    let mut table = Table::new(&STREAM_COLUMNS);
    for row in rows {
        table.row(stream_cells(row));
    }
    table
}

const STREAM_COLUMNS: [(&str, Align); 17] = [
    ("size\nB", Align::Right),
    ("messages", Align::Right),
    ("time\ns", Align::Right),
    ("µs per\nmessage", Align::Right),
    ("rate\nMbit/s", Align::Right),
    ("\nKB/s", Align::Right),
    ("up\nMbit/s", Align::Right),
    ("down\nMbit/s", Align::Right),
    ("CPU %\nsend", Align::Right),
    ("\nrecv", Align::Right),
    ("µs/KiB\nsend", Align::Right),
    ("\nrecv", Align::Right),
    ("thread\nµs/KiB\nsend", Align::Right),
    ("\n\nrecv", Align::Right),
    ("segment\nB", Align::Right),
    ("lost", Align::Right),
    ("bottleneck", Align::Left),
];

fn stream_cells(row: &Record) -> [Option<String>; 17] {
    let message_us = row
        .messages
        .filter(|&messages| messages > 0)
        .map(|messages| row.seconds * 1e6 / messages as f64);
    let mbits = |bps: f64| digits(bps / 1e6);
    let [up, down] = [Direction::Up, Direction::Down].map(|direction| {
        let leg = row.leg_to(direction).filter(|_| row.legs.len() > 1)?;
        leg.throughput_bps.map(mbits)
    });
    let udp = row.legs.iter().filter_map(|leg| leg.udp.as_ref());
    let lost = udp.map(|udp| udp.lost).reduce(u64::saturating_add);
    let segment = row
        .legs
        .first()
        .and_then(|leg| leg.tcp.as_ref()?.effective_segment_bytes);
    let [cpu_send, cpu_receive] = cpu_cells(row);
    let [demand_send, demand_receive, threads_send, threads_receive] = demand_cells(row);
    [
        Some(size_of(row).to_string()),
        row.messages.map(count),
        Some(digits(row.seconds)),
        message_us.map(digits),
        row.throughput_bps().map(mbits),
        // Thousands of bytes: `KB` is 1000 in all of linerate, `KiB` 1024.
        row.throughput_bps().map(|bps| digits(bps / 8e3)),
        up,
        down,
        cpu_send,
        cpu_receive,
        demand_send,
        demand_receive,
        threads_send,
        threads_receive,
        segment.map(digits),
        lost.map(count),
        row.verdict()
            .map(|verdict| cause_name(verdict.cause).to_owned()),
    ]
}

fn exchanges(rows: &[&Record]) -> Table {
    let mut table = Table::new(&EXCHANGE_COLUMNS);
    for row in rows {
        table.row(exchange_cells(row));
    }
    table
}

const EXCHANGE_COLUMNS: [(&str, Align); 14] = [
    ("request\nB", Align::Right),
    ("response\nB", Align::Right),
    ("trans-\nactions", Align::Right),
    ("time\ns", Align::Right),
    ("trans/s", Align::Right),
    ("conn/s", Align::Right),
    ("µs\np50", Align::Right),
    ("\np90", Align::Right),
    ("\np99", Align::Right),
    ("\nmax", Align::Right),
    ("failed", Align::Right),
    ("not\nsent", Align::Right),
    ("CPU %\nclient", Align::Right),
    ("\nendpoint", Align::Right),
];

fn exchange_cells(row: &Record) -> [Option<String>; 14] {
    let latency = row.latency_us.as_ref();
    let response = match &row.plan.traffic {
        Traffic::Stream(_) => None,
        Traffic::Rr(exchange) | Traffic::Crr(exchange) => Some(exchange.response_bytes.to_string()),
    };
    let [cpu_client, cpu_endpoint] = cpu_cells(row);
    [
        Some(size_of(row).to_string()),
        response,
        row.transactions.map(count),
        Some(digits(row.seconds)),
        row.transactions_per_s.map(digits),
        row.connections_per_s.map(digits),
        latency.map(|l| digits(l.p50)),
        latency.filter(|l| l.count >= 10).map(|l| digits(l.p90)),
        latency.filter(|l| l.count >= 100).map(|l| digits(l.p99)),
        latency.map(|l| digits(l.max)),
        row.failed.filter(|&n| n > 0).map(count),
        row.requests_not_sent.filter(|&n| n > 0).map(count),
        cpu_client,
        cpu_endpoint,
    ]
}

/// Share of all CPUs at the sender and at the receiver, where each has a kernel of its own.
fn cpu_cells(row: &Record) -> [Option<String>; 2] {
    let shared = row.environment.shared_kernel;
    ends(row).map(|end| {
        let busy = end?.host_cpu_percent?;
        (!shared).then(|| digits(busy))
    })
}

/// Service demand of both hosts, and of the test's threads where that of the hosts means nothing.
fn demand_cells(row: &Record) -> [Option<String>; 4] {
    let doubt = row
        .legs
        .first()
        .and_then(|leg| service_demand_doubt(row, leg));
    let meaningful = doubt.is_none();
    let ends = ends(row);
    let [send, receive] = ends.map(|end| {
        let host = end?.service_demand_us_per_kib?;
        meaningful.then(|| digits(host))
    });
    let [threads_send, threads_receive] = ends.map(|end| {
        let threads = end?.service_demand_threads_us_per_kib?;
        (!meaningful).then(|| digits(threads))
    });
    [send, receive, threads_send, threads_receive]
}

/// The ends' columns are the client's and the endpoint's where both send: up comes first.
fn ends(row: &Record) -> [Option<&EndReport>; 2] {
    let leg = row.legs.first();
    [
        leg.and_then(|leg| leg.sender.as_ref()),
        leg.and_then(|leg| leg.receiver.as_ref()),
    ]
}

fn size_of(row: &Record) -> u64 {
    match &row.plan.traffic {
        Traffic::Stream(stream) => stream.message_bytes,
        Traffic::Rr(exchange) | Traffic::Crr(exchange) => exchange.request_bytes,
    }
}

/// What the repeats of each size amount to.
fn figures(page: &mut Page, figures: &[SizeFigure]) {
    if figures.is_empty() {
        return;
    }
    let mut table = Table::new(&[("size\nB", Align::Right), ("over its runs", Align::Left)]);
    for of_size in figures {
        let write: fn(f64) -> String = match of_size.metric.as_str() {
            "throughput_bps" => rate,
            "transactions_per_s" => |n| with_unit(n, "trans/s"),
            _ => digits,
        };
        table.row([
            Some(of_size.message_bytes.to_string()),
            Some(figure(&of_size.figure, write)),
        ]);
    }
    page.gap();
    page.table(&table);
}

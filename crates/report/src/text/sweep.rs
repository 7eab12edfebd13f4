//! Sizes in one table, as XPPERF and netperf printed them.

use linerate_core::plan::{Direction, Traffic, Workload};
use linerate_core::record::{Caveat, EndReport, Record, SizeFigure, Status, Sweep};

use linerate_core::stats::LatencySummary;

use super::Style;
use super::ceilings::{cause_name, caveats};
use super::evidence::service_demand_doubt;
use super::figure::figure;
use super::number::{count, digits, plural, rate, with_unit};
use super::page::Page;
use super::record::{emulated, traffic_and_peer};
use super::table::Table;
use crate::document::{Document, Rate};

impl Document for Sweep {
    /// One row for each run. Where sizes are repeated, one row for each size: its median run; and the
    /// figure of each size below.
    fn text(&self, style: Style) -> String {
        let mut page = Page::new(style);
        let rows = median_runs(&self.rows);
        let Some(first) = rows.first() else {
            page.title("sweep without a run");
            caveats(&mut page, &self.caveats);
            return page.finish();
        };
        page.heading(&traffic_and_peer(first));
        page.plain(&format!("  {}", extent(self, rows.len())));
        emulated(&mut page, &first.environment);
        page.gap();
        page.table(&match first.workload {
            Workload::Stream => streams(rows.clone()),
            Workload::Rr | Workload::Crr => exchanges(rows.clone()),
        });
        if let Some(doubt) = rows.iter().find_map(|row| doubt_of(row)) {
            page.plain(&format!("  host's CPU and service demand {doubt}"));
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
        return format!("{runs} runs{stopped}");
    }
    let sizes = plural(sizes as u64, "size");
    format!("{sizes}, {runs} runs{stopped}; of each size its median run")
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

fn streams(rows: Vec<&Record>) -> Table<&Record> {
    let mbits = |bps: f64| digits(bps / 1e6);
    let message_us = |row: &&Record| {
        let messages = row.messages.filter(|&messages| messages > 0)?;
        Some(digits(row.seconds * 1e6 / messages as f64))
    };
    let of_two = |row: &Record, direction| {
        let leg = row.leg_to(direction).filter(|_| row.legs.len() > 1)?;
        leg.throughput_bps.map(mbits)
    };
    let lost = |row: &&Record| {
        let udp = row.legs.iter().filter_map(|leg| leg.udp.as_ref());
        udp.map(|udp| udp.lost)
            .reduce(u64::saturating_add)
            .map(count)
    };
    let segment = |row: &&Record| {
        let tcp = row.legs.first()?.tcp.as_ref()?;
        tcp.effective_segment_bytes.map(digits)
    };
    Table::of(rows)
        .right("size\nB", |row| size_of(row).to_string())
        .right("messages", |row| row.messages.map(count))
        .spare(5, 1)
        .right("time\ns", |row| digits(row.seconds))
        .spare(4, 1)
        .right("µs per\nmessage", message_us)
        .spare(3, 1)
        .right("rate\nMbit/s", |row| row.throughput_bps().map(mbits))
        // Thousands of bytes: `KB` is 1000 in all of linerate, `KiB` 1024.
        .right("\nKB/s", |row| {
            row.throughput_bps().map(|bps| digits(bps / 8e3))
        })
        .spare(6, 1)
        .right("up\nMbit/s", |row| of_two(row, Direction::Up))
        .right("down\nMbit/s", |row| of_two(row, Direction::Down))
        .right("CPU %\nsend", |row| cpu(row, 0))
        .right("\nrecv", |row| cpu(row, 1))
        .spare(1, 2)
        .right("µs/KiB\nsend", |row| demand(row, 0))
        .right("\nrecv", |row| demand(row, 1))
        .spare(2, 2)
        .right("thread\nµs/KiB\nsend", |row| thread_demand(row, 0))
        .spare(2, 1)
        .right("\n\nrecv", |row| thread_demand(row, 1))
        .spare(2, 1)
        .right("segment\nB", segment)
        .spare(3, 1)
        .right("lost", lost)
        .left("bottleneck", |row| {
            Some(cause_name(row.verdict()?.cause).to_owned())
        })
}

fn exchanges(rows: Vec<&Record>) -> Table<&Record> {
    let response = |row: &&Record| match &row.plan.traffic {
        Traffic::Stream(_) => None,
        Traffic::Rr(exchange) | Traffic::Crr(exchange) => Some(exchange.response_bytes.to_string()),
    };
    let latency = |row: &Record, at_least: u64, us: fn(&LatencySummary) -> f64| {
        let latency = row.latency_us.as_ref()?;
        (latency.count >= at_least).then(|| digits(us(latency)))
    };
    let some = |number: Option<u64>| number.filter(|&n| n > 0).map(count);
    Table::of(rows)
        .right("request\nB", |row| size_of(row).to_string())
        .right("response\nB", response)
        .right("trans-\nactions", |row| row.transactions.map(count))
        .spare(4, 1)
        .right("time\ns", |row| digits(row.seconds))
        .spare(3, 1)
        .right("trans/s", |row| row.transactions_per_s.map(digits))
        .right("conn/s", |row| row.connections_per_s.map(digits))
        .right("µs\np50", |row| latency(row, 0, |all| all.p50))
        .right("\np90", |row| latency(row, 10, |all| all.p90))
        .spare(2, 1)
        .right("\np99", |row| latency(row, 100, |all| all.p99))
        .right("\nmax", |row| latency(row, 0, |all| all.max))
        .right("failed", |row| some(row.failed))
        .right("not\nsent", |row| some(row.requests_not_sent))
        .right("CPU %\nclient", |row| cpu(row, 0))
        .right("\nendpoint", |row| cpu(row, 1))
        .spare(1, 2)
}

/// Share of all CPUs at the sender or the receiver, where each has a kernel of its own.
fn cpu(row: &Record, end: usize) -> Option<String> {
    let busy = ends(row)[end]?.host_cpu_percent?;
    (!row.environment.shared_kernel).then(|| digits(busy))
}

/// Service demand of an end's host.
fn demand(row: &Record, end: usize) -> Option<String> {
    let host = ends(row)[end]?.service_demand_us_per_kib?;
    doubt_of(row).is_none().then(|| digits(host))
}

/// Service demand of the test's threads, where that of the hosts means nothing.
fn thread_demand(row: &Record, end: usize) -> Option<String> {
    let threads = ends(row)[end]?.service_demand_threads_us_per_kib?;
    doubt_of(row).map(|_| digits(threads))
}

fn doubt_of(row: &Record) -> Option<&'static str> {
    service_demand_doubt(row, row.legs.first()?)
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
    let write = |of_size: &SizeFigure| match of_size.metric.as_str() {
        "throughput_bps" => rate,
        "transactions_per_s" => |n| with_unit(n, "trans/s"),
        _ => digits,
    };
    page.gap();
    let table = Table::of(figures)
        .right("size\nB", |of_size| of_size.message_bytes.to_string())
        .left("over its runs", |of_size| {
            figure(&of_size.figure, write(of_size))
        });
    page.table(&table);
}

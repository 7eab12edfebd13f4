//! Sizes in one table, as XPPERF and netperf printed them.

use linerate_core::plan::{Direction, Traffic, Workload};
use linerate_core::record::{
    Caveat, EndReport, Leg, Observed, Record, SizeFigure, Status, Sweep, median_run,
};
use linerate_core::stats::{Figure, LatencySummary};

use super::evidence::service_demand_doubt;
use super::history::baseline;
use super::number::{
    chosen_bytes, digits, frequencies, grouped, if_known, joined, plural, rate, some_joined,
    with_unit,
};
use super::parts::{caveats, confidence, emulated, figure, middle, traffic_and_peer, verdict};
use crate::document::{Document, Rate};
use crate::page::{Page, Table, table};

impl Document for Sweep {
    /// The range of the rates, then a row for each run. If sizes are repeated, a row for each size:
    /// its median run, and the figure over its runs.
    fn page(&self, page: &mut Page) {
        let runs = median_runs(&self.rows);
        let Some(first) = runs.first() else {
            page.title("sweep without a run");
            caveats(page, &self.caveats);
            return;
        };
        let figure = |run: &Record| {
            let mut figures = self.figures.iter();
            let found = figures.find(|one| one.message_bytes == size_of(run));
            found.map(|one| &one.figure)
        };
        let rows: Vec<Row> = runs.iter().map(|run| (*run, figure(run))).collect();
        match rows[..] {
            [(run, Some(figure))] => repeats(page, self, run, figure),
            _ => {
                page.heading(&format!("{}: {}", traffic_and_peer(first), range(&rows)));
                page.plain(&format!("  {}", extent(self, rows.len())));
                page.plain(&causes(&runs, "Bottleneck"));
                emulated(page, &first.environment);
            }
        }
        page.gap();
        page.table(&match first.workload {
            Workload::Stream => streams(rows),
            Workload::Rr | Workload::Crr => exchanges(rows),
        });
        if let Some(doubt) = runs.iter().find_map(|row| doubt_of(row)) {
            page.plain(&format!("  host's CPU and service demand {doubt}"));
        }
        if page.has_details() {
            figures(page, &self.figures);
        }
        baseline(page, self.baseline.as_ref());
        let of_rows = row_caveats(&self.rows);
        caveats(page, self.caveats.iter().chain(&of_rows));
    }

    fn observed(&self) -> Observed {
        Observed::sweep(self)
    }

    fn records(&self) -> Option<Vec<&Record>> {
        Some(self.rows.iter().collect())
    }

    fn size_figures(&self) -> &[SizeFigure] {
        &self.figures
    }

    fn records_mut(&mut self) -> Vec<&mut Record> {
        self.rows.iter_mut().collect()
    }

    fn throughputs(&self) -> Option<Vec<Rate<'_>>> {
        let rows = self.rows.iter().filter_map(Document::throughputs);
        Some(rows.flatten().collect())
    }
}

/// A run and, if its size is repeated, the figure over the repeats.
type Row<'a> = (&'a Record, Option<&'a Figure>);

/// Writes a test that was repeated: its figure, and the bottleneck of its median run.
fn repeats(page: &mut Page, sweep: &Sweep, run: &Record, runs: &Figure) {
    let figure = figure(runs, writer(run.workload));
    page.heading(&format!("{figure}: {}", traffic_and_peer(run)));
    let stopped = stopped(sweep).unwrap_or_default();
    page.plain(&format!("  other figures are of the median run{stopped}"));
    emulated(page, &run.environment);
    let Some(leg) = run.leg().filter(|leg| leg.verdict.is_some()) else {
        return;
    };
    page.gap();
    verdict(page, None, leg);
    let all: Vec<&Record> = sweep.rows.iter().collect();
    page.plain(&causes(&all, "Bottleneck of the runs"));
}

/// How the rate of a workload is written.
fn writer(workload: Workload) -> fn(f64) -> String {
    match workload {
        Workload::Stream => rate,
        Workload::Rr => |n| with_unit(n, "trans/s"),
        Workload::Crr => |n| with_unit(n, "conn/s"),
    }
}

/// `10.0 Mbit/s at 100 B to 45.8 Mbit/s at 2100 B`
fn range(rows: &[Row]) -> String {
    let by_rate = |a: &&Row, b: &&Row| a.0.rank().total_cmp(&b.0.rank());
    let at = |(run, runs): &Row| {
        let figure = over_runs(*runs, run.rank(), writer(run.workload));
        format!("{figure} at {}", chosen_bytes(size_of(run)))
    };
    let ends = [rows.iter().min_by(by_rate), rows.iter().max_by(by_rate)];
    joined(ends.map(|end| end.map(at)), " to ")
}

/// The figure over the runs, or that of a single run.
fn over_runs(runs: Option<&Figure>, one: f64, write: impl Fn(f64) -> String) -> String {
    match runs {
        Some(runs) => middle(runs, write),
        None => write(one),
    }
}

/// Bottlenecks with their counts: `  Bottleneck: receive window (4 of 5), path rate (1 of 5)`;
/// empty without a verdict.
fn causes(runs: &[&Record], what: &str) -> String {
    let causes = runs.iter().filter_map(|run| run.verdict());
    let often = frequencies(causes.map(|verdict| verdict.cause.words())).into_iter();
    let counted = often.map(|(cause, n)| format!("{cause} ({n} of {})", runs.len()));
    if_known(some_joined(counted, ", "), |causes| format!("  {what}: {causes}"))
}

/// `, 2 of them STOPPED EARLY`
fn stopped(sweep: &Sweep) -> Option<String> {
    let rows = sweep.rows.iter();
    let partial = rows.filter(|row| row.status == Status::Partial).count();
    (partial > 0).then(|| format!(", {partial} of them STOPPED EARLY"))
}

fn extent(sweep: &Sweep, sizes: usize) -> String {
    let runs = sweep.rows.len();
    let stopped = stopped(sweep).unwrap_or_default();
    if runs == sizes {
        return format!("{}{stopped}", plural(runs as u64, "run"));
    }
    let sizes = plural(sizes as u64, "size");
    let levels = sweep.figures.iter().filter_map(|one| match &one.figure {
        Figure::One(one) => Some(one),
        Figure::Modes { .. } | Figure::Drift { .. } => None,
    });
    let least = levels.min_by(|one, other| one.coverage.total_cmp(&other.coverage));
    let level = least.map(|one| format!(" ({})", confidence(one)));
    format!(
        "{sizes}, {runs} runs{stopped}: the median of each size with its interval{}; other figures \
         are of \
         its median run",
        level.unwrap_or_default()
    )
}

/// The median run of each size; sizes in the order of their first run.
fn median_runs(rows: &[Record]) -> Vec<&Record> {
    let sizes = grouped(rows.iter().map(|row| (&row.plan.traffic, row)));
    sizes.into_iter().filter_map(|(_, runs)| median_run(runs)).collect()
}

/// The first caveat of each kind, with the number of runs that have one: each run may word it
/// differently.
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

fn streams(rows: Vec<Row<'_>>) -> Table<Row<'_>> {
    let mbits: fn(f64) -> String = |bps| digits(bps / 1e6);
    let of_two = |row: &Record, direction| {
        let leg = row.leg_to(direction).filter(|_| row.legs.len() > 1)?;
        leg.throughput_bps.map(mbits)
    };
    let lost = |row: &Record| {
        let udp = row.legs.iter().filter_map(|leg| leg.udp.as_ref());
        udp.map(|udp| udp.lost).reduce(u64::saturating_add)
    };
    table! { rows, (row, runs) =>
        right ["size", "B"] => size_of(row).to_string();
        right @5 "messages" => row.messages;
        right @4 ["time", "s"] => digits(row.seconds);
        right @3 ["µs per", "message"] => digits(row.seconds * 1e6 / row.messages.filter(|n| *n > 0)? as f64);
        right ["rate", "Mbit/s"] => over_runs(*runs, row.throughput_bps()?, mbits);
        right ["", "interval"] => interval(*runs, mbits);
        // Thousands of bytes: `KB` is 1000 in all of linerate, `KiB` 1024.
        right @6 ["", "KB/s"] =>
            over_runs(*runs, row.throughput_bps()?, |bps| digits(bps / 8e3));
        right ["up", "Mbit/s"] => of_two(row, Direction::Up);
        right ["down", "Mbit/s"] => of_two(row, Direction::Down);
        right @1 ["CPU %", "send"] => cpu(row, 0);
        right @1 ["", "recv"] => cpu(row, 1);
        right @2 ["µs/KiB", "send"] => demand(row, 0);
        right @2 ["", "recv"] => demand(row, 1);
        right @2 ["thread", "µs/KiB", "send"] => thread_demand(row, 0);
        right @2 ["", "", "recv"] => thread_demand(row, 1);
        right @3 ["segment", "B"] =>
            row.legs.first()?.tcp_sender()?.effective_segment_bytes.map(digits);
        right "lost" => lost(row);
        left "bottleneck" => row.verdict()?.cause.words();
    }
}

fn exchanges(rows: Vec<Row<'_>>) -> Table<Row<'_>> {
    let response = |row: &Record| match &row.plan.traffic {
        Traffic::Stream(_) => None,
        Traffic::Rr(exchange) | Traffic::Crr(exchange) => Some(exchange.response_bytes.to_string()),
    };
    let latency = |row: &Record, at_least: u64, us: fn(&LatencySummary) -> f64| {
        let latency = row.latency_us.as_ref()?;
        (latency.count >= at_least).then(|| digits(us(latency)))
    };
    let some = |number: Option<u64>| number.filter(|&n| n > 0);
    table! { rows, (row, runs) =>
        right ["request", "B"] => size_of(row).to_string();
        right ["response", "B"] => response(row);
        right @4 ["trans-", "actions"] => row.transactions;
        right @3 ["time", "s"] => digits(row.seconds);
        right "trans/s" => over_runs(*runs, row.transactions_per_s?, digits);
        right "interval" => interval(*runs, digits);
        right "conn/s" => row.connections_per_s.map(digits);
        right ["µs", "p50"] => latency(row, 0, |all| all.p50);
        right @2 ["", "p90"] => latency(row, 10, |all| all.p90);
        right ["", "p99"] => latency(row, 100, |all| all.p99);
        right ["", "max"] => latency(row, 0, |all| all.max);
        right "failed" => some(row.failed);
        right ["not", "sent"] => some(row.requests_not_sent);
        right @1 ["CPU %", "client"] => cpu(row, 0);
        right @1 ["", "endpoint"] => cpu(row, 1);
    }
}

/// Share of all CPUs of the sender's or the receiver's host, if each has a kernel of its own.
fn cpu(row: &Record, end: usize) -> Option<String> {
    let busy = ends(row)[end]?.host_cpu_percent?;
    (!row.environment.shared_kernel).then(|| digits(busy))
}

/// Service demand of an end's host.
fn demand(row: &Record, end: usize) -> Option<String> {
    let host = ends(row)[end]?.service_demand_us_per_kib?;
    doubt_of(row).is_none().then(|| digits(host))
}

/// Service demand of the test's threads, where that of the hosts is not meaningful.
fn thread_demand(row: &Record, end: usize) -> Option<String> {
    let threads = ends(row)[end]?.service_demand_threads_us_per_kib?;
    doubt_of(row).map(|_| digits(threads))
}

fn doubt_of(row: &Record) -> Option<&'static str> {
    service_demand_doubt(row, row.legs.first()?)
}

/// The reports of both ends. If both send, these are the client's and the endpoint's: up comes
/// first.
fn ends(row: &Record) -> [Option<&EndReport>; 2] {
    let leg = row.legs.first();
    let of = |end: fn(&Leg) -> &Option<EndReport>| leg.and_then(|leg| end(leg).as_ref());
    [of(|leg| &leg.sender), of(|leg| &leg.receiver)]
}

/// The interval of the median over the runs.
fn interval(runs: Option<&Figure>, write: fn(f64) -> String) -> Option<String> {
    match runs? {
        Figure::One(one) => Some(format!("{}–{}", write(one.low), write(one.high))),
        Figure::Modes { .. } | Figure::Drift { .. } => None,
    }
}

fn size_of(row: &Record) -> u64 {
    row.plan.traffic.message_bytes()
}

/// Writes the figure over the repeats of each size.
fn figures(page: &mut Page, figures: &[SizeFigure]) {
    let write = |of_size: &SizeFigure| match of_size.metric.as_str() {
        "throughput_bps" => writer(Workload::Stream),
        "transactions_per_s" => writer(Workload::Rr),
        _ => digits,
    };
    page.gap();
    page.table(&table! { figures, of_size =>
        right ["size", "B"] => of_size.message_bytes.to_string();
        left "over its runs" => figure(&of_size.figure, write(of_size));
    });
}

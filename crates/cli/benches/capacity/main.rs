//! How many connections this host holds with itself, how fast they are opened and what each costs,
//! beside a bare program that only opens them, in turn. Loopback, both ends in processes of their
//! own; the kernel's memory is for both.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a report")]

mod bare;
mod ours;

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use linerate_core::capacity::{CapacityDocument, PoolResult};
use linerate_engine::{CAPACITY_WORKER, run_capacity_worker};
use linerate_sys::proc::sysctl;

use bare::{BARE_WORKER, run_bare_worker};

/// Measures the holding of connections.
#[derive(Debug, Parser)]
#[command(name = "capacity")]
struct Options {
    /// Only benchmarks whose title contains one of these, such as rate-20k
    filter: Vec<String>,
    /// Runs of the short ones, each beside one of the bare program
    #[arg(
        long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    runs: u32,
    /// Runs of the others
    #[arg(
        long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    long_runs: u32,
    /// Exit with 1 if a goal is missed
    #[arg(long)]
    strict: bool,
    /// Print the documents as JSON, too
    #[arg(long)]
    json: bool,
    /// Given by `cargo bench`, not by `cargo test`
    #[arg(long, hide = true)]
    bench: bool,
}

/// One benchmark: what is held, how often, and what was aimed at besides that all of it is alive.
struct Case {
    title: &'static str,
    connections: u64,
    udp_sockets: u64,
    is_short: bool,
    goal: Goal,
}

enum Goal {
    Alive,
    /// Connections per second, as a share of the bare program's: the median of the pairs.
    Rate {
        least: f64,
    },
    /// An active connection's round trip, p50, beside all others over that beside none.
    Latency {
        most: f64,
    },
}

const CASES: [Case; 4] = [
    Case {
        title: "rate-20k",
        connections: 20_000,
        udp_sockets: 0,
        is_short: true,
        goal: Goal::Rate { least: 0.95 },
    },
    Case {
        title: "latency-500k",
        connections: 500_000,
        udp_sockets: 0,
        is_short: false,
        goal: Goal::Latency { most: 1.10 },
    },
    Case {
        title: "udp-200k",
        connections: 0,
        udp_sockets: 200_000,
        is_short: false,
        goal: Goal::Alive,
    },
    Case {
        title: "million",
        connections: 1_000_000,
        udp_sockets: 0,
        is_short: false,
        goal: Goal::Rate { least: 0.95 },
    },
];

/// What the runs of one case came to.
#[derive(Default)]
struct Outcome {
    rates: Vec<f64>,
    bare_rates: Vec<f64>,
    latencies: Vec<f64>,
    /// A run that did not hold everything, or with too much memory.
    has_failed: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    // The workers of both ends are this program, and so are the bare program's.
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some(CAPACITY_WORKER) => run_capacity_worker()?,
        Some(BARE_WORKER) => run_bare_worker(&words[1..])?,
        _ => return measure(&Options::parse()),
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(options: &Options) -> anyhow::Result<ExitCode> {
    if !options.bench {
        eprintln!("SKIPPED: takes minutes; `cargo bench -p linerate --bench capacity` runs it");
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = |case: &&Case| {
        options.filter.is_empty() || options.filter.iter().any(|part| case.title.contains(part))
    };
    let mut is_met = true;
    for case in CASES.iter().filter(wanted) {
        println!("{}", case.title);
        match has_files(case) {
            Ok(()) => is_met &= run(case, options)?,
            Err(why) => println!("  SKIPPED: {why}"),
        }
    }
    Ok(if options.strict && !is_met { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// All runs of a case; whether it came to what was aimed at.
fn run(case: &Case, options: &Options) -> anyhow::Result<bool> {
    let mut outcome = Outcome::default();
    let runs = if case.is_short { options.runs } else { options.long_runs };
    for run in 0..runs {
        // The one that is first alternates, so that what drifts falls on both.
        let bare_first = run % 2 == 1;
        if bare_first {
            outcome.run_bare(case)?;
        }
        outcome.run_ours(case, options.json)?;
        if !bare_first {
            outcome.run_bare(case)?;
        }
    }
    Ok(outcome.judge(&case.goal))
}

impl Outcome {
    fn run_ours(&mut self, case: &Case, json: bool) -> anyhow::Result<()> {
        thread::sleep(SETTLING);
        let document = ours::run(case)?;
        ours::show(&document);
        if json {
            println!("{}", serde_json::to_string(&document)?);
        }
        for pool in [&document.tcp, &document.udp].into_iter().flatten() {
            self.has_failed |= pool.alive < pool.asked || !is_lean(pool);
        }
        let rate = document.tcp.as_ref().and_then(|tcp| tcp.connect_per_s);
        self.rates.extend(rate);
        self.latencies.extend(latency_ratio(&document));
        Ok(())
    }

    fn run_bare(&mut self, case: &Case) -> anyhow::Result<()> {
        if !matches!(case.goal, Goal::Rate { .. }) {
            return Ok(());
        }
        thread::sleep(SETTLING);
        let seconds = bare::open(case.connections)?.as_secs_f64();
        let rate = case.connections as f64 / seconds;
        println!("  bare program: {seconds:.3} s, {rate:.0}/s");
        self.bare_rates.push(rate);
        Ok(())
    }

    fn judge(&self, goal: &Goal) -> bool {
        let is_met = match goal {
            Goal::Alive => true,
            Goal::Rate { least } => {
                let pairs = self.rates.iter().zip(&self.bare_rates);
                let ratios: Vec<f64> = pairs.map(|(ours, bare)| ours / bare).collect();
                let shown: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
                let ratio = median(ratios);
                println!(
                    "  medians: linerate {:.0}/s, bare program {:.0}/s; ratio by pair {}: median \
                     {ratio:.3}, goal {least}",
                    median(self.rates.clone()),
                    median(self.bare_rates.clone()),
                    shown.join(" ")
                );
                ratio >= *least
            }
            Goal::Latency { most } => {
                let ratio = median(self.latencies.clone());
                println!("  p50 beside all over p50 beside none: {ratio:.3}, goal {most} at most");
                ratio <= *most
            }
        };
        let is_met = is_met && !self.has_failed;
        println!("  goal {}", if is_met { "met" } else { "MISSED" });
        is_met
    }
}

/// A worker of few connections is mostly itself.
fn is_lean(pool: &PoolResult) -> bool {
    let each = [pool.user_bytes_each, pool.server_user_bytes_each];
    each.into_iter().flatten().all(|bytes| bytes < MAX_BYTES)
}

fn latency_ratio(document: &CapacityDocument) -> Option<f64> {
    let (first, last) = (document.latency.first()?, document.latency.last()?);
    Some(last.latency_us.p50 / first.latency_us.p50)
}

/// The median, the mean of the middle two; NaN of none, which meets no goal.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => f64::NAN,
        n if n % 2 == 0 => f64::midpoint(figures[middle - 1], figures[middle]),
        _ => figures[middle],
    }
}

/// Both ends' sockets are files of this host.
fn has_files(case: &Case) -> anyhow::Result<()> {
    let text = sysctl::read("fs.file-max").context("fs.file-max")?;
    let most: u64 = text.trim().parse().context("fs.file-max")?;
    let needed = 2 * case.connections + case.udp_sockets + SPARE_FILES;
    ensure!(
        most >= needed,
        "fs.file-max is {most}, {needed} files are needed: `sysctl fs.file-max={needed}` for the \
         time of it"
    );
    Ok(())
}

/// Of everything else on the host.
const SPARE_FILES: u64 = 20_000;
/// User memory for each connection at each end.
const MAX_BYTES: f64 = 500.0;
/// Before each run: what the one before has left is being freed.
const SETTLING: Duration = Duration::from_secs(1);

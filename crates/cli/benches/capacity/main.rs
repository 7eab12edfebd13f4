//! How many connections this host holds with itself, how fast they are opened and what each costs, against what
//! docs/capacity.md says of it. Loopback, both ends in processes of their own; the kernel's memory is for both.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a report")]

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use linerate_core::capacity::{CapacityDocument, CapacityTest, MOST_HELD, PoolResult};
use linerate_core::units::Span;
use linerate_core::wire::message::Limits;
use linerate_engine::{
    CAPACITY_WORKER, CapacityOptions, Client, Endpoint, ServeOptions, Stop, Target,
    run_capacity_worker,
};
use linerate_sys::proc::sysctl;

/// Measures the holding of connections.
#[derive(Debug, Parser)]
#[command(name = "capacity")]
struct Options {
    /// Only benchmarks whose title contains one of these, such as rate-20k
    filter: Vec<String>,
    /// Runs of the short ones
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Print the documents as JSON, too
    #[arg(long)]
    json: bool,
    /// Given by `cargo bench`, not by `cargo test`
    #[arg(long, hide = true)]
    bench: bool,
}

/// One benchmark: what is held, how often, and what was aimed at.
struct Case {
    title: &'static str,
    connections: u64,
    udp_sockets: u64,
    latency: bool,
    is_short: bool,
    aim: &'static str,
}

const CASES: [Case; 4] = [
    Case {
        title: "rate-20k",
        connections: 20_000,
        udp_sockets: 0,
        latency: false,
        is_short: true,
        aim: "at least 90,000 connections/s",
    },
    Case {
        title: "latency-500k",
        connections: 500_000,
        udp_sockets: 0,
        latency: true,
        is_short: false,
        aim: "p50 beside 500,000 idle ones within 10 % of that beside none",
    },
    Case {
        title: "udp-200k",
        connections: 0,
        udp_sockets: 200_000,
        latency: false,
        is_short: false,
        aim: "all alive",
    },
    Case {
        title: "million",
        connections: 1_000_000,
        udp_sockets: 0,
        latency: false,
        is_short: false,
        aim: "at least 60,000 connections/s, under 500 bytes of user memory each at each end",
    },
];

fn main() -> anyhow::Result<ExitCode> {
    // The workers of both ends are this program.
    if std::env::args().nth(1).as_deref() == Some(CAPACITY_WORKER) {
        run_capacity_worker()?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options::parse();
    if !options.bench {
        eprintln!("SKIPPED: takes minutes; `cargo bench -p linerate --bench capacity` runs it");
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = |case: &&Case| {
        options.filter.is_empty() || options.filter.iter().any(|part| case.title.contains(part))
    };
    for case in CASES.iter().filter(wanted) {
        println!("{} (aim: {})", case.title, case.aim);
        if let Err(why) = has_files(case) {
            println!("  SKIPPED: {why}");
            continue;
        }
        let runs = if case.is_short { options.runs } else { 1 };
        for _ in 0..runs {
            let document = run(case)?;
            show(&document);
            if options.json {
                println!("{}", serde_json::to_string(&document)?);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Both ends' sockets are files of this host.
fn has_files(case: &Case) -> anyhow::Result<()> {
    let text = sysctl::read("fs.file-max").context("fs.file-max")?;
    let most: u64 = text.trim().parse().context("fs.file-max")?;
    let needed = 2 * case.connections + case.udp_sockets + SPARE_FILES;
    ensure!(
        most >= needed,
        "fs.file-max is {most}, {needed} files are needed: `sysctl fs.file-max={needed}` for the time of it"
    );
    Ok(())
}

fn run(case: &Case) -> anyhow::Result<CapacityDocument> {
    let endpoint = Endpoint::bind(&serve_options())?;
    let address = endpoint.addresses()[0];
    let stop = Stop::new();
    let asked = stop.clone();
    let thread = thread::spawn(move || endpoint.serve(&asked, |_| {}));
    let outcome = hold(case, address);
    stop.request();
    match thread.join() {
        Ok(served) => served?,
        Err(_) => anyhow::bail!("the endpoint panicked"),
    }
    outcome
}

fn hold(case: &Case, address: SocketAddr) -> anyhow::Result<CapacityDocument> {
    let target = Target {
        name: "loopback".into(),
        addresses: vec![address],
        source: None,
        device: None,
        key: None,
        connect_timeout: Duration::from_secs(5),
    };
    let test = CapacityTest {
        connections: case.connections,
        udp_sockets: case.udp_sockets,
        rate_per_s: None,
        hold: Span(Duration::from_secs(1)),
        // The last heartbeat of all is beyond the hold.
        heartbeat: Span(Duration::from_secs(60)),
        churn_per_s: 0,
        load: None,
        latency: case.latency,
        find_limit: false,
        sources: Vec::new(),
        seed: 1,
    };
    let mut client = Client::connect(target, Stop::new())?;
    let outcome = client.capacity(&test, &CapacityOptions::default(), &mut |_| true)?;
    match outcome.error {
        Some(error) => Err(error.into()),
        None => Ok(outcome.document),
    }
}

fn serve_options() -> ServeOptions {
    ServeOptions {
        bind: Some(Ipv4Addr::LOCALHOST.into()),
        ..ServeOptions::within(Limits {
            clients: 1,
            streams: 1,
            seconds: 3600.0,
            rate_bps: None,
            connections: MOST_HELD,
        })
    }
}

fn show(document: &CapacityDocument) {
    for (name, pool) in [("TCP", &document.tcp), ("UDP", &document.udp)] {
        if let Some(pool) = pool {
            show_pool(name, pool);
        }
    }
    for at in &document.latency {
        let us = at.latency_us;
        println!(
            "  beside {:>9} idle: p50 {:.1} us, p90 {:.1} us, p99 {:.1} us ({} exchanges)",
            at.population, us.p50, us.p90, us.p99, us.count
        );
    }
    let workers = |half: &linerate_core::capacity::CapacityHalf| {
        let cpu = half.cpu_seconds;
        format!(
            "{} workers, CPU {:.2} s user {:.2} s system, {} kB",
            half.workers,
            cpu.user,
            cpu.system,
            half.user_bytes.unwrap_or(0) / 1024
        )
    };
    println!("  client: {}", workers(&document.client));
    if let Some(server) = &document.server {
        println!("  endpoint: {}", workers(server));
    }
    let after = &document.client.memory.after;
    println!(
        "  in all {:.2} s, closing {:.2} s; after it {:?} TCP sockets, {:?} in TIME_WAIT, {:?} orphans",
        document.seconds,
        document.close_seconds.unwrap_or(0.0),
        after.tcp_in_use,
        after.tcp_time_wait,
        after.tcp_orphans
    );
}

fn show_pool(name: &str, pool: &PoolResult) {
    let each = |bytes: Option<f64>| bytes.map_or("?".to_owned(), |bytes| format!("{bytes:.0}"));
    println!(
        "  {name}: {} of {} opened in {:.3} s, {:.0}/s; {} alive, {} lost; SYN again {}; bytes each: kernel {}, \
         client {}, endpoint {}",
        pool.opened,
        pool.asked,
        pool.connect_seconds.unwrap_or(0.0),
        pool.connect_per_s.unwrap_or(0.0),
        pool.alive,
        pool.lost,
        pool.syn_retransmissions,
        each(pool.kernel_bytes_each),
        each(pool.user_bytes_each),
        each(pool.server_user_bytes_each)
    );
    for failure in pool.failures.iter().chain(&pool.losses) {
        println!("    {} times: {}", failure.count, failure.cause.words());
    }
}

/// Of everything else on the host.
const SPARE_FILES: u64 = 20_000;

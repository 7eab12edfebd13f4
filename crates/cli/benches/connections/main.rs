//! What it costs to look at many TCP connections: `linerate connections` beside `ss -tin` on the
//! same sockets, in turn, and a watch that looks once a second. The sockets are idle but for some,
//! on loopback of a network namespace that the benchmark makes.
//!
//! `cargo bench -p linerate --bench connections` takes a minute, as root.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a report")]

use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Parser;
use linerate_engine::connections::{Place, Selection, Watch};
use linerate_sys::netns::Namespace;
use linerate_sys::proc::limits::set_descriptor_limit;
use linerate_sys::thread::cpu_time;

/// Measures looks at connections, beside ss.
#[derive(Debug, Parser)]
#[command(name = "connections")]
struct Options {
    /// Sockets that there are
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(2..=500_000))]
    sockets: u64,
    /// Runs of each program
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Exit with 1 if a goal is missed
    #[arg(long)]
    strict: bool,
    /// Given by `cargo bench`, not by `cargo test`
    #[arg(long, hide = true)]
    bench: bool,
}

/// What a run took.
#[derive(Clone, Copy)]
struct Cost {
    wall: Duration,
    cpu: Duration,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    if !options.bench {
        eprintln!("SKIPPED: takes a minute; `cargo bench -p linerate --bench connections` runs it");
        return Ok(ExitCode::SUCCESS);
    }
    let namespace = match Namespace::create("bench") {
        Ok(namespace) => namespace,
        Err(error) => {
            eprintln!("SKIPPED: {error}: needs CAP_SYS_ADMIN");
            return Ok(ExitCode::from(3));
        }
    };
    set_descriptor_limit(options.sockets + 100)?;
    let _held = namespace.run(|| hold(options.sockets / 2))??;
    println!(
        "{} TCP sockets, {} runs of each, medians",
        options.sockets, options.runs
    );
    let is_cheaper = beside_ss(&namespace, options.runs)?;
    let is_cheap = once_a_second(&namespace, options.runs)?;
    let is_met = is_cheaper && is_cheap;
    Ok(if options.strict && !is_met {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Both ends of so many connections.
fn hold(connections: u64) -> anyhow::Result<Vec<(TcpStream, TcpStream)>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let target = listener.local_addr()?;
    let pair = |_| Ok((TcpStream::connect(target)?, listener.accept()?.0));
    (0..connections).map(pair).collect()
}

fn beside_ss(namespace: &Namespace, runs: u32) -> anyhow::Result<bool> {
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    for _ in 0..runs {
        let linerate = env!("CARGO_BIN_EXE_linerate");
        let watched = Duration::from_millis(100);
        let mut cost = run(
            namespace,
            linerate,
            &["connections", "-v", "--interval", "100ms"],
        )?;
        cost.wall = cost.wall.saturating_sub(watched);
        ours.push(cost);
        theirs.push(run(namespace, "ss", &["-tin"])?);
    }
    let walls = [&ours, &theirs].map(|costs| median(costs, |cost| cost.wall));
    let cpus = [&ours, &theirs].map(|costs| median(costs, |cost| cost.cpu));
    println!("                              linerate connections     ss -tin    goal");
    let mut is_met = true;
    for (name, [ours, theirs]) in [("time, ms", walls), ("CPU time, ms", cpus)] {
        let verdict = if ours <= theirs { "met" } else { "MISSED" };
        is_met &= ours <= theirs;
        println!("  {name:<26}{ours:>22.1}{theirs:>12.1}    at most ss's: {verdict}");
    }
    println!("  (linerate looks twice; the 100 ms between are taken off its time)");
    Ok(is_met)
}

/// A whole run of a program, its output thrown away.
fn run(namespace: &Namespace, program: &str, arguments: &[&str]) -> anyhow::Result<Cost> {
    let began = Instant::now();
    let mut command = namespace.command(program);
    let mut child = quiet(command.args(arguments))
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let mut errors = String::new();
    // It ends as the program does.
    child
        .stderr
        .take()
        .context("it is piped")?
        .read_to_string(&mut errors)?;
    let wall = began.elapsed();
    let cpu = fs::read_to_string(format!("/proc/{}/schedstat", child.id()))?;
    let cpu = cpu.split(' ').next().and_then(|ns| ns.parse().ok());
    ensure!(child.wait()?.success(), "{program}: {errors}");
    Ok(Cost {
        wall,
        cpu: Duration::from_nanos(cpu.context("no CPU time in schedstat")?),
    })
}

fn quiet(command: &mut Command) -> &mut Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
}

/// The share of a core that a look and a document each second take.
fn once_a_second(namespace: &Namespace, runs: u32) -> anyhow::Result<bool> {
    let selection = Selection {
        place: Place::Named(format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(namespace))
        )),
        ..Selection::default()
    };
    let mut watch = Watch::open(&selection)?;
    watch.document();
    let mut shares = Vec::new();
    for _ in 0..runs {
        watch.begin_again();
        thread::sleep(Duration::from_secs(1).saturating_sub(Duration::from_millis(30)));
        let before = cpu_time();
        watch.look()?;
        watch.document();
        shares.push(Cost {
            wall: Duration::ZERO,
            cpu: cpu_time() - before,
        });
    }
    let cpu = median(&shares, |cost| cost.cpu);
    let is_met = cpu < 10.0;
    let verdict = if is_met { "met" } else { "MISSED" };
    println!(
        "  a look each second: {cpu:.1} ms of CPU time, {:.2} % of a core; below 1 %: {verdict}",
        cpu / 10.0
    );
    Ok(is_met)
}

/// Milliseconds.
fn median(costs: &[Cost], figure: fn(&Cost) -> Duration) -> f64 {
    let mut figures: Vec<Duration> = costs.iter().map(figure).collect();
    figures.sort_unstable();
    figures[figures.len() / 2].as_secs_f64() * 1e3
}

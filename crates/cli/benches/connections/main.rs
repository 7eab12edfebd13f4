//! What it costs to look at many TCP connections, in turn on the same sockets: one look with its
//! document, `ss -tin`, the whole command, which looks twice, and the kernel's list by itself. Then
//! a watch that looks once a second. The sockets are idle, on loopback of a network namespace that
//! the benchmark makes; what the looks and ss count must be the same.
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
use linerate_sys::netlink::sock_diag::{Filter, SockDiag};
use linerate_sys::netns::Namespace;
use linerate_sys::proc::privilege::set_descriptor_limit;
use linerate_sys::thread::cpu_time;

/// Measures looks at connections, beside ss.
#[derive(Debug, Parser)]
#[command(name = "connections")]
struct Options {
    /// Sockets that there are
    #[arg(
        long, value_name = "N", default_value_t = 10_000,
        value_parser = clap::value_parser!(u64).range(2..=500_000)
    )]
    sockets: u64,
    /// Runs of each program
    #[arg(
        long, value_name = "N", default_value_t = 9,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
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
    println!("{} TCP sockets, {} runs of each, medians", options.sockets, options.runs);
    same_counters(&namespace)?;
    let is_cheaper = beside_ss(&namespace, options.runs)?;
    let is_cheap = once_a_second(&namespace, options.runs)?;
    let is_met = is_cheaper && is_cheap;
    Ok(if options.strict && !is_met { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Both ends of so many connections.
fn hold(connections: u64) -> anyhow::Result<Vec<(TcpStream, TcpStream)>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let target = listener.local_addr()?;
    let pair = |_| Ok((TcpStream::connect(target)?, listener.accept()?.0));
    (0..connections).map(pair).collect()
}

/// What the kernel's list and ss tell of all connections together.
fn same_counters(namespace: &Namespace) -> anyhow::Result<()> {
    let mut ours = [0_u64; 4];
    let mut diag = namespace.run(SockDiag::open)??;
    diag.sockets(&Filter::new(Filter::CONNECTIONS), |socket| {
        let Some(info) = socket.info else { return };
        let counts = [1, info.segs_out.into(), info.segs_in.into(), info.bytes_acked];
        ours.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
    })?;
    let output = namespace.command("ss").arg("-tinH").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let sum = |name: &str| -> u64 {
        let words = text.split_whitespace();
        words.filter_map(|word| word.strip_prefix(name)?.parse::<u64>().ok()).sum()
    };
    let connections = text.matches(" rto:").count() as u64;
    let theirs = [connections, sum("segs_out:"), sum("segs_in:"), sum("bytes_acked:")];
    ensure!(
        ours == theirs,
        "connections, segments out and in, bytes acknowledged: {ours:?} here, {theirs:?} by ss"
    );
    println!("connections, segments and bytes acknowledged: the same as ss's");
    Ok(())
}

/// All by turns, since a machine is not equally fast all the time.
fn beside_ss(namespace: &Namespace, runs: u32) -> anyhow::Result<bool> {
    const INTERVAL: Duration = Duration::from_millis(100);
    let selection = in_namespace(namespace);
    let mut costs = [const { Vec::new() }; 4];
    let all = Filter::new(Filter::CONNECTIONS);
    for _ in 0..runs {
        costs[0].push(cost(|| {
            drop(Watch::open(&selection)?.document());
            Ok(())
        })?);
        costs[1].push(run(namespace, "ss", &["-tin"])?);
        let linerate = env!("CARGO_BIN_EXE_linerate");
        let mut both = run(namespace, linerate, &["connections", "-v", "--interval", "100ms"])?;
        both.wall = both.wall.saturating_sub(INTERVAL);
        costs[2].push(both);
        let mut diag = namespace.run(SockDiag::open)??;
        costs[3].push(cost(|| Ok(diag.sockets(&all, |_| {})?))?);
    }
    println!("                    one look    ss -tin    the command    the kernel's list    goal");
    let mut is_met = true;
    for (name, figure) in [
        ("time, ms", (|cost| cost.wall) as fn(&Cost) -> Duration),
        ("CPU time, ms", |cost| cost.cpu),
    ] {
        let [look, ss, command, list] = costs.each_ref().map(|costs| median(costs, figure));
        let verdict = if look <= ss { "met" } else { "MISSED" };
        is_met &= look <= ss;
        println!(
            "  {name:<14}{look:>12.1}{ss:>11.1}{command:>15.1}{list:>21.1}    a look at most ss's: \
             {verdict}"
        );
    }
    println!("  (the command looks twice; the 100 ms between are taken off its time)");
    Ok(is_met)
}

fn in_namespace(namespace: &Namespace) -> Selection {
    let descriptor = std::os::fd::AsFd::as_fd(namespace);
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&descriptor);
    Selection { place: Place::Named(format!("/proc/self/fd/{descriptor}")), ..Selection::default() }
}

/// Of work in this thread.
fn cost(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Cost> {
    let (began, before) = (Instant::now(), cpu_time());
    work()?;
    Ok(Cost { wall: began.elapsed(), cpu: cpu_time() - before })
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
    child.stderr.take().context("it is piped")?.read_to_string(&mut errors)?;
    let wall = began.elapsed();
    let cpu = fs::read_to_string(format!("/proc/{}/schedstat", child.id()))?;
    let cpu = cpu.split(' ').next().and_then(|ns| ns.parse().ok());
    ensure!(child.wait()?.success(), "{program}: {errors}");
    Ok(Cost { wall, cpu: Duration::from_nanos(cpu.context("no CPU time in schedstat")?) })
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped())
}

/// The share of a core that a look and an updated document each second take.
fn once_a_second(namespace: &Namespace, runs: u32) -> anyhow::Result<bool> {
    let mut watch = Watch::open(&in_namespace(namespace))?;
    let mut document = watch.document();
    let mut shares = Vec::new();
    for _ in 0..runs {
        watch.begin_again();
        thread::sleep(Duration::from_secs(1));
        shares.push(cost(|| {
            watch.look()?;
            watch.update(&mut document);
            Ok(())
        })?);
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

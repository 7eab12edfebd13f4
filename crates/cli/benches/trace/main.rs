//! `linerate trace` against traceroute and mtr on one chain: 30 hops of 2 ms each in a lab, each
//! router with the kernel's default limits of ICMP. Wall time, CPU time and packets of each, and
//! the goals that linerate has.
//!
//! `cargo bench -p linerate --bench trace` takes some minutes: between two runs it waits until the
//! routers grant a burst again.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a report")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Parser;
use linerate_sys::proc::stat::ticks_to_duration;
use serde_json::Value;

/// Compares `linerate trace` with traceroute and mtr.
#[derive(Debug, Parser)]
#[command(name = "trace")]
struct Options {
    /// Runs of each program in each scene
    #[arg(
        long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    runs: u32,
    /// Exit with 1 if a goal is missed
    #[arg(long)]
    strict: bool,
    /// Given by `cargo bench`, not by `cargo test`
    #[arg(long, hide = true)]
    bench: bool,
    /// The scene to be measured by this process, which runs at the client
    #[arg(long, hide = true)]
    inside: Option<String>,
}

const ROUTERS: u32 = 29;
const NAME: &str = "trace-bench";
const SILENT_ROUTERS: [&str; 3] = ["r10", "r11", "r12"];
/// Linux grants 6 answers to a peer at once and then one a second.
const REFILL: Duration = Duration::from_millis(6_500);
/// As long as no bucket is ever filled.
const NEVER: &str = "net.ipv4.icmp_ratelimit=2147483647";
const DEFAULT_LIMIT: &str = "net.ipv4.icmp_ratelimit=1000";

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    if let Some(scene) = &options.inside {
        return inside(scene, &options);
    }
    if !options.bench {
        eprintln!("SKIPPED: takes minutes; `cargo bench -p linerate --bench trace` runs it");
        return Ok(ExitCode::SUCCESS);
    }
    let lab = Lab::up()?;
    let mut is_met = lab.measure("all answer", &options)?;
    for router in SILENT_ROUTERS {
        lab.limit(router, NEVER)?;
    }
    is_met &= lab.measure("three silent hops", &options)?;
    for router in SILENT_ROUTERS {
        lab.limit(router, DEFAULT_LIMIT)?;
    }
    lab.limit("server", NEVER)?;
    is_met &= lab.measure("silent target", &options)?;
    Ok(if is_met || !options.strict { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn linerate() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_linerate"))
}

/// The chain, until this is dropped.
struct Lab;

impl Lab {
    fn up() -> anyhow::Result<Self> {
        let file = tempfile::NamedTempFile::new()?;
        let chain = format!(
            "[host.client]\n[host.server]\n[[chain]]\nfrom = \"client\"\nto = \"server\"\n\
             routers = {ROUTERS}\nspec = \"rtt=2ms\"\n"
        );
        fs::write(file.path(), chain)?;
        let path = file.path().to_string_lossy().into_owned();
        done(Command::new(linerate()).args(["lab", "up", &path, "--name", NAME]))?;
        Ok(Self)
    }

    fn at(&self, host: &str, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(linerate());
        command.args(["lab", "exec", "--name", NAME, host, "--"]);
        command.arg(program).args(arguments);
        command
    }

    fn limit(&self, host: &str, setting: &str) -> anyhow::Result<()> {
        done(&mut self.at(host, Path::new("sysctl"), &["-qw", setting])).map(drop)
    }

    /// Measures a scene by a process at the client; whether linerate's goal is met.
    fn measure(&self, scene: &str, options: &Options) -> anyhow::Result<bool> {
        let own = std::env::current_exe()?;
        let runs = options.runs.to_string();
        let mut command = self.at("client", &own, &["--inside", scene, "--runs", &runs]);
        Ok(command.status()?.success())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let down = Command::new(linerate()).args(["lab", "down", "--name", NAME]).output();
        if let Err(error) = down {
            eprintln!("the lab {NAME} stays: {error}");
        }
    }
}

fn done(command: &mut Command) -> anyhow::Result<Output> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {errors}");
    Ok(output)
}

/// One run of a program.
struct Run {
    wall: Duration,
    cpu: Duration,
    packets: u64,
    stdout: Vec<u8>,
}

fn inside(scene: &str, options: &Options) -> anyhow::Result<ExitCode> {
    println!("{scene}: median of {} runs", options.runs);
    let programs: [(&str, PathBuf, &[&str]); 3] = [
        ("linerate", linerate().into(), &["trace", "server", "-4", "-n", "--json"]),
        ("traceroute", "traceroute".into(), &["-4", "-n", "server"]),
        ("mtr -c1", "mtr".into(), &["-4", "-n", "-r", "-c", "1", "server"]),
    ];
    let mut is_met = true;
    for (name, program, arguments) in &programs {
        if Command::new(program).arg("--version").output().is_err() {
            println!("  {name:<12} SKIPPED: not installed");
            continue;
        }
        let mut runs = Vec::new();
        for _ in 0..options.runs {
            runs.push(run(program, arguments)?);
        }
        is_met &= report(name, scene, &mut runs)?;
    }
    Ok(if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run(program: &Path, arguments: &[&str]) -> anyhow::Result<Run> {
    sleep(REFILL);
    let (packets, cpu) = (packets_sent()?, cpu_of_children()?);
    let begun = Instant::now();
    // That the target does not answer is an exit status, and no failure of the run.
    let output = Command::new(program).args(arguments).output()?;
    let wall = begun.elapsed();
    Ok(Run {
        wall,
        cpu: cpu_of_children()?.saturating_sub(cpu),
        packets: packets_sent()? - packets,
        stdout: output.stdout,
    })
}

fn report(name: &str, scene: &str, runs: &mut [Run]) -> anyhow::Result<bool> {
    runs.sort_by_key(|run| run.wall);
    let median = &runs[runs.len() / 2];
    let number = u32::try_from(runs.len())?;
    let cpu = runs.iter().map(|run| run.cpu).sum::<Duration>() / number;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let (first, last) = (&runs[0], &runs[runs.len() - 1]);
    println!(
        "  {name:<12} {:8.1} ms ({:.1} to {:.1}), CPU {:.1} ms a run, {} packets",
        ms(median.wall),
        ms(first.wall),
        ms(last.wall),
        ms(cpu),
        median.packets
    );
    if name != "linerate" {
        return Ok(true);
    }
    let document: Value = serde_json::from_slice(&median.stdout)?;
    println!("  {:<12} {}", "", breakdown(&document, median.wall));
    let (goal, silent) = goal(scene, &document);
    let is_met = median.wall <= goal && silent_hops(&document) == silent;
    println!(
        "  {:<12} goal {:.1} ms, {silent} silent hops: {} with {} silent",
        "",
        ms(goal),
        if is_met { "met" } else { "MISSED" },
        silent_hops(&document)
    );
    Ok(is_met)
}

/// Where the time of a run went: before and after the trace itself, and from its start to what ends
/// each part.
fn breakdown(document: &Value, wall: Duration) -> String {
    let hops = document["hops"].as_array().into_iter().flatten();
    let probes: Vec<&Value> =
        hops.flat_map(|hop| hop["probes"].as_array().into_iter().flatten()).collect();
    let sent = || probes.iter().filter(|probe| probe["attempt"] == 0);
    let sent = || sent().filter_map(|probe| probe["sent_us"].as_f64());
    let answered = probes.iter().filter_map(|probe| {
        let rtt = probe["rtt_us"].as_f64()?;
        Some(probe["sent_us"].as_f64()? + rtt)
    });
    let trace = document["seconds"].as_f64().unwrap_or_default();
    format!(
        "around it {:.1} ms; first probe after {:.1} ms, last of the first round {:.1} ms, last \
         answer {:.1} ms, end {:.1} ms",
        (wall.as_secs_f64() - trace) * 1e3,
        sent().fold(f64::INFINITY, f64::min) / 1e3,
        sent().fold(0.0, f64::max) / 1e3,
        answered.fold(0.0, f64::max) / 1e3,
        trace * 1e3
    )
}

/// The longest time and the number of silent hops that are right.
fn goal(scene: &str, document: &Value) -> (Duration, usize) {
    let rtts = document["hops"].as_array().and_then(|hops| hops.last());
    let rtts = rtts.and_then(|hop| hop["rtt_us"].as_array());
    let rtts = rtts.into_iter().flatten().filter_map(Value::as_f64);
    let rtt_us = rtts.fold(f64::INFINITY, f64::min);
    match scene {
        "three silent hops" => (Duration::from_millis(400), SILENT_ROUTERS.len()),
        "silent target" => (Duration::from_secs(3), 0),
        _ if rtt_us.is_finite() => (Duration::from_secs_f64((1.2 * rtt_us + 5_000.0) / 1e6), 0),
        _ => (Duration::ZERO, 0),
    }
}

fn silent_hops(document: &Value) -> usize {
    let hops = document["hops"].as_array().into_iter().flatten();
    hops.filter(|hop| hop["fate"] == "silent").count()
}

/// Packets that this host has sent by all interfaces.
fn packets_sent() -> anyhow::Result<u64> {
    let table = fs::read_to_string("/proc/net/dev")?;
    let lines = table.lines().filter_map(|line| line.split_once(':'));
    let links = lines.filter(|(name, _)| name.trim() != "lo");
    // proc(5): 8 columns of what was received; then bytes and packets sent.
    let sent =
        links.filter_map(|(_, columns)| columns.split_whitespace().nth(9)?.parse::<u64>().ok());
    Ok(sent.sum())
}

/// User and system time of all children that have ended.
fn cpu_of_children() -> anyhow::Result<Duration> {
    let text = fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = text.rsplit_once(')').context("/proc/self/stat has no name")?;
    // Fields 16 and 17 of proc(5), counted from the state, which is field 3.
    let times = fields.split_whitespace().skip(16 - 3).take(2);
    let ticks: u64 = times.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Ok(ticks_to_duration(ticks))
}

//! `linerate compare` on what is known: A against A, and a difference of 10 % that was planted. See
//! docs/comparisons.md.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a report")]

use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, bail};
use clap::Parser;
use linerate_core::stats::{Summary, wilson};
use serde_json::Value;

/// Counts how often comparisons are right.
#[derive(Debug, Parser)]
#[command(name = "aa")]
struct Options {
    /// Only cases whose title contains one of these, such as planted
    filter: Vec<String>,
    /// Comparisons of each case
    #[arg(
        long, value_name = "N", default_value_t = 40,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    count: u32,
    /// Comparisons at once
    #[arg(
        long, value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u32).range(1..=16)
    )]
    jobs: u32,
    /// Measured time of each run
    #[arg(long, value_name = "TIME", default_value = "500ms")]
    time: String,
    /// Seed of the first comparison; each further one has the next
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Exit with 1 if a goal is missed
    #[arg(long)]
    strict: bool,
    /// Given by `cargo bench`, not by `cargo test`
    #[arg(long, hide = true)]
    bench: bool,
}

/// Two treatments whose difference is known.
struct Case {
    title: &'static str,
    lab: &'static str,
    a: &'static str,
    b: &'static str,
    /// By construction.
    effect_percent: f64,
}

/// A paced flow is paced exactly, so that 22 over 20 Mbit/s is 10 %. The third path loses segments
/// at random, and its throughput scatters by itself.
const CASES: [Case; 3] = [
    Case {
        title: "A against A, paced",
        lab: "rate=50mbit,rtt=4ms",
        a: "pacing=20mbit",
        b: "pacing=20mbit",
        effect_percent: 0.0,
    },
    Case {
        title: "A against A, random loss",
        lab: "rate=50mbit,rtt=10ms,loss=0.3%",
        a: "none",
        b: "none",
        effect_percent: 0.0,
    },
    Case {
        title: "10 % planted, paced",
        lab: "rate=50mbit,rtt=4ms",
        a: "pacing=20mbit",
        b: "pacing=22mbit",
        effect_percent: 10.0,
    },
];

/// Of 40 comparisons: DIFFERENT where there is no difference at most, and where there is one at
/// least.
const FALSE_AT_MOST: f64 = 5.0 / 40.0;
const FOUND_AT_LEAST: f64 = 36.0 / 40.0;
/// The exit status of linerate's own commands where the host lacks something.
const LACKING: i32 = 3;

/// What one comparison said.
struct Answer {
    verdict: String,
    effect_percent: f64,
    interval_percent: [f64; 2],
    pairs: f64,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    if !options.bench {
        eprintln!("SKIPPED: takes minutes; `cargo bench -p linerate --bench aa` runs it");
        return Ok(ExitCode::SUCCESS);
    }
    if !has_lab()? {
        println!("SKIPPED: this host allows no lab");
        return Ok(ExitCode::from(LACKING as u8));
    }
    println!(
        "linerate {}, runs of {}, at most 30 pairs, seeds from {}, {} comparisons at once\n",
        env!("CARGO_PKG_VERSION"),
        options.time,
        options.seed,
        options.jobs
    );
    println!(
        "| case | path | A | B | DIFFERENT | share, 95 % interval | effect: median (range) | \
         interval holds the truth | pairs: median |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let is_wanted = |case: &&Case| {
        options.filter.is_empty() || options.filter.iter().any(|part| case.title.contains(part))
    };
    let mut missed = false;
    for case in CASES.iter().filter(is_wanted) {
        let answers = run_all(case, &options);
        missed |= !report(case, &answers, options.count)?;
    }
    Ok(if missed && options.strict { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Every comparison of a case. Those that failed are told on stderr.
fn run_all(case: &Case, options: &Options) -> Vec<Answer> {
    let next = AtomicU32::new(0);
    let answers = Mutex::new(Vec::new());
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= options.count {
                return;
            }
            let seed = options.seed + u64::from(number);
            match compare(case, options, seed) {
                Ok(answer) => {
                    eprintln!("{}, seed {seed}: {}", case.title, answer.verdict);
                    let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
                    answers.push(answer);
                }
                Err(error) => eprintln!("{}, seed {seed}: FAILED: {error:#}", case.title),
            }
        }
    };
    thread::scope(|scope| (0..options.jobs).for_each(|_| drop(scope.spawn(work))));
    answers.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this host allows a lab at all, by a command that treats nothing.
fn has_lab() -> anyhow::Result<bool> {
    let status = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args("stream --lab rate=10mbit --time 10ms --quiet".split(' '))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("cannot start linerate")?;
    Ok(status.code() != Some(LACKING))
}

fn compare(case: &Case, options: &Options, seed: u64) -> anyhow::Result<Answer> {
    let output = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(["compare", "--lab", case.lab, "--a", case.a, "--b", case.b])
        .args(["--time", &options.time, "--seed", &seed.to_string()])
        .args(["--json", "--quiet"])
        .stdin(Stdio::null())
        .output()
        .context("cannot start linerate")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let document: Value = serde_json::from_slice(&output.stdout)?;
    answer(&document).with_context(|| format!("a figure is missing in {document}"))
}

fn answer(document: &Value) -> Option<Answer> {
    let interval = &document["interval_percent"];
    Some(Answer {
        verdict: document["verdict"].as_str()?.to_owned(),
        effect_percent: document["effect_percent"].as_f64()?,
        interval_percent: [interval[0].as_f64()?, interval[1].as_f64()?],
        pairs: document["pairs"].as_f64()?,
    })
}

/// Prints a row; whether the goal is met, which it is not by comparisons that failed.
fn report(case: &Case, answers: &[Answer], asked: u32) -> anyhow::Result<bool> {
    let n = answers.len();
    if n == 0 {
        return Ok(false);
    }
    let count = |holds: &dyn Fn(&Answer) -> bool| answers.iter().filter(|a| holds(a)).count();
    let different = count(&|answer| answer.verdict == "DIFFERENT");
    let covered = count(&|answer| {
        let [low, high] = answer.interval_percent;
        (low..=high).contains(&case.effect_percent)
    });
    let share = wilson(different as u64, n as u64)?;
    let effects: Vec<f64> = answers.iter().map(|answer| answer.effect_percent).collect();
    let effects = Summary::new(&effects)?;
    let pairs: Vec<f64> = answers.iter().map(|answer| answer.pairs).collect();
    println!(
        "| {} | `{}` | `{}` | `{}` | {different} of {n} | {:.1} to {:.1} % | {:+.2} % ({:+.2} to \
         {:+.2} %) | {covered} of {n} | {} |",
        case.title,
        case.lab,
        case.a,
        case.b,
        100.0 * share.low,
        100.0 * share.high,
        effects.median(),
        effects.min(),
        effects.max(),
        Summary::new(&pairs)?.median(),
    );
    let found = different as f64 / n as f64;
    let holds =
        if case.effect_percent == 0.0 { found <= FALSE_AT_MOST } else { found >= FOUND_AT_LEAST };
    Ok(holds && n == asked as usize)
}

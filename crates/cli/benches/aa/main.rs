//! `linerate compare` on what is known: A against A, and a difference of 10 % that was planted. See docs/comparisons.md.
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
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Comparisons at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=16))]
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

/// A paced flow is paced exactly, so that 22 over 20 Mbit/s is 10 %. The third path loses segments at random, and its
/// throughput scatters by itself.
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

/// Of 40 comparisons: DIFFERENT where there is no difference at most, and where there is one at least.
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
    println!(
        "linerate {}, runs of {}, at most 30 pairs, seeds from {}, {} comparisons at once\n",
        env!("CARGO_PKG_VERSION"),
        options.time,
        options.seed,
        options.jobs
    );
    println!(
        "| case | path | A | B | DIFFERENT | share, 95 % interval | effect: median (range) | interval holds the truth | pairs: median |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let is_wanted = |case: &&Case| {
        options.filter.is_empty() || options.filter.iter().any(|part| case.title.contains(part))
    };
    let mut missed = false;
    for case in CASES.iter().filter(is_wanted) {
        let Some(answers) = run_all(case, &options)? else {
            println!("SKIPPED: this host allows no lab");
            return Ok(ExitCode::from(LACKING as u8));
        };
        missed |= !report(case, &answers)?;
    }
    Ok(match missed && options.strict {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// Every comparison of a case, or none where there can be no lab.
fn run_all(case: &Case, options: &Options) -> anyhow::Result<Option<Vec<Answer>>> {
    let next = AtomicU32::new(0);
    let answers = Mutex::new(Vec::new());
    let work = || -> anyhow::Result<bool> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= options.count {
                return Ok(true);
            }
            match compare(case, options, options.seed + u64::from(number))? {
                Some(answer) => answers
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(answer),
                None => return Ok(false),
            }
        }
    };
    let has_lab = thread::scope(|scope| {
        let workers: Vec<_> = (0..options.jobs).map(|_| scope.spawn(work)).collect();
        let mut has_lab = true;
        for worker in workers {
            has_lab &= worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok::<_, anyhow::Error>(has_lab)
    })?;
    let answers = answers.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(has_lab.then_some(answers))
}

fn compare(case: &Case, options: &Options, seed: u64) -> anyhow::Result<Option<Answer>> {
    let output = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(["compare", "--lab", case.lab, "--a", case.a, "--b", case.b])
        .args(["--time", &options.time, "--seed", &seed.to_string()])
        .args(["--json", "--quiet"])
        .stdin(Stdio::null())
        .output()
        .context("cannot start linerate")?;
    if output.status.code() == Some(LACKING) {
        return Ok(None);
    }
    if !output.status.success() {
        bail!("seed {seed}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let document: Value = serde_json::from_slice(&output.stdout)?;
    answer(&document)
        .map(Some)
        .with_context(|| format!("seed {seed}: a figure is missing in {document}"))
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

/// Prints a row; whether the goal is met.
fn report(case: &Case, answers: &[Answer]) -> anyhow::Result<bool> {
    let n = answers.len();
    let count = |holds: &dyn Fn(&Answer) -> bool| answers.iter().filter(|a| holds(a)).count();
    let different = count(&|answer| answer.verdict == "DIFFERENT");
    let covered = count(&|answer| {
        let [low, high] = answer.interval_percent;
        (low..=high).contains(&case.effect_percent)
    });
    let share = wilson(different as u64, n as u64)?;
    let effects: Vec<f64> = answers.iter().map(|answer| answer.effect_percent).collect();
    let effects = Summary::of(&effects)?;
    let pairs: Vec<f64> = answers.iter().map(|answer| answer.pairs).collect();
    println!(
        "| {} | `{}` | `{}` | `{}` | {different} of {n} | {:.1} to {:.1} % | {:+.2} % ({:+.2} to {:+.2} %) | {covered} of {n} | {} |",
        case.title,
        case.lab,
        case.a,
        case.b,
        100.0 * share.low,
        100.0 * share.high,
        effects.median(),
        effects.min(),
        effects.max(),
        Summary::of(&pairs)?.median(),
    );
    let found = different as f64 / n as f64;
    Ok(match case.effect_percent == 0.0 {
        true => found <= FALSE_AT_MOST,
        false => found >= FOUND_AT_LEAST,
    })
}

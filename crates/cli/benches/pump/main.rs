//! The lab's pump by itself and against the kernel: what it cuts and carries, how late it is, and
//! how well it holds a rate. See docs/benchmarks.md.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a report")]

mod bytes;
mod cases;
#[path = "../peers/cost.rs"]
mod cost;
mod kernel;
mod lab;
#[path = "../peers/process.rs"]
#[allow(dead_code, reason = "the other benchmark wants CPU times, and servers over UDP")]
mod process;
mod table;

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::cases::{Case, Figures, Missing};
use crate::table::Pair;

/// Measures the lab's pump.
#[derive(Debug, Parser)]
#[command(name = "pump")]
struct Options {
    /// Only benchmarks whose title contains one of these, such as rate-10mbit
    filter: Vec<String>,
    /// Pairs of each benchmark
    #[arg(
        long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pairs: u32,
    /// Three pairs of each
    #[arg(long, conflicts_with = "pairs")]
    quick: bool,
    /// Seed of the order in the pairs (default: a new one)
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print the titles and end
    #[arg(long)]
    list: bool,
    /// Given by `cargo bench`, not by `cargo test`
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    if !options.bench {
        eprintln!("SKIPPED: takes minutes; `cargo bench -p linerate --bench pump` runs it");
        return Ok(ExitCode::SUCCESS);
    }
    let cases = cases::all();
    let is_wanted = |case: &&Case| {
        options.filter.is_empty() || options.filter.iter().any(|part| case.title().contains(part))
    };
    let cases: Vec<&Case> = cases.iter().filter(is_wanted).collect();
    if options.list {
        cases.iter().for_each(|case| println!("{}", case.title()));
        return Ok(ExitCode::SUCCESS);
    }
    let seed = match options.seed {
        Some(seed) => seed,
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64,
    };
    println!("seed {seed}");
    let pairs = if options.quick { 3 } else { options.pairs };
    Ok(run(&cases, pairs, seed))
}

/// Runs and prints all of them.
fn run(cases: &[&Case], pairs: u32, seed: u64) -> ExitCode {
    table::print_head();
    let mut coin = ChaCha8Rng::seed_from_u64(seed);
    let (mut failed, mut skipped) = (false, false);
    for case in cases {
        match measure(case, pairs, &mut coin) {
            Ok((pairs, missing)) => {
                table::print(&case.title(), &pairs);
                if let Some(Missing(why)) = missing {
                    println!("  SKIPPED: {why}");
                    skipped = true;
                }
            }
            Err(error) => {
                println!("FAILED: {}: {error:#}", case.title());
                failed = true;
            }
        }
    }
    match (failed, skipped) {
        (true, _) => ExitCode::FAILURE,
        (false, true) => ExitCode::from(LACKING),
        (false, false) => ExitCode::SUCCESS,
    }
}

/// The exit status of linerate's own commands where the host lacks something.
const LACKING: u8 = 3;

/// The pairs of a benchmark, whose order a coin decides, and what the host lacks for a side of it.
fn measure(
    case: &Case,
    count: u32,
    coin: &mut ChaCha8Rng,
) -> anyhow::Result<(Vec<Pair>, Option<Missing>)> {
    if let Some(missing) = case.missing_lab()? {
        return Ok((Vec::new(), Some(missing)));
    }
    let missing = case.missing_peer()?;
    let has_peer = case.peer.is_some() && missing.is_none();
    let mut pairs = Vec::new();
    for _ in 0..count {
        let peer = || -> anyhow::Result<Option<Figures>> {
            if has_peer { case.run_peer() } else { Ok(None) }
        };
        let pair = if coin.next_u32() & 1 == 1 {
            let pump = case.run()?;
            let peer = peer()?;
            Pair { pump, peer }
        } else {
            let peer = peer()?;
            let pump = case.run()?;
            Pair { pump, peer }
        };
        pairs.push(pair);
    }
    Ok((pairs, missing))
}

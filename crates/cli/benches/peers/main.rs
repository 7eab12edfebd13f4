//! linerate against iperf3, nuttcp and sockperf: both sides in turn, in pairs whose order a coin
//! decides, over loopback and over veth between two network namespaces. See docs/benchmarks.md.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a report")]

mod cases;
mod cost;
mod measurement;
mod pair;
mod place;
mod process;
mod programs;
mod table;

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Parser;
use linerate_sys::netns;

use crate::cases::Case;
use crate::pair::{Coin, Finding, Pair};
use crate::place::Place;
use crate::programs::{Peer, Program, Run};

/// Compares linerate with iperf3, nuttcp and sockperf.
#[derive(Debug, Parser)]
#[command(name = "peers")]
struct Options {
    /// Only benchmarks whose title contains one of these, such as copy/iperf3@veth
    filter: Vec<String>,
    /// Pairs of each benchmark (default 7)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pairs: Option<u32>,
    /// Three pairs of each
    #[arg(long, conflicts_with = "pairs")]
    quick: bool,
    /// Seed of the order in the pairs (default: a new one)
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Servers on CPU 0 and clients on CPU 1, of both sides
    #[arg(long)]
    pin: bool,
    /// Exit with 1 if a goal is missed
    #[arg(long)]
    strict: bool,
    /// Write each run as a JSON line to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print the titles and end
    #[arg(long)]
    list: bool,
    /// Given by `cargo bench`, not by `cargo test`
    #[arg(long, hide = true)]
    bench: bool,
}

/// What the benchmarks came to.
#[derive(Debug, Default)]
struct Outcome {
    met: u32,
    missed: u32,
    failed: u32,
    skipped: u32,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    if !options.bench {
        eprintln!("SKIPPED: takes minutes; `cargo bench -p linerate --bench peers` runs it");
        return Ok(ExitCode::SUCCESS);
    }
    let mut outcome = Outcome::default();
    let places = places(&mut outcome);
    if options.list {
        for (case, place) in selected(&options, &cases::all(), &places) {
            println!("{}", case.title(place.name()));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let session = Session::begin(options)?;
    session.run(&places, &mut outcome)?;
    println!(
        "\ngoals met {}, missed {}; benchmarks that failed {}, skipped {}",
        outcome.met, outcome.missed, outcome.failed, outcome.skipped
    );
    Ok(session.exit_code(&outcome))
}

/// Loopback, and veth where this process may make namespaces.
fn places(outcome: &mut Outcome) -> Vec<Place> {
    let mut places = vec![Place::Loopback];
    match netns::Pair::create() {
        Ok(pair) => places.push(Place::Veth(pair)),
        Err(error) => {
            outcome.skipped += 1;
            let error = anyhow::Error::new(error);
            eprintln!("SKIPPED: everything over veth, which needs root: {error:#}");
        }
    }
    places
}

fn selected<'a>(
    options: &Options,
    cases: &'a [Case],
    places: &'a [Place],
) -> Vec<(&'a Case, &'a Place)> {
    let wanted = |case: &Case, place: &Place| {
        let title = case.title(place.name());
        options.filter.is_empty() || options.filter.iter().any(|part| title.contains(part))
    };
    let all = cases
        .iter()
        .flat_map(|case| places.iter().map(move |place| (case, place)));
    all.filter(|(case, place)| wanted(case, place)).collect()
}

/// A run of the benchmarks with the same options and the same peers.
struct Session {
    options: Options,
    seed: u64,
    installed: Vec<Peer>,
}

impl Session {
    /// Says what takes part.
    fn begin(options: Options) -> anyhow::Result<Self> {
        let seed = match options.seed {
            Some(seed) => seed,
            None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64,
        };
        let pinned = if options.pin {
            "servers on CPU 0, clients on CPU 1"
        } else {
            "no pinning"
        };
        println!("seed {seed}, {pinned}");
        let mut installed = Vec::new();
        for peer in Peer::ALL {
            match peer.version() {
                Some(version) => {
                    println!("{}: {version}", peer.name());
                    installed.push(peer);
                }
                None => eprintln!("{0} is missing: install the package {0}", peer.name()),
            }
        }
        Ok(Self {
            options,
            seed,
            installed,
        })
    }

    fn run(&self, places: &[Place], outcome: &mut Outcome) -> anyhow::Result<()> {
        let mut coin = Coin::new(self.seed);
        let mut log = match &self.options.json {
            None => None,
            Some(path) => {
                Some(File::create(path).with_context(|| format!("cannot write {path:?}"))?)
            }
        };
        let mut warm = Vec::new();
        table::print_head();
        for (case, place) in selected(&self.options, &cases::all(), places) {
            let title = case.title(place.name());
            if let Some(peer) = case.peer.filter(|peer| !self.installed.contains(peer)) {
                eprintln!("SKIPPED: {title}: {} is not installed", peer.name());
                outcome.skipped += 1;
                continue;
            }
            let pairs = match self.pairs(case, place, &mut coin, &mut warm) {
                Ok(pairs) => pairs,
                Err(error) => {
                    eprintln!("FAILED: {title}: {error:#}");
                    outcome.failed += 1;
                    continue;
                }
            };
            if let Some(log) = &mut log {
                write_lines(log, &title, self.seed, &pairs)?;
            }
            let findings: Vec<Finding> = case
                .goals
                .iter()
                .map(|goal| Finding::new(*goal, &pairs))
                .collect();
            table::print(&title, &pairs, &findings);
            for passed in findings.iter().filter_map(|finding| finding.passed) {
                outcome.met += u32::from(passed);
                outcome.missed += u32::from(!passed);
            }
        }
        Ok(())
    }

    /// Runs the pairs of a benchmark. Each program is warmed up once at each place.
    fn pairs(
        &self,
        case: &Case,
        place: &Place,
        coin: &mut Coin,
        warm: &mut Vec<(Program, &'static str)>,
    ) -> anyhow::Result<Vec<Pair>> {
        let run = Run {
            workload: case.workload,
            place,
            pin: self.options.pin,
        };
        let peer = case.peer.map(Program::Peer);
        for program in [Some(Program::Linerate), peer].into_iter().flatten() {
            if !warm.contains(&(program, place.name())) {
                program.run(run)?;
                warm.push((program, place.name()));
            }
        }
        let count = match (self.options.quick, self.options.pairs) {
            (true, _) => QUICK_PAIRS,
            (false, pairs) => pairs.unwrap_or(PAIRS),
        };
        (0..count).map(|_| pair(run, peer, coin.toss())).collect()
    }

    fn exit_code(&self, outcome: &Outcome) -> ExitCode {
        if outcome.failed > 0 || (self.options.strict && outcome.missed > 0) {
            ExitCode::FAILURE
        } else if outcome.skipped > 0 {
            ExitCode::from(LACKING)
        } else {
            ExitCode::SUCCESS
        }
    }
}

/// Enough for a median that one disturbed pair does not move.
const PAIRS: u32 = 7;
const QUICK_PAIRS: u32 = 3;

/// The exit status of linerate's own commands where the host lacks something.
const LACKING: u8 = 3;

fn pair(run: Run<'_>, peer: Option<Program>, linerate_first: bool) -> anyhow::Result<Pair> {
    let measure_peer = || peer.map(|peer| peer.run(run)).transpose();
    let (linerate, peer) = if linerate_first {
        let linerate = Program::Linerate.run(run)?;
        (linerate, measure_peer()?)
    } else {
        let peer = measure_peer()?;
        (Program::Linerate.run(run)?, peer)
    };
    Ok(Pair {
        linerate,
        peer,
        linerate_first,
    })
}

/// One line for each run, in the order in which they ran.
fn write_lines(log: &mut File, title: &str, seed: u64, pairs: &[Pair]) -> anyhow::Result<()> {
    for (number, pair) in pairs.iter().enumerate() {
        let mut runs = vec![("linerate", &pair.linerate)];
        if let Some(peer) = &pair.peer {
            runs.insert(usize::from(pair.linerate_first), ("peer", peer));
        }
        for (side, run) in runs {
            let line = serde_json::json!({
                "benchmark": title, "seed": seed, "pair": number, "side": side, "run": run,
            });
            writeln!(log, "{line}").context("cannot write the JSON lines")?;
        }
    }
    Ok(())
}

//! linerate against iperf3, nuttcp, sockperf, netperf and neper: both sides in turn, in pairs whose
//! order a coin decides, over loopback and over veth between two network namespaces. See
//! docs/benchmarks.md.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a report")]

mod cases;
mod cost;
mod limits;
mod log;
mod measurement;
mod page;
mod pair;
mod place;
mod process;
mod programs;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;

use crate::cases::{Bound, Case};
use crate::log::{About, Log, Written};
use crate::pair::{Coin, Finding, Pair, Verdict};
use crate::place::Place;
use crate::programs::{Peer, Places, Program, Run};

/// Compares linerate with other programs.
#[derive(Debug, Parser)]
#[command(name = "peers")]
struct Options {
    /// Only benchmarks whose title contains one of these, such as copy/iperf3@veth
    filter: Vec<String>,
    /// Pairs of each benchmark (default 7); an interval of 95 % needs 6
    #[arg(long, value_name = "N")]
    pairs: Option<usize>,
    /// Three pairs of each
    #[arg(long, conflicts_with = "pairs")]
    quick: bool,
    /// As many pairs as it takes to decide the goals, at most N (default 40)
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "40", conflicts_with_all = ["pairs", "quick"])]
    decide: Option<usize>,
    /// A peer that is not the installed one: a program, its others beside it, or their directory
    #[arg(long = "peer", value_name = "NAME=PATH")]
    peers: Vec<String>,
    /// Seed of the order in the pairs (default: a new one)
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Servers on CPU 0 and clients on CPU 1, of both sides
    #[arg(long)]
    pin: bool,
    /// Exit with 1 if a goal is missed
    #[arg(long)]
    strict: bool,
    /// Exit with 1 if a ratio that is to be large is below this, its whole interval
    #[arg(long, value_name = "RATIO")]
    floor: Option<f64>,
    /// Write each run as a JSON line to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Make a page of it all
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Run nothing: the page is of what --json has written, once for each file
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "page")]
    from: Vec<PathBuf>,
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
    open: u32,
    missed: u32,
    /// Ratios below the floor.
    low: u32,
    failed: u32,
    skipped: u32,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    if !options.bench {
        eprintln!("SKIPPED: takes minutes; `cargo bench -p linerate --bench peers` runs it");
        return Ok(ExitCode::SUCCESS);
    }
    if let (Some(page), false) = (&options.page, options.from.is_empty()) {
        let sessions = options.from.iter().map(|path| Written::read(path));
        page::write(page, &sessions.collect::<anyhow::Result<Vec<_>>>()?)?;
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
    let mut session = Session::begin(options)?;
    session.run(&places, &mut outcome)?;
    if let Some(page) = &session.options.page {
        page::write(page, std::slice::from_ref(&session.written))?;
    }
    println!(
        "\ngoals met {}, open {}, missed {}; benchmarks that failed {}, skipped {}",
        outcome.met, outcome.open, outcome.missed, outcome.failed, outcome.skipped
    );
    Ok(session.exit_code(&outcome))
}

/// Loopback, and veth where this process may make namespaces.
fn places(outcome: &mut Outcome) -> Vec<Place> {
    let mut places = vec![Place::Loopback];
    match Place::veth() {
        Ok(place) => places.push(place),
        Err(error) => {
            outcome.skipped += 1;
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
    let all = cases.iter().flat_map(|case| places.iter().map(move |place| (case, place)));
    all.filter(|(case, place)| wanted(case, place)).collect()
}

/// A run of the benchmarks with the same options and the same peers.
struct Session {
    options: Options,
    programs: Places,
    written: Written,
}

impl Session {
    /// Says what takes part.
    fn begin(options: Options) -> anyhow::Result<Self> {
        let seed = match options.seed {
            Some(seed) => seed,
            None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64,
        };
        let pinned = if options.pin { "servers on CPU 0, clients on CPU 1" } else { "no pinning" };
        println!("seed {seed}, {pinned}");
        let programs = Places::parse(&options.peers)?;
        let about = About::new(seed, &programs)?;
        for peer in Peer::ALL {
            match about.peers.get(peer.name()) {
                Some(version) => println!("{}: {version}", peer.name()),
                None => eprintln!("{0} is missing: install it, or --peer {0}=PATH", peer.name()),
            }
        }
        let benchmarks = Vec::new();
        Ok(Self { options, programs, written: Written { about, benchmarks } })
    }

    fn run(&mut self, places: &[Place], outcome: &mut Outcome) -> anyhow::Result<()> {
        let about = &self.written.about;
        let mut coin = Coin::new(about.seed);
        let mut log = match &self.options.json {
            None => None,
            Some(path) => Some(Log::create(path, about)?),
        };
        let mut warm = Vec::new();
        table::print_head();
        for (case, place) in selected(&self.options, &cases::all(), places) {
            let title = case.title(place.name());
            let installed = |peer: &Peer| self.written.about.peers.contains_key(peer.name());
            if let Some(peer) = case.peer.filter(|peer| !installed(peer)) {
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
                log.write(&title, &pairs)?;
            }
            let findings = case.findings(&pairs);
            table::print(&title, &pairs, &findings);
            outcome.count(&findings, self.options.floor);
            self.written.benchmarks.push((title, pairs));
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
        let run =
            Run { workload: case.workload, place, programs: &self.programs, pin: self.options.pin };
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
        let mut pairs = Vec::new();
        let most = self.options.decide.unwrap_or(0);
        while pairs.len() < count || (pairs.len() < most && is_open(case, &pairs)) {
            pairs.push(pair(run, peer, coin.toss())?);
        }
        Ok(pairs)
    }

    fn exit_code(&self, outcome: &Outcome) -> ExitCode {
        let missed = self.options.strict && outcome.missed > 0;
        if outcome.failed > 0 || outcome.low > 0 || missed {
            ExitCode::FAILURE
        } else if outcome.skipped > 0 {
            ExitCode::from(LACKING)
        } else {
            ExitCode::SUCCESS
        }
    }
}

impl Outcome {
    fn count(&mut self, findings: &[Finding], floor: Option<f64>) {
        for finding in findings {
            match finding.verdict {
                Some(Verdict::Met) => self.met += 1,
                Some(Verdict::Open) => self.open += 1,
                Some(Verdict::Missed) => self.missed += 1,
                None => {}
            }
            let is_low = |floor| finding.ratio.is_none_or(|ratio| ratio.high < floor);
            if matches!(finding.bound, Bound::RatioAtLeast(_)) && floor.is_some_and(is_low) {
                self.low += 1;
            }
        }
    }
}

fn is_open(case: &Case, pairs: &[Pair]) -> bool {
    let findings = case.findings(pairs);
    let mut verdicts = findings.iter().map(|finding| finding.verdict);
    verdicts.any(|verdict| verdict == Some(Verdict::Open))
}

/// Enough for a median that one disturbed pair does not move.
const PAIRS: usize = 7;
const QUICK_PAIRS: usize = 3;

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
    Ok(Pair { linerate, peer, linerate_first })
}

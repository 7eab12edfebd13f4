//! Whether known work that is added to a transfer appears in its own layer of `linerate profile`,
//! with the size that a paired comparison of CPU time gives.
//!
//! `cargo bench -p linerate --bench profile` takes about five minutes, as root. Each work is run
//! with and without in turn over a veth pair; the paired figure is the CPU time that the kernel
//! accounts to the threads of both ends, which needs no samples.
//!
//! Both ends share one CPU, so that it is never idle. With a CPU for each they wait for each other,
//! and going to sleep and being woken (by interrupts between CPUs and timers) takes CPU time with
//! interrupts off: the account has it, a timer's sample meets whoever comes next. In a virtual
//! machine that is 20 µs each time, more than the works of which the size is asked, and how often
//! it happens is changed by any work.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a report")]

mod run;
mod works;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use linerate_core::profile::Layer;
use linerate_sys::netns::{NamespaceError, Pair};
use linerate_sys::thread::{affinity, set_affinity};

use run::{Cost, Settings, run};
use works::{WORKS, Work};

/// Adds known work and looks where it appears.
#[derive(Debug, Parser)]
#[command(name = "profile")]
struct Options {
    /// Pairs of runs for each work
    #[arg(
        long, value_name = "N", default_value_t = 7,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pairs: u32,
    /// Measured time of each run, seconds
    #[arg(
        long, value_name = "S", default_value_t = 4,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    seconds: u32,
    /// Samples a second of each CPU by both ends together
    #[arg(long, value_name = "N", default_value_t = 1994)]
    hz: u32,
    /// Profile this linerate, not the one that was built with the benchmark
    #[arg(long, value_name = "FILE", default_value = env!("CARGO_BIN_EXE_linerate"))]
    program: PathBuf,
    /// Only the work of this name
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Exit with 1 if a layer is off by more than 20 %
    #[arg(long)]
    strict: bool,
    /// Given by `cargo bench`, not by `cargo test`
    #[arg(long, hide = true)]
    bench: bool,
}

/// Share of the work's size by which its layer may be off.
const GOAL: f64 = 0.20;
/// Layers that change by less than this share of the work's size are not named.
const NAMED: f64 = 0.05;

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    if !options.bench {
        eprintln!("SKIPPED: takes minutes; `cargo bench -p linerate --bench profile` runs it");
        return Ok(ExitCode::SUCCESS);
    }
    match Pair::create() {
        Ok(pair) => drop(pair),
        Err(error @ NamespaceError::Call(_)) => {
            eprintln!("SKIPPED: {error}: needs CAP_SYS_ADMIN");
            return Ok(ExitCode::from(3));
        }
        Err(error) => return Err(error.into()),
    }
    println!(
        "Known work over veth, both ends on one CPU, {} pairs of {} s, {} samples a second by both \
         ends together; CPU time of both, ns for each byte of payload\n",
        options.pairs, options.seconds, options.hz
    );
    // What is started from here inherits it.
    let last = affinity()?.last().copied();
    set_affinity(last.as_slice())?;
    let mut is_met = true;
    let chosen = |work: &&Work| options.only.as_deref().is_none_or(|only| only == work.name);
    for work in WORKS.iter().filter(chosen) {
        if let Some(missing) = (work.missing)() {
            println!("{}: SKIPPED: {missing}\n", work.name);
            continue;
        }
        is_met &= measure(work, &options)?;
    }
    Ok(if options.strict && !is_met { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints what the work took; whether its layer has the size.
fn measure(work: &Work, options: &Options) -> anyhow::Result<bool> {
    let settings = Settings { seconds: options.seconds, hz: options.hz, program: &options.program };
    let mut pairs = Vec::new();
    for number in 0..options.pairs {
        // The one that is first alternates, so that what drifts falls on both.
        let first = number % 2 == 0;
        let one = run(work, first, &settings)?;
        let other = run(work, !first, &settings)?;
        pairs.push(if first { (one, other) } else { (other, one) });
    }
    println!("{}: {}", work.name, work.what);
    println!("  without it             {}", account(&pairs, |pair| &pair.1));
    println!("  with it                {}", account(&pairs, |pair| &pair.0));
    Ok(verdict(work, &pairs))
}

/// CPU time by the three accounts that there are of it.
fn account(pairs: &[(Cost, Cost)], which: fn(&(Cost, Cost)) -> &Cost) -> String {
    let of =
        |figure: fn(&Cost) -> f64| median(pairs.iter().map(|pair| figure(which(pair))).collect());
    format!(
        "{:.4} by the account, {:.4} by samples of the same threads, {:.4} in the profile; {:.2} \
         Gbit/s",
        of(|cost| cost.accounted),
        of(Cost::in_layers),
        of(|cost| cost.printed),
        of(|cost| cost.gbit_per_s)
    )
}

/// Whether the layer grew by what the work took: by the comparison, and by what the work made
/// cheaper in other layers, each of which is named. Samples of the work that are in another layer
/// make that one grow, and are missing in the work's own.
fn verdict(work: &Work, pairs: &[(Cost, Cost)]) -> bool {
    let change = |figure: &dyn Fn(&Cost) -> f64| -> Vec<f64> {
        pairs.iter().map(|(with, without)| figure(with) - figure(without)).collect()
    };
    let accounted = change(&|cost| cost.accounted);
    let paired = median(accounted.clone());
    let own = change(&|cost| cost.of(work.layer));
    let found = median(own.clone());
    let others: Vec<(Layer, f64)> = Layer::ALL
        .into_iter()
        .filter(|&layer| layer != work.layer)
        .map(|layer| (layer, median(change(&|cost| cost.of(layer)))))
        .filter(|(_, change)| change.abs() >= NAMED * found.abs())
        .collect();
    let (less, more): (Vec<_>, Vec<_>) = others.into_iter().partition(|(_, change)| *change < 0.0);
    let displaced: f64 = less.iter().map(|(_, change)| change).sum();
    let size = paired - displaced;
    let off = (found - size) / size.abs();
    println!("  paired comparison      {paired:+.4}  (pairs {})", list(&accounted));
    println!("  displaced elsewhere    {displaced:+.4}  {}", named(&less));
    println!("  so the work takes      {size:+.4}");
    println!("  the profile has in {:11?} {found:+.4}  (pairs {})", work.layer, list(&own));
    println!("  more in other layers   {}", named(&more));
    println!(
        "  {:+.0} % off, goal ±{:.0} %; {:.0} % of the comparison\n",
        off * 100.0,
        GOAL * 100.0,
        found / paired * 100.0
    );
    off.abs() <= GOAL
}

fn list(figures: &[f64]) -> String {
    let figures: Vec<String> = figures.iter().map(|figure| format!("{figure:+.3}")).collect();
    figures.join(" ")
}

fn named(changes: &[(Layer, f64)]) -> String {
    let changes = changes.iter().map(|(layer, change)| format!("{layer:?} {change:+.4}"));
    changes.collect::<Vec<_>>().join(", ")
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let last = figures.len() - 1;
    f64::midpoint(figures[last / 2], figures[last.div_ceil(2)])
}

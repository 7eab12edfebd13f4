//! Whether known work that is added to a transfer appears in its own layer of `linerate profile`, with the size that a paired
//! comparison of CPU time gives.
//!
//! `cargo bench -p linerate --bench profile` takes about four minutes, as root. Each work is run with and without in turn over a
//! veth pair; the paired figure is the CPU time that the kernel accounts to the threads of both ends, which needs no samples.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a report")]

mod run;
mod works;

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Parser;
use linerate_core::profile::Layer;
use linerate_sys::netns::{NamespaceError, Pair};

use run::{Cost, run};
use works::{WORKS, Work};

/// Adds known work and looks where it appears.
#[derive(Debug, Parser)]
#[command(name = "profile")]
struct Options {
    /// Pairs of runs for each work
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Measured time of each run, seconds
    #[arg(long, value_name = "S", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
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
        Err(error @ NamespaceError::Create { .. }) => {
            eprintln!("SKIPPED: {error}: needs CAP_SYS_ADMIN");
            return Ok(ExitCode::from(3));
        }
        Err(error) => return Err(error.into()),
    }
    println!(
        "Known work over veth, {} pairs of {} s; CPU time of both ends, ns for each byte of payload\n",
        options.pairs, options.seconds
    );
    let mut is_met = true;
    let chosen = |work: &&Work| options.only.as_deref().is_none_or(|only| only == work.name);
    for work in WORKS.iter().filter(chosen) {
        if let Some(missing) = (work.missing)() {
            println!("{}: SKIPPED: {missing}\n", work.name);
            continue;
        }
        is_met &= measure(work, &options)?;
    }
    Ok(match options.strict && !is_met {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// Prints what the work took; whether its layer has the size.
fn measure(work: &Work, options: &Options) -> anyhow::Result<bool> {
    let mut accounted = Vec::new();
    let mut layers: BTreeMap<Layer, Vec<f64>> = BTreeMap::new();
    for pair in 0..options.pairs {
        // The one that is first alternates, so that what drifts falls on both.
        let first = pair % 2 == 0;
        let one = run(work, first, options.seconds)?;
        let other = run(work, !first, options.seconds)?;
        let (with, without) = if first { (one, other) } else { (other, one) };
        accounted.push(with.accounted - without.accounted);
        for layer in Layer::ALL {
            let of = |cost: &Cost| cost.layers.get(&layer).copied().unwrap_or(0.0);
            layers
                .entry(layer)
                .or_default()
                .push(of(&with) - of(&without));
        }
    }
    let paired = median(accounted.clone());
    let changes: BTreeMap<Layer, f64> = layers
        .into_iter()
        .map(|(layer, changes)| (layer, median(changes)))
        .collect();
    let own = changes.get(&work.layer).copied().unwrap_or(0.0);
    let displaced: f64 = changes.values().sum::<f64>() - own;
    let size = paired - displaced;
    let off = (own - size) / size.abs();
    println!("{}: {}", work.name, work.what);
    println!(
        "  paired comparison      {paired:+.4}  (pairs {})",
        list(&accounted)
    );
    println!(
        "  of it in other layers  {displaced:+.4}  {}",
        named(work.layer, &changes, paired)
    );
    println!("  leaves for {:11?} {size:+.4}", work.layer);
    println!(
        "  the profile has there  {own:+.4}  {:+.0} % off, goal ±{:.0} %",
        off * 100.0,
        GOAL * 100.0
    );
    println!("  of the whole it is     {:.0} %\n", own / paired * 100.0);
    Ok(off.abs() <= GOAL)
}

fn list(figures: &[f64]) -> String {
    let figures: Vec<String> = figures
        .iter()
        .map(|figure| format!("{figure:+.3}"))
        .collect();
    figures.join(" ")
}

/// The layers that the work changed besides its own, by the size of the change.
fn named(own: Layer, changes: &BTreeMap<Layer, f64>, paired: f64) -> String {
    let mut others: Vec<_> = changes
        .iter()
        .filter(|&(&layer, change)| layer != own && change.abs() >= NAMED * paired.abs())
        .collect();
    others.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    let others = others
        .iter()
        .map(|(layer, change)| format!("{layer:?} {change:+.4}"));
    others.collect::<Vec<_>>().join(", ")
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let last = figures.len() - 1;
    f64::midpoint(figures[last / 2], figures[last.div_ceil(2)])
}

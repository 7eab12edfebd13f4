//! What the compiled rules of `linerate qos` cost for each packet: by test runs of the kernel on
//! random headers, and beside nftables on packets that are sent over a veth pair.
//!
//! `cargo bench -p linerate --bench qos` takes a minute or two, as root.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a report")]

mod loaded;
mod peers;
mod rules;
mod runs;

use std::process::ExitCode;

use clap::Parser;
use linerate_sys::bpf;

/// Measures compiled rules, alone and beside nftables.
#[derive(Debug, Parser)]
#[command(name = "qos")]
struct Options {
    /// Runs of each side
    #[arg(
        long, value_name = "N", default_value_t = 9,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    runs: u32,
    /// Of the rules and the headers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Only what is measured by test runs
    #[arg(long)]
    no_peers: bool,
    /// Exit with 1 if a goal is missed
    #[arg(long)]
    strict: bool,
    /// Given by `cargo bench`, not by `cargo test`
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    if !options.bench {
        eprintln!("SKIPPED: takes minutes; `cargo bench -p linerate --bench qos` runs it");
        return Ok(ExitCode::SUCCESS);
    }
    if let Err(error) = bpf::probe().programs {
        eprintln!("SKIPPED: {error}: needs bpf(2) and CAP_BPF");
        return Ok(ExitCode::from(3));
    }
    let mut is_met = runs::measure(options.runs, options.seed)?;
    if !options.no_peers {
        is_met &= peers::measure(options.runs, options.seed)?;
    }
    Ok(if options.strict && !is_met { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The middle of some figures, with the least and the greatest.
fn median(mut figures: Vec<f64>) -> (f64, f64, f64) {
    figures.sort_by(f64::total_cmp);
    let last = figures.len() - 1;
    (figures[last / 2], figures[0], figures[last])
}

//! The command line.

use std::path::PathBuf;

use clap::Parser;
use linerate_core::ceilings::Cause;
use linerate_core::units::listed;

use crate::scenario::{CAUSES, ScenarioFamily, families, families_named};

/// Check verdicts on emulated paths whose limit is known
#[derive(Debug, Parser)]
#[command(name = "linerate-truth", version)]
pub(crate) struct TruthArgs {
    /// Families of scenarios that take turns: old, wild (all but old and strangers), all (but
    /// strangers), or names, separated by commas; --families lists them
    #[arg(
        long, value_name = "NAME", value_delimiter = ',', default_value = "old",
        value_parser = named
    )]
    pub(crate) family: Vec<NamedFamilies>,
    /// List the families
    #[arg(long)]
    pub(crate) families: bool,
    /// Seed of the scenarios, 0 to 2^64-1
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
    /// Scenarios to draw, 1 to 100,000
    #[arg(
        long, value_name = "N", default_value = "480",
        value_parser = clap::value_parser!(u32).range(1..=100_000)
    )]
    pub(crate) count: u32,
    /// Run only those of this cause, such as send_buffer; several with commas
    #[arg(long, value_name = "CAUSE", value_delimiter = ',', value_parser = cause)]
    pub(crate) only: Vec<Cause>,
    /// Run only the scenario of this number, 0 to 99,999; several with commas
    #[arg(
        long, value_name = "K", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(0..100_000)
    )]
    pub(crate) number: Vec<u32>,
    /// Scenarios at once, 1 to 64; those that need the machine run alone
    #[arg(
        long, value_name = "N", default_value = "1",
        value_parser = clap::value_parser!(u32).range(1..=64)
    )]
    pub(crate) jobs: u32,
    /// Write each scenario and its record as JSON into DIR
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// Run nothing: judge what --keep has written into DIR with the rules of this version, and show
    /// each verdict that is another now; of a FILE with a score, show the score
    #[arg(
        long, value_name = "DIR|FILE",
        conflicts_with_all = ["family", "families", "seed", "count", "only", "number", "jobs", "keep", "remedies", "list", "prove"]
    )]
    pub(crate) again: Option<PathBuf>,
    /// Run each again with its verdict's remedy, and hold what that brings against the prediction
    #[arg(long)]
    pub(crate) remedies: bool,
    /// Prove each verdict by changed runs between plain ones
    #[arg(long, conflicts_with = "remedies")]
    pub(crate) prove: bool,
    /// Print what would be run, and run nothing
    #[arg(long)]
    pub(crate) list: bool,
    /// Print the score as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the score as JSON to FILE, besides what is printed
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// No progress on stderr
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// The families that a name means.
#[derive(Debug, Clone)]
pub(crate) struct NamedFamilies(pub(crate) Vec<&'static ScenarioFamily>);

/// The families of a name.
fn named(text: &str) -> Result<NamedFamilies, String> {
    let names = || families().map(|family| family.name).collect::<Vec<_>>();
    let found = families_named(text).map(NamedFamilies);
    found.ok_or_else(|| format!("it must be wild, all, {}", listed(&names(), "or")))
}

/// A cause that is drawn.
fn cause(text: &str) -> Result<Cause, String> {
    let names = || listed(&CAUSES.map(Cause::name), "or");
    let found = CAUSES.into_iter().find(|cause| cause.name() == text);
    found.ok_or_else(|| format!("it must be {}", names()))
}

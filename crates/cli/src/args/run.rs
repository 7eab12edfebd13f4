//! Options of `run`.

use std::path::PathBuf;

use clap::Args;
use linerate_core::units::EndpointName;

use super::parsers;
use super::shared::{DocumentOptions, PathOptions};

#[derive(Debug, Args)]
pub(crate) struct ExperimentArgs {
    /// The experiment, in TOML; max 1 MiB
    pub(crate) file: PathBuf,
    /// Fewer and shorter runs, as the file says under [quick]
    #[arg(long)]
    pub(crate) quick: bool,
    /// Endpoint to run it against, in place of the file's path
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<EndpointName>,
    /// Seed of every random choice, 0 to 2^64-1 (default: the file's)
    #[arg(long, value_name = "N", value_parser = parsers::seed())]
    pub(crate) seed: Option<u64>,
    /// Keep each run in FILE (default: beside the experiment, FILE.records.jsonl)
    #[arg(long, value_name = "FILE")]
    pub(crate) records: Option<PathBuf>,
    /// Throw away the runs that are kept, and begin again
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Print the runs that would be made, and make none
    #[arg(long)]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) path: PathOptions,
    #[command(flatten)]
    pub(crate) document: DocumentOptions,
}

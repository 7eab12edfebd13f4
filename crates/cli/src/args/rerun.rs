//! Options of `rerun`.

use std::path::PathBuf;

use clap::Args;

use super::parsers;
use super::shared::{BaselineOptions, DocumentOptions};

#[derive(Debug, Args)]
pub(crate) struct RerunArgs {
    /// A record, sweep, check, comparison, load, capacity or trace, as --output wrote it
    pub(crate) file: PathBuf,
    /// Endpoint instead of the document's: host, host:port or [v6]:port
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// File with the endpoint's key (default: the document's)
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Seed of every random choice, 0 to 2^64-1 (default: the document's)
    #[arg(long, value_name = "N", value_parser = parsers::seed())]
    pub(crate) seed: Option<u64>,
    /// Print the command line, and run nothing
    #[arg(long)]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) document: DocumentOptions,
    #[command(flatten)]
    pub(crate) beside: BaselineOptions,
}

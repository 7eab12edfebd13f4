//! Options of `explain` without a file.

use std::path::PathBuf;

use clap::Args;
use linerate_core::units::Span;

use super::connections::OwnerOptions;
use super::parsers;

/// Connections of other programs, which are watched.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connections of this host, without FILE")]
pub(crate) struct WatchOptions {
    #[command(flatten)]
    pub(crate) owner: OwnerOptions,
    /// How long they are watched, 500ms to 1h
    #[arg(
        long, value_name = "TIME", default_value = "10s",
        value_parser = parsers::time(500, parsers::HOUR)
    )]
    pub(crate) time: Span,
    /// Compare with an earlier document of these connections, in FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) before: Option<PathBuf>,
}

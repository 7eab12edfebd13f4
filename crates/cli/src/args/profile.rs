//! Options of `profile`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use linerate_core::profile::{MAX_HZ, MIN_HZ};
use linerate_core::units::EndpointName;

use super::options::{OfProfile, TestOptions};
use super::parsers;
use super::shared::{DocumentOptions, PathOptions, RandomOptions};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProfileArgs {
    /// Endpoint, where `linerate serve` answers: host, host:port or [v6]:port
    #[arg(required_unless_present = "lab")]
    pub(crate) host: Option<EndpointName>,
    #[command(flatten)]
    pub(crate) profile: ProfileOptions,
    #[command(flatten)]
    pub(crate) test: TestOptions<OfProfile>,
    #[command(flatten)]
    pub(crate) path: PathOptions,
    #[command(flatten)]
    pub(crate) document: DocumentOptions,
}

/// What the CPU time is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// Layers.
    Layer,
    /// Functions, below the layers.
    Function,
}

/// Options of sampling and projections.
#[derive(Debug, Args)]
#[command(next_help_heading = "Profile")]
pub(crate) struct ProfileOptions {
    /// Samples/s of each CPU, over all ends on it, 10 to 9999 (default 499)
    #[arg(
        long, value_name = "N", value_parser = parsers::number::<u32>(MIN_HZ.into(), MAX_HZ.into())
    )]
    pub(crate) hz: Option<u32>,
    /// layer, or function: its functions too (default layer)
    #[arg(long, value_enum, hide_possible_values = true)]
    pub(crate) by: Option<By>,
    /// Write a flame graph of both ends as SVG to FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) flame: Option<PathBuf>,
    /// Write the folded stacks of both ends to FILE, for other tools
    #[arg(long, value_name = "FILE")]
    pub(crate) folded: Option<PathBuf>,
    /// Project what each change would bring, from a design of short runs
    #[arg(long)]
    pub(crate) what_if: bool,
    /// The same, and do those that this host can, by paired comparison
    #[arg(long)]
    pub(crate) prove: bool,
    /// Write and read a file of the same size (max 1GiB) in DIR beside it
    #[arg(long, value_name = "DIR")]
    pub(crate) disk: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) random: RandomOptions,
}

const EXAMPLES: &str = "\
Examples:
  linerate profile pit
  linerate profile pit -u --rate max --no-offload --by function --flame udp.svg
  linerate profile --lab mtu=9000 --prove";

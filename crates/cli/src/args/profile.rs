//! Options of `profile`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use linerate_core::plan::Direction;
use linerate_core::units::{BitRate, ByteCount, EndpointName, Span};

use super::parsers;
use super::shared::{DocumentOptions, PathOptions, SocketArgs, TransportOptions};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProfileArgs {
    /// Endpoint, where `linerate serve` answers: host, host:port or [v6]:port
    #[arg(required_unless_present = "lab")]
    pub(crate) host: Option<EndpointName>,
    #[command(flatten)]
    pub(crate) profile: ProfileOptions,
    #[command(flatten)]
    pub(crate) traffic: ProfileTraffic,
    #[command(flatten)]
    pub(crate) extent: ProfileExtent,
    #[command(flatten)]
    pub(crate) transport: TransportOptions,
    #[command(flatten)]
    pub(crate) sockets: SocketArgs,
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

/// How it is profiled, and what is made of it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Profile")]
pub(crate) struct ProfileOptions {
    /// Samples/s of each CPU, over all ends on it, 10 to 9999 (default 499)
    #[arg(long, value_name = "N")]
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
    /// Seed of every random choice, 0 to 2^64-1 (default: a new one)
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

/// The transfer that is profiled.
#[derive(Debug, Args)]
#[command(next_help_heading = "Stream")]
pub(crate) struct ProfileTraffic {
    #[arg(long, short = 'l', value_name = "SIZE", help = parsers::help("size"))]
    pub(crate) size: Option<ByteCount>,
    /// up or down, as seen from this host (default up)
    #[arg(long, value_parser = parsers::one_direction(), hide_possible_values = true)]
    pub(crate) direction: Option<Direction>,
    /// The same as --direction down
    #[arg(short = 'R', conflicts_with = "direction")]
    pub(crate) reverse: bool,
    #[arg(long, short = 'b', value_name = "RATE", help = parsers::help("rate"))]
    pub(crate) rate: Option<BitRate>,
    #[arg(long, conflicts_with = "no_offload", help = parsers::help("offload"))]
    pub(crate) offload: bool,
    /// UDP: each datagram passes the kernel by itself
    #[arg(long)]
    pub(crate) no_offload: bool,
    #[arg(long, short = 'Z', help = parsers::help("zerocopy"))]
    pub(crate) zerocopy: bool,
    #[arg(long, conflicts_with = "verify", help = parsers::help("discard"))]
    pub(crate) discard: bool,
    /// Send a seeded pattern and compare it at the receiver: a busy application
    #[arg(long)]
    pub(crate) verify: bool,
    #[arg(long, value_name = "RATE", help = parsers::help("write-rate"))]
    pub(crate) write_rate: Option<BitRate>,
    #[arg(long, value_name = "RATE", help = parsers::help("read-rate"))]
    pub(crate) read_rate: Option<BitRate>,
}

/// When the run ends.
#[derive(Debug, Args)]
#[command(next_help_heading = "Extent")]
pub(crate) struct ProfileExtent {
    #[arg(long, short, help = parsers::help("time"))]
    pub(crate) time: Option<Span>,
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["time", "warm_up"], help = parsers::help("bytes"))]
    pub(crate) bytes: Option<ByteCount>,
    #[arg(long, short = 'n', value_name = "SIZE", help = parsers::help("total"))]
    pub(crate) total: Option<ByteCount>,
    #[arg(long, short = 'O', alias = "omit", value_name = "TIME", help = parsers::help("warm-up"))]
    pub(crate) warm_up: Option<Span>,
}

const EXAMPLES: &str = "\
Examples:
  linerate profile pit
  linerate profile pit -u --no-offload --by function --flame udp.svg
  linerate profile --lab mtu=9000 --prove";

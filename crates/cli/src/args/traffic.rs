//! What `stream`, `rr` and `crr` send.

use clap::Args;
use linerate_core::plan::{Closer, Direction};
use linerate_core::units::{BitRate, ByteCount, Sizes};

use super::parsers::{self, RequestRate};
use super::shared::RunOptions;

#[derive(Debug, Args)]
pub(crate) struct StreamArgs {
    #[command(flatten)]
    pub(crate) traffic: StreamOptions,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

/// What a stream sends and which way.
#[derive(Debug, Args)]
#[command(next_help_heading = "Stream")]
pub(crate) struct StreamOptions {
    /// Sizes: 32,64 or 100..9100/500, up to 64MiB (default 128KiB, UDP 1448)
    #[arg(long, short = 'l', value_name = "SIZES")]
    pub(crate) size: Option<Sizes>,
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["time", "count", "warm_up"], help = parsers::help("bytes"))]
    pub(crate) bytes: Option<ByteCount>,
    #[arg(long, short = 'n', value_name = "SIZE", help = parsers::help("total"))]
    pub(crate) total: Option<ByteCount>,
    #[arg(long, value_parser = parsers::direction(), hide_possible_values = true, help = parsers::help("direction"))]
    pub(crate) direction: Option<Direction>,
    /// The same as --direction down
    #[arg(short = 'R', conflicts_with = "direction")]
    pub(crate) reverse: bool,
    /// The same as --direction both
    #[arg(long, conflicts_with_all = ["direction", "reverse"])]
    pub(crate) bidir: bool,
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
    #[arg(long, help = parsers::help("verify"))]
    pub(crate) verify: bool,
    #[arg(long, conflicts_with = "warm_up", help = parsers::help("whole"))]
    pub(crate) whole: bool,
    #[arg(long, value_name = "RATE", help = parsers::help("write-rate"))]
    pub(crate) write_rate: Option<BitRate>,
    #[arg(long, value_name = "RATE", help = parsers::help("read-rate"))]
    pub(crate) read_rate: Option<BitRate>,
    /// Exit with 1 if a run, or one direction of it, is slower than RATE
    #[arg(long, value_name = "RATE")]
    pub(crate) fail_below: Option<BitRate>,
}

#[derive(Debug, Args)]
pub(crate) struct RrArgs {
    #[command(flatten)]
    pub(crate) exchange: ExchangeOptions,
    #[arg(long, value_name = "N", conflicts_with = "rate", help = parsers::help("depth"))]
    pub(crate) depth: Option<u32>,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

#[derive(Debug, Args)]
pub(crate) struct CrrArgs {
    #[command(flatten)]
    pub(crate) exchange: ExchangeOptions,
    #[arg(long, value_name = "END", value_parser = parsers::closer(), hide_possible_values = true, help = parsers::help("close"))]
    pub(crate) close: Option<Closer>,
    #[arg(long, help = parsers::help("reset"))]
    pub(crate) reset: bool,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

/// What requests and responses are like.
#[derive(Debug, Args)]
#[command(next_help_heading = "Exchange")]
pub(crate) struct ExchangeOptions {
    /// Request sizes, as a size, list or range, up to 64MiB (default 1)
    #[arg(long, value_name = "SIZES")]
    pub(crate) request: Option<Sizes>,
    #[arg(long, value_name = "SIZE", help = parsers::help("response"))]
    pub(crate) response: Option<ByteCount>,
    /// Open loop: requests/s over all flows, 0.01 to 100M (default: closed)
    #[arg(long, short = 'b', value_name = "N/s")]
    pub(crate) rate: Option<RequestRate>,
    #[arg(long, help = parsers::help("spin"))]
    pub(crate) spin: bool,
}

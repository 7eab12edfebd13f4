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
    /// Payload of each flow, 1B to 1024TiB, instead of a time
    #[arg(long, short = 'n', value_name = "SIZE", conflicts_with_all = ["time", "count", "warm_up"])]
    pub(crate) bytes: Option<ByteCount>,
    /// up, down or both, as seen from this host (default up)
    #[arg(long, value_parser = parsers::direction(), hide_possible_values = true)]
    pub(crate) direction: Option<Direction>,
    /// The same as --direction down
    #[arg(short = 'R', conflicts_with = "direction")]
    pub(crate) reverse: bool,
    /// The same as --direction both
    #[arg(long, conflicts_with_all = ["direction", "reverse"])]
    pub(crate) bidir: bool,
    /// UDP: payload rate of each flow, 80bit to 8tbit (default: no limit)
    #[arg(long, short = 'b', value_name = "RATE")]
    pub(crate) rate: Option<BitRate>,
    /// UDP: the kernel cuts and joins datagrams (default above 100mbit)
    #[arg(long, conflicts_with = "no_offload")]
    pub(crate) offload: bool,
    /// UDP: each datagram passes the kernel by itself
    #[arg(long)]
    pub(crate) no_offload: bool,
    /// TCP: send without a copy, in the way that the device allows
    #[arg(long, short = 'Z')]
    pub(crate) zerocopy: bool,
    /// TCP: the receiver drops the bytes unread; the record says so
    #[arg(long, conflicts_with = "verify")]
    pub(crate) discard: bool,
    /// Send a seeded pattern and count the bytes that arrive changed
    #[arg(long)]
    pub(crate) verify: bool,
    /// TCP: count connection set-up and tear-down in, without a warm-up
    #[arg(long, conflicts_with = "warm_up")]
    pub(crate) whole: bool,
    /// TCP: rate at which the sender writes each flow, from 80bit
    #[arg(long, value_name = "RATE")]
    pub(crate) write_rate: Option<BitRate>,
    /// Rate at which the receiver reads each flow, from 80bit
    #[arg(long, value_name = "RATE")]
    pub(crate) read_rate: Option<BitRate>,
    /// Exit with 1 if a run, or one direction of it, is slower than RATE
    #[arg(long, value_name = "RATE")]
    pub(crate) fail_below: Option<BitRate>,
}

#[derive(Debug, Args)]
pub(crate) struct RrArgs {
    #[command(flatten)]
    pub(crate) exchange: ExchangeOptions,
    /// Requests in flight at once on each connection, 1 to 1024 (default 1)
    #[arg(long, value_name = "N", conflicts_with = "rate")]
    pub(crate) depth: Option<u32>,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

#[derive(Debug, Args)]
pub(crate) struct CrrArgs {
    #[command(flatten)]
    pub(crate) exchange: ExchangeOptions,
    /// Who closes and keeps TIME_WAIT: client or server (default server)
    #[arg(long, value_name = "END", value_parser = parsers::closer(), hide_possible_values = true)]
    pub(crate) close: Option<Closer>,
    /// Close by reset, which leaves no TIME_WAIT
    #[arg(long)]
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
    /// Response size, up to 64MiB (default 1)
    #[arg(long, value_name = "SIZE")]
    pub(crate) response: Option<ByteCount>,
    /// Open loop: requests/s over all flows, 0.01 to 100M (default: closed)
    #[arg(long, short = 'b', value_name = "N/s")]
    pub(crate) rate: Option<RequestRate>,
    /// Poll without sleeping, at both ends
    #[arg(long)]
    pub(crate) spin: bool,
}

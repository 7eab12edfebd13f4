//! Options of `capacity`.

use std::net::IpAddr;

use clap::Args;
use linerate_core::capacity::{MAX_HELD, MAX_MESSAGE, MAX_PER_S, MIN_MESSAGE};
use linerate_core::units::{ByteCount, EndpointName, Span};

use super::parsers::{self, Count};
use super::shared::RandomOptions;
use super::{DocumentOptions, PathOptions};

#[derive(Debug, Args)]
pub(crate) struct CapacityArgs {
    /// Endpoint, where `linerate serve` answers: host, host:port or [v6]:port
    #[arg(required_unless_present = "lab")]
    pub(crate) host: Option<EndpointName>,
    #[command(flatten)]
    pub(crate) population: PopulationOptions,
    #[command(flatten)]
    pub(crate) load: LoadOptions,
    #[command(flatten)]
    pub(crate) path: PathOptions,
    #[command(flatten)]
    pub(crate) document: DocumentOptions,
}

/// Numbers of connections and sockets, and how they are opened.
#[derive(Debug, Args)]
#[command(next_help_heading = "Population")]
pub(crate) struct PopulationOptions {
    /// TCP connections, such as 20k, up to 10M (default 1000; to --find-limit all allowed)
    #[arg(long, value_name = "N", value_parser = parsers::count(0, MAX_HELD))]
    pub(crate) connections: Option<Count>,
    /// UDP sockets, such as 10k, up to 10M (default 0)
    #[arg(long, value_name = "N", value_parser = parsers::count(0, MAX_HELD))]
    pub(crate) udp_sockets: Option<Count>,
    /// Opened each second, 1 to 10M (default: as fast as they open)
    #[arg(long, short = 'b', value_name = "N/s", value_parser = parsers::per_second(1, MAX_PER_S))]
    pub(crate) rate: Option<u64>,
    /// How long all of them are held, up to 24h (default 5s; 1s for --find-limit)
    #[arg(long, short = 't', value_name = "TIME", value_parser = parsers::time(0, parsers::DAY))]
    pub(crate) hold: Option<Span>,
    /// How often each proves that it is alive, 100ms to 24h (default 1s for every 20k of them)
    #[arg(long, value_name = "TIME", value_parser = parsers::time(100, parsers::DAY))]
    pub(crate) heartbeat: Option<Span>,
    /// Close and open so many connections each second while all are held (default 0)
    #[arg(
        long, value_name = "N/s", conflicts_with = "find_limit",
        value_parser = parsers::per_second(0, MAX_PER_S)
    )]
    pub(crate) churn: Option<u64>,
    /// Search for the number at which it stops
    #[arg(long)]
    pub(crate) find_limit: bool,
    /// Local addresses to connect from in turn, joined by commas, up to 256
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',', requires = "host",
          conflicts_with_all = ["lab", "source"])]
    pub(crate) sources: Vec<IpAddr>,
    /// Most processes of each kind that hold them here, 1 to 256 (default as few as needed)
    #[arg(long, value_name = "N", value_parser = parsers::number::<u64>(1, 256))]
    pub(crate) workers: Option<u64>,
    #[command(flatten)]
    pub(crate) random: RandomOptions,
}

/// What moves on a part of the connections after they were held.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct LoadOptions {
    /// How long requests go over a random part of the connections, 0 for none (default 1s)
    #[arg(
        long, value_name = "TIME", conflicts_with = "find_limit",
        value_parser = parsers::time(0, parsers::DAY)
    )]
    pub(crate) load: Option<Span>,
    /// Connections that take part (default: a tenth of them, 1 to 1000)
    #[arg(
        long, value_name = "N", conflicts_with = "find_limit",
        value_parser = parsers::count(1, MAX_HELD)
    )]
    pub(crate) active: Option<Count>,
    /// Open loop: requests/s over all of these, 1 to 10M (default: closed)
    #[arg(
        long, value_name = "N/s", conflicts_with = "find_limit",
        value_parser = parsers::per_second(1, MAX_PER_S)
    )]
    pub(crate) requests: Option<u64>,
    /// Request size, 8 to 1MiB (default 64)
    #[arg(
        long, value_name = "SIZE", conflicts_with = "find_limit",
        value_parser = parsers::bytes(MIN_MESSAGE, MAX_MESSAGE)
    )]
    pub(crate) request: Option<ByteCount>,
    /// Response size, 8 to 1MiB (default 64)
    #[arg(
        long, value_name = "SIZE", conflicts_with = "find_limit",
        value_parser = parsers::bytes(MIN_MESSAGE, MAX_MESSAGE)
    )]
    pub(crate) response: Option<ByteCount>,
}

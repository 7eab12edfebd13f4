//! Options of `serve`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use linerate_core::plan::Family;
use linerate_core::units::{BitRate, Span};

use super::shared;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) listen: ListenOptions,
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
    /// Print one JSON line for each event on stdout
    #[arg(long, help_heading = "Output")]
    pub(crate) json_stream: bool,
    /// No lines about clients on stderr
    #[arg(long, help_heading = "Output")]
    pub(crate) quiet: bool,
}

/// Where clients reach the endpoint.
#[derive(Debug, Args)]
#[command(next_help_heading = "Listening")]
pub(crate) struct ListenOptions {
    /// Port, 1 to 65535; 0 takes a free one and says which (default 5201)
    #[arg(long, short)]
    pub(crate) port: Option<u16>,
    /// Local address to listen on (default: all)
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Option<IpAddr>,
    /// Only IPv4
    #[arg(short = '4', conflicts_with = "ipv6")]
    pub(crate) ipv4: bool,
    /// Only IPv6
    #[arg(short = '6')]
    pub(crate) ipv6: bool,
    /// Take a listening socket from standard input (inetd with wait) or systemd
    #[arg(long, conflicts_with_all = ["port", "bind", "ipv4", "ipv6", "json_stream"])]
    pub(crate) inetd: bool,
    /// Exit after one client
    #[arg(long, short = '1')]
    pub(crate) one_off: bool,
}

impl ListenOptions {
    /// The family asked for, if one was.
    pub(crate) fn family(&self) -> Option<Family> {
        shared::family(self.ipv4, self.ipv6)
    }
}

/// What the owner of the endpoint allows.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitOptions {
    /// File with the key that clients must have: 64 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Let clients with the key change settings of this host, undone when they go; needs root
    #[arg(long)]
    pub(crate) allow_treatments: bool,
    /// Take no samples of this host's CPUs for clients (see `profile`)
    #[arg(long)]
    pub(crate) no_profile: bool,
    /// Clients at once, 1 to 10000 (default 64)
    #[arg(long, value_name = "N")]
    pub(crate) max_clients: Option<u32>,
    /// Flows of a test over both directions, 1 to 256 (default 256)
    #[arg(long, value_name = "N")]
    pub(crate) max_streams: Option<u32>,
    /// Length of a test with its warm-up, 10ms to 24h (default 1h)
    #[arg(long, value_name = "TIME")]
    pub(crate) max_duration: Option<Span>,
    /// Rate of a test over all its flows (default: no limit)
    #[arg(long, value_name = "RATE")]
    pub(crate) max_rate: Option<BitRate>,
}

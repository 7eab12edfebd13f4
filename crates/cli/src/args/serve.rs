//! Options of `serve`.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;
use linerate_core::capacity::MAX_HELD;
use linerate_core::lab::Prefix;
use linerate_core::plan::MAX_STREAMS;
use linerate_core::units::{BitRate, ByteCount, Span};

use super::parsers::{self, Count};
use super::shared::FamilyOptions;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) listen: ListenOptions,
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
    #[command(flatten)]
    pub(crate) others: OtherOptions,
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
    #[arg(long, short, value_parser = parsers::port())]
    pub(crate) port: Option<u16>,
    /// Local address to listen on (default: all)
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Option<IpAddr>,
    #[command(flatten)]
    pub(crate) family: FamilyOptions,
    /// Take a listening socket from standard input (inetd with wait) or systemd
    #[arg(long, conflicts_with_all = ["port", "bind", "ipv4", "ipv6", "json_stream"])]
    pub(crate) inetd: bool,
    /// Exit after one client
    #[arg(long, short = '1')]
    pub(crate) one_off: bool,
}

/// What the owner of the endpoint allows.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitOptions {
    /// File with the key that clients must have: 64 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Who may use iperf3: lines user,digest (a build with --features iperf3-auth)
    #[arg(long, value_name = "FILE", requires = "iperf3_key")]
    pub(crate) iperf3_users: Option<PathBuf>,
    /// Private key whose public key iperf3's users have: RSA, PEM, in clear
    #[arg(long, value_name = "FILE", requires = "iperf3_users")]
    pub(crate) iperf3_key: Option<PathBuf>,
    /// Take tokens of iperf3 before 3.17, too (PKCS #1 v1.5: others may guess at them)
    #[arg(long, requires = "iperf3_key")]
    pub(crate) iperf3_pkcs1: bool,
    /// Let clients with the key change settings of this host, undone when they go; needs root
    #[arg(long)]
    pub(crate) allow_treatments: bool,
    /// Take no samples of this host's CPUs for clients (see `profile`)
    #[arg(long)]
    pub(crate) no_profile: bool,
    /// Clients at once, 1 to 10000 (default 64)
    #[arg(long, value_name = "N", value_parser = parsers::number::<u32>(1, 10_000))]
    pub(crate) max_clients: Option<u32>,
    /// Flows of a test over both directions, 1 to 256 (default 256)
    #[arg(long, value_name = "N", value_parser = parsers::number::<u32>(1, MAX_FLOWS.into()))]
    pub(crate) max_streams: Option<u32>,
    /// Length of a test with its warm-up, 10ms to 24h (default 1h)
    #[arg(long, value_name = "TIME", value_parser = parsers::time(10, parsers::DAY))]
    pub(crate) max_duration: Option<Span>,
    /// Rate of a test over all its flows (default: no limit)
    #[arg(long, value_name = "RATE", value_parser = parsers::rate_with_unit)]
    pub(crate) max_rate: Option<BitRate>,
    /// Memory of all tests together, 16MiB or more (default: a quarter of the host's)
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) max_memory: Option<ByteCount>,
    /// TCP connections and UDP sockets that `capacity` may hold, 0 to 10M (default 100k)
    #[arg(long, value_name = "N", value_parser = parsers::count(0, MAX_HELD))]
    pub(crate) max_connections: Option<Count>,
}

/// A few flows at least.
fn memory(text: &str) -> anyhow::Result<ByteCount> {
    let size: ByteCount = text.parse()?;
    ensure!(size.0 >= 16 << 20, "it must be 16MiB or more");
    Ok(size)
}

/// Most flows of a test, over both directions.
pub(crate) const MAX_FLOWS: u32 = MAX_STREAMS;

/// Clients of other tools, on ports of their own.
#[derive(Debug, Args)]
#[command(next_help_heading = "Other tools")]
pub(crate) struct OtherOptions {
    /// Serve netperf clients too (default port 12865)
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = NETPERF_PORT, conflicts_with = "inetd", value_parser = parsers::port())]
    pub(crate) netperf: Option<u16>,
    /// File whose first line netperf clients must say as passphrase
    #[arg(long, value_name = "FILE", requires = "netperf")]
    pub(crate) netperf_passphrase: Option<PathBuf>,
    /// Take and count what ttcp clients send, TCP and UDP (default port 5001)
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "5001", conflicts_with = "inetd", value_parser = parsers::port())]
    pub(crate) ttcp: Option<u16>,
    /// Send to whoever connects by TCP, until they leave (default port 5002)
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "5002", conflicts_with = "inetd", value_parser = parsers::port())]
    pub(crate) ttcp_source: Option<u16>,
    /// Reflect STAMP and TWAMP light packets of clients that are there (default port 862)
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = STAMP_PORT, conflicts_with = "inetd", value_parser = parsers::port())]
    pub(crate) stamp: Option<u16>,
    /// Reflect packets of these addresses too, such as 192.0.2.0/24
    #[arg(long, value_name = "NETWORK", requires = "stamp", value_delimiter = ',')]
    pub(crate) stamp_allow: Vec<Prefix>,
}

/// A netserver's.
const NETPERF_PORT: &str = "12865";
/// A session-reflector's (RFC 8762, 4.1).
const STAMP_PORT: &str = "862";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_those_of_the_tools() {
        assert_eq!(NETPERF_PORT, linerate_core::foreign::netperf::PORT.to_string());
        assert_eq!(STAMP_PORT, linerate_core::wire::STAMP_PORT.to_string());
    }
}

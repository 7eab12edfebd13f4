//! Options of the commands that run until they are stopped, or that show what those have found:
//! `serve`, `monitor`, `probe`, `web` and `mesh`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::ensure;
use clap::{Args, Subcommand};
use linerate_core::capacity::MAX_HELD;
use linerate_core::lab::Prefix;
use linerate_core::monitor::HttpUrl;
use linerate_core::plan::MAX_STREAMS;
use linerate_core::record::Cause;
use linerate_core::units::{BitRate, ByteCount, DEFAULT_PORT, EndpointName, Span};
use linerate_history::Since;

use super::documents::DbOptions;
use super::parsers::{self, Count};
use super::shared::FamilyOptions;

// Options of `serve`.

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

// Options of `monitor`, `probe` and `web`.

#[derive(Debug, Args)]
#[command(after_help = MONITOR_EXAMPLES)]
pub(crate) struct MonitorArgs {
    /// Paths, tests, budgets and alarms, in TOML; max 1 MiB
    pub(crate) file: PathBuf,
    /// Check FILE, print its runs of the next 24 hours, and run nothing
    #[arg(long, conflicts_with_all = ["once", "metrics", "otlp"])]
    pub(crate) check: bool,
    /// Run the tests that are due now, and end: for cron
    #[arg(long, conflicts_with = "metrics")]
    pub(crate) once: bool,
    /// Serve metrics to Prometheus at /metrics: a port of 127.0.0.1, or ADDRESS:PORT
    #[arg(long, value_name = "ADDR", value_parser = listen)]
    pub(crate) metrics: Option<SocketAddr>,
    /// Send the same metrics by OTLP to a collector or a store, such as http://HOST:4318
    #[arg(long, value_name = "URL", value_parser = parsers::receiver)]
    pub(crate) otlp: Option<HttpUrl>,
    /// No line on stdout for each run
    #[arg(long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) place: DbOptions,
}

const MONITOR_EXAMPLES: &str = "\
Examples:
  linerate monitor paths.toml --check
  linerate monitor paths.toml --metrics 9476
  linerate history changes --label test=bulk";

#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// A monitor's file: its paths are the targets, its tests the modules
    pub(crate) file: PathBuf,
    /// Address of /probe?target=PATH&module=TEST: a port of 127.0.0.1, or ADDRESS:PORT
    #[arg(long, value_name = "ADDR", default_value = "9477", value_parser = listen)]
    pub(crate) listen: SocketAddr,
}

#[derive(Debug, Args)]
#[command(after_help = WEB_EXAMPLES)]
pub(crate) struct WebArgs {
    /// A monitor's file: its tests can be started from the pages
    pub(crate) file: Option<PathBuf>,
    /// Address of the pages: a port of 127.0.0.1, or ADDRESS:PORT with --token-file
    #[arg(long, value_name = "ADDR", default_value = "9478", value_parser = listen)]
    pub(crate) listen: SocketAddr,
    /// Ask browsers for a password: the first line of FILE, with any user name
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: DbOptions,
}

const WEB_EXAMPLES: &str = "\
Examples:
  linerate web
  linerate web paths.toml
  linerate web --listen 192.0.2.7:9478 --token-file token";

fn listen(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse().map(|port| (Ipv4Addr::LOCALHOST, port).into());
    port.or_else(|_| text.parse())
        .map_err(|_| "it must be a port of 127.0.0.1, such as 9476, or ADDRESS:PORT".to_owned())
}

// Options of `mesh`.

#[derive(Debug, Subcommand)]
#[command(subcommand_value_name = "COMMAND", disable_help_subcommand = true)]
pub(crate) enum MeshCommand {
    /// Coordinate a mesh; without --bus all its agents run in this process
    Up(MeshUpArgs),
    /// Run a site's agent: an endpoint that runs tests for the coordinator
    Join(MeshJoinArgs),
    /// Last result of each pair, which sites explain the bad ones, and what limits those
    Matrix(MeshMatrixArgs),
    /// Print the results from one site to another, the newest first
    Pair(MeshPairArgs),
    /// Print nats-server accounts in which no site can speak for another
    Permissions(MeshPermissionsArgs),
}

/// How to log in to the NATS server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Bus")]
pub(crate) struct BusOptions {
    /// File with the NATS credentials, or the NKey seed, of this user
    #[arg(long, value_name = "FILE", requires = "bus")]
    pub(crate) credentials: Option<PathBuf>,
    /// File with the certificates that may have signed the server's
    #[arg(long, value_name = "FILE", requires = "bus")]
    pub(crate) ca: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = MESH_EXAMPLES)]
pub(crate) struct MeshUpArgs {
    /// Sites, groups and tests, in TOML; max 8 MiB
    pub(crate) file: PathBuf,
    /// NATS server, such as nats://host:4222 or tls://host:4222
    #[arg(long, value_name = "URL", help_heading = "Bus", value_parser = parsers::bus)]
    pub(crate) bus: Option<String>,
    #[command(flatten)]
    pub(crate) server: BusOptions,
    /// Emulate the hosts of FILE, a lab; the sites are its hosts
    #[arg(long, value_name = "FILE", conflicts_with = "bus", help_heading = "Mesh")]
    pub(crate) lab: Option<PathBuf>,
    /// End when each test has measured each pair both ways, or cannot
    #[arg(long, help_heading = "Mesh")]
    pub(crate) once: bool,
    /// Send each result by OTLP to a collector or a store, such as http://HOST:4318
    #[arg(long, value_name = "URL", help_heading = "Mesh", value_parser = parsers::receiver)]
    pub(crate) otlp: Option<HttpUrl>,
    /// No line on stdout for each run
    #[arg(long, help_heading = "Mesh")]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) place: DbOptions,
}

const MESH_EXAMPLES: &str = "\
Examples:
  linerate mesh up sites.toml --lab hosts.toml --once
  linerate mesh up sites.toml --bus nats://bus:4222 --credentials coordinator.nk";

#[derive(Debug, Args)]
#[command(after_help = JOIN_EXAMPLES)]
pub(crate) struct MeshJoinArgs {
    /// NATS server, such as nats://host:4222 or tls://host:4222
    #[arg(long, value_name = "URL", help_heading = "Bus", value_parser = parsers::bus)]
    pub(crate) bus: String,
    #[command(flatten)]
    pub(crate) server: BusOptions,
    /// This site's name in the mesh
    #[arg(long, value_name = "NAME", value_parser = site, help_heading = "Site")]
    pub(crate) site: String,
    /// Where other sites reach this endpoint, if the mesh's file does not say
    #[arg(long, value_name = "HOST[:PORT]", help_heading = "Site")]
    pub(crate) address: Option<EndpointName>,
    /// File of the owner's limits, in TOML (default: all tests are allowed)
    #[arg(long, value_name = "FILE", help_heading = "Site")]
    pub(crate) limits: Option<PathBuf>,
    /// File with the mesh's key, 64 hexadecimal digits, the same at all sites
    #[arg(long, value_name = "FILE", help_heading = "Site")]
    pub(crate) key_file: Option<PathBuf>,
    /// Port of the endpoint, TCP and UDP; 0 takes a free one
    #[arg(
        long, short, value_name = "PORT", default_value_t = DEFAULT_PORT, help_heading = "Site",
        value_parser = parsers::port()
    )]
    pub(crate) port: u16,
    /// Local address to listen on (default: all)
    #[arg(long, short = 'B', value_name = "ADDRESS", help_heading = "Site")]
    pub(crate) bind: Option<IpAddr>,
    /// Directory of unsent results (default ~/.local/state/linerate/mesh/NAME)
    #[arg(long, value_name = "DIR", help_heading = "Site")]
    pub(crate) unsent: Option<PathBuf>,
}

const JOIN_EXAMPLES: &str = "\
Examples:
  linerate mesh join --bus nats://bus:4222 --site ams --address ams.example.net
  linerate mesh join --bus tls://bus:4222 --credentials ams.nk --site ams \\
      --limits ams.toml";

#[derive(Debug, Args)]
#[command(after_help = MATRIX_EXAMPLES)]
pub(crate) struct MeshMatrixArgs {
    /// Sites, groups and tests, in TOML; max 8 MiB
    pub(crate) file: PathBuf,
    /// Test to show (default: the first of the file)
    #[arg(long, value_name = "NAME")]
    pub(crate) test: Option<String>,
    /// Show the results as of then: 7d ago, or a date such as 2026-11-23T14:00 (UTC)
    #[arg(long, value_name = "WHEN", value_parser = parsers::since)]
    pub(crate) at: Option<Since>,
    /// Show only the N worst pairs, as a list
    #[arg(long, value_name = "N", value_parser = parsers::number::<usize>(1, 1_000_000))]
    pub(crate) worst: Option<usize>,
    /// Show only pairs with this bottleneck, such as congestion, as a list
    #[arg(long, value_name = "CAUSE", value_parser = cause)]
    pub(crate) verdict: Option<Cause>,
    #[command(flatten)]
    pub(crate) place: DbOptions,
    /// Print the document as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the document as JSON to FILE, besides what is printed
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Print all sites and pairs
    #[arg(short = 'v', long)]
    pub(crate) details: bool,
}

const MATRIX_EXAMPLES: &str = "\
Examples:
  linerate mesh matrix sites.toml
  linerate mesh matrix sites.toml --at 2026-11-23T14:00 --worst 10
  linerate mesh matrix sites.toml --test bulk -o matrix.json
  linerate report matrix.json -o matrix.html";

#[derive(Debug, Args)]
pub(crate) struct MeshPairArgs {
    /// Sites, groups and tests, in TOML; max 8 MiB
    pub(crate) file: PathBuf,
    /// The site that sends
    pub(crate) from: String,
    /// The site that receives
    pub(crate) to: String,
    /// Test to show (default: the first of the file)
    #[arg(long, value_name = "NAME")]
    pub(crate) test: Option<String>,
    /// Show at most N results, the newest
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = parsers::number::<u32>(1, 1_000_000))]
    pub(crate) most: u32,
    #[command(flatten)]
    pub(crate) place: DbOptions,
}

#[derive(Debug, Args)]
pub(crate) struct MeshPermissionsArgs {
    /// Sites, groups and tests, in TOML; max 8 MiB
    pub(crate) file: PathBuf,
    /// Directory of the keys NAME.nk; missing ones are made
    #[arg(long, value_name = "DIR")]
    pub(crate) keys: PathBuf,
}

fn site(text: &str) -> Result<String, String> {
    if linerate_mesh::message::is_site(text) {
        Ok(text.to_owned())
    } else {
        let why = "it must be 1 to 64 letters, digits, -, _ and ., and not coordinator";
        Err(why.to_owned())
    }
}

/// A cause as JSON has it.
fn cause(text: &str) -> Result<Cause, String> {
    serde_json::from_value(text.into())
        .map_err(|_| "it must be a cause, such as congestion or path_rate".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_those_of_the_tools() {
        assert_eq!(NETPERF_PORT, linerate_core::foreign::netperf::PORT.to_string());
        assert_eq!(STAMP_PORT, linerate_core::wire::STAMP_PORT.to_string());
    }
}

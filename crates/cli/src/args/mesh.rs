//! Options of `mesh`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use linerate_core::monitor::HttpUrl;
use linerate_core::record::Cause;
use linerate_core::units::{DEFAULT_PORT, EndpointName};
use linerate_history::Since;

use super::history::DbOptions;
use super::parsers;

#[derive(Debug, Subcommand)]
#[command(subcommand_value_name = "COMMAND", disable_help_subcommand = true)]
pub(crate) enum MeshCommand {
    /// Coordinate a mesh; without --bus all its agents run in this process
    Up(MeshUpArgs),
    /// Run a site's agent: an endpoint that runs tests for the coordinator
    Join(MeshJoinArgs),
    /// Last result of each pair, and which sites explain the bad ones
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
#[command(after_help = EXAMPLES)]
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
    /// End when each test has measured each pair once, or cannot
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

const EXAMPLES: &str = "\
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

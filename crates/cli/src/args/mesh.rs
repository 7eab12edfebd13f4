//! Options of `mesh`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use linerate_core::record::Cause;
use linerate_core::units::{DEFAULT_PORT, EndpointName};
use linerate_history::{Place, Since};

use super::parsers;

#[derive(Debug, Subcommand)]
#[command(subcommand_value_name = "COMMAND", disable_help_subcommand = true)]
pub(crate) enum MeshCommand {
    /// Coordinate the tests of a mesh; without --bus its agents are in this process
    Up(MeshUpArgs),
    /// Be the agent of a site: serve, and run the tests that the coordinator asks for
    Join(MeshJoinArgs),
    /// The last result of each pair, and which sites or groups explain the bad ones
    Matrix(MeshMatrixArgs),
    /// The results from one site to another over time
    Pair(MeshPairArgs),
    /// What the schedule of a mesh does, in virtual time
    Simulate(MeshSimulateArgs),
    /// The accounts of a nats-server in which no site can speak for another
    Permissions(MeshPermissionsArgs),
}

/// Where the bus is.
#[derive(Debug, Args)]
#[command(next_help_heading = "Bus")]
pub(crate) struct BusOptions {
    /// Credentials of a user of NATS, or the seed of an NKey, in FILE
    #[arg(long, value_name = "FILE", requires = "bus")]
    pub(crate) credentials: Option<PathBuf>,
    /// Certificates that the server's may be signed by, in FILE
    #[arg(long, value_name = "FILE", requires = "bus")]
    pub(crate) ca: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MeshUpArgs {
    /// Sites, groups and tests, in TOML; max 8 MiB
    pub(crate) file: PathBuf,
    /// The server of NATS, such as nats://host:4222 or tls://host:4222
    #[arg(long, value_name = "URL", help_heading = "Bus")]
    pub(crate) bus: Option<String>,
    #[command(flatten)]
    pub(crate) server: BusOptions,
    /// Make the lab of FILE, whose hosts are the sites, for agents in this process
    #[arg(long, value_name = "FILE", conflicts_with = "bus")]
    pub(crate) lab: Option<PathBuf>,
    /// End when each pair was measured once by each test, or is known not to be measured
    #[arg(long)]
    pub(crate) once: bool,
    /// The history in FILE, or at postgres://USER@HOST/DATABASE (default what the mesh's file says,
    /// else ~/.local/state/linerate/history.db)
    #[arg(long, value_name = "FILE")]
    pub(crate) db: Option<Place>,
    /// No line on stdout for each run
    #[arg(long)]
    pub(crate) quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  linerate mesh up sites.toml --lab hosts.toml --once
  linerate mesh up sites.toml --bus nats://bus:4222 --credentials coordinator.nk
  linerate mesh simulate sites.toml";

#[derive(Debug, Args)]
#[command(after_help = JOIN_EXAMPLES)]
pub(crate) struct MeshJoinArgs {
    /// The server of NATS, such as nats://host:4222 or tls://host:4222
    #[arg(long, value_name = "URL", help_heading = "Bus")]
    pub(crate) bus: String,
    #[command(flatten)]
    pub(crate) server: BusOptions,
    /// This site's name in the mesh
    #[arg(long, value_name = "NAME", value_parser = site)]
    pub(crate) site: String,
    /// Where the others reach this endpoint (default what the mesh's file says)
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) address: Option<EndpointName>,
    /// What this site's owner allows, in TOML (default all that the coordinator asks for)
    #[arg(long, value_name = "FILE")]
    pub(crate) limits: Option<PathBuf>,
    /// The mesh's key, 64 hexadecimal digits in FILE; the other sites have the same
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Port of the endpoint, TCP and UDP; 0 takes a free one
    #[arg(long, short, value_name = "PORT", default_value_t = DEFAULT_PORT)]
    pub(crate) port: u16,
    /// Address to listen on (default all)
    #[arg(long, short = 'B', value_name = "ADDRESS")]
    pub(crate) bind: Option<IpAddr>,
    /// Keep results that are not sent yet in DIR (default ~/.local/state/linerate/mesh/NAME)
    #[arg(long, value_name = "DIR")]
    pub(crate) unsent: Option<PathBuf>,
}

const JOIN_EXAMPLES: &str = "\
Examples:
  linerate mesh join --bus nats://bus:4222 --site ams --address ams.example.net
  linerate mesh join --bus tls://bus:4222 --credentials ams.nk --site ams --limits ams.toml";

#[derive(Debug, Args)]
#[command(after_help = MATRIX_EXAMPLES)]
pub(crate) struct MeshMatrixArgs {
    /// Sites, groups and tests, in TOML; max 8 MiB
    pub(crate) file: PathBuf,
    /// The test of that name (default the first of the file)
    #[arg(long, value_name = "NAME")]
    pub(crate) test: Option<String>,
    /// The results as they were then: 7d ago, or a date such as 2026-11-23T14:00 (UTC)
    #[arg(long, value_name = "WHEN", value_parser = parsers::since)]
    pub(crate) at: Option<Since>,
    /// Only the N worst pairs, as a list
    #[arg(long, value_name = "N", value_parser = parsers::number::<usize>(1, 1_000_000))]
    pub(crate) worst: Option<usize>,
    /// Only the pairs with this bottleneck, such as congestion, as a list
    #[arg(long, value_name = "CAUSE", value_parser = cause)]
    pub(crate) verdict: Option<Cause>,
    /// The history in FILE, or at postgres://USER@HOST/DATABASE (default what the mesh's file says,
    /// else ~/.local/state/linerate/history.db)
    #[arg(long, value_name = "FILE")]
    pub(crate) db: Option<Place>,
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
    /// The test of that name (default the first of the file)
    #[arg(long, value_name = "NAME")]
    pub(crate) test: Option<String>,
    /// Show at most N results, the newest
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = parsers::number::<u32>(1, 1_000_000))]
    pub(crate) most: u32,
    /// The history in FILE, or at postgres://USER@HOST/DATABASE (default what the mesh's file says,
    /// else ~/.local/state/linerate/history.db)
    #[arg(long, value_name = "FILE")]
    pub(crate) db: Option<Place>,
}

#[derive(Debug, Args)]
pub(crate) struct MeshSimulateArgs {
    /// Sites, groups and tests, in TOML; max 8 MiB
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct MeshPermissionsArgs {
    /// Sites, groups and tests, in TOML; max 8 MiB
    pub(crate) file: PathBuf,
    /// Directory of the keys NAME.nk; those that are not there are made
    #[arg(long, value_name = "DIR")]
    pub(crate) keys: PathBuf,
}

fn site(text: &str) -> Result<String, String> {
    if linerate_mesh::message::is_name(text) {
        Ok(text.to_owned())
    } else {
        Err("it must be 1 to 64 letters, digits, -, _ and .".to_owned())
    }
}

/// A cause as JSON has it.
fn cause(text: &str) -> Result<Cause, String> {
    serde_json::from_value(text.into())
        .map_err(|_| "it must be a cause, such as congestion or path_rate".to_owned())
}

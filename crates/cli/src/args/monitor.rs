//! Options of `monitor`, `probe` and `web`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use linerate_core::monitor::HttpUrl;

use super::history::DbOptions;
use super::parsers;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
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

const EXAMPLES: &str = "\
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

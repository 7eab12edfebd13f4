//! Options of `load`.

use clap::Args;
use clap::builder::Resettable;
use linerate_core::units::Span;

use super::parsers;
use super::shared::{CsvOptions, DocumentOptions, PathOptions, RandomOptions};

/// With `--lab` there is no host: the first argument is the mix.
#[derive(Debug, Args)]
#[command(mut_arg("lab", |lab| lab.conflicts_with(Resettable::<clap::Id>::Reset)))]
pub(crate) struct LoadArgs {
    /// Endpoint: host, host:port or [v6]:port, several as pit,pat; not with --lab
    #[arg(required_unless_present_any = ["lab", "list"])]
    pub(crate) host: Option<String>,
    /// Mix: a name of --list, a file such as mine.toml, or the JSON of a load (default rrul)
    pub(crate) mix: Option<String>,
    /// List the built-in mixes
    #[arg(long, exclusive = true)]
    pub(crate) list: bool,
    /// Measured time, 100ms to 1h (default: as the mix says, mostly 10s)
    #[arg(long, short, value_name = "TIME", value_parser = parsers::time(100, parsers::HOUR))]
    pub(crate) time: Option<Span>,
    /// Flows of the members that scale, 1 to 256: tcp_nup, tcp_ndown, incast
    #[arg(
        long, short = 'P', alias = "parallel", value_name = "N",
        value_parser = parsers::number::<u32>(1, 256)
    )]
    pub(crate) flows: Option<u32>,
    #[command(flatten)]
    pub(crate) random: RandomOptions,
    #[command(flatten)]
    pub(crate) path: PathOptions,
    #[command(flatten)]
    pub(crate) document: DocumentOptions,
    #[command(flatten)]
    pub(crate) csv: CsvOptions,
}

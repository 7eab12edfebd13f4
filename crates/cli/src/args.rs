//! The options of each command, as clap reads them.
//!
//! This module only reads: the text of an option becomes a quantity, and options that exclude each
//! other are refused. Defaults, and checks that depend on values, are in [`crate::plan`]; an option
//! that was not given is `None` here.

mod documents;
mod host;
mod options;
mod parsers;
mod services;
mod shared;
mod trace;
mod traffic;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{Resettable, StyledStr};
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use linerate_core::foreign::Tool;
use linerate_core::units::{BitRate, ByteCount, EndpointName, Span};

pub(crate) use documents::{
    AnalyzeArgs, ChangesArgs, CompareRunsArgs, ExportArgs, ExportFormat, FilterOptions,
    HistoryArgs, HistoryCommand, InputName, ListArgs, MediansArgs, PruneArgs, ReportArgs,
    RerunArgs, ShowArgs, WatchOptions,
};
pub(crate) use host::{
    ConnectionsArgs, HostCommand, HostProfileArgs, HostSetArgs, HostShowArgs, HostUndoArgs,
    LabCommand, LabDownArgs, LabExecArgs, LabHoldArgs, LabStatusArgs, LabUpArgs, NeedOptions,
    QosApplyArgs, QosCheckArgs, QosCommand, QosExplainArgs, QosImport, QosInterfaceArgs,
    QosStatsArgs, QosStatusArgs, SortKey, WhichOptions,
};
pub(crate) use options::{Choice, TestOptions};
pub(crate) use parsers::{Count, SCHEME, names_host};
pub(crate) use services::{
    BusOptions, LimitOptions, ListenOptions, MAX_FLOWS, MeshCommand, MeshJoinArgs, MeshMatrixArgs,
    MeshPairArgs, MeshPermissionsArgs, MeshUpArgs, MonitorArgs, OtherOptions, ProbeArgs, ServeArgs,
    WebArgs,
};
pub(crate) use shared::{
    BaselineOptions, CsvOptions, CsvRows, DocumentOptions, KeepOptions, PathOptions, RandomOptions,
    RepeatOptions, RunOptions, TitleOptions, WhichRun,
};
pub(crate) use trace::TraceArgs;
pub(crate) use traffic::{
    By, CapacityArgs, CompareArgs, CrrArgs, ExperimentArgs, FailOn, Load, LoadArgs, LoadLine,
    LoadOptions, PopulationOptions, ProfileArgs, ProfileOptions, RrArgs, SearchOptions, StreamArgs,
    ThroughputArgs,
};

/// Measures what a network path gives a host and explains what holds it back
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, arg_required_else_help = true)]
#[command(subcommand_value_name = "COMMAND", disable_help_subcommand = true)]
#[command(help_template = OVERVIEW)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// All commands with their options.
    pub(crate) fn whole() -> clap::Command {
        let mut whole = Self::command();
        let described: Vec<_> = whole.get_subcommands().map(description).collect();
        whole.build();
        let mut described = described.into_iter();
        whole.mut_subcommands(|named| match described.next() {
            Some(description) => redescribed(named, description),
            None => named,
        })
    }
}

/// Builds the options of one command. Options are built late, as those of all commands would take
/// half of the memory of an endpoint that waits; what the command would inherit is set here.
pub(crate) fn built(named: clap::Command) -> clap::Command {
    let description = description(&named);
    let mut named = named.disable_help_subcommand(true);
    named.build();
    redescribed(named, description)
}

/// The short and the long description.
fn description(of: &clap::Command) -> [Resettable<StyledStr>; 2] {
    [of.get_about(), of.get_long_about()].map(|about| about.cloned().into())
}

/// Restores the description of a command: building it puts those of its option groups in its place.
fn redescribed(named: clap::Command, [about, long]: [Resettable<StyledStr>; 2]) -> clap::Command {
    named.about(about).long_about(long)
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Examine the path to HOST; without HOST a demonstration here
    Check(CheckArgs),
    /// Answer clients: the endpoint of every test
    Serve(ServeArgs),
    /// Bulk transfer over TCP, MPTCP or UDP; sweeps, both directions
    Stream(StreamArgs),
    /// Request and response: rate and latency; on new connections: crr
    Rr(RrArgs),
    /// Connect, request, response, close: connections and latency
    #[command(hide = true)]
    Crr(CrrArgs),
    /// Several loads at once: totals, latency by class, quality of calls
    Load(LoadArgs),
    /// How much UDP gets through without loss, by frame size (RFC 2544)
    Throughput(ThroughputArgs),
    /// Hold many connections: what they cost and what sets the limit
    Capacity(CapacityArgs),
    /// Compare A and B in pairs: DIFFERENT, EQUIVALENT or INCONCLUSIVE
    Compare(Box<CompareArgs>),
    /// Run an experiment from its file, or resume it
    Run(ExperimentArgs),
    /// Where a transfer's CPU time goes, layer by layer, at both ends
    Profile(ProfileArgs),
    /// The route to a host, its delays, what happens to packets on it
    Trace(TraceArgs),
    /// Every TCP connection of this host: rate, RTT, bottleneck
    Connections(ConnectionsArgs),
    /// Explain a document, a capture, or other programs' connections
    Explain(ExplainArgs),
    /// Make a page with charts of stored documents: HTML or Markdown
    Report(ReportArgs),
    /// Saved runs: list, show, compare, changes, export, prune
    History(HistoryArgs),
    /// Measure on a schedule; see also `linerate web`, `linerate mesh`
    Monitor(MonitorArgs),
    /// Measure between many sites: up, join, matrix, pair, permissions
    #[command(subcommand, hide = true)]
    Mesh(MeshCommand),
    /// Show the history in a browser: paths, changes, reports; start a test
    #[command(hide = true)]
    Web(WebArgs),
    /// Run a test when Prometheus asks, as blackbox_exporter does
    #[command(hide = true)]
    Probe(ProbeArgs),
    /// Run the test of a stored document again
    Rerun(RerunArgs),
    /// Statistics and ceilings of figures measured elsewhere
    Analyze(AnalyzeArgs),
    /// Hosts, routers and links on this machine: up, exec, status, down
    #[command(subcommand)]
    Lab(LabCommand),
    /// DiffServ policies here: check, apply, status, stats, explain
    #[command(subcommand)]
    Qos(QosCommand),
    /// Limits and settings of this host: show, set, undo, profile
    #[command(subcommand)]
    Host(HostCommand),
    /// iperf3's command line and output: linerate iperf3 -c HOST
    #[command(disable_help_flag = true)]
    Iperf3 {
        /// iperf3's options; --help prints them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Print the file of your defaults: its path and its settings
    #[command(hide = true)]
    Config,
    /// Print completions for a shell: linerate completions bash > FILE
    #[command(hide = true)]
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: Shell,
    },
    /// Write the manual pages into a directory
    #[command(hide = true)]
    Man {
        /// An existing directory
        directory: PathBuf,
    },
    /// Undo the changes of a process on this host when it is killed
    #[command(hide = true)]
    WatchTreatments(WatchArgs),
    /// Hold connections for the process that started this one
    #[command(hide = true)]
    CapacityWorker,
}

/// The process that is watched.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Process ID
    pub(crate) pid: u32,
    /// When it began, in clock ticks after boot
    pub(crate) started: u64,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Endpoint: host, host:port, [v6]:port or ssh://host; without it, a demonstration path here
    #[arg(value_parser = parsers::host_or_ssh)]
    pub(crate) host: Option<EndpointName>,
    /// 4 to 10 s: one run and one change each way, no intervals and no RPM
    #[arg(long)]
    pub(crate) quick: bool,
    /// Six equal runs each way, without changes that prove the bottleneck
    #[arg(long)]
    pub(crate) no_prove: bool,
    /// Most payload of all runs each way, such as 500M; what is not proved then is said
    #[arg(long, value_name = "SIZE", value_parser = parsers::bytes(1 << 20, u64::MAX))]
    pub(crate) max_bytes: Option<ByteCount>,
    /// Time of each run, 500ms to 60s (default 0.5s, more if round trips are long)
    #[arg(long, short, value_name = "TIME", value_parser = parsers::time(500, parsers::MINUTE))]
    pub(crate) time: Option<Span>,
    /// Flows of each run, 1 to 256 (default 1)
    #[arg(
        long, short = 'P', alias = "parallel", value_name = "N",
        value_parser = parsers::number::<u32>(1, 256)
    )]
    pub(crate) streams: Option<u32>,
    /// Congestion control of the senders (default: as the hosts have it)
    #[arg(long, short = 'C', value_name = "NAME")]
    pub(crate) congestion: Option<String>,
    /// UDP at the rate of -b instead of TCP: loss and jitter
    #[arg(long, short, requires = "rate", conflicts_with = "congestion")]
    pub(crate) udp: bool,
    /// UDP: payload rate of each flow, such as 20mbit
    #[arg(
        long, short = 'b', alias = "bitrate", value_name = "RATE", requires = "udp",
        value_parser = parsers::rate_with_unit
    )]
    pub(crate) rate: Option<BitRate>,
    /// Exit with 1 if either direction is slower than RATE, such as 90mbit
    #[arg(long, value_name = "RATE", value_parser = parsers::rate_with_unit)]
    pub(crate) fail_below: Option<BitRate>,
    /// Exit with 1 if either direction has fewer round trips per minute under load, such as 1000
    #[arg(
        long, value_name = "N", conflicts_with = "quick",
        value_parser = parsers::number::<u32>(1, 1_000_000)
    )]
    pub(crate) fail_below_rpm: Option<u32>,
    #[command(flatten)]
    pub(crate) random: RandomOptions,
    /// Use only this kind of server: iperf3, netperf, stamp (default: what answers)
    #[arg(
        long, value_name = "TOOL", help_heading = "Path", requires = "host",
        value_parser = parsers::tool(), hide_possible_values = true
    )]
    pub(crate) via: Option<Tool>,
    #[command(flatten)]
    pub(crate) path: PathOptions,
    #[command(flatten)]
    pub(crate) document: DocumentOptions,
    #[command(flatten)]
    pub(crate) title: TitleOptions,
    #[command(flatten)]
    pub(crate) beside: BaselineOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A document, a saved run (number, label or last), or a capture, packed or not; - is stdin
    #[arg(
        value_name = "FILE|RUN",
        conflicts_with_all = ["process", "netns", "container", "time", "before", "prove"]
    )]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) capture: CaptureOptions,
    #[command(flatten)]
    pub(crate) watch: WatchOptions,
    #[command(flatten)]
    pub(crate) document: DocumentOptions,
    #[command(flatten)]
    pub(crate) csv: CsvOptions,
}

/// Connections of a packet capture, or without a file of this host.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which connections, of a capture or of this host")]
pub(crate) struct CaptureOptions {
    /// With this port; several as 80,443
    #[arg(
        long, short, value_name = "PORT", value_delimiter = ',',
        value_parser = parsers::number::<u16>(1, 65_535)
    )]
    pub(crate) port: Vec<u16>,
    /// With this address, network (198.18.0.0/15) or name
    #[arg(long, value_name = "PEER")]
    pub(crate) peer: Option<String>,
    /// List all connections of a capture instead of explaining the largest
    #[arg(long, requires = "file")]
    pub(crate) flows: bool,
}

/// clap's template without usage and options, so that all commands fit on a screen.
const OVERVIEW: &str = "{about}\n{subcommands}
Begin: `linerate serve` there, `linerate check HOST` here; COMMAND -h has more";

/// The command of a command line without the program's name.
#[cfg(test)]
pub(crate) fn command(line: &str) -> Result<Command, String> {
    let words = ["linerate"].into_iter().chain(line.split_whitespace());
    let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
    Ok(cli.command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_names_others_that_exist_and_has_a_help_of_one_line() {
        Cli::command().debug_assert();
        for command in Cli::whole().get_subcommands() {
            for option in command.get_arguments() {
                let help = option.get_help().map(ToString::to_string).unwrap_or_default();
                let fits = (1..=90).contains(&help.chars().count()) && !help.contains('\n');
                assert!(fits, "{} {}: {help:?}", command.get_name(), option.get_id());
            }
        }
    }

    #[test]
    fn the_overview_fits_a_terminal_of_80_by_24() {
        let help = Cli::command().term_width(80).render_help().to_string();
        assert!(help.lines().count() <= 24, "{help}");
        let widest = help.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{help}");
    }
}

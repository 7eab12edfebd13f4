//! Options of `compare`.

use clap::{Args, Parser, Subcommand, ValueEnum};
use linerate_core::compare::{Fault, MAX_PAIRS, Metric};
use linerate_core::link::PathSpec;
use linerate_core::plan::Workload;
use linerate_core::treatment::{Scope, Treatments, table};
use linerate_core::units::{EndpointName, Percent};

use super::options::{OfCompare, OfCrr, OfRr, OfStream, TestOptions};
use super::parsers;
use super::shared::{BaselineOptions, DocumentOptions, PathOptions, RandomOptions};

#[derive(Debug, Args)]
#[command(after_help = after_help(), override_usage = USAGE)]
pub(crate) struct CompareArgs {
    /// Endpoint, where `linerate serve` answers: host, host:port or [v6]:port
    #[arg(required_unless_present = "lab")]
    pub(crate) host: Option<EndpointName>,
    /// Treatment A: NAME=VALUE, several with commas, or none
    #[arg(long, value_name = "TREATMENT", required_unless_present = "lab_b")]
    pub(crate) a: Option<Treatments>,
    /// Treatment B, whose effect against A is measured
    #[arg(long, value_name = "TREATMENT", required_unless_present = "lab_b")]
    pub(crate) b: Option<Treatments>,
    /// Emulated path of B, where --lab is that of A: the paths are compared
    #[arg(
        long, value_name = "SPEC", requires = "lab", conflicts_with = "with",
        value_parser = parsers::lab
    )]
    pub(crate) lab_b: Option<PathSpec>,
    /// Print all treatments: their ranges, what they need, how they are undone
    #[arg(long, exclusive = true)]
    pub(crate) treatments: bool,
    #[command(flatten)]
    pub(crate) design: DesignOptions,
    /// stream, rr or crr (default stream)
    #[arg(
        long, value_parser = parsers::workload(), hide_possible_values = true,
        help_heading = "Workload"
    )]
    pub(crate) workload: Option<Workload>,
    #[command(flatten)]
    pub(crate) test: TestOptions<OfCompare>,
    #[command(flatten)]
    pub(crate) path: PathOptions,
    #[command(flatten)]
    pub(crate) document: DocumentOptions,
    #[command(flatten)]
    pub(crate) beside: BaselineOptions,
}

/// The value of `--with`: a workload with its options.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true, disable_help_subcommand = true)]
pub(crate) struct LoadLine {
    #[command(subcommand)]
    pub(crate) load: Load,
}

/// The load beside the runs of a comparison.
#[derive(Debug, Subcommand)]
pub(crate) enum Load {
    Stream(TestOptions<OfStream>),
    Rr(TestOptions<OfRr>),
    Crr(TestOptions<OfCrr>),
}

/// What a comparison fails on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub(crate) enum FailOn {
    Worse,
    Different,
}

/// The design of the comparison.
#[derive(Debug, Args)]
#[command(next_help_heading = "Comparison")]
pub(crate) struct DesignOptions {
    /// Figures of a record, the decisive one first, as latency_us.p99 or rpm (default: the rate)
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    pub(crate) metric: Vec<Metric>,
    /// Differences below P% are none: what EQUIVALENT means (default: it is not tested)
    #[arg(long, value_name = "P%", value_parser = parsers::margin())]
    pub(crate) margin: Option<Percent>,
    /// A load beside every run: a workload with its options, as "stream -P 4"
    #[arg(long, value_name = "WORKLOAD")]
    pub(crate) with: Option<String>,
    /// Max pairs, 6 to 30
    #[arg(
        long, value_name = "N", default_value = "30",
        value_parser = parsers::number::<u32>(FEWEST_PAIRS.into(), MAX_PAIRS.into())
    )]
    pub(crate) pairs: u32,
    /// Exit with 1 if B is worse (beyond --margin), or different: worse, different
    #[arg(long, value_name = "WHAT", hide_possible_values = true)]
    pub(crate) fail_on: Option<FailOn>,
    /// Faults that exclude a pair, such as retransmissions,busy_host
    #[arg(long, value_name = "FAULTS", value_delimiter = ',')]
    pub(crate) forbid: Vec<Fault>,
    #[command(flatten)]
    pub(crate) random: RandomOptions,
}

/// Fewer pairs cannot reach 5 %, whatever they show.
const FEWEST_PAIRS: u32 = 6;

/// The treatments by their scopes, from the one table of them, and examples.
fn after_help() -> String {
    let of = |scope: Scope| {
        let names = table().iter().filter(|entry| entry.scope == scope);
        names.map(|entry| entry.name).collect::<Vec<_>>().join(" ")
    };
    format!(
        "Treatments (`compare --treatments` says all of them):\n\
         \x20 of sockets, at both ends: {}\n\
         \x20 of this host, or with server. before the name of the endpoint's:\n\
         \x20   devices: {}\n    routes: {}\n    hosts: {}, such as \
         sysctl:net.ipv4.tcp_sack=0\n\n{EXAMPLES}",
        of(Scope::Socket),
        of(Scope::Device),
        of(Scope::Route),
        of(Scope::Host)
    )
}

const USAGE: &str = "linerate compare [OPTIONS] --a <TREATMENT> --b <TREATMENT> [HOST]";
const EXAMPLES: &str = "\
Examples:
  linerate compare pit --a checksum_offload=on --b checksum_offload=off
  linerate compare pit --a none --b congestion=bbr --margin 2%
  linerate compare pit --workload rr --with \"stream -P 4\" \\
      --a qos=off --b qos=voice.toml
  linerate compare --lab rate=100mbit,rtt=29ms \\
      --a receive_window=50KiB --b receive_window=400KiB
  linerate compare --metric rpm \\
      --lab rate=20mbit,queue=1250kB --lab-b rate=20mbit,aqm=codel";

//! Options of the commands that send the traffic of tests: `stream`, `rr` and `crr`, `load`,
//! `profile`, `run`, `compare`, `capacity` and `throughput`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::Resettable;
use clap::{Args, Parser, Subcommand, ValueEnum};
use linerate_core::capacity::{MAX_HELD, MAX_MESSAGE, MAX_PER_S, MIN_MESSAGE};
use linerate_core::compare::{Fault, MAX_PAIRS, Metric};
use linerate_core::link::PathSpec;
use linerate_core::plan::{Direction, Workload};
use linerate_core::profile::{MAX_HZ, MIN_HZ};
use linerate_core::throughput::FrameSize;
use linerate_core::treatment::{Scope, Treatments, table};
use linerate_core::units::{BitRate, ByteCount, EndpointName, Percent, Span};

use super::options::{OfCompare, OfCrr, OfProfile, OfRr, OfStream, TestOptions};
use super::parsers::{self, Count};
use super::shared::{BaselineOptions, CsvOptions, RandomOptions, RunOptions};
use super::{DocumentOptions, PathOptions};

// Options of `stream`, `rr` and `crr`.

#[derive(Debug, Args)]
pub(crate) struct StreamArgs {
    #[command(flatten)]
    pub(crate) test: TestOptions<OfStream>,
    /// Exit with 1 if a run, or one direction of it, is slower than RATE
    #[arg(
        long, value_name = "RATE", help_heading = "Stream", value_parser = parsers::rate_with_unit
    )]
    pub(crate) fail_below: Option<BitRate>,
    /// Prove what holds the test back: some ten runs, every second with one thing changed
    #[arg(
        long, help_heading = "Stream",
        conflicts_with_all = ["repeat", "precision", "json_stream"]
    )]
    pub(crate) prove: bool,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

#[derive(Debug, Args)]
pub(crate) struct RrArgs {
    #[command(flatten)]
    pub(crate) test: TestOptions<OfRr>,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

#[derive(Debug, Args)]
pub(crate) struct CrrArgs {
    #[command(flatten)]
    pub(crate) test: TestOptions<OfCrr>,
    #[command(flatten)]
    pub(crate) run: RunOptions,
}

// Options of `load`.

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

// Options of `profile`.

#[derive(Debug, Args)]
#[command(after_help = PROFILE_EXAMPLES)]
pub(crate) struct ProfileArgs {
    /// Endpoint, where `linerate serve` answers: host, host:port or [v6]:port
    #[arg(required_unless_present = "lab")]
    pub(crate) host: Option<EndpointName>,
    #[command(flatten)]
    pub(crate) profile: ProfileOptions,
    #[command(flatten)]
    pub(crate) test: TestOptions<OfProfile>,
    #[command(flatten)]
    pub(crate) path: PathOptions,
    #[command(flatten)]
    pub(crate) document: DocumentOptions,
}

/// What the CPU time is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// Layers.
    Layer,
    /// Functions, below the layers.
    Function,
}

/// Options of sampling and projections.
#[derive(Debug, Args)]
#[command(next_help_heading = "Profile")]
pub(crate) struct ProfileOptions {
    /// Samples/s of each CPU, over all ends on it, 10 to 9999 (default 499)
    #[arg(
        long, value_name = "N", value_parser = parsers::number::<u32>(MIN_HZ.into(), MAX_HZ.into())
    )]
    pub(crate) hz: Option<u32>,
    /// layer, or function: its functions too (default layer)
    #[arg(long, value_enum, hide_possible_values = true)]
    pub(crate) by: Option<By>,
    /// Write a flame graph of both ends as SVG to FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) flame: Option<PathBuf>,
    /// Write the folded stacks of both ends to FILE, for other tools
    #[arg(long, value_name = "FILE")]
    pub(crate) folded: Option<PathBuf>,
    /// Project what each change would bring, from a design of short runs
    #[arg(long)]
    pub(crate) what_if: bool,
    /// The same, and do those that this host can, by paired comparison
    #[arg(long)]
    pub(crate) prove: bool,
    /// Write and read a file of the same size (max 1GiB) in DIR beside it
    #[arg(long, value_name = "DIR")]
    pub(crate) disk: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) random: RandomOptions,
}

const PROFILE_EXAMPLES: &str = "\
Examples:
  linerate profile pit
  linerate profile pit -u --rate max --no-offload --by function --flame udp.svg
  linerate profile --lab mtu=9000 --prove";

// Options of `run`.

#[derive(Debug, Args)]
pub(crate) struct ExperimentArgs {
    /// The experiment, in TOML; max 1 MiB
    pub(crate) file: PathBuf,
    /// Fewer and shorter runs, as the file says under [quick]
    #[arg(long)]
    pub(crate) quick: bool,
    /// Endpoint to run it against, in place of the file's path
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<EndpointName>,
    /// Seed of every random choice, 0 to 2^64-1 (default: the file's)
    #[arg(long, value_name = "N", value_parser = parsers::seed())]
    pub(crate) seed: Option<u64>,
    /// Keep each run in FILE (default: beside the experiment, FILE.records.jsonl)
    #[arg(long, value_name = "FILE")]
    pub(crate) records: Option<PathBuf>,
    /// Throw away the runs that are kept, and begin again
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Print the runs that would be made, and make none
    #[arg(long)]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) path: PathOptions,
    #[command(flatten)]
    pub(crate) document: DocumentOptions,
}

// Options of `compare`.

#[derive(Debug, Args)]
#[command(after_help = after_help(), override_usage = COMPARE_USAGE)]
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
         sysctl:net.ipv4.tcp_sack=0\n\n{COMPARE_EXAMPLES}",
        of(Scope::Socket),
        of(Scope::Device),
        of(Scope::Route),
        of(Scope::Host)
    )
}

const COMPARE_USAGE: &str = "linerate compare [OPTIONS] --a <TREATMENT> --b <TREATMENT> [HOST]";
const COMPARE_EXAMPLES: &str = "\
Examples:
  linerate compare pit --a checksum_offload=on --b checksum_offload=off
  linerate compare pit --a none --b congestion=bbr --margin 2%
  linerate compare pit --workload rr --with \"stream -P 4\" \\
      --a qos=off --b qos=voice.toml
  linerate compare --lab rate=100mbit,rtt=29ms \\
      --a receive_window=50KiB --b receive_window=400KiB
  linerate compare --metric rpm \\
      --lab rate=20mbit,queue=1250kB --lab-b rate=20mbit,aqm=codel";

// Options of `capacity`.

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

// Options of `throughput`.

#[derive(Debug, Args)]
#[command(after_help = THROUGHPUT_EXAMPLES)]
pub(crate) struct ThroughputArgs {
    /// Endpoint: host, host:port or [v6]:port; an iperf3 server does, too
    #[arg(required_unless_present = "lab")]
    pub(crate) host: Option<EndpointName>,
    #[command(flatten)]
    pub(crate) search: SearchOptions,
    #[command(flatten)]
    pub(crate) path: PathOptions,
    #[command(flatten)]
    pub(crate) document: DocumentOptions,
}

/// The frames and rates of a search, and what a rate has to keep.
#[derive(Debug, Args)]
#[command(next_help_heading = "Search")]
pub(crate) struct SearchOptions {
    /// Frame sizes with check sequence, 64 to 65553 bytes, or mtu (default: RFC 2544's seven)
    #[arg(long, short = 'l', value_name = "BYTES,...", value_delimiter = ',')]
    pub(crate) frames: Vec<FrameSize>,
    /// up, down or both one after the other, as seen from this host (default up)
    #[arg(
        long, value_name = "DIRECTION", default_value = "up", hide_default_value = true,
        hide_possible_values = true, value_parser = parsers::direction()
    )]
    pub(crate) direction: Direction,
    /// The same as --direction down
    #[arg(long, short = 'R', conflicts_with = "direction")]
    pub(crate) reverse: bool,
    /// Datagrams that may be lost, 0% to 50% (default 0%)
    #[arg(long, value_name = "PERCENT", default_value = "0%", hide_default_value = true)]
    pub(crate) loss: Percent,
    /// Length of a trial, 200ms to 10min (default 1s; RFC 2544 has 60s)
    #[arg(
        long, short = 't', value_name = "TIME", default_value = "1s", hide_default_value = true,
        value_parser = parsers::time(200, 10 * parsers::MINUTE)
    )]
    pub(crate) trial: Span,
    /// Trials of a rate, the most of which decide: odd, 1 to 15 (default 3)
    #[arg(
        long, value_name = "N", default_value = "3", hide_default_value = true,
        value_parser = parsers::number::<u32>(1, 15)
    )]
    pub(crate) trials: u32,
    /// How near the rate that fails is to the one that passes, 0.1% to 20% (default 1%)
    #[arg(long, value_name = "PERCENT", default_value = "1%", hide_default_value = true)]
    pub(crate) width: Percent,
    /// Find the longest burst that passes whole, too: what the queue or bucket takes at once
    #[arg(long)]
    pub(crate) bursts: bool,
    /// Highest rate of frames, or max; needed off loopback, --lab and test networks
    #[arg(long, short = 'b', value_name = "RATE", value_parser = parsers::most_rate)]
    pub(crate) max_rate: Option<MostRate>,
    /// Most bytes that all trials send together (default: no limit)
    #[arg(long, value_name = "SIZE", value_parser = parsers::bytes(1, u64::MAX))]
    pub(crate) max_bytes: Option<ByteCount>,
    #[command(flatten)]
    pub(crate) random: RandomOptions,
}

/// A highest rate; `None`: as fast as the sender can.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MostRate(pub(crate) Option<BitRate>);

const THROUGHPUT_EXAMPLES: &str = "\
Examples:
  linerate throughput pit --max-rate 1gbit
  linerate throughput pit --max-rate max --frames 64,512,1518,mtu --loss 0.01%
  linerate throughput --lab rate=100mbit,rtt=10ms --direction both";

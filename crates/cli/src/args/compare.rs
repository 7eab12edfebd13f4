//! Options of `compare`.

use clap::Args;
use linerate_core::compare::{Fault, Metric};
use linerate_core::plan::{Closer, Direction, Workload};
use linerate_core::treatment::{Scope, Treatments, table};
use linerate_core::units::{BitRate, ByteCount, EndpointName, Percent, Span};

use super::parsers;
use super::shared::{DocumentOptions, PathOptions, SocketArgs, TransportOptions};

#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct CompareArgs {
    /// Endpoint, where `linerate serve` answers: host, host:port or [v6]:port
    #[arg(required_unless_present = "lab")]
    pub(crate) host: Option<EndpointName>,
    /// Treatment A: NAME=VALUE, several with commas, or none
    #[arg(long, value_name = "TREATMENT", required = true)]
    pub(crate) a: Option<Treatments>,
    /// Treatment B, whose effect over A is told
    #[arg(long, value_name = "TREATMENT", required = true)]
    pub(crate) b: Option<Treatments>,
    /// Print all treatments: ranges, what they need, how they are applied, read back and undone
    #[arg(long, exclusive = true)]
    pub(crate) treatments: bool,
    #[command(flatten)]
    pub(crate) design: DesignOptions,
    #[command(flatten)]
    pub(crate) traffic: CompareTraffic,
    #[command(flatten)]
    pub(crate) extent: CompareExtent,
    #[command(flatten)]
    pub(crate) transport: TransportOptions,
    #[command(flatten)]
    pub(crate) sockets: SocketArgs,
    #[command(flatten)]
    pub(crate) path: PathOptions,
    #[command(flatten)]
    pub(crate) document: DocumentOptions,
}

/// What is decided, and when.
#[derive(Debug, Args)]
#[command(next_help_heading = "Comparison")]
pub(crate) struct DesignOptions {
    /// Figures of a record, the decisive one first, as latency_us.p99 (default: the rate)
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    pub(crate) metric: Vec<Metric>,
    /// Differences below P% are none: what EQUIVALENT means (default: it is not tested)
    #[arg(long, value_name = "P%")]
    pub(crate) margin: Option<Percent>,
    /// Max pairs, 6 to 30
    #[arg(long, value_name = "N", default_value = "30")]
    pub(crate) pairs: u32,
    /// Faults that exclude a pair, such as retransmissions,busy_host
    #[arg(long, value_name = "FAULTS", value_delimiter = ',')]
    pub(crate) forbid: Vec<Fault>,
    /// Seed of every random choice, 0 to 2^64-1 (default: a new one)
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

/// What is run under both treatments.
#[derive(Debug, Args)]
#[command(next_help_heading = "Workload")]
pub(crate) struct CompareTraffic {
    /// stream, rr or crr (default stream)
    #[arg(long, value_parser = parsers::workload(), hide_possible_values = true)]
    pub(crate) workload: Option<Workload>,
    /// stream: size of a message, up to 64MiB (default 128KiB, UDP 1448)
    #[arg(long, short = 'l', value_name = "SIZE")]
    pub(crate) size: Option<ByteCount>,
    /// stream: up, down or both, as seen from this host (default up)
    #[arg(long, value_parser = parsers::direction(), hide_possible_values = true)]
    pub(crate) direction: Option<Direction>,
    /// The same as --direction down
    #[arg(short = 'R', conflicts_with = "direction")]
    pub(crate) reverse: bool,
    /// UDP stream: bits/s of each flow; rr, crr: requests/s over all flows
    #[arg(long, short = 'b', value_name = "RATE")]
    pub(crate) rate: Option<String>,
    /// stream over TCP: send without a copy
    #[arg(long, short = 'Z')]
    pub(crate) zerocopy: bool,
    /// stream over TCP: rate at which the sender writes each flow
    #[arg(long, value_name = "RATE")]
    pub(crate) write_rate: Option<BitRate>,
    /// stream: rate at which the receiver reads each flow
    #[arg(long, value_name = "RATE")]
    pub(crate) read_rate: Option<BitRate>,
    /// rr, crr: size of a request, up to 64MiB (default 1)
    #[arg(long, value_name = "SIZE")]
    pub(crate) request: Option<ByteCount>,
    /// rr, crr: size of a response, up to 64MiB (default 1)
    #[arg(long, value_name = "SIZE")]
    pub(crate) response: Option<ByteCount>,
    /// rr: requests in flight at once on each connection, 1 to 1024 (default 1)
    #[arg(long, value_name = "N")]
    pub(crate) depth: Option<u32>,
    /// rr, crr: poll without sleeping, at both ends
    #[arg(long)]
    pub(crate) spin: bool,
    /// crr: who closes, client or server (default server)
    #[arg(long, value_name = "END", value_parser = parsers::closer(), hide_possible_values = true)]
    pub(crate) close: Option<Closer>,
}

/// When each run ends.
#[derive(Debug, Args)]
#[command(next_help_heading = "Extent of each run")]
pub(crate) struct CompareExtent {
    /// Measured time of each run, 10ms to 24h (default 3s)
    #[arg(long, short)]
    pub(crate) time: Option<Span>,
    #[arg(long, value_name = "N", conflicts_with_all = ["time", "bytes"], help = parsers::help("count"))]
    pub(crate) count: Option<u64>,
    /// stream: payload of each flow, 1B to 1024TiB, instead of a time
    #[arg(long, value_name = "SIZE", conflicts_with = "time")]
    pub(crate) bytes: Option<ByteCount>,
    #[arg(long, short = 'n', value_name = "SIZE", help = parsers::help("total"))]
    pub(crate) total: Option<ByteCount>,
    #[arg(long, short = 'O', alias = "omit", value_name = "TIME", conflicts_with_all = ["count", "bytes"], help = parsers::help("warm-up"))]
    pub(crate) warm_up: Option<Span>,
}

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
         \x20   devices: {}\n    routes: {}\n    hosts: {}, such as sysctl:net.ipv4.tcp_sack=0\n\n{EXAMPLES}",
        of(Scope::Socket),
        of(Scope::Device),
        of(Scope::Route),
        of(Scope::Host)
    )
}

const EXAMPLES: &str = "\
Examples:
  linerate compare pit --a checksum_offload=on --b checksum_offload=off
  linerate compare pit --a none --b congestion=bbr --margin 2%
  linerate compare pit --a qos=off --b qos=voice.toml --margin 5%
  linerate compare --lab rate=100mbit,rtt=29ms --a receive_window=50KiB --b receive_window=400KiB";

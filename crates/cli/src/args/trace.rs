//! Options of `trace`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use linerate_core::link::PathSpec;
use linerate_core::trace::ProbeKind;
use linerate_core::units::{Dscp, Span};

use super::shared::{FamilyOptions, RandomOptions};
use super::{DocumentOptions, parsers};

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// Where to: a name or an address
    #[arg(required_unless_present = "lab")]
    pub(crate) host: Option<String>,
    #[command(flatten)]
    pub(crate) probes: ProbeOptions,
    #[command(flatten)]
    pub(crate) findings: FindingOptions,
    #[command(flatten)]
    pub(crate) rounds: RoundOptions,
    #[command(flatten)]
    pub(crate) way: WayOptions,
    #[command(flatten)]
    pub(crate) document: DocumentOptions,
}

/// Options of the probes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Probes")]
pub(crate) struct ProbeOptions {
    /// udp, icmp or tcp (default udp; for rounds icmp where it is allowed)
    #[arg(long, value_parser = kind(), hide_possible_values = true)]
    protocol: Option<ProbeKind>,
    /// The same as --protocol icmp
    #[arg(short = 'I', long, conflicts_with_all = ["protocol", "tcp", "udp"])]
    icmp: bool,
    /// The same as --protocol tcp
    #[arg(short = 'T', long, conflicts_with_all = ["protocol", "udp"])]
    tcp: bool,
    /// The same as --protocol udp
    #[arg(short = 'U', long, short_alias = 'u', conflicts_with = "protocol")]
    udp: bool,
    /// Probes of each hop, 1 to 100 (default 3; 1 with --watch or --count)
    #[arg(
        long, short = 'q', value_name = "N", value_parser = parsers::number::<u8>(1, 100)
    )]
    pub(crate) queries: Option<u8>,
    /// The highest TTL, 1 to 255 (default 30)
    #[arg(
        long, short = 'm', aliases = ["max-hops", "max-ttl"], value_name = "N",
        value_parser = parsers::number::<u8>(1, 255)
    )]
    pub(crate) hops: Option<u8>,
    /// The lowest TTL, 1 to 255 (default 1)
    #[arg(
        long, short = 'f', aliases = ["first-ttl", "first-hop"], value_name = "N",
        value_parser = parsers::number::<u8>(1, 255)
    )]
    pub(crate) first: Option<u8>,
    /// Target port of TCP (default 443), first one of UDP (default 33434)
    #[arg(long, short, value_parser = parsers::number::<u16>(1, 65_023))]
    pub(crate) port: Option<u16>,
    /// Length of each probe from the IP header on, bytes (default 60; 80 for IPv6)
    #[arg(long, alias = "psize", value_name = "BYTES",
          value_parser = parsers::number::<u16>(0, 65_535))]
    pub(crate) size: Option<u16>,
    /// Code point of the probes: 0 to 63, or EF, AF41, CS1, LE, …
    #[arg(long, value_name = "DSCP")]
    pub(crate) dscp: Option<Dscp>,
    /// Longest wait for an answer, 1ms to 1min (default 1.4s)
    #[arg(long, short = 'w', value_name = "TIME", value_parser = parsers::time(1, parsers::MINUTE))]
    pub(crate) timeout: Option<Span>,
    #[command(flatten)]
    pub(crate) random: RandomOptions,
}

impl ProbeOptions {
    /// The kind of probe that was asked for, if one was.
    pub(crate) fn kind(&self) -> Option<ProbeKind> {
        match (self.icmp, self.tcp, self.udp) {
            (true, ..) => Some(ProbeKind::Icmp),
            (_, true, _) => Some(ProbeKind::Tcp),
            (.., true) => Some(ProbeKind::Udp),
            _ => self.protocol,
        }
    }
}

/// Options for findings besides the route.
#[derive(Debug, Args)]
#[command(next_help_heading = "Findings")]
pub(crate) struct FindingOptions {
    /// Addresses alone, no names
    #[arg(short = 'n', alias = "no-dns")]
    pub(crate) numeric: bool,
    /// Find all equal-cost paths, missing none at a router with 95 or 99 %
    #[arg(long, value_name = "95|99", num_args = 0..=1, require_equals = true, default_missing_value = "95",
          value_parser = confidence(), hide_possible_values = true)]
    pub(crate) paths: Option<f64>,
    /// Find what fits through the path, and where it gets narrower
    #[arg(long)]
    pub(crate) mtu: bool,
    /// Estimate the rate of each link by probes of many sizes; takes about 20 s
    #[arg(long)]
    pub(crate) bandwidth: bool,
    /// The way back, and loss each way, by the endpoint there (default port 5201)
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "5201",
          value_parser = parsers::number::<u16>(1, 65_535))]
    pub(crate) reverse: Option<u16>,
    /// File with the key of the endpoint of --reverse: 64 hexadecimal digits
    #[arg(long, value_name = "FILE", requires = "reverse", conflicts_with = "lab")]
    pub(crate) key_file: Option<PathBuf>,
    /// AS numbers by a table: PREFIX ASN [NAME], or RouteViews' PREFIX LENGTH ASN
    #[arg(long, value_name = "FILE")]
    pub(crate) as_table: Option<PathBuf>,
}

/// Again and again.
#[derive(Debug, Args)]
#[command(next_help_heading = "Rounds")]
pub(crate) struct RoundOptions {
    /// Trace again and again and show the figures, until Ctrl-C
    #[arg(long, conflicts_with_all = ["paths", "mtu", "bandwidth", "reverse"])]
    pub(crate) watch: bool,
    /// So many rounds, 1 to 2^40, then the report; with --watch it is shown meanwhile
    #[arg(long, short = 'c', alias = "report-cycles", value_name = "N", value_parser = parsers::number::<u64>(1, 1 << 40),
          conflicts_with_all = ["paths", "mtu", "bandwidth", "reverse"])]
    pub(crate) count: Option<u64>,
    /// From one round to the next, 100ms to 1h (default 1s)
    #[arg(long, short, value_name = "TIME", value_parser = parsers::time(100, parsers::HOUR))]
    pub(crate) interval: Option<Span>,
}

/// Which way.
#[derive(Debug, Args)]
#[command(next_help_heading = "Path")]
pub(crate) struct WayOptions {
    /// Emulate the path, both ends here: hops=5,rtt=29ms
    #[arg(long, value_name = "SPEC", conflicts_with = "host", value_parser = parsers::lab)]
    pub(crate) lab: Option<PathSpec>,
    #[command(flatten)]
    pub(crate) family: FamilyOptions,
    /// Local address to send from
    #[arg(long, short = 's', value_name = "ADDRESS", conflicts_with = "lab")]
    pub(crate) source: Option<IpAddr>,
    /// Interface to send through (SO_BINDTODEVICE)
    #[arg(
        long, alias = "interface", value_name = "NAME", conflicts_with = "lab",
        value_parser = parsers::device
    )]
    pub(crate) device: Option<String>,
}

fn kind() -> impl TypedValueParser<Value = ProbeKind> {
    PossibleValuesParser::new(ProbeKind::ALL.map(ProbeKind::word)).map(|word| {
        let kind = ProbeKind::ALL.into_iter().find(|kind| kind.word() == word);
        kind.expect("clap lets only these through")
    })
}

/// As a probability.
fn confidence() -> impl TypedValueParser<Value = f64> {
    PossibleValuesParser::new(["95", "99"]).map(|word| match word.as_str() {
        "99" => 0.99,
        _ => 0.95,
    })
}

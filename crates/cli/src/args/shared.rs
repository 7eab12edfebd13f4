//! Groups of options that several commands share.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use linerate_core::foreign::Tool;
use linerate_core::link::PathSpec;
use linerate_core::plan::MAX_REPEATS;
use linerate_core::units::{EndpointName, Family, Percent, Span};
use linerate_history::Place;

use super::parsers;

/// The options that `stream`, `rr` and `crr` share, beside those of their tests.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// Endpoint, where `linerate serve` answers: host, host:port or [v6]:port
    #[arg(help_heading = None::<&str>, required_unless_present = "lab")]
    pub(crate) host: Option<EndpointName>,
    #[command(flatten)]
    pub(crate) repeats: RepeatOptions,
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
    pub(crate) table: TableOptions,
    #[command(flatten)]
    pub(crate) beside: BaselineOptions,
}

/// The user's notes in the document.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct TitleOptions {
    /// Title: the page's first line, `title` of the document
    #[arg(long, short = 'T', value_name = "TEXT")]
    pub(crate) title: Option<String>,
    /// Text for `extra_data` of the document
    #[arg(long, value_name = "TEXT")]
    pub(crate) extra_data: Option<String>,
}

/// An earlier document with which the new one is compared.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct BaselineOptions {
    /// Compare with a document, or a saved run: last (of this test and path), number, label
    #[arg(long, alias = "against", value_name = "FILE|RUN")]
    pub(crate) baseline: Option<PathBuf>,
    /// Exit with 1 if a main figure is worse by more than P%
    #[arg(long, value_name = "P%", alias = "fail-on-regression",
          value_parser = parsers::percent(|p| (0.0..100.0).contains(&p), "0% or more and below \
              100%"))]
    pub(crate) fail_on_worse: Option<Percent>,
}

/// A run of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WhichRun {
    Last,
    Number(i64),
    /// The last with this label.
    Label(String, String),
}

impl FromStr for WhichRun {
    type Err = &'static str;

    /// `last`, `17` or `site=north`
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse::<i64>() {
            Ok(number @ 1..) => Ok(Self::Number(number)),
            Err(_) if text == "last" => Ok(Self::Last),
            _ => parsers::label(text)
                .map(|(key, value)| Self::Label(key, value))
                .map_err(|_| "it must be last, a run's number, or a label KEY=VALUE"),
        }
    }
}

impl fmt::Display for WhichRun {
    /// As it is typed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Last => f.write_str("last"),
            Self::Number(number) => number.fmt(f),
            Self::Label(key, value) => write!(f, "{key}={value}"),
        }
    }
}

/// What random choices are drawn from.
#[derive(Debug, Args)]
pub(crate) struct RandomOptions {
    /// Seed of every random choice, 0 to 2^64-1 (default: a new one)
    #[arg(long, value_name = "N", value_parser = parsers::seed(),
          default_value_t = linerate_engine::fresh_seed(), hide_default_value = true)]
    pub(crate) seed: u64,
}

/// How often a test is repeated.
#[derive(Debug, Args)]
#[command(next_help_heading = "Extent")]
pub(crate) struct RepeatOptions {
    /// Run each test N times, 1 to 100 (default 1)
    #[arg(
        long, value_name = "N", conflicts_with = "precision",
        value_parser = parsers::number::<u32>(1, u64::from(MAX_REPEATS))
    )]
    pub(crate) repeat: Option<u32>,
    /// Repeat, max 100 times, until the median is known to P%
    #[arg(long, value_name = "P%",
          value_parser = parsers::percent(|p| p > 0.0 && p <= 100.0, "above 0% and up to 100%"))]
    pub(crate) precision: Option<Percent>,
    #[command(flatten)]
    pub(crate) random: RandomOptions,
}

/// How to reach the endpoint, and its key.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Path")]
pub(crate) struct PathOptions {
    /// Emulate the path, both ends here: rate=100mbit,rtt=29ms,loss=0.1%
    #[arg(long, value_name = "SPEC", conflicts_with = "host", value_parser = parsers::lab)]
    pub(crate) lab: Option<PathSpec>,
    /// Port of the endpoint, 1 to 65535 (default 5201)
    #[arg(
        long, short, requires = "host", conflicts_with = "lab",
        value_parser = parsers::number::<u16>(1, 65_535)
    )]
    pub(crate) port: Option<u16>,
    #[command(flatten)]
    pub(crate) family: FamilyOptions,
    /// Local address to send from
    #[arg(long, alias = "bind", value_name = "ADDRESS", requires = "host", conflicts_with = "lab")]
    pub(crate) source: Option<IpAddr>,
    /// Interface to send through (SO_BINDTODEVICE)
    #[arg(
        long,
        alias = "bind-dev",
        value_name = "NAME",
        requires = "host",
        conflicts_with = "lab",
        value_parser = parsers::device
    )]
    pub(crate) device: Option<String>,
    /// File with the endpoint's key: 64 hexadecimal digits
    #[arg(long, value_name = "FILE", requires = "host", conflicts_with = "lab")]
    pub(crate) key_file: Option<PathBuf>,
    /// Longest wait for the endpoint to answer, 10ms to 10min (default 5s)
    #[arg(
        long, value_name = "TIME", requires = "host", conflicts_with = "lab",
        value_parser = parsers::time_with_unit(10, 10 * parsers::MINUTE, ["iperf3", "ms"])
    )]
    pub(crate) connect_timeout: Option<Span>,
}

impl PathOptions {
    /// The family asked for, if one was.
    pub(crate) fn family(&self) -> Option<Family> {
        self.family.chosen()
    }

    /// The same options, with `wanted` unless the user chose a family.
    pub(crate) fn with_family(&self, wanted: Option<Family>) -> Self {
        let family = self.family().or(wanted);
        Self { family: family.into(), ..self.clone() }
    }
}

/// One family of addresses.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct FamilyOptions {
    /// Only IPv4
    #[arg(short = '4', aliases = ["ipv4", "version4"], conflicts_with = "ipv6")]
    pub(super) ipv4: bool,
    /// Only IPv6
    #[arg(short = '6', aliases = ["ipv6", "version6"])]
    pub(super) ipv6: bool,
}

impl From<Option<Family>> for FamilyOptions {
    fn from(family: Option<Family>) -> Self {
        Self { ipv4: family == Some(Family::Ipv4), ipv6: family == Some(Family::Ipv6) }
    }
}

impl FamilyOptions {
    /// The family asked for, if one was; clap lets only one of them through.
    pub(crate) fn chosen(&self) -> Option<Family> {
        match (self.ipv4, self.ipv6) {
            (true, _) => Some(Family::Ipv4),
            (_, true) => Some(Family::Ipv6),
            _ => None,
        }
    }
}

/// Where the document goes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct DocumentOptions {
    /// Print the evidence, too: everything that was measured
    #[arg(short = 'v', long)]
    pub(crate) details: bool,
    /// Print the document as JSON
    #[arg(long, short_alias = 'J')]
    pub(crate) json: bool,
    /// Write the document as JSON to FILE, besides what is printed
    #[arg(long, short_alias = 'o', value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// No progress on stderr
    #[arg(long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) keep: KeepOptions,
}

/// Where runs are kept.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct KeepOptions {
    /// Save the document in the history; `linerate history` lists it
    #[arg(long)]
    pub(crate) save: bool,
    /// Label of the saved run, such as site=north; may be repeated
    #[arg(long, value_name = "KEY=VALUE", requires = "save", value_parser = parsers::label)]
    pub(crate) label: Vec<(String, String)>,
    /// History FILE, or postgres://USER@HOST/DB (default ~/.local/state/linerate/history.db)
    #[arg(long, value_name = "FILE", value_parser = parsers::place())]
    pub(crate) db: Option<Place>,
}

/// The rows of comma-separated values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CsvRows {
    Runs,
    Intervals,
}

/// The table of a document that has records.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct CsvOptions {
    /// Print comma-separated values, a row for each of runs (default) or intervals
    #[arg(
        long, value_name = "ROWS", num_args = 0..=1, require_equals = true,
        default_missing_value = "runs", conflicts_with = "json", hide_possible_values = true
    )]
    pub(crate) csv: Option<CsvRows>,
}

/// Formats of `stream`, `rr` and `crr`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct TableOptions {
    #[command(flatten)]
    pub(crate) csv: CsvOptions,
    /// Print one JSON line for each interval, then one with the document
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    pub(crate) json_stream: bool,
}

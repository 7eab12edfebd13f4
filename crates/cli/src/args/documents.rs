//! Options of the commands that work on what earlier runs have left: `explain`, `report`, `rerun`,
//! `analyze` and `history`.
//!
//! `explain FILE` has its options in [`ExplainArgs`](super::ExplainArgs).

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use linerate_core::link::Framing;
use linerate_core::units::{Percent, Span};
use linerate_history::{Period, Place, Since};

use super::host::OwnerOptions;
use super::shared::{BaselineOptions, WhichRun};
use super::{DocumentOptions, parsers};

// Options of `explain` without a file.

/// Connections of other programs, which are watched.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connections of this host, without FILE")]
pub(crate) struct WatchOptions {
    #[command(flatten)]
    pub(crate) owner: OwnerOptions,
    /// How long they are watched, 500ms to 1h
    #[arg(
        long, value_name = "TIME", default_value = "10s",
        value_parser = parsers::time(500, parsers::HOUR)
    )]
    pub(crate) time: Span,
    /// Compare with an earlier document of these connections, in FILE or saved as RUN
    #[arg(long, value_name = "FILE|RUN")]
    pub(crate) before: Option<PathBuf>,
    /// Load the path, too, and prove what limits it, by the endpoint at the peer (port 5201)
    #[arg(
        long, value_name = "PORT", num_args = 0..=1, require_equals = true,
        default_missing_value = "5201", conflicts_with_all = ["netns", "container"],
        value_parser = parsers::number::<u16>(1, 65_535)
    )]
    pub(crate) prove: Option<u16>,
    /// File with the endpoint's key: 64 hexadecimal digits
    #[arg(long, value_name = "FILE", requires = "prove")]
    pub(crate) key_file: Option<PathBuf>,
}

// Options of `report`.

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Documents as --json or --output wrote them, reports, or saved runs; - is stdin
    #[arg(value_name = "FILE|RUN", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Write the page to FILE (default stdout)
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Markdown instead of HTML, for a ticket: the answer, tables, commands
    #[arg(long)]
    pub(crate) markdown: bool,
    /// Write each chart as SVG into directory DIR; a page only with --output
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: DbOptions,
}

// Options of `rerun`.

#[derive(Debug, Args)]
pub(crate) struct RerunArgs {
    /// A document of a test or a trace, or a saved run: a number, label or last; - is stdin
    #[arg(value_name = "FILE|RUN")]
    pub(crate) file: PathBuf,
    /// Endpoint instead of the document's: host, host:port or [v6]:port
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// File with the endpoint's key (default: the document's)
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Seed of every random choice, 0 to 2^64-1 (default: the document's)
    #[arg(long, value_name = "N", value_parser = parsers::seed())]
    pub(crate) seed: Option<u64>,
    /// Print the command line, and run nothing
    #[arg(long)]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) document: DocumentOptions,
    #[command(flatten)]
    pub(crate) beside: BaselineOptions,
}

// Options of `analyze`.

#[derive(Debug, Args)]
#[command(after_help = ANALYZE_EXAMPLES)]
pub(crate) struct AnalyzeArgs {
    /// CSV, linerate's or iperf3's JSON, netperf's -k or -o; 64 MiB in all
    #[arg(value_name = "[LABEL=]FILE", required = true)]
    pub(crate) files: Vec<InputName>,
    #[command(flatten)]
    pub(crate) question: QuestionOptions,
    #[command(flatten)]
    pub(crate) document: DocumentOptions,
}

/// Questions about the figures.
#[derive(Debug, Args)]
#[command(next_help_heading = "Columns")]
pub(crate) struct QuestionOptions {
    /// Columns of figures to look at (default: the throughput)
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    pub(crate) metric: Vec<String>,
    /// Column whose levels are compared (default: file, the labels of several)
    #[arg(long, value_name = "COLUMN")]
    pub(crate) factor: Option<String>,
    /// Columns of which each combination of values is a group of its own
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    pub(crate) by: Vec<String>,
    /// Level to compare with (default: the first of the file)
    #[arg(long, value_name = "LEVEL")]
    pub(crate) a: Option<String>,
    /// Level to compare (default: each other one)
    #[arg(long, value_name = "LEVEL")]
    pub(crate) b: Option<String>,
    /// What a column is, such as rtt_ms=delay or window_bytes=W; may be repeated
    #[arg(long, value_name = "QUANTITY=COLUMN")]
    pub(crate) column: Vec<ColumnName>,
    /// What link and pacing rates count: ip, ethernet or aal5 (default ip)
    #[arg(long, value_name = "FRAMING", hide_possible_values = true)]
    pub(crate) framing: Option<FramingName>,
    /// Hold what a report says, a file of claims in TOML, against the rows
    #[arg(long, value_name = "FILE")]
    pub(crate) claims: Option<PathBuf>,
}

/// A file, and what it is called in the column `file`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InputName {
    pub(crate) label: Option<String>,
    pub(crate) path: PathBuf,
    /// The word as typed: a file may have such a name.
    pub(crate) whole: PathBuf,
}

impl FromStr for InputName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (label, path) = match text.split_once('=') {
            Some((label, path)) => (Some(label.to_owned()), path),
            None => (None, text),
        };
        if path.is_empty() || label.as_deref() == Some("") {
            bail!("it must be FILE or LABEL=FILE");
        }
        Ok(Self { label, path: path.into(), whole: text.into() })
    }
}

/// A quantity's well-known name, and the table's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ColumnName(pub(crate) String, pub(crate) String);

impl FromStr for ColumnName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text.split_once('=') {
            Some((quantity, column)) if !quantity.is_empty() && !column.is_empty() => {
                Ok(Self(quantity.to_owned(), column.to_owned()))
            }
            _ => bail!("it must be QUANTITY=COLUMN, such as rtt_ms=delay"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FramingName {
    Ip,
    Ethernet,
    Aal5,
}

impl FramingName {
    /// `None` for packets without a frame.
    pub(crate) fn framing(self) -> Option<Framing> {
        match self {
            Self::Ip => None,
            Self::Ethernet => Some(Framing::Ethernet),
            Self::Aal5 => Some(Framing::Aal5),
        }
    }
}

const ANALYZE_EXAMPLES: &str = "\
Examples:
  linerate analyze runs.csv --factor checksum --by path --metric kbyte_per_s
  linerate analyze before=1.json before=2.json after=3.json after=4.json
  linerate analyze runs.csv --claims CLAIMS.toml

Figures that were not paired and interleaved have an effect and an interval, and no verdict.";

// Options of `history`.

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
#[command(subcommand_value_name = "COMMAND", after_help = HISTORY_EXAMPLES)]
pub(crate) struct HistoryArgs {
    #[command(subcommand)]
    pub(crate) command: Option<HistoryCommand>,
    #[command(flatten)]
    pub(crate) list: ListArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) which: FilterOptions,
    /// Show at most N runs, the newest
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = parsers::number::<u32>(1, 1_000_000))]
    pub(crate) most: u32,
    #[command(flatten)]
    pub(crate) place: DbOptions,
}

const HISTORY_EXAMPLES: &str = "\
Examples:
  linerate stream pit --save --label site=north
  linerate history --path pit --since 7d
  linerate history 17
  linerate stream pit --save --baseline last --fail-on-worse 10%

`explain`, `report`, `rerun` and `analyze` take a run in place of a file: its number, last, or
the label of the newest one, such as site=north.";

#[derive(Debug, Subcommand)]
pub(crate) enum HistoryCommand {
    /// List the runs, as without a command
    List(ListArgs),
    /// Print a run: its page, or its document
    Show(ShowArgs),
    /// Print what changed from run A to run B
    Compare(CompareRunsArgs),
    /// Print when the figures of a test changed, and what else changed then
    Changes(ChangesArgs),
    /// Print the median of each figure for each day or hour, also of deleted runs
    Medians(MediansArgs),
    /// Write all runs, for a spreadsheet or a notebook
    Export(ExportArgs),
    /// Delete runs
    Prune(PruneArgs),
}

/// Which runs.
#[derive(Debug, Args)]
pub(crate) struct FilterOptions {
    /// Runs to this host, as it was typed, or on this emulated path
    #[arg(long, alias = "host", value_name = "HOST")]
    pub(crate) path: Option<String>,
    /// Runs of this command: stream, rr, crr, check, load, ...
    #[arg(long, value_name = "COMMAND")]
    pub(crate) workload: Option<String>,
    /// Runs with this label; may be repeated: runs with all of them
    #[arg(long, value_name = "KEY=VALUE", value_parser = parsers::label)]
    pub(crate) label: Vec<(String, String)>,
    /// Runs since: 7d, 12h, or a date such as 2026-11-23 (UTC)
    #[arg(long, value_name = "WHEN", value_parser = parsers::since)]
    pub(crate) since: Option<Since>,
}

/// Where the history is.
#[derive(Debug, Args)]
pub(crate) struct DbOptions {
    /// History FILE, or postgres://USER@HOST/DB (default ~/.local/state/linerate/history.db)
    #[arg(long, value_name = "FILE", value_parser = parsers::place())]
    pub(crate) db: Option<Place>,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The run's number, as `linerate history` lists it; last, or a label of the newest
    pub(crate) run: WhichRun,
    /// Print the evidence, too: everything that was measured
    #[arg(short = 'v', long)]
    pub(crate) details: bool,
    /// Print the document as JSON
    #[arg(long, conflicts_with = "details")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) place: DbOptions,
}

#[derive(Debug, Args)]
pub(crate) struct CompareRunsArgs {
    /// The earlier run: its number, last, or a label of the newest
    pub(crate) a: WhichRun,
    /// The later run
    pub(crate) b: WhichRun,
    /// Exit with 1 if a main figure of B is worse by more than P%
    #[arg(long, value_name = "P%", alias = "fail-on-regression",
          value_parser = parsers::percent(|p| (0.0..100.0).contains(&p), "0% or more and below \
              100%"))]
    pub(crate) fail_on_worse: Option<Percent>,
    #[command(flatten)]
    pub(crate) place: DbOptions,
}

#[derive(Debug, Args)]
pub(crate) struct ChangesArgs {
    /// Figure, as `linerate history export --csv` names it (default: each run's first)
    #[arg(long, value_name = "METRIC")]
    pub(crate) metric: Option<String>,
    #[command(flatten)]
    pub(crate) which: FilterOptions,
    #[command(flatten)]
    pub(crate) place: DbOptions,
}

#[derive(Debug, Args)]
pub(crate) struct MediansArgs {
    /// Print a line for each day or hour
    #[arg(long, value_enum, value_name = "PERIOD", default_value = "day")]
    pub(crate) by: By,
    /// Series to print, such as "bulk to north" (default: all)
    #[arg(long, value_name = "SERIES")]
    pub(crate) series: Option<String>,
    /// Figure, as `linerate history export --csv` names it (default: each run's first)
    #[arg(long, value_name = "METRIC")]
    pub(crate) metric: Option<String>,
    /// Runs since: 7d, 12h, or a date such as 2026-11-23 (UTC)
    #[arg(long, value_name = "WHEN", value_parser = parsers::since)]
    pub(crate) since: Option<Since>,
    /// Print comma-separated values
    #[arg(long)]
    pub(crate) csv: bool,
    #[command(flatten)]
    pub(crate) place: DbOptions,
}

/// The period that a line of `history medians` covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// From midnight to midnight, UTC
    Day,
    /// From one full hour to the next
    Hour,
}

impl From<By> for Period {
    fn from(by: By) -> Self {
        match by {
            By::Day => Self::Day,
            By::Hour => Self::Hour,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Format of the rows or lines
    #[arg(long, value_enum, value_name = "FORMAT",
          required_unless_present_any = ["csv", "json_lines"],
          conflicts_with_all = ["csv", "json_lines"])]
    pub(crate) format: Option<ExportFormat>,
    /// As --format csv
    #[arg(long, conflicts_with = "json_lines")]
    pub(crate) csv: bool,
    /// As --format json-lines
    #[arg(long)]
    pub(crate) json_lines: bool,
    /// Write to FILE (default stdout)
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) which: FilterOptions,
    #[command(flatten)]
    pub(crate) place: DbOptions,
}

impl ExportArgs {
    pub(crate) fn format(&self) -> ExportFormat {
        match self.format {
            Some(format) => format,
            None if self.json_lines => ExportFormat::JsonLines,
            None => ExportFormat::Csv,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// A row for each figure of each run
    Csv,
    /// A line for each run: its number, its labels, its document
    JsonLines,
}

#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Delete all but the newest N
    #[arg(long, value_name = "N", required_unless_present = "older", conflicts_with = "older",
          value_parser = parsers::number::<u32>(0, u32::MAX.into()))]
    pub(crate) keep: Option<u32>,
    /// Delete runs that are older: 30d, 2w, 12h
    #[arg(long, value_name = "TIME", value_parser = parsers::age)]
    pub(crate) older: Option<u64>,
    #[command(flatten)]
    pub(crate) place: DbOptions,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_may_have_a_label() {
        let named: InputName = "before=a/b.json".parse().unwrap();
        assert_eq!(named.label.as_deref(), Some("before"));
        assert_eq!(named.path, PathBuf::from("a/b.json"));
        assert_eq!("a.csv".parse::<InputName>().unwrap().label, None);
        for bad in ["", "=", "x=", "=x"] {
            assert!(bad.parse::<InputName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_column_is_a_quantity_and_a_name() {
        let column: ColumnName = "rtt_ms=a=b".parse().unwrap();
        assert_eq!(column, ColumnName("rtt_ms".into(), "a=b".into()));
        for bad in ["rtt_ms", "=x", "x="] {
            assert!(bad.parse::<ColumnName>().is_err(), "{bad}");
        }
    }
}

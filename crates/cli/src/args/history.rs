//! Options of `history`.

use clap::{Args, Subcommand, ValueEnum};
use linerate_core::units::Percent;
use linerate_history::{Period, Place, Since};
use std::path::PathBuf;

use super::parsers;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
#[command(subcommand_value_name = "COMMAND", after_help = EXAMPLES)]
pub(crate) struct HistoryArgs {
    #[command(subcommand)]
    pub(crate) command: Option<HistoryCommand>,
    #[command(flatten)]
    pub(crate) which: FilterOptions,
    /// Show at most N runs, the newest
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = parsers::number::<u32>(1, 1_000_000))]
    pub(crate) most: u32,
    #[command(flatten)]
    pub(crate) place: DbOptions,
}

const EXAMPLES: &str = "\
Examples:
  linerate stream pit --save --label site=north
  linerate history --path pit --since 7d
  linerate stream pit --save --against last --fail-on-worse 10%";

#[derive(Debug, Subcommand)]
pub(crate) enum HistoryCommand {
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
    /// The run's number, as `linerate history` lists it
    #[arg(value_parser = parsers::run_number())]
    pub(crate) id: i64,
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
    /// The number of the earlier run
    #[arg(value_parser = parsers::run_number())]
    pub(crate) a: i64,
    /// The number of the later run
    #[arg(value_parser = parsers::run_number())]
    pub(crate) b: i64,
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

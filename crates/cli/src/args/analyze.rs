//! Options of `analyze`.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::bail;
use clap::{Args, ValueEnum};
use linerate_core::link::Framing;

use super::DocumentOptions;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
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

const EXAMPLES: &str = "\
Examples:
  linerate analyze runs.csv --factor checksum --by path --metric kbyte_per_s
  linerate analyze before=1.json before=2.json after=3.json after=4.json
  linerate analyze runs.csv --claims CLAIMS.toml

Figures that were not paired and interleaved have an effect and an interval, and no verdict.";

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

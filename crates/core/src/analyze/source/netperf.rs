//! netperf's output: `-- -k` (KEY=VALUE), `-- -o` (comma-separated), and the table of a bulk
//! transfer.
//!
//! Outputs of several runs may stand one after the other in one file, with or without netperf's
//! banner.

use super::super::table::{Builder, Format, number};
use super::{Input, SourceFault, delimited};
use crate::units::shortened;

/// Whether a text is netperf's: it has a banner, or begins with an upper-case KEY=VALUE.
pub(super) fn is_output(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !is_noise(line)).take(20);
    lines.any(is_banner) || first_pair(text).is_some()
}

fn first_pair(text: &str) -> Option<(&str, &str)> {
    pair(text.lines().find(|line| !is_noise(line))?)
}

pub(super) fn read(
    input: &Input<'_>,
    text: &str,
    builder: &mut Builder,
) -> Result<(), SourceFault> {
    builder.begin(input.file, input.label, Format::Netperf);
    for block in blocks(text) {
        let Some(&(line, first)) = block.lines.first() else {
            continue;
        };
        if pair(first).is_some() {
            keyed(&block, builder)?;
        } else if first.contains(',') {
            separated(&block, builder)?;
        } else if first.starts_with("Recv") && first.contains("Send") {
            classic(&block, builder)?;
        } else {
            return Err(SourceFault::at_line(line, NO_NAMES));
        }
    }
    Ok(())
}

/// What stands between two banners.
struct BannerBlock<'a> {
    /// The test's name, from the banner.
    test: Option<&'a str>,
    /// Lines with something in them, with their numbers.
    lines: Vec<(usize, &'a str)>,
}

fn blocks(text: &str) -> Vec<BannerBlock<'_>> {
    let mut blocks = vec![BannerBlock { test: None, lines: Vec::new() }];
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if is_banner(line) {
            let name = line.split(" TEST").next().unwrap_or(line);
            blocks.push(BannerBlock {
                test: Some(name.trim_start_matches("MIGRATED ")),
                lines: Vec::new(),
            });
        } else if let (false, Some(block)) = (is_noise(line), blocks.last_mut()) {
            block.lines.push((index + 1, line));
        }
    }
    blocks
}

fn is_banner(line: &str) -> bool {
    line.contains(" TEST from ") || line.contains(" TEST to ")
}

/// What netperf says between its figures: warnings about confidence, interim results.
fn is_noise(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with("!!!") || line.starts_with("Interim result")
}

/// `ELAPSED_TIME=10.00`.
fn pair(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.trim().split_once('=')?;
    let is_key = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let begins = key.starts_with(|c: char| c.is_ascii_uppercase());
    (begins && key.chars().all(is_key)).then_some((key, value))
}

/// A key that comes again begins the next run.
fn keyed(block: &BannerBlock<'_>, builder: &mut Builder) -> Result<(), SourceFault> {
    let mut begin = 0;
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for &(line, text) in &block.lines {
        let Some((key, value)) = pair(text) else {
            let problem = format!("`{}` is no KEY=VALUE", shortened(text));
            return Err(SourceFault::at_line(line, problem));
        };
        if pairs.iter().any(|(known, _)| *known == key) {
            add(begin, block.test, &pairs, builder)?;
            pairs.clear();
        }
        if pairs.is_empty() {
            begin = line;
        }
        pairs.push((key, value));
    }
    add(begin, block.test, &pairs, builder)
}

/// A header and rows; the header may come again.
fn separated(block: &BannerBlock<'_>, builder: &mut Builder) -> Result<(), SourceFault> {
    let Some((&(line, header), rows)) = block.lines.split_first() else {
        return Ok(());
    };
    let names = delimited::fields(header);
    if let Some(cell) = names.iter().find(|name| number(name).is_some()) {
        return Err(SourceFault::no_header(line, cell));
    }
    for &(line, row) in rows.iter().filter(|(_, row)| *row != header) {
        let values = delimited::fields(row);
        if values.len() != names.len() {
            return Err(SourceFault::ragged(line, values.len() as u64, names.len() as u64));
        }
        let names = names.iter().map(String::as_str);
        let pairs: Vec<(&str, &str)> = names.zip(values.iter().map(String::as_str)).collect();
        add(line, block.test, &pairs, builder)?;
    }
    Ok(())
}

/// The table of `TCP_STREAM` and its kin: five columns, or nine with the CPU of both ends (`-c
/// -C`).
fn classic(block: &BannerBlock<'_>, builder: &mut Builder) -> Result<(), SourceFault> {
    let at = block.lines[0].0;
    let unit = block.lines.iter().find_map(|(_, line)| {
        let mut words = line.split_whitespace();
        words.find_map(|word| RATES.iter().find(|(unit, _)| word.starts_with(unit)))
    });
    let (Some((unit, _)), Some(&(line, last))) = (unit, block.lines.last()) else {
        return Err(SourceFault::at_line(at, NO_NAMES));
    };
    let values: Vec<&str> = last.split_whitespace().collect();
    let is_table = [CLASSIC.len(), CLASSIC.len() - 4].contains(&values.len());
    if !is_table || values.iter().any(|value| number(value).is_none()) {
        return Err(SourceFault::at_line(line, NO_NAMES));
    }
    let mut pairs: Vec<(&str, &str)> = CLASSIC.iter().copied().zip(values).collect();
    // The ends that were not asked for their CPU have -1.
    pairs.retain(|(_, value)| !value.starts_with('-'));
    pairs.push(("THROUGHPUT_UNITS", unit));
    add(line, block.test, &pairs, builder)
}

const NO_NAMES: &str = "netperf's output of this kind has no names for its figures: run it with \
    `-- -k` or `-- -o`";

/// The columns of the classic table, by netperf's own names for them.
const CLASSIC: [&str; 9] = [
    "RSR_SIZE_REQ",
    "LSS_SIZE_REQ",
    "LOCAL_SEND_SIZE",
    "ELAPSED_TIME",
    "THROUGHPUT",
    "LOCAL_CPU_UTIL",
    "REMOTE_CPU_UTIL",
    "LOCAL_SD",
    "REMOTE_SD",
];

/// A row; the throughput, whose unit stands beside it, in bits per second or transactions per
/// second, too.
fn add(
    line: usize,
    test: Option<&str>,
    pairs: &[(&str, &str)],
    builder: &mut Builder,
) -> Result<(), SourceFault> {
    if pairs.is_empty() {
        return Ok(());
    }
    let at = |problem| SourceFault::at_line(line, problem);
    let found = |names: [&str; 2]| {
        let pair = pairs.iter().find(|(key, _)| names.contains(key));
        pair.map(|(_, value)| *value)
    };
    let rate = found(["THROUGHPUT", "Throughput"]).and_then(number);
    let unit = found(["THROUGHPUT_UNITS", "Throughput Units"]).map(str::trim);
    let known = unit.and_then(|unit| RATES.iter().find(|(name, _)| *name == unit));
    let derived = match (rate, known, unit) {
        (Some(rate), Some((_, scale)), _) => Some(("throughput_bps", rate * scale)),
        (Some(rate), None, Some("Trans/s")) => Some(("transactions_per_s", rate)),
        _ => None,
    }
    .map(|(name, value)| (name, value.to_string()));
    let mut cells = Vec::with_capacity(pairs.len() + 2);
    for (key, value) in pairs {
        cells.push((builder.column(key).map_err(at)?, value.trim()));
    }
    if let Some((name, value)) = &derived {
        cells.push((builder.column(name).map_err(at)?, value.as_str()));
    }
    if let Some(test) = test {
        cells.push((builder.column("test").map_err(at)?, test));
    }
    builder.row(line, 0, &mut cells).map_err(at)
}

/// netperf's units of `-f` (src/netlib.c, format_units) in bits per second: powers of ten of bits,
/// of two of bytes.
const RATES: [(&str, f64); 8] = [
    ("10^3bits/s", 1e3),
    ("10^6bits/s", 1e6),
    ("10^9bits/s", 1e9),
    ("10^0bits/s", 1.0),
    ("KBytes/s", 8.0 * 1024.0),
    ("MBytes/s", 8.0 * 1024.0 * 1024.0),
    ("GBytes/s", 8.0 * 1024.0 * 1024.0 * 1024.0),
    ("Bytes/s", 8.0),
];

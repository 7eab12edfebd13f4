//! Claims: what a report states of its figures, as a file, checked against the report's own rows.
//!
//! ```toml
//! [[claim]]
//! says = "with the checksum on, 917LX sends 7.4 % less"
//! table = "mpeix_tcp_checksum.csv"                      # the file's name; without it, any table
//! where = { path = "ector 917LX -> lance 937SX" }       # rows to take at all
//! metric = "kbyte_per_s"
//! factor = "checksum"
//! a = "off"
//! b = "on"
//! by = ["message_bytes"]                                # a figure for each group, of which all must agree
//! of = "mean"                                           # how the runs of a side are put together; or "median"
//! unit = "percent"                                      # of b against a; or "difference", "ratio"
//! value = -7.4                                          # as many digits as the report has; or:
//! # between = [1, 10]                                   # a range
//! printed = [792.53, 737.62]                            # what the report prints for a and b
//! ```
//!
//! Nothing in such a file decides what agrees: that is computed from the rows.

mod check;

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::AnalyzeError;
use super::document::{ClaimResult, Unit};
use super::table::Table;
use crate::toml_reader::{Fault, place};

/// Largest file of claims, bytes.
const MAX_CLAIMS: usize = 1 << 20;

/// The claims of a file.
#[derive(Debug, Clone)]
pub struct Claims {
    file: String,
    claims: Vec<Claim>,
}

/// A claim of a file.
#[derive(Debug, Clone)]
struct Claim {
    /// Line and column in the file.
    place: (usize, usize),
    entry: Entry,
    /// The figure that is stated, or both ends of the stated range.
    stated: Vec<Written>,
    printed: Option<[Written; 2]>,
}

/// A figure with the digits that the file has.
#[derive(Debug, Clone)]
struct Written {
    text: String,
    value: f64,
    decimals: usize,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    claim: Vec<Spanned<Entry>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    says: String,
    table: Option<String>,
    #[serde(default, rename = "where")]
    only: BTreeMap<String, Word>,
    metric: String,
    factor: String,
    a: Word,
    b: Word,
    #[serde(default)]
    by: Vec<String>,
    #[serde(default)]
    of: Average,
    unit: Unit,
    value: Option<Spanned<f64>>,
    between: Option<[Spanned<f64>; 2]>,
    printed: Option<[Spanned<f64>; 2]>,
}

/// The average over the runs of a side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Average {
    #[default]
    Mean,
    Median,
}

/// A level or setting, which may be written as a number.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Word {
    Text(String),
    Whole(i64),
    Figure(f64),
}

impl Word {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Whole(number) => number.to_string(),
            Self::Figure(number) => number.to_string(),
        }
    }
}

impl Claims {
    /// Reads a file of claims.
    ///
    /// # Errors
    /// The text is not TOML, has an unknown key, or a claim without a figure; the message names the
    /// place.
    pub fn from_toml(file: &str, text: &str) -> Result<Self, AnalyzeError> {
        let claims = read(text)
            .map_err(|fault| AnalyzeError::new(format!("{file}: {}", fault.located(text))))?;
        let file = file.to_owned();
        Ok(Self { file, claims })
    }

    /// Checks the claims that are about these files against their rows.
    ///
    /// # Errors
    /// No claim is about these files, or one names a column, level or group that the rows do not
    /// have.
    pub(super) fn check(&self, table: &Table) -> Result<Vec<ClaimResult>, AnalyzeError> {
        let files: Vec<&str> = table.sources().iter().map(|s| base_name(&s.file)).collect();
        let is_about = |claim: &&Claim| {
            let named = claim.entry.table.as_deref();
            named.is_none_or(|name| files.contains(&base_name(name)))
        };
        let about: Vec<&Claim> = self.claims.iter().filter(is_about).collect();
        if about.is_empty() {
            return Err(self.none_applies(&files));
        }
        let checked = about.into_iter().map(|claim| {
            check::check(claim, table).map_err(|why| {
                let (line, column) = claim.place;
                let place = format!("{}: line {line}, column {column}", self.file);
                AnalyzeError::new(format!("{place}: {why}"))
            })
        });
        checked.collect()
    }

    fn none_applies(&self, files: &[&str]) -> AnalyzeError {
        let claimed = self.claims.iter().flat_map(|claim| &claim.entry.table);
        let mut tables: Vec<&str> = claimed.map(String::as_str).collect();
        tables.sort_unstable();
        tables.dedup();
        let (files, tables) = (files.join(", "), tables.join(", "));
        AnalyzeError::new(format!(
            "{}: line 1: no claim is about {files}; those of this file are about {tables}",
            self.file
        ))
    }
}

fn read(text: &str) -> Result<Vec<Claim>, Fault> {
    if text.len() > MAX_CLAIMS {
        let bytes = text.len();
        let problem = format!("the file has {bytes} bytes; claims have at most 1 MiB");
        return Err(Fault::new(0, problem));
    }
    let file: File = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        Fault::new(offset, error.message())
    })?;
    let claims = file.claim.into_iter().map(|spanned| {
        let offset = spanned.span().start;
        claim(spanned.into_inner(), text, offset)
    });
    claims.collect()
}

fn claim(entry: Entry, text: &str, offset: usize) -> Result<Claim, Fault> {
    let stated = match (&entry.value, &entry.between) {
        (Some(value), None) => vec![stated(value, text)?],
        (None, Some([low, high])) => {
            let [low, high] = [stated(low, text)?, stated(high, text)?];
            if low.value > high.value {
                let problem = "`between` goes from the smaller figure to the larger";
                return Err(Fault::new(offset, problem));
            }
            vec![low, high]
        }
        _ => {
            let problem = "a claim has either `value` or `between`";
            return Err(Fault::new(offset, problem));
        }
    };
    let printed = match &entry.printed {
        Some([a, b]) => Some([self::stated(a, text)?, self::stated(b, text)?]),
        None => None,
    };
    Ok(Claim { place: place(text, offset), entry, stated, printed })
}

/// The figure with the digits that it has in the file.
fn stated(figure: &Spanned<f64>, text: &str) -> Result<Written, Fault> {
    let span = figure.span();
    let written = text.get(span.clone()).unwrap_or_default().trim().to_owned();
    let value = *figure.get_ref();
    if !value.is_finite() {
        let problem = format!("`{written}` is not a finite number");
        return Err(Fault::new(span.start, problem));
    }
    let digits = |after: &str| after.bytes().take_while(u8::is_ascii_digit).count();
    let point = written.split_once('.');
    let decimals = point.map_or(0, |(_, after)| digits(after));
    Ok(Written { text: written, value, decimals })
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests;

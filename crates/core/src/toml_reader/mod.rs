//! Reads the TOML files that users write: tables all of whose keys are known, and values with their
//! place in the text.
//!
//! A [`Fault`] says what is wrong and at which byte; [`Fault::located`] gives it line and column.

mod problem;
mod section;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use problem::{Fault, FileError, place};
pub use section::{At, Section, family, string, text, wrong_type};

/// A value with its place.
pub type Value<'a> = Spanned<DeValue<'a>>;

/// Largest file, bytes: more than a person writes, and too short to occupy the parser for long.
const MAX_BYTES: usize = 1 << 20;

/// The whole file as a table.
pub fn parse(text: &str) -> Result<Spanned<DeTable<'_>>, Fault> {
    parse_at_most(text, MAX_BYTES)
}

/// The whole file as a table, for files that programs write too: they may have up to `max` bytes, a
/// whole number of MiB.
pub fn parse_at_most(text: &str, max: usize) -> Result<Spanned<DeTable<'_>>, Fault> {
    if text.len() > max {
        return Err(Fault::too_long(text.len(), max));
    }
    DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        Fault::new(offset, error.message())
    })
}

/// The entries of a built-in table of data, each under `[[entry]]`.
///
/// # Panics
/// If the file cannot be read. A test of each table reads it.
pub(crate) fn entries<T: Deserialize<'static>>(text: &'static str) -> Vec<T> {
    #[derive(Deserialize)]
    struct File<T> {
        entry: Vec<T>,
    }
    let file: Result<File<T>, _> = toml::from_str(text);
    file.unwrap_or_else(|error| panic!("{error}")).entry
}

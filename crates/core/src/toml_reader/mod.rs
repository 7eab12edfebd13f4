//! Reads TOML files of ours: tables of which all keys are known, and values with their place in the
//! text.
//!
//! Each kind of file has a problem of its own that can hold a [`ReadProblem`]; a [`Fault`] is one
//! with the byte at which it is, and [`place`] makes line and column of that.

mod problem;
mod section;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use problem::{Fault, FileError, ReadProblem, place};
pub use section::{At, Section, string, text, wrong_type};

/// A value with its place.
pub type Value<'a> = Spanned<DeValue<'a>>;

/// More than a person writes, and less than it takes to keep a parser busy.
const MAX_BYTES: usize = 1 << 20;

/// The whole file as a table.
pub fn parse(text: &str) -> Result<Spanned<DeTable<'_>>, Fault<ReadProblem>> {
    parse_at_most(text, MAX_BYTES)
}

/// The whole file as a table, of a kind that programs write too and that can be longer.
pub fn parse_at_most(text: &str, most: usize) -> Result<Spanned<DeTable<'_>>, Fault<ReadProblem>> {
    if text.len() > most {
        let bytes = text.len();
        return Err(Fault::new(0, ReadProblem::TooLong { bytes, most }));
    }
    DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let message = error.message().to_owned();
        Fault::new(offset, ReadProblem::Toml { message })
    })
}

/// The entries, each under `[[entry]]`, of a table of ours that is a file of data.
///
/// # Panics
/// On a file that cannot be read: the tests of each table read it.
pub(crate) fn entries<T: Deserialize<'static>>(text: &'static str) -> Vec<T> {
    #[derive(Deserialize)]
    struct File<T> {
        entry: Vec<T>,
    }
    let file: Result<File<T>, _> = toml::from_str(text);
    file.unwrap_or_else(|error| panic!("{error}")).entry
}

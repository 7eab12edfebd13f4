//! What is wrong with a policy file, in words, and where.

use std::fmt::Display;

use linerate_core::toml_reader::Fault;
use linerate_core::units::{shortened, suggestion};

use super::Place;

/// A value that cannot be parsed or is not allowed.
pub(super) fn no_value(what: &str, text: &str, hint: impl Display) -> String {
    format!("`{}` is no {what}; {hint}", shortened(text))
}

/// A name that nothing has: the hint is the known one that looks like it, or `otherwise`.
pub(super) fn unknown<'a>(
    what: &str,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
    otherwise: &str,
) -> String {
    let hint = suggestion(name, known).unwrap_or_else(|| otherwise.to_owned());
    format!("there is no {what} `{}`; {hint}", shortened(name))
}

/// A host, a service or a user that is not known here.
pub(super) fn not_known(what: &str, name: &str, why: &str) -> String {
    format!("{what} `{}` is not known: {why}", shortened(name))
}

/// More of something than a file may have.
pub(super) fn too_many<T>(
    offset: usize,
    what: &str,
    found: usize,
    most: usize,
) -> Result<T, Fault> {
    let problem = format!("{found} {what}: there may be at most {most}");
    Err(Fault::new(offset, problem))
}

/// The offsets at which the lines of a text begin: a file has thousands of filters, and each stores
/// its place.
pub(super) struct Lines<'a> {
    text: &'a str,
    begins: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let newlines = text.match_indices('\n').map(|(at, _)| at + 1);
        Self { text, begins: std::iter::once(0).chain(newlines).collect() }
    }

    /// Line and column of a byte, both counted from 1, the column in characters.
    pub(super) fn place(&self, offset: usize) -> Place {
        let line = self.begins.partition_point(|begin| *begin <= offset);
        let before = self.text.get(self.begins[line - 1]..offset);
        Place { line, column: before.map_or(1, |before| before.chars().count() + 1) }
    }
}

//! The error of an analysis: of a file of figures, of a request, or of a file of claims.

use std::fmt::{self, Display};

use thiserror::Error;

use crate::units::suggestion;

/// Why figures cannot be read or analysed as asked; the message names the file and the place where
/// there is one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct AnalyzeError(String);

impl AnalyzeError {
    pub(super) fn new(message: impl Display) -> Self {
        Self(message.to_string())
    }
}

/// A place in a text, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) line: usize,
    /// Character of that line, where it is known.
    pub(super) column: Option<usize>,
}

impl Place {
    /// The place of an error that concerns the whole file.
    pub(super) const FIRST_LINE: Self = Self { line: 1, column: None };
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        match self.column {
            Some(column) => write!(f, ", column {column}"),
            None => Ok(()),
        }
    }
}

/// The name that looks like `name`, or else all names.
pub(super) fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    const MAX_LISTED: usize = 40;
    let known: Vec<&str> = known.into_iter().collect();
    if known.is_empty() {
        return "there are none".to_owned();
    }
    suggestion(name, &known).unwrap_or_else(|| {
        let rest = match known.len().saturating_sub(MAX_LISTED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let listed = known[..known.len().min(MAX_LISTED)].join(", ");
        format!("there are {listed}{rest}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_looks_alike_is_proposed_and_else_all_are_listed() {
        let known = ["mbit_per_s", "elapsed_s"];
        assert_eq!(hint("mbits_per_s", known), "did you mean `mbit_per_s`?");
        assert_eq!(hint("Elapsed_s", known), "did you mean `elapsed_s`?");
        assert_eq!(hint("cpu", known), "there are mbit_per_s, elapsed_s");
        assert_eq!(hint("cpu", []), "there are none");
    }

    #[test]
    fn a_place_is_named_as_far_as_it_is_known() {
        let exact = Place { line: 3, column: Some(7) };
        assert_eq!(Place::FIRST_LINE.to_string(), "line 1");
        assert_eq!(exact.to_string(), "line 3, column 7");
    }
}

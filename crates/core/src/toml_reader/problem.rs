//! An error in a file and its place: a byte offset while reading, line and column for the user.

use std::fmt::Display;
use std::ops::RangeInclusive;

use thiserror::Error;

use super::section::At;
use crate::units::{shortened, suggestion};

/// An error in a file, with its byte offset.
#[derive(Debug)]
pub struct Fault {
    /// The byte, counted from 0.
    pub offset: usize,
    /// The error in words.
    pub problem: String,
}

/// An error in a file, with line and column.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct FileError {
    /// Line, counted from 1.
    pub line: usize,
    /// Character of that line, counted from 1.
    pub column: usize,
    /// The error in words.
    pub problem: String,
}

impl Fault {
    /// An error at a byte offset.
    pub fn new(offset: usize, problem: impl Display) -> Self {
        let problem = problem.to_string();
        Self { offset, problem }
    }

    /// The error, with line and column in the text.
    pub fn located(self, text: &str) -> FileError {
        let (line, column) = place(text, self.offset);
        FileError {
            line,
            column,
            problem: self.problem,
        }
    }

    /// The error of a file longer than `max` bytes, a whole number of MiB.
    pub fn too_long(bytes: usize, max: usize) -> Self {
        let max = max >> 20;
        Self::new(
            0,
            format!("the file has {bytes} bytes; it may have at most {max} MiB"),
        )
    }

    /// A key that `place` does not have: the hint is the known key that looks like it, or else
    /// `otherwise`.
    pub fn unknown_key<'k>(
        key: At<&str>,
        place: &str,
        known: impl IntoIterator<Item = &'k str>,
        otherwise: String,
    ) -> Self {
        let hint = suggestion(key.value, known).unwrap_or(otherwise);
        let name = shortened(key.value);
        Self::new(key.offset, format!("{place} has no key `{name}`; {hint}"))
    }

    /// The error of a name that is not in `known`.
    pub fn unknown(at: At<&str>, what: &str, known: &[impl AsRef<str>]) -> Self {
        let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
        let hint = suggestion(at.value, &known).unwrap_or_else(|| match &known[..] {
            [] => format!("this file has no {what} at all"),
            known => shortened(&format!("they are {}", known.join(", "))),
        });
        let name = shortened(at.value);
        Self::new(at.offset, format!("there is no {what} `{name}`; {hint}"))
    }

    /// The error of a number outside its range.
    pub(super) fn out_of_range(at: At<&str>, key: &str, range: &RangeInclusive<u64>) -> Self {
        let value = shortened(at.value);
        let (min, max) = (range.start(), range.end());
        Self::new(
            at.offset,
            format!("`{key} = {value}` is out of range; it may be {min} to {max}"),
        )
    }

    /// The error of a text that cannot be parsed.
    pub fn malformed<T>(at: At<&str>, what: &str, hint: &str) -> Result<T, Self> {
        let text = shortened(at.value);
        Err(Self::new(
            at.offset,
            format!("`{text}` is no {what}; {hint}"),
        ))
    }

    /// The error of two keys that contradict each other.
    pub fn contradiction<T>(offset: usize, what: impl Display, hint: &str) -> Result<T, Self> {
        Err(Self::new(offset, format!("{what}: {hint}")))
    }

    /// The error of a name that is used twice.
    pub fn repeated<T>(offset: usize, what: &str, name: &str) -> Result<T, Self> {
        let name = shortened(name);
        Err(Self::new(
            offset,
            format!("there are two {what} with the name `{name}`"),
        ))
    }
}

/// Line and column of a byte of a text, both counted from 1, the column in characters.
pub fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_begin = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_begin..].chars().count() + 1)
}

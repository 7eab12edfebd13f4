//! What can be wrong with any file of ours, and where.

use std::ops::RangeInclusive;

use thiserror::Error;

use super::section::At;
use crate::units::shortened;

/// What is wrong with a TOML file, whatever it describes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadProblem {
    /// It is no TOML.
    #[error("{message}")]
    Toml {
        /// What the parser says.
        message: String,
    },
    /// It is too long to be one.
    #[error("the file has {bytes} bytes; it may have at most {} MiB", most >> 20)]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The most, whole MiB.
        most: usize,
    },
    /// There is no such key.
    #[error("{place} has no key `{key}`; {hint}")]
    UnknownKey {
        /// The table.
        place: &'static str,
        /// The key.
        key: String,
        /// A key that looks like it, or all keys.
        hint: String,
    },
    /// A key is missing.
    #[error("{place} needs `{key}`: {hint}")]
    Missing {
        /// The table.
        place: &'static str,
        /// The key.
        key: &'static str,
        /// What it is.
        hint: &'static str,
    },
    /// A value is of another type.
    #[error("`{key}` is {found}; write {hint}")]
    WrongType {
        /// The key.
        key: String,
        /// TOML's name of the type.
        found: &'static str,
        /// How it is written.
        hint: &'static str,
    },
    /// A number is out of range.
    #[error("`{key} = {value}` is out of range; it may be {} to {}", range.start(), range.end())]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// What it may be.
        range: RangeInclusive<u64>,
    },
    /// A word, a name or an address cannot be read.
    #[error("`{text}` is no {what}; {hint}")]
    Malformed {
        /// What it should be.
        what: &'static str,
        /// What is there.
        text: String,
        /// How it is written.
        hint: &'static str,
    },
    /// Two things have the same name.
    #[error("there are two {what} with the name `{name}`")]
    Repeated {
        /// What has it.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Two things do not go together.
    #[error("{what}: {hint}")]
    Contradiction {
        /// What.
        what: String,
        /// Why, or what to do.
        hint: &'static str,
    },
}

/// A problem, and the byte at which it is.
#[derive(Debug)]
pub struct Fault<P> {
    /// The byte, counted from 0.
    pub offset: usize,
    /// What is wrong there.
    pub problem: P,
}

/// A text that is no file of its kind, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct FileError<P> {
    /// Line, counted from 1.
    pub line: usize,
    /// Character of that line, counted from 1.
    pub column: usize,
    /// What is wrong.
    pub problem: P,
}

impl<P> Fault<P> {
    /// The error, with line and column in the text.
    pub fn located(self, text: &str) -> FileError<P> {
        let (line, column) = place(text, self.offset);
        let problem = self.problem;
        FileError {
            line,
            column,
            problem,
        }
    }

    /// The problem at that byte.
    pub fn new(offset: usize, problem: P) -> Self {
        Self { offset, problem }
    }
}

impl<P: From<ReadProblem>> Fault<P> {
    /// A text that cannot be read.
    pub fn malformed<T>(at: At<&str>, what: &'static str, hint: &'static str) -> Result<T, Self> {
        let text = shortened(at.value);
        let problem = ReadProblem::Malformed { what, text, hint };
        Err(Self::new(at.offset, problem.into()))
    }

    /// Two things that do not go together.
    pub fn contradiction<T>(
        offset: usize,
        what: impl Into<String>,
        hint: &'static str,
    ) -> Result<T, Self> {
        let what = what.into();
        let problem = ReadProblem::Contradiction { what, hint };
        Err(Self::new(offset, problem.into()))
    }

    /// A name that is there twice.
    pub fn repeated<T>(offset: usize, what: &'static str, name: &str) -> Result<T, Self> {
        let name = shortened(name);
        let problem = ReadProblem::Repeated { what, name };
        Err(Self::new(offset, problem.into()))
    }
}

/// Line and column of a byte of a text, both counted from 1, the column in characters.
pub fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_begin = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_begin..].chars().count() + 1)
}

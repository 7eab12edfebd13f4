//! What is wrong with a lab's file, and where.

use std::ops::RangeInclusive;

use thiserror::Error;

use crate::lab::Prefix;
use crate::link::SpecError;

/// A text that is no topology, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {problem}")]
pub struct TopologyError {
    /// Line, counted from 1.
    pub line: usize,
    /// Character of that line, counted from 1.
    pub column: usize,
    /// What is wrong.
    pub problem: TopologyProblem,
}

/// What is wrong with a lab's file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TopologyProblem {
    /// It is no TOML.
    #[error("{message}")]
    Toml {
        /// What the parser says.
        message: String,
    },
    /// It is too long to be one.
    #[error("the file has {bytes} bytes; a lab's has at most 1 MiB")]
    TooLong {
        /// Its length.
        bytes: usize,
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
        range: RangeInclusive<u32>,
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
    /// No host or router has that name.
    #[error("no host or router has the name `{name}`; {hint}")]
    UnknownNode {
        /// The name.
        name: String,
        /// A name that looks like it, or how to make one.
        hint: String,
    },
    /// Two things have the same name.
    #[error("there are two {what} with the name `{name}`")]
    Repeated {
        /// What has it.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A link's spec.
    #[error("in the spec, {0}")]
    Spec(#[from] SpecError),
    /// Two links have addresses in common.
    #[error("{}/{} overlaps with {}/{} of the link `{link}`", network.address, network.length, other.address, other.length)]
    Overlap {
        /// The network.
        network: Prefix,
        /// The one that is there already.
        other: Prefix,
        /// Whose that is.
        link: String,
    },
    /// There are more than a lab can have.
    #[error("a lab has at most {most} {what}")]
    TooMany {
        /// What.
        what: &'static str,
        /// How many there may be.
        most: usize,
    },
    /// A setting that is not a namespace's own.
    #[error("`{key}` cannot be set for a host: {hint}")]
    Sysctl {
        /// The key.
        key: String,
        /// Why.
        hint: &'static str,
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
pub(super) struct Fault {
    pub(super) offset: usize,
    pub(super) problem: TopologyProblem,
}

impl Fault {
    pub(super) fn new(offset: usize, problem: TopologyProblem) -> Self {
        Self { offset, problem }
    }

    pub(super) fn malformed<T>(
        at: super::reader::At<&str>,
        what: &'static str,
        hint: &'static str,
    ) -> Result<T, Self> {
        let text = shortened(at.value);
        let problem = TopologyProblem::Malformed { what, text, hint };
        Err(Self::new(at.offset, problem))
    }

    pub(super) fn contradiction<T>(
        offset: usize,
        what: impl Into<String>,
        hint: &'static str,
    ) -> Result<T, Self> {
        let what = what.into();
        let problem = TopologyProblem::Contradiction { what, hint };
        Err(Self::new(offset, problem))
    }

    pub(super) fn repeated<T>(offset: usize, what: &'static str, name: &str) -> Result<T, Self> {
        let name = shortened(name);
        let problem = TopologyProblem::Repeated { what, name };
        Err(Self::new(offset, problem))
    }

    /// The error, with line and column in the text.
    pub(super) fn located(self, text: &str) -> TopologyError {
        let before = text.get(..self.offset).unwrap_or(text);
        let line_begin = before.rfind('\n').map_or(0, |newline| newline + 1);
        TopologyError {
            line: before.matches('\n').count() + 1,
            column: before[line_begin..].chars().count() + 1,
            problem: self.problem,
        }
    }
}

/// What a user typed can be of any length and hold anything; a message is one line of a terminal.
pub(super) fn shortened(text: &str) -> String {
    let visible = |c: char| if c.is_control() { '?' } else { c };
    text.chars().take(64).map(visible).collect()
}

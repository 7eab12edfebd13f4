//! What is wrong with a policy file, and where.

use linerate_core::toml_reader;
use linerate_core::units::{shortened, suggestion};
use thiserror::Error;

use super::{NameError, Place};

/// A text that is no policy file, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {}, column {}: {problem}", place.line, place.column)]
pub struct PolicyError {
    /// Where.
    pub place: Place,
    /// What is wrong.
    pub problem: PolicyProblem,
}

/// What is wrong with a policy file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PolicyProblem {
    /// What can be wrong with any file.
    #[error("{0}")]
    Read(String),
    /// A value cannot be read, or is none that it may be.
    #[error("`{text}` is no {what}; {hint}")]
    Value {
        /// What it should be.
        what: &'static str,
        /// What is there.
        text: String,
        /// How it is written.
        hint: String,
    },
    /// A name that nothing has.
    #[error("there is no {what} `{name}`; {hint}")]
    Unknown {
        /// What it should be.
        what: &'static str,
        /// The name.
        name: String,
        /// A name that looks like it, or how to make one.
        hint: String,
    },
    /// A host, a service or a user that is not known here.
    #[error("{what} `{name}` is not known: {why}")]
    Name {
        /// What it should be.
        what: &'static str,
        /// The name.
        name: String,
        /// Why.
        why: NameError,
    },
    /// Something that would never be used.
    #[error("policy `{policy}` has no {what}; {hint}")]
    Unused {
        /// The policy.
        policy: String,
        /// What uses a policy.
        what: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// More than there may be.
    #[error("{found} {what}: there may be at most {most}")]
    TooMany {
        /// What.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many there may be.
        most: usize,
    },
    /// The text is not in HP-UX's syntax.
    #[error("{found} stands where {expected} is expected")]
    Syntax {
        /// What is there.
        found: String,
        /// What may stand there.
        expected: &'static str,
    },
}

impl PolicyProblem {
    pub(super) fn value(what: &'static str, text: &str, hint: impl Into<String>) -> Self {
        Self::Value {
            what,
            text: shortened(text),
            hint: hint.into(),
        }
    }

    pub(super) fn unknown<'a>(
        what: &'static str,
        name: &str,
        known: impl IntoIterator<Item = &'a str>,
        otherwise: &'static str,
    ) -> Self {
        Self::Unknown {
            what,
            name: shortened(name),
            hint: suggestion(name, known).unwrap_or_else(|| otherwise.to_owned()),
        }
    }

    pub(super) fn name(what: &'static str, name: &str, why: NameError) -> Self {
        let name = shortened(name);
        Self::Name { what, name, why }
    }

    pub(super) fn conflict(what: impl Into<String>, hint: &'static str) -> Self {
        Self::Read(format!("{}: {hint}", what.into()))
    }
}

/// A problem, and the byte at which it is.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) offset: usize,
    pub(super) problem: PolicyProblem,
}

impl Fault {
    pub(super) fn new(offset: usize, problem: PolicyProblem) -> Self {
        Self { offset, problem }
    }

    pub(super) fn value(
        offset: usize,
        what: &'static str,
        text: &str,
        hint: impl Into<String>,
    ) -> Self {
        Self::new(offset, PolicyProblem::value(what, text, hint))
    }

    pub(super) fn conflict(offset: usize, what: impl Into<String>, hint: &'static str) -> Self {
        Self::new(offset, PolicyProblem::conflict(what, hint))
    }

    pub(super) fn located(self, lines: &Lines<'_>) -> PolicyError {
        PolicyError {
            place: lines.place(self.offset),
            problem: self.problem,
        }
    }
}

impl From<toml_reader::Fault> for Fault {
    fn from(fault: toml_reader::Fault) -> Self {
        Self::new(fault.offset, PolicyProblem::Read(fault.problem))
    }
}

/// Where the lines of a text begin: a file has thousands of filters, and each knows its place.
pub(super) struct Lines<'a> {
    text: &'a str,
    begins: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let newlines = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            text,
            begins: std::iter::once(0).chain(newlines).collect(),
        }
    }

    /// Line and column of a byte, both counted from 1, the column in characters.
    pub(super) fn place(&self, offset: usize) -> Place {
        let line = self.begins.partition_point(|begin| *begin <= offset);
        let before = self.text.get(self.begins[line - 1]..offset);
        Place {
            line,
            column: before.map_or(1, |before| before.chars().count() + 1),
        }
    }
}

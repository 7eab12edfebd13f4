//! What is wrong with a policy file, and where.

use linerate_core::toml_reader;
use linerate_core::units::{shortened, suggestion};
use thiserror::Error;

use super::{NameError, Place};

/// An error in a policy file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {}, column {}: {problem}", place.line, place.column)]
pub struct PolicyError {
    /// Its place.
    pub place: Place,
    /// What is wrong.
    pub problem: PolicyProblem,
}

/// What is wrong with a policy file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PolicyProblem {
    /// Errors that any file can have.
    #[error("{0}")]
    Read(String),
    /// A value that cannot be parsed or is not allowed.
    #[error("`{text}` is no {what}; {hint}")]
    Value {
        /// What is expected.
        what: &'static str,
        /// The value that was given.
        text: String,
        /// How to write it.
        hint: String,
    },
    /// A name that nothing has.
    #[error("there is no {what} `{name}`; {hint}")]
    Unknown {
        /// What is expected.
        what: &'static str,
        /// The name.
        name: String,
        /// A similar name, or how to define one.
        hint: String,
    },
    /// A host, a service or a user that is not known here.
    #[error("{what} `{name}` is not known: {why}")]
    Name {
        /// What is expected.
        what: &'static str,
        /// The name.
        name: String,
        /// The reason.
        why: NameError,
    },
    /// A part that would never be used.
    #[error("policy `{policy}` has no {what}; {hint}")]
    Unused {
        /// The policy.
        policy: String,
        /// What would use the policy.
        what: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// Too many of something.
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
        /// What was found.
        found: String,
        /// What is expected there.
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

/// A problem, and its offset in bytes.
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

    pub(super) fn too_many(offset: usize, what: &'static str, found: usize, most: usize) -> Self {
        Self::new(offset, PolicyProblem::TooMany { what, found, most })
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

/// The offsets at which the lines of a text begin: a file has thousands of filters, and each stores
/// its place.
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

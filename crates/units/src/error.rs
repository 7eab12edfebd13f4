//! Errors in what people write: in one value, and in a file.

use thiserror::Error;

/// A text that is no value of the type that it should be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}`: {why}")]
pub struct TextError {
    text: String,
    why: String,
}

impl TextError {
    /// An error of this text, of which the message has the beginning.
    pub fn new(text: &str, why: impl Into<String>) -> Self {
        Self {
            // What a user typed can be of any length; the message is one line of a terminal.
            text: text.chars().take(60).collect(),
            why: why.into(),
        }
    }

    /// The reason alone, without the text.
    pub fn why(&self) -> &str {
        &self.why
    }
}

/// An error in a file, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}{}: {problem}", .column.map_or_else(String::new, |n| format!(", column {n}")))]
pub struct FileError {
    /// Line, counted from 1; the last one if the whole text is at fault.
    pub line: usize,
    /// Character of that line, counted from 1, where it is known.
    pub column: Option<usize>,
    /// The error in words.
    pub problem: String,
}

impl FileError {
    /// An error of a whole line.
    pub fn of_line(line: usize, problem: impl Into<String>) -> Self {
        Self { line, column: None, problem: problem.into() }
    }
}

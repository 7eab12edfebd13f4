//! The error of an option. It holds options as data, since a file and a command line name them
//! differently.

use std::borrow::Cow;
use std::fmt::Display;

use thiserror::Error;

/// An option with a value that it cannot have, or not in this test.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", self.written(|name| format!("`{name}`")))]
pub struct PlanError {
    key: &'static str,
    pub(super) message: Vec<Piece>,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// Words, as they are printed.
    Text(Cow<'static, str>),
    /// An option and, where the message is about that, its value. The option has its key, or is a
    /// shorthand as it was typed, such as `--no-offload`.
    Option(&'static str, Option<String>),
}

/// An option without its value.
pub(super) fn option(name: &'static str) -> Piece {
    Piece::Option(name, None)
}

impl<T: Into<Cow<'static, str>>> From<T> for Piece {
    fn from(words: T) -> Self {
        Self::Text(words.into())
    }
}

impl PlanError {
    /// An error about the option with that key (empty if it is about several), with its message.
    pub(super) fn new(key: &'static str, message: impl Into<Vec<Piece>>) -> Self {
        Self { key, message: message.into() }
    }

    /// A value that the option cannot have.
    pub(super) fn value(key: &'static str, value: impl Display, why: impl Display) -> Self {
        Self::new(key, [Piece::Option(key, Some(value.to_string())), format!(": {why}").into()])
    }

    /// The key of the option; empty if there is no such option.
    pub fn key(&self) -> &'static str {
        self.key
    }

    /// The message with options as on the command line: `--mss`, or as typed
    /// ([`super::Draft::set_as`]).
    pub fn on_command_line(&self) -> String {
        self.named(|key| format!("--{key}"))
    }

    /// The message with the name that `name` gives to each key of an option.
    pub fn named(&self, name: impl Fn(&str) -> String) -> String {
        self.written(|key| if key.starts_with('-') { key.to_owned() } else { name(key) })
    }

    fn written(&self, name: impl Fn(&'static str) -> String) -> String {
        let pieces = self.message.iter().map(|piece| match piece {
            Piece::Text(words) => words.to_string(),
            Piece::Option(option, None) => name(option),
            Piece::Option(option, Some(value)) => format!("{} {value}", name(option)),
        });
        pieces.collect()
    }
}

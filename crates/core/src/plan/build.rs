//! Makes a test from the given options: fills in defaults, and refuses contradictions. Also the
//! roles of the two ends of a path, and the error of an option.

use std::borrow::Cow;
use std::fmt::Display;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::options::{DEFAULT_TIME, Default, TestOption, option_of, options};
use super::{
    Closer, Direction, ExchangeTest, Extent, Protocol, SocketOptions, StreamTest, Test, Traffic,
    Workload, forbidden,
};
use crate::units::{End, Span, listed, quoted};
use crate::value::Value;

/// The given options of a test, each at most once: by its setter, or by its key and the text of its
/// value.
#[derive(Debug, Clone)]
pub struct Draft {
    workload: Workload,
    given: Vec<Given>,
}

/// The role of an end in one direction.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It sends the payload.
    Sender,
    /// It receives the payload.
    Receiver,
}

/// An option with a value that it cannot have, or not in this test.
///
/// It holds options as data, since a file and a command line name them differently.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", self.written(|name| format!("`{name}`")))]
pub struct PlanError {
    key: &'static str,
    pub(super) message: Vec<Piece>,
}

#[derive(Debug, Clone)]
struct Given {
    option: &'static TestOption,
    value: Value,
    /// The option as typed, if that is not two dashes and the key.
    typed: Option<&'static str>,
}

impl Given {
    fn name(&self) -> &'static str {
        self.typed.unwrap_or(self.option.key)
    }
}

impl Test {
    /// Bulk transfer; without options: ten seconds up over one TCP connection.
    pub fn stream() -> Draft {
        Draft::new(Workload::Stream)
    }

    /// Request and response on an open connection, a byte each.
    pub fn rr() -> Draft {
        Draft::new(Workload::Rr)
    }

    /// Connect, request, response, close.
    pub fn crr() -> Draft {
        Draft::new(Workload::Crr)
    }

    /// The options that differ from their defaults, with their values: [`Draft::resolve`] makes
    /// this test from them.
    pub fn given(&self) -> Vec<(&'static TestOption, Value)> {
        let given = |option: &'static TestOption| {
            let value = option.value_in(self)?;
            (option.default_in(self).as_ref() != Some(&value)).then_some((option, value))
        };
        options().iter().filter_map(given).collect()
    }

    /// The same options as they are typed, such as `--mss 536`, without those of these keys.
    pub fn typed(&self, without: &[&str]) -> Vec<String> {
        let mut given = self.given();
        given.retain(|(option, _)| !without.contains(&option.key));
        Vec::from_iter(given.iter().map(|(option, value)| option.words(value)))
    }
}

impl Draft {
    /// A workload without options.
    pub fn new(workload: Workload) -> Self {
        Self { workload, given: Vec::new() }
    }

    /// Sets the option with that key from a text.
    ///
    /// # Errors
    /// The workload has no such option, or the text is no value of it.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), PlanError> {
        self.set_as(key, text, None)
    }

    /// The same for an option that was typed as a shorthand, such as `--no-offload`, which errors
    /// name.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn set_as(
        &mut self,
        key: &str,
        text: &str,
        typed: Option<&'static str>,
    ) -> Result<(), PlanError> {
        let Some(option) = option_of(self.workload, key) else {
            let mut options = options().iter();
            let of_another = options.find(|it| it.key == key && !it.treatment_only);
            return Err(match of_another {
                Some(option) => self.is_of_another(option, typed.unwrap_or(option.key)),
                None => {
                    let what = format!("{} has no option `{key}`", self.workload.word());
                    PlanError::new("", [what.into()])
                }
            });
        };
        let read = option.kind.read(text);
        let value = read.map_err(|why| PlanError::value(option.key, quoted(text), why))?;
        self.given.push(Given { option, value, typed });
        Ok(())
    }

    /// Calls a setter if there is a value.
    pub fn maybe<T>(self, set: impl FnOnce(Self, T) -> Self, value: Option<T>) -> Self {
        match value {
            Some(value) => set(self, value),
            None => self,
        }
    }

    /// Whether the option with that key was given.
    pub fn has(&self, key: &str) -> bool {
        self.given.iter().any(|given| given.option.key == key)
    }

    pub(super) fn with(mut self, name: &'static str, value: Value) -> Self {
        let mut options = options().iter();
        // An option that the workload does not have is refused by `resolve`.
        if let Some(option) = options.find(|option| option.name == name) {
            let typed = None;
            self.given.push(Given { option, value, typed });
        }
        self
    }

    /// Makes the test, with defaults for options that were not given, and checks it.
    ///
    /// # Errors
    /// An option that the workload or the transport does not have, that is given twice or with one
    /// that excludes it; a value out of range; a meaningless combination.
    pub fn resolve(self, seed: u64) -> Result<Test, PlanError> {
        self.test(seed).map_err(|error| self.as_typed(error))
    }

    /// The error with each option as typed.
    fn as_typed(&self, mut error: PlanError) -> PlanError {
        for piece in &mut error.message {
            let Piece::Option(name, value) = piece else { continue };
            match self.given.iter().find(|given| given.option.key == *name) {
                // A shorthand stands for its value.
                Some(Given { option, value: given, typed: Some(typed) }) => {
                    *name = typed;
                    value.take_if(|value| *value == option.kind.written(given));
                }
                // Nobody typed the protocol that a test has by default.
                None if *name == "protocol" && value.as_deref() == Some("tcp") => {
                    *piece = "TCP".into();
                }
                _ => {}
            }
        }
        error
    }

    fn test(&self, seed: u64) -> Result<Test, PlanError> {
        let mut test = empty(self.workload, seed);
        for (at, given) in self.given.iter().enumerate() {
            self.check_alone(given, &self.given[..at])?;
            given.option.check_value(&given.value)?;
        }
        // Rules last, since they depend on the rest of the test.
        for by_rule in [false, true] {
            let options = options().iter();
            for option in options.filter(|option| option.is_rule() == by_rule) {
                match self.given.iter().find(|given| given.option == option) {
                    Some(given) => option.put(&mut test, &given.value),
                    None => option.fill_in(&mut test),
                }
            }
        }
        for given in &self.given {
            given.option.check_transport(test.protocol)?;
        }
        test.check()?;
        Ok(test)
    }

    /// The error for an option of other workloads.
    fn is_of_another(&self, option: &TestOption, name: &'static str) -> PlanError {
        let of: Vec<_> = option.workloads.iter().map(|of| of.word()).collect();
        let workload = self.workload.word();
        let have = if of.len() == 1 { "has" } else { "have" };
        let of = listed(&of, "and");
        let has_not = format!("{workload} has no option ").into();
        PlanError::new(
            name,
            [has_not, Piece::Option(name, None), format!("; {of} {have} it").into()],
        )
    }

    fn check_alone(&self, given: &Given, before: &[Given]) -> Result<(), PlanError> {
        let option = given.option;
        if !option.workloads.contains(&self.workload) {
            return Err(self.is_of_another(option, given.name()));
        }
        for other in before {
            if other.name() == given.name() {
                return forbidden(given.name(), [" is given twice".into()]);
            }
            let excludes = |one: &TestOption, two: &TestOption| one.excludes.contains(&two.key);
            let is_same = other.option.key == option.key;
            if is_same || excludes(option, other.option) || excludes(other.option, option) {
                let cannot = " cannot be used with ".into();
                return forbidden(given.name(), [cannot, Piece::Option(other.name(), None)]);
            }
        }
        Ok(())
    }
}

impl TestOption {
    fn is_rule(&self) -> bool {
        matches!(self.default, Default::Rule(..))
    }

    fn fill_in(&self, test: &mut Test) {
        // The test already has an implied value, or another one in its place.
        if self.workloads.contains(&test.workload())
            && !matches!(self.default, Default::Implied(_))
            && let Some(value) = self.default_in(test)
        {
            self.put(test, &value);
        }
    }
}

/// A test of a workload before any option is set.
fn empty(workload: Workload, seed: u64) -> Test {
    let exchange = ExchangeTest { closer: Closer::Client, ..ExchangeTest::new(1, 1) };
    Test {
        traffic: match workload {
            Workload::Stream => Traffic::Stream(StreamTest::new(0)),
            Workload::Rr => Traffic::Rr(exchange),
            Workload::Crr => Traffic::Crr(exchange),
        },
        protocol: Protocol::Tcp,
        direction: Direction::Up,
        streams: 1,
        extent: Extent::Time(DEFAULT_TIME),
        warm_up: Span(Duration::ZERO),
        interval: Span(Duration::ZERO),
        options: SocketOptions::default(),
        seed,
    }
}

impl Role {
    /// The end with this role; with both directions, in that up.
    pub fn end(self, direction: Direction) -> End {
        if (self == Self::Sender) == (direction != Direction::Down) {
            End::Client
        } else {
            End::Server
        }
    }

    /// The peer's role.
    pub fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }

    /// The role of an end in a direction; with both, in that up.
    pub fn at(end: End, direction: Direction) -> Self {
        if Self::Sender.end(direction) == end { Self::Sender } else { Self::Receiver }
    }
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

#[cfg(test)]
mod tests;

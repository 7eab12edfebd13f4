//! A test from the options that were given: defaults filled in, contradictions refused.

use std::time::Duration;

use super::options::{DEFAULT_TIME, Default, TestOption, option_of, options};
use super::{
    Closer, Direction, ExchangeTest, Extent, PlanError, Protocol, ReceiveMethod, SendMethod,
    SocketOptions, StreamTest, Test, Traffic, Workload,
};
use crate::units::Span;
use crate::value::Value;

/// Options of a test as they are given, each at most once: by a setter of its own, or by its key
/// and the text of its value.
#[derive(Debug, Clone)]
pub struct Draft {
    workload: Workload,
    given: Vec<(&'static TestOption, Value)>,
    /// Keys of options that were typed otherwise.
    typed: Vec<(&'static str, &'static str)>,
}

impl Test {
    /// Bulk transfer; without options, ten seconds up over one TCP connection.
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

    /// The options that [`Draft::resolve`] has to be given for this test, with their values: those
    /// that are other than their defaults.
    pub fn given(&self) -> Vec<(&'static TestOption, Value)> {
        let given = |option: &'static TestOption| {
            let value = option.value_in(self)?;
            (option.default_in(self).as_ref() != Some(&value)).then_some((option, value))
        };
        options().iter().filter_map(given).collect()
    }
}

impl Draft {
    /// A workload without options.
    pub fn new(workload: Workload) -> Self {
        Self {
            workload,
            given: Vec::new(),
            typed: Vec::new(),
        }
    }

    /// Gives the option of that key the value that a text is.
    ///
    /// # Errors
    /// The workload has no such option, or the text is none of its values.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), PlanError> {
        let Some(option) = option_of(self.workload, key) else {
            let workload = self.workload.word();
            return Err(PlanError::new(
                "",
                format!("{workload} has no option `{key}`"),
            ));
        };
        let value = option.kind.read(text).map_err(|why| {
            let text: String = text.chars().take(60).collect();
            PlanError::new(option.key, format!("cannot be {text}: {why}"))
        })?;
        self.given.push((option, value));
        Ok(())
    }

    /// Gives the option of that setter its value, if there is one.
    pub fn maybe<T>(self, set: impl FnOnce(Self, T) -> Self, value: Option<T>) -> Self {
        match value {
            Some(value) => set(self, value),
            None => self,
        }
    }

    /// The option given last was typed so, `--no-offload` for one: errors name it as it was typed.
    pub fn typed(mut self, words: &'static str) -> Self {
        let last = self.given.last();
        self.typed
            .extend(last.map(|(option, _)| (option.key, words)));
        self
    }

    /// Whether the option of that key was given.
    pub fn has(&self, key: &str) -> bool {
        self.given.iter().any(|(option, _)| option.key == key)
    }

    pub(super) fn with(mut self, name: &'static str, value: Value) -> Self {
        let mut options = options().iter();
        // A setter that the workload has not is found by its name, and refused by `resolve`.
        if let Some(option) = options.find(|option| option.name == name) {
            self.given.push((option, value));
        }
        self
    }

    /// The test: what was not given has its default, and all of it is checked.
    ///
    /// # Errors
    /// An option that the workload or the transport has not, that is given twice or with one that
    /// excludes it; a value out of range; a combination that has no meaning.
    pub fn resolve(self, seed: u64) -> Result<Test, PlanError> {
        self.test(seed).map_err(|error| {
            let typed = self.typed.iter().find(|(key, _)| *key == error.key);
            let typed = typed.map(|(_, words)| *words);
            PlanError { typed, ..error }
        })
    }

    fn test(&self, seed: u64) -> Result<Test, PlanError> {
        let mut test = empty(self.workload, seed);
        for (at, (option, value)) in self.given.iter().enumerate() {
            self.check_alone(option, &self.given[..at])?;
            option.check_value(value)?;
        }
        // Rules last: they look at the rest of the test.
        for by_rule in [false, true] {
            for option in options()
                .iter()
                .filter(|option| option.is_rule() == by_rule)
            {
                match self
                    .given
                    .iter()
                    .find(|(given, _)| given.name == option.name)
                {
                    Some((_, value)) => option.put(&mut test, value),
                    None => option.fill_in(&mut test),
                }
            }
        }
        for (option, _) in &self.given {
            option.check_transport(test.protocol)?;
        }
        test.check()?;
        Ok(test)
    }

    fn check_alone(
        &self,
        option: &TestOption,
        before: &[(&'static TestOption, Value)],
    ) -> Result<(), PlanError> {
        if !option.workloads.contains(&self.workload) {
            let workload = self.workload.word();
            let of: Vec<_> = option.workloads.iter().map(|of| of.word()).collect();
            let of = of.join(" or ");
            let what = format!("is no option of {workload}: it is one of {of}");
            return Err(PlanError::new(option.key, what));
        }
        for (other, _) in before {
            if other.key == option.key {
                return Err(PlanError::new(option.key, "is given twice"));
            }
            let excludes = |one: &TestOption, two: &TestOption| one.excludes.contains(&two.key);
            if excludes(option, other) || excludes(other, option) {
                let what = format!("cannot be used with `{}`", other.key);
                return Err(PlanError::new(option.key, what));
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
        // What is implied is in the test already, or something else is.
        if self.workloads.contains(&test.workload())
            && !matches!(self.default, Default::Implied(_))
            && let Some(value) = self.default_in(test)
        {
            self.put(test, &value);
        }
    }
}

/// A test of a workload before any option, its default or otherwise, is put into it.
fn empty(workload: Workload, seed: u64) -> Test {
    let exchange = ExchangeTest {
        request_bytes: 1,
        response_bytes: 1,
        depth: 1,
        rate_per_s: None,
        spin: false,
        closer: Closer::Client,
        reset: false,
    };
    Test {
        traffic: match workload {
            Workload::Stream => Traffic::Stream(StreamTest {
                message_bytes: 0,
                send: SendMethod::Copy,
                receive: ReceiveMethod::Read,
                verify: false,
                whole: false,
                write_rate_bps: None,
                read_rate_bps: None,
                rate_bps: None,
                offload: false,
                train: false,
            }),
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

#[cfg(test)]
mod tests;

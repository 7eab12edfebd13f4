//! The options of a test, each said once.
//!
//! An entry of [`options`] is an option of the command line (`--receive-window`), a key of an
//! experiment's `[workload]` (`receive-window`), a setter of [`Draft`] (`receive_window`) and,
//! where it says how it is put in force, a treatment of sockets (`receive_window=50KiB`). Its range
//! binds all of them, and what arrives over the wire.

mod field;
mod table;

use std::borrow::Cow;

use super::{PlanError, Protocol, Role, Test, Workload};
use crate::value::{Value, ValueKind};

pub(super) use table::DEFAULT_TIME;
use table::OPTIONS;

/// An option of a test, and all that is to be known of it.
#[derive(Debug, Clone, Copy)]
pub struct TestOption {
    /// Its name as a treatment and a setter: words joined by `_`.
    pub name: &'static str,
    /// Its name as a key of a file and, after two dashes, on the command line: joined by `-`.
    pub key: &'static str,
    /// Its letter on the command line.
    pub short: Option<char>,
    /// Other names on the command line: those that iperf3 has.
    pub aliases: &'static [&'static str],
    /// What stands for its value in a help text.
    pub value_name: &'static str,
    /// Which values it takes.
    pub kind: ValueKind,
    /// The workloads that have it.
    pub workloads: &'static [Workload],
    /// The transports that have it.
    pub over: Over,
    /// What it is where it is not given.
    pub default: Default,
    /// The heading that it stands under in a help text.
    pub heading: &'static str,
    /// What it is, in a line.
    pub help: &'static str,
    /// Whether it is a treatment alone, and neither an option of the command line nor a key.
    pub treatment_only: bool,
    /// Options, by their keys, that cannot be given together with it.
    pub excludes: &'static [&'static str],
    /// Options of the command line that stand for one of its values.
    pub shorthands: &'static [Shorthand],
    /// What else is to be known of it as a treatment of sockets, if it is one.
    pub treatment: Option<SocketTreatment>,
    get: fn(&Test) -> Option<Value>,
    set: fn(&mut Test, &Value),
}

/// Which transports have an option, and what to do over the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// All of them.
    Any,
    /// TCP and MPTCP.
    Tcp(&'static str),
    /// UDP.
    Udp(&'static str),
}

/// What an option is where it is not given.
#[derive(Debug, Clone, Copy)]
pub enum Default {
    /// The kernel's choice, or no limit.
    None,
    /// This.
    Always(&'static str),
    /// This over TCP and MPTCP, and that over UDP.
    Transport(&'static str, &'static str),
    /// This, if nothing else says it.
    Implied(&'static str),
    /// What follows from the rest of the test; in words, if they help.
    Rule(&'static str, fn(&Test) -> Value),
}

/// An option of the command line that stands for a value of another one.
#[derive(Debug, Clone, Copy)]
pub struct Shorthand {
    /// As it is typed: `-R` or `--bidir`.
    pub typed: &'static str,
    /// The same with two dashes, where it is a letter.
    pub long: Option<&'static str>,
    /// What it stands for.
    pub value: &'static str,
    /// What it is, in a line.
    pub help: &'static str,
}

/// What is to be known of a treatment of sockets.
#[derive(Debug, Clone, Copy)]
pub struct SocketTreatment {
    /// What it is.
    pub means: &'static str,
    /// The end of the payload at which it acts, if that is one of them.
    pub acts: Option<Role>,
    /// Whether what it changes is above all CPU time.
    pub costs_cpu: bool,
    /// What it needs of the host.
    pub needs: &'static str,
    /// How it is put in force.
    pub applied: &'static str,
    /// How it is made sure that it took.
    pub read_back: &'static str,
}

/// All options, in the order in which they are put into a test.
pub fn options() -> &'static [TestOption] {
    OPTIONS
}

/// The option of that key that a workload has.
pub fn option_of(workload: Workload, key: &str) -> Option<&'static TestOption> {
    let mut options = OPTIONS.iter();
    options.find(|option| {
        option.key == key && option.workloads.contains(&workload) && !option.treatment_only
    })
}

impl TestOption {
    /// What it is in a test; none if it is the kernel's choice or the test has no such thing.
    pub fn value_in(&self, test: &Test) -> Option<Value> {
        let is_there = self.workloads.contains(&test.workload());
        is_there.then(|| (self.get)(test)).flatten()
    }

    /// What it would be in a test, were it not given.
    pub fn default_in(&self, test: &Test) -> Option<Value> {
        let text = match self.default {
            Default::None => return None,
            Default::Rule(_, value) => return Some(value(test)),
            Default::Transport(_, udp) if test.protocol == Protocol::Udp => udp,
            Default::Always(text) | Default::Implied(text) | Default::Transport(text, _) => text,
        };
        Some(self.kind.read(text).expect("a test reads all defaults"))
    }

    /// As words of a command line, such as `--mss 536`; a shorthand where there is one.
    pub fn words(&self, value: &Value) -> String {
        let written = self.kind.written(value);
        let shorthand = self.shorthands.iter().find(|short| short.value == written);
        match (shorthand, value) {
            (Some(shorthand), _) => shorthand.typed.to_owned(),
            (_, Value::Switch(true)) if self.is_flag() => format!("--{}", self.key),
            _ => format!("--{} {written}", self.key),
        }
    }

    /// Whether the command line has it without a value.
    pub fn is_flag(&self) -> bool {
        self.kind == ValueKind::Switch && !matches!(self.default, Default::None)
    }

    /// Whether a value is within its range.
    ///
    /// # Errors
    /// It is not; the range.
    pub(super) fn check_value(&self, value: &Value) -> Result<(), PlanError> {
        if self.kind.admits(value) {
            return Ok(());
        }
        let what = format!("{}: it must be {}", self.kind.written(value), self.kind);
        Err(PlanError::new(self.key, what))
    }

    /// Whether a test's transport has it.
    ///
    /// # Errors
    /// It has not; what to do.
    pub(super) fn check_transport(&self, protocol: Protocol) -> Result<(), PlanError> {
        let Some(why) = self.over.why_not(protocol) else {
            return Ok(());
        };
        let protocol = protocol.word();
        let what = format!("cannot be used with `protocol` {protocol}: {why}");
        Err(PlanError::new(self.key, what))
    }

    /// Why a test cannot have it, if it cannot.
    pub(crate) fn why_unfit(&self, test: &Test) -> Option<&'static str> {
        if self.workloads.contains(&test.workload()) {
            self.over.why_not(test.protocol)
        } else {
            Some("the workload has no such option")
        }
    }

    /// Gives it a value of its kind in a test.
    pub(crate) fn put(&self, test: &mut Test, value: &Value) {
        (self.set)(test, value);
    }

    /// What a help text says: the range and the default, where it has any.
    pub fn help(&self) -> String {
        let mut help = self.help.to_owned();
        if let Some(range) = self.kind.range() {
            let separator = match self.kind {
                ValueKind::Word(_) => ": ",
                _ => ", ",
            };
            help += &format!("{separator}{range}");
        }
        let default = match self.default {
            _ if self.is_flag() => None,
            Default::None | Default::Rule("", _) => None,
            Default::Always(text) | Default::Implied(text) => Some(Cow::Borrowed(text)),
            Default::Transport(tcp, udp) => Some(Cow::Owned(format!("{tcp}, UDP {udp}"))),
            Default::Rule(words, _) => Some(Cow::Borrowed(words)),
        };
        default
            .iter()
            .for_each(|text| help += &format!(" (default {text})"));
        help
    }
}

impl PartialEq for TestOption {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for TestOption {}

impl Over {
    fn why_not(self, protocol: Protocol) -> Option<&'static str> {
        match (self, protocol) {
            (Self::Tcp(why), Protocol::Udp) => Some(why),
            (Self::Udp(why), Protocol::Tcp | Protocol::Mptcp) => Some(why),
            _ => None,
        }
    }
}

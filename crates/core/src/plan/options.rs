//! The options of a test, each defined once.
//!
//! An entry of [`options`] is an option of the command line (`--receive-window`), a key of an
//! experiment's `[workload]` (`receive-window`), a setter of [`Draft`] (`receive_window`) and, if
//! it says how it is applied, a treatment of sockets (`receive_window=50KiB`). Its range holds for
//! all of them, and for tests that arrive over the wire.

mod table;

use std::borrow::Cow;
use std::iter;
use std::net::IpAddr;

pub(super) use table::DEFAULT_TIME;
use table::OPTIONS;

use super::build::{Piece, option};
use super::{
    Closer, Direction, ExchangeTest, PlanError, Protocol, ReceiveMethod, Role, SendMethod,
    StreamTest, Test, Traffic, Workload,
};
use crate::units::{BitRate, ByteCount, Dscp, Span, words};
use crate::value::{Value, ValueKind};

/// An option of a test with its properties.
#[derive(Debug, Clone, Copy)]
pub struct TestOption {
    /// Its name as a treatment and a setter: words joined by `_`.
    pub name: &'static str,
    /// Its name as a key of a file and, after two dashes, on the command line: joined by `-`.
    pub key: &'static str,
    /// Its letter on the command line.
    pub short: Option<char>,
    /// Other names on the command line: those of iperf3.
    pub aliases: &'static [&'static str],
    /// The placeholder for its value in a help text.
    pub value_name: &'static str,
    /// The values that it takes.
    pub kind: ValueKind,
    /// The workloads that have it.
    pub workloads: &'static [Workload],
    /// The transports that have it.
    pub over: Over,
    /// Its value if it is not given.
    pub default: Default,
    /// Its heading in a help text.
    pub heading: &'static str,
    /// Its description, one line.
    pub help: &'static str,
    /// Whether it is only a treatment, and neither an option of the command line nor a key.
    pub treatment_only: bool,
    /// Options, by their keys, that cannot be given together with it.
    pub excludes: &'static [&'static str],
    /// Options of the command line that stand for one of its values.
    pub shorthands: &'static [Shorthand],
    /// Its properties as a treatment of sockets, if it is one.
    pub treatment: Option<SocketTreatment>,
    get: fn(&Test) -> Option<Value>,
    set: fn(&mut Test, &Value),
}

/// The transports that have an option, with advice for the others: words, which end with these
/// options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// Every transport.
    Any,
    /// TCP and MPTCP.
    Tcp(&'static str, &'static [&'static str]),
    /// UDP.
    Udp(&'static str, &'static [&'static str]),
}

/// The value of an option that is not given.
#[derive(Debug, Clone, Copy)]
pub enum Default {
    /// The kernel's choice, or no limit.
    None,
    /// This value.
    Always(&'static str),
    /// The first over TCP and MPTCP, the second over UDP.
    Transport(&'static str, &'static str),
    /// This value, unless another option gives it.
    Implied(&'static str),
    /// A value that follows from the rest of the test; with a description for the help text, or
    /// none.
    Rule(&'static str, fn(&Test) -> Value),
}

/// An option of the command line that stands for a value of another one.
#[derive(Debug, Clone, Copy)]
pub struct Shorthand {
    /// The option as typed: `-R` or `--bidir`.
    pub typed: &'static str,
    /// Its long name, if `typed` is a letter.
    pub long: Option<&'static str>,
    /// The value that it stands for.
    pub value: &'static str,
    /// Its description, one line.
    pub help: &'static str,
}

/// The properties of a treatment of sockets.
#[derive(Debug, Clone, Copy)]
pub struct SocketTreatment {
    /// Its description.
    pub means: &'static str,
    /// The end of the payload at which it acts, if it is only one.
    pub acts: Option<Role>,
    /// Whether it mainly changes CPU time.
    pub costs_cpu: bool,
    /// What the host must provide.
    pub needs: &'static str,
    /// Means by which the option is applied, such as a socket option.
    pub applied: &'static str,
    /// Means by which its effect is read back.
    pub read_back: &'static str,
}

/// All options, in the order in which they are put into a test.
pub fn options() -> &'static [TestOption] {
    OPTIONS
}

/// The workload's option with that key.
pub fn option_of(workload: Workload, key: &str) -> Option<&'static TestOption> {
    let mut options = OPTIONS.iter();
    options.find(|option| {
        option.key == key && option.workloads.contains(&workload) && !option.treatment_only
    })
}

impl TestOption {
    /// Its value in a test; `None` if it is the kernel's choice or the test has no such option.
    pub fn value_in(&self, test: &Test) -> Option<Value> {
        let is_there = self.workloads.contains(&test.workload());
        is_there.then(|| (self.get)(test)).flatten()
    }

    /// Its value in a test if it were not given.
    pub fn default_in(&self, test: &Test) -> Option<Value> {
        let text = match self.default {
            Default::None => return None,
            Default::Rule(_, value) => return Some(value(test)),
            Default::Transport(_, udp) if test.protocol == Protocol::Udp => udp,
            Default::Always(text) | Default::Implied(text) | Default::Transport(text, _) => text,
        };
        Some(self.kind.read(text).expect("a test reads all defaults"))
    }

    /// The words of a command line, such as `--mss 536`; a shorthand if there is one.
    pub fn words(&self, value: &Value) -> String {
        let written = self.kind.written(value);
        let shorthand = self.shorthands.iter().find(|short| short.value == written);
        match (shorthand, value) {
            (Some(shorthand), _) => shorthand.typed.to_owned(),
            (_, Value::Switch(true)) if self.is_flag() => format!("--{}", self.key),
            _ => format!("--{} {written}", self.key),
        }
    }

    /// Whether it has no value on the command line.
    pub fn is_flag(&self) -> bool {
        self.kind == ValueKind::Switch && !matches!(self.default, Default::None)
    }

    /// Checks a value against the range.
    ///
    /// # Errors
    /// The value is out of range; the error names the range.
    pub(super) fn check_value(&self, value: &Value) -> Result<(), PlanError> {
        if self.kind.admits(value) {
            return Ok(());
        }
        let why = format!("it must be {}", self.kind);
        Err(PlanError::value(self.key, self.kind.written(value), why))
    }

    /// Checks that the transport has this option.
    ///
    /// # Errors
    /// It has not; the error gives advice.
    pub(super) fn check_transport(&self, protocol: Protocol) -> Result<(), PlanError> {
        let Some(why) = self.over.why_not(protocol) else {
            return Ok(());
        };
        let protocol = Piece::Option("protocol", Some(protocol.word().to_owned()));
        let cannot = [option(self.key), " cannot be used with ".into(), protocol, ": ".into()];
        Err(PlanError::new(self.key, [&cannot, &why[..]].concat()))
    }

    /// The reason if a test cannot have it.
    pub(crate) fn why_unfit(&self, test: &Test) -> Option<String> {
        if !self.workloads.contains(&test.workload()) {
            return Some("the workload has no such option".to_owned());
        }
        let why = self.over.why_not(test.protocol)?;
        Some(PlanError::new(self.key, why).to_string())
    }

    /// Sets its value in a test.
    pub(crate) fn put(&self, test: &mut Test, value: &Value) {
        (self.set)(test, value);
    }

    /// Its help text, with the range and the default, if it has any.
    pub fn help(&self) -> String {
        let mut help = self.help.to_owned();
        if let Some(range) = self.kind.range() {
            let is_word = matches!(self.kind, ValueKind::Word(_));
            help += &format!("{}{range}", if is_word { ": " } else { ", " });
        }
        let default = match self.default {
            _ if self.is_flag() => None,
            Default::None | Default::Rule("", _) => None,
            Default::Always(text) | Default::Implied(text) => Some(Cow::Borrowed(text)),
            Default::Transport(tcp, udp) => Some(Cow::Owned(format!("{tcp}, UDP {udp}"))),
            Default::Rule(words, _) => Some(Cow::Borrowed(words)),
        };
        if let Some(text) = default {
            help += &format!(" (default {text})");
        }
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
    fn why_not(self, protocol: Protocol) -> Option<Vec<Piece>> {
        let (why, instead) = match (self, protocol) {
            (Self::Tcp(why, instead), Protocol::Udp) => (why, instead),
            (Self::Udp(why, instead), Protocol::Tcp | Protocol::Mptcp) => (why, instead),
            _ => return None,
        };
        let others = instead
            .iter()
            .enumerate()
            .flat_map(|(at, other)| [if at == 0 { " " } else { " or " }.into(), option(other)]);
        Some(iter::once(why.into()).chain(others).collect())
    }
}

// The fields of a test as values of options, and the words of its plain enums.

/// A field of a test that can be a value of an option.
trait Field: Sized {
    fn value(&self) -> Option<Value>;
    fn from_value(value: &Value) -> Option<Self>;
}

macro_rules! fields {
    ($($type:ty: $value:pat => $of:expr, |$this:ident| $to:expr;)*) => {
        $(impl Field for $type {
            fn value(&self) -> Option<Value> {
                let $this = self;
                Some($to)
            }
            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    $value => $of,
                    _ => None,
                }
            }
        })*
    };
}

fields! {
    bool: Value::Switch(on) => Some(*on), |on| Value::Switch(*on);
    u64: Value::Number(n) => Some(*n), |n| Value::Number(*n);
    u32: Value::Number(n) => u32::try_from(*n).ok(), |n| Value::Number(u64::from(*n));
    f64: Value::Frequency(n) => Some(*n), |n| Value::Frequency(*n);
    ByteCount: Value::Number(n) => Some(Self(*n)), |n| Value::Number(n.0);
    BitRate: Value::Number(n) => Some(Self(*n)), |n| Value::Number(n.0);
    Span: Value::Time(time) => Some(*time), |time| Value::Time(*time);
    String: Value::Name(name) => Some(name.clone()), |name| Value::Name(name.clone());
    Dscp: Value::Dscp(dscp) => Some(*dscp), |dscp| Value::Dscp(*dscp);
    IpAddr: Value::Address(address) => Some(*address), |address| Value::Address(*address);
    SendMethod: Value::Switch(on) => Some(if *on { Self::ZeroCopy } else { Self::Copy }),
        |way| Value::Switch(*way == Self::ZeroCopy);
    ReceiveMethod: Value::Switch(on) => Some(if *on { Self::Discard } else { Self::Read }),
        |way| Value::Switch(*way == Self::Discard);
    Protocol: Value::Word(word) => Self::from_word(word), |it| Value::Word(it.word());
    Direction: Value::Word(word) => Self::from_word(word), |it| Value::Word(it.word());
    Closer: Value::Word(word) => Self::from_word(word), |it| Value::Word(it.word());
}

impl<T: Field> Field for Option<T> {
    fn value(&self) -> Option<Value> {
        self.as_ref().and_then(T::value)
    }

    fn from_value(value: &Value) -> Option<Self> {
        T::from_value(value).map(Some)
    }
}

words! {
    Workload word { "stream" Stream, "rr" Rr, "crr" Crr }
    Protocol word { "tcp" Tcp, "udp" Udp, "mptcp" Mptcp }
    Direction word { "up" Up, "down" Down, "both" Both }
    Closer word { "client" Client, "server" Server }
}

fn stream(test: &Test) -> Option<&StreamTest> {
    match &test.traffic {
        Traffic::Stream(stream) => Some(stream),
        Traffic::Rr(_) | Traffic::Crr(_) => None,
    }
}

fn stream_mut(test: &mut Test) -> Option<&mut StreamTest> {
    match &mut test.traffic {
        Traffic::Stream(stream) => Some(stream),
        Traffic::Rr(_) | Traffic::Crr(_) => None,
    }
}

fn exchange(test: &Test) -> Option<&ExchangeTest> {
    match &test.traffic {
        Traffic::Stream(_) => None,
        Traffic::Rr(exchange) | Traffic::Crr(exchange) => Some(exchange),
    }
}

fn exchange_mut(test: &mut Test) -> Option<&mut ExchangeTest> {
    match &mut test.traffic {
        Traffic::Stream(_) => None,
        Traffic::Rr(exchange) | Traffic::Crr(exchange) => Some(exchange),
    }
}

fn put<T: Field>(field: Option<&mut T>, value: &Value) {
    if let (Some(field), Some(value)) = (field, T::from_value(value)) {
        *field = value;
    }
}

//! Values and their kinds: what an option of a test, a treatment or a kernel setting takes; and the
//! value of the treatment `qos`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::units::{BitRate, ByteCount, Dscp, Span, TextError, listed};

/// The kind of a value, with the range that is accepted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ValueKind {
    /// `on` or `off`; in files `true` or `false`.
    Switch,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A time such as `29ms`.
    Time {
        /// The least, milliseconds.
        least_ms: u64,
        /// The most, milliseconds.
        most_ms: u64,
    },
    /// A frequency, per second: `1000`, `2.5k`, `1M`.
    Frequency {
        /// The least.
        least: f64,
        /// The most.
        most: f64,
    },
    /// Bytes, such as `64KiB`.
    Bytes {
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// A rate such as `20mbit`, bits per second.
    Rate {
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// A rate, or `max` for no limit, which is [`NO_LIMIT`].
    RateOrMax {
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// A whole number.
    Number {
        /// The least.
        least: u64,
        /// The most.
        most: u64,
        /// Unit of the count, such as `µs`; empty for a plain number.
        unit: &'static str,
    },
    /// A fixed number of whole numbers with blanks between them.
    Numbers {
        /// How many.
        count: usize,
        /// The least of each.
        least: u64,
        /// The most of each.
        most: u64,
        /// Unit of the count.
        unit: &'static str,
    },
    /// The name of a kernel module, such as that of a congestion control.
    Name,
    /// A code point such as `EF` or `46`.
    Dscp,
    /// An address of the host.
    Address,
    /// CPUs such as `0-3,8`, or `none`.
    Cpus,
    /// `off`, `passthrough` or the file of a DiffServ policy.
    Policy,
}

/// Reads a kind as the tables of settings write it: `name`, `switch`, `cpus`, `address`, `policy`,
/// `0 to 255 segments`, `3 of 1 to 65535 bytes`.
impl<'de: 'static> Deserialize<'de> for ValueKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = <&'static str>::deserialize(deserializer)?;
        Self::from_words(words).ok_or_else(|| D::Error::custom(format!("`{words}` is no kind")))
    }
}

/// A value of an option, a treatment or a setting.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// On or off.
    Switch(bool),
    /// One of several words.
    Word(&'static str),
    /// A time.
    Time(Span),
    /// A frequency, per second.
    Frequency(f64),
    /// Bytes, bits per second, or what else is counted.
    Number(u64),
    /// Several numbers.
    Numbers(Vec<u64>),
    /// A name.
    Name(String),
    /// A code point.
    Dscp(Dscp),
    /// An address.
    Address(IpAddr),
    /// CPUs, in ascending order.
    Cpus(Vec<u32>),
    /// A DiffServ policy.
    Policy(QosPolicy),
}

/// `max` of [`ValueKind::RateOrMax`].
pub const NO_LIMIT: u64 = u64::MAX;

impl ValueKind {
    fn from_words(words: &'static str) -> Option<Self> {
        match words {
            "name" => return Some(Self::Name),
            "switch" => return Some(Self::Switch),
            "cpus" => return Some(Self::Cpus),
            "address" => return Some(Self::Address),
            "policy" => return Some(Self::Policy),
            _ => {}
        }
        let (count, range) = match words.split_once(" of ") {
            Some((count, range)) => (Some(count.parse().ok()?), range),
            None => (None, words),
        };
        let (least, rest) = range.split_once(" to ")?;
        let (most, unit) = rest.split_once(' ').unwrap_or((rest, ""));
        let (least, most) = (least.parse().ok()?, most.parse().ok()?);
        Some(match count {
            Some(count) => Self::Numbers { count, least, most, unit },
            None => Self::Number { least, most, unit },
        })
    }

    /// The value that `text` is.
    ///
    /// # Errors
    /// Why it is none of this kind, or its range.
    pub fn read(&self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        let value = match *self {
            Self::Switch => switch(text).map(Value::Switch),
            Self::Word(words) => {
                let word = words.iter().find(|word| **word == text);
                word.map(|word| Value::Word(word))
            }
            Self::Time { .. } => unit(text)?.map(Value::Time),
            Self::Frequency { .. } => Some(Value::Frequency(frequency(text)?)),
            Self::Bytes { .. } => unit(text)?.map(|ByteCount(n)| Value::Number(n)),
            Self::RateOrMax { .. } if text == "max" => Some(Value::Number(NO_LIMIT)),
            Self::Rate { .. } | Self::RateOrMax { .. } => {
                unit(text)?.map(|BitRate(n)| Value::Number(n))
            }
            Self::Number { .. } => digits(text).map(Value::Number),
            Self::Numbers { .. } => {
                let numbers: Option<_> = text.split_ascii_whitespace().map(digits).collect();
                numbers.map(Value::Numbers)
            }
            Self::Name => Some(Value::Name(text.to_owned())),
            Self::Dscp => text.parse().ok().map(Value::Dscp),
            Self::Address => text.parse().ok().map(Value::Address),
            Self::Cpus => cpus(text).map(Value::Cpus),
            Self::Policy => QosPolicy::read(text).map(Value::Policy),
        };
        let value = value.filter(|value| self.admits(value));
        let whole = match self {
            // Letters, a dash or a dot, and not a number out of range.
            Self::Number { .. } if digits(text).is_none() => "a whole number, ",
            _ => "",
        };
        value.ok_or_else(|| format!("it must be {whole}{self}"))
    }

    /// Whether a value is of this kind and within its range.
    pub fn admits(&self, value: &Value) -> bool {
        match (*self, value) {
            (Self::Word(words), Value::Word(word)) => words.contains(word),
            (Self::Time { least_ms, most_ms }, Value::Time(time)) => {
                let [least, most] = [least_ms, most_ms].map(Duration::from_millis);
                (least..=most).contains(&time.0)
            }
            (Self::Frequency { least, most }, Value::Frequency(n)) => (least..=most).contains(n),
            (Self::RateOrMax { .. }, Value::Number(NO_LIMIT)) => true,
            (
                Self::Bytes { least, most }
                | Self::RateOrMax { least, most }
                | Self::Rate { least, most }
                | Self::Number { least, most, .. },
                Value::Number(number),
            ) => (least..=most).contains(number),
            (Self::Numbers { count, least, most, .. }, Value::Numbers(numbers)) => {
                numbers.len() == count && numbers.iter().all(|n| (least..=most).contains(n))
            }
            (Self::Name, Value::Name(name)) => is_name(name),
            (Self::Switch, Value::Switch(_))
            | (Self::Dscp, Value::Dscp(_))
            | (Self::Address, Value::Address(_))
            | (Self::Cpus, Value::Cpus(_))
            | (Self::Policy, Value::Policy(_)) => true,
            _ => false,
        }
    }

    /// A value of this kind in a command: exact, and short where a unit makes it so.
    pub fn written(&self, value: &Value) -> String {
        match (self, value) {
            (Self::RateOrMax { .. }, Value::Number(NO_LIMIT)) => "max".to_owned(),
            (Self::Rate { .. } | Self::RateOrMax { .. }, Value::Number(bps)) => {
                BitRate(*bps).typed()
            }
            _ => value.to_string(),
        }
    }

    /// The range in a few words for a help text; `None` where every value is accepted.
    pub fn range(&self) -> Option<String> {
        let span = |least: String, most: String| Some(format!("{least} to {most}"));
        match *self {
            Self::Word(words) => Some(listed(words, "or")),
            Self::Time { least_ms, most_ms } => span(short_time(least_ms), short_time(most_ms)),
            Self::Frequency { least, most } => span(short(least), short(most)),
            Self::Bytes { least, most } => {
                let most = short_bytes(most);
                let unit = if most.ends_with('B') { "" } else { " bytes" };
                span(short_bytes(least), most + unit)
            }
            Self::RateOrMax { least, most } => {
                let range = Self::Rate { least, most }.range()?;
                Some(range + ", or max")
            }
            Self::Rate { least, most } => {
                let rate = |bps: u64| short(bps as f64).to_lowercase() + "bit";
                span(rate(least), rate(most))
            }
            Self::Number { least, most, unit } => {
                let range = span(short_number(least), short_number(most))?;
                Some([range.as_str(), unit].join(" ").trim_end().to_owned())
            }
            Self::Dscp => Some("0 to 63, or EF, AF41, CS1, LE, …".to_owned()),
            _ => None,
        }
    }
}

/// Parses a quantity with its unit; `None` if the text does not begin with a number.
fn unit<T: FromStr<Err = TextError>>(text: &str) -> Result<Option<T>, String> {
    match text.parse() {
        Ok(quantity) => Ok(Some(quantity)),
        Err(_) if !text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => Ok(None),
        Err(error) => Err(error.why().to_owned()),
    }
}

/// `1000`, `2.5k`, `1M`, each with or without `/s`.
fn frequency(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    let (digits, scale) = match number.char_indices().last() {
        Some((at, 'k' | 'K')) => (&number[..at], 1e3),
        Some((at, 'm' | 'M')) => (&number[..at], 1e6),
        _ => (number, 1.0),
    };
    let rate: Option<f64> = digits.trim().parse().ok();
    rate.filter(|rate| rate.is_finite())
        .map(|rate| rate * scale)
        .ok_or_else(|| "it must be a number for each second, such as 1000, 2.5k or 1M".to_owned())
}

fn short(number: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let unit = units.into_iter().find(|(scale, _)| number >= *scale);
    let (scale, unit) = unit.unwrap_or((1.0, ""));
    format!("{}{unit}", number / scale)
}

fn short_number(number: u64) -> String {
    match number {
        u64::MAX => "2^64-1".to_owned(),
        _ if number > 1 << 32 && number.is_power_of_two() => format!("2^{}", number.ilog2()),
        _ => number.to_string(),
    }
}

fn short_bytes(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB")];
    let unit = units.into_iter().find(|(bits, _)| bytes >> bits > 0);
    match unit {
        Some((bits, unit)) => format!("{}{unit}", bytes >> bits),
        None => bytes.to_string(),
    }
}

fn short_time(ms: u64) -> String {
    let units = [(3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms")];
    let unit = units.into_iter().find(|(scale, _)| ms >= *scale);
    unit.map_or("0".to_owned(), |(scale, unit)| format!("{}{unit}", ms / scale))
}

impl fmt::Display for ValueKind {
    /// Kind and range in words: `88 to 32767 bytes`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Switch => f.write_str("on or off"),
            Self::Numbers { count, least, most, unit } => {
                let each = Self::Number { least, most, unit };
                write!(f, "{count} numbers with blanks between them, each {each}")
            }
            Self::Name => f.write_str("a name of 1 to 15 letters, digits, _ and -"),
            Self::Address => f.write_str("an IPv4 or IPv6 address of the host"),
            Self::Cpus => write!(f, "CPUs, 0 to {LAST_CPU}, written as 0-3,8; or none"),
            Self::Policy => f.write_str("off, passthrough, or the name of a policy's file"),
            Self::Frequency { least, most } => {
                write!(f, "{} to {} a second", short(least), short(most))
            }
            _ => f.write_str(&self.range().unwrap_or_default()),
        }
    }
}

impl fmt::Display for Value {
    /// As the kernel and the wire have it: plain numbers, `on` and `off`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(on) => f.write_str(if *on { "on" } else { "off" }),
            Self::Word(word) => f.write_str(word),
            Self::Time(time) => write!(f, "{}s", time.as_secs_f64()),
            Self::Frequency(number) => write!(f, "{number}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Numbers(numbers) => {
                let words: Vec<_> = numbers.iter().map(u64::to_string).collect();
                f.write_str(&words.join(" "))
            }
            Self::Name(name) => f.write_str(name),
            Self::Dscp(dscp) => write!(f, "{dscp}"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Cpus(cpus) => f.write_str(&ranges(cpus)),
            Self::Policy(policy) => write!(f, "{policy}"),
        }
    }
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "on" | "true" => Some(true),
        "off" | "false" => Some(false),
        _ => None,
    }
}

/// Digits alone: `parse` would take a sign too.
fn digits(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// Parses a list of CPUs as the kernel writes it; `none` is the empty list.
fn cpus(text: &str) -> Option<Vec<u32>> {
    if text == "none" {
        return Some(Vec::new());
    }
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (digits(first)?, digits(last)?);
        (first <= last && last <= LAST_CPU).then_some(())?;
        cpus.extend((first..=last).map(|cpu| cpu as u32));
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// `0-3,8`.
fn ranges(cpus: &[u32]) -> String {
    if cpus.is_empty() {
        return "none".to_owned();
    }
    let runs = cpus.chunk_by(|one, next| one + 1 == *next);
    let words: Vec<String> = runs
        .map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            run => run.iter().map(u32::to_string).collect(),
        })
        .collect();
    words.join(",")
}

/// CONFIG_NR_CPUS is at most 8192.
const LAST_CPU: u64 = 8_191;

/// TCP_CA_NAME_MAX is 16 with the terminating zero (include/net/tcp.h).
fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..16).contains(&text.len()) && text.bytes().all(allowed)
}

// The value of the treatment `qos`: a DiffServ policy on the device that leads to the peer.

/// Which policy is to be in force.
///
/// It is written as the name of a file. This crate reads none: whoever has the treatments gives
/// them the text (`Treatments::load`), which then travels with them, to an endpoint too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "policy", rename_all = "snake_case")]
pub enum QosPolicy {
    /// None: no program, no classes.
    Off,
    /// A program without rules: every packet passes it, and nothing is done with it.
    Passthrough,
    /// Policy of a file.
    File {
        /// As it was written.
        name: String,
        /// Text of the file; empty before it was loaded.
        text: String,
    },
}

/// Largest file of a policy, bytes.
pub const MAX_POLICY_BYTES: usize = 1 << 20;
/// Largest that travels to an endpoint, bytes: as JSON it has to fit a frame.
pub const MAX_REMOTE_POLICY_BYTES: usize = 32 << 10;

impl QosPolicy {
    /// The policy that `text` names; none if it cannot be a file's name.
    pub(crate) fn read(text: &str) -> Option<Self> {
        match text {
            "off" => Some(Self::Off),
            "passthrough" => Some(Self::Passthrough),
            name => is_file_name(name)
                .then(|| Self::File { name: name.to_owned(), text: String::new() }),
        }
    }

    /// Whether it can be put in force: a file was loaded, and is not too large.
    pub(crate) fn is_complete(&self) -> bool {
        match self {
            Self::Off | Self::Passthrough => true,
            Self::File { name, text } => {
                is_file_name(name) && (1..=MAX_POLICY_BYTES).contains(&text.len())
            }
        }
    }
}

impl fmt::Display for QosPolicy {
    /// As it was written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Passthrough => "passthrough",
            Self::File { name, .. } => name,
        })
    }
}

/// Treatments are separated by commas, and stand in messages of one line.
fn is_file_name(name: &str) -> bool {
    let allowed = |c: char| !c.is_control() && c != ',';
    (1..=MAX_NAME).contains(&name.len()) && name.chars().all(allowed)
}

/// As long as a path of Linux (PATH_MAX), bytes.
const MAX_NAME: usize = 4096;

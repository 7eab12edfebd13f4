//! Kinds of values that treatments take, with their ranges.

use std::fmt;
use std::net::IpAddr;

use super::policy::QosPolicy;
use crate::units::{BitRate, ByteCount, Dscp};

/// Which values a treatment takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// `on` or `off`.
    Switch,
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
    /// A whole number.
    Number {
        /// The least.
        least: u64,
        /// The most.
        most: u64,
        /// What is counted, such as `µs`; empty for a plain number.
        unit: &'static str,
    },
    /// So many whole numbers with blanks between them.
    Numbers {
        /// How many.
        count: usize,
        /// The least of each.
        least: u64,
        /// The most of each.
        most: u64,
        /// What is counted.
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

/// A value, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// On or off.
    Switch(bool),
    /// Bytes, bits per second, or what else is counted.
    Number(u64),
    /// Several of them.
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

impl ValueKind {
    /// The value that `text` is; none if it is of another kind or out of range.
    pub fn read(&self, text: &str) -> Option<Value> {
        let text = text.trim();
        match *self {
            Self::Switch => switch(text).map(Value::Switch),
            Self::Bytes { least, most } => {
                let ByteCount(bytes) = text.parse().ok()?;
                number(bytes, least, most)
            }
            Self::Rate { least, most } => {
                let BitRate(bits) = text.parse().ok()?;
                number(bits, least, most)
            }
            Self::Number { least, most, .. } => number(digits(text)?, least, most),
            Self::Numbers {
                count, least, most, ..
            } => {
                let numbers: Option<Vec<u64>> = text.split_ascii_whitespace().map(digits).collect();
                numbers
                    .filter(|numbers| numbers.len() == count)
                    .filter(|numbers| numbers.iter().all(|n| (least..=most).contains(n)))
                    .map(Value::Numbers)
            }
            Self::Name => is_name(text).then(|| Value::Name(text.to_owned())),
            Self::Dscp => text.parse().ok().map(Value::Dscp),
            Self::Address => text.parse().ok().map(Value::Address),
            Self::Cpus => cpus(text).map(Value::Cpus),
            Self::Policy => QosPolicy::read(text).map(Value::Policy),
        }
    }
}

impl fmt::Display for ValueKind {
    /// Kind and range in words: `88 to 32767 bytes`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with_blank = |unit: &str| match unit {
            "" => String::new(),
            unit => format!(" {unit}"),
        };
        match *self {
            Self::Switch => f.write_str("on or off"),
            Self::Bytes { least, most } => {
                write!(f, "{least} to {most} bytes, written as 1460 or 64KiB")
            }
            Self::Rate { least, most } => {
                let (least, most) = (BitRate(least), BitRate(most));
                write!(f, "a rate such as 20mbit, {least} to {most}")
            }
            Self::Number { least, most, unit } => {
                write!(f, "a number, {least} to {most}{}", with_blank(unit))
            }
            Self::Numbers {
                count,
                least,
                most,
                unit,
            } => write!(
                f,
                "{count} numbers with blanks between them, each {least} to {most}{}",
                with_blank(unit)
            ),
            Self::Name => f.write_str("a name of 1 to 15 letters, digits, _ and -"),
            Self::Dscp => f.write_str("a code point, 0 to 63 or a name such as EF, AF41, LE"),
            Self::Address => f.write_str("an IPv4 or IPv6 address of the host"),
            Self::Cpus => write!(f, "CPUs, 0 to {LAST_CPU}, written as 0-3,8; or none"),
            Self::Policy => f.write_str("off, passthrough, or the name of a policy's file"),
        }
    }
}

impl fmt::Display for Value {
    /// As the kernel and the wire have it: plain numbers, `on` and `off`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(on) => f.write_str(if *on { "on" } else { "off" }),
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
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

fn number(value: u64, least: u64, most: u64) -> Option<Value> {
    (least..=most)
        .contains(&value)
        .then_some(Value::Number(value))
}

/// Digits alone: `parse` would take a sign too.
fn digits(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// As the kernel's lists of CPUs, in ascending order; `none` for the empty one.
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

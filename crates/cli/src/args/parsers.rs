//! Option values that are no unit of core's: choices of words, and requests per second.

use std::str::FromStr;

use anyhow::{anyhow, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use linerate_core::plan::{Closer, Direction, Protocol, Workload};

/// `up`, `down` or `both`.
pub(super) fn direction() -> impl TypedValueParser<Value = Direction> {
    PossibleValuesParser::new(["up", "down", "both"]).map(|word| match word.as_str() {
        "up" => Direction::Up,
        "down" => Direction::Down,
        _ => Direction::Both,
    })
}

/// `up` or `down`.
pub(super) fn one_direction() -> impl TypedValueParser<Value = Direction> {
    PossibleValuesParser::new(["up", "down"]).map(|word| match word.as_str() {
        "up" => Direction::Up,
        _ => Direction::Down,
    })
}

/// `tcp`, `udp` or `mptcp`.
pub(super) fn protocol() -> impl TypedValueParser<Value = Protocol> {
    PossibleValuesParser::new(["tcp", "udp", "mptcp"]).map(|word| match word.as_str() {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        _ => Protocol::Mptcp,
    })
}

/// `client` or `server`.
pub(super) fn closer() -> impl TypedValueParser<Value = Closer> {
    PossibleValuesParser::new(["client", "server"]).map(|word| match word.as_str() {
        "client" => Closer::Client,
        _ => Closer::Server,
    })
}

/// `stream`, `rr` or `crr`.
pub(super) fn workload() -> impl TypedValueParser<Value = Workload> {
    PossibleValuesParser::new(["stream", "rr", "crr"]).map(|word| match word.as_str() {
        "stream" => Workload::Stream,
        "rr" => Workload::Rr,
        _ => Workload::Crr,
    })
}

/// Requests per second: `1000`, `2.5k`, `1M`, each with or without `/s`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RequestRate(pub(crate) f64);

impl FromStr for RequestRate {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let number = text.strip_suffix("/s").unwrap_or(text);
        let (digits, scale) = match number.char_indices().last() {
            Some((at, 'k' | 'K')) => (&number[..at], 1e3),
            Some((at, 'm' | 'M')) => (&number[..at], 1e6),
            _ => (number, 1.0),
        };
        let rate: f64 = digits
            .trim()
            .parse()
            .map_err(|_| anyhow!("requests per second are written as 1000, 2.5k or 1M"))?;
        if !rate.is_finite() {
            bail!("requests per second are a finite number");
        }
        Ok(Self(rate * scale))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_rates_are_written_as_people_write_them() {
        for (text, rate) in [
            ("1000", 1000.0),
            ("2.5k", 2500.0),
            ("1M/s", 1e6),
            ("0.5/s", 0.5),
        ] {
            assert_eq!(
                text.parse::<RequestRate>().unwrap(),
                RequestRate(rate),
                "{text}"
            );
        }
        for text in ["", "k", "/s", "inf", "nan", "10mbit", "1kk"] {
            assert!(text.parse::<RequestRate>().is_err(), "{text}");
        }
    }
}

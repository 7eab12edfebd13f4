//! Option values that are no unit of core's: choices of words, counts, and requests per second.

use std::str::FromStr;

use anyhow::{anyhow, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use linerate_core::foreign::Tool;
use linerate_core::link::PathSpec;
use linerate_core::plan::Workload;
use linerate_core::units::{BitRate, Span};
use linerate_core::value::{Value, ValueKind};

/// One of these words.
fn word<T: Clone + Send + Sync + 'static>(
    words: &'static [&'static str],
    read: fn(&str) -> Option<T>,
) -> impl TypedValueParser<Value = T> {
    let read = move |word: String| read(&word).ok_or_else(|| anyhow!("{word} has no meaning"));
    PossibleValuesParser::new(words).try_map(read)
}

/// `iperf3` or `netperf`.
pub(super) fn tool() -> impl TypedValueParser<Value = Tool> {
    word(&["iperf3", "netperf"], |word| match word {
        "iperf3" => Some(Tool::Iperf3),
        _ => Some(Tool::Netperf),
    })
}

/// `stream`, `rr` or `crr`.
pub(super) fn workload() -> impl TypedValueParser<Value = Workload> {
    word(Workload::WORDS, Workload::from_word)
}

/// A rate above 0 with its unit: a bare number would be taken as bit/s, and gate nothing.
pub(super) fn rate_with_unit(text: &str) -> anyhow::Result<BitRate> {
    let rate: BitRate = text.parse()?;
    if text
        .trim()
        .ends_with(|last: char| last.is_ascii_digit() || last == '.')
    {
        bail!("a rate needs its unit: {text}mbit?");
    }
    if rate.0 == 0 {
        bail!("a rate is above 0, such as 90mbit");
    }
    Ok(rate)
}

/// Time of a run of `check`.
pub(super) fn check_time(text: &str) -> anyhow::Result<Span> {
    let time: Span = text.parse()?;
    if !(0.5..=60.0).contains(&time.as_secs_f64()) {
        bail!("it must be 500ms to 60s");
    }
    Ok(time)
}

/// An emulated path, with something said of it.
pub(super) fn lab(text: &str) -> anyhow::Result<PathSpec> {
    if text.trim().is_empty() {
        bail!("say what the path is like: rate=100mbit,rtt=29ms, or mtu=1500 for a plain link");
    }
    Ok(text.parse()?)
}

/// Requests per second: `1000`, `2.5k`, `1M`, each with or without `/s`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RequestRate(pub(crate) f64);

impl FromStr for RequestRate {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        // The range is said by what it is a rate of.
        let (least, most) = (f64::MIN, f64::MAX);
        match (ValueKind::Frequency { least, most }).read(text) {
            Ok(Value::Frequency(rate)) => Ok(Self(rate)),
            Ok(_) => bail!("requests per second are a number"),
            Err(why) => bail!(why),
        }
    }
}

/// A count of things: `20000`, `20k`, `1.5M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) u64);

impl FromStr for Count {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (digits, scale) = match text.char_indices().last() {
            Some((at, 'k' | 'K')) => (&text[..at], 1_000_u64),
            Some((at, 'm' | 'M')) => (&text[..at], 1_000_000),
            _ => (text, 1),
        };
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        // As many decimals as the suffix has zeros, so that every count is a whole one.
        let decimals = if scale == 1 {
            0
        } else {
            scale.ilog10() as usize
        };
        let dot_is_right = digits.contains('.') != part.is_empty() && part.len() <= decimals;
        if whole.is_empty() || !is_number(whole) || !is_number(part) || !dot_is_right {
            bail!("a count is written as 20000, 20k or 1.5M");
        }
        let part = format!("{part:0<decimals$}");
        let count = whole.parse::<u64>().ok().and_then(|whole| {
            let part = part.parse::<u64>().unwrap_or(0);
            whole.checked_mul(scale)?.checked_add(part)
        });
        count
            .map(Self)
            .ok_or_else(|| anyhow!("the count is too large"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_whole_and_written_as_people_write_them() {
        for (text, count) in [
            ("0", 0),
            ("20000", 20_000),
            ("20k", 20_000),
            ("1.5M", 1_500_000),
            ("0.001k", 1),
        ] {
            assert_eq!(text.parse::<Count>().unwrap(), Count(count), "{text}");
        }
        for text in [
            "",
            "k",
            "-1",
            "+1",
            "1.5",
            "1.",
            "1.k",
            ".5k",
            "1.0001k",
            "1e3",
            "1kk",
            "99999999999999999999",
            "18446744073709551615k",
        ] {
            assert!(text.parse::<Count>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_rate_that_gates_has_its_unit() {
        assert_eq!(rate_with_unit("90mbit").unwrap(), BitRate(90_000_000));
        assert_eq!(rate_with_unit("1.5g").unwrap(), BitRate(1_500_000_000));
        for text in ["90", "1.", "0mbit", "", "fast"] {
            assert!(rate_with_unit(text).is_err(), "{text}");
        }
    }

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

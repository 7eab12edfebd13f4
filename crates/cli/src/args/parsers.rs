//! Parsers of option values: quantities with their range, choices of words, counts.

use std::str::FromStr;

use anyhow::{anyhow, bail};
use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use linerate_core::foreign::Tool;
use linerate_core::link::PathSpec;
use linerate_core::monitor::HttpUrl;
use linerate_core::plan::{Direction, Workload};
use linerate_core::units::{BitRate, ByteCount, EndpointName, Percent, Span, TextError};
use linerate_core::value::{Value, ValueKind};
use linerate_history::{Place, Since};

use super::traffic::MostRate;

/// A choice of words.
fn word<T: Clone + Send + Sync + 'static>(
    words: &'static [&'static str],
    read: fn(&str) -> Option<T>,
) -> impl TypedValueParser<Value = T> {
    let read = move |word: String| read(&word).ok_or_else(|| anyhow!("{word} has no meaning"));
    PossibleValuesParser::new(words).try_map(read)
}

/// `iperf3` or `netperf`.
pub(super) fn tool() -> impl TypedValueParser<Value = Tool> {
    word(&["iperf3", "netperf", "stamp"], |word| match word {
        "iperf3" => Some(Tool::Iperf3),
        "netperf" => Some(Tool::Netperf),
        _ => Some(Tool::Stamp),
    })
}

/// `stream`, `rr` or `crr`.
pub(super) fn workload() -> impl TypedValueParser<Value = Workload> {
    word(Workload::WORDS, Workload::from_word)
}

/// `up`, `down` or `both`.
pub(super) fn direction() -> impl TypedValueParser<Value = Direction> {
    word(Direction::WORDS, Direction::from_word)
}

/// A highest rate, or `max`.
pub(super) fn most_rate(text: &str) -> Result<MostRate, String> {
    if text == "max" {
        return Ok(MostRate(None));
    }
    let rate = text.parse::<BitRate>().ok().filter(|rate| rate.0 > 0);
    rate.map(|rate| MostRate(Some(rate)))
        .ok_or_else(|| "it must be a rate such as 100mbit, or max".to_owned())
}

/// A value of this kind. It is refused in the same words as in the table of a test's options.
fn value<T: 'static>(kind: ValueKind, of: fn(Value) -> Option<T>) -> impl Parser<T> {
    move |text: &str| of(kind.read(text)?).ok_or_else(|| format!("it must be {kind}"))
}

/// What clap takes as a parser.
pub(super) trait Parser<T>:
    Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
{
}
impl<T, F: Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static> Parser<T> for F {}

/// A time with its range in milliseconds.
pub(super) fn time(least_ms: u64, most_ms: u64) -> impl Parser<Span> {
    value(ValueKind::Time { least_ms, most_ms }, |value| match value {
        Value::Time(time) => Some(time),
        _ => None,
    })
}

/// The same, with its unit: by a bare number `tool` means `unit`, and linerate seconds elsewhere.
pub(super) fn time_with_unit(
    least_ms: u64,
    most_ms: u64,
    [tool, unit]: [&'static str; 2],
) -> impl Parser<Span> {
    let read = time(least_ms, most_ms);
    move |text: &str| match text.trim().parse::<f64>() {
        Ok(number) if number > 0.0 => {
            Err(format!("a time needs its unit here: {number}s, or {number}{unit} as in {tool}?"))
        }
        _ => read(text),
    }
}

/// A history: a file, or the URL of a PostgreSQL server.
pub(super) fn place() -> impl TypedValueParser<Value = Place> {
    PathBufValueParser::new().map(|path| path.into_os_string().into())
}

/// `site=north`
pub(super) fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("it must be KEY=VALUE, such as site=north")?;
    let is_word = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    if key.is_empty() || key.len() > MAX_LABEL || !key.chars().all(is_word) {
        return Err("its key must be letters, digits, -, _ and .".to_owned());
    }
    if value.is_empty() || value.len() > MAX_LABEL {
        return Err(format!("its value must have 1 to {MAX_LABEL} bytes"));
    }
    Ok((key.to_owned(), value.to_owned()))
}

/// Longest key or value of a label, in bytes.
const MAX_LABEL: usize = 200;

/// How long ago, in seconds: `30d`, `2w`, or a time.
pub(super) fn age(text: &str) -> Result<u64, String> {
    let days = [("d", 1), ("w", 7)].into_iter().find_map(|(unit, days)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(days * DAY / 1000)
    });
    days.or_else(|| Some(text.parse::<Span>().ok()?.as_secs_f64() as u64))
        .filter(|seconds| *seconds <= 100 * 365 * DAY / 1000)
        .ok_or_else(|| "it must be a time such as 30d, 2w or 12h".to_owned())
}

/// An age, or a date such as 2026-11-23, which a time of day may follow.
pub(super) fn since(text: &str) -> Result<Since, String> {
    let form = "dddd-dd-ddTdd:dd:ddZ";
    let is_date = (10..=form.len()).contains(&text.len())
        && text.chars().zip(form.chars()).all(|(c, form)| match form {
            'd' => c.is_ascii_digit(),
            form => c == form,
        });
    let mut parts = [(5, 1..=12), (8, 1..=31), (11, 0..=23), (14, 0..=59), (17, 0..=59)]
        .into_iter()
        .filter_map(|(at, range)| {
            let part = text.get(at..at + 2)?.parse::<u32>().ok()?;
            Some(range.contains(&part))
        });
    if is_date && parts.all(|is_there| is_there) {
        return Ok(Since::Moment(text.to_owned()));
    }
    age(text).map(Since::Ago).map_err(|why| format!("{why}, or a date such as 2026-11-23"))
}

/// Milliseconds, for [`time`].
pub(super) const MINUTE: u64 = 60_000;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;

fn number_of<T: TryFrom<u64>>(value: Value) -> Option<T> {
    match value {
        Value::Number(number) => T::try_from(number).ok(),
        _ => None,
    }
}

/// A whole number.
pub(super) fn number<T: TryFrom<u64> + 'static>(least: u64, most: u64) -> impl Parser<T> {
    let unit = "";
    value(ValueKind::Number { least, most, unit }, number_of)
}

/// The seed of random choices.
pub(super) fn seed() -> impl Parser<u64> {
    number(0, u64::MAX)
}

/// A port on which something listens; 0 takes a free one.
pub(super) fn port() -> impl Parser<u16> {
    number(0, 65_535)
}

/// A size in bytes.
pub(super) fn bytes(least: u64, most: u64) -> impl Parser<ByteCount> {
    value(ValueKind::Bytes { least, most }, |value| number_of(value).map(ByteCount))
}

/// Bits per second.
pub(super) fn rate(least: u64, most: u64) -> impl Parser<BitRate> {
    value(ValueKind::Rate { least, most }, |value| number_of(value).map(BitRate))
}

/// A whole number each second: `1000`, `2.5k` or `1M`, with or without `/s`.
pub(super) fn per_second(least: u64, most: u64) -> impl Parser<u64> {
    let (least, most) = (least as f64, most as f64);
    value(ValueKind::Frequency { least, most }, |value| match value {
        Value::Frequency(rate) if rate.fract() == 0.0 => Some(rate as u64),
        _ => None,
    })
}

/// A count of things, from `least` to `most`.
pub(super) fn count(least: u64, most: u64) -> impl Parser<Count> {
    move |text: &str| {
        let count: Count = text.parse()?;
        if (least..=most).contains(&count.0) {
            return Ok(count);
        }
        let (least, most) = (least as f64, most as f64);
        let range = ValueKind::Frequency { least, most }.range();
        Err(format!("it must be {}", range.unwrap_or_default()))
    }
}

/// A percentage for which `holds` is true; `range` says so in words.
pub(super) fn percent(holds: fn(f64) -> bool, range: &'static str) -> impl Parser<Percent> {
    move |text: &str| {
        let percent: Percent = text.parse().map_err(|error: TextError| error.why().to_owned())?;
        holds(percent.0).then_some(percent).ok_or_else(|| format!("it must be {range}"))
    }
}

/// The margin of EQUIVALENT.
pub(super) fn margin() -> impl Parser<Percent> {
    percent(|p| p > 0.0 && p < 100.0, "above 0% and below 100%")
}

/// A rate above 0 with its unit: a bare number would mean bit/s, so low that no run fails.
pub(super) fn rate_with_unit(text: &str) -> anyhow::Result<BitRate> {
    let rate: BitRate = text.parse()?;
    if text.trim().ends_with(|last: char| last.is_ascii_digit() || last == '.') {
        bail!("a rate needs its unit: {text}mbit?");
    }
    if rate.0 == 0 {
        bail!("it must be above 0, such as 90mbit");
    }
    Ok(rate)
}

/// The name of an interface.
pub(super) fn device(name: &str) -> Result<String, String> {
    let fits = (1..=MAX_DEVICE_NAME).contains(&name.len())
        && !name.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control());
    fits.then(|| name.to_owned()).ok_or_else(|| {
        format!("an interface's name has 1 to {MAX_DEVICE_NAME} bytes, no blanks and no slashes")
    })
}

/// IFNAMSIZ is 16 with the terminating zero, linux/if.h.
const MAX_DEVICE_NAME: usize = 15;

/// The scheme of a HOST where ssh starts an endpoint.
pub(crate) const SCHEME: &str = "ssh://";

/// An endpoint, or `ssh://[USER@]HOST[:PORT]`: then the name of the endpoint is the whole URL.
pub(super) fn host_or_ssh(text: &str) -> anyhow::Result<EndpointName> {
    let Some(place) = text.strip_prefix(SCHEME) else {
        return Ok(text.parse()?);
    };
    let (user, host) = place.split_once('@').unwrap_or(("user", place));
    let is_named = !user.is_empty() && host.parse::<EndpointName>().is_ok();
    // ssh would read such a name as an option.
    if !is_named || place.starts_with('-') || host.starts_with('-') {
        bail!("it must be ssh://HOST, ssh://USER@HOST or ssh://USER@HOST:PORT");
    }
    Ok(EndpointName { host: text.to_owned(), port: None })
}

/// Whether a word may be the name or address of a host, and is no option.
pub(crate) fn names_host(word: &str) -> bool {
    let is_of_names = |c: char| c.is_ascii_alphanumeric() || "-.:[]%_".contains(c);
    word.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[' || c == ':')
        && word.chars().all(is_of_names)
        && host_or_ssh(word).is_ok()
}

/// The URL of a NATS server, or several with commas.
pub(super) fn bus(text: &str) -> Result<String, String> {
    let is_url = |url: &str| {
        let address = ["nats://", "tls://"].iter().find_map(|scheme| url.strip_prefix(scheme));
        let host = address.map(|address| address.rsplit('@').next().unwrap_or(address));
        host.is_some_and(|host| host.parse::<EndpointName>().is_ok())
    };
    if text.split(',').all(is_url) {
        Ok(text.to_owned())
    } else {
        Err("it must be nats://HOST, tls://HOST or one of them with :PORT".to_owned())
    }
}

/// Usual path of a receiver of OTLP 1, "OTLP/HTTP Request".
const OTLP_PATH: &str = "/v1/metrics";

/// The URL of a receiver of metrics; without a path it gets the usual one.
pub(super) fn receiver(text: &str) -> Result<HttpUrl, String> {
    let mut url: HttpUrl = text.parse()?;
    if url.path == "/" {
        url.path = OTLP_PATH.to_owned();
    }
    Ok(url)
}

/// An emulated path; an empty one is refused.
pub(super) fn lab(text: &str) -> anyhow::Result<PathSpec> {
    if text.trim().is_empty() {
        bail!("say what the path is like: rate=100mbit,rtt=29ms, or mtu=1500 for a plain link");
    }
    Ok(text.parse()?)
}

/// A count of things: `20000`, `20k`, `1.5M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) u64);

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (digits, scale) = match text.char_indices().last() {
            Some((at, 'k' | 'K')) => (&text[..at], 1_000_u64),
            Some((at, 'm' | 'M')) => (&text[..at], 1_000_000),
            _ => (text, 1),
        };
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        // At most as many decimals as the suffix has zeros, so that every count is whole.
        let decimals = if scale == 1 { 0 } else { scale.ilog10() as usize };
        let dot_is_right = digits.contains('.') != part.is_empty() && part.len() <= decimals;
        if whole.is_empty() || !is_number(whole) || !is_number(part) || !dot_is_right {
            return Err("it must be a whole number such as 20000, 20k or 1.5M".to_owned());
        }
        let part = format!("{part:0<decimals$}");
        let count = whole.parse::<u64>().ok().and_then(|whole| {
            let part = part.parse::<u64>().unwrap_or(0);
            whole.checked_mul(scale)?.checked_add(part)
        });
        count.map(Self).ok_or_else(|| "it is too large".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_whole_and_written_as_people_write_them() {
        for (text, count) in
            [("0", 0), ("20000", 20_000), ("20k", 20_000), ("1.5M", 1_500_000), ("0.001k", 1)]
        {
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
    fn hosts_and_servers_that_other_programs_connect_to_are_checked_here() {
        for host in ["pit:5201", "ssh://pit", "ssh://me@pit:22", "ssh://me@[::1]:22"] {
            assert!(host_or_ssh(host).is_ok(), "{host}");
        }
        for host in ["ssh://", "ssh://-oX=y", "ssh://me@-x", "ssh://@pit", "ssh://pit:x"] {
            assert!(host_or_ssh(host).is_err(), "{host}");
        }
        assert!(bus("nats://a:4222,tls://u:p@b").is_ok());
        for url in ["", "foo", "nats://", "http://a", "nats://a,b"] {
            assert!(bus(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_time_that_other_tools_count_otherwise_has_its_unit() {
        let read = time_with_unit(10, 10 * MINUTE, ["iperf3", "ms"]);
        assert_eq!(read("500ms"), read("0.5s"));
        for (text, words) in [
            ("500", "a time needs its unit here: 500s, or 500ms as in iperf3?"),
            ("0", "it must be 10ms to 10min"),
            ("11min", "it must be 10ms to 10min"),
        ] {
            assert_eq!(read(text).unwrap_err(), words);
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
    fn rates_per_second_are_written_as_people_write_them() {
        let read = per_second(1, 10_000_000);
        for (text, rate) in [("1000", 1000), ("2.5k", 2500), ("1M/s", 1_000_000)] {
            assert_eq!(read(text), Ok(rate), "{text}");
        }
        for text in ["", "k", "/s", "inf", "nan", "10mbit", "1kk", "0", "0.5", "11M"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}

//! Rates, sizes, times and percentages; the message sizes of a sweep; points in time and durations
//! for state machines.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TextError;

/// Bits per second.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct BitRate(pub u64);

/// Bytes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct ByteCount(pub u64);

/// A span of time, to the nanosecond; in JSON a number of seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

/// Hundredths; `Percent(5.0)` is 5 %.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Percent(pub f64);

impl BitRate {
    /// Bits per second as a float, for arithmetic.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }

    /// Whole bytes per second, rounded down.
    pub fn bytes_per_second(self) -> u64 {
        self.0 / 8
    }

    /// As options and files take it, exact, in the largest unit that keeps a whole number of
    /// tenths: `43.7mbit`.
    pub fn typed(self) -> String {
        let mut units = [(1_000_000_000, "gbit"), (1_000_000, "mbit"), (1_000, "kbit")].into_iter();
        match units.find(|(scale, _)| self.0 >= *scale && self.0.is_multiple_of(scale / 10)) {
            Some((scale, unit)) => format!("{}{unit}", self.0 as f64 / scale as f64),
            None => format!("{}bit", self.0),
        }
    }
}

impl Span {
    /// Seconds as a float.
    pub fn as_secs_f64(self) -> f64 {
        self.0.as_secs_f64()
    }

    /// `seconds` must be finite, not negative and below 10⁹; else `None`.
    pub fn from_secs_f64(seconds: f64) -> Option<Self> {
        (seconds.is_finite() && (0.0..1e9).contains(&seconds))
            .then(|| Self(Duration::from_secs_f64(seconds)))
    }
}

impl Serialize for Span {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_secs_f64())
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Self::from_secs_f64(seconds)
            .ok_or_else(|| serde::de::Error::custom("a time is 0 to 10⁹ seconds"))
    }
}

impl JsonSchema for Span {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Seconds".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "number", "minimum": 0, "maximum": 1e9})
    }
}

/// Splits `1.5Gbit` into 1.5 and `Gbit`; the number must be finite and not negative.
fn number_and_unit<'a>(text: &'a str, wanted: &'static str) -> Result<(f64, &'a str), TextError> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'));
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let number: f64 = digits.replace('_', "").parse().map_err(|_| {
        let why = if text.starts_with('-') {
            "it must not be negative".to_owned()
        } else {
            format!("it must be {wanted}")
        };
        TextError::new(text, why)
    })?;
    Ok((number, unit.trim()))
}

/// Rounds to a whole number, and refuses one that a float cannot count exactly.
fn whole(text: &str, value: f64) -> Result<u64, TextError> {
    // 2⁵³: beyond it a float no longer counts single units, and no host has such a quantity.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value > EXACT {
        return Err(TextError::new(text, "it is too large"));
    }
    Ok(value.round() as u64)
}

impl FromStr for BitRate {
    type Err = TextError;

    /// Decimal prefixes only, as link rates are: `k` = 10³, `m` = 10⁶, `g` = 10⁹, `t` = 10¹², of
    /// either case, followed by nothing, `bit`, `bit/s` or `bps`. A trailing `B/s` is bytes per
    /// second.
    fn from_str(text: &str) -> Result<Self, TextError> {
        const WANTED: &str = "a rate such as 100mbit";
        let (number, unit) = number_and_unit(text, WANTED)?;
        let (prefix, bits) = if let Some(prefix) = unit.strip_suffix("B/s") {
            (prefix.to_ascii_lowercase(), 8.0)
        } else {
            let lower = unit.to_ascii_lowercase();
            let suffixes = ["bit/s", "bits/s", "bps", "bit", "bits"];
            let prefix = suffixes.iter().find_map(|end| lower.strip_suffix(end));
            (prefix.unwrap_or(&lower).to_owned(), 1.0)
        };
        let exponent = match prefix.as_str() {
            "" => 0,
            "k" => 3,
            "m" => 6,
            "g" => 9,
            "t" => 12,
            _ => {
                let why = "its unit must be bit, kbit, mbit or gbit";
                return Err(TextError::new(text, why));
            }
        };
        // The point is moved in the text: a product would be rounded twice, and what `typed` wrote
        // would come back one bit larger.
        let shifted: Result<f64, _> = format!("{number}e{exponent}").parse();
        whole(text, shifted.unwrap_or(f64::INFINITY) * bits).map(Self)
    }
}

impl FromStr for ByteCount {
    type Err = TextError;

    /// `KiB`, `MiB`, `GiB`, `TiB` and iperf3's bare `K`, `M`, `G`, `T` are powers of 1024; `KB`,
    /// `MB`, `GB`, `TB` are powers of 1000.
    fn from_str(text: &str) -> Result<Self, TextError> {
        const WANTED: &str = "a size such as 64KiB";
        let (number, unit) = number_and_unit(text, WANTED)?;
        let scale = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "k" | "kib" => 1024.0,
            "m" | "mib" => 1024.0 * 1024.0,
            "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
            "t" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
            "kb" => 1e3,
            "mb" => 1e6,
            "gb" => 1e9,
            "tb" => 1e12,
            _ => {
                let why = "its unit must be B, KiB, MiB, GiB, TiB, KB, MB, GB or TB";
                return Err(TextError::new(text, why));
            }
        };
        let bytes = number * scale;
        // 1.5KiB is a whole number of bytes, 0.1KiB is rounded to one, and 1.5 is a slip.
        if scale == 1.0 && bytes.fract() != 0.0 {
            return Err(TextError::new(text, "it must be whole bytes"));
        }
        whole(text, bytes).map(Self)
    }
}

impl FromStr for Span {
    type Err = TextError;

    /// A bare number is seconds, as in iperf3's `-t`.
    fn from_str(text: &str) -> Result<Self, TextError> {
        const WANTED: &str = "a time such as 29ms";
        let (number, unit) = number_and_unit(text, WANTED)?;
        let scale = match unit {
            "" | "s" | "sec" => 1.0,
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            _ => {
                let why = "its unit must be ns, us, ms, s, min or h";
                return Err(TextError::new(text, why));
            }
        };
        Self::from_secs_f64(number * scale).ok_or_else(|| TextError::new(text, "it is too large"))
    }
}

impl FromStr for Percent {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        const WANTED: &str = "a percentage such as 5%";
        let (number, unit) = number_and_unit(text, WANTED)?;
        match unit {
            "" | "%" => Ok(Self(number)),
            _ => Err(TextError::new(text, "its unit must be %")),
        }
    }
}

/// Three significant digits in the largest of `units` that keeps the number at or above 1, else in
/// `smallest`.
fn scaled(
    f: &mut fmt::Formatter<'_>,
    value: f64,
    units: &[(f64, &str)],
    smallest: (f64, &str),
) -> fmt::Result {
    let fitting = units.iter().find(|(scale, _)| value >= *scale);
    let (scale, unit) = fitting.unwrap_or(&smallest);
    let value = value / scale;
    let decimals = match value {
        v if v >= 100.0 || v.fract() == 0.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    write!(f, "{value:.decimals$} {unit}")
}

impl ByteCount {
    /// As options and files take it, exact, in the largest unit of which it is a multiple: `64KiB`,
    /// `1500`.
    pub fn typed(self) -> String {
        let mut units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")].into_iter();
        match units.find(|(scale, _)| self.0 != 0 && self.0.is_multiple_of(*scale)) {
            Some((scale, unit)) => format!("{}{unit}", self.0 / scale),
            None => self.0.to_string(),
        }
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefixes = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
        scaled(f, self.as_f64(), &prefixes, (1.0, "bit/s"))
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [kib, mib, gib] = [1, 2, 3].map(|power| 1024_f64.powi(power));
        let prefixes = [(gib, "GiB"), (mib, "MiB"), (kib, "KiB")];
        scaled(f, self.0 as f64, &prefixes, (1.0, "B"))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.as_secs_f64();
        let is_whole = |scale: f64| seconds % scale == 0.0;
        match seconds {
            0.0 => f.write_str("0 s"),
            _ if is_whole(3600.0) => write!(f, "{} h", seconds / 3600.0),
            _ if is_whole(60.0) && seconds > 60.0 => write!(f, "{} min", seconds / 60.0),
            _ => {
                let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")];
                scaled(f, seconds, &units, (1e-9, "ns"))
            }
        }
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0)
    }
}

/// Message sizes of a sweep, in the order given: `1460`, `32,64,128`, `100..9100/500` (both ends
/// included where the step meets them), or ranges and single sizes joined by commas. At most 1,000.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes(Vec<u64>);

/// Largest number of sizes: more is a typing error, and would run for hours.
const MAX_SIZES: usize = 1000;

impl Sizes {
    /// One size.
    pub fn one(bytes: u64) -> Self {
        Self(vec![bytes])
    }

    /// The sizes in bytes; never empty.
    pub fn as_slice(&self) -> &[u64] {
        &self.0
    }
}

impl FromStr for Sizes {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let mut sizes = Vec::new();
        for part in text.split(',') {
            match part.split_once("..") {
                None => sizes.push(part.parse::<ByteCount>()?.0),
                Some((first, rest)) => {
                    let (last, step) = rest.split_once('/').ok_or_else(|| {
                        TextError::new(text, "a range is FIRST..LAST/STEP, such as 100..9100/500")
                    })?;
                    let [first, last, step] = [first, last, step].map(str::parse::<ByteCount>);
                    let (first, last, step) = (first?.0, last?.0, step?.0);
                    if step == 0 || first > last {
                        let why = "a range rises by a step of at least 1";
                        return Err(TextError::new(text, why));
                    }
                    let steps = (0..=(last - first) / step).take(MAX_SIZES + 1);
                    sizes.extend(steps.map(|i| first + i * step));
                }
            }
            if sizes.len() > MAX_SIZES {
                return Err(TextError::new(text, "it has more than 1000 sizes"));
            }
        }
        Ok(Self(sizes))
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(u64::to_string).collect();
        f.write_str(&texts.join(","))
    }
}

/// Time in nanoseconds: since an epoch of the caller's choice, or a span. Sums and differences
/// saturate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The epoch, or no time at all.
    pub const ZERO: Self = Self(0);

    /// `micros` microseconds; saturates.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// `millis` milliseconds; saturates.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }
}

impl Add for Nanos {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_decimal_and_bits_by_default() {
        for (text, bits) in [
            ("100mbit", 100_000_000),
            ("1.5Gbit/s", 1_500_000_000),
            ("10kbps", 10_000),
            ("100M", 100_000_000),
            ("56000", 56_000),
            ("1MB/s", 8_000_000),
        ] {
            assert_eq!(text.parse(), Ok(BitRate(bits)), "{text}");
        }
    }

    #[test]
    fn a_written_rate_reads_back_up_to_the_largest() {
        for bits in [4_413_798_235_544_900, 9_007_199_254_740_900] {
            let text = BitRate(bits).typed();
            assert_eq!(text.parse(), Ok(BitRate(bits)), "{text}");
        }
    }

    #[test]
    fn sizes_know_binary_and_decimal_prefixes() {
        for (text, bytes) in [
            ("64KiB", 65_536),
            ("64K", 65_536),
            ("64kB", 64_000),
            ("1GB", 1_000_000_000),
            ("1460", 1460),
        ] {
            assert_eq!(text.parse(), Ok(ByteCount(bytes)), "{text}");
        }
    }

    #[test]
    fn times_are_seconds_by_default() {
        for (text, nanos) in [("29ms", 29_000_000), ("1.5", 1_500_000_000), ("100us", 100_000)] {
            assert_eq!(text.parse(), Ok(Span(Duration::from_nanos(nanos))), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_quantity_is_refused_with_its_reason() {
        assert!("".parse::<BitRate>().is_err());
        assert!("-5mbit".parse::<BitRate>().is_err());
        assert!("1e400".parse::<ByteCount>().is_err());
        assert!("99999999999999TB".parse::<ByteCount>().is_err());
        assert!("inf".parse::<Span>().is_err());
        assert_eq!(
            "64kibble".parse::<ByteCount>().unwrap_err().to_string(),
            "`64kibble`: its unit must be B, KiB, MiB, GiB, TiB, KB, MB, GB or TB"
        );
    }

    #[test]
    fn figures_print_with_three_digits() {
        assert_eq!(BitRate(94_150_000).to_string(), "94.2 Mbit/s");
        assert_eq!(ByteCount(65_536).to_string(), "64 KiB");
        assert_eq!(Span(Duration::from_micros(1234)).to_string(), "1.23 ms");
    }

    #[test]
    fn the_xpperf_range_has_nineteen_sizes() {
        let sizes: Sizes = "100..9100/500".parse().unwrap();
        assert_eq!(sizes.as_slice().len(), 19);
        assert_eq!(sizes.as_slice()[18], 9100);
    }

    #[test]
    fn lists_and_ranges_join() {
        let sizes: Sizes = "32,64,1KiB..3KiB/1KiB".parse().unwrap();
        assert_eq!(sizes.as_slice(), [32, 64, 1024, 2048, 3072]);
    }

    #[test]
    fn absurd_ranges_are_refused() {
        for text in ["", "1..2", "9..1/1", "1..5/0", "1..1TB/1", "a,b", "1,,2"] {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
    }
}

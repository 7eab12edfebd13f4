//! Rates, times, sizes and percentages of a link as text. Writing is exact: the text parses to the
//! same quantity.
//!
//! [`units`](linerate_units) accepts more spans than are allowed here: without a unit (which netem
//! and iperf3 interpret differently), minutes and hours.

use std::fmt;

use linerate_units::{BitRate, ByteCount, Nanos};

/// Bits per second; decimal prefixes, bits unless the unit is `B/s`.
pub(super) fn parse_rate(text: &str) -> Option<u64> {
    text.parse().ok().map(|BitRate(bits)| bits)
}

/// Bytes; `K` and `KiB` are 1024, `KB` is 1000.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    text.parse().ok().map(|ByteCount(bytes)| bytes)
}

/// A span of time; the unit is required, because tc and iperf3 interpret bare numbers differently.
pub(super) fn parse_time(text: &str) -> Option<Nanos> {
    let (number, unit) = number_and_unit(text)?;
    let scale = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let nanos = number * scale;
    (nanos <= 9_007_199_254_740_992.0).then(|| Nanos(nanos.round() as u64))
}

/// Percent; the sign is required, because 0.01 may be meant as a share.
pub(super) fn parse_percent(text: &str) -> Option<f64> {
    let (number, unit) = number_and_unit(text)?;
    (unit == "%").then_some(number)
}

fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.'));
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    Some((number.parse().ok()?, unit.trim_start()))
}

/// A span of time as text, in the largest unit of which it is a multiple.
pub(super) struct Time(pub(super) Nanos);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
        let Nanos(nanos) = self.0;
        let largest = units.iter().find(|(scale, _)| nanos.is_multiple_of(*scale));
        let (scale, unit) = largest.unwrap_or(&(1, "ns"));
        write!(f, "{}{unit}", nanos / scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_are_read_as_people_write_them() {
        assert_eq!(parse_rate("100mbit"), Some(100_000_000));
        assert_eq!(parse_rate("1.5Gbit"), Some(1_500_000_000));
        assert_eq!(parse_rate("10kbit/s"), Some(10_000));
        assert_eq!(parse_rate("1MB/s"), Some(8_000_000));
        assert_eq!(parse_size("64KiB"), Some(65_536));
        assert_eq!(parse_size("1GB"), Some(1_000_000_000));
        assert_eq!(parse_time("29ms"), Some(Nanos::from_millis(29)));
        assert_eq!(parse_time("1.5s"), Some(Nanos::from_millis(1500)));
        assert_eq!(parse_percent("0.1%"), Some(0.1));
    }

    #[test]
    fn what_is_no_quantity_or_could_mean_two_is_refused() {
        for text in ["", "-1mbit", "mbit", "1e400", "1..2mbit", "5 apples"] {
            assert_eq!(parse_rate(text), None, "{text}");
            assert_eq!(parse_size(text), None, "{text}");
        }
        assert_eq!(parse_time("29"), None);
        assert_eq!(parse_percent("0.01"), None);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            digits in 0u64..9_007_199_254_740_992, zeros in 0u32..15
        ) {
            // Round values, too, for they are the ones that are written with a prefix.
            let value = digits - digits % 10u64.pow(zeros);
            prop_assert_eq!(parse_rate(&BitRate(value).typed()), Some(value));
            prop_assert_eq!(parse_size(&ByteCount(value).typed()), Some(value));
            prop_assert_eq!(parse_time(&Time(Nanos(value)).to_string()), Some(Nanos(value)));
        }
    }
}

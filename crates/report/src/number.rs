//! Figures with their unit, of four significant digits at most.
//!
//! Number and unit are joined by a no-break space so that they stay on one line;
//! `page::render` writes it as an ordinary one.

pub(crate) use linerate_core::units::{digits, separated as count};

/// Keeps a number and its unit together.
pub const NBSP: char = '\u{a0}';

/// Shown in place of a figure that is not known.
pub(crate) const UNKNOWN: &str = "-";

/// `1 pair`, `12,437 pairs`.
pub fn plural(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", count(number))
}

/// Joins the parts that are known.
pub(crate) fn joined<P: Into<Option<String>>>(
    parts: impl IntoIterator<Item = P>,
    separator: &str,
) -> String {
    let parts = parts.into_iter().filter_map(Into::into);
    parts.collect::<Vec<_>>().join(separator)
}

/// Joins the parts that are known; `None` if none is.
pub(crate) fn some_joined<P: Into<Option<String>>>(
    parts: impl IntoIterator<Item = P>,
    separator: &str,
) -> Option<String> {
    Some(joined(parts, separator)).filter(|words| !words.is_empty())
}

/// A value that may be missing, after its name: `MSS 1448 B`.
pub(crate) fn named<T>(
    name: &str,
    value: Option<T>,
    write: impl FnOnce(T) -> String,
) -> Option<String> {
    Some(format!("{name} {}", write(value?)))
}

/// Writes a value that is known; nothing otherwise.
pub(crate) fn if_known<T>(value: Option<T>, write: impl FnOnce(T) -> String) -> String {
    value.map(write).unwrap_or_default()
}

/// A number of events before their name, `3 timeouts`; `None` if there was none.
pub(crate) fn counted(number: impl Into<Option<u64>>, what: &str) -> Option<String> {
    let number = number.into().filter(|number| *number > 0)?;
    Some(format!("{} {what}", count(number)))
}

/// The least and the greatest of the values; infinite for none.
pub(crate) fn ends(values: impl IntoIterator<Item = f64>) -> [f64; 2] {
    let none = [f64::INFINITY, f64::NEG_INFINITY];
    let values = values.into_iter();
    values.fold(none, |[low, high], value| [low.min(value), high.max(value)])
}

/// A value with its sign; zero has none.
pub(crate) fn signed(value: f64, write: impl FnOnce(f64) -> String) -> String {
    let text = write(value.abs());
    match value {
        0.0 => text,
        value if value < 0.0 => format!("-{text}"),
        _ => format!("+{text}"),
    }
}

/// A change in percent, with its sign.
pub(crate) fn signed_percent(value: f64) -> String {
    let sign = if value > 0.0 { "+" } else { "" };
    format!("{sign}{}", change(value))
}

/// A change in percent: three digits, and at most two decimals.
pub(crate) fn change(value: f64) -> String {
    match value.abs() {
        small if small < 9.995 => format!("{value:.2}{NBSP}%"),
        _ => percent(value),
    }
}

/// The values of each key, in the order of the keys' first occurrence.
pub(crate) fn grouped<K: PartialEq, V>(
    pairs: impl IntoIterator<Item = (K, V)>,
) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in pairs {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

/// How often each name occurs, in the order of their first occurrence.
pub(crate) fn frequencies<'a>(names: impl Iterator<Item = &'a str>) -> Vec<(&'a str, usize)> {
    let groups = grouped(names.map(|name| (name, ()))).into_iter();
    groups.map(|(name, all)| (name, all.len())).collect()
}

/// Date and minute of a start: `2026-11-23 09:00`.
pub(crate) fn begun(started_at: &str) -> String {
    started_at.replacen('T', " ", 1).chars().take(16).collect()
}

/// How sure a verdict is, after a comma. Neither 0 nor 100 % is ever certain.
pub(crate) fn sure(confidence: Option<f64>) -> String {
    confidence.map_or_else(String::new, |share| {
        format!(", {:.0}{NBSP}% sure", (100.0 * share).clamp(1.0, 99.0))
    })
}

/// A range such as `3.10 – 20.0 Mbit/s`: a unit that both ends share is written once.
pub(crate) fn span(low: &str, high: &str, to: &str) -> String {
    match (low.split_once(NBSP), high.split_once(NBSP)) {
        (Some((number, unit)), Some((_, same))) if same == unit => format!("{number} {to} {high}"),
        _ => format!("{low} {to} {high}"),
    }
}

/// A progress bar such as `[#####---------------]`, for a share from 0 to 1.
pub(crate) fn bar(share: f64) -> String {
    const WIDTH: usize = 20;
    let full = (share.clamp(0.0, 1.0) * WIDTH as f64) as usize;
    format!("[{}{}]", "#".repeat(full), "-".repeat(WIDTH - full))
}

/// A rate in bits per second.
pub fn rate(bps: f64) -> String {
    scaled(bps, &RATES)
}

/// A unit's scale and name, the largest first.
pub(crate) type Scale = (f64, &'static str);

pub(crate) const RATES: [Scale; 5] =
    [(1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")];
pub(crate) const MICROS: [Scale; 4] = [(1e6, "s"), (1e3, "ms"), (1.0, "µs"), (1e-3, "ns")];
pub(crate) const BYTES: [Scale; 5] = [
    (1_099_511_627_776.0, "TiB"),
    (1_073_741_824.0, "GiB"),
    (1_048_576.0, "MiB"),
    (1024.0, "KiB"),
    (1.0, "B"),
];

/// A time, given in µs.
pub(crate) fn micros(us: f64) -> String {
    if us == 0.0 {
        return with_unit(us, "µs");
    }
    scaled(us, &MICROS)
}

/// A time, given in seconds.
pub(crate) fn seconds(s: f64) -> String {
    if s == 0.0 {
        return with_unit(s, "s");
    }
    micros(s * 1e6)
}

/// An amount of bytes; exact below 1024.
pub(crate) fn bytes(bytes: u64) -> String {
    if bytes < 1024 {
        return exact_bytes(bytes);
    }
    scaled(bytes as f64, &BYTES[..4])
}

/// A size that somebody chose, exact to the byte: `128 KiB`, `1448 B`.
pub(crate) fn chosen_bytes(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 20) {
        format!("{}{NBSP}MiB", bytes >> 20)
    } else if bytes.is_multiple_of(1 << 10) {
        format!("{}{NBSP}KiB", bytes >> 10)
    } else {
        exact_bytes(bytes)
    }
}

/// A size that identifies something, such as an MSS, exact to the byte.
pub(crate) fn exact_bytes(bytes: impl Into<u64>) -> String {
    format!("{}{NBSP}B", bytes.into())
}

/// A percentage. Where it is tiny, only that is said.
pub fn percent(percent: f64) -> String {
    if percent != 0.0 && percent.abs() < 0.001 {
        return format!("<0.001{NBSP}%");
    }
    with_unit(percent, "%")
}

/// A ratio with two decimals, if so many mean anything.
pub(crate) fn ratio(ratio: f64) -> String {
    if ratio.abs() < 9.995 { format!("{ratio:.2}") } else { digits(ratio) }
}

/// A figure with a unit that has no multiples.
pub(crate) fn with_unit(value: f64, unit: &str) -> String {
    format!("{}{NBSP}{unit}", digits(value))
}

/// How to write a figure of a record, by the unit that its key names.
pub(crate) fn writer(path: &str) -> fn(f64) -> String {
    let last = path.rsplit('.').next().unwrap_or(path);
    let is_count = last == "count";
    if last.ends_with("_bps") {
        rate
    } else if last.ends_with("_us_per_kib") {
        |value| with_unit(value, "µs/KiB")
    } else if last.ends_with("_per_s") {
        |value| with_unit(value, "/s")
    } else if last.ends_with("_us") || path.contains("_us.") && !is_count {
        micros
    } else if last.ends_with("seconds") || path.contains("cpu_seconds.") {
        seconds
    } else if last.ends_with("_percent") {
        percent
    } else if last.ends_with("bytes") {
        |value| bytes(value.max(0.0) as u64)
    } else {
        digits
    }
}

/// Writes a value in the largest unit in which it is at least 1 after rounding, or else in the
/// smallest.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    // Rounded to the digits that are printed; otherwise 999.7 Mbit/s would become 1,000 Mbit/s.
    let rounded = format!("{:.2e}", value.abs()).parse().unwrap_or(0.0);
    let &(scale, unit) =
        units.iter().find(|(scale, _)| rounded >= *scale).unwrap_or(&units[units.len() - 1]);
    with_unit(value / scale, unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Digits of a text from the first to the last that is not 0.
    fn significant(text: &str) -> usize {
        let mantissa = text.split('e').next().unwrap_or(text);
        let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
        let is_whole = !mantissa.contains('.');
        let digits = digits.trim_start_matches('0');
        if is_whole { digits.trim_end_matches('0').len() } else { digits.len() }
    }

    #[test]
    fn no_figure_has_more_than_four_significant_digits() {
        let writers: [fn(f64) -> String; 7] =
            [digits, rate, micros, seconds, percent, change, ratio];
        for exponent in -9..14 {
            for mantissa in [1.0, 1.867_71, 9.65, 9.9949, 9.9951] {
                let value = mantissa * 10_f64.powi(exponent);
                for (number, write) in writers.iter().enumerate() {
                    let text = write(value);
                    assert!(significant(&text) <= 4, "writer {number}: {text} of {value}");
                }
            }
        }
        for (text, of) in [
            (micros(0.009_65), "9.65 ns"),
            (percent(3.36e-5), "<0.001 %"),
            (ratio(1867.71), "1868"),
            (ratio(1.9), "1.90"),
        ] {
            assert_eq!(text.replace(NBSP, " "), of);
        }
    }

    #[test]
    fn rounding_moves_on_to_the_next_unit() {
        for (bps, text) in [
            (0.0, "0 bit/s"),
            (999.4, "999 bit/s"),
            (999.6, "1.00 kbit/s"),
            (94_149_000.0, "94.1 Mbit/s"),
            (999_700_000.0, "1.00 Gbit/s"),
            (41.2e9, "41.2 Gbit/s"),
        ] {
            assert_eq!(rate(bps).replace(NBSP, " "), text);
        }
    }

    #[test]
    fn a_unit_that_both_ends_have_is_written_once() {
        let plain = |low: f64, high: f64| span(&rate(low), &rate(high), "–").replace(NBSP, " ");
        assert_eq!(plain(3.1e6, 20e6), "3.10 – 20.0 Mbit/s");
        assert_eq!(plain(3.1e5, 20e6), "310 kbit/s – 20.0 Mbit/s");
        assert_eq!(span("3.00", "9.00", "to"), "3.00 to 9.00");
    }

    #[test]
    fn times_and_amounts_keep_their_unit_beside_them() {
        assert_eq!(micros(0.25), "250\u{a0}ns");
        assert_eq!(micros(29_000.0), "29.0\u{a0}ms");
        assert_eq!(seconds(10.0), "10.0\u{a0}s");
        assert_eq!(bytes(536), "536\u{a0}B");
        assert_eq!(bytes(51_200), "50.0\u{a0}KiB");
        assert_eq!(exact_bytes(9_148_u32), "9148\u{a0}B");
        assert_eq!(seconds(0.0), "0\u{a0}s");
        assert_eq!(chosen_bytes(131_072), "128\u{a0}KiB");
        assert_eq!(chosen_bytes(1448), "1448\u{a0}B");
        assert_eq!(chosen_bytes(4 << 20), "4\u{a0}MiB");
    }

    #[test]
    fn figures_are_written_in_the_unit_of_their_key() {
        for (path, value, text) in [
            ("throughput_bps", 19.1e6, "19.1 Mbit/s"),
            ("directions.up.throughput_bps", 1e3, "1.00 kbit/s"),
            ("latency_us.p99", 250.0, "250 µs"),
            ("latency_us.count", 250.0, "250"),
            ("tcp.rtt_mean_us", 4100.0, "4.10 ms"),
            ("sender.cpu_seconds", 0.25, "250 ms"),
            ("sender.cpu_seconds.user", 0.25, "250 ms"),
            ("receiver.host_cpu_percent", 12.0, "12.0 %"),
            ("sender.service_demand_us_per_kib", 1.5, "1.50 µs/KiB"),
            ("transactions_per_s", 1e4, "10,000 /s"),
            ("bytes", 2048.0, "2.00 KiB"),
            ("tcp.retransmitted_segments", 12.0, "12.0"),
        ] {
            let written = writer(path)(value).replace('\u{a0}', " ");
            assert_eq!(written, text, "{path}");
        }
    }

    #[test]
    fn changes_carry_their_sign() {
        let texts =
            [10.0, 0.0, -3.25, 0.0412].map(|value| signed_percent(value).replace('\u{a0}', " "));
        assert_eq!(texts, ["+10.0 %", "0.00 %", "-3.25 %", "+0.04 %"]);
    }
}

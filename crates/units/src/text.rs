//! Text from and for people: cleaning, quoting, lists, suggestions.

use std::borrow::Borrow;

/// The text with control characters, and those that hide or turn round what follows, written as
/// `\u{1b}`.
///
/// A host name, an error message or a stored record comes from someone else: it must not move the
/// cursor, set the title or show a command other than the one that would be copied.
pub fn printable(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            cleaned.extend(c.escape_unicode());
        } else {
            cleaned.push(c);
        }
    }
    cleaned
}

/// Control characters (C0, C1), zero-width and bidirectional formatting characters (Unicode general
/// category Cf) and line separators.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// The beginning of a text that may be of any length and hold anything: a message is one line of a
/// terminal.
pub fn shortened(text: &str) -> String {
    let visible = |c: char| if is_hidden(c) { '?' } else { c };
    text.chars().take(64).map(visible).collect()
}

/// A value in a message as a shell takes it: in quotes where it is empty or has blanks.
pub fn quoted(text: &str) -> String {
    let text = shortened(text);
    if text.is_empty() || text.contains(char::is_whitespace) { format!("\"{text}\"") } else { text }
}

/// A figure as pages write it, with three significant digits, of large ones four: `0.0234`, `9.41`,
/// `942`, `1868`, `12,440`; `-` for what is not finite.
pub fn digits(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    if !(1e-4..1e9).contains(&value.abs()) {
        return format!("{value:.2e}");
    }
    // The exponent after rounding: 9.996 has the decimals of 10.0.
    let three = format!("{value:.2e}");
    let exponent = three.rsplit_once('e').and_then(|(_, exponent)| exponent.parse().ok());
    let exponent: isize = exponent.unwrap_or(0);
    let decimals = 2_usize.saturating_add_signed(-exponent);
    if decimals > 0 {
        return format!("{value:.decimals$}");
    }
    let step = 10_f64.powi((exponent - 3).max(0) as i32);
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{}", separated(((value.abs() / step).round() * step) as u64))
}

/// A whole number, with separators from five digits: `9148`, `51,204`.
pub fn separated(value: u64) -> String {
    let plain = value.to_string();
    if plain.len() < 5 {
        return plain;
    }
    let mut grouped = String::with_capacity(plain.len() + plain.len() / 3);
    for (position, digit) in plain.chars().enumerate() {
        if position > 0 && (plain.len() - position).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `a`, `a and b`, `a, b and c`, with that word before the last.
pub fn listed<N: Borrow<str>>(names: &[N], before_last: &str) -> String {
    match names {
        [] => String::new(),
        [name] => name.borrow().to_owned(),
        [names @ .., last] => format!("{} {before_last} {}", names.join(", "), last.borrow()),
    }
}

/// The parts of a list, at the commas that are not within parentheses: `a=1,loss=ge(1%,2%)` has
/// two.
pub fn parts(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    list.split(move |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

/// "did you mean", with the words that look like `text`; none if none does. Of words with dots,
/// those that end with `text` are meant, and their last part is enough to look alike.
pub fn suggestion<W: AsRef<str>>(text: &str, words: impl IntoIterator<Item = W>) -> Option<String> {
    let text = shortened(text).to_lowercase();
    let ending = format!(".{text}");
    let sorted = |word: &str| {
        let mut letters: Vec<char> = word.chars().collect();
        letters.sort_unstable();
        letters
    };
    let distance = |word: &str| {
        let short = shortened(word).to_lowercase();
        let last = short.rsplit('.').next().filter(|_| !text.contains('.'));
        let near = |part: &str| {
            let distance = edit_distance(&text, part);
            // Letters in the wrong order are likelier than wrong letters.
            (distance, distance == 2 && sorted(part) != sorted(&text))
        };
        near(&short).min(last.map_or((usize::MAX, false), near))
    };
    let words: Vec<String> = words.into_iter().map(|word| word.as_ref().to_owned()).collect();
    let mut ends: Vec<&str> = words.iter().map(String::as_str).collect();
    ends.retain(|word| word.to_lowercase().ends_with(&ending));
    if ends.is_empty() {
        let (distance, nearest) = words.iter().map(|word| (distance(word), word)).min()?;
        // Two wrong letters of three make another word; in the wrong order they do not.
        let most = match text.len() {
            ..4 if distance.1 => 1,
            ..8 => 2,
            _ => 3,
        };
        ends.extend((distance.0 <= most).then_some(nearest.as_str()));
    }
    (!ends.is_empty()).then(|| format!("did you mean `{}`?", ends.join("` or `")))
}

/// Characters to insert, delete or replace (Levenshtein).
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_hides_or_turns_round_a_line() {
        let hidden = "\u{1b}[8m \u{9b}31m \u{202e} \u{2066} \u{200b} \u{feff} \u{7f} \u{2028}";
        assert!(!printable(hidden).contains(is_hidden));
        assert!(!shortened(hidden).contains(is_hidden));
        assert_eq!(printable("a\u{202e}µ 東"), "a\\u{202e}µ 東");
    }

    #[test]
    fn figures_have_three_significant_digits_and_large_ones_four() {
        for (value, text) in [
            (0.0, "0"),
            (0.001, "0.00100"),
            (0.000_234, "0.000234"),
            (0.000_000_234, "2.34e-7"),
            (1.0, "1.00"),
            (9.994, "9.99"),
            (9.996, "10.0"),
            (99.96, "100"),
            (941.4, "941"),
            (1000.0, "1000"),
            (1867.71, "1868"),
            (303.46, "303"),
            (12_437.4, "12,440"),
            (-1_234.0, "-1234"),
            (-51_204.0, "-51,200"),
            (-0.5, "-0.500"),
            (1e300, "1.00e300"),
            (f64::NAN, "-"),
            (f64::INFINITY, "-"),
        ] {
            assert_eq!(digits(value), text);
        }
        assert_eq!((separated(0), separated(1_234_567)), ("0".to_owned(), "1,234,567".to_owned()));
    }

    #[test]
    fn the_last_of_several_names_stands_behind_a_word() {
        assert_eq!(listed::<&str>(&[], "and"), "");
        assert_eq!(listed(&["a"], "and"), "a");
        assert_eq!(listed(&["a", "b", "c"], "or"), "a, b or c");
    }

    #[test]
    fn the_word_that_looks_like_what_was_typed_is_proposed() {
        let words = ["rate", "rtt", "net.ipv4.tcp_sack", "latency_us.p99", "udp.gaps_us.p99"];
        for (text, meant) in [
            ("raet", Some("did you mean `rate`?")),
            ("Rate", Some("did you mean `rate`?")),
            ("tcp_sack", Some("did you mean `net.ipv4.tcp_sack`?")),
            ("tcp_sak", Some("did you mean `net.ipv4.tcp_sack`?")),
            ("net.ipv4.tcpsac", Some("did you mean `net.ipv4.tcp_sack`?")),
            ("p99", Some("did you mean `latency_us.p99` or `udp.gaps_us.p99`?")),
            ("bandwidth", None),
            ("rr", None),
            ("rat", Some("did you mean `rate`?")),
            ("rtr", Some("did you mean `rtt`?")),
            ("trt", Some("did you mean `rtt`?")),
        ] {
            assert_eq!(suggestion(text, words).as_deref(), meant, "{text}");
        }
        assert_eq!(suggestion("rate", [""; 0]), None);
    }
}

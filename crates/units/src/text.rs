//! Names as people type them.

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

/// Characters to insert, delete or replace (Levenshtein).
pub fn edit_distance(a: &str, b: &str) -> usize {
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
}

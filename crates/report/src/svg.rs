//! Pictures: SVG that loads nothing from anywhere, the same for the same document.

mod flame;

pub use flame::flame_graph;

/// The text as XML may have it: markup escaped, control characters written out.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML 1.0, section 2.2: neither control characters nor these two may stand in a
            // document at all.
            '\u{fffe}' | '\u{ffff}' => escaped.extend(letter.escape_unicode()),
            _ if letter.is_control() => escaped.extend(letter.escape_unicode()),
            _ => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_breaks_out_of_its_element() {
        assert_eq!(
            escaped("<Vec<T> as \"x\">::f & 'y'\u{1b}\n\u{ffff}"),
            "&lt;Vec&lt;T&gt; as &quot;x&quot;&gt;::f &amp; &#39;y&#39;\\u{1b}\\u{a}\\u{ffff}"
        );
    }
}

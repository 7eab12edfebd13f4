//! Times and texts as PostgreSQL takes them.

/// The first moment of which the text of RFC 3339 is the beginning; 1970 for what is no time.
pub(super) fn whole(text: &str) -> String {
    const FORM: &str = "0000-01-01T00:00:00Z";
    let rest = FORM.get(text.len()..).unwrap_or_default();
    let whole = format!("{text}{rest}");
    let is_time = whole
        .bytes()
        .zip(FORM.bytes())
        .all(|(byte, form)| match form {
            b'0' | b'1' => byte.is_ascii_digit(),
            b'Z' => matches!(byte, b'Z' | b'.'),
            _ => byte == form,
        });
    let fraction = whole
        .get(FORM.len()..)
        .unwrap_or_default()
        .trim_end_matches('Z');
    let is_time = is_time && text.len() >= "2026-11-23".len();
    if is_time && whole.ends_with('Z') && fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        whole
    } else {
        "1970-01-01T00:00:00Z".to_owned()
    }
}

/// A text of PostgreSQL has no character 0.
pub(super) fn text_without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// JSON without the escaped character 0, which `jsonb` refuses.
pub(super) fn json_without_nul(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let (escape, replaced) = match escape.get(..6) {
            Some("\\u0000") => (6, "\\ufffd"),
            // A backslash in JSON is followed by one byte of ASCII.
            _ => (2, escape.get(..2).unwrap_or(escape)),
        };
        out.push_str(replaced);
        rest = rest.get(at + escape..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_time_is_its_first_moment() {
        for (text, moment) in [
            ("2026-11-23", "2026-11-23T00:00:00Z"),
            ("2026-11-23T1", "2026-11-23T10:00:00Z"),
            ("2026-11-23T14:05", "2026-11-23T14:05:00Z"),
            ("2026-11-23T14:05:06Z", "2026-11-23T14:05:06Z"),
            ("2026-11-23T14:05:06.250000Z", "2026-11-23T14:05:06.250000Z"),
            ("yesterday", "1970-01-01T00:00:00Z"),
            ("2026-11-23T14:05:06.25'Z", "1970-01-01T00:00:00Z"),
            ("", "1970-01-01T00:00:00Z"),
        ] {
            assert_eq!(whole(text), moment, "{text}");
        }
    }

    #[test]
    fn json_keeps_all_but_the_character_0() {
        for (json, kept) in [
            (r#"{"a":"\u0000\n"}"#, r#"{"a":"\ufffd\n"}"#),
            (r#"{"a":"\\u0000é"}"#, r#"{"a":"\\u0000é"}"#),
            (r#"{"a":"\\\u0000"}"#, r#"{"a":"\\\ufffd"}"#),
            ("{}", "{}"),
        ] {
            assert_eq!(json_without_nul(json), kept);
        }
    }
}

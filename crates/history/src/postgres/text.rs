//! Texts as PostgreSQL takes them.

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

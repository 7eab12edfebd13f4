//! Documents as JSON text.

use linerate_core::units::is_hidden;
use serde::Serialize;

/// Whatever can be written as JSON; object-safe, for documents of any type.
pub trait Json {
    /// As [`document`].
    fn json(&self) -> String;
    /// As [`line()`].
    fn json_line(&self) -> String;
}

impl<T: Serialize> Json for T {
    fn json(&self) -> String {
        document(self)
    }

    fn json_line(&self) -> String {
        line(self)
    }
}

/// The document on many lines, indented by two, with a newline at its end.
///
/// # Panics
/// If a map of the document has keys that are not strings; linerate's documents have none.
pub fn document(document: &impl Serialize) -> String {
    ended(serde_json::to_string(document).map(|line| indented(&line)))
}

/// The document on one line, with a newline at its end.
///
/// # Panics
/// As [`document`].
pub fn line(document: &impl Serialize) -> String {
    ended(serde_json::to_string(document))
}

fn ended(text: serde_json::Result<String>) -> String {
    // Numbers that are not finite become null, so string keys are the only condition.
    let mut text = escaped(text.expect("the documents of linerate have string keys"));
    text.push('\n');
    text
}

/// Breaks JSON of one line into many, as serde_json's pretty printer does. That printer would need
/// a second copy of the serialisation code of every document type.
fn indented(line: &str) -> String {
    let mut text = String::with_capacity(2 * line.len());
    let (mut depth, mut is_string, mut is_escaped) = (0, false, false);
    let mut chars = line.chars().peekable();
    let new_line = |text: &mut String, depth: usize| {
        text.push('\n');
        (0..depth).for_each(|_| text.push_str("  "));
    };
    while let Some(c) = chars.next() {
        if is_string {
            text.push(c);
            is_string = is_escaped || c != '"';
            is_escaped = c == '\\' && !is_escaped;
            continue;
        }
        if matches!(c, '}' | ']') {
            depth -= 1;
            new_line(&mut text, depth);
        }
        text.push(c);
        match c {
            '"' => is_string = true,
            ':' => text.push(' '),
            ',' => new_line(&mut text, depth),
            '{' | '[' => match chars.next_if(|c| matches!(c, '}' | ']')) {
                Some(end) => text.push(end),
                None => {
                    depth += 1;
                    new_line(&mut text, depth);
                }
            },
            _ => {}
        }
    }
    text
}

/// Escapes characters that a terminal obeys, or that hide others. Only strings can contain them.
fn escaped(text: String) -> String {
    let is_odd = |c: char| c != '\n' && is_hidden(c);
    if !text.contains(is_odd) {
        return text;
    }
    let mut written = String::with_capacity(text.len());
    for c in text.chars() {
        if is_odd(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                written.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            written.push(c);
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let text = r#"[a\\"\[\]{}:, \n\tµ]{0,12}"#;
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            text.prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((text, inner), 0..5)
                    .prop_map(|entries| entries.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn indented_is_as_serde_json_indents(value in value()) {
            let line = serde_json::to_string(&value).unwrap();
            prop_assert_eq!(indented(&line), serde_json::to_string_pretty(&value).unwrap());
        }
    }

    #[test]
    fn nothing_hidden_is_in_the_text_and_all_of_it_in_the_value() {
        let value = serde_json::json!({"a\u{202e}": "\u{9b}31m\u{200b}\u{e0041}\u{7f}µ\n"});
        let text = line(&value);
        assert!(!text.trim_end().contains(is_hidden), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn a_line_has_one_newline_and_a_document_the_same_content() {
        let value = serde_json::json!({"text": "a\nb", "rows": [1, 2]});
        assert_eq!(line(&value), "{\"rows\":[1,2],\"text\":\"a\\nb\"}\n");
        let pretty = document(&value);
        assert!(pretty.ends_with("}\n") && pretty.lines().count() == 7);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&pretty).unwrap(), value);
    }
}

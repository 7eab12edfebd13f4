//! Documents as JSON text.

use serde::Serialize;

/// What can be written as JSON, whatever its type.
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
    ended(serde_json::to_string_pretty(document))
}

/// The document on one line, with a newline at its end.
///
/// # Panics
/// As [`document`].
pub fn line(document: &impl Serialize) -> String {
    ended(serde_json::to_string(document))
}

fn ended(text: serde_json::Result<String>) -> String {
    // Not a number and infinity become null, so string keys are the only condition.
    let mut text = text.expect("the documents of linerate have string keys");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_one_newline_and_a_document_the_same_content() {
        let value = serde_json::json!({"text": "a\nb", "rows": [1, 2]});
        assert_eq!(line(&value), "{\"rows\":[1,2],\"text\":\"a\\nb\"}\n");
        let pretty = document(&value);
        assert!(pretty.ends_with("}\n") && pretty.lines().count() == 7);
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&pretty).unwrap(),
            value
        );
    }
}

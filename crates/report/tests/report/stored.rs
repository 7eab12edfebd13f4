//! Documents of an earlier version, one of each kind, as its commands wrote them on 2026-11-28: they
//! are read by this one, and lose nothing.

use std::fs;
use std::path::Path;

use linerate_report::document::{DOCUMENTS, read};
use linerate_report::text::Style;
use serde_json::Value;

/// Name and text of each stored document.
fn stored() -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documents");
    let files = fs::read_dir(directory).expect("the stored documents");
    let files = files.map(|file| file.expect("a file").path());
    files.map(|path| (path.display().to_string(), fs::read(&path).expect("a file"))).collect()
}

/// Asserts that all of `before` is in `after`; keys may have been added.
fn assert_kept(place: &str, before: &Value, after: &Value) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            // The command of a remedy is written anew where the remedy is explained again.
            for (key, value) in before.iter().filter(|(key, _)| *key != "command") {
                let place = format!("{place}.{key}");
                match after.get(key) {
                    Some(after) => assert_kept(&place, value, after),
                    None => panic!("{place} is lost: {value}"),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            assert_eq!(before.len(), after.len(), "{place}");
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                assert_kept(&format!("{place}[{index}]"), before, after);
            }
        }
        (Value::Number(before), Value::Number(after)) => {
            assert_eq!(before.as_f64(), after.as_f64(), "{place}");
        }
        _ => assert_eq!(before, after, "{place}"),
    }
}

#[test]
fn every_key_of_a_stored_document_is_read_and_written_again() {
    for (name, bytes) in stored() {
        let document = read(&bytes).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        let before: Value = serde_json::from_slice(&bytes).expect("JSON");
        let after: Value = serde_json::from_str(&document.json_line()).expect("JSON");
        assert_kept(&name, &before, &after);
    }
}

#[test]
fn every_stored_document_is_explained_again() {
    for (name, bytes) in stored() {
        let mut document = read(&bytes).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        document.annotate();
        assert!(!document.text(Style::default()).is_empty(), "{name}");
        assert!(!document.answer().is_empty(), "{name}");
    }
}

#[test]
fn every_kind_of_document_is_stored() {
    let stored: Vec<String> =
        stored().into_iter().map(|(_, bytes)| String::from_utf8(bytes).expect("UTF-8")).collect();
    for kind in DOCUMENTS {
        let schema = format!("\"schema\":\"{}\"", kind.schema);
        assert!(stored.iter().any(|text| text.starts_with(&format!("{{{schema}"))), "{schema}");
    }
}

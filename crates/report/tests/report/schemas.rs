//! The schemas in the repository are those of the types.
//! `UPDATE_SCHEMAS=1 cargo test -p linerate-report` writes them anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use linerate_report::document::DOCUMENTS;
use linerate_report::json;

fn directory() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas"))
}

#[test]
fn checked_in_schemas_are_those_of_the_types_and_no_others() {
    let update = std::env::var_os("UPDATE_SCHEMAS").is_some();
    for kind in DOCUMENTS {
        let name = kind.name();
        let path = directory().join(format!("{name}.json"));
        let generated = json::document(&kind.json_schema());
        if update {
            fs::write(&path, &generated).unwrap();
        }
        let checked_in = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            checked_in == generated,
            "schemas/{name}.json is not the schema of its type: UPDATE_SCHEMAS=1 cargo test -p linerate-report"
        );
    }
    let expected: BTreeSet<String> = DOCUMENTS
        .iter()
        .map(|kind| format!("{}.json", kind.name()))
        .collect();
    let found: BTreeSet<String> = fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(found, expected);
}

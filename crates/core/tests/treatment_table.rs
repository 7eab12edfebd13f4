//! docs/treatments.md has the tables of treatments as they are.

use linerate_core::treatment::{Entry, Sysctl, acts_words, refused, sysctls, table};

/// The tables of docs/treatments.md are the tables. `UPDATE_DOCS=1 cargo test -p linerate-core
/// --test it treatment_table` writes them anew.
#[test]
fn the_documentation_has_the_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/treatments.md");
    let text = std::fs::read_to_string(path).unwrap();
    let begin = text.find(BEGIN).expect("docs/treatments.md has the beginning of the tables");
    let end = text.find(END).expect("docs/treatments.md has the end of the tables") + END.len();
    let tables = tables();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let updated = format!("{}{tables}{}", &text[..begin], &text[end..]);
        std::fs::write(path, updated).unwrap();
        return;
    }
    assert!(
        text[begin..end] == tables,
        "docs/treatments.md is not the tables: UPDATE_DOCS=1 cargo test -p linerate-core --test it \
         treatment_table"
    );
}

/// A cell of a table ends at a bar.
#[test]
fn no_column_is_empty_or_ends_its_cell() {
    for entry in table() {
        let columns = [entry.means, entry.needs, entry.applied, entry.read_back, entry.undone];
        for column in columns {
            assert!(!column.is_empty() && !column.contains('|'), "{}", entry.name);
        }
    }
}

fn tables() -> String {
    let rows = |rows: Vec<String>| rows.concat();
    format!(
        "{BEGIN}{ENTRIES}{}\n{CONTROLS}{}\n{SYSCTLS}{}\n{REFUSED}{}{END}",
        rows(table().iter().map(entry_row).collect()),
        rows(table().iter().filter_map(control_row).collect()),
        rows(sysctls().iter().map(sysctl_row).collect()),
        rows(refused().iter().map(refused_row).collect())
    )
}

fn entry_row(entry: &Entry) -> String {
    row(&[
        &format!("`{}`", entry.name),
        entry.scope.name(),
        entry.means,
        acts_words(entry.acts),
        &entry.range(),
        entry.needs,
        entry.applied,
        entry.read_back,
        entry.undone,
    ])
}

fn control_row(entry: &Entry) -> Option<String> {
    let also = entry.changes_also?;
    Some(row(&[&format!("`{}`", entry.name), also]))
}

fn sysctl_row(sysctl: &Sysctl) -> String {
    row(&[
        &format!("`{}`", sysctl.key),
        sysctl.means,
        sysctl.acts.map_or("", |_| acts_words(sysctl.acts)),
        &sysctl.value.to_string(),
        sysctl.changes_also.unwrap_or(""),
    ])
}

fn refused_row((name, why): &(&str, &str)) -> String {
    row(&[&format!("`{name}`"), why])
}

fn row(cells: &[&str]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

const BEGIN: &str = "<!-- tables of core/src/treatment -->\n";
const ENTRIES: &str = "| treatment | scope | is | acts | values | needs | applied | read back | \
    undone |\n|---|---|---|---|---|---|---|---|---|\n";
const CONTROLS: &str = "| treatment | changes also |\n|---|---|\n";
const SYSCTLS: &str =
    "| `sysctl:` key | is | acts | values | changes also |\n|---|---|---|---|---|\n";
const REFUSED: &str = "| no treatment | why |\n|---|---|\n";
const END: &str = "<!-- end of the tables -->\n";

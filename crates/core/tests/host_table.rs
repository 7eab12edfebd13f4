//! docs/host.md has the table of settings as it is.

use linerate_core::host::{Setting, settings};

/// The table of docs/host.md is the table. `UPDATE_DOCS=1 cargo test -p linerate-core --test
/// host_table` writes it anew.
#[test]
fn the_documentation_has_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/host.md");
    let row = |setting: &Setting| {
        let cells = [
            format!("`{}`", setting.key),
            setting.means.to_owned(),
            setting.value.to_string(),
            setting.limits.to_owned(),
            setting.formula.to_owned(),
            setting.source.to_owned(),
        ];
        format!("| {} |\n", cells.join(" | "))
    };
    let rows: String = settings().iter().map(row).collect();
    let table = format!("{HEAD}{rows}{END}");
    let text = std::fs::read_to_string(path).unwrap();
    let begin = text.find(HEAD).expect("docs/host.md has the head of the table");
    let end = text.find(END).expect("docs/host.md has the end of the table") + END.len();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let updated = format!("{}{table}{}", &text[..begin], &text[end..]);
        std::fs::write(path, updated).unwrap();
        return;
    }
    assert!(
        text[begin..end] == table,
        "docs/host.md is not the table: UPDATE_DOCS=1 cargo test -p linerate-core --test it \
         host_table"
    );
}

const HEAD: &str =
    "| key | means | range | limits | right value | source |\n|---|---|---|---|---|---|\n";
const END: &str = "\n<!-- end of the table -->\n";

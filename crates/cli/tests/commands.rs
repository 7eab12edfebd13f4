//! What the program says on its command line: every help text, and every error that needs no
//! endpoint.
//!
//! `TRYCMD=overwrite cargo test -p linerate --test commands` writes the snapshots anew.

#[test]
fn help_and_errors_are_as_written_down() {
    trycmd::TestCases::new()
        .env("COLUMNS", "100")
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .case("tests/cmd/*.trycmd");
}

//! Where a document goes: pipes, full disks, files, permissions. No test needs an endpoint.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::stderr;

const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/record.json");
const SWEEP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/sweep.json");

fn linerate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    linerate(arguments).output().expect("the program was built for this test")
}

fn json(bytes: &[u8]) -> serde_json::Value {
    serde_json::from_slice(bytes).expect("stdout is one JSON document")
}

fn key_file(directory: &Path, mode: u32) -> PathBuf {
    let path = directory.join("key");
    fs::write(&path, "ab".repeat(32)).expect("the directory is ours");
    fs::set_permissions(&path, Permissions::from_mode(mode)).expect("the file is ours");
    path
}

#[test]
fn explain_prints_one_json_document_and_nothing_else() {
    for (file, schema) in [(RECORD, "linerate.record/1"), (SWEEP, "linerate.sweep/1")] {
        let output = run(&["explain", "--json", file]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(json(&output.stdout)["schema"], schema);
        assert_eq!(stderr(&output), "");
    }
}

#[test]
fn the_output_file_is_the_document_that_was_printed() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy.json");
    let output = run(&["explain", "--json", RECORD, "--output", copy.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(fs::read(&copy).unwrap(), output.stdout);
}

#[test]
fn a_full_disk_behind_stdout_is_an_error() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = linerate(&["explain", "--json", RECORD]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "linerate: stdout: No space left on device\n");
}

#[test]
fn a_full_disk_behind_the_output_file_is_an_error_that_names_it_and_the_page_is_printed() {
    let output = run(&["explain", "--json", RECORD, "--output", "/dev/full"]);
    assert_eq!(output.stdout, run(&["explain", "--json", RECORD]).stdout);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "linerate: --output /dev/full: No space left on device\n");
}

#[test]
fn a_reader_that_went_away_before_all_was_written_is_an_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = linerate(&["explain", "--json", RECORD]).stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let line = stderr(&output);
    assert!(line.starts_with("linerate: stdout was closed before all of it was written"));
    assert_eq!(line.lines().count(), 1, "{line}");
}

#[test]
fn a_command_that_fails_leaves_no_empty_output_file() {
    let directory = tempfile::tempdir().unwrap();
    let new = directory.path().join("new.json");
    // Discard port of loopback: nothing of linerate's answers there.
    let run = run(&["stream", "127.0.0.1:9", "--quiet", "--output", new.to_str().unwrap()]);
    assert_ne!(run.status.code(), Some(0));
    assert!(!new.exists());
}

#[test]
fn a_key_that_others_may_read_is_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    for (mode, warns) in [(0o640, true), (0o604, true), (0o600, false), (0o400, false)] {
        let key = key_file(directory.path(), mode);
        let key_option = ["--key-file", key.to_str().unwrap()];
        // The family is refused after the key was read, so that nothing is sent.
        let output = run(&[&["stream", "127.0.0.1", "-6"], &key_option[..]].concat());
        assert_eq!(output.status.code(), Some(2));
        let message = stderr(&output);
        assert_eq!(message.contains("warning: key file"), warns, "{mode:o}: {message}");
        assert!(message.contains("no IPv6 address"), "{message}");
        fs::remove_file(&key).unwrap();
    }
}

#[test]
fn a_key_is_not_repeated_in_its_error() {
    let directory = tempfile::tempdir().unwrap();
    let key = key_file(directory.path(), 0o600);
    fs::write(&key, "5ecret5ecret").unwrap();
    let output = run(&["stream", "127.0.0.1", "--key-file", key.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!stderr(&output).contains("5ecret"), "{}", stderr(&output));
}

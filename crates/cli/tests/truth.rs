//! `lab truth` as a command, in real namespaces.

use std::process::{Command, Output};

use serde_json::Value;

fn linerate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(arguments)
        .output()
        .expect("linerate can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn transfers_in_slow_start_are_run_scored_and_kept() {
    let kept = tempfile::tempdir().unwrap();
    let directory = kept.path().to_str().unwrap();
    // Startup alone: a second each.
    let output = linerate(&[
        "lab", "truth", "--seed", "5", "--count", "24", "--only", "startup", "--json", "--keep",
        directory,
    ]);
    if output.status.code() == Some(3) {
        eprintln!("SKIPPED: no lab here: {}", text(&output.stderr));
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let score: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(score["schema"], "linerate.truth/1");
    assert_eq!(
        (&score["all"]["trials"], &score["failed"]),
        (&2.into(), &0.into()),
        "{score}"
    );
    assert_eq!(score["trials"].as_array().unwrap().len(), 2);
    let record = kept.path().join("00011-startup.json");
    assert!(kept.path().join("00011-startup.scenario.json").exists());
    let explained = linerate(&["explain", record.to_str().unwrap()]);
    assert!(explained.status.success(), "{explained:?}");
}

/// The full test is a command of some fifty minutes; this is its stratified sample. At 95 % of right verdicts fewer
/// than 24 of 30 come about once in a thousand runs, and a rule that no longer works costs its cause all of them.
#[test]
fn thirty_verdicts_of_all_causes_are_right_as_a_rule() {
    let output = linerate(&["lab", "truth", "--seed", "30", "--count", "30", "--json"]);
    if output.status.code() == Some(3) {
        eprintln!("SKIPPED: no lab here: {}", text(&output.stderr));
        return;
    }
    let score: Value = serde_json::from_slice(&output.stdout).unwrap();
    let right = score["all"]["right"].as_u64().unwrap();
    assert_eq!(score["all"]["trials"], 30, "{score}");
    assert!(right >= 24, "{right} of 30:\n{}", text(&output.stderr));
}

#[test]
fn a_list_is_the_same_each_time_and_needs_no_lab() {
    let list = |more: &[&str]| {
        let arguments = [
            &["lab", "truth", "--seed", "9", "--count", "36", "--list"],
            more,
        ]
        .concat();
        let output = linerate(&arguments);
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout)
    };
    let all = list(&[]);
    assert_eq!(all, list(&[]));
    assert_eq!(all.lines().count(), 36);
    let one = list(&["--number", "7"]);
    assert_eq!(one.lines().count(), 1);
    assert!(all.contains(&one));
    assert_eq!(
        list(&["--only", "policer", "--only", "pacing"])
            .lines()
            .count(),
        6
    );
}

#[test]
fn what_is_no_cause_is_said_with_those_that_are() {
    let output = linerate(&["lab", "truth", "--only", "weather"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(
        said.contains("weather") && said.contains("send_buffer"),
        "{said}"
    );
}

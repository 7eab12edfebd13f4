//! The program, in real namespaces.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by panicking"
)]

use std::fs;
use std::process::{Command, Output};

use linerate_report::document;
use linerate_testkit::{Need, skip};
use serde_json::Value;

fn truth(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_linerate-truth"))
        .args(arguments)
        .output()
        .expect("the program can be started")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether this host allows no lab; then the test is skipped.
fn has_no_lab(output: &Output) -> bool {
    let lacks = output.status.code() == Some(3);
    if lacks {
        skip(Need::Lab, stderr(output));
    }
    lacks
}

#[test]
fn help_and_errors_are_as_written_down() {
    trycmd::TestCases::new().env("COLUMNS", "100").case("tests/help.trycmd");
}

#[test]
fn transfers_in_slow_start_are_run_scored_and_kept() {
    let kept = tempfile::tempdir().unwrap();
    let directory = kept.path().to_str().unwrap();
    // Startup alone: a second each.
    let output = truth(&[
        "--seed", "5", "--count", "24", "--only", "startup", "--json", "--keep", directory,
    ]);
    if has_no_lab(&output) {
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let score: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(score["schema"], "linerate.truth/1");
    assert_eq!((&score["all"]["trials"], &score["failed"]), (&2.into(), &0.into()), "{score}");
    assert_eq!(score["trials"].as_array().unwrap().len(), 2);
    let record = kept.path().join("00011-startup.json");
    assert!(kept.path().join("00011-startup.scenario.json").exists());
    let record = document::read(&fs::read(record).unwrap());
    assert!(record.is_ok(), "{record:?}");
    let document = kept.path().join("score.json");
    fs::write(&document, &output.stdout).unwrap();
    let shown = truth(&["--again", document.to_str().unwrap(), "--json"]);
    assert_eq!(stdout(&shown), stdout(&output));
    // The same rules on what was kept say the same.
    let again = truth(&["--again", directory, "--json"]);
    let judged: Value = serde_json::from_slice(&again.stdout).unwrap();
    for key in ["seed", "all", "matrix", "causes"] {
        assert_eq!(judged[key], score[key], "{again:?}");
    }
}

/// Runs one scenario whose remedy is a setting of a host and promises a rate, and one whose verdict
/// promises nothing: both are in the document, whatever a busy machine makes of the figures.
#[test]
fn every_remedy_is_tried_or_counted_with_the_reason() {
    let numbers = ["24", "7"];
    let mut arguments = vec!["--remedies", "--seed", "140083", "--json"];
    arguments.extend(["--jobs", "2"]);
    arguments.extend(numbers.iter().flat_map(|number| ["--number", number]));
    let output = truth(&arguments);
    if has_no_lab(&output) {
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let score: Value = serde_json::from_slice(&output.stdout).unwrap();
    let remedies = &score["remedies"];
    let list = |key: &str| score[key].as_array().cloned().unwrap_or_default();
    let (proofs, untried) = (list("proofs"), list("untried_remedies"));
    assert_eq!(proofs.len() + untried.len(), numbers.len(), "{score}");
    let count = |value: &Value| value.as_u64().unwrap();
    let tried = count(&remedies["exact"]["trials"]) + count(&remedies["modelled"]["trials"]);
    assert_eq!(tried as usize, proofs.len());
    let reasons = remedies["untried"].as_object().unwrap();
    let not_tried: u64 = reasons.values().map(count).sum();
    assert_eq!(not_tried as usize, untried.len());
    for proof in &proofs {
        let measured = proof["measured_bps"].as_f64();
        // Applied as a treatment and read back: it ran, or the reason is there and it did not hold.
        assert_eq!(measured.is_none(), proof["failure"].is_string(), "{proof}");
        let within =
            measured.map(|bps| (bps / proof["predicted_bps"].as_f64().unwrap() - 1.0).abs());
        let tolerance = match proof["cause"].as_str().unwrap() {
            "receive_window" | "send_buffer" | "pacing" => 0.15,
            _ => 0.30,
        };
        assert_eq!(proof["held"], within.is_some_and(|off| off <= tolerance), "{proof}");
    }
    let document = tempfile::NamedTempFile::new().unwrap();
    fs::write(document.path(), &output.stdout).unwrap();
    let page = stdout(&truth(&["--again", document.path().to_str().unwrap()]));
    assert!(page.contains(&format!("remedies: {tried} were run")), "{page}");
}

/// Runs one scenario of each family. How many are right is the full command's to say, on a quiet machine: its scenarios with
/// a known cause take an hour.
#[test]
fn shapers_of_the_kernel_are_run_and_judged() {
    let family = ["--family", "tbf,htb,qos_class", "--seed", "30"];
    let listed = truth(&[&family[..], &["--count", "120", "--list", "--json"]].concat());
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("a document");
    let first = |name: &str| {
        let mut all = listed.as_array().unwrap().iter();
        let own = all.find(|scenario| scenario["family"] == name);
        own.expect(name)["number"].to_string()
    };
    let numbers = ["tbf", "htb", "qos_class"].map(first);
    let numbers: Vec<&str> = (numbers.iter()).flat_map(|number| ["--number", number]).collect();
    let output = truth(&[&family[..], &["--jobs", "3", "--json"], &numbers].concat());
    if has_no_lab(&output) {
        return;
    }
    let score: Value = serde_json::from_slice(&output.stdout).unwrap();
    let trials = score["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 3, "{score}");
    if trials.iter().any(|trial| trial["judgement"] == "left_out") {
        return skip(Need::Iproute2, stderr(&output));
    }
    for trial in trials {
        let judgement = trial["judgement"].as_str().unwrap();
        assert!(["right", "wrong"].contains(&judgement), "{trial}");
    }
}

#[test]
fn a_list_is_the_same_each_time_and_needs_no_lab() {
    let list = |more: &[&str]| {
        let arguments = [&["--seed", "9", "--count", "36", "--list"], more].concat();
        let output = truth(&arguments);
        assert!(output.status.success(), "{output:?}");
        stdout(&output)
    };
    let all = list(&[]);
    assert_eq!(all, list(&[]));
    assert_eq!(all.lines().count(), 36);
    let scenarios: Value = serde_json::from_str(&list(&["--json"])).unwrap();
    assert_eq!(scenarios.as_array().unwrap().len(), 36);
    let one = list(&["--number", "7"]);
    assert_eq!(one.lines().count(), 1);
    assert!(all.contains(&one));
    assert_eq!(list(&["--only", "policer", "--only", "pacing"]).lines().count(), 6);
}

/// Runs a scenario in which another program sends, and processes without privilege look on.
#[test]
fn connections_of_other_programs_are_judged_from_both_ends() {
    if linerate_sys::process::effective_user() != 0 {
        skip(Need::Root, "looking on as another user");
        return;
    }
    let kept = tempfile::tempdir().unwrap();
    let directory = kept.path().to_str().unwrap();
    let output = truth(&[
        "--family",
        "strangers",
        "--seed",
        "3",
        "--number",
        "51",
        "--json",
        "--keep",
        directory,
    ]);
    if output.status.code() == Some(3) {
        let said = stderr(&output);
        skip(Need::Lab, format_args!("no lab here: {said}"));
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let score: Value = serde_json::from_slice(&output.stdout).unwrap();
    let answer = &score["trials"][0]["answer"];
    if let Some(reason) = answer["left_out"]["reason"].as_str() {
        return skip(Need::Setpriv, reason);
    }
    for family in ["strangers", "strangers_receiver"] {
        let trials = &score["families"][family]["tally"]["trials"];
        assert_eq!(*trials, 1, "{family}: {score:#}");
    }
    assert_eq!(score["all"]["trials"], 1);
    let again = truth(&["--again", directory, "--json"]);
    let judged: Value = serde_json::from_slice(&again.stdout).unwrap();
    for key in ["seed", "all", "families"] {
        assert_eq!(judged[key], score[key], "{again:?}");
    }
}

//! `lab truth` as a command, in real namespaces.

use std::fs;
use std::process::{Command, Output};

use linerate_testkit::{Need, skip};
use serde_json::Value;

use crate::support::{has_no_lab, stderr, stdout};

fn linerate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(arguments)
        .output()
        .expect("linerate can be started")
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
    if has_no_lab(&output) {
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
    let document = kept.path().join("score.json");
    fs::write(&document, &output.stdout).unwrap();
    let explained = linerate(&["explain", "--json", document.to_str().unwrap()]);
    assert_eq!(stdout(&explained), stdout(&output));
    // The same rules on what was kept say the same.
    let again = linerate(&["lab", "truth", "--again", directory, "--json"]);
    let judged: Value = serde_json::from_slice(&again.stdout).unwrap();
    for key in ["seed", "all", "matrix", "causes"] {
        assert_eq!(judged[key], score[key], "{again:?}");
    }
}

/// One whose remedy is a setting of a host and promises a rate, and one whose verdict promises
/// nothing: both are in the document, whatever a busy machine makes of the figures.
#[test]
fn every_remedy_is_tried_or_counted_with_the_reason() {
    let numbers = ["24", "7"];
    let mut arguments = vec!["lab", "truth", "--remedies", "--seed", "140083", "--json"];
    arguments.extend(["--jobs", "2"]);
    arguments.extend(numbers.iter().flat_map(|number| ["--number", number]));
    let output = linerate(&arguments);
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
        assert_eq!(
            proof["held"],
            within.is_some_and(|off| off <= tolerance),
            "{proof}"
        );
    }
    let document = tempfile::NamedTempFile::new().unwrap();
    fs::write(document.path(), &output.stdout).unwrap();
    let explained = linerate(&["explain", document.path().to_str().unwrap()]);
    let said = stdout(&explained);
    assert!(
        said.contains(&format!("remedies: {tried} were run")),
        "{said}"
    );
}

/// How many of them are right is the full command's to say, on a quiet machine: its scenarios with
/// a known cause take an hour.
#[test]
fn shapers_of_the_kernel_are_run_and_judged() {
    let family = [
        "lab",
        "truth",
        "--family",
        "tbf,htb,qos_class",
        "--seed",
        "30",
    ];
    let listed = linerate(&[&family[..], &["--count", "120", "--list", "--json"]].concat());
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("a document");
    let first = |name: &str| {
        let mut all = listed.as_array().unwrap().iter();
        let own = all.find(|scenario| scenario["family"] == name);
        own.expect(name)["number"].to_string()
    };
    let numbers = ["tbf", "htb", "qos_class"].map(first);
    let numbers: Vec<&str> = (numbers.iter())
        .flat_map(|number| ["--number", number])
        .collect();
    let output = linerate(&[&family[..], &["--jobs", "3", "--json"], &numbers].concat());
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
        let arguments = [
            &["lab", "truth", "--seed", "9", "--count", "36", "--list"],
            more,
        ]
        .concat();
        let output = linerate(&arguments);
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
    assert_eq!(
        list(&["--only", "policer", "--only", "pacing"])
            .lines()
            .count(),
        6
    );
}

#[test]
fn an_unknown_cause_is_refused_with_a_list_of_the_known_ones() {
    let output = linerate(&["lab", "truth", "--only", "weather"]);
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(
        said.contains("weather") && said.contains("send_buffer"),
        "{said}"
    );
}

/// A program of its own sends, and processes without privilege look on.
#[test]
fn connections_of_other_programs_are_judged_from_both_ends() {
    if linerate_sys::process::effective_user() != 0 {
        skip(Need::Root, "looking on as another user");
        return;
    }
    let kept = tempfile::tempdir().unwrap();
    let directory = kept.path().to_str().unwrap();
    let output = linerate(&[
        "lab",
        "truth",
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
    let again = linerate(&["lab", "truth", "--again", directory, "--json"]);
    let judged: Value = serde_json::from_slice(&again.stdout).unwrap();
    for key in ["seed", "all", "families"] {
        assert_eq!(judged[key], score[key], "{again:?}");
    }
}

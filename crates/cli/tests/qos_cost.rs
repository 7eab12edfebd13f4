//! `qos cost` as a command, on emulated links in real namespaces.

use std::process::{Command, Output};

use linerate_testkit::{Need, skip};
use serde_json::Value;

use crate::support::stderr;

fn cost(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.args(["qos", "cost"]).args(arguments);
    command.output().expect("linerate can be started")
}

/// Whether this host allows labs and policies; if not, that is said.
fn is_skipped(output: &Output) -> bool {
    let is_missing = output.status.code() == Some(3);
    if is_missing {
        skip(Need::Bpf, stderr(output));
    }
    is_missing
}

#[test]
fn a_row_has_every_treatment_and_what_each_adds() {
    let output = cost(&[
        "--tests",
        "sizes,fragments",
        "--link",
        "20mbit",
        "-l",
        "1024",
        "-4",
        "--time",
        "100ms",
        "--pairs",
        "2",
        "--json",
        "--quick",
        "--seed",
        "5",
    ]);
    if is_skipped(&output) {
        return;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let document: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(document["schema"], "linerate.qos_cost/1");
    assert_eq!(document["status"], "complete");
    let link = &document["links"][0];
    assert_eq!(link["paper_packets_per_s"], 125_000.0);
    assert_eq!(
        link["smallest_frames_per_s"].as_f64().map(f64::round),
        Some(29_762.0)
    );
    let rows = document["rows"].as_array().expect("rows");
    let tests: Vec<&str> = rows.iter().filter_map(|row| row["test"].as_str()).collect();
    assert_eq!(tests, ["sizes", "fragments"]);
    for row in rows {
        let runs = row["runs"].as_array().expect("runs");
        assert_eq!(runs.len(), 6);
        for treatment in ["without", "passthrough", "policy"] {
            let of = runs.iter().filter(|run| run["treatment"] == treatment);
            assert_eq!(of.count(), 2, "{treatment}");
        }
        for run in runs {
            // On a busy machine nothing may have arrived in a tenth of a second.
            let rate = run["figures"]["throughput_bps"].as_f64();
            assert!(rate.is_some_and(|rate| rate >= 0.0), "{run}");
        }
    }
    let direct = document["direct"].as_array().expect("direct costs");
    assert_eq!(direct.len(), 2);
    for cost in direct {
        let nanoseconds = |key: &str| cost[key]["median"].as_f64().unwrap_or(0.0);
        assert!(
            nanoseconds("policy_ns") > 0.0 && nanoseconds("passthrough_ns") > 0.0,
            "{cost}"
        );
    }
}

#[test]
fn what_is_wrong_is_said_before_anything_is_run() {
    let directory = tempfile::tempdir().expect("there is room");
    let file = directory.path().join("policy.toml");
    let path = file.display().to_string();
    std::fs::write(&file, "[filter.a]\nprotokol = \"tcp\"\n").expect("it can be written");
    for (arguments, words) in [
        (vec!["--pairs", "0"], "--pairs 0: it must be 1 to 30"),
        (vec!["--link", "1bit"], "it must be 1mbit to 10gbit"),
        (
            vec!["--margin", "100%"],
            "it must be above 0% and below 100%",
        ),
        (vec!["--tests", "speed"], "it must be sizes"),
        (vec!["--time", "1ms"], "--time 1ms: it must be 10ms"),
        (vec!["--policy", &path], "line 2"),
        (vec!["--policy", "/nowhere.toml"], "/nowhere.toml"),
    ] {
        let output = cost(&arguments);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(words), "{arguments:?}: {message}");
    }
}

//! `run` as a command, on paths in real namespaces.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use linerate_testkit::{Need, eventually, skip};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Killed, has_no_lab, json, stderr, stdout};

const TEXT: &str = include_str!("data/experiment.toml");
const FIGURES: &str = include_str!("data/experiment.csv");

struct Bench {
    directory: TempDir,
}

impl Bench {
    fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().expect("there is room");
        fs::write(directory.path().join("pace.toml"), text).expect("it can be written");
        fs::write(directory.path().join("experiment.csv"), FIGURES).expect("it can be written");
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
        command.arg("run").arg(self.path("pace.toml")).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("linerate can be started")
    }
}

fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_column_shows_what_the_program_of_a_policy_takes_for_a_packet() {
    let policy = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/policies/simple.toml");
    let level = |name: &str, qos: &str| {
        format!("[[factor.level]]\nname = \"{name}\"\ntreatments = \"{qos}\"\n")
    };
    let text = format!(
        "title = \"x\"\nrepeats = 1\n[path]\nlab = \"rate=20mbit\"\n[workload]\ncommand = \
         \"stream\"\ntime = \"100ms\"\n[[factor]]\nname = \"filter\"\n{}{}{}[[column]]\nmetric \
         = \"qos_packet_ns\"\n",
        level("without", "none"),
        level("pass-through", "qos=passthrough"),
        level("simple", &format!("qos={policy}"))
    );
    let output = Bench::new(&text).run(&["--json"]);
    if output.status.code() == Some(3) {
        skip(Need::Bpf, stderr(&output));
        return;
    }
    let document = json(&output);
    let rows = document["table"]["rows"].as_array().expect("rows");
    let is_known = rows.iter().map(|row| {
        let figure = &row["figures"][0]["ours"]["median"];
        figure.as_f64().is_some_and(|ns| ns > 0.0)
    });
    let is_known: Vec<bool> = is_known.collect();
    assert_eq!(is_known, [false, true, true], "{document}");
}

#[test]
fn an_experiment_is_run_kept_and_judged() {
    let bench = Bench::new(TEXT);
    let output = bench.run(&["--json"]);
    if has_no_lab(&output) {
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let document = json(&output);
    assert_eq!(document["schema"], "linerate.experiment/1");
    assert_eq!(document["status"], "complete");
    let made = whole_runs(&document);
    let agreements: Vec<&str> = (document["findings"].as_array().unwrap().iter())
        .map(|finding| finding["agreement"].as_str().unwrap())
        .collect();
    assert_eq!(agreements, ["agrees", "disagrees", "not_known"]);
    let of_report = |finding: usize| &document["findings"][finding]["report_agreement"];
    assert_eq!(
        (of_report(0), of_report(1), of_report(2)),
        (&"agrees".into(), &"disagrees".into(), &"agrees".into())
    );
    assert_eq!(lines(&bench.path("pace.toml.records.jsonl")).len(), 1 + made);

    // All of it is there: the same document again, at once.
    let again = bench.run(&["--json"]);
    assert_eq!(json(&again), document);
    let kept = format!("{made} runs are in ");
    assert!(stderr(&again).contains(&kept), "{again:?}");
    let table = stdout(&bench.run(&[]));
    assert!(table.contains("DISAGREES") && table.contains("not run"), "{table}");
}

#[test]
fn a_killed_experiment_goes_on_where_it_was() {
    let bench = Bench::new(TEXT);
    let records = bench.path("pace.toml.records.jsonl");
    let mut child = Killed(bench.command(&["--quiet"]).spawn().unwrap());
    let mut ended = None;
    // A line that is still being written has no end yet.
    eventually("the first run is in the file", || {
        ended = child.0.try_wait().unwrap();
        let written = fs::read_to_string(&records).unwrap_or_default();
        ended.is_some() || written.matches('\n').count() > 1
    });
    if ended.is_some_and(|status| status.code() == Some(3)) {
        return skip(Need::Lab, "no lab here");
    }
    drop(child);
    let before = lines(&records);
    let output = bench.run(&["--json"]);
    assert!(output.status.success(), "{output:?}");
    let after = lines(&records);
    let whole = before.len().min(2);
    assert_eq!(after[..whole], before[..whole]);
    assert_eq!(after.len(), 1 + whole_runs(&json(&output)));
}

/// Four runs count. On a machine with much else to do one may be cut short, and is made again:
/// answers how many there are.
fn whole_runs(document: &Value) -> usize {
    let runs = document["runs"].as_array().expect("a list of runs");
    let counts = |run: &&Value| run["faults"].is_null() && run["error"].is_null();
    assert_eq!(runs.iter().filter(counts).count(), 4, "{runs:?}");
    runs.len()
}

#[test]
fn a_changed_file_is_refused_with_what_to_do() {
    let bench = Bench::new(TEXT);
    let records = bench.path("kept.jsonl");
    let kept = ["--quick", "--records", records.to_str().unwrap()];
    let output = bench.run(&kept);
    if has_no_lab(&output) {
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let before = fs::read(&records).unwrap();
    fs::write(bench.path("pace.toml"), TEXT.replace("\"1MB\"", "\"2MB\"")).unwrap();
    let refused = bench.run(&kept);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(stderr(&refused).contains("--fresh"), "{refused:?}");
    assert_eq!(fs::read(&records).unwrap(), before);
    let fresh = bench.run(&[&kept[..], &["--fresh"]].concat());
    assert!(fresh.status.success(), "{fresh:?}");
    assert_ne!(fs::read(&records).unwrap(), before);
}

#[test]
fn an_error_in_an_experiment_is_reported_with_its_place_before_any_run() {
    for (from, to, place) in [
        ("streams = 1", "steams = 1", "line 10, column 1"),
        ("of = { amount = \"much\" }", "of = { sum = \"much\" }", "line 46, column 8"),
        ("rtt=2ms", "rtt=2parsec", "line 7, column 7"),
    ] {
        let bench = Bench::new(&TEXT.replacen(from, to, 1));
        let output = bench.run(&[]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr(&output).contains(place), "{place}: {output:?}");
        assert!(!bench.path("pace.toml.records.jsonl").exists());
    }
}

#[test]
fn settings_that_a_real_path_cannot_have_are_refused() {
    for (key, why) in [
        ("server_cpu = \"25%\"", "`server_cpu`: the endpoint of a real path"),
        ("lab = \"loss=1%\"", "the file runs on labs alone"),
    ] {
        let level = format!("name = \"little\"\n{key}");
        let bench = Bench::new(&TEXT.replacen("name = \"little\"", &level, 1));
        // Nobody answers there, and nobody is asked.
        let output = bench.run(&["--host", "127.0.0.1:9"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr(&output).contains(why), "{output:?}");
    }
}

#[test]
fn a_list_runs_nothing_and_needs_no_lab() {
    let bench = Bench::new(TEXT);
    let output = bench.run(&["--list"]);
    assert!(output.status.success(), "{output:?}");
    let listed = stdout(&output);
    assert!(listed.contains("amount policy, not run: a policy"), "{listed}");
    assert!(listed.ends_with("4 runs\n"), "{listed}");
    assert!(!bench.path("pace.toml.records.jsonl").exists());
}

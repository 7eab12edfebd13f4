//! `compare` in real namespaces and against endpoints on loopback.
//!
//! Where this host allows no network namespaces each test of a lab says SKIPPED.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{PROGRAM, Served, has_labs, signal, stderr};

fn program(line: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(line.split_whitespace()).stdin(Stdio::null());
    command
}

fn output(line: &str) -> Output {
    program(line).output().expect("the program was built for this test")
}

/// The document of a comparison in a lab, or `None` and a message where this host allows no lab.
fn compared(line: &str) -> Option<Value> {
    // What a treatment lacks is no reason to skip.
    if !has_labs() {
        return None;
    }
    let output = output(&format!("compare {line} --json --quiet"));
    assert_eq!(output.status.code(), Some(0), "{line}: {}", stderr(&output));
    let document: Value = serde_json::from_slice(&output.stdout).expect("stdout is one document");
    assert_eq!(document["schema"], "linerate.comparison/1");
    Some(document)
}

/// The size of a segment is the kernel's and the same in each run, however slow the machine is. How
/// well a tenth of a rate is found is for `cargo bench -p linerate --bench aa`, on a quiet machine.
#[test]
fn segments_of_half_the_size_are_found_with_their_effect() {
    let line = "--lab rtt=4ms --a mss=1400 --b mss=700 -n 20kB --metric tcp.mss_bytes --seed 1";
    let Some(document) = compared(line) else {
        return;
    };
    assert_eq!(document["verdict"], "DIFFERENT", "{document}");
    let effect = document["effect_percent"].as_f64().unwrap();
    // Of each the same is taken for the options of the header.
    assert!((-51.0..-49.0).contains(&effect), "{effect}");
    assert_eq!(document["a"], "mss=1400");
    let runs = document["runs"].as_array().unwrap();
    let counted = runs.iter().filter(|pair| pair["excluded"].is_null());
    assert_eq!(counted.count() as u64, document["pairs"].as_u64().unwrap());
    let firsts: Vec<_> = runs.iter().map(|pair| pair["first"].as_str()).collect();
    assert!(firsts.contains(&Some("a")) && firsts.contains(&Some("b")), "{firsts:?}");
    let kinds: Vec<_> =
        document["caveats"].as_array().unwrap().iter().map(|c| c["kind"].clone()).collect();
    assert!(kinds.contains(&"early_stop".into()), "{kinds:?}");
}

/// Which of the three it says is chance, once in twenty times DIFFERENT: that share is simulated in
/// core.
#[test]
fn several_metrics_with_a_margin_each_have_an_answer() {
    let line = "--lab rtt=4ms --a none --b none --margin 20% -n 200kB --seed 2 --pairs 10 \
                --metric throughput_bps,receiver.cpu_seconds";
    let Some(document) = compared(line) else {
        return;
    };
    assert_eq!(document["margin_percent"], 20.0);
    let metrics = document["metrics"].as_array().unwrap();
    let names: Vec<_> = metrics.iter().map(|m| m["metric"].clone()).collect();
    assert_eq!(names, ["throughput_bps", "receiver.cpu_seconds"]);
    assert_eq!(document["verdict"], metrics[0]["conclusion"]["verdict"]);
    for metric in metrics {
        let conclusion = &metric["conclusion"];
        let figure = |value: &Value| value.as_f64().unwrap();
        let [low, high] = [0, 1].map(|end| figure(&conclusion["interval_percent"][end]));
        let effect = figure(&conclusion["effect_percent"]);
        assert!((low..=high).contains(&effect), "{conclusion}");
        match conclusion["verdict"].as_str().unwrap() {
            "DIFFERENT" => assert!(low >= 0.0 || high <= 0.0, "{conclusion}"),
            "EQUIVALENT" => assert!(-20.0 < low && high < 20.0, "{conclusion}"),
            other => assert_eq!(other, "INCONCLUSIVE"),
        }
    }
}

/// B's path loses some of the packets of every run. A's loses none; what a machine that stands
/// still for a while sends again there is no fault of the path, and then no outcome of B's.
#[test]
fn a_fault_that_is_forbidden_excludes_and_one_sided_is_an_outcome() {
    // What waits in the send buffer at the end is not counted yet.
    let line = "--lab rtt=4ms --lab-b rtt=4ms,up.loss=every(20) -n 400kB --send-buffer 16KiB \
                --forbid retransmissions --pairs 12 --seed 3";
    let Some(document) = compared(line) else {
        return;
    };
    let runs = document["runs"].as_array().unwrap();
    let with_fault = |side: &str| {
        let seen = |pair: &&Value| {
            let mut faults = pair["excluded"].as_array().into_iter().flatten();
            faults.any(|f| f["fault"] == "retransmissions" && f["side"] == side)
        };
        runs.iter().filter(seen).count()
    };
    let (a, b) = (with_fault("a"), with_fault("b"));
    // So many exclusions end it. On a machine that stands still a run of B may end before what it
    // sends again is counted: its pair counts.
    let is_excluded = |pair: &&Value| pair["excluded"].as_array().is_some_and(|it| !it.is_empty());
    let excluded = runs.iter().filter(is_excluded).count();
    assert_eq!(excluded, 10, "{document}");
    assert_eq!(document["pairs"], runs.len() - excluded, "{document}");
    assert!(b >= 8, "{document}");
    let outcomes = document["one_sided_faults"].as_array();
    let outcome =
        outcomes.into_iter().flatten().find(|outcome| outcome["fault"] == "retransmissions");
    match outcome {
        Some(outcome) => {
            assert_eq!((a, &outcome["side"], &outcome["pairs"]), (0, &"b".into(), &b.into()))
        }
        None => assert!(a > 0, "{document}"),
    }
}

#[test]
fn a_setting_of_both_hosts_of_a_lab_is_applied_and_told() {
    let line = "--lab rate=20mbit,rtt=4ms --a none --b server.sysctl:net.ipv4.tcp_sack=0,gro=off \
                -t 200ms --pairs 6 --seed 4";
    let Some(document) = compared(line) else {
        return;
    };
    let told = document["read_back"]["b"].to_string();
    assert!(
        told.contains("tcp_sack") && told.contains("gro") || told.contains("generic-receive"),
        "{told}"
    );
    assert_eq!(document["read_back"]["a"], Value::Array(Vec::new()));
}

#[test]
fn requests_are_compared_by_their_latency() {
    let line = "--lab rtt=4ms --a none --b quickack=on --workload rr --count 20 --pairs 6 \
                --metric latency_us.p50";
    let Some(document) = compared(line) else {
        return;
    };
    let runs = document["runs"].as_array().unwrap();
    let latency = |pair: &Value, side: &str| pair[side]["latency_us.p50"].as_f64();
    let is_whole = |pair| ["a", "b"].iter().all(|side| latency(pair, side) > Some(0.0));
    assert!(runs.len() >= 6 && runs.iter().all(is_whole), "{document}");
}

#[test]
fn all_treatments_are_listed_without_a_host() {
    let output = output("compare --treatments");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for entry in linerate_core::treatment::table() {
        assert!(text.contains(&format!("\n  {} ", entry.name)), "{text}");
    }
    for column in ["values", "needs", "applied", "read back", "undone"] {
        let lines = text.lines().filter(|line| {
            let label = line.strip_prefix("    ");
            label.is_some_and(|label| label.starts_with(column))
        });
        assert_eq!(lines.count(), linerate_core::treatment::table().len());
    }
    let both = self::output("compare pit --treatments");
    assert_eq!(both.status.code(), Some(2));
}

/// What is said of a comparison at an endpoint that ends with that status, before any pair.
fn refused(options: &str, status: i32) -> String {
    let served = Served::start(&[]);
    let output = output(&format!("compare {} {options} -t 50ms --quiet", served.address));
    assert_eq!(output.status.code(), Some(status), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
    stderr(&output)
}

#[test]
fn a_figure_that_the_test_does_not_have_is_named_with_those_that_it_has() {
    let message = refused("--a none --b none --metric latency_us.p99", 2);
    assert!(message.contains("latency_us.p99") && message.contains("throughput_bps"), "{message}");
}

#[test]
fn an_endpoint_without_permission_is_asked_for_nothing() {
    let message = refused("--a none --b server.sysctl:net.ipv4.tcp_sack=0", 3);
    assert!(message.contains("--allow-treatments"), "{message}");
}

/// As where reading back shows it at once: exit status 3, and no pair.
#[test]
fn a_treatment_that_the_run_shows_not_to_have_taken_ends_with_3() {
    // The kernel's least buffer offers more.
    let message = refused("--a none --b receive_window=100", 3);
    assert!(
        message.contains("receive_window=100") && message.contains("did not take"),
        "{message}"
    );
}

#[test]
fn ctrl_c_prints_the_pairs_that_ran() {
    let served = Served::start(&[]);
    let line = format!("compare {} --a none --b nodelay=on -t 500ms --json", served.address);
    let mut child = program(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    await_pair(&mut child);
    signal(child.id(), "INT");
    let output = child.wait_with_output().unwrap();
    assert_partial(&output, "interrupted");
}

#[test]
fn a_peer_that_is_lost_leaves_the_pairs_that_ran() {
    let mut served = Served::start(&[]);
    let line = format!("compare {} --a none --b nodelay=on -t 500ms --json", served.address);
    let mut child = program(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    await_pair(&mut child);
    served.child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_partial(&output, "");
}

/// Until a pair has been told on stderr; what follows there is thrown away.
fn await_pair(child: &mut Child) {
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    let until = Instant::now() + Duration::from_secs(60);
    let told = lines.by_ref().find(|line| {
        let line = line.as_ref().unwrap();
        line.starts_with("pair  1") || Instant::now() > until
    });
    assert!(told.is_some_and(|line| line.unwrap().starts_with("pair  1")));
    thread::spawn(move || lines.for_each(drop));
}

fn assert_partial(output: &Output, words: &str) {
    assert_eq!(output.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&output.stdout).expect("a document");
    assert_eq!(document["status"], "partial");
    assert_eq!(document["verdict"], "INCONCLUSIVE");
    assert!(!document["runs"].as_array().unwrap().is_empty());
    let caveats = document["caveats"].to_string();
    assert!(caveats.contains("partial") && caveats.contains(words), "{caveats}");
}

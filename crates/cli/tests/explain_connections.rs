//! `explain --port` as a program: a connection of another process, on paths of the lab.

use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};

use linerate_core::units::Family;
use linerate_engine::{LabOptions, LabPath};
use linerate_testkit::{Need, eventually, made_or_skip};
use serde_json::Value;

use crate::support::{Killed, PROGRAM, stderr};

/// A path with a server at its far end, a process of its own.
struct Path {
    path: LabPath,
    _server: Killed,
}

const PORT: &str = "5311";

impl Path {
    fn new(spec: &str) -> Option<Self> {
        let path = LabPath::build(&spec.parse().unwrap(), None, &LabOptions::default());
        let path = made_or_skip(Need::Lab, path)?;
        let mut command = path.lab().namespace("server").unwrap().command(PROGRAM);
        command.args(["serve", "--port", PORT]).stdin(Stdio::null());
        let mut server = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // It says when it listens.
        let said = BufReader::new(server.stderr.take().unwrap()).lines().next();
        assert!(said.is_some_and(|line| line.is_ok()));
        Some(Self { path, _server: Killed(server) })
    }

    fn server(&self) -> String {
        let address = self.path.lab().address("server", Some(Family::Ipv4));
        address.unwrap().to_string()
    }

    fn stranger(&self, arguments: &str) -> Killed {
        let mut command = self.path.lab().namespace("client").unwrap().command(PROGRAM);
        command.args(["stream", &self.server(), "--port", PORT]);
        command.args(["--time", "10min", "--quiet"]);
        command.args(arguments.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Killed(command.spawn().unwrap())
    }

    /// Another program, and what is said of its connection once bytes go over it.
    fn begun(&self, arguments: &str) -> (Killed, Value) {
        let mut stranger = self.stranger(arguments);
        let mut found = Value::Null;
        eventually(arguments, || {
            assert_eq!(stranger.0.try_wait().unwrap(), None, "{arguments}");
            found = self.largest("500ms").unwrap_or_default();
            let bytes = [&found["bytes_sent"], &found["bytes_received"]];
            bytes.iter().any(|bytes| bytes.as_u64() > Some(50_000))
        });
        (stranger, found)
    }

    fn explain(&self, time: &str, options: &[&str]) -> Output {
        let client = self.path.lab().namespace("client").unwrap();
        let mut command = client.command(PROGRAM);
        command.args(["explain", "--peer", &self.server(), "--time", time]);
        let command = command.args(options).arg("--quiet");
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// The connection with the most bytes in this time, if there is one.
    fn largest(&self, time: &str) -> Option<Value> {
        let output = self.explain(time, &["--json"]);
        if stderr(&output).contains("no TCP connection to") {
            assert_eq!(output.status.code(), Some(2));
            return None;
        }
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        Some(document["connections"][0].clone())
    }
}

/// Which cause is named is a law of core: here it is what is read of the other program's socket.
#[test]
fn another_programs_connection_is_explained_from_its_host() {
    let Some(path) = Path::new("rate=100mbit,rtt=20ms") else {
        return;
    };
    for (arguments, key, value) in [
        ("--send-buffer 32KiB", "send_buffer_bytes", 2 * 32 * 1024),
        ("--pacing 8mbit", "max_pacing_rate_bps", 8_000_000),
        ("--mss 1000", "pmtu_bytes", 1500),
    ] {
        let (_stranger, found) = path.begun(arguments);
        assert_eq!(found["process"]["name"], "linerate");
        assert_eq!(found["tcp"][key], value, "{arguments}: {found:#}");
        assert!(found["verdict"]["cause"].is_string(), "{found:#}");
    }
    let (_stranger, found) = path.begun("-R");
    assert_eq!(found["process"]["name"], "linerate");
    assert_eq!(found["direction"], "down", "{found:#}");
    assert!(found["verdict"]["cause"].is_string(), "{found:#}");
}

#[test]
fn what_a_change_of_the_program_brought_is_seen_beside_an_earlier_document() {
    let Some(path) = Path::new("rate=100mbit,rtt=20ms") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("before.json");
    let file = file.to_str().unwrap();
    let rate = |document: &Value| -> f64 {
        let all = document["connections"].as_array().unwrap().iter();
        all.filter_map(|one| one["throughput_bps"].as_f64()).sum()
    };
    // A look at a busy machine may see that nothing was sent.
    let active = |options: &[&str]| {
        let mut document = Value::Null;
        eventually("it sends while it is looked at", || {
            let output = path.explain("1s", &[options, &["--json"]].concat());
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
            document = serde_json::from_slice(&output.stdout).unwrap();
            rate(&document) > 0.0
        });
        document
    };
    let (paced, _) = path.begun("--pacing 4mbit");
    let before = active(&["--output", file]);
    drop(paced);
    // Of the one that was ended its socket may still be there, with what was not acknowledged.
    let (_faster, _) = path.begun("--pacing 12mbit");
    let document = active(&["--before", file]);
    let change = &document["baseline"]["changes"][0];
    assert_eq!(change["metric"], "throughput_bps");
    let ratio = rate(&document) / rate(&before);
    let told = change["change_percent"].as_f64().unwrap();
    assert!((100.0 * (ratio - 1.0) - told).abs() < 0.1, "{ratio}: {change}");
    let was = &document["baseline"]["bottlenecks"][0]["was"];
    assert_eq!(*was, before["connections"][0]["verdict"]["cause"]);
    let now = path.explain("1s", &["--before", file]);
    assert_eq!(now.status.code(), Some(0), "{}", stderr(&now));
    let page = String::from_utf8(now.stdout).unwrap();
    assert!(page.contains("an observation"), "{page}");

    std::fs::write(file, "{\"schema\": \"linerate.record/1\"}").unwrap();
    let refused = path.explain("1s", &["--before", file]);
    assert_eq!(refused.status.code(), Some(2));
    let said = stderr(&refused);
    assert!(said.contains("this takes a linerate.connections/1"), "{said}");
}

#[test]
fn the_path_below_a_connection_is_proved_with_the_endpoint_at_its_peer() {
    let Some(path) = Path::new("rate=100mbit,rtt=20ms") else {
        return;
    };
    let (_stranger, _) = path.begun("--receive-window 32KiB");
    // On a busy machine nothing may arrive in the time of a run, or no session begin in time.
    eventually("the path carries bytes while it is proved", || {
        let proof = path.explain("1s", &["--json", &format!("--prove={PORT}")]);
        assert_eq!(proof.status.code(), Some(0), "{}", stderr(&proof));
        let document: Value = serde_json::from_slice(&proof.stdout).unwrap();
        let Some(record) = document.get("path") else {
            return false;
        };
        assert_eq!(record["schema"], "linerate.record/1");
        assert_eq!(record["direction"], "up");
        let has_rate = record["throughput_bps"].as_f64() > Some(0.0);
        assert!(!has_rate || record["verdict"]["proof"].is_string(), "{record:#}");
        has_rate
    });
    // Nobody listens at port 1: that is said, and the connection is explained.
    let alone = path.explain("1s", &["--prove=1"]);
    assert_eq!(alone.status.code(), Some(0), "{}", stderr(&alone));
    let page = String::from_utf8(alone.stdout).unwrap();
    assert!(page.contains("was not proved: no endpoint of linerate's"), "{page}");
    assert!(page.contains("Bottleneck"), "{page}");
}

#[test]
fn a_missing_connection_or_process_is_reported_at_once() {
    for (arguments, words) in [
        (["--port", "1"], "no TCP connection with port 1"),
        (["--process", "no such program"], "no process has that name"),
        (["--time", "1s"], "explain what? A FILE, or connections by --port"),
        (["--time", "1ms"], "500ms to 1h"),
    ] {
        let output =
            std::process::Command::new(PROGRAM).arg("explain").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = stderr(&output);
        assert!(said.contains(words) && said.lines().count() == 1, "{said}");
    }
}

//! `explain --port` as a program: a connection of another process, on paths of the lab.

use std::io::{BufRead, BufReader};
use std::process::{Child, Output, Stdio};

use linerate_core::units::Family;
use linerate_engine::{LabOptions, LabPath};
use linerate_testkit::{Need, made_or_skip};
use serde_json::Value;

use crate::support::{PROGRAM, stderr};

/// A path with a server at its far end, a process of its own.
struct Path {
    path: LabPath,
    _server: Stranger,
}

const PORT: &str = "5311";

/// Another process that sends or receives, ended with the test.
struct Stranger(Child);

impl Drop for Stranger {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Path {
    fn new(spec: &str) -> Option<Self> {
        let path = LabPath::build(&spec.parse().unwrap(), None, &LabOptions::default());
        let path = made_or_skip(Need::Lab, path)?;
        let mut command = path.lab().namespace("server").unwrap().command(PROGRAM);
        command.args(["serve", "--port", PORT]).stdin(Stdio::null());
        let mut server = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It says when it listens.
        let said = BufReader::new(server.stderr.take().unwrap()).lines().next();
        assert!(said.is_some_and(|line| line.is_ok()));
        Some(Self {
            path,
            _server: Stranger(server),
        })
    }

    fn server(&self) -> String {
        let address = self.path.lab().address("server", Some(Family::Ipv4));
        address.unwrap().to_string()
    }

    fn stranger(&self, arguments: &str) -> Stranger {
        let mut command = self
            .path
            .lab()
            .namespace("client")
            .unwrap()
            .command(PROGRAM);
        command.args(["stream", &self.server(), "--port", PORT]);
        command.args(["--time", "60s", "--quiet"]);
        command.args(arguments.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Stranger(command.spawn().unwrap())
    }

    /// What the client's host has to say of it, once it sends. Other work may hide the cause for a
    /// while: one look of three must name it.
    fn explained(&self, arguments: &str, cause: &str) -> Value {
        let _stranger = self.begun(arguments);
        let mut looks = Vec::new();
        for _ in 0..3 {
            let found = self.largest("2s").expect("it goes on");
            if found["verdict"]["cause"] == cause {
                return found;
            }
            looks.push(found);
        }
        panic!("{arguments}: none of three looks says {cause}: {looks:#?}");
    }

    /// Another program, once it sends.
    fn begun(&self, arguments: &str) -> Stranger {
        let mut stranger = self.stranger(arguments);
        loop {
            assert_eq!(stranger.0.try_wait().unwrap(), None, "{arguments}");
            let has_begun = self.largest("500ms").is_some_and(|connection| {
                let bytes = [&connection["bytes_sent"], &connection["bytes_received"]];
                bytes.iter().any(|bytes| bytes.as_u64() > Some(50_000))
            });
            if has_begun {
                return stranger;
            }
        }
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

#[test]
fn what_holds_another_programs_connection_back_is_named() {
    let Some(path) = Path::new("rate=100mbit,rtt=20ms") else {
        return;
    };
    for (arguments, cause) in [
        ("--write-rate 5mbit", "application_send"),
        ("--send-buffer 32KiB", "send_buffer"),
        ("--pacing 8mbit", "pacing"),
        ("-R --read-rate 4mbit", "application_receive"),
    ] {
        let found = path.explained(arguments, cause);
        assert_eq!(found["needs_other_end"], Value::Null, "{arguments}");
        assert_eq!(found["process"]["name"], "linerate");
    }
}

#[test]
fn a_full_link_is_named_at_the_sender_and_never_at_the_receiver() {
    let Some(path) = Path::new("rate=10mbit,rtt=20ms,queue=128KiB") else {
        return;
    };
    path.explained("", "path_rate");
    let found = path.explained("-R", "unexplained");
    let command = found["needs_other_end"]["command"].as_str().unwrap();
    assert!(command.starts_with("linerate explain --port "), "{command}");
}

#[test]
fn what_a_change_of_the_program_brought_is_seen_beside_an_earlier_document() {
    let Some(path) = Path::new("rate=100mbit,rtt=20ms") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("before.json");
    let file = file.to_str().unwrap();
    {
        let _paced = path.begun("--pacing 4mbit");
        let before = path.explain("1s", &["--output", file]);
        assert_eq!(before.status.code(), Some(0), "{}", stderr(&before));
    }
    // Of the one that was ended its socket may still be there, with what was not acknowledged.
    let _faster = path.begun("--pacing 12mbit");
    let now = path.explain("1s", &["--before", file]);
    assert_eq!(now.status.code(), Some(0), "{}", stderr(&now));
    let page = String::from_utf8(now.stdout).unwrap();
    assert!(page.contains("an observation"), "{page}");
    let json = path.explain("1s", &["--before", file, "--json"]);
    let document: Value = serde_json::from_slice(&json.stdout).unwrap();
    let change = &document["baseline"]["changes"][0];
    assert_eq!(change["metric"], "throughput_bps");
    assert!(change["change_percent"].as_f64() > Some(50.0), "{change}");
    assert_eq!(document["baseline"]["bottlenecks"][0]["was"], "pacing");

    std::fs::write(file, "{\"schema\": \"linerate.record/1\"}").unwrap();
    let refused = path.explain("1s", &["--before", file]);
    assert_eq!(refused.status.code(), Some(2));
    let said = stderr(&refused);
    assert!(
        said.contains("this takes a linerate.connections/1"),
        "{said}"
    );
}

#[test]
fn a_missing_connection_or_process_is_reported_at_once() {
    for (arguments, words) in [
        (["--port", "1"], "no TCP connection with port 1"),
        (["--process", "no such program"], "no process has that name"),
        (
            ["--time", "1s"],
            "explain what? A FILE, or connections by --port",
        ),
        (["--time", "1ms"], "500ms to 1h"),
    ] {
        let output = std::process::Command::new(PROGRAM)
            .arg("explain")
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = stderr(&output);
        assert!(said.contains(words) && said.lines().count() == 1, "{said}");
    }
}

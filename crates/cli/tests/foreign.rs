//! What the program says of tests with other tools; both ends are linerate's and speak iperf3's
//! protocol, so that nothing need be installed.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

fn linerate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// An endpoint that is ended with this.
struct Serving {
    child: Child,
    lines: BufReader<ChildStdout>,
    address: String,
}

impl Serving {
    fn start() -> Self {
        let mut child = linerate(&["serve", "--json-stream", "--quiet", "-p", "0"])
            .args(["--bind", "127.0.0.1"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program was built for this test");
        let stdout = child.stdout.take().expect("it is piped");
        let mut serving = Self { child, lines: BufReader::new(stdout), address: String::new() };
        let listening = serving.event("listening");
        serving.address = listening["addresses"][0].as_str().unwrap_or_default().to_owned();
        serving
    }

    /// The next event of that name.
    fn event(&mut self, name: &str) -> Value {
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).expect("a line");
            assert!(read > 0, "the endpoint has ended");
            let event: Value = serde_json::from_str(&line).expect("a line is an event");
            if event["event"] == name {
                return event;
            }
        }
    }

    fn run(&self, command: &str, arguments: &[&str]) -> Output {
        linerate(&[command, &self.address, "--via", "iperf3"])
            .args(arguments)
            .output()
            .expect("the program was built for this test")
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn both_ends_of_a_test_leave_a_record_that_can_be_explained() {
    let mut serving = Serving::start();
    let output = serving.run("stream", &["-n", "1MB", "--json", "--quiet"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let used: Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!((&used["via"], used.get("served")), (&"iperf3".into(), None));
    assert_eq!(used["bytes"], 1_000_000);

    let event = serving.event("tested");
    let message = event["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("iperf3 linerate-"), "{message}");
    let served = &event["record"];
    assert_eq!((&served["via"], &served["served"]), (&"iperf3".into(), &true.into()));
    assert_eq!(served["bytes"], 1_000_000);

    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().write_all(served.to_string().as_bytes()).expect("it can be written");
    let path = file.path().to_str().expect("its name is text");
    let explained = linerate(&["explain", path]).output().expect("it runs");
    let text = String::from_utf8_lossy(&explained.stdout);
    assert!(text.contains(", for iperf3") && text.contains("the other end is iperf3"), "{text}");
}

#[test]
fn what_the_protocol_has_not_is_said_with_status_3() {
    let serving = Serving::start();
    let output = serving.run("rr", &["-t", "1", "--quiet"]);
    assert_eq!(output.status.code(), Some(3));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("rr and crr need `linerate serve`"), "{words}");
}

/// What `serve` answers to a list of users with this content.
fn serve_users(content: &[u8]) -> (Option<i32>, String, tempfile::NamedTempFile) {
    let users = tempfile::NamedTempFile::new().expect("a file");
    users.as_file().write_all(content).expect("it can be written");
    let path = users.path().to_str().expect("its name is text");
    let files = ["--iperf3-users", path, "--iperf3-key", path];
    let output = linerate(&[&["serve", "-p", "0"][..], &files].concat())
        .output()
        .expect("the program was built for this test");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), words, users)
}

#[test]
fn files_of_users_that_are_none_are_refused_with_their_place() {
    let (status, words, users) = serve_users(b"# nobody\nanna\n");
    assert_eq!(status, Some(2));
    let path = users.path().to_str().expect("its name is text");
    assert!(words.contains(path) && words.contains("line 2"), "{words}");
}

#[cfg(not(feature = "iperf3-auth"))]
#[test]
fn users_of_iperf3_where_the_feature_is_not_built_end_with_status_3() {
    let (status, words, _users) = serve_users(format!("anna,{}\n", "0".repeat(64)).as_bytes());
    assert_eq!(status, Some(3));
    assert!(words.contains("--features iperf3-auth"), "{words}");
}

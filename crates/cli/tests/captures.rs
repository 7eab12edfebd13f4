//! `explain FILE` of packet captures, whose transfers are made here.

#[path = "../../capture/tests/simulation/mod.rs"]
mod simulation;

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use simulation::{Transfer, USUAL};

use crate::support::{PROGRAM, stderr};

struct Capture(tempfile::TempDir);

impl Capture {
    fn new(transfer: &Transfer) -> Self {
        Self::with_bytes(&USUAL.write(&transfer.run().packets))
    }

    fn with_bytes(bytes: &[u8]) -> Self {
        let capture = Self(tempfile::tempdir().unwrap());
        fs::write(capture.path(), bytes).unwrap();
        capture
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("x.pcap")
    }

    fn explain(&self, options: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.arg("explain").arg(self.path()).args(options);
        command.output().unwrap()
    }

    fn json(&self) -> Value {
        let output = self.explain(&["--json"]);
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn cause(document: &Value) -> &str {
    let verdict = &document["connections"][0]["verdict"];
    verdict["cause"].as_str().unwrap()
}

#[test]
fn the_verdict_of_a_capture_is_the_same_at_either_end() {
    for (place, vantage) in [(0, "sender"), (50, "between"), (100, "receiver")] {
        let usual = Transfer { place, bytes: 10_000_000, ..Transfer::default() };
        let document = Capture::new(&usual).json();
        assert_eq!(document["connections"][0]["vantage"], vantage);
        assert_eq!(cause(&document), "receive_window", "{document:#}");

        let queue = Transfer {
            window: 4 << 20,
            congestion_window: 500_000,
            link_bps: 50_000_000,
            ..usual.clone()
        };
        let document = Capture::new(&queue).json();
        assert_eq!(cause(&document), "path_rate", "{vantage}: {document:#}");

        let idle = Transfer { burst: Some((20_000, 100_000)), bytes: 600_000, ..usual.clone() };
        let document = Capture::new(&idle).json();
        assert_eq!(cause(&document), "application_send", "{vantage}: {document:#}");

        // A flight that stays the same is held by what no packet shows.
        let held = Transfer { window: 4 << 20, congestion_window: 100_000, ..usual };
        let document = Capture::new(&held).json();
        assert_eq!(cause(&document), "unexplained", "{vantage}: {document:#}");
    }
}

#[test]
fn a_page_explains_the_largest_and_flows_lists_all() {
    let capture = Capture::new(&Transfer::default());
    let page = String::from_utf8(capture.explain(&[]).stdout).unwrap();
    assert!(page.contains("receive window"), "{page}");
    assert!(page.lines().count() <= 24, "{page}");
    let list = String::from_utf8(capture.explain(&["--flows"]).stdout).unwrap();
    assert!(list.contains("192.0.2.2:443"), "{list}");

    let mut command = Command::new(PROGRAM);
    let file = File::open(capture.path()).unwrap();
    let piped = command.args(["explain", "-"]).stdin(Stdio::from(file)).output().unwrap();
    assert!(piped.status.success(), "{}", stderr(&piped));
}

#[test]
fn a_capture_that_ends_early_is_partial() {
    let mut bytes = USUAL.write(&Transfer::default().run().packets);
    bytes.truncate(bytes.len() - 7);
    let document = Capture::with_bytes(&bytes).json();
    assert_eq!(document["status"], "partial");
    assert_eq!(document["caveats"][0]["kind"], "partial");
}

#[test]
fn what_cannot_be_explained_is_refused_in_one_line() {
    let usual = USUAL.write(&Transfer::default().run().packets);
    let refused = |bytes: &[u8], options: &[&str], words: &str| {
        let output = Capture::with_bytes(bytes).explain(options);
        let line = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(line.contains(words) && line.trim().lines().count() == 1, "{line}");
    };
    refused(&usual, &["--port", "22"], "none of its 1 TCP connections is one with port 22");
    refused(&usual[..24], &[], "no TCP segment is among its 0 packets");
    let mut other = usual.clone();
    other[20] = 105;
    refused(&other, &[], "its packets are of link type 105");
    refused(&[0x1f, 0x8b, 8, 0], &[], "gzip -dc FILE | linerate explain -");
    refused(b"{}", &["--flows"], "this file is none");
}

//! `explain FILE` of packet captures, whose transfers are made here.

#[path = "../../capture/tests/simulation/mod.rs"]
mod simulation;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::{Value, json};
use simulation::{File, Layer, Transfer, USUAL};

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
    let file = fs::File::open(capture.path()).unwrap();
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
fn compressed_files_are_opened_whatever_their_name() {
    let plain = USUAL.write(&Transfer::default().run().packets);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&plain).unwrap();
    let gzip = encoder.finish().unwrap();
    let zstd = compress_to_vec(&plain[..], CompressionLevel::Fastest);
    let known = Capture::with_bytes(&plain).json();
    for packed in [&gzip, &zstd] {
        let mut found = Capture::with_bytes(packed).json();
        found["source"]["file"] = known["source"]["file"].clone();
        assert_eq!(found["connections"], known["connections"]);
        assert_eq!(found["source"], known["source"]);
    }
    // What was unpacked before the cut counts.
    let cut = Capture::with_bytes(&gzip[..gzip.len() / 2]).json();
    assert_eq!(cut["status"], "partial");
    // Documents are opened, too.
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(known.to_string().as_bytes()).unwrap();
    let again = Capture::with_bytes(&encoder.finish().unwrap()).json();
    assert_eq!(again["connections"], known["connections"]);
}

#[test]
fn a_tunnel_is_named_on_the_page_and_in_the_document() {
    let kind = File { layer: Layer::Raw, ..USUAL };
    let plain = kind.write(&Transfer::default().run().packets);
    let mut file = plain[..24].to_vec();
    let mut at = 24;
    while at < plain.len() {
        let length = |at: usize| u32::from_le_bytes(plain[at..at + 4].try_into().unwrap());
        let (kept, wire) = (length(at + 8), length(at + 12));
        file.extend(&plain[at..at + 8]);
        file.extend([kept + 24, wire + 24].map(u32::to_le_bytes).concat());
        // IPv4 and GRE.
        let [high, low] = ((wire + 24) as u16).to_be_bytes();
        file.extend([0x45, 0, high, low, 0, 1, 0, 0, 64, 47, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        file.extend([0, 0, 8, 0]);
        file.extend(&plain[at + 16..at + 16 + kept as usize]);
        at += 16 + kept as usize;
    }
    let capture = Capture::with_bytes(&file);
    let document = capture.json();
    assert_eq!(document["connections"][0]["inside"], json!(["GRE"]));
    assert_eq!(document["source"]["kinds"][0]["inside"], json!(["GRE"]));
    let page = String::from_utf8(capture.explain(&[]).stdout).unwrap();
    assert!(page.contains("inside GRE") && page.contains(" TCP inside GRE"), "{page}");
    let list = String::from_utf8(capture.explain(&["--flows", "-v"]).stdout).unwrap();
    assert!(list.contains("inside"), "{list}");
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
    other[20] = 220;
    refused(&other, &[], "its packets are of link type 220 (USB)");
    let arp = [&usual[..24], &[0; 8], &[16, 0, 0, 0, 16, 0, 0, 0], &[2; 12], &[8, 6, 0, 1]];
    refused(&arp.concat(), &[], "no TCP segment is among its 1 packets: 1 ARP");
    refused(b"\xfd7zXZ\0", &[], "xz -dc FILE | linerate explain -");
    refused(b"RTSS\0\0", &[], "editcap -F pcapng FILE - | linerate explain -");
    refused(&[0x1f, 0x8b, 8, 0], &[], "its compressed data are damaged or end early");
    refused(b"{}", &["--flows"], "this file is none");
}

//! Recorded rates: read from files beside the command or the topology, and kept to by a real link.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{has_no_lab, stderr};

/// 10 and 50 Mbit/s, a quarter of a second each.
const CELL: &str = "0 10mbit\n0.25 50mbit\n0.5 end\n";
const TOPOLOGY: &str = "[host.a]\n[host.b]\n[[link]]\nbetween = [\"a\", \"b\"]\n\
                        spec = \"up.trace=cell.txt,rtt=2ms\"\n";

/// A directory with a trace and a topology that names it, in which labs have their files, too.
fn site() -> TempDir {
    let directory = TempDir::new().unwrap();
    fs::create_dir(directory.path().join("inner")).unwrap();
    fs::write(directory.path().join("inner/cell.txt"), CELL).unwrap();
    fs::write(directory.path().join("inner/lab.toml"), TOPOLOGY).unwrap();
    directory
}

fn linerate(directory: &Path, runtime: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
    command.env("XDG_RUNTIME_DIR", runtime);
    let command = command.current_dir(directory).args(arguments);
    command.output().unwrap()
}

/// Payload of a transfer over a path with a recorded rate.
const BYTES: u64 = 12_000_000;

/// The record of a transfer over a path with that trace, which takes as long as the trace's mean
/// rate, bits/s, makes it; `None` where there are no labs. That a link gives the mean, too, is a law
/// of link: a busy machine gives less.
fn transferred(text: &str, mean_bps: f64, period_bits: f64) -> Option<Value> {
    let site = site();
    let inner = site.path().join("inner");
    fs::write(inner.join("cell.txt"), text).unwrap();
    let total = BYTES.to_string();
    let began = Instant::now();
    let arguments = ["stream", "--lab", "trace=cell.txt,rtt=4ms", "-n", &total, "--json"];
    let output = linerate(&inner, site.path(), &arguments);
    let seconds = began.elapsed().as_secs_f64();
    if has_no_lab(&output) {
        return None;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["bytes"], BYTES);
    let bits = record["environment"]["lab"]["links"][0]["up"]["delivered_bytes"].as_f64();
    let bits = 8.0 * bits.unwrap();
    let most = mean_bps * seconds + period_bits;
    assert!(bits >= 8.0 * BYTES as f64 && bits <= most, "{bits} in {seconds} s");
    Some(record)
}

#[test]
fn a_transfer_is_no_faster_than_a_recorded_rate() {
    let Some(record) = transferred(CELL, 30e6, 15e6) else {
        return;
    };
    let lab = record["environment"]["lab"].to_string();
    assert!(lab.contains("trace=cell.txt"), "{lab}");
}

#[test]
fn a_transfer_is_no_faster_than_a_trace_of_mahimahi() {
    // A packet of 1500 bytes in each of 9 ms, 31 in the tenth: 48 Mbit/s.
    let text: String = (1..10).map(|ms| format!("{ms}\n")).collect();
    let text = text + &"10\n".repeat(31);
    transferred(&text, 48e6, 480e3);
}

#[test]
fn a_topology_finds_its_trace_files_beside_it() {
    let site = site();
    let up = linerate(site.path(), site.path(), &["lab", "up", "inner/lab.toml"]);
    if has_no_lab(&up) {
        return;
    }
    let down = linerate(Path::new("/"), site.path(), &["lab", "down"]);
    assert!(up.status.success(), "{}", stderr(&up));
    assert!(down.status.success(), "{}", stderr(&down));
    let printed = String::from_utf8_lossy(&up.stdout);
    assert!(printed.contains("up.trace=cell.txt"), "{printed}");

    // In the directory itself, and as a whole path.
    let inner = site.path().join("inner");
    let whole = inner.join("cell.txt");
    let topology = TOPOLOGY.replace("cell.txt", whole.to_str().unwrap());
    fs::write(site.path().join("whole.toml"), topology).unwrap();
    for (directory, file) in [(&*inner, "lab.toml"), (site.path(), "whole.toml")] {
        let up = linerate(directory, site.path(), &["lab", "up", file]);
        let down = linerate(directory, site.path(), &["lab", "down"]);
        assert!(up.status.success(), "{file}: {}", stderr(&up));
        assert!(down.status.success(), "{file}: {}", stderr(&down));
    }
}

#[test]
fn a_trace_that_cannot_be_read_is_said_with_its_line() {
    let site = site();
    let inner = site.path().join("inner");
    fs::write(inner.join("cell.txt"), "0 20mbit\n1 fast\n2 end\n").unwrap();
    let words = "cell.txt: line 2: `1 fast` is not a rate";
    let up: &[&str] = &["lab", "up", "inner/lab.toml"];
    let stream: &[&str] = &["stream", "--lab", "trace=inner/cell.txt"];
    for arguments in [up, stream] {
        let output = linerate(site.path(), site.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = stderr(&output);
        assert!(said.contains(words), "{said}");
    }
    fs::remove_file(inner.join("cell.txt")).unwrap();
    let output = linerate(site.path(), site.path(), up);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = stderr(&output);
    assert!(said.contains("inner/cell.txt: No such file"), "{said}");
}

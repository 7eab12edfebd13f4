//! Recorded rates: read from files beside the command or the topology, and kept to by a real link.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

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

/// Goodput of a saturating stream over a path with that trace, bits/s, and the record; `None` where
/// there are no labs.
fn stream(spec: &str, text: &str) -> Option<(f64, Value)> {
    let site = site();
    let inner = site.path().join("inner");
    fs::write(inner.join("cell.txt"), text).unwrap();
    let arguments = [
        "stream",
        "--lab",
        spec,
        "--time",
        "3s",
        "--warm-up",
        "1s",
        "--json",
    ];
    let output = linerate(&inner, site.path(), &arguments);
    if has_no_lab(&output) {
        return None;
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    Some((record["throughput_bps"].as_f64().unwrap(), record))
}

/// Of the mean. A link gives no more than its rate; a busy machine may give less. Either of the two
/// rates alone would be outside.
const SHARES: std::ops::RangeInclusive<f64> = 0.5..=1.3;

/// Payload of a full packet over what it takes on the wire: Ethernet, IPv4 or IPv6, TCP with time
/// stamps.
const PAYLOAD: f64 = 1448.0 / 1514.0;

#[test]
fn a_stream_has_the_mean_of_a_recorded_rate() {
    let Some((goodput, record)) = stream("trace=cell.txt,rtt=4ms", CELL) else {
        return;
    };
    let ratio = goodput / (30e6 * PAYLOAD);
    assert!(SHARES.contains(&ratio), "{ratio} of the mean");
    let lab = record["environment"]["lab"].to_string();
    assert!(lab.contains("trace=cell.txt"), "{lab}");
}

#[test]
fn a_stream_has_the_mean_of_a_trace_of_mahimahi() {
    // A packet of 1500 bytes in each of 9 ms, 31 in the tenth: 48 Mbit/s.
    let text: String = (1..10).map(|ms| format!("{ms}\n")).collect();
    let text = text + &"10\n".repeat(31);
    if let Some((goodput, _)) = stream("trace=cell.txt,rtt=4ms", &text) {
        let ratio = goodput / (48e6 * PAYLOAD);
        assert!(SHARES.contains(&ratio), "{ratio} of the mean");
    }
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
    let words = "cell.txt: line 2: `1 fast` is no rate";
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

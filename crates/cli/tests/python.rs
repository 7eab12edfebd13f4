//! The Python package: its example runs by this program, and its documents lose nothing.

use std::process::Command;

use linerate_testkit::{Need, skip};

use crate::support::{PROGRAM, sources, stderr};

/// Runs the notebook's cells; what it must have found.
const RUN: &str = r#"
import json, sys, types
try:
    import pandas
except ImportError:
    sys.modules["pandas"] = types.SimpleNamespace(json_normalize=list)
import linerate

names = {}
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        exec("".join(cell["source"]), names)
check, record, larger = names["check"], names["record"], names["larger"]
# What a busy machine cannot change: a path carries no more than its rate, nor a window more than
# itself in each round trip. Which cause is named it can.
for way in (check.up, check.down):
    assert 0 < way.throughput_bps < 101e6 and way.verdict.cause, way
assert record.throughput_bps < 1.1 * 64 * 1024 * 8 / 30e-3, record.throughput_bps
assert record.verdict.cause and larger.throughput_bps > 0
assert len(names["table"]) == len(record.intervals) > 5
for document in (check, record):
    assert linerate.document(document.to_dict()) == document
try:
    linerate.stream("127.0.0.1", time="soon")
    raise AssertionError("it was not refused")
except linerate.Error as error:
    assert error.status == 2 and "--time" in str(error), error
"#;

#[test]
fn the_notebook_runs_and_documents_are_read_whole() {
    let python = Command::new("python3").arg("--version").output();
    if python.is_err() {
        return skip(Need::Python, "needs python3: apt-get install python3");
    }
    let lab = Command::new(PROGRAM)
        .args(["stream", "--lab", "rtt=1ms", "-n", "1", "--quiet"])
        .output()
        .expect("the program was built for this test");
    if !lab.status.success() {
        return skip(Need::Lab, stderr(&lab));
    }
    let output = Command::new("python3")
        .args(["-c", RUN])
        .arg(sources().join("python/example.ipynb"))
        .env("PYTHONPATH", sources().join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("LINERATE", PROGRAM)
        .output()
        .expect("it was there");
    assert!(output.status.success(), "{}", stderr(&output));
}

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
# No rate nor cause: both are a matter of what else the machine does.
for way in (check.up, check.down):
    assert way.throughput_bps > 0 and way.verdict.cause, way
assert record.throughput_bps > 0 and record.verdict.cause
assert larger.throughput_bps > 0
assert len(names["table"]) == len(record.intervals) > 0
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

//! Runs that are saved, and pages of stored documents. No test needs an endpoint.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{PROGRAM, assert_says, stderr};

const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/record.json");
const SWEEP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/sweep.json");

fn run(directory: &Path, line: &str) -> Output {
    let output = Command::new(PROGRAM)
        .args(line.split_whitespace())
        .current_dir(directory)
        .env("XDG_STATE_HOME", directory)
        .output();
    output.expect("the program was built for this test")
}

fn done(directory: &Path, line: &str) -> String {
    let output = run(directory, line);
    assert_eq!(output.status.code(), Some(0), "{line}: {}", stderr(&output));
    String::from_utf8(output.stdout).expect("pages are text")
}

/// The record with another throughput.
fn slower(directory: &Path) -> &'static str {
    let text = fs::read_to_string(RECORD).expect("it is in the repository");
    let mut record: serde_json::Value = serde_json::from_str(&text).expect("a document");
    let rate = record["legs"][0]["throughput_bps"].as_f64().expect("a rate");
    record["legs"][0]["throughput_bps"] = (rate / 2.0).into();
    fs::write(directory.join("slow.json"), record.to_string()).expect("the directory is ours");
    "slow.json"
}

/// Runs in a list: what came of one may take a second line.
fn rows(list: &str) -> usize {
    list.matches("stream tcp up").count()
}

#[test]
fn a_saved_run_is_listed_shown_exported_and_pruned() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let save = format!("explain {RECORD} --save --label site=north");
    let said = run(here, &save);
    assert_says(&said, "saved as run 1");
    done(here, &format!("explain {RECORD} --save"));
    assert!(here.join("linerate/history.db").exists());
    let list = done(here, "history");
    assert_eq!(rows(&list), 2, "{list}");
    assert!(list.contains("bottleneck: unexplained"), "{list}");
    assert!(list.contains("stream tcp up") && list.contains("site=north"), "{list}");
    assert_eq!(rows(&done(here, "history --label site=north")), 1);
    assert_eq!(done(here, "history --workload rr"), "");
    let shown = done(here, "history show 1 --json");
    assert_eq!(shown, done(here, &format!("explain {RECORD} --json")));
    let lines = done(here, "history export --json-lines");
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((&first["run"], &first["labels"]["site"]), (&1.into(), &"north".into()));
    assert_eq!(first["document"]["schema"], "linerate.record/1");
    let csv = done(here, "history export --csv");
    assert!(csv.lines().nth(1).unwrap().contains("throughput_bps"), "{csv}");
    assert_eq!(done(here, "history export --format csv -o all.csv"), "");
    assert_eq!(fs::read_to_string(here.join("all.csv")).unwrap(), csv);
    done(here, "history export --json-lines -o all.jsonl");
    assert_eq!(fs::read_to_string(here.join("all.jsonl")).unwrap(), lines);
    done(here, "history prune --keep 1");
    assert_eq!(rows(&done(here, "history")), 1);
    let gone = run(here, "history show 1");
    assert_eq!(gone.status.code(), Some(2));
    assert_says(&gone, "no run 1");
}

#[test]
fn a_saved_run_stands_wherever_a_file_does() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let text = fs::read_to_string(RECORD).expect("it is in the repository");
    let mut record: serde_json::Value = serde_json::from_str(&text).expect("a document");
    record["command"] = serde_json::json!(["linerate", "stream", "pit", "-R", "--seed", "7"]);
    fs::write(here.join("r.json"), record.to_string()).unwrap();
    done(here, "explain r.json --save --label site=north");
    done(here, &format!("explain {} --save", slower(here)));
    for (saved, file) in [("1", "r.json"), ("site=north", "r.json"), ("last", "slow.json")] {
        for command in ["explain FILE --json", "report FILE --markdown"] {
            let of = |it| done(here, &command.replace("FILE", it));
            assert_eq!(of(saved), of(file), "{command} {saved}");
        }
        let shown = done(here, &format!("history {saved} --json"));
        assert_eq!(shown, done(here, &format!("explain {file} --json")));
    }
    let line = "linerate stream pit -R --seed 8\n";
    assert_eq!(done(here, "rerun 1 --list --seed 8"), line);
    assert!(done(here, "analyze a=1 b=last").contains("500 kbit/s"));
    assert_eq!(done(here, "history list"), done(here, "history"));
    assert_eq!(done(here, "history compare site=north last"), done(here, "history compare 1 2"));
    let other = run(here, "stream pit -P 9 --baseline 1");
    assert_eq!(other.status.code(), Some(2));
    assert_says(&other, "run 1: it is of another test");
    // A file of that name goes first.
    fs::copy(here.join("slow.json"), here.join("1")).unwrap();
    assert_eq!(done(here, "explain 1 --json"), done(here, "explain slow.json --json"));
    let none = run(here, "report 3 --markdown");
    assert_eq!(none.status.code(), Some(2));
    assert_says(&none, "3: there is no such file and no such saved run");
}

#[test]
fn a_document_comes_from_standard_input() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let command = r#"{"command": ["linerate", "stream", "pit"],"#;
    let text = fs::read_to_string(RECORD).unwrap().replacen('{', command, 1);
    fs::write(here.join("r.json"), text).unwrap();
    for (line, begin) in [
        ("rerun - --list", "linerate stream pit"),
        ("report - --markdown", "**"),
        ("explain - --json", "{"),
    ] {
        let input = fs::File::open(here.join("r.json")).unwrap();
        let output = Command::new(PROGRAM).args(line.split(' ')).stdin(input).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{line}: {}", stderr(&output));
        assert!(output.stdout.starts_with(begin.as_bytes()), "{line}");
    }
}

#[test]
fn two_runs_are_compared_and_a_worse_one_fails_the_gate() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let slow = slower(here);
    done(here, &format!("explain {RECORD} --save --db own.db"));
    done(here, &format!("explain {slow} --save --db own.db"));
    let page = done(here, "history compare 1 2 --db own.db");
    assert!(page.contains("an observation") && page.contains("50"), "{page}");
    assert!(page.contains(": throughput_bps -50.0 %;"), "{page}");
    let worse = run(here, "history compare 1 2 --db own.db --fail-on-worse 10%");
    assert_eq!(worse.status.code(), Some(1), "{}", stderr(&worse));
    let better = run(here, "history compare 2 1 --db own.db --fail-on-regression 10%");
    assert_eq!(better.status.code(), Some(0));
    let says = "--fail-on-worse 10 %: passed, throughput_bps is 100 % better";
    assert_says(&better, says);
}

#[test]
fn the_first_saved_run_of_a_test_is_run_although_there_is_none_to_compare_with() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    // Nobody listens at this port: the run itself fails.
    let first = run(here, "stream 127.0.0.1:1 -t 0.1 --save --baseline last");
    assert_eq!(first.status.code(), Some(1), "{}", stderr(&first));
    assert_says(&first, "--baseline last: no earlier run of this test is saved");
    let unsaved = run(here, "stream 127.0.0.1:1 -t 0.1 --against last");
    assert_eq!(unsaved.status.code(), Some(2), "{}", stderr(&unsaved));
}

#[test]
fn a_document_keeps_its_command_wherever_it_is_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let text = fs::read_to_string(RECORD).expect("it is in the repository");
    let mut record: serde_json::Value = serde_json::from_str(&text).expect("a document");
    record["command"] = serde_json::json!(["linerate", "stream", "pit", "-R", "--seed", "7"]);
    fs::write(here.join("r.json"), record.to_string()).unwrap();
    done(here, "explain r.json --output copy.json --save");
    done(here, "report copy.json -o page.html");
    done(here, "explain page.html --output again.json");
    fs::write(here.join("saved.json"), done(here, "history show 1 --json")).unwrap();
    for file in ["r.json", "copy.json", "again.json", "saved.json"] {
        let line = done(here, &format!("rerun {file} --list --seed 8 --quiet"));
        assert_eq!(line, "linerate stream pit -R --seed 8 --quiet\n", "{file}");
    }
    let older = run(here, &format!("rerun {RECORD}"));
    assert_eq!(older.status.code(), Some(2));
    assert_says(&older, "it does not hold its `command`");
}

#[test]
fn a_report_is_one_page_that_can_be_explained_again() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    done(here, &format!("report {SWEEP} -o page.html --svg charts"));
    let page = fs::read_to_string(here.join("page.html")).unwrap();
    assert!(page.starts_with("<!doctype html>"));
    let again = done(here, "explain page.html --json");
    assert_eq!(again, done(here, &format!("explain {SWEEP} --json")));
    let charts = fs::read_dir(here.join("charts")).unwrap().count();
    assert!(charts > 0);
    assert!(done(here, &format!("report {RECORD} --markdown")).starts_with("**"));
    let both = format!("report {RECORD} {} -o both.html", slower(here));
    done(here, &both);
    let refused = run(here, "explain both.html");
    assert_eq!(refused.status.code(), Some(2));
    assert_says(&refused, "2 documents");
    let none = run(here, "report Cargo.toml -o x.html");
    assert_eq!(none.status.code(), Some(2));
    assert!(!here.join("x.html").exists());
}

#[test]
fn formats_that_are_gone_name_those_that_stay_and_nothing_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    for (line, instead) in [
        ("history export --format parquet -o all.parquet", "csv or json-lines"),
        ("report r.json --png charts -o page.html", "--svg"),
    ] {
        let refused = run(here, line);
        assert_eq!(refused.status.code(), Some(2), "{line}");
        assert_says(&refused, instead);
    }
    assert_eq!(fs::read_dir(here).unwrap().count(), 0);
}

#[test]
fn a_series_says_since_when_it_is_slower_and_what_else_changed_then() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    let text = fs::read_to_string(RECORD).unwrap();
    for number in 0..22 {
        let mut record: serde_json::Value = serde_json::from_str(&text).unwrap();
        let (level, kernel) = if number < 12 { (94e6, "6.1") } else { (55e6, "6.12") };
        let rate = level * (1.0 + 0.003 * f64::from(number * 7 % 5));
        record["legs"][0]["throughput_bps"] = rate.into();
        record["environment"]["client"]["kernel"] = kernel.into();
        record["started_at"] = format!("2026-11-{:02}T09:00:00Z", number + 1).into();
        fs::write(here.join("run.json"), record.to_string()).unwrap();
        done(here, "explain run.json --save --db own.db");
    }
    let page = done(here, "history changes --db own.db");
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("1 change of throughput_bps in 22 runs"), "{page}");
    assert!(page.contains("since 2026-11-13 09:00 (run 13): -4"), "{page}");
    assert!(page.contains("kernel here 6.1 → 6.12"), "{page}");
    let none = run(here, "history changes --workload crr --db own.db");
    assert_eq!(none.status.code(), Some(2));
}

const MESH: &str = "db = \"h.db\"\n[[site]]\nname = \"a\"\nhost = \"192.0.2.1\"\n[[site]]\n\
    name = \"b\"\nhost = \"192.0.2.2\"\n[[site]]\nname = \"c\"\nhost = \"192.0.2.3\"\n\
    [[test]]\nname = \"bulk\"\nworkload = { command = \"stream\" }\n";

/// What is asked of a history, whatever it is stored in.
fn ask_all(here: &Path, db: &str) {
    fs::write(here.join("mesh.toml"), MESH).unwrap();
    let slow = slower(here);
    for (file, to) in [(RECORD, "b"), (slow, "c"), (RECORD, "c")] {
        let labels =
            format!("--label test=bulk --label from=a --label to={to} --label path=a:{to}");
        done(here, &format!("explain {file} --save --db {db} {labels}"));
    }
    let list = done(here, &format!("history --db {db} --label to=c"));
    assert_eq!(rows(&list), 2, "{list}");
    let shown = done(here, &format!("history show 1 --json --db {db}"));
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let saved: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(RECORD).unwrap()).unwrap();
    assert_eq!(shown["throughput_bps"], saved["throughput_bps"]);
    let changed = done(here, &format!("history compare 1 2 --db {db}"));
    assert!(changed.contains("-50.0 %"), "{changed}");

    let matrix = done(here, &format!("mesh matrix mesh.toml --json --db {db}"));
    let matrix: serde_json::Value = serde_json::from_str(&matrix).unwrap();
    assert_eq!(matrix["cells"].as_array().unwrap().len(), 2, "{matrix:#}");
    assert_eq!(matrix["missing_pairs"], 4);
    let line = format!("mesh matrix mesh.toml --json --at 2001-01-01 --db {db}");
    let matrix: serde_json::Value = serde_json::from_str(&done(here, &line)).unwrap();
    assert_eq!(matrix["cells"].as_array().unwrap().len(), 0, "{matrix:#}");
    assert_eq!(matrix["until"], "2001-01-01T00:00:00Z");
    let worst = done(here, &format!("mesh matrix mesh.toml --worst 1 --db {db}"));
    assert!(worst.contains("1 pair at"), "{worst}");
    let held = done(here, &format!("mesh matrix mesh.toml --verdict policer --db {db}"));
    assert!(held.contains("0 pairs at"), "{held}");
    let pair = done(here, &format!("mesh pair mesh.toml a c --db {db}"));
    assert_eq!(pair.matches("Mbit/s").count() + pair.matches("kbit/s").count(), 2, "{pair}");
    let none = run(here, &format!("mesh pair mesh.toml a d --db {db}"));
    assert_eq!(none.status.code(), Some(2), "{}", stderr(&none));

    let medians = done(here, &format!("history medians --csv --db {db}"));
    assert_eq!(medians.lines().count(), 3, "{medians}");
    let gone = done(here, &format!("history prune --keep 0 --db {db}"));
    assert_eq!(gone, "3 runs deleted\n");
    assert_eq!(done(here, &format!("history medians --csv --db {db}")), medians);
    let table = done(here, &format!("history medians --by hour --db {db}"));
    assert!(table.contains("bulk to a:c"), "{table}");
}

#[test]
fn a_file_answers_what_is_asked_of_a_mesh() {
    let directory = tempfile::tempdir().unwrap();
    ask_all(directory.path(), "h.db");
    // The mesh's file names it, too.
    let matrix = done(directory.path(), "mesh matrix mesh.toml --json");
    assert!(matrix.contains("linerate.matrix/1"), "{matrix}");
}

#[cfg(feature = "postgres")]
#[test]
fn a_postgresql_server_answers_the_same() {
    let Some(server) = linerate_testkit::postgres::Server::start() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let url = server.database("asked");
    ask_all(directory.path(), &url);
    // As the user's file names it.
    fs::write(directory.path().join("linerate.toml"), format!("db = \"{url}\"\nsave = true\n"))
        .unwrap();
    let output = Command::new(PROGRAM)
        .args(["explain", RECORD, "--save"])
        .env("XDG_CONFIG_HOME", directory.path())
        .output();
    let output = output.expect("the program was built for this test");
    assert!(stderr(&output).contains("saved as run 4"), "{}", stderr(&output));
    let away = run(directory.path(), "history --db postgres://me:secret@192.0.2.1/x");
    let error = stderr(&away);
    assert_eq!(away.status.code(), Some(2), "{error}");
    assert!(error.contains("sslmode=disable") && !error.contains("secret"), "{error}");
}

#[cfg(not(feature = "postgres"))]
#[test]
fn a_build_without_postgresql_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let said = run(directory.path(), "history --db postgres://me:secret@db/x");
    let error = stderr(&said);
    assert_eq!(said.status.code(), Some(3), "{error}");
    assert!(error.contains("--features postgres") && !error.contains("secret"), "{error}");
}

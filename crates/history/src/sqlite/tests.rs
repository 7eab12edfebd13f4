use std::process::{Command, Stdio};

use super::*;
use crate::Since;
use crate::tests::{ids, label, run};

/// How SQLite would find these runs: the steps of its plan.
fn plan(history: &Sqlite, filter: &Filter) -> Vec<String> {
    let (sql, values) = select(filter);
    let sql = format!("EXPLAIN QUERY PLAN {sql}");
    let steps = history.rows(&sql, params_from_iter(values), |row| row.get(3));
    steps.unwrap()
}

#[test]
fn many_runs_are_found_by_indexes_without_sorting() {
    let history = Sqlite::in_memory().unwrap();
    // The rows alone: what is asked is how they are found, not how they are written.
    history
        .db
        .execute_batch(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) \
             INSERT INTO runs (started_at, schema, path, workload, detail, answer) \
             SELECT strftime('%Y-%m-%dT%H:%M:%SZ', 1700000000 + i * 60, 'unixepoch'), \
             'linerate.record/1', 'host' || (i % 10), 'stream', 'tcp up', 'x' FROM n; \
             INSERT INTO labels SELECT id, 'site', id % 100, started_at FROM runs; \
             INSERT INTO labels SELECT id, 'all', 'x', started_at FROM runs;",
        )
        .unwrap();
    let any = Filter { most: Some(20), ..Filter::default() };
    let filters = [
        any.clone(),
        Filter { path: Some("host3".to_owned()), detail: Some("tcp up".to_owned()), ..any.clone() },
        Filter { workload: Some("stream".to_owned()), ..any.clone() },
        Filter { since: Some(Since::Moment("2023-12".to_owned())), ..any.clone() },
        Filter { series: Some(String::new()), ..any.clone() },
        Filter { labels: vec![label("site", "7")], ..any.clone() },
        Filter {
            labels: vec![label("all", "x"), label("site", "7")],
            since: Some(Since::Moment("2023-11".to_owned())),
            ..any
        },
    ];
    for filter in filters {
        assert_eq!(history.list(&filter).unwrap().len(), 20);
        let plan = plan(&history, &filter).join("; ");
        let is_at_once = plan.contains("INDEX") && !plan.contains("TEMP B-TREE");
        assert!(is_at_once, "{filter:?}: {plan}");
    }
}

#[test]
fn a_history_of_a_newer_version_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("history.db");
    drop(Sqlite::open(&file).unwrap());
    let db = Connection::open(&file).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    let error = Sqlite::open(&file).unwrap_err();
    assert!(matches!(error, HistoryError::Newer { found: 99, .. }), "{error}");
    let file = directory.path().join("text");
    std::fs::write(&file, "no database at all, but a text that is long enough to be none").unwrap();
    assert!(matches!(Sqlite::open(&file), Err(HistoryError::Sqlite { .. })));
}

#[test]
fn alarms_of_an_older_version_are_told_by_each_channel() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("history.db");
    let db = Connection::open(&file).unwrap();
    let before = &sql::MIGRATIONS[..4];
    before.iter().for_each(|step| db.execute_batch(step).unwrap());
    db.execute_batch(
        "PRAGMA user_version = 4; INSERT INTO alarms (series, run, change, told) \
         VALUES ('bulk', 7, 'told', 1), ('bulk', 9, 'untold', 0);",
    )
    .unwrap();
    drop(db);
    let history = Sqlite::open(&file).unwrap();
    assert_eq!(history.changed_since("pit", "bulk").unwrap(), Some(9));
    for channel in ["command", "webhook"] {
        let untold = history.untold("pit", channel).unwrap();
        let changes: Vec<&str> = untold.iter().map(|it| &*it.change).collect();
        assert_eq!(changes, ["untold"]);
    }
}

#[test]
fn a_history_of_an_older_version_is_brought_up_to_date() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("history.db");
    let db = Connection::open(&file).unwrap();
    sql::MIGRATIONS[..2].iter().for_each(|step| db.execute_batch(step).unwrap());
    db.execute_batch(
        "PRAGMA user_version = 2; \
         INSERT INTO runs VALUES (1, '2026-11-20', 's/1', 'pit', 'stream', 'tcp up', 'x', NULL); \
         INSERT INTO runs VALUES (2, '2026-11-21', 's/1', 'pit', 'check', '', 'x', NULL); \
         INSERT INTO labels VALUES (1, 'from', 'a'), (1, 'to', 'b'); \
         INSERT INTO figures VALUES (1, 0, 'throughput_bps', 7.5); \
         INSERT INTO labels VALUES (1, 'test', 'bulk'), (1, 'path', 'north'), (2, 'path', \
         'north');",
    )
    .unwrap();
    drop(db);
    let history = Sqlite::open(&file).unwrap();
    let all = [("bulk to north".to_owned(), 1), ("check to pit".to_owned(), 1)];
    assert_eq!(history.all_series().unwrap(), all);
    let pair = history.pair("bulk", "a", "b", 9).unwrap();
    assert_eq!(pair[0].figures.throughput_bps, Some(7.5));
    let north = Filter { labels: vec![label("path", "north")], ..Filter::default() };
    assert_eq!(ids(&history, &north), [2, 1]);
    let bulk = Filter { series: Some("bulk to north".to_owned()), ..Filter::default() };
    assert_eq!(ids(&history, &bulk), [1]);
}

/// The writer of the next test: says each run's number once it is saved, until it is killed.
#[test]
#[ignore = "a process of the next test"]
fn writes_until_it_is_killed() {
    use std::io::Write;
    let file =
        std::env::var_os("LINERATE_TEST_HISTORY").expect("the test that starts it says where");
    let mut history = Sqlite::open(Path::new(&file)).unwrap();
    let mut stdout = std::io::stdout();
    loop {
        let id = history.save(&run("2026-11-23T09:00:00Z", "pit", &[])).unwrap();
        writeln!(stdout, "saved {id}").unwrap();
        stdout.flush().unwrap();
    }
}

#[test]
fn a_killed_writer_loses_no_run_that_it_had_saved() {
    use std::io::{BufRead, BufReader};
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("history.db");
    let mut last = 0;
    for round in 1..=5 {
        let mut writer = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "--nocapture",
                "sqlite::tests::writes_until_it_is_killed",
            ])
            .env("LINERATE_TEST_HISTORY", &file)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        let saved = lines.map_while(|line| line.ok());
        let saved = saved.filter_map(|line| line.rsplit_once("saved ")?.1.parse::<i64>().ok());
        let before = last;
        let mut saved = saved.skip_while(|id| *id <= before);
        last = saved.by_ref().nth(round * 3).expect("it writes");
        writer.kill().unwrap();
        last = saved.last().unwrap_or(last);
        writer.wait().unwrap();
        let history = Sqlite::open(&file).unwrap();
        let kept = ids(&history, &Filter::default());
        assert!(kept.contains(&last), "run {last} of round {round} is lost");
        for id in kept {
            assert!(history.document(id).unwrap().is_some(), "run {id} has no document");
        }
    }
}

#[test]
fn a_run_that_is_never_taken_is_told_from_a_history_that_is_not_there_now() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("history.db");
    let mut history = Sqlite::open(&file).unwrap();
    let whole = run("2026-11-21T09:00:00Z", "pit", &[]);
    let refuse = "CREATE TRIGGER no BEFORE INSERT ON runs WHEN NEW.path = 'pat' \
         BEGIN SELECT RAISE(ABORT, 'refused'); END";
    history.db.execute_batch(refuse).unwrap();
    let refused = run("2026-11-21T09:00:00Z", "pat", &[]);
    let error = history.save_all(&[refused]).unwrap_err();
    assert!(error.is_of_data(), "{error}");
    history.db.busy_timeout(Duration::ZERO).unwrap();
    let other = Connection::open(&file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = history.save_all(&[whole]).unwrap_err();
    assert!(!error.is_of_data(), "{error}");
}

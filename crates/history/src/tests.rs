use std::process::{Command, Stdio};
use std::thread;

use super::*;

fn run<'a>(started_at: &'a str, path: &'a str, labels: &'a [(String, String)]) -> NewRun<'a> {
    NewRun {
        started_at,
        schema: "linerate.record/1",
        path,
        workload: "stream",
        detail: "tcp up",
        series: "stream tcp up to pit",
        answer: "13.9 Mbit/s up to pit",
        cause: Some("path_rate"),
        figures: &[],
        labels,
        document: "{\"a\":1}",
    }
}

fn label(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

fn ids(history: &History, filter: &Filter) -> Vec<i64> {
    let runs = history.list(filter).unwrap();
    runs.iter().map(|run| run.id).collect()
}

#[test]
fn a_run_comes_back_as_it_was_saved() {
    let mut history = History::in_memory().unwrap();
    let figures = [
        ("throughput_bps".to_owned(), 1.0),
        ("latency_us.p50".to_owned(), 2.0),
    ];
    let labels = [label("site", "it's"), label("change", "a b")];
    let new = NewRun {
        figures: &figures,
        ..run("2026-11-23T09:00:00Z", "pit", &labels)
    };
    let id = history.save(&new).unwrap();
    let found = history.list(&Filter::default()).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].path.as_str(), found[0].detail.as_str()),
        ("pit", "tcp up")
    );
    assert_eq!(found[0].cause.as_deref(), Some("path_rate"));
    assert_eq!(found[0].labels, "change=a b site=it's");
    assert_eq!(history.figures(id).unwrap(), figures);
    assert_eq!(history.document(id).unwrap().as_deref(), Some("{\"a\":1}"));
    assert_eq!(history.document(id + 1).unwrap(), None);
}

#[test]
fn runs_are_found_by_path_label_and_time_the_newest_first() {
    let mut history = History::in_memory().unwrap();
    let labels = [label("site", "north")];
    let old = history
        .save(&run("2026-11-20T09:00:00Z", "pit", &labels))
        .unwrap();
    let pat = history
        .save(&run("2026-11-21T09:00:00Z", "pat", &labels))
        .unwrap();
    let new = history
        .save(&run("2026-11-22T09:00:00Z", "pit", &[]))
        .unwrap();
    let any = Filter::default();
    assert_eq!(ids(&history, &any), [new, pat, old]);
    let path = Filter {
        path: Some("pit".to_owned()),
        ..any.clone()
    };
    assert_eq!(ids(&history, &path), [new, old]);
    let north = Filter {
        labels: labels.to_vec(),
        ..path.clone()
    };
    assert_eq!(ids(&history, &north), [old]);
    let since = Filter {
        since: Some(Since::Moment("2026-11-21".to_owned())),
        most: Some(1),
        ..any.clone()
    };
    assert_eq!(ids(&history, &since), [new]);
    assert_eq!(history.before(new).unwrap(), Some(pat));
    assert_eq!(history.before(old).unwrap(), None);
    let second = Filter {
        most: Some(1),
        skip: 1,
        ..any.clone()
    };
    assert_eq!(ids(&history, &second), [pat]);
    let crr = Filter {
        workload: Some("crr".to_owned()),
        ..any
    };
    assert_eq!(ids(&history, &crr), []);
}

#[test]
fn what_is_pruned_is_gone_with_all_that_belongs_to_it() {
    let mut history = History::in_memory().unwrap();
    let labels = [label("site", "north")];
    for day in 1..=9 {
        let at = format!("2026-11-0{day}T09:00:00Z");
        history.save(&run(&at, "pit", &labels)).unwrap();
    }
    assert_eq!(history.prune(&Keep::Last(4)).unwrap(), 5);
    let since = Since::Moment("2026-11-08".to_owned());
    assert_eq!(history.prune(&Keep::Since(since)).unwrap(), 2);
    let dates: Vec<String> = history
        .list(&Filter::default())
        .unwrap()
        .into_iter()
        .map(|run| run.started_at)
        .collect();
    assert_eq!(dates, ["2026-11-09T09:00:00Z", "2026-11-08T09:00:00Z"]);
    for table in ["documents", "labels"] {
        let sql = format!("SELECT count(*) FROM {table}");
        let left: i64 = history.db.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert_eq!(left, 2, "{table}");
    }
    // A number is never given twice: what an earlier list said still holds.
    assert_eq!(
        history
            .save(&run("2026-11-10T09:00:00Z", "pit", &[]))
            .unwrap(),
        10
    );
}

#[test]
fn many_runs_are_found_by_indexes_without_sorting() {
    let history = History::in_memory().unwrap();
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
    let any = Filter {
        most: Some(20),
        ..Filter::default()
    };
    let filters = [
        any.clone(),
        Filter {
            path: Some("host3".to_owned()),
            detail: Some("tcp up".to_owned()),
            ..any.clone()
        },
        Filter {
            workload: Some("stream".to_owned()),
            ..any.clone()
        },
        Filter {
            since: Some(Since::Moment("2023-12".to_owned())),
            ..any.clone()
        },
        Filter {
            series: Some(String::new()),
            ..any.clone()
        },
        Filter {
            labels: vec![label("site", "7")],
            ..any.clone()
        },
        Filter {
            labels: vec![label("all", "x"), label("site", "7")],
            since: Some(Since::Moment("2023-11".to_owned())),
            ..any
        },
    ];
    for filter in filters {
        assert_eq!(history.list(&filter).unwrap().len(), 20);
        let plan = history.plan(&filter).unwrap().join("; ");
        let is_at_once = plan.contains("INDEX") && !plan.contains("TEMP B-TREE");
        assert!(is_at_once, "{filter:?}: {plan}");
    }
}

#[test]
fn a_history_of_a_newer_version_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("history.db");
    drop(History::open(&file).unwrap());
    let db = Connection::open(&file).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    let error = History::open(&file).unwrap_err();
    assert!(
        matches!(error, HistoryError::Newer { found: 99, .. }),
        "{error}"
    );
    let file = directory.path().join("text");
    std::fs::write(
        &file,
        "no database at all, but a text that is long enough to be none",
    )
    .unwrap();
    assert!(matches!(
        History::open(&file),
        Err(HistoryError::Sqlite { .. })
    ));
}

#[test]
fn a_history_of_an_older_version_is_brought_up_to_date() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("history.db");
    let db = Connection::open(&file).unwrap();
    schema::MIGRATIONS[..2]
        .iter()
        .for_each(|step| db.execute_batch(step).unwrap());
    db.execute_batch(
        "PRAGMA user_version = 2; \
         INSERT INTO runs VALUES (1, '2026-11-20', 's/1', 'pit', 'stream', 'tcp up', 'x', NULL); \
         INSERT INTO runs VALUES (2, '2026-11-21', 's/1', 'pit', 'check', '', 'x', NULL); \
         INSERT INTO labels VALUES (1, 'test', 'bulk'), (1, 'path', 'north'), (2, 'path', \
         'north');",
    )
    .unwrap();
    drop(db);
    let history = History::open(&file).unwrap();
    let all = [
        ("bulk to north".to_owned(), 1),
        ("check to pit".to_owned(), 1),
    ];
    assert_eq!(history.all_series().unwrap(), all);
    let north = Filter {
        labels: vec![label("path", "north")],
        ..Filter::default()
    };
    assert_eq!(ids(&history, &north), [2, 1]);
    let bulk = Filter {
        series: Some("bulk to north".to_owned()),
        ..Filter::default()
    };
    assert_eq!(ids(&history, &bulk), [1]);
}

#[test]
fn several_writers_of_a_new_file_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = &directory.path().join("history.db");
    thread::scope(|scope| {
        for writer in 0..4 {
            scope.spawn(move || {
                let mut history = History::open(file).unwrap();
                for _ in 0..25 {
                    history
                        .save(&run("2026-11-23T09:00:00Z", &format!("host{writer}"), &[]))
                        .unwrap();
                }
            });
        }
    });
    let history = History::open(file).unwrap();
    assert_eq!(history.list(&Filter::default()).unwrap().len(), 100);
}

/// The writer of the next test: says each run's number once it is saved, until it is killed.
#[test]
#[ignore = "a process of the next test"]
fn writes_until_it_is_killed() {
    use std::io::Write;
    let file =
        std::env::var_os("LINERATE_TEST_HISTORY").expect("the test that starts it says where");
    let mut history = History::open(Path::new(&file)).unwrap();
    let mut stdout = std::io::stdout();
    loop {
        let id = history
            .save(&run("2026-11-23T09:00:00Z", "pit", &[]))
            .unwrap();
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
                "tests::writes_until_it_is_killed",
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
        let history = History::open(&file).unwrap();
        let kept = ids(&history, &Filter::default());
        assert!(kept.contains(&last), "run {last} of round {round} is lost");
        for id in kept {
            assert!(
                history.document(id).unwrap().is_some(),
                "run {id} has no document"
            );
        }
    }
}

#[test]
fn a_series_has_the_figure_that_was_asked_for_the_oldest_run_first() {
    let mut history = History::in_memory().unwrap();
    let labels = [label("test", "bulk")];
    for (day, value) in [(2, 20.0), (1, 10.0), (3, 30.0)] {
        let started_at = format!("2026-11-0{day}T00:00:10Z");
        let figures = [
            ("throughput_bps".to_owned(), value),
            ("bytes".to_owned(), 2.0 * value),
        ];
        let new = run(&started_at, "pit", &labels);
        history
            .save(&NewRun {
                figures: &figures,
                ..new
            })
            .unwrap();
    }
    let bulk = Filter {
        labels: labels.to_vec(),
        ..Filter::default()
    };
    let values = |filter: &Filter, metric| -> Vec<f64> {
        let points = history.series(filter, metric).unwrap();
        points.iter().map(|point| point.value).collect()
    };
    assert_eq!(values(&bulk, None), [10.0, 20.0, 30.0]);
    assert_eq!(values(&bulk, Some("bytes")), [20.0, 40.0, 60.0]);
    assert_eq!(values(&bulk, Some("rtt_us")), [0.0; 0]);
    assert_eq!(
        values(
            &Filter {
                most: Some(2),
                ..bulk.clone()
            },
            None
        ),
        [20.0, 30.0]
    );
    assert_eq!(
        values(
            &Filter {
                from_id: Some(2),
                ..bulk.clone()
            },
            None
        ),
        [10.0, 30.0]
    );
    let first = &history.series(&bulk, None).unwrap()[0];
    assert_eq!(
        (first.at_s, first.metric.as_str()),
        (1_793_491_210, "throughput_bps")
    );
}

#[test]
fn a_change_is_noted_once_and_told_once() {
    let mut history = History::in_memory().unwrap();
    assert_eq!(history.changed_since("bulk").unwrap(), None);
    history.raise("bulk", 7, "{}").unwrap();
    history.raise("bulk", 7, "{\"again\":1}").unwrap();
    assert_eq!(history.changed_since("bulk").unwrap(), Some(7));
    let untold = history.untold().unwrap();
    assert_eq!(untold, [(1, "{}".to_owned())]);
    history.told(1).unwrap();
    assert_eq!(history.untold().unwrap(), []);
    assert_eq!(history.changed_since("other").unwrap(), None);
}

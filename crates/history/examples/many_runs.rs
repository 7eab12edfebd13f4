//! How long 100,000 saved runs take to be asked:
//! `cargo run --release -p linerate-history --example many_runs`.
#![allow(clippy::print_stdout, reason = "it is what it is for")]

use std::time::Instant;

use linerate_history::{Filter, History, HistoryError, NewRun, Since, in_memory};

const RUNS: usize = 100_000;

fn main() -> Result<(), HistoryError> {
    let mut history = in_memory()?;
    save(&mut history)?;
    for (what, filter) in filters() {
        let begun = Instant::now();
        let runs = history.list(&filter)?.len();
        let listed = begun.elapsed();
        let begun = Instant::now();
        let figures = history.series(&filter, None)?.len();
        println!(
            "{what}: {runs} runs in {listed:.2?}, {figures} figures in {:.2?}",
            begun.elapsed()
        );
    }
    Ok(())
}

fn pair(key: &str, value: String) -> (String, String) {
    (key.to_owned(), value)
}

fn save(history: &mut History) -> Result<(), HistoryError> {
    for number in 0..RUNS {
        let minute = number / 2;
        let (hour, day) = (minute / 60, minute / 1440);
        let started_at = format!(
            "2026-{:02}-{:02}T{:02}:{:02}:00Z",
            day / 28 + 1,
            day % 28 + 1,
            hour % 24,
            minute % 60
        );
        let path = format!("host{}", number % 10);
        history.save(&NewRun {
            started_at: &started_at,
            schema: "linerate.record/1",
            path: &path,
            workload: "stream",
            detail: "tcp up",
            series: "stream tcp up",
            answer: "94.1 Mbit/s up",
            cause: Some("path_rate"),
            pairs: &[],
            figures: &[
                ("throughput_bps".to_owned(), number as f64),
                ("carried_bytes".to_owned(), 1e6),
            ],
            labels: &[
                pair("test", format!("test{}", number % 20)),
                pair("path", path.clone()),
                pair("site", "north".to_owned()),
            ],
            document: &"x".repeat(2000),
        })?;
    }
    Ok(())
}

fn filters() -> Vec<(&'static str, Filter)> {
    let label = |key, value: &str| pair(key, value.to_owned());
    let any = Filter { most: Some(20), ..Filter::default() };
    let task = vec![label("test", "test3"), label("path", "host3")];
    vec![
        ("the newest 20", any.clone()),
        ("the newest 20 of a path", Filter { path: Some("host3".to_owned()), ..any.clone() }),
        (
            "of a label that all have",
            Filter { labels: vec![label("site", "north")], ..any.clone() },
        ),
        (
            "of a label that none has",
            Filter { labels: vec![label("site", "south")], ..any.clone() },
        ),
        ("of a day", Filter { since: Some(Since::Moment("2026-02-06".to_owned())), ..any.clone() }),
        ("a monitor's task", Filter { labels: task.clone(), most: Some(1), ..any.clone() }),
        ("its last 200", Filter { labels: task, most: Some(200), ..any }),
    ]
}

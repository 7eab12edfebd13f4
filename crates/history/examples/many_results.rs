//! How long the matrix of a large mesh takes, in a new file or an empty database:
//! `cargo run --release -p linerate-history --features postgres --example many_results -- PLACE`.
#![allow(clippy::print_stdout, reason = "it is what it is for")]

use std::ffi::OsString;
use std::time::Instant;

use linerate_history::{
    Filter, HistoryError, NewRun, PairFigures, Period, Place, RollupFilter, open,
};

const SITES: usize = 100;
/// A run of each cycle and site, with a result to each of the 99 others: 10 million results in a
/// year.
const CYCLES: usize = 1010;

fn main() -> Result<(), HistoryError> {
    let place = std::env::args_os().nth(1);
    let place: Place = place.unwrap_or_else(|| OsString::from("many.db")).into();
    let mut history = open(&place)?;
    let begun = Instant::now();
    if history.newest()? == 0 {
        let mut results = 0;
        for cycle in 0..CYCLES {
            results += save(&mut *history, cycle)?;
        }
        println!("{results} results saved in {:.0?}", begun.elapsed());
    }
    for (what, until) in [
        ("the matrix", None),
        ("the matrix", None),
        ("the matrix of half a year ago", Some("2026-06-15T00:00:00Z")),
        ("the matrix of the first day", Some("2026-01-02T00:00:00Z")),
    ] {
        let begun = Instant::now();
        let pairs = history.matrix("bulk", until)?.len();
        println!("{what}: {pairs} pairs in {:.1?}", begun.elapsed());
    }
    let begun = Instant::now();
    let pair = history.pair("bulk", "s7", "s42", 1000)?.len();
    println!("a pair over time: {pair} results in {:.1?}", begun.elapsed());
    let newest = Filter { most: Some(20), ..Filter::default() };
    let begun = Instant::now();
    history.list(&newest)?;
    println!("the newest 20 runs in {:.1?}", begun.elapsed());
    let begun = Instant::now();
    let days = history.rollups(&RollupFilter {
        period: Period::Day,
        series: Some("bulk to s7".to_owned()),
        metric: None,
        since: None,
    })?;
    println!("{} daily medians of a series in {:.1?}", days.len(), begun.elapsed());
    Ok(())
}

/// The runs of a cycle; how many results they have.
fn save(history: &mut dyn linerate_history::Store, cycle: usize) -> Result<usize, HistoryError> {
    let minutes = cycle * 365 * 24 * 60 / CYCLES;
    let (day, minute) = (minutes / 1440, minutes % 1440);
    let started_at = format!(
        "2026-{:02}-{:02}T{:02}:{:02}:00.000001Z",
        (day / 31 + 1).min(12),
        day % 28 + 1,
        minute / 60,
        minute % 60
    );
    let names: Vec<String> = (0..SITES).map(|site| format!("s{site}")).collect();
    let series: Vec<String> = names.iter().map(|name| format!("bulk to {name}")).collect();
    let results: Vec<Vec<PairFigures>> =
        names.iter().map(|from| row(from, &names, cycle)).collect();
    let figures = [("throughput_bps".to_owned(), 1e6 + cycle as f64)];
    let runs: Vec<NewRun<'_>> = (0..SITES)
        .map(|site| NewRun {
            started_at: &started_at,
            schema: "linerate.record/1",
            path: &names[site],
            workload: "stream",
            detail: "tcp up",
            series: &series[site],
            answer: "94.1 Mbit/s up",
            cause: Some("path_rate"),
            figures: &figures,
            pairs: &results[site],
            labels: &[],
            document: "{}",
        })
        .collect();
    history.save_all(&runs)?;
    Ok(results.iter().map(Vec::len).sum())
}

fn row(from: &str, names: &[String], cycle: usize) -> Vec<PairFigures> {
    let others = names.iter().filter(|to| *to != from);
    let result = |to: &String| PairFigures {
        test: "bulk".to_owned(),
        from: from.to_owned(),
        to: to.clone(),
        throughput_bps: Some(94e6 + cycle as f64),
        loss_percent: Some(0.01),
        rtt_us: Some(20_000.5),
        cause: Some("path_rate".to_owned()),
        confidence: Some(0.9),
    };
    others.map(result).collect()
}

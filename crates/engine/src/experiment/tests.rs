//! Files of runs, and what becomes of runs that fail.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use linerate_core::experiment::{Choice, Experiment, Run};

use super::*;
use crate::error::MeasureError;

const TEXT: &str = r#"
title = "Two sizes"
repeats = 2
[[factor]]
name = "size"
key = "size"
values = [100, 200]
[[column]]
metric = "throughput_bps"
"#;

fn experiment(text: &str) -> Experiment {
    Experiment::from_toml(text, &Choice::default(), &|_| Err("no files".to_owned())).unwrap()
}

fn course(experiment: &Experiment) -> ExperimentCourse<'_> {
    ExperimentCourse {
        experiment,
        runs: Vec::new(),
        unavailable: Vec::new(),
        error: None,
        estimate: Estimate::default(),
        failures: 0,
    }
}

fn made(experiment: &Experiment, slot: Slot) -> Run {
    Run {
        figures: BTreeMap::from([("throughput_bps".to_owned(), 1e6)]),
        ..attempt::empty(experiment, slot)
    }
}

/// A process that another test starts has every descriptor, and so the file's lock, until it
/// executes its program.
fn open(path: &Path, experiment: &Experiment, fresh: bool) -> Result<RecordsFile, ExperimentError> {
    let until = Instant::now() + linerate_testkit::PATIENCE;
    loop {
        match RecordsFile::open(path, experiment, fresh) {
            Err(ExperimentError::InUse { .. }) if Instant::now() < until => {
                thread::sleep(Duration::from_millis(1));
            }
            other => return other,
        }
    }
}

#[test]
fn runs_are_read_back_and_a_torn_line_is_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.jsonl");
    let experiment = experiment(TEXT);
    let first = experiment.next(&[], &[]).unwrap();
    let mut records = open(&path, &experiment, false).unwrap();
    records.append(&made(&experiment, first)).unwrap();
    drop(records);
    let whole = fs::read(&path).unwrap();

    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"{\"levels\": {\"si").unwrap();
    let mut records = open(&path, &experiment, false).unwrap();
    assert_eq!(records.len(), 1);
    let runs = records.take_runs();
    assert_eq!(runs, [made(&experiment, first)]);
    let second = experiment.next(&runs, &[]).unwrap();
    assert_ne!(first, second);
    records.append(&made(&experiment, second)).unwrap();
    drop(records);
    assert!(fs::read(&path).unwrap().starts_with(&whole));
    assert_eq!(open(&path, &experiment, false).unwrap().len(), 2);
    assert!(open(&path, &experiment, true).unwrap().is_empty());
}

#[test]
fn a_file_cut_anywhere_is_resumed_from_its_last_whole_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.jsonl");
    let experiment = experiment(TEXT);
    let mut records = open(&path, &experiment, false).unwrap();
    let slot = experiment.next(&[], &[]).unwrap();
    records.append(&made(&experiment, slot)).unwrap();
    drop(records);
    let whole = fs::read(&path).unwrap();
    for end in 0..whole.len() {
        fs::write(&path, &whole[..end]).unwrap();
        let records = open(&path, &experiment, false).unwrap();
        assert!(records.is_empty(), "{end}");
    }
}

#[test]
fn another_experiments_runs_are_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.jsonl");
    drop(open(&path, &experiment(TEXT), false).unwrap());
    let before = fs::read(&path).unwrap();
    let changed = experiment(&TEXT.replace("[100, 200]", "[100, 300]"));
    let error = open(&path, &changed, false).unwrap_err();
    assert!(matches!(error, ExperimentError::Other { .. }), "{error}");
    assert_eq!(error.category(), Category::Usage);
    assert_eq!(fs::read(&path).unwrap(), before);

    fs::write(&path, "a shopping list\nbread\n").unwrap();
    let error = open(&path, &changed, false).unwrap_err();
    assert!(error.to_string().contains("line 1 is no run"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "a shopping list\nbread\n");
}

#[test]
fn two_runs_of_one_experiment_do_not_share_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.jsonl");
    let _first = open(&path, &experiment(TEXT), false).unwrap();
    let error = RecordsFile::open(&path, &experiment(TEXT), true).unwrap_err();
    assert!(matches!(error, ExperimentError::InUse { .. }), "{error}");
}

#[test]
fn a_cell_that_lacks_something_is_passed_over_and_the_others_go_on() {
    let experiment = experiment(TEXT);
    let mut course = course(&experiment);
    let slot = course.next().unwrap();
    let lacking = ExperimentError::Measure(MeasureError::Host {
        what: "needs root".to_owned(),
        source: std::io::ErrorKind::PermissionDenied.into(),
    });
    assert!(course.take(slot, Err(lacking)).unwrap().is_none());
    while let Some(next) = course.next() {
        assert_ne!(next.cell, slot.cell);
        let run = course.take(next, Ok(made(&experiment, next))).unwrap();
        course.runs.extend(run);
    }
    let (document, error) = course.finish().unwrap();
    assert!(error.is_none() && document.runs.len() == 2);
    let figures = document.table.rows.iter().map(|row| &row.figures[0]);
    let reasons: Vec<_> = figures.filter_map(|figure| figure.not_run.as_ref()).collect();
    assert!(reasons.len() == 1 && reasons[0].contains("needs root"), "{reasons:?}");
}

#[test]
fn where_no_cell_can_be_run_the_reason_is_the_experiments() {
    let experiment = experiment(TEXT);
    let mut course = course(&experiment);
    while let (Some(slot), None) = (course.next(), &course.error) {
        let missing = ExperimentError::Measure(MeasureError::Host {
            what: "no lab".to_owned(),
            source: std::io::ErrorKind::PermissionDenied.into(),
        });
        course.error = course.take(slot, Err(missing)).err();
    }
    assert_eq!(course.finish().unwrap_err().category(), Category::Missing);
}

#[test]
fn a_run_that_fails_is_kept_and_three_in_a_row_end_it() {
    let experiment = experiment(TEXT);
    let mut course = course(&experiment);
    let failed = || {
        Err(ExperimentError::File {
            what: "write a file",
            directory: "/".into(),
            source: std::io::ErrorKind::StorageFull.into(),
        })
    };
    for _ in 0..2 {
        let slot = course.next().unwrap();
        let run = course.take(slot, failed()).unwrap().unwrap();
        assert!(!run.counts());
        course.runs.push(run);
    }
    let slot = course.next().unwrap();
    assert_eq!(slot.attempt, 3);
    let run = course.take(slot, Ok(made(&experiment, slot))).unwrap();
    course.runs.extend(run);
    for _ in 0..2 {
        let slot = course.next().unwrap();
        let run = course.take(slot, failed()).unwrap();
        course.runs.extend(run);
    }
    let slot = course.next().unwrap();
    course.error = course.take(slot, failed()).err();
    let (document, error) = course.finish().unwrap();
    assert!(error.is_some());
    let why = &document.caveats[0].message;
    assert!(why.contains("cannot write a file in /"), "{why}");
}

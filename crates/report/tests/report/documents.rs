//! What all documents have in common.

use linerate_core::host::HostDocument;
use linerate_core::lab::{LAB_SCHEMA, LabShown, LabsDocument, LinkStatus};
use linerate_core::record::{Caveat, CaveatKind, LabDirection, Status, Sweep};
use linerate_report::Document;
use linerate_report::document::{DOCUMENTS, read, with_command};

use crate::{
    analysis, capacity, connections, experiment, load, matrix, profile, qos, samples, throughput,
    trace,
};

fn labs() -> LabsDocument {
    LabsDocument {
        schema: LAB_SCHEMA.to_owned(),
        labs: vec![LabShown {
            name: "lab".to_owned(),
            pid: 7,
            hosts: vec![],
            baseline_rtt_us: Some(60.0),
            links: Some(vec![LinkStatus {
                name: "a-b".to_owned(),
                between: ["a", "b"].map(str::to_owned),
                spec: "rtt=2ms".to_owned(),
                mtu_bytes: 1500,
                up: Some(LabDirection::default()),
                down: None,
            }]),
            running: vec![],
        }],
    }
}

/// One of each kind, and more.
pub(crate) fn documents() -> Vec<Box<dyn Document>> {
    vec![
        Box::new(trace::document(trace::sample())),
        Box::new(capacity::document()),
        Box::new(throughput::document()),
        Box::new(profile::document()),
        Box::new(experiment::whole_document()),
        Box::new(analysis::document()),
        Box::new(HostDocument::new(Default::default())),
        Box::new(labs()),
        Box::new(samples::stream()),
        Box::new(samples::stream_sweep(3)),
        Box::new(samples::check()),
        Box::new(samples::different()),
        Box::new(qos::sample(1)),
        Box::new(connections::document()),
        Box::new(load::document("rrul")),
        Box::new(matrix::document(10)),
    ]
}

#[test]
fn a_document_of_a_kind_that_is_gone_is_refused_with_what_reads_it() {
    let stored = r#"{"schema": "linerate.qos_cost/1", "status": "complete", "rows": []}"#;
    let Err(error) = read(stored.as_bytes()) else { panic!("no command explains it") };
    assert!(error.to_string().contains("`linerate analyze` reads it"), "{error}");
}

#[test]
fn a_document_of_each_kind_is_explained() {
    let mut left: Vec<&str> = DOCUMENTS.iter().map(|kind| kind.schema).collect();
    for document in documents() {
        let mut document = read(document.json().as_bytes()).expect("it is a document");
        document.annotate();
        document.text(samples::whole());
        let value: serde_json::Value = serde_json::from_str(&document.json()).unwrap();
        left.retain(|schema| value["schema"] != *schema);
    }
    assert_eq!(left, [""; 0]);
}

#[test]
fn every_document_reads_back_as_it_was_written() {
    for document in documents() {
        let text = document.json();
        let mut read = read(text.as_bytes()).unwrap().json().into_bytes();
        // No command is taken from a file.
        let words = text.lines().map(|line| match line.split_once("\"command\": ") {
            Some((before, _)) => format!("{before}\"command\": \"\""),
            None => line.to_owned(),
        });
        let words: Vec<String> = words.collect();
        assert_eq!(read.pop(), Some(b'\n'));
        assert_eq!(String::from_utf8(read).unwrap(), words.join("\n"));
    }
}

#[test]
fn every_document_keeps_the_command_that_made_it() {
    let command = ["linerate", "stream", "a \"b\" {"].map(str::to_owned);
    for document in documents() {
        for json in [document.json(), document.json_line()] {
            let read = read(with_command(&command, json).as_bytes()).unwrap();
            assert_eq!(read.command, command);
            let written: serde_json::Value = serde_json::from_str(&read.json()).unwrap();
            assert_eq!(written["command"], serde_json::json!(command));
            assert!(!read.json_line().trim_end().contains('\n'));
        }
    }
}

#[test]
fn a_document_cut_anywhere_is_refused_with_its_place() {
    for document in documents() {
        let text = document.json_line();
        let step = 7 + text.len() / 500;
        for end in (0..text.len() - 2).step_by(step) {
            let error = read(&text.as_bytes()[..end]).expect_err("it is cut");
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            let said = format!("{error}: {}", cause.unwrap_or_default());
            let has_place = said.contains("line ") && said.contains("column ");
            assert!(has_place || end == 0 && said.contains("it is empty"), "{said}");
        }
    }
}

#[test]
fn a_time_that_is_none_is_refused_wherever_it_stands_in_a_document() {
    const KEY: &str = "\"started_at\": \"";
    for document in documents() {
        let text = document.json();
        for (at, _) in text.match_indices(KEY) {
            let (before, time) = text.split_at(at + KEY.len());
            let rest = time.split_once('"').unwrap().1;
            let wrong = format!("{before}2026-99-99T00:00:00Z\"{rest}");
            let error = read(wrong.as_bytes()).map(|_| at).unwrap_err();
            let why = std::error::Error::source(&error).unwrap().to_string();
            assert!(why.contains("it is not a time in UTC such as"), "{why}");
        }
    }
}

#[test]
fn another_schema_is_refused_by_its_name() {
    let error = read(br#"{"schema": "linerate.record/2"}"#).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("`linerate.record/2`"), "{text}");
    for kind in DOCUMENTS {
        assert!(text.contains(kind.schema), "{text}");
    }
}

#[test]
fn the_reason_of_a_partial_run_is_found_in_its_caveats() {
    let mut cut = samples::stream();
    cut.status = Status::Partial;
    cut.caveats = vec![Caveat::new(CaveatKind::Partial, "interrupted", "")];
    let document = Sweep { rows: vec![samples::stream(), cut], ..samples::stream_sweep(1) };
    assert_eq!(document.why_partial().as_deref(), Some("interrupted"));
    for whole in documents() {
        assert_eq!(whole.why_partial(), None);
    }
}

#[test]
fn each_direction_has_a_throughput_of_its_own() {
    let rate = samples::stream().throughput_bps();
    assert_eq!(samples::stream().throughputs(), Some(vec![("throughput", rate)]));
    let both = samples::both();
    let names: Vec<_> = both.throughputs().unwrap();
    let names: Vec<_> = names.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["up", "down"]);
    let empty = Sweep { rows: vec![], ..samples::stream_sweep(1) };
    assert_eq!(empty.throughputs(), Some(vec![]));
    let one_sided = samples::one_sided_check();
    assert_eq!(one_sided.throughputs(), Some(vec![("up", None), ("down", None)]));
    assert_eq!(labs().throughputs(), None);
}

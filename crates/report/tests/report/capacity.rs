//! What a terminal shows of a run of `capacity`: the whole of one that held, the verdict of one
//! that stopped.

use insta::assert_snapshot;
use linerate_core::capacity::{CapacityDocument, annotate};
use linerate_report::Document;
use linerate_report::text::Style;
use serde_json::{Value, json};

use crate::samples::whole;

fn latency(p50: f64, count: u64) -> Value {
    json!({"min": p50 / 2.0, "mean": p50 * 1.1, "p50": p50, "p90": p50 * 1.5, "p99": p50 * 3.0,
           "p999": p50 * 9.0, "max": p50 * 20.0, "count": count})
}

fn reading(slab: u64, sockets: u64, files: u64) -> Value {
    json!({"slab_bytes": slab, "available_bytes": 30_000_000_000_u64, "tcp_allocated": sockets, "files": files,
           "tcp_memory_pages": 4, "conntrack": 0})
}

/// 20,000 connections and 10,000 sockets between two hosts.
fn sample() -> Value {
    let half = json!({
        "tcp": {"opened": 20_000, "most": 20_000, "alive": 20_000},
        "udp": {"opened": 10_000, "most": 10_000, "alive": 10_000},
        "workers": 2, "cpu_seconds": {"user": 0.25, "system": 1.5}, "user_bytes": 4_000_000,
        "memory": {"before": reading(300_000_000, 12, 1_000), "height": reading(400_000_000, 20_012, 31_100),
                   "after": reading(301_000_000, 12, 1_000)},
        "limits": {"descriptors_each": 20_000, "workers_most": 256, "files": 2_466_170,
                   "port_range": [32_768, 60_999], "somaxconn": 4096, "syn_backlog": 4096,
                   "tcp_memory_pages": [100_000, 200_000, 300_000], "conntrack": 262_144},
    });
    let mut server = half.clone();
    server["limits"]["owner_connections"] = json!(100_000);
    json!({
        "schema": "linerate.capacity/1", "started_at": "2026-01-01T00:00:00Z", "host": "pit",
        "peer": "198.18.0.2:5201", "family": "ipv4", "status": "complete",
        "test": {"connections": 20_000, "udp_sockets": 10_000, "hold": 5.0, "heartbeat": 1.0, "churn_per_s": 100,
                 "load": {"connections": 200, "pace": {"per_second": 1_000}, "time": 1.0, "request_bytes": 64,
                          "response_bytes": 1024},
                 "latency": true, "find_limit": false, "seed": 1},
        "tcp": {"asked": 20_000, "opened": 20_000, "alive": 20_000, "connect_per_s": 124_000.0,
                "connect_seconds": 0.161, "syn_retransmissions": 3, "heartbeats_sent": 100_000,
                "heartbeats_answered": 100_000, "kernel_bytes_each": 5_017.0, "user_bytes_each": 112.0,
                "server_user_bytes_each": 120.0, "heartbeat_latency_us": latency(900.0, 100_000),
                "connect_latency_us": {"first_try": latency(230.0, 19_997), "retransmitted": latency(1e6, 3),
                                       "histogram": []}},
        "udp": {"asked": 10_000, "opened": 10_000, "alive": 10_000, "connect_per_s": 297_000.0,
                "connect_seconds": 0.034, "kernel_bytes_each": 2_400.0},
        "latency": [{"population": 0, "latency_us": latency(30.0, 2_000)},
                    {"population": 20_000, "latency_us": latency(31.5, 2_000)}],
        "churn": {"asked_per_s": 100, "closed": 500, "opened": 500, "per_s": 99.8},
        "load": {"connections": 200, "transactions": 1_000, "transactions_per_s": 999.0, "late": 2,
                 "latency_us": latency(45.0, 1_000)},
        "client": half, "server": server, "seconds": 8.25, "close_seconds": 0.3, "environment": {"client": {}},
        "caveats": [], "seed": 1,
    })
}

pub(crate) fn document() -> CapacityDocument {
    serde_json::from_value(sample()).expect("it is a document")
}

fn page(value: Value) -> String {
    let mut document: CapacityDocument = serde_json::from_value(value).expect("it is a document");
    annotate(&mut document);
    document.text(whole())
}

#[test]
fn what_was_held_what_it_cost_and_what_comes_next() {
    assert_snapshot!("capacity_held", page(sample()));
}

#[test]
fn where_it_stopped_why_and_what_helps() {
    let mut value = sample();
    value["udp"] = Value::Null;
    value["tcp"] = json!({"asked": 20_000, "opened": 12_010, "alive": 12_000, "lost": 10,
        "losses": [{"cause": "reset", "count": 10}], "failures": [{"cause": "timed_out", "count": 7_990}]});
    value["client"]["tcp"] = json!({"opened": 12_010, "most": 12_010, "alive": 12_000,
        "failures": [{"cause": "timed_out", "count": 7_990}]});
    value["server"]["counters"] = json!({"ListenOverflows": 8_123});
    value["test"]["churn_per_s"] = json!(0);
    for key in ["churn", "load", "latency"] {
        value.as_object_mut().expect("a document").remove(key);
    }
    assert_snapshot!("capacity_stopped", page(value));
}

#[test]
fn a_search_says_what_held_and_what_did_not() {
    let mut value = sample();
    value["search"] = json!({"holds": 19_980, "stops_at": 20_179, "most": 100_000,
        "rounds": [{"asked": 16_384, "held": 16_384}, {"asked": 32_768, "held": 19_980}]});
    let page = page(value);
    assert!(page.contains("holds 19,980, not 20,179"), "{page}");
    assert!(page.contains("tried 16,384, 32,768 (19,980 held)"), "{page}");
}

#[test]
fn a_run_that_was_ended_does_not_say_how_long_it_held() {
    let mut value = sample();
    value["status"] = json!("partial");
    let page = page(value);
    assert!(page.contains("alive when it was ended, none lost"), "{page}");
    assert!(page.contains("ended before its time"), "{page}");
}

#[test]
fn nothing_that_an_endpoint_says_moves_the_cursor() {
    let mut value = sample();
    value["host"] = json!("pit\u{1b}[2J");
    value["server"]["caveats"] = json!([]);
    value["caveats"] = json!([{"kind": "partial", "message": "a\u{1b}b", "remedy": "c\u{1b}d"}]);
    assert!(!page(value).contains('\u{1b}'));
}

#[test]
fn the_details_fit_80_columns() {
    let style = Style { details: true, ..Style::default() };
    let text = document().text(style);
    let is_command = |line: &str| line.trim_start().starts_with("linerate ");
    for line in text.lines().filter(|line| !is_command(line)) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

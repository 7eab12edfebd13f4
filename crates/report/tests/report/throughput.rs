//! What a terminal shows of a search for the rate that gets through.

use insta::assert_snapshot;
use linerate_core::throughput::ThroughputDocument;
use linerate_report::Document;
use linerate_report::text::Style;
use serde_json::{Value, json};

use crate::samples::whole;

fn trial(per_s: f64, lost: f64, growth: f64, carried: bool) -> Value {
    json!({"asked_per_s": per_s, "sent_per_s": per_s, "seconds": 1.0, "lost_percent": lost,
           "socket_drops_percent": 0.0, "delay_growth_percent": growth, "carried": carried})
}

fn row(direction: &str, frame: f64, carries: f64, limited_by: &str) -> Value {
    json!({"direction": direction, "frame_bytes": frame as u64, "datagram_bytes": frame as u64 - 46,
           "frames_per_s": carries, "frames_bps": carries * frame * 8.0,
           "throughput_bps": carries * (frame - 46.0) * 8.0,
           "line_percent": carries * (frame + 20.0) * 8e-7,
           "fails_at_frames_per_s": carries * 1.01, "lost_percent": 0.62, "delay_growth_percent": 0.4,
           "settled": frame > 64.0, "limited_by": limited_by,
           "burst": {"frames": 66, "bytes": 66 * frame as u64, "fails_at_frames": 67, "delay_us": 3_100.0,
                     "store": "queue"},
           "verdict": {"cause": "path_rate", "evidence": ["2.1 % of the datagrams were lost on the path, \
               behind a queue that added 24.0 ms; the sender slept in send for 0 % of the time"]},
           "trials": [trial(carries * 4.0, 74.9, 0.02, false), trial(carries, 0.0, 0.001, true)]})
}

fn sample(direction: &str, loss: f64, rows: Value) -> ThroughputDocument {
    let value = json!({
        "schema": "linerate.throughput/1", "started_at": "2026-01-01T00:00:00Z", "host": "pit",
        "peer": "198.18.0.2:5201", "family": "ipv4", "status": "complete",
        "test": {"frame_bytes": [64, 1518], "direction": direction, "seed": 1, "bursts": true,
                 "goal": {"loss_percent": loss, "width_percent": 1.0, "trial": 1.0, "trials": 3}},
        "rows": rows, "link_bps": 1e9, "seconds": 27.5, "environment": {"client": {}}, "caveats": [],
    });
    serde_json::from_value(value).expect("it is a document")
}

pub(crate) fn document() -> ThroughputDocument {
    sample(
        "up",
        0.0,
        json!([row("up", 64.0, 130_000.0, "sender"), row("up", 1518.0, 81_000.0, "path")]),
    )
}

#[test]
fn the_page_has_the_largest_rate_first_and_each_size_with_what_ends_it() {
    assert_snapshot!(document().text(Style::default()));
    assert_snapshot!("throughput_details", document().text(whole()));
}

#[test]
fn both_directions_stand_apart_and_losses_at_any_rate_are_named() {
    let mut lossy = row("down", 1518.0, 0.0, "losses");
    for key in ["frames_per_s", "frames_bps", "throughput_bps", "line_percent", "verdict"] {
        lossy.as_object_mut().expect("a row").remove(key);
    }
    lossy["fails_at_frames_per_s"] = json!(100.0);
    let rows = json!([row("up", 1518.0, 81_000.0, "receiver"), lossy]);
    assert_snapshot!(sample("both", 0.01, rows).text(Style::default()));
}

#[test]
fn a_history_has_each_size_by_its_name() {
    let observed = document().observed();
    let names: Vec<&str> = observed.figures().map(|(name, _)| name).collect();
    assert_eq!(names, ["up.64.frames_per_s", "up.1518.frames_per_s"]);
}

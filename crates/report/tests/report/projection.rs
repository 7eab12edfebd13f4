//! What a change would bring, as text.

use linerate_core::profile::projection::{CostModel, Projection, Unprojected};
use linerate_report::text::projections;
use serde_json::json;

use crate::samples::whole;

fn model() -> CostModel {
    let cost = |term: &str, ns: f64, share: f64| json!({"term": term, "ns": ns, "interval_ns": [0.8 * ns, 1.2 * ns], "share_percent": share});
    let end = |end: &str, terms: Vec<serde_json::Value>, groups: serde_json::Value| json!({"end": end, "terms": terms, "not_told_apart": groups, "residual_percent": 4.2, "runs": 39});
    let sender = vec![cost("packet", 412.0, 61.0), cost("byte", 0.0712, 39.0)];
    let receiver = vec![cost("call", 1200.0, 12.0), cost("byte", 0.15, 88.0)];
    let model = json!({
        "protocol": "tcp",
        "ends": [end("sender", sender, json!([["call", "aggregate"]])), end("receiver", receiver, json!([]))],
        "points": ["base", "cut"],
    });
    serde_json::from_value(model).expect("as the types have it")
}

fn projection(name: &str, more: serde_json::Value) -> Projection {
    let mut one = json!({
        "what_if": name,
        "says": "packets of 9000 bytes",
        "from": "cut",
        "basis": "model",
        "throughput_now_bps": 2.93e9,
        "throughput_bps": 7.1e9,
        "throughput_interval_bps": [6.8e9, 7.4e9],
        "ends": [{"end": "sender", "now_us_per_kib": 0.824, "then_us_per_kib": 0.301, "interval_us_per_kib": [0.28, 0.33]},
            {"end": "receiver", "now_us_per_kib": 0.77, "then_us_per_kib": 0.29, "interval_us_per_kib": [0.26, 0.31]}],
        "ceiling": "cpu_send",
    });
    let fields = one.as_object_mut().expect("as the types have it");
    fields.extend(more.as_object().expect("as the types have it").clone());
    serde_json::from_value(one).expect("as the types have it")
}

#[test]
fn costs_projections_and_proofs() {
    let proved = |projected: f64, measured: f64, interval: serde_json::Value| {
        json!({"projected_ratio": projected, "measured_ratio": measured, "measured_interval": interval,
               "error_percent": 100.0 * (projected / measured - 1.0)})
    };
    let proof = json!({
        "a": "client.tso=off", "b": "client.tso=off,client.mtu=9000", "pairs": 8, "verdict": "DIFFERENT",
        "throughput": proved(2.42, 2.25, json!([2.11, 2.4])),
        "cpu": [proved(0.365, 0.38, json!(null)), proved(0.377, 0.36, json!([0.3, 0.4]))],
    });
    let all = [
        projection("segments_9000", json!({"proof": proof})),
        projection(
            "half_the_interrupts",
            json!({"doubts": ["the sender's runs do not tell apart the costs of a call, a large \
                packet sent"],
                   "not_proved": "no setting asks for a number of them"}),
        ),
    ];
    let other = json!({"what_if": "interrupts_held_back", "says": "interrupts held back",
        "why": "there is no run of the design's `held_back_64k`: cannot set rx_usecs of veth0: the \
            driver does not have it"});
    let other: Unprojected = serde_json::from_value(other).expect("as the types have it");
    insta::assert_snapshot!(projections(&[model()], &all, &[other], whole()));
}

#[test]
fn a_page_without_projections_has_no_section_of_them() {
    assert_eq!(projections(&[], &[], &[], whole()), "");
}

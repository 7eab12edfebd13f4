//! Traces: what a hop's line and the sentences below it say.

use linerate_core::trace::TraceDocument;
use linerate_report::Document;
use linerate_report::text::{Style, watch};
use serde_json::{Value, json};

fn probe(rtt_us: Option<f64>, attempt: u8) -> Value {
    let mut probe = json!({"sent_us": 0.0, "flow": 0, "attempt": attempt});
    if let Some(rtt_us) = rtt_us {
        probe["rtt_us"] = json!(rtt_us);
        probe["address"] = json!("192.0.2.1");
        probe["answer"] = json!({"kind": "time_exceeded"});
    }
    probe
}

/// Three hops: one that limits its answers and has its DSCP changed, one silent, the target.
pub(crate) fn sample() -> Value {
    json!({
        "schema": "linerate.trace/1", "started_at": "2026-01-01T00:00:00Z", "host": "far.example",
        "target": "192.0.2.9", "kind": "udp", "method": "UDP socket, raw ICMP socket",
        "port": 33434, "first_ttl": 1, "last_ttl": 30, "probes_per_hop": 3, "size_bytes": 60,
        "dscp": 46, "ecn": 0, "reached": true, "end": {"reason": "reached", "ttl": 3},
        "end_words": "192.0.2.9 answers at hop 3",
        "hops": [
            {"ttl": 1, "address": "192.0.2.1", "name": "near.example", "rtt_us": [1000.0, 1250.0],
             "fate": "rate_limited", "sent": 4, "dscp": 0, "ecn": 0, "is_remarked": true,
             "return_hops": 1, "mpls": [{"label": 77, "traffic_class": 0, "is_bottom": true, "ttl": 1}],
             "probes": [probe(Some(1000.0), 0), probe(None, 0), probe(None, 0), probe(Some(1250.0), 1)]},
            {"ttl": 2, "rtt_us": [], "fate": "silent", "sent": 4,
             "probes": [probe(None, 0), probe(None, 0), probe(None, 0), probe(None, 1)]},
            {"ttl": 3, "address": "192.0.2.9", "rtt_us": [30000.0, 30100.0, 30200.0],
             "fate": "answers", "sent": 3, "return_hops": 5, "is_translated": true,
             "probes": [probe(Some(30000.0), 0), probe(Some(30100.0), 0), probe(Some(30200.0), 0)]},
        ],
        "delay": {"hops": [], "steps": [], "is_largest_clear": false, "words": ["The delay in \
            words."]},
        "mtu": {"mtu_bytes": 1400, "sent": 9, "narrowings": [
            {"after_ttl": 1, "mtu_bytes": 1400, "is_told": false}]},
        "probes_sent": 11, "answers": 5, "answers_late": 0, "answers_duplicate": 0,
        "answers_foreign": 0, "seconds": 0.1, "seed": 1
    })
}

pub(crate) fn document(value: Value) -> TraceDocument {
    serde_json::from_value(value).expect("the sample is a document")
}

fn line<'a>(page: &'a str, start: &str) -> &'a str {
    let found = page.lines().find(|line| line.trim_start().starts_with(start));
    found.unwrap_or_else(|| panic!("no line begins with {start}:\n{page}"))
}

#[test]
fn a_trace_has_a_line_for_each_hop_with_what_is_worth_knowing_of_it() {
    let style = Style { width: 160, details: true, ..Style::default() };
    let page = document(sample()).text(style);
    let first = line(&page, "1 ");
    for words in [
        "near.example (192.0.2.1)",
        "1.00",
        "1.25",
        "limits its answers",
        "MPLS label 77",
        "DSCP 0",
    ] {
        assert!(first.contains(words), "{words}: {first}");
    }
    assert_eq!(first.matches('*').count(), 1, "a later answer stands for a missing one: {first}");
    assert!(!first.contains("answers over"), "as many hops back as there: {first}");
    assert!(line(&page, "2 ").contains("silent"));
    let last = line(&page, "3 ");
    assert!(last.contains("answers over 5 hops") && last.contains("NAT"), "{last}");
}

#[test]
fn the_sentences_say_where_packets_are_changed() {
    let page = document(sample()).text(Style::default()).replace('\n', " ");
    for words in [
        "far.example answers at hop 3.",
        "The delay in words.",
        "remarked before hop 1: DSCP 46 becomes 0",
        "A NAT before hop 3",
        "1400 B reach the target; behind hop 1 1400 B fit and NO message says so",
    ] {
        assert!(page.contains(words), "{words}:\n{page}");
    }
}

#[test]
fn a_step_whose_ways_back_differ_says_so_at_the_hop_where_it_ends() {
    let step = |extra: Value| {
        json!({"after_ttl": 1, "to_ttl": 3, "added_us": 29000.0, "interval_us": [28900.0, 29100.0],
            "coverage": 0.9, "is_known_to_add": true, "seen_from_ttl": 3,
            "return_extra_hops": extra})
    };
    let says = |extra: Value| {
        let mut value = sample();
        value["delay"]["steps"] = json!([step(extra)]);
        let page = document(value).text(Style { width: 160, ..Style::default() });
        page.contains("answers over 5 hops; its step of 29.0 ms may be on the way back")
    };
    assert!(says(json!(2)));
    assert!(!says(json!(0)) && !says(Value::Null));
}

#[test]
fn balancing_by_packet_is_said_and_belongs_to_no_path() {
    let mut value = sample();
    let node =
        |address: &str| json!({"address": address, "flows": [0, 1], "rtt_us": [9000.0, 9100.0]});
    let level = |ttl: u8, addresses: &[&str]| {
        let nodes: Vec<Value> = addresses.iter().map(|address| node(address)).collect();
        json!({"ttl": ttl, "nodes": nodes, "unanswered": 0, "is_by_packet": nodes.len() > 1})
    };
    value["paths"] = json!({"confidence": 0.95, "is_complete": true, "links": [],
        "probes_sent": 20, "seconds": 0.1,
        "levels": [level(1, &["192.0.2.1"]), level(2, &["192.0.2.2", "192.0.2.3"]),
            level(3, &["192.0.2.9"])],
        "paths": [{"flows": [0, 1], "hops": ["192.0.2.1", null, "192.0.2.9"], "is_whole": true,
            "rtt_us": [[1000.0], [9000.0], [30000.0]]}]});
    let page = document(value.clone()).text(Style::default());
    let words = page.replace('\n', " ");
    assert!(
        words.contains("answered by several routers at hop 2: a router before balances by packet")
    );
    assert!(line(&page, "path 1").contains("2 of the flows"), "{page}");
    assert!(page.contains("192.0.2.2 or 192.0.2.3, by packet"), "{page}");
    assert!(page.contains("1 path;"), "{page}");
    // Without `--paths` the probes of a hop show it.
    value["paths"] = Value::Null;
    value["hops"][0]["is_by_packet"] = json!(true);
    value["hops"][0]["other_addresses"] = json!(["192.0.2.3"]);
    let page = document(value).text(Style { width: 160, ..Style::default() });
    assert!(page.replace('\n', " ").contains("several routers at hop 1:"), "{page}");
    assert!(line(&page, "1 ").contains("also 192.0.2.3; "), "{page}");
    assert!(line(&page, "1 ").contains("balanced by packet"), "{page}");
}

/// Hops 2 and 3 have labels and answer as late as the tunnel's end.
#[test]
fn the_chart_adds_a_tunnels_delay_at_its_end() {
    let hop = |ttl: u8, path_us: f64, step: usize| {
        json!({"ttl": ttl, "least_us": path_us, "median_us": path_us, "path_us": path_us,
            "slow_answer_us": 0.0, "step": step})
    };
    let step = |after: Value, to: u8, added_us: f64, tunnel: Value| {
        json!({"after_ttl": after, "to_ttl": to, "added_us": added_us, "coverage": 0.9,
            "interval_us": [added_us, added_us], "is_known_to_add": true, "seen_from_ttl": to,
            "tunnel_ttls": tunnel})
    };
    let mut value = sample();
    value["delay"]["hops"] =
        json!([hop(1, 1000.0, 0), hop(2, 41000.0, 1), hop(3, 41000.0, 1), hop(4, 41000.0, 1)]);
    value["delay"]["steps"] = json!([
        step(Value::Null, 1, 1000.0, Value::Null),
        step(json!(1), 4, 40000.0, json!([2, 3]))
    ]);
    let shown: Box<dyn Document> = Box::new(document(value));
    let page = linerate_report::html::page(&mut [shown.into()]).replace('\u{a0}', " ");
    let inside = page.matches("41.0 ms, inside an MPLS tunnel").count();
    let at_its_end = page.matches("41.0 ms, 40.0 ms of it added here").count();
    assert!(at_its_end > 0 && inside == 2 * at_its_end, "{inside} and {at_its_end}");
}

#[test]
fn the_way_back_stands_beside_the_way_there_with_the_networks_of_both() {
    let mut back = sample();
    back["target"] = json!("198.18.0.1");
    back["hops"][0]["address"] = json!("198.18.0.77");
    back["hops"][0]["name"] = Value::Null;
    back["hops"][0]["asn"] = json!(64500);
    back["hops"][0]["as_name"] = json!("a name that is longer than a column");
    back["hops"][0]["other_asns"] = json!([64501]);
    let mut value = sample();
    let loss = json!({"sent": 200, "received": 150, "lost": 50, "lost_percent": 25.0,
        "interval_percent": [19.5, 31.4], "duplicated": 0, "reordered": 0});
    value["reverse"] = json!({"endpoint": "192.0.2.9:5201", "trace": back, "loss_there": loss,
        "words": ["On the way there 50 were lost."], "caveats": [
            {"kind": "not_readable", "message": "losses back are not known", "remedy": ""}]});
    let style = Style { width: 160, details: true, ..Style::default() };
    let page = document(value.clone()).text(style);
    let (there, here) = page
        .split_once("the way back, as 192.0.2.9:5201 traces it to 198.18.0.1")
        .expect("two parts");
    assert!(!there.contains("198.18.0.77") && !there.contains("64500"), "{there}");
    let first = line(here, "1 ");
    assert!(first.contains("198.18.0.77"), "{first}");
    assert!(first.contains("64500/64501 a name that is longe"), "{first}");
    for words in ["50 were lost", "losses back are not known"] {
        assert!(here.contains(words), "{words}: {here}");
    }
    value["reverse"]["trace"] = Value::Null;
    let page = document(value).text(style);
    assert!(page.contains("the way back is not known"), "{page}");
}

#[test]
fn a_watch_has_the_columns_of_mtr_and_the_changes_of_the_path() {
    let mut value = sample();
    value["watch"] = json!({"rounds": 2, "forgotten_changes": 0,
        "rows": [{"ttl": 1, "address": "192.0.2.1", "loss_percent": 50.0, "sent": 2,
            "rtt_us": {"last": 2000.0, "mean": 2000.0, "best": 1000.0, "worst": 3000.0,
                       "deviation": 1000.0, "p50": 2000.0, "p99": 3000.0, "jitter": 100.0},
            "recent_us": [1000.0, null, 3000.0]}],
        "changes": [{"at_s": 1.5, "ttl": 1, "from": "192.0.2.7", "to": "192.0.2.1"}]});
    let document = document(value);
    let report = document.text(Style::default());
    for head in ["Loss%", "Snt", "Last", "Avg", "Best", "Wrst", "StDev"] {
        assert!(report.contains(head), "{head}:\n{report}");
    }
    assert!(report.contains("hop 1 was 192.0.2.7 and is 192.0.2.1"), "{report}");
    assert!(!report.contains("a limit of answers"), "{report}");
    let screen = watch(&document, Style { width: 160, ..Style::default() });
    assert!(screen.contains("▁?█"), "{screen}");
}

#[test]
fn a_hop_that_answers_some_probes_only_is_told_from_loss_of_the_path() {
    let mut value = sample();
    let row = |ttl: u8, loss_percent: f64| {
        json!({"ttl": ttl, "address": "192.0.2.1", "loss_percent": loss_percent, "sent": 9,
            "rtt_us": {"last": 1000.0, "mean": 1000.0, "best": 1000.0, "worst": 1000.0,
                       "deviation": 0.0, "p50": 1000.0, "p99": 1000.0, "jitter": 0.0},
            "recent_us": [1000.0]})
    };
    value["watch"] = json!({"rounds": 9, "forgotten_changes": 0, "changes": [],
        "rows": [row(1, 66.7), row(2, 11.0), row(3, 11.0)]});
    let report = document(value).text(Style::default());
    let says = "Hop 1 answers some probes only, and hops beyond lose fewer";
    assert!(report.contains(says), "{report}");
}

#[test]
fn a_name_cannot_move_the_cursor() {
    let mut value = sample();
    value["hops"][0]["name"] = json!("evil\u{1b}[2J");
    assert!(!document(value).text(Style::default()).contains('\u{1b}'));
}

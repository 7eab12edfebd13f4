//! Policies: what status, stats and explanations say.

use std::collections::BTreeMap;

use linerate_qos::document::{FileReport, QosDocument};
use linerate_qos::explain::{Packet, explain};
use linerate_qos::policy::{NoNames, PolicyFile};
use linerate_report::Document;
use linerate_report::text::{Style, qos_rates, qos_stats};
use serde_json::json;

fn counters(packets: u64) -> serde_json::Value {
    json!({"packets": packets, "bytes": packets * 1000, "dropped_packets": 0, "dropped_bytes": 0,
           "green": 0, "yellow": 0, "red": 0})
}

fn class(id: &str, rate_bps: u64, priority: u8) -> serde_json::Value {
    json!({"id": id, "rate_bps": rate_bps, "ceil_bps": 100_000_000, "priority": priority, "bytes": 1_234_567,
           "packets": 1234, "drops": 5, "overlimits": 7, "backlog_bytes": 3028, "lends": 1000, "borrows": 234})
}

/// One interface that filters with two policies, one with a meter; one passing through; one that is
/// not as it should be.
pub(crate) fn sample(packets: u64) -> QosDocument {
    let document = json!({
        "schema": "linerate.qos/1",
        "adapters": [
            {"name": "eth0", "index": 2, "addresses": ["198.18.0.1/24", "2001:2::1/64"], "kind": "ethernet",
             "speed_bps": 1_000_000_000, "rate_bps": 100_000_000, "state": "filtering", "attached": "tcx",
             "ingress": false, "gso_max_size_bytes": 12_500,
             "policies": [
                {"name": "voice", "dscp": 46, "vlan_priority": 5, "reserve_bps": 10_000_000, "priority": 0,
                 "drop": false, "class": class("4c51:12", 10_000_000, 0), "egress": counters(packets),
                 "filters": [
                    {"name": "rtp", "priority": 10, "protocols": ["udp"],
                     "conditions": ["destination port \
                         16384-32767", "dscp 46"], "egress": counters(packets)},
                    {"name": "sip", "priority": 1000, "protocols": ["tcp", "udp"],
                     "conditions": ["port 5060-5061"], "egress": counters(0)}]},
                {"name": "bulk", "limit_bps": 50_000_000, "meter": "srTCM 10 Mbit/s, bursts 64 KiB \
                    and 0 B, red AF13",
                 "drop": false, "egress": {"packets": 100, "bytes": 150_000, "dropped_packets": 3,
                 "dropped_bytes": 4542, "green": 80, "yellow": 0, "red": 20},
                 "filters": [{"name": "rest", "priority": 2000, "egress": counters(100)}]}],
             "default_class": class("4c51:2", 90_000_000, 7)},
            {"name": "tun0", "index": 5, "addresses": [], "kind": "raw_ip", "state": "passing_through",
             "attached": "clsact", "ingress": true, "policies": []},
            {"name": "eth1\u{1b}[2J", "index": 3, "addresses": [], "kind": "ethernet", "state": "failed",
             "fault": "its program is not there any more: somebody removed it; apply it again",
             "ingress": false, "policies": []}],
    });
    serde_json::from_value(document).expect("the document that was just written")
}

const FILE: &str = r#"
[filter.rtp]
protocol = "udp"
destination_port = "16384-32767"
policy = "voice"
priority = 10

[filter.late]
protocol = "udp"
destination_port = 20000
policy = "voice"
priority = 20

[policy.voice]
dscp = "EF"

[adapter.eth0]
policies = ["voice"]
"#;

#[test]
fn status_says_what_is_in_force() {
    insta::assert_snapshot!(sample(1234).text(Style::default()));
}

#[test]
fn status_lists_filters_where_details_are_asked_for() {
    let style = Style { details: true, ..Style::default() };
    insta::assert_snapshot!(sample(1234).text(style));
}

#[test]
fn stats_say_what_was_counted() {
    insta::assert_snapshot!(qos_stats(&sample(123_456), Style::default()));
}

#[test]
fn rates_are_of_the_time_between() {
    let text = qos_rates(&sample(1000), &sample(3000), 2.0, Style::default());
    insta::assert_snapshot!(text);
}

#[test]
fn a_file_is_told_with_its_doubts_and_a_packet_with_its_filter() {
    let file = PolicyFile::from_toml(FILE, &mut NoNames).unwrap();
    let mut report = FileReport::new(&file, &BTreeMap::new()).unwrap();
    report.name = Some("office.toml".to_owned());
    let mut text = QosDocument::from(report).text(Style::default());
    for packet in ["udp 198.18.0.1:9 > 198.18.0.2:20000", "tcp 198.18.0.1:9 > 198.18.0.2:80"] {
        let packet: Packet = packet.parse().unwrap();
        let report = explain(&file, &file.adapters[0], &packet).unwrap();
        text += "\n";
        text += &QosDocument::from(report).text(Style::default());
    }
    insta::assert_snapshot!(text);
}

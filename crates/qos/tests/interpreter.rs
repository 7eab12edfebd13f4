//! Rules as they are made, and what becomes of packets, by hand-written cases.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write;

use linerate_core::units::Dscp;
use linerate_qos::explain::Packet;
use linerate_qos::interpret::{Colour, CounterReport, Decision, State, interpret};
use linerate_qos::packet::{Fields, LinkType, Metadata};
use linerate_qos::policy::{CgroupPath, Family, NoNames, PolicyFile};
use linerate_qos::rules::{Bindings, Cgroup, Field, MAX_RULES, RuleError, RuleSet, Slot};

fn read(text: &str) -> PolicyFile {
    PolicyFile::from_toml(text, &mut NoNames).unwrap()
}

fn rules(text: &str) -> RuleSet {
    let file = read(text);
    RuleSet::new(&file, &file.adapters[0], &Bindings::stand_in(&file)).unwrap()
}

/// One filter with these conditions, on a policy with these keys.
fn one(conditions: &str, policy: &str) -> String {
    format!(
        "[filter.f]\npolicy = \"p\"\n{conditions}\n[policy.p]\n{policy}\n[adapter.eth0]\npolicies \
         = [\"p\"]\n"
    )
}

fn counts(conditions: &str) -> [usize; 3] {
    let rules = rules(&one(conditions, "dscp = 1"));
    [Family::V4, Family::V6, Family::Other].map(|family| rules.family(family).len())
}

#[test]
fn a_filter_has_rules_in_the_families_that_it_allows() {
    for (conditions, expected) in [
        ("uid = 1", [1, 1, 1]),
        ("vlan = 5", [1, 1, 1]),
        ("protocol = \"udp\"", [1, 1, 0]),
        ("family = \"ipv6\"", [0, 1, 0]),
        ("family = \"other\"", [0, 0, 1]),
        ("source = \"198.18.0.0/15\"", [1, 0, 0]),
        ("destination = \"2001:2::/48\"", [0, 1, 0]),
        ("source = [\"198.18.0.0/15\", \"2001:2::/48\"]", [1, 1, 0]),
        ("address = \"198.18.0.0/15\"", [2, 0, 0]),
        ("port = 80", [2, 2, 0]),
        ("address = \"198.18.0.0/15\"\nport = 80", [4, 0, 0]),
        ("ethertype = \"ipv4\"", [1, 0, 0]),
        ("ethertype = \"arp\"", [0, 0, 1]),
        ("ethertype = \"0x0800-0x0806\"", [1, 0, 1]),
        ("flow_label = 1", [0, 1, 0]),
        ("icmp_type = 8", [1, 1, 0]),
        // IPv6 packets of ICMP for IPv4 have no type that is seen.
        ("icmp_type = 8\nprotocol = \"icmp\"", [1, 0, 0]),
        ("uid = 65534", [0, 0, 0]),
        ("cgroup = [\"/a\", \"/b\"]", [1, 1, 1]),
        ("cgroup = [\"/a\", \"/b/c\"]", [2, 2, 2]),
        // What both ends must be in is asked once where the ranges leave nothing of the other.
        ("address = \"198.18.0.1\"\nsource = \"198.18.0.2\"", [1, 0, 0]),
    ] {
        assert_eq!(counts(conditions), expected, "{conditions}");
    }
}

#[test]
fn rules_stand_by_priority_then_by_place() {
    let mut text = String::new();
    for (name, priority) in [("a", 30), ("b", 10), ("c", 30), ("d", 10)] {
        let filter = format!("[filter.{name}]\nport = 80\npolicy = \"p\"\npriority = {priority}\n");
        text.push_str(&filter);
    }
    text.push_str("[policy.p]\ndscp = 1\n[adapter.eth0]\npolicies = [\"p\"]\n");
    let rules = rules(&text);
    let order: Vec<_> = rules.v4.iter().map(|rule| rules.filters[rule.filter].0.as_str()).collect();
    assert_eq!(order, ["b", "b", "d", "d", "a", "a", "c", "c"]);
}

#[test]
fn only_filters_of_the_adapters_policies_make_rules() {
    let file = read(
        "[filter.a]\nuid = 1\npolicy = \"p\"\n[filter.b]\nuid = 2\npolicy = \"q\"\n\
         [policy.p]\ndscp = 1\n[policy.q]\ndscp = 2\n\
         [adapter.eth0]\npolicies = [\"q\"]\n[adapter.eth1]\npolicies = [\"q\", \"p\"]\n",
    );
    let bindings = Bindings {
        filter_slots: vec![Slot(7), Slot(9)],
        policy_slots: vec![Slot(3), Slot(4)],
        classes: vec![None, Some(0x1_0010)],
        default_class: Some(0x1_0002),
        ..Bindings::default()
    };
    let eth0 = RuleSet::new(&file, &file.adapters[0], &bindings).unwrap();
    assert_eq!(eth0.filters, [("b".to_owned(), Slot(9))]);
    assert_eq!((eth0.actions[0].slot, eth0.actions[0].class), (Slot(4), Some(0x1_0010)));
    let eth1 = RuleSet::new(&file, &file.adapters[1], &bindings).unwrap();
    assert_eq!(eth1.actions[0].class, Some(0x1_0002), "the default class, for it has none");
    assert_eq!(eth1.v4[1].action, 1);
}

#[test]
fn names_must_be_bound_and_rules_are_bounded() {
    let file = read(&one("cgroup = \"/a\"\nincoming = \"eth1\"", "dscp = 1"));
    let of = |bindings: &Bindings| RuleSet::new(&file, &file.adapters[0], bindings);
    let mut bindings = Bindings::stand_in(&file);
    bindings.interfaces.clear();
    let error = of(&bindings).unwrap_err().to_string();
    assert_eq!(error, "filter `f`: interface `eth1` is not known");
    let path = CgroupPath("/a".to_owned());
    bindings.cgroups.insert(path, Cgroup { id: 5, level: 16 });
    assert!(matches!(of(&bindings), Err(RuleError::CgroupLevel { level: 16, .. })));
    bindings.cgroups.clear();
    assert!(matches!(of(&bindings), Err(RuleError::Cgroup { .. })));

    let mut text = String::new();
    for number in 0..=MAX_RULES / 4 {
        let conditions = "address = \"198.18.0.0/15\"\nport = 80";
        writeln!(text, "[filter.f{number}]\npolicy = \"p\"\n{conditions}").unwrap();
    }
    text.push_str("[policy.p]\ndscp = 1\n[adapter.eth0]\npolicies = [\"p\"]\n");
    let file = read(&text);
    let error = RuleSet::new(&file, &file.adapters[0], &Bindings::stand_in(&file)).unwrap_err();
    assert_eq!(error, RuleError::TooMany { adapter: "eth0".to_owned() });
}

#[test]
fn sets_are_joined_and_nobody_is_in_none() {
    let rules = rules(&one("uid = [\"65533-65535\", 7]\ntcp_flags = \"syn,!ack\"", "dscp = 1"));
    let rule = &rules.v4[0];
    let uids = rule.condition(Field::Uid).unwrap();
    assert_eq!(uids.as_slice(), [(7, 7), (65_533, 65_533), (65_535, 65_535)]);
    let flags = rule.condition(Field::TcpFlags).unwrap();
    for number in 0..=255 {
        assert_eq!(flags.contains(number), number & 0x12 == 0x02, "{number}");
    }
}

/// Decides packets one after the other, at 1 ms, 2 ms, ….
fn decisions(text: &str, packets: &[&str]) -> Vec<Decision> {
    let rules = rules(text);
    let mut state = State::default();
    let decide = |(packet, now): (&&str, u64)| {
        let packet: Packet = packet.parse().unwrap();
        let metadata = packet.metadata(&Bindings::default());
        let fields = Fields::new(packet.frame(), LinkType::Ethernet, &metadata);
        interpret(&rules, &fields, &metadata, now * 1_000_000, &mut state)
    };
    packets.iter().zip(1..).map(decide).collect()
}

const FIRST: &str = "udp 198.18.0.1:5000 > 198.18.0.2:80 fragment=first";
const LATER: &str = "udp 198.18.0.1 > 198.18.0.2 fragment=later";
const FIRST_V6: &str = "udp [2001:2::1]:5000 > [2001:2::2]:80 fragment=first";
const LATER_V6: &str = "udp 2001:2::1 > 2001:2::2 fragment=later";
const LATER_ELSEWHERE: &str = "udp 198.18.0.1 > 198.18.0.3 fragment=later";

#[test]
fn later_fragments_follow_their_first_one_if_they_are_tracked() {
    let plain = one("destination_port = 80", "dscp = \"EF\"");
    let tracked = format!("fragments = \"track\"\n{plain}");
    let taken = |text: &str, packets: &[&str]| -> Vec<bool> {
        decisions(text, packets).iter().map(|decision| decision.rule.is_some()).collect()
    };
    let packets = [LATER, FIRST, LATER, LATER, LATER_ELSEWHERE, LATER_V6, FIRST_V6, LATER_V6];
    let expected = [false, true, true, true, false, false, true, true];
    assert_eq!(taken(&tracked, &packets), expected);
    assert_eq!(taken(&plain, &packets), [false, true, false, false, false, false, true, false]);
    let marked = &decisions(&tracked, &[FIRST, LATER])[1];
    assert_eq!(marked.dscp, Dscp::new(46));
}

#[test]
fn a_mark_that_is_there_is_not_made() {
    let text = one("protocol = \"tcp\"", "dscp = \"EF\"\nvlan_priority = 5");
    let packets = [
        "tcp 198.18.0.1:1 > 198.18.0.2:2",
        "tcp 198.18.0.1:1 > 198.18.0.2:2 dscp=EF vlan=3 vlan_priority=5",
        "tcp 198.18.0.1:1 > 198.18.0.2:2 dscp=EF vlan=3 vlan_priority=4",
        "udp 198.18.0.1:1 > 198.18.0.2:2",
    ];
    let marks: Vec<_> = (decisions(&text, &packets).iter())
        .map(|decision| (decision.dscp.map(|dscp| dscp.octet() >> 2), decision.vlan_priority))
        .collect();
    assert_eq!(marks, [(Some(46), Some(5)), (None, None), (None, Some(5)), (None, None)]);
}

/// The three drop precedences of a class (RFC 2597) by a meter: 1,100 bytes of each burst, 1 bit/s
/// would be too slow to give anything back in the milliseconds between the packets.
const METER: &str = "meter = \
    { kind = \"srtcm\", committed = \"1kbit\", committed_burst = 1100, excess_burst = 1100, \
    colour = \"COLOUR\", green = \"AF11\", yellow = \"AF12\", RED }";

fn metered(colour: &str, drop_red: bool, packets: &[&str]) -> Vec<Decision> {
    let meter = METER
        .replace("COLOUR", colour)
        .replace("RED", if drop_red { "drop_red = true" } else { "red = \"AF13\"" });
    decisions(&one("protocol = \"udp\"", &meter), packets)
}

#[test]
fn a_meter_marks_by_colour_or_drops_red() {
    let packet = "udp 198.18.0.1:1 > 198.18.0.2:2 length=1000";
    let seen = metered("blind", false, &[packet; 3]);
    let colours: Vec<_> = seen.iter().map(|decision| decision.colour.unwrap()).collect();
    assert_eq!(colours, [Colour::Green, Colour::Yellow, Colour::Red]);
    let marks: Vec<_> = seen.iter().map(|decision| decision.dscp.unwrap().to_string()).collect();
    assert_eq!(marks, ["AF11", "AF12", "AF13"]);
    let last = &metered("blind", true, &[packet; 3])[2];
    assert!(last.dropped && last.dscp.is_none() && last.priority.is_none());
    let metadata = Metadata { gso_segments: 3, wire_length: 3042, ..Metadata::default() };
    let expected = CounterReport {
        packets: 3,
        bytes: 3042,
        dropped_packets: 3,
        dropped_bytes: 3042,
        red: 3,
        ..CounterReport::default()
    };
    assert_eq!(last.counts(&metadata), expected);
}

#[test]
fn an_aware_meter_keeps_the_colour_that_a_packet_brings() {
    let packets = ["AF12", "AF13", "AF11", "CS1"]
        .map(|dscp| format!("udp 198.18.0.1:1 > 198.18.0.2:2 length=500 dscp={dscp}"));
    let packets: Vec<_> = packets.iter().map(String::as_str).collect();
    let colours = |colour| -> Vec<_> {
        let seen = metered(colour, false, &packets);
        seen.iter().map(|decision| decision.colour.unwrap()).collect()
    };
    let expected = [Colour::Yellow, Colour::Red, Colour::Green, Colour::Green];
    assert_eq!(colours("aware"), expected);
    // 514 bytes each on the wire: two are within 1,100.
    let expected = [Colour::Green, Colour::Green, Colour::Yellow, Colour::Yellow];
    assert_eq!(colours("blind"), expected);
}

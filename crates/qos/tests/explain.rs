//! What is said of packets: their text, and why a filter does not take them.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::{Ipv4Addr, Ipv6Addr};

use linerate_qos::explain::{ExplanationReport, Packet, explain};
use linerate_qos::packet::{Fields, LinkType};
use linerate_qos::policy::{Mac, NoNames, PolicyFile};
use linerate_qos::rules::{Bindings, Field};
use proptest::prelude::*;

const FILE: &str = r#"
[filter.voice]
protocol = "udp"
source = "198.18.1.0/24"
destination_port = "5000-5010"
priority = 10
policy = "voice"

[filter.web]
protocol = "tcp"
port = [80, 443]
policy = "web"

[filter.six]
destination = "2001:2::/48"
priority = 20
policy = "web"

[filter.office]
address = "198.18.9.0/24"
dscp = "CS1"
policy = "web"

[filter.pings]
icmp_type = 8
policy = "drop"

[filter.service]
cgroup = "/system.slice/backup.service"
policy = "web"

[filter.guests]
incoming = "wlan0"
vlan = "10-12"
policy = "voice"

[policy.voice]
dscp = "EF"
vlan_priority = 5
reserve = "10mbit"

[policy.web]
dscp = "AF21"

[policy.drop]
drop = true

[adapter.eth0]
rate = "100mbit"
policies = ["voice", "web", "drop"]
"#;

fn explained(packet: &str) -> ExplanationReport {
    let file = PolicyFile::from_toml(FILE, &mut NoNames).unwrap();
    explain(&file, &file.adapters[0], &packet.parse().unwrap()).unwrap()
}

/// The filter that takes a packet, and what is said of those before it.
fn told(packet: &str) -> (Option<String>, Vec<String>) {
    let explanation = explained(packet);
    let refused = explanation.refused.iter();
    let refused = refused.map(|refusal| format!("{}: {}", refusal.asked.filter, refusal.why));
    (explanation.taken.map(|taken| taken.filter), refused.collect())
}

#[test]
fn the_first_condition_that_fails_is_said_with_both_values() {
    let (taken, refused) = told("tcp 198.18.0.1:1234 > 198.18.0.2:8080 dscp=EF");
    assert_eq!(taken, None);
    let expected = [
        "voice: source 198.18.0.1 is not in 198.18.1.0/24",
        "six: it is for IPv6 packets, and this is IPv4",
        "web: source port 1234 is not in 80, 443, and destination port 8080 is not in 80, 443",
        "office: source 198.18.0.1 is not in 198.18.9.0/24, and destination 198.18.0.2 is not in \
         198.18.9.0/24",
        "pings: it has no ICMP type: its protocol is tcp",
        "service: it has no control group, /system.slice/backup.service is asked for",
        "guests: it has no VLAN tag",
    ];
    assert_eq!(refused, expected);
}

#[test]
fn keys_have_the_names_of_filters_too() {
    for (ours, filters) in [
        (
            "tcp 198.18.0.1:1 > 198.18.0.2:2 flags=syn",
            "tcp 198.18.0.1:1 > 198.18.0.2:2 tcp_flags=syn",
        ),
        (
            "icmp 198.18.0.1 > 198.18.0.2 type=3 code=4",
            "icmp 198.18.0.1 > 198.18.0.2 icmp_type=3 icmp_code=4",
        ),
    ] {
        assert_eq!(ours.parse::<Packet>(), filters.parse::<Packet>());
    }
    let twice = "tcp 198.18.0.1:1 > 198.18.0.2:2 flags=syn tcp_flags=syn";
    assert!(twice.parse::<Packet>().is_err());
}

#[test]
fn a_length_that_is_assumed_can_be_shown() {
    let shown = |packet: &str| explained(packet).packet;
    assert!(shown("tcp 198.18.0.1:1 > 198.18.0.2:2").ends_with(" length=40"));
    assert!(shown("tcp 198.18.0.1:1 > 198.18.0.2:2 length=99").ends_with(" length=99"));
}

#[test]
fn what_takes_a_packet_ends_the_list() {
    let explanation = explained("tcp 198.18.0.1:1234 > 198.18.0.2:80 dscp=CS1 ecn=ect0");
    let taken = explanation.taken.unwrap();
    assert_eq!((taken.filter.as_str(), taken.priority), ("web", 1000));
    assert_eq!(taken.line, 9);
    assert_eq!(explanation.effects, ["DSCP CS1 becomes AF21"]);
    assert_eq!(explanation.refused.len(), 2);
    let voice = explained("udp 198.18.1.1:40000 > 198.18.0.2:5004 vlan=7 vlan_priority=1");
    let expected =
        ["DSCP CS0 becomes EF", "VLAN priority 1 becomes 5", "in the class of policy `voice`"];
    assert_eq!(voice.effects, expected);
    let ping = explained("icmp 198.18.0.1 > 198.18.0.2");
    assert_eq!(ping.effects, ["dropped"]);
    assert_eq!(ping.taken.unwrap().filter, "pings");
}

#[test]
fn groups_are_those_that_a_path_begins_with() {
    let with = |path: &str| {
        let packet = format!("udp 198.18.0.1:1 > 198.18.0.2:2 cgroup=/system.slice/{path}");
        told(&packet).0
    };
    assert_eq!(with("backup.service").as_deref(), Some("service"));
    assert_eq!(with("backup.service/worker").as_deref(), Some("service"));
    assert_eq!(with("backup.service2"), None);
}

#[test]
fn what_a_packet_has_not_is_said_with_its_reason() {
    let (_, refused) = told("tcp 198.18.0.1 > 198.18.0.2 fragment=later");
    assert!(
        refused.contains(
            &"web: it has no source port: it is a later fragment, and it has no \
            destination port: it is a later fragment"
                .to_owned()
        ),
        "{refused:?}"
    );
    let (taken, refused) = told("arp vlan=11 incoming=wlan0");
    assert_eq!(taken.as_deref(), Some("guests"));
    assert_eq!(refused[0], "voice: it is for IPv4 packets, and this is other");
    let (_, refused) = told("arp vlan=11 incoming=eth7");
    assert!(
        refused.contains(&"guests: it came in by eth7, not by wlan0".to_owned()),
        "{refused:?}"
    );
}

#[test]
fn a_captured_frame_is_a_packet_too() {
    let text = "udp 198.18.1.1:40000 > 198.18.0.2:5004 dscp=CS1";
    let described: Packet = text.parse().unwrap();
    let bytes: String = described.frame().iter().map(|byte| format!("{byte:02x}")).collect();
    let explanation = explained(&format!("hex:{bytes}"));
    assert_eq!(explanation.taken.unwrap().filter, "voice");
    assert_eq!(explanation.effects[0], "DSCP CS1 becomes EF");
    assert_eq!(explanation.packet, format!("{text} length=28"));
    assert_eq!(explained("hex:0a").packet, "a frame that is cut off");
}

#[test]
fn wrong_packets_are_refused_with_what_would_be_right() {
    let wrong = |text: &str| text.parse::<Packet>().unwrap_err().to_string();
    let cases = [
        ("", "a packet is missing"),
        ("tcpp 198.18.0.1:1 > 198.18.0.2:2", "did you mean `tcp`?"),
        ("tcpp", "did you mean `tcp`?"),
        ("tcp", "needs both ends"),
        ("tcp 198.18.0.1:1", "write `tcp 198.18.0.1:1234 >"),
        ("tcp 198.18.0.1:1 to 198.18.0.2:2", "write `tcp 198.18.0.1:1234 >"),
        ("tcp 198.18.0.1 > 198.18.0.2:2", "write 198.18.0.1:80"),
        ("tcp 198.18.0.1:1 > [2001:2::1]:2", "of two families"),
        ("udp 2001:2::1:5 > [2001:2::1]:2", "[2001:2::1]:80"),
        ("icmp 198.18.0.1:5 > 198.18.0.2", "no ports"),
        ("tcp 198.18.0.1:1 > 198.18.0.2:2 dscp=64", "dscp `64`: give 0 to 63"),
        ("tcp 198.18.0.1:1 > 198.18.0.2:2 dcsp=4", "did you mean `dscp`?"),
        ("tcp 198.18.0.1:1 > 198.18.0.2:2 type=8", "no `type`: leave it out"),
        ("tcp 198.18.0.1:1 > 198.18.0.2:2 length=39", "with its headers, at most 65535"),
        ("tcp 198.18.0.1:1 > 198.18.0.2:2 vlan=4095", "give 0 to 4094"),
        ("tcp 198.18.0.1:1 > 198.18.0.2:2 flags=syn,akc", "fin, syn"),
        ("tcp 198.18.0.1:1 > 198.18.0.2:2 uid=1 uid=2", "twice"),
        ("tcp 198.18.0.1:1 > 198.18.0.2:2 vlan_priority=2", "leave it out"),
        ("44 2001:2::1 > 2001:2::2", "behind extension headers"),
        ("ipv4", "says too little"),
        ("arp 198.18.0.1", "has no ends"),
        ("hex:0a0", "two digits for each byte"),
    ];
    for (text, part) in cases {
        let message = wrong(text);
        assert!(message.contains(part), "{text}: {message}");
    }
}

/// The text of a packet, and the fields that it must have.
fn packet() -> impl Strategy<Value = (String, Vec<(Field, Option<u128>)>)> {
    let ip = (any::<u8>(), 0u8..64, 0u8..4, 0u32..1 << 20, 0usize..3);
    let upper = (any::<(u16, u16)>(), any::<u8>(), any::<u8>());
    let ends = (any::<bool>(), any::<(u128, u128)>(), prop::option::of(90u32..60_000));
    let link = (prop::option::of((0u16..4095, 0u8..8)), any::<([u8; 6], [u8; 6])>());
    let beside = (any::<Option<u32>>(), any::<u32>());
    (ip, upper, ends, link, beside).prop_map(|(ip, upper, ends, link, beside)| {
        let (number, dscp, ecn, label, part) = ip;
        let ((source_port, destination_port), kind, code) = upper;
        let (is_v6, ends, length) = ends;
        let (tag, macs) = link;
        let (uid, mark) = beside;
        let protocol = match number {
            0 | 43 | 44 | 51 | 60 | 135 | 139 | 140 => 253,
            ..80 => [6, 17, 33, 132, 136, 1, 58][usize::from(number) % 7],
            other => other,
        };
        let is_later = part == 2;
        let has_ports = [6, 17, 33, 132, 136].contains(&protocol) && !is_later;
        let is_icmp = protocol == if is_v6 { 58 } else { 1 } && !is_later;
        let end = |number: u128, port: u16| match (is_v6, has_ports) {
            (true, true) => format!("[{}]:{port}", Ipv6Addr::from(number)),
            (true, false) => Ipv6Addr::from(number).to_string(),
            (false, true) => format!("{}:{port}", Ipv4Addr::from(number as u32)),
            (false, false) => Ipv4Addr::from(number as u32).to_string(),
        };
        let (from, to) = (end(ends.0, source_port), end(ends.1, destination_port));
        let [source_mac, destination_mac] = [macs.0, macs.1].map(Mac::from);
        let mut text = format!(
            "source_mac={source_mac} {protocol} mark={mark} {from} > {to} dscp={dscp} ecn={ecn} \
             destination_mac={destination_mac}"
        );
        text += ["", " fragment=first", " fragment=later"][part];
        let keys = [
            ("flow_label", is_v6.then_some(label)),
            ("length", length),
            ("uid", uid),
            ("vlan", tag.map(|tag| tag.0.into())),
            ("vlan_priority", tag.map(|tag| tag.1.into())),
            ("type", is_icmp.then_some(kind.into())),
            ("code", is_icmp.then_some(code.into())),
        ];
        for (key, value) in keys {
            text += &value.map_or_else(String::new, |value| format!(" {key}={value}"));
        }
        let address = |number: u128| if is_v6 { number } else { number as u32 as u128 };
        let fields = vec![
            (Field::Protocol, Some(protocol.into())),
            (Field::Source, Some(address(ends.0))),
            (Field::Destination, Some(address(ends.1))),
            (Field::SourcePort, has_ports.then_some(source_port.into())),
            (Field::DestinationPort, has_ports.then_some(destination_port.into())),
            (Field::TcpFlags, (protocol == 6 && has_ports).then_some(0x10)),
            (Field::IcmpType, is_icmp.then_some(kind.into())),
            (Field::IcmpCode, is_icmp.then_some(code.into())),
            (Field::Dscp, Some(dscp.into())),
            (Field::Ecn, Some(ecn.into())),
            (Field::FlowLabel, is_v6.then_some(label.into())),
            (Field::Vlan, tag.map(|tag| tag.0.into())),
            (Field::Mark(0xff0), Some((mark & 0xff0).into())),
            (Field::SourceMac, Some(source_mac.into())),
            (Field::DestinationMac, Some(destination_mac.into())),
            (Field::Uid, uid.filter(|uid| *uid != 65_534).map(u128::from)),
        ];
        let length = length.map(|length| (Field::Length, Some(length.into())));
        (text, fields.into_iter().chain(length).collect())
    })
}

proptest! {
    #[test]
    fn a_packet_has_the_fields_that_are_written((text, expected) in packet()) {
        let packet: Packet = text.parse().unwrap();
        let metadata = packet.metadata(&Bindings::default());
        let fields = Fields::new(packet.frame(), LinkType::Ethernet, &metadata);
        for (field, value) in expected {
            prop_assert_eq!(fields.value(field), value, "{:?} of {}", field, text);
        }
    }

    #[test]
    fn a_packet_is_shown_as_it_is_read((text, _) in packet(), group in "(/[a-z0-9.-]{1,12}){1,4}") {
        let text = format!("{text} cgroup={group} incoming=eth7");
        let shown = explained(&text).packet;
        prop_assert_eq!(shown.parse::<Packet>(), text.parse::<Packet>(), "{}", shown);
    }

    #[test]
    fn any_text_is_a_packet_or_is_refused(text in "\\PC{0,60}", cut in 0usize..80) {
        let _ = text.parse::<Packet>();
        let good = "tcp 198.18.0.1:1234 > 198.18.0.2:80 dscp=EF length=1500 vlan=5 uid=3";
        let mut mixed: String = good.chars().take(cut).collect();
        mixed.push_str(&text);
        let _ = mixed.parse::<Packet>();
    }
}

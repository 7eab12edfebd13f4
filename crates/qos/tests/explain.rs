//! What is said of packets: their text, and why a filter does not take them.

#![allow(clippy::unwrap_used, reason = "a test")]

use linerate_core::units::Dscp;
use linerate_qos::explain::{
    ExplanationReport, Flow, FragmentPart, Packet, Tag, Upper, What, explain,
};
use linerate_qos::packet::Fields;
use linerate_qos::policy::{CgroupPath, Interface, Mac, NoNames, PolicyFile};
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
    (
        explanation.taken.map(|taken| taken.filter),
        refused.collect(),
    )
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
    let packet: Packet = "tcp 198.18.0.1:1 > 198.18.0.2:2".parse().unwrap();
    assert!(packet.with_length().to_string().ends_with(" length=40"));
    let packet: Packet = "tcp 198.18.0.1:1 > 198.18.0.2:2 length=99".parse().unwrap();
    assert_eq!(packet.with_length(), packet);
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
    let expected = [
        "DSCP CS0 becomes EF",
        "VLAN priority 1 becomes 5",
        "in the class of policy `voice`",
    ];
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
    assert_eq!(
        refused[0],
        "voice: it is for IPv4 packets, and this is other"
    );
    let (_, refused) = told("arp vlan=11 incoming=eth7");
    assert!(
        refused.contains(&"guests: it came in by eth7, not by wlan0".to_owned()),
        "{refused:?}"
    );
}

#[test]
fn a_captured_frame_is_a_packet_too() {
    let described: Packet = "udp 198.18.1.1:40000 > 198.18.0.2:5004 dscp=CS1"
        .parse()
        .unwrap();
    let bytes: String = described
        .frame()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let explanation = explained(&format!("hex:{bytes}"));
    assert_eq!(explanation.taken.unwrap().filter, "voice");
    assert_eq!(explanation.effects[0], "DSCP CS1 becomes EF");
}

#[test]
fn wrong_packets_are_refused_at_their_place() {
    let wrong = |text: &str| text.parse::<Packet>().unwrap_err().to_string();
    let cases = [
        ("", 1, "a packet is missing"),
        ("tcpp 198.18.0.1:1 > 198.18.0.2:2", 1, "did you mean `tcp`?"),
        ("tcp", 4, "the source is missing"),
        ("tcp 198.18.0.1:1", 17, "`>` is missing"),
        ("tcp 198.18.0.1:1 to 198.18.0.2:2", 18, "`to` is not `>`"),
        (
            "tcp 198.18.0.1 > 198.18.0.2:2",
            5,
            "is not an address with a port",
        ),
        (
            "tcp 198.18.0.1:1 > [2001:2::1]:2",
            20,
            "of the source's family",
        ),
        ("udp 2001:2::1:5 > [2001:2::1]:2", 5, "[2001:2::1]:80"),
        ("icmp 198.18.0.1:5 > 198.18.0.2", 6, "no ports"),
        (
            "tcp 198.18.0.1:1 > 198.18.0.2:2 dscp=64",
            38,
            "`64` is not a DSCP",
        ),
        (
            "tcp 198.18.0.1:1 > 198.18.0.2:2 dcsp=4",
            33,
            "did you mean `dscp`?",
        ),
        ("tcp 198.18.0.1:1 > 198.18.0.2:2 type=8", 33, "leave it out"),
        (
            "tcp 198.18.0.1:1 > 198.18.0.2:2 length=39",
            40,
            "40 to 65535 bytes",
        ),
        (
            "tcp 198.18.0.1:1 > 198.18.0.2:2 vlan=4095",
            38,
            "give 0 to 4094",
        ),
        (
            "tcp 198.18.0.1:1 > 198.18.0.2:2 flags=syn,akc",
            39,
            "they are fin, syn",
        ),
        ("tcp 198.18.0.1:1 > 198.18.0.2:2 uid=1 uid=2", 39, "twice"),
        (
            "tcp 198.18.0.1:1 > 198.18.0.2:2 vlan_priority=2",
            33,
            "leave it out",
        ),
        ("44 2001:2::1 > 2001:2::2", 1, "behind extension headers"),
        (
            "ipv4 198.18.0.1 > 198.18.0.2",
            1,
            "is not a packet's first word",
        ),
        ("arp 198.18.0.1", 5, "expected here"),
        ("hex:0a0", 1, "two digits for each byte"),
    ];
    for (text, column, part) in cases {
        let message = wrong(text);
        assert!(
            message.starts_with(&format!("packet, column {column}: ")),
            "{text}: {message}"
        );
        assert!(message.contains(part), "{text}: {message}");
    }
}

fn flow() -> impl Strategy<Value = Flow> {
    let numbers = (any::<u8>(), 0u8..64, 0u8..4, 0u32..1 << 20, 0usize..3);
    let upper = (any::<(u16, u16)>(), any::<u8>(), any::<u8>());
    let ends = (
        any::<bool>(),
        any::<(u128, u128)>(),
        prop::option::of(60u32..60_000),
    );
    (numbers, upper, ends).prop_map(
        |((number, dscp, ecn, label, part), (ports, flags, code), (is_v6, ends, length))| {
            let address = |number: u128| {
                if is_v6 {
                    std::net::Ipv6Addr::from(number).into()
                } else {
                    std::net::Ipv4Addr::from(number as u32).into()
                }
            };
            let protocol = match number {
                0 | 43 | 44 | 51 | 60 | 135 | 139 | 140 => 253,
                ..80 => [6, 17, 33, 132, 136, 1, 58][usize::from(number) % 7],
                other => other,
            };
            let fragment = [
                FragmentPart::Whole,
                FragmentPart::First,
                FragmentPart::Later,
            ][part];
            let upper = match protocol {
                _ if fragment == FragmentPart::Later => Upper::Nothing,
                6 => Upper::Tcp { ports, flags },
                17 | 33 | 132 | 136 => Upper::Ports(ports.0, ports.1),
                1 if !is_v6 => Upper::Icmp { kind: flags, code },
                58 if is_v6 => Upper::Icmp { kind: flags, code },
                _ => Upper::Nothing,
            };
            Flow {
                source: address(ends.0),
                destination: address(ends.1),
                protocol,
                upper,
                dscp: Dscp::new(dscp).unwrap(),
                ecn,
                length: length.map(|length| length + 30),
                flow_label: if is_v6 { label } else { 0 },
                fragment,
            }
        },
    )
}

fn packet() -> impl Strategy<Value = Packet> {
    let tag =
        || prop::option::of((0u16..4095, 0u8..8).prop_map(|(id, priority)| Tag { id, priority }));
    let ethertype = any::<u16>().prop_filter("it is of another family", |number| {
        !matches!(number, 0x0800 | 0x86dd | 0x8100 | 0x88a8)
    });
    let what = prop_oneof![
        6 => (flow(), tag()).prop_map(|(flow, tag)| What::Ip { flow, tag }),
        1 => (ethertype, tag()).prop_map(|(ethertype, tag)| What::Other { ethertype, tag }),
        1 => prop::collection::vec(any::<u8>(), 0..80).prop_map(What::Frame),
    ];
    let cgroup = prop::option::of("(/[a-z0-9.-]{1,12}){1,4}".prop_map(CgroupPath));
    let incoming = prop::option::of("[a-z0-9.]{1,15}".prop_map(Interface));
    let mac = || any::<[u8; 6]>().prop_map(Mac::from);
    let beside = (any::<Option<u32>>(), any::<u32>(), mac(), mac());
    (what, beside, cgroup, incoming).prop_map(|(what, beside, cgroup, incoming)| {
        let (uid, mark, source, destination) = beside;
        let is_frame = matches!(what, What::Frame(_));
        let mac = |mac| if is_frame { Mac::default() } else { mac };
        Packet {
            what,
            uid,
            cgroup,
            incoming,
            mark,
            source_mac: mac(source),
            destination_mac: mac(destination),
        }
    })
}

proptest! {
    #[test]
    fn a_packet_is_read_as_it_is_written(packet in packet()) {
        prop_assert_eq!(packet.to_string().parse::<Packet>(), Ok(packet));
    }

    #[test]
    fn a_packet_has_the_fields_that_are_written(packet in packet()) {
        let What::Ip { flow, tag } = &packet.what else { return Ok(()) };
        let metadata = packet.metadata(&Bindings::default());
        let fields = Fields::new(&packet.frame(), packet.link(), &metadata);
        let (ports, flags, icmp) = match flow.upper {
            Upper::Tcp { ports, flags } => (Some(ports), Some(flags), None),
            Upper::Ports(source, destination) => (Some((source, destination)), None, None),
            Upper::Icmp { kind, code } => (None, None, Some((kind, code))),
            Upper::Nothing => (None, None, None),
        };
        let is_v6 = flow.source.is_ipv6();
        let expected: [(Field, Option<u128>); 15] = [
            (Field::Protocol, Some(flow.protocol.into())),
            (Field::SourcePort, ports.map(|ports| ports.0.into())),
            (Field::DestinationPort, ports.map(|ports| ports.1.into())),
            (Field::TcpFlags, flags.map(u128::from)),
            (Field::IcmpType, icmp.map(|icmp| icmp.0.into())),
            (Field::IcmpCode, icmp.map(|icmp| icmp.1.into())),
            (Field::Dscp, Some(u128::from(flow.dscp.octet() >> 2))),
            (Field::Ecn, Some(flow.ecn.into())),
            (Field::FlowLabel, is_v6.then_some(flow.flow_label.into())),
            (Field::Length, Some(flow.length().into())),
            (Field::Vlan, tag.map(|tag| tag.id.into())),
            (Field::Mark(0xff0), Some((packet.mark & 0xff0).into())),
            (Field::SourceMac, Some(packet.source_mac.into())),
            (Field::DestinationMac, Some(packet.destination_mac.into())),
            (Field::Uid, packet.uid.filter(|uid| *uid != 65_534).map(u128::from)),
        ];
        for (field, value) in expected {
            prop_assert_eq!(fields.value(field), value, "{:?} of {}", field, packet);
        }
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

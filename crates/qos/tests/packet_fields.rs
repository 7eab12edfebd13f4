//! Fields of packets written down by hand from the RFCs, of cut ones and of any bytes at all.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::{Ipv4Addr, Ipv6Addr};

use linerate_core::units::Dscp;
use linerate_qos::interpret::{Decision, rewritten};
use linerate_qos::packet::{CGROUP_LEVELS, Fields, LinkType, Metadata};
use linerate_qos::policy::Family;
use linerate_qos::rules::Field::{self, *};
use proptest::prelude::*;

/// Bytes in hexadecimal; blanks are for the reader.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = (text.bytes())
        .filter_map(|byte| char::from(byte).to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn ethernet(text: &str) -> Fields {
    let frame = hex(&format!("{ADDRESSES}{text}"));
    Fields::new(&frame, LinkType::Ethernet, &Metadata::default())
}

fn check(fields: &Fields, family: Family, has: &[(Field, u128)], lacks: &[Field]) {
    assert_eq!(fields.family(), family);
    for (field, value) in has {
        assert_eq!(fields.value(*field), Some(*value), "{field:?}");
    }
    for field in lacks {
        assert_eq!(fields.value(*field), None, "{field:?}");
    }
}

const ADDRESSES: &str = "020000000002 020000000001";

/// RFC 791, 3.1; the TOS octet is EF (46) and ECT(0), RFC 2474 and RFC 3168; then TCP's SYN with
/// MSS (RFC 9293, 3.1).
const V4_SYN: &str = "0800 45ba002c 12344000 4006dead c6120001 c6120002
    9c40 0050 00000001 00000000 6002ffff 00000000 020405b4";

/// RFC 8200, 3: traffic class 0xb8 (EF, not ECT), flow label 0x12345, then an extension header's
/// number.
fn v6(next: &str, above: &str) -> String {
    let bytes = hex(above).len();
    format!("86dd 6b812345 {bytes:04x} {next} 40 {SOURCE_V6} {DESTINATION_V6} {above}")
}

const SOURCE_V6: &str = "20010002000000000000000000000001";
const DESTINATION_V6: &str = "20010002000000000000000000000002";
const UDP_53: &str = "e290 0035 0008 0000";

#[test]
fn ipv4_and_tcp() {
    let fields = ethernet(V4_SYN);
    let source = u32::from(Ipv4Addr::new(198, 18, 0, 1));
    let has = [
        (Source, source.into()),
        (Destination, u128::from(source) + 1),
        (Protocol, 6),
        (SourcePort, 40_000),
        (DestinationPort, 80),
        (Field::Dscp, 46),
        (Ecn, 2),
        (TcpFlags, 2),
        (EtherType, 0x0800),
        (Length, 44),
    ];
    let lacks = [FlowLabel, Vlan, IcmpType, IcmpCode, Uid, Incoming, Cgroup(0)];
    check(&fields, Family::V4, &has, &lacks);
    assert_eq!(fields.fragment(), None);
}

#[test]
fn ipv4_options_stand_before_the_ports() {
    // RFC 791, 3.1: IHL 7; router alert (RFC 2113) and end of options.
    let fields = ethernet(&format!(
        "0800 47000020 00000000 40110000 c6120001 c6120002 94040000 00000000 {UDP_53}"
    ));
    let has = [(Protocol, 17), (SourcePort, 58_000), (DestinationPort, 53)];
    check(&fields, Family::V4, &has, &[TcpFlags]);
}

#[test]
fn of_ipv4_fragments_only_the_first_has_ports() {
    let with = |flags: &str| {
        ethernet(&format!("0800 4500001c 0007{flags} 40110000 c6120001 c6120002 {UDP_53}"))
    };
    let (first, later, last) = (with("2000"), with("20b9"), with("00b9"));
    check(&first, Family::V4, &[(Protocol, 17), (DestinationPort, 53)], &[]);
    assert!(first.fragment().unwrap().first);
    for fields in [later, last] {
        check(&fields, Family::V4, &[(Protocol, 17)], &[SourcePort, DestinationPort]);
        let fragment = fields.fragment().unwrap();
        assert_eq!((fragment.id, fragment.protocol, fragment.first), (7, 17, false));
    }
    assert_eq!(with("4000").fragment(), None);
}

#[test]
fn ports_are_where_the_protocol_has_them() {
    for (protocol, has_ports) in [
        ("06", true),
        ("11", true),
        ("21", true),
        ("84", true),
        ("88", true),
        ("01", false),
        ("2f", false),
        ("32", false),
    ] {
        let fields = ethernet(&format!(
            "0800 4500001c 00000000 40{protocol}0000 c6120001 c6120002 00160050 00000000"
        ));
        assert_eq!(fields.value(SourcePort), has_ports.then_some(22), "{protocol}");
        assert_eq!(fields.value(DestinationPort), has_ports.then_some(80), "{protocol}");
    }
}

#[test]
fn icmp_is_another_number_in_each_family() {
    // RFC 792 echo, RFC 4443 echo request: type, code, checksum, id, sequence.
    let v4 = |protocol: &str| {
        ethernet(&format!(
            "0800 4500001c 00000000 40{protocol}0000 c6120001 c6120002 08030000 00000000"
        ))
    };
    check(&v4("01"), Family::V4, &[(IcmpType, 8), (IcmpCode, 3)], &[SourcePort]);
    check(&v4("3a"), Family::V4, &[(Protocol, 58)], &[IcmpType, IcmpCode]);
    let echo = "80010000 00000000";
    check(&ethernet(&v6("3a", echo)), Family::V6, &[(IcmpType, 128), (IcmpCode, 1)], &[]);
    check(&ethernet(&v6("01", echo)), Family::V6, &[(Protocol, 1)], &[IcmpType, IcmpCode]);
}

#[test]
fn ipv6_has_its_class_and_its_label() {
    let fields = ethernet(&v6("11", UDP_53));
    let source = u128::from("2001:2::1".parse::<Ipv6Addr>().unwrap());
    let has = [
        (Source, source),
        (Destination, source + 1),
        (Field::Dscp, 46),
        (Ecn, 0),
        (FlowLabel, 0x12345),
        (Protocol, 17),
        (DestinationPort, 53),
        (Length, 48),
        (EtherType, 0x86dd),
    ];
    check(&fields, Family::V6, &has, &[Vlan]);
}

#[test]
fn each_extension_header_is_walked() {
    // Its number, and itself with `NN` for the next header's.
    let headers = [
        ("00", "NN00 0502 0000 0100", "hop-by-hop: router alert (RFC 8200, 4.3; RFC 2711)"),
        ("2b", "NN02 0401 00000000 20010002000000000000000000000009", "routing (RFC 8200, 4.4)"),
        ("2c", "NN00 0000 00000007", "fragment header of a whole packet (RFC 6946)"),
        ("33", "NN04 0000 00000100 00000001 000000000000000000000000", "AH (RFC 4302, 2.2)"),
        ("3c", "NN00 0104 00000000", "destination options (RFC 8200, 4.6)"),
        ("87", "NN00 0000 00000000", "mobility (RFC 6275, 6.1.1)"),
        ("8b", "NN00 0000 00000000", "HIP (RFC 7401, 5.1)"),
        ("8c", "NN00 8000 00000000", "shim6 (RFC 5533, 5)"),
    ];
    for (number, header, name) in headers {
        let above = format!("{}{UDP_53}", header.replace("NN", "11"));
        let fields = ethernet(&v6(number, &above));
        assert_eq!(fields.value(Protocol), Some(17), "{name}");
        assert_eq!(fields.value(DestinationPort), Some(53), "{name}");
        assert_eq!(fields.fragment(), None, "{name}");
    }
    // All of them behind each other: eight, which is the bound.
    let mut numbers = headers.map(|(number, ..)| number).to_vec();
    numbers.push("11");
    let chain = |headers: &[(&str, &str, &str)]| -> String {
        let each = headers.iter().zip(&numbers[1..]);
        each.map(|((_, header, _), next)| header.replace("NN", next)).collect()
    };
    let all = format!("{}{UDP_53}", chain(&headers));
    assert_eq!(ethernet(&v6("00", &all)).value(DestinationPort), Some(53));
    let nine = format!("3c00 0104 00000000{all}").replacen("3c", "00", 1);
    check(
        &ethernet(&v6("3c", &nine)),
        Family::V6,
        &[(Length, 40 + 8 + 104)],
        &[Protocol, SourcePort],
    );
}

#[test]
fn esp_and_no_next_header_end_the_walk() {
    // RFC 4303, 2: SPI and sequence, which are no ports. RFC 8200, 4.7.
    for (number, value) in [("32", 50), ("3b", 59)] {
        let fields = ethernet(&v6(number, "00160050 00000001"));
        check(&fields, Family::V6, &[(Protocol, value)], &[SourcePort, DestinationPort]);
    }
}

#[test]
fn ipv6_fragments() {
    let with = |next: &str, offset: &str| {
        ethernet(&v6("2c", &format!("{next}00 {offset} 00010002 {UDP_53}")))
    };
    let (first, later) = (with("11", "0001"), with("11", "05a9"));
    check(&first, Family::V6, &[(Protocol, 17), (DestinationPort, 53)], &[]);
    let fragment = first.fragment().unwrap();
    assert_eq!((fragment.id, fragment.protocol, fragment.first), (0x1_0002, 0, true));
    check(&later, Family::V6, &[(Protocol, 17)], &[SourcePort, DestinationPort]);
    assert!(!later.fragment().unwrap().first);
    // The later fragment begins anywhere in the destination options that stand in the first one.
    check(&with("3c", "05a9"), Family::V6, &[], &[Protocol, SourcePort]);
}

#[test]
fn vlan_tags() {
    let arp = "0806 0001 0800 06040001";
    check(&ethernet(arp), Family::Other, &[(EtherType, 0x0806)], &[Vlan, Source, Length]);
    // 802.1Q: priority 5, id 5.
    let tagged = ethernet(&format!("8100a005{V4_SYN}"));
    check(&tagged, Family::V4, &[(Vlan, 5), (EtherType, 0x0800), (DestinationPort, 80)], &[]);
    assert_eq!(tagged.tci(), Some(0xa005));
    // 802.1ad: the service tag is the outermost one.
    let stacked = ethernet(&format!("88a80064 81000005{}", v6("11", UDP_53)));
    check(&stacked, Family::V6, &[(Vlan, 100), (DestinationPort, 53)], &[]);
    let third = ethernet(&format!("88a80064 81000005 81000006{V4_SYN}"));
    check(&third, Family::Other, &[(Vlan, 100), (EtherType, 0x8100)], &[Source]);
    // A tag beside the bytes is outside of all.
    let frame = hex(&format!("{ADDRESSES}8100a005{V4_SYN}"));
    let metadata = Metadata { vlan_tci: Some(0x2007), ..Metadata::default() };
    let beside = Fields::new(&frame, LinkType::Ethernet, &metadata);
    check(&beside, Family::V4, &[(Vlan, 7), (DestinationPort, 80)], &[]);
}

#[test]
fn raw_ip_has_its_family_from_the_kernel() {
    let packet = hex(&V4_SYN[4..]);
    let with = |protocol| {
        let metadata = Metadata { protocol, vlan_tci: Some(5), ..Metadata::default() };
        Fields::new(&packet, LinkType::RawIp, &metadata)
    };
    check(&with(0x0800), Family::V4, &[(DestinationPort, 80), (EtherType, 0x0800)], &[Vlan]);
    check(&with(0x86dd), Family::V6, &[], &[Source, Protocol]);
    check(&with(0x0806), Family::Other, &[(EtherType, 0x0806)], &[Source, Protocol]);
}

#[test]
fn wrong_headers_have_no_values_of_the_network_layer() {
    let none = [Source, Destination, Protocol, Field::Dscp, Length, DestinationPort];
    for wrong in ["55", "44", "65"] {
        check(&ethernet(&V4_SYN.replacen("45", wrong, 1)), Family::V4, &[], &none);
    }
    let v6 = v6("11", UDP_53).replacen("6b81", "4b81", 1);
    check(&ethernet(&v6), Family::V6, &[], &none);
}

#[test]
fn an_offloaded_packet_has_the_length_of_its_segments() {
    let length = |text: &str, gso_size| {
        let frame = hex(&format!("{ADDRESSES}{text}"));
        let metadata = Metadata { gso_size, gso_segments: 10, ..Metadata::default() };
        Fields::new(&frame, LinkType::Ethernet, &metadata).value(Length)
    };
    assert_eq!(length(V4_SYN, 1448), Some(20 + 24 + 1448));
    assert_eq!(length(&v6("11", UDP_53), 1200), Some(40 + 8 + 1200));
    assert_eq!(length(&v6("84", UDP_53), 1200), None);
}

#[test]
fn owners_groups_and_interfaces_come_from_the_kernel() {
    let mut cgroups = [0; CGROUP_LEVELS];
    cgroups[..2].copy_from_slice(&[1, 77]);
    let metadata = Metadata { uid: Some(1000), cgroups, incoming: 3, ..Metadata::default() };
    let fields = Fields::new(&[], LinkType::Ethernet, &metadata);
    let has = [(Uid, 1000), (Cgroup(1), 77), (Incoming, 3)];
    check(&fields, Family::Other, &has, &[EtherType, Cgroup(2)]);
    let nobody = Metadata { uid: Some(65_534), ..Metadata::default() };
    assert_eq!(Fields::new(&[], LinkType::Ethernet, &nobody).value(Uid), None);
}

#[test]
fn a_cut_frame_has_what_its_bytes_say_and_no_more() {
    let fragment_and_options =
        format!("3c00 0000 00000007 0600 0104 00000000 {}", V4_SYN.split_once('\n').unwrap().1);
    let options = "0800 46000020 00000000 40110000 c6120001 c6120002 94040000";
    for text in [V4_SYN.to_owned(), v6("2c", &fragment_and_options), format!("{options}{UDP_53}")] {
        let frame = hex(&format!("{ADDRESSES}{text}"));
        let whole = Fields::new(&frame, LinkType::Ethernet, &Metadata::default());
        let fields: Vec<_> = ALL.iter().filter(|field| whole.value(**field).is_some()).collect();
        let mut before = 0;
        for cut in 0..=frame.len() {
            let part = Fields::new(&frame[..cut], LinkType::Ethernet, &Metadata::default());
            for field in &fields {
                let value = part.value(**field);
                assert!(value.is_none() || value == whole.value(**field), "{field:?} at {cut}");
            }
            let count = fields.iter().filter(|field| part.value(***field).is_some()).count();
            assert!(count >= before, "at {cut}");
            before = count;
        }
        assert_eq!(before, fields.len());
    }
    let at = |cut: usize| {
        let frame = hex(&format!("{ADDRESSES}{V4_SYN}"));
        Fields::new(&frame[..cut], LinkType::Ethernet, &Metadata::default())
    };
    check(&at(13), Family::Other, &[], &[EtherType]);
    check(&at(33), Family::V4, &[], &[Source, Protocol, Length]);
    check(&at(34), Family::V4, &[(Protocol, 6), (Length, 44)], &[SourcePort]);
    check(&at(37), Family::V4, &[], &[SourcePort, DestinationPort]);
    check(&at(38), Family::V4, &[(SourcePort, 40_000), (DestinationPort, 80)], &[TcpFlags]);
    check(&at(47), Family::V4, &[], &[TcpFlags]);
    check(&at(48), Family::V4, &[(TcpFlags, 2)], &[]);
    let tag = hex(&format!("{ADDRESSES}8100a0"));
    let cut_tag = Fields::new(&tag, LinkType::Ethernet, &Metadata::default());
    check(&cut_tag, Family::Other, &[(EtherType, 0x8100)], &[Vlan]);
}

const ALL: [Field; 15] = [
    Source,
    Destination,
    Protocol,
    SourcePort,
    DestinationPort,
    Field::Dscp,
    Ecn,
    IcmpType,
    IcmpCode,
    TcpFlags,
    FlowLabel,
    Vlan,
    EtherType,
    Length,
    Uid,
];

fn decision(dscp: Option<u8>, vlan_priority: Option<u8>) -> Decision {
    Decision {
        rule: Some(0),
        dscp: dscp.map(|dscp| Dscp::new(dscp).unwrap()),
        vlan_priority,
        priority: None,
        colour: None,
        dropped: false,
    }
}

#[test]
fn a_mark_keeps_ecn_and_the_checksum_of_rfc_1071() {
    // The header of RFC 1624's kind: 0x45b8, checksum worked out by hand from the sum of its words.
    let header = "45b80028 00004000 40060000 c6120001 c6120002";
    let mut packet = hex(header);
    let checksum = sum(&packet);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    for dscp in 0..64 {
        for ecn in 0..4 {
            packet[1] = 0xb8 | ecn;
            packet[10..12].fill(0);
            let checksum = sum(&packet);
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            let metadata = Metadata { protocol: 0x0800, ..Metadata::default() };
            let decision = decision(Some(dscp), Some(3));
            let left = rewritten(&packet, LinkType::RawIp, &metadata, &decision).unwrap();
            assert_eq!(left.bytes[1], dscp << 2 | ecn);
            assert_eq!(sum(&left.bytes), 0, "a right checksum makes the sum all ones");
            assert_eq!(left.vlan_tci, None, "raw IP has no tags");
        }
    }
}

fn sum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    !((sum & 0xffff) + (sum >> 16)) as u16
}

#[test]
fn a_priority_keeps_the_id_of_the_outermost_tag() {
    let written = |text: &str, vlan_tci| {
        let frame = hex(&format!("{ADDRESSES}{text}"));
        let metadata = Metadata { vlan_tci, ..Metadata::default() };
        let left = rewritten(&frame, LinkType::Ethernet, &metadata, &decision(None, Some(6)));
        let left = left.unwrap();
        (left.bytes[12..].to_vec(), left.vlan_tci)
    };
    assert_eq!(written(V4_SYN, None), (hex(V4_SYN), Some(0xc000)));
    assert_eq!(written(V4_SYN, Some(0x3005)), (hex(V4_SYN), Some(0xd005)));
    let tagged = format!("8100a005{V4_SYN}");
    assert_eq!(written(&tagged, None), (hex(V4_SYN), Some(0xc005)));
    assert_eq!(written(&tagged, Some(7)), (hex(&tagged), Some(0xc007)));
    let stacked = format!("88a80064{tagged}");
    assert_eq!(written(&stacked, None), (hex(&tagged), Some(0xc064)));
}

proptest! {
    #[test]
    fn any_bytes_have_fields(
        mut frame in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0usize..6,
        raw in any::<bool>(),
        gso_size in prop_oneof![Just(0u32), any::<u32>()],
        tci in any::<Option<u16>>(),
        dscp in 0u8..64,
    ) {
        // Most random bytes are no IP: lead half of them into the parser.
        let leads: [&[u8]; 4] =
            [&[8, 0, 0x46], &[0x86, 0xdd, 0x60], &[0x81, 0, 0, 5, 0x86, 0xdd, 0x60], &[0x88, 0xa8]];
        if let Some(lead) = leads.get(kind) && frame.len() > 30 {
            frame[12..12 + lead.len()].copy_from_slice(lead);
        }
        let link = if raw { LinkType::RawIp } else { LinkType::Ethernet };
        let metadata =
            Metadata { protocol: 0x86dd, gso_size, vlan_tci: tci, ..Metadata::default() };
        let fields = Fields::new(&frame, link, &metadata);
        let written = decision(fields.value(Field::Dscp).map(|_| dscp), Some(1));
        let left = rewritten(&frame, link, &metadata, &written).unwrap();
        let after = Metadata { vlan_tci: left.vlan_tci, ..metadata };
        let seen = Fields::new(&left.bytes, link, &after);
        for field in ALL {
            let expected = match field {
                Field::Dscp if fields.value(field).is_some() => Some(u128::from(dscp)),
                Vlan if link == LinkType::Ethernet => Some(fields.value(Vlan).unwrap_or(0)),
                EtherType | Length | Source | Destination | Protocol | SourcePort | DestinationPort => continue,
                _ => fields.value(field),
            };
            if fields.family() == seen.family() {
                prop_assert_eq!(seen.value(field), expected, "{:?}", field);
            }
        }
    }
}

//! Probes as bytes, and what is read from bytes of others.
#![allow(clippy::unwrap_used, reason = "a test says what it expects by panicking")]

use std::net::IpAddr;

use crate::trace_support::{Net, icmp_message, ip_packet, smallest};
use linerate_trace::{
    AnswerKind, MAX_FLOWS, Message, NotOurs, Probe, ProbeCodec, ProbeId, ProbeKind,
    QuotedTransport, parse_message, unreachable_reason,
};
use linerate_units::{Dscp, Ecn, Family};
use proptest::prelude::*;

fn codec(kind: ProbeKind, is_v6: bool, session: u16) -> ProbeCodec {
    let net = if is_v6 { Net::chain_v6(3) } else { Net::chain(3) };
    net.codec(kind, session)
}

fn probe(codec: &ProbeCodec, id: u16, flow: u16, size: u16) -> Probe {
    Probe {
        id: ProbeId(id),
        ttl: 7,
        flow,
        size: size.max(smallest(codec.kind, codec.target)),
        kind: codec.kind,
        dscp: Dscp::new(46).unwrap(),
        ecn: Ecn::Ect0,
    }
}

/// Word by word, with an end-around carry at each: nothing of the code under test.
fn slow_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        if sum > 0xffff {
            sum -= 0xffff;
        }
    }
    sum as u16
}

fn pseudo_header(codec: &ProbeCodec, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for address in [codec.source, codec.target] {
        match address {
            IpAddr::V4(address) => bytes.extend_from_slice(&address.octets()),
            IpAddr::V6(address) => bytes.extend_from_slice(&address.octets()),
        }
    }
    bytes.extend_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, codec.protocol()]);
    bytes
}

fn kinds() -> impl Strategy<Value = ProbeKind> {
    prop::sample::select(vec![ProbeKind::Udp, ProbeKind::Icmp, ProbeKind::Tcp])
}

proptest! {
    #[test]
    fn probes_have_their_size_and_a_right_checksum(
        kind in kinds(), is_v6: bool, session: u16, id in 0..60_000u16, flow in 0..MAX_FLOWS,
        size in 0..9_000u16,
    ) {
        let codec = codec(kind, is_v6, session);
        let probe = probe(&codec, id, flow, if kind == ProbeKind::Tcp { 0 } else { size });
        let transport = codec.transport(&probe);
        let header = if is_v6 { 40 } else { 20 };
        prop_assert_eq!(transport.len(), usize::from(probe.size) - header);
        let mut summed = match (kind, is_v6) {
            (ProbeKind::Icmp, false) => Vec::new(),
            _ => pseudo_header(&codec, transport.len()),
        };
        summed.extend_from_slice(&transport);
        prop_assert_eq!(slow_sum(&summed), 0xffff);
    }

    #[test]
    fn what_balancers_look_at_is_the_same_in_a_flow_and_other_in_another(
        kind in kinds(), is_v6: bool, session: u16, a in 0..60_000u16, b in 0..60_000u16,
        flow in 0..MAX_FLOWS, other in 0..MAX_FLOWS,
    ) {
        let codec = codec(kind, is_v6, session);
        // Ports, or type, code and checksum.
        let looked_at = |id, flow| codec.transport(&probe(&codec, id, flow, 100))[..4].to_vec();
        prop_assert_eq!(looked_at(a, flow), looked_at(b, flow));
        prop_assert_eq!(flow == other, looked_at(a, flow) == looked_at(a, other));
    }

    #[test]
    fn every_quote_of_8_bytes_or_more_gives_the_probe_back(
        kind in kinds(), is_v6: bool, session: u16, id in 0..60_000u16, flow in 0..MAX_FLOWS,
        size in 0..2_000u16, cut in 8..600usize,
    ) {
        let codec = codec(kind, is_v6, session);
        let probe = probe(&codec, id, flow, if kind == ProbeKind::Tcp { 0 } else { size });
        let mut message =
            icmp_message(&codec, &probe, AnswerKind::TimeExceeded, 0x0e, false, false);
        message.truncate(8 + if is_v6 { 40 } else { 20 } + cut);
        let answer = codec.read_icmp(codec.source, Some(60), &message).unwrap();
        prop_assert_eq!(answer.identity.sequence, id);
        prop_assert_eq!(answer.identity.flow, Some(flow));
        prop_assert!(answer.identity.session.is_none_or(|said| said == session));
        prop_assert_eq!(answer.quoted.traffic_class, Some(0x0e));
        prop_assert_eq!(answer.quoted.ttl, Some(1));
        prop_assert_eq!(answer.quoted.is_translated, Some(false));
        // Of another trace it is not.
        let other = ProbeCodec { session: session.wrapping_add(1), ..codec.clone() };
        if let Ok(answer) = other.read_icmp(codec.source, None, &message) {
            prop_assert_eq!(answer.identity.session, None);
            prop_assert!(kind == ProbeKind::Icmp || answer.identity.sequence != id);
        }
    }

    #[test]
    fn what_an_error_queue_gives_back_is_understood(
        is_v6: bool, session: u16, id in 0..60_000u16, flow in 0..MAX_FLOWS,
    ) {
        for kind in [ProbeKind::Udp, ProbeKind::Icmp] {
            let codec = codec(kind, is_v6, session);
            let datagram = codec.datagram(&probe(&codec, id, flow, 100));
            let identity = codec.identify_datagram(&datagram).unwrap();
            prop_assert_eq!((identity.sequence, identity.session), (id, Some(session)));
            prop_assert_eq!(codec.identify_datagram(&[]), None);
        }
    }

    #[test]
    fn no_bytes_are_too_strange(
        bytes in prop::collection::vec(any::<u8>(), 0..300), is_v6: bool, kind in kinds(),
    ) {
        let family = if is_v6 { Family::Ipv6 } else { Family::Ipv4 };
        let _ = parse_message(family, &bytes);
        let codec = codec(kind, is_v6, 1);
        let _ = codec.read_icmp(codec.target, None, &bytes);
        let _ = codec.read_tcp(codec.target, None, &bytes);
        let _ = codec.identify_datagram(&bytes);
    }

    #[test]
    fn damaged_messages_are_stood(
        kind in kinds(), is_v6: bool,
        damage in prop::collection::vec((0..120usize, any::<u8>()), 1..6), length in 0..120usize,
    ) {
        let codec = codec(kind, is_v6, 77);
        let mut message = icmp_message(&codec, &probe(&codec, 5, 3, 80), AnswerKind::TimeExceeded,
            0, false, false);
        for (at, value) in damage {
            if let Some(byte) = message.get_mut(at) {
                *byte = value;
            }
        }
        message.truncate(length);
        if let Ok(answer) = codec.read_icmp(codec.source, None, &message) {
            prop_assert!(answer.mpls.len() <= 16);
        }
    }
}

/// A time-exceeded message around a UDP probe behind these extension headers.
fn behind(headers: &[(u8, Vec<u8>)], codec: &ProbeCodec, probe: &Probe) -> Vec<u8> {
    let packet = ip_packet(codec, probe, &codec.transport(probe), 0, 1);
    let mut message = vec![3, 0, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(&packet[..40]);
    let mut next_at = 8 + 6;
    for (kind, header) in headers {
        message[next_at] = *kind;
        next_at = message.len();
        message.extend_from_slice(header);
    }
    message[next_at] = codec.protocol();
    message.extend_from_slice(&packet[40..]);
    let payload = u16::try_from(message.len() - 48).unwrap();
    message[12..14].copy_from_slice(&payload.to_be_bytes());
    message
}

#[test]
fn ipv6_extension_headers_are_skipped() {
    let codec = codec(ProbeKind::Udp, true, 9);
    let probe = probe(&codec, 123, 0, 100);
    let plain = |length: usize| {
        let mut header = vec![0; length];
        header[1] = u8::try_from(length / 8 - 1).unwrap();
        header
    };
    let authentication = [vec![0, 4], vec![0; 22]].concat();
    let cases: [Vec<(u8, Vec<u8>)>; 5] = [
        vec![(0, plain(8))],
        vec![(43, plain(24))],
        vec![(44, vec![0; 8])],
        vec![(60, plain(16)), (51, authentication)],
        vec![(0, plain(8)), (60, plain(8)), (43, plain(40)), (44, vec![0; 8]), (60, plain(8))],
    ];
    for headers in cases {
        let message = behind(&headers, &codec, &probe);
        let answer = codec.read_icmp(codec.source, None, &message).expect("behind all of them");
        assert_eq!(answer.identity.sequence, 123);
    }
    // A later fragment has no transport header, and a header longer than the quote ends it.
    let later = vec![(44, vec![0, 0, 1, 0, 0, 0, 0, 0])];
    let message = behind(&later, &codec, &probe);
    assert_eq!(codec.read_icmp(codec.source, None, &message), Err(NotOurs::OtherPacket));
    let endless = vec![(0, vec![0, 255, 0, 0, 0, 0, 0, 0])];
    let message = behind(&endless, &codec, &probe);
    assert_eq!(codec.read_icmp(codec.source, None, &message), Err(NotOurs::OtherPacket));
}

#[test]
fn labels_and_padding_behind_a_quote_are_told_from_the_packet() {
    let codec = codec(ProbeKind::Udp, false, 9);
    let probe = probe(&codec, 44, 0, 60);
    let mut message = icmp_message(&codec, &probe, AnswerKind::TimeExceeded, 0, false, false);
    message.resize(8 + 128, 0);
    // RFC 4884: 32 words of 32 bits. Label 16, class 0, bottom, TTL 1; no checksum.
    message[5] = 32;
    message.extend_from_slice(&[0x20, 0, 0, 0, 0, 8, 1, 1, 0, 1, 1, 1]);
    let answer = codec.read_icmp(codec.source, None, &message).unwrap();
    assert_eq!(answer.identity.sequence, 44);
    let label = answer.mpls[0];
    assert_eq!((label.label, label.traffic_class, label.is_bottom, label.ttl), (16, 0, true, 1));
    let Ok(Message::Error { quoted, .. }) = parse_message(Family::Ipv4, &message) else {
        panic!("an error");
    };
    let QuotedTransport::Udp(udp) = quoted.transport else {
        panic!("a UDP probe");
    };
    assert_eq!(udp.payload.len(), 60 - 28, "the padding is no payload");
}

#[test]
fn answers_of_the_target_must_be_the_targets() {
    let codec = codec(ProbeKind::Tcp, false, 9);
    let syn = codec.transport(&probe(&codec, 44, 2, 0));
    let mut answer = vec![0; 20];
    answer[..2].copy_from_slice(&syn[2..4]);
    answer[2..4].copy_from_slice(&syn[..2]);
    let acknowledged = u32::from_be_bytes(syn[4..8].try_into().unwrap()) + 1;
    answer[8..12].copy_from_slice(&acknowledged.to_be_bytes());
    for (flags, kind) in [
        (0x12, Some(AnswerKind::TcpSynAck)),
        (0x14, Some(AnswerKind::TcpRst)),
        (0x10, None),
        (0x04, None),
    ] {
        answer[13] = flags;
        let read = codec.read_tcp(codec.target, Some(60), &answer).ok();
        assert_eq!(read.as_ref().map(|answer| answer.kind), kind, "flags {flags:#x}");
        assert!(
            read.is_none_or(
                |answer| answer.identity.sequence == 44 && answer.identity.flow == Some(2)
            )
        );
    }
    answer[13] = 0x12;
    assert!(codec.read_tcp(codec.source, None, &answer).is_err(), "by another");
    answer[11] ^= 1;
    answer[8] ^= 1;
    assert!(codec.read_tcp(codec.target, None, &answer).is_err(), "of another session");
}

#[test]
fn messages_that_no_probe_causes_are_none_of_ours() {
    let codec = codec(ProbeKind::Icmp, false, 9);
    // A redirect, a timestamp reply, our own request on the loopback.
    for kind in [5, 14, 8] {
        let mut message = codec.transport(&probe(&codec, 1, 0, 60));
        message[0] = kind;
        assert_eq!(codec.read_icmp(codec.target, None, &message), Err(NotOurs::OtherMessage));
    }
    assert!(matches!(codec.read_icmp(codec.target, None, &[0; 7]), Err(NotOurs::CutOff)));
}

#[test]
fn each_code_has_words() {
    assert_eq!(unreachable_reason(Family::Ipv4, 13), "administratively prohibited");
    assert_eq!(unreachable_reason(Family::Ipv6, 0), "no route");
    assert!(unreachable_reason(Family::Ipv6, 200).contains("no RFC names"));
}

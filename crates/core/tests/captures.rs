//! What holds back the connections of simulated captures.

#[path = "../../capture/tests/simulation/mod.rs"]
mod simulation;

use std::io::Cursor;

use linerate_core::capture::follow;
use linerate_core::ceilings::Cause;
use linerate_core::connection::{Connection, ConnectionsDocument};
use simulation::{Packet, Transfer, USUAL};

fn explained(transfer: &Transfer) -> Connection {
    explained_packets(&transfer.run().packets)
}

fn explained_packets(packets: &[Packet]) -> Connection {
    let file = USUAL.write(packets);
    let capture = follow(Cursor::new(file), 10, |_| true).expect("a whole capture");
    let mut document = ConnectionsDocument::from_capture("x.pcap", &capture);
    document.explain();
    document.connections.remove(0)
}

#[track_caller]
fn is(cause: Cause, transfer: &Transfer, places: &[u64]) {
    for place in places {
        let place = *place;
        let found = explained(&Transfer { place, ..transfer.clone() });
        let verdict = found.verdict.as_ref().expect("a verdict");
        assert_eq!(verdict.cause, cause, "at {place} %: {found:#?}");
    }
}

/// A socket with SO_MAX_PACING_RATE, whose frames are of two segments.
fn paced() -> Transfer {
    Transfer {
        pace_bps: Some(10_000_000),
        offload: 2,
        window: 1 << 20,
        bytes: 4_000_000,
        ..Transfer::default()
    }
}

#[test]
fn a_clock_is_a_pace_on_a_path_of_any_length() {
    is(Cause::Pacing, &paced(), &[0, 100]);
    // Nothing is outstanding between its frames.
    let short = Transfer { rtt_us: 50, ..paced() };
    is(Cause::Pacing, &short, &[0]);
    // The link takes much longer for two segments than for a handshake.
    let narrow = Transfer { rtt_us: 3000, link_bps: 25_000_000, ..paced() };
    is(Cause::Pacing, &narrow, &[0, 100]);
}

#[test]
fn a_writer_that_pauses_is_no_clock() {
    let writer = Transfer {
        burst: Some((20_000, 20_000)),
        window: 1 << 20,
        rtt_us: 50,
        ..Transfer::default()
    };
    is(Cause::ApplicationSend, &writer, &[0]);
}

#[test]
fn a_full_link_is_no_clock() {
    let full = Transfer {
        link_bps: 10_000_000,
        bytes: 4_000_000,
        window: 200 * 1024,
        ..Transfer::default()
    };
    is(Cause::PathRate, &full, &[0]);
}

#[test]
fn losses_in_trains_that_do_not_slow_a_paced_sender_are_a_policers() {
    // Three of each sixty, as a bucket takes them from BBR.
    let lost = (100..4000).filter(|number| number % 60 < 3);
    let policed = Transfer { lost: lost.collect(), offload: 1, ..paced() };
    is(Cause::Policer, &policed, &[0]);
}

#[test]
fn a_window_that_is_always_full_is_the_receivers() {
    let held = Transfer { bytes: 4_000_000, window: 128 * 200, ..Transfer::default() };
    is(Cause::ReceiveWindow, &held, &[0, 50, 100]);
}

/// Each write waits for the reply to the one before, which comes after so long; the next leaves a
/// moment later.
fn one_by_one(number: u32, bytes: u32, reply_us: u64, moment_us: u64) -> Vec<Packet> {
    let mut packets = Transfer { bytes: 1, ..Transfer::default() }.run().packets;
    packets.truncate(3);
    let last = packets[2].clone();
    let mut at = last.at_us + 1000;
    for n in 0..number {
        let seq = last.seq.wrapping_add(bytes * n);
        let (ip_id, options) = (100 + n as u16, Vec::new());
        let data = Packet { at_us: at, seq, payload: bytes, ip_id, options, ..last.clone() };
        packets.push(data.clone());
        packets.push(Packet {
            at_us: at + reply_us,
            from_sender: false,
            seq: last.ack,
            ack: seq.wrapping_add(bytes),
            payload: 0,
            ..data
        });
        at += reply_us + moment_us;
    }
    packets
}

#[test]
fn a_sender_that_waits_for_each_reply_is_neither_paced_nor_at_a_link() {
    for (bytes, reply_us, moment_us) in [(50, 210, 30), (1448, 31_000, 1500), (1448, 900, 100)] {
        for number in [40, 400] {
            let found = explained_packets(&one_by_one(number, bytes, reply_us, moment_us));
            let verdict = found.verdict.as_ref().expect("a verdict");
            assert_eq!(verdict.cause, Cause::Unexplained, "{found:#?}");
            assert!(verdict.evidence[0].contains("one segment is in flight"), "{verdict:#?}");
        }
    }
}

#[test]
fn few_round_trips_make_no_cause_sure() {
    for bytes in [40_000, 200_000, 560_000] {
        let held = Transfer { bytes, window: 128 * 600, ..Transfer::default() };
        let found = explained(&held);
        let sure = found.verdict.as_ref().and_then(|verdict| verdict.confidence);
        assert!(sure.is_none_or(|sure| sure < 0.9), "{found:#?}");
    }
    let held = Transfer { bytes: 4_000_000, window: 128 * 600, ..Transfer::default() };
    let found = explained(&held);
    assert_eq!(found.verdict.as_ref().map(|it| it.cause), Some(Cause::ReceiveWindow), "{found:#?}");
}

#[test]
fn the_silence_after_a_transfer_changes_neither_its_rate_nor_its_cause() {
    let held = Transfer { bytes: 4_000_000, window: 128 * 300, ..Transfer::default() };
    for place in [0, 100] {
        let mut packets = Transfer { place, ..held.clone() }.run().packets;
        let before = explained_packets(&packets);
        let last = packets.iter().rev().find(|packet| packet.payload > 0).expect("data").clone();
        let fin = Packet {
            at_us: last.at_us + 9_000_000,
            seq: last.seq.wrapping_add(last.payload),
            payload: 0,
            flags: 17,
            ..last
        };
        packets.push(fin);
        let after = explained_packets(&packets);
        assert_eq!(after.verdict, before.verdict);
        assert_eq!(after.throughput_bps, before.throughput_bps);
        assert!(after.silent_after_s.is_some_and(|silent| silent > 8.8), "{after:#?}");
    }
}

#[test]
fn a_reader_that_closes_its_window_is_the_receiving_application() {
    let mut packets = one_by_one(60, 1448, 8000, 100);
    let count = packets.len();
    // It stops reading for six seconds in the middle.
    for packet in &mut packets[count / 2..] {
        packet.at_us += 6_000_000;
    }
    packets[count / 2 - 1].window = 0;
    let probe = packets[count / 2].clone();
    for (n, wait) in [500_000, 1_500_000, 3_500_000].into_iter().enumerate() {
        let at_us = packets[count / 2 - 1].at_us + wait;
        let ip_id = 9000 + n as u16;
        packets.push(Packet { at_us, payload: 1, ip_id, ..probe.clone() });
    }
    packets.sort_by_key(|packet| packet.at_us);
    let found = explained_packets(&packets);
    let verdict = found.verdict.as_ref().expect("a verdict");
    assert_eq!(verdict.cause, Cause::ApplicationReceive, "{found:#?}");
    let tcp = found.tcp.as_ref().and_then(|tcp| tcp.sender()).expect("the sender");
    assert_eq!((tcp.zero_windows, tcp.retransmitted_segments), (Some(1), 0));
}

#[test]
fn the_counts_are_those_of_the_connection() {
    let early = Transfer {
        bytes: 6_000_000,
        window: 1 << 20,
        congestion_window: 60_000,
        lost: [20, 60, 100].into(),
        ..Transfer::default()
    };
    let found = explained(&early);
    assert!(found.settled.is_some(), "{found:#?}");
    let tcp = found.tcp.as_ref().and_then(|tcp| tcp.sender()).expect("the sender");
    assert_eq!(tcp.retransmitted_segments, 3, "{found:#?}");
    assert_eq!(tcp.data_segments_out, Some(6_000_000_u64.div_ceil(1448) + 3));
}

#[test]
fn losses_and_long_timeouts_are_congestion() {
    let mut packets = one_by_one(80, 1448, 20_000, 100);
    let count = packets.len();
    for packet in &mut packets[count / 2 + 1..] {
        packet.at_us += 12_600_000;
    }
    // The one in the middle is lost, and sent again after 0.2, 0.4, 0.8, … seconds.
    let lost = packets[count / 2].clone();
    packets[count / 2].clone_from(&lost);
    for n in 0..6_u16 {
        let at_us = lost.at_us + (200_000 << (n + 1)) - 200_000;
        packets.push(Packet { at_us, ip_id: 9000 + n, ..lost.clone() });
    }
    packets.sort_by_key(|packet| packet.at_us);
    let found = explained_packets(&packets);
    let verdict = found.verdict.as_ref().expect("a verdict");
    assert_eq!(verdict.cause, Cause::Congestion, "{found:#?}");
}

#[test]
fn the_document_of_requests_says_whose_time_they_took() {
    // One write and its reply each 21 ms, which is data.
    let mut packets = one_by_one(30, 200, 20_000, 1000);
    let mut sent = 0;
    for packet in packets.iter_mut().skip(3).filter(|packet| !packet.from_sender) {
        (packet.payload, packet.seq) = (500, packet.seq.wrapping_add(sent));
        sent += 500;
    }
    let mut received = 0;
    for packet in packets.iter_mut().skip(3) {
        if packet.from_sender {
            packet.ack = packet.ack.wrapping_add(received);
        } else {
            received += 500;
        }
    }
    let file = USUAL.write(&packets);
    let capture = follow(Cursor::new(file), 10, |_| true).expect("a whole capture");
    let document = ConnectionsDocument::from_capture("x.pcap", &capture);
    let requests = document.requests.as_ref().expect("there are requests");
    // Nothing tells that the last response is whole.
    assert_eq!((requests.count, requests.unfinished), (29, 1), "{requests:#?}");
    let own = document.connections[0].requests.as_ref().expect("its requests");
    assert_eq!((own.count, own.spent), (29, requests.spent));
    let json = serde_json::to_vec(&document).expect("it is JSON");
    assert_eq!(ConnectionsDocument::parse(&json).expect("a document"), document);
}

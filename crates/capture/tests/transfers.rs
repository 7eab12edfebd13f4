//! Transfers whose truth is known, captured in all ways.
#![allow(clippy::unwrap_used, reason = "a test says what it expects by panicking")]

mod simulation;

use std::io::Cursor;

use linerate_capture::{Capture, CaptureError, Flow, Reading, Sent, Side, follow};
use proptest::prelude::*;
use simulation::{File, Layer, Transfer, Truth, USUAL};

fn read(file: Vec<u8>) -> Capture {
    follow(Cursor::new(file), 1000, |_| true).unwrap()
}

fn only(transfer: &Transfer, file: File) -> (Flow, Truth) {
    let truth = transfer.run();
    let mut capture = read(file.write(&truth.packets));
    assert_eq!(capture.flows.len(), 1);
    assert!(!capture.truncated);
    (capture.flows.remove(0), truth)
}

fn near(a: f64, b: f64, tolerance: f64) -> bool {
    (a / b - 1.0).abs() <= tolerance
}

fn rtt_us(sent: &Sent) -> f64 {
    let rtts: Vec<u64> = sent.readings.iter().filter_map(|r| Some(r.rtt?.0)).collect();
    rtts.iter().sum::<u64>() as f64 / rtts.len() as f64 / 1e3
}

fn full_share(sent: &Sent) -> f64 {
    let sum = |pick: fn(&Reading) -> u32| f64::from(sent.readings.iter().map(pick).sum::<u32>());
    sum(|reading| reading.full) / sum(|reading| reading.rounds).max(1.0)
}

#[test]
fn a_window_that_holds_is_found_at_either_end_and_between() {
    for place in [0, 50, 100] {
        for timestamps in [true, false] {
            let transfer = Transfer { place, timestamps, ..Transfer::default() };
            let (flow, _) = only(&transfer, USUAL);
            let sent = flow.sent_by(Side::Initiator);
            let what = format!("at {place} %, timestamps {timestamps}: {flow:?}");
            let end = [Some(Side::Initiator), None, Some(Side::Responder)][place as usize / 50];
            assert_eq!(flow.near, end, "{what}");
            assert_eq!(sent.bytes, transfer.bytes, "{what}");
            assert_eq!(sent.window_largest, Some(transfer.window), "{what}");
            assert!(full_share(sent) > 0.9, "{what}");
            assert!(near(rtt_us(sent), 20_000.0, 0.05), "{} {what}", rtt_us(sent));
            assert_eq!(sent.retransmitted.segments, 0, "{what}");
        }
    }
}

#[test]
fn a_window_that_does_not_hold_is_not_said_to() {
    for place in [0, 50, 100] {
        let transfer = Transfer {
            place,
            window: 4 << 20,
            congestion_window: 40 * 1448,
            ..Transfer::default()
        };
        let (flow, truth) = only(&transfer, USUAL);
        let sent = flow.sent_by(Side::Initiator);
        assert_eq!(full_share(sent), 0.0, "at {place} %: {flow:?}");
        let most = sent.readings.iter().map(|reading| reading.in_flight).max().unwrap();
        assert!(near(most as f64, truth.most_in_flight as f64, 0.1), "{most} {truth:?}");
    }
}

#[test]
fn a_queue_shows_in_the_round_trip_wherever_it_is_captured() {
    for place in [0, 100] {
        let transfer = Transfer {
            place,
            bytes: 15_000_000,
            window: 4 << 20,
            congestion_window: 500_000,
            link_bps: 50_000_000,
            ..Transfer::default()
        };
        let (flow, _) = only(&transfer, USUAL);
        let sent = flow.sent_by(Side::Initiator);
        // 500 kB at 50 Mbit/s: 80 ms.
        assert!(near(rtt_us(sent), 80_000.0, 0.1), "at {place} %: {}", rtt_us(sent));
        assert!(sent.rtt_min.unwrap().0 < 25_000_000, "at {place} %: {flow:?}");
    }
}

#[test]
fn losses_are_counted_whether_the_first_copy_was_captured_or_not() {
    for lost_before in [false, true] {
        for place in [0, 100] {
            let transfer = Transfer {
                place,
                lost_before,
                lost: [50, 300, 301, 800].into(),
                window: 1 << 20,
                congestion_window: 60_000,
                ..Transfer::default()
            };
            let (flow, truth) = only(&transfer, USUAL);
            let sent = flow.sent_by(Side::Initiator);
            let again = sent.retransmitted;
            assert_eq!(truth.retransmitted, 4);
            let what = format!("before {lost_before}, at {place} %: {flow:?}");
            if lost_before {
                assert_eq!(sent.counts.reordered, 0, "{what}");
                assert_eq!(sent.counts.missing_bytes, 0, "{what}");
            }
            assert_eq!(again.segments, 4, "{what}");
            assert_eq!(again.fast, 4, "{what}");
            assert_eq!(again.episodes, 3, "{what}");
            assert_eq!((again.timeouts, again.spurious, again.probes), (0, 0, 0), "{what}");
        }
    }
}

/// As a policer takes the end of a burst: where it is captured behind it, the first repair comes
/// before anything shows that more is missing.
#[test]
fn the_lost_end_of_a_flight_is_of_the_same_episode() {
    let transfer = Transfer {
        place: 100,
        lost_before: true,
        window: 1 << 20,
        congestion_window: 41 * 1448,
        // The first and the last two of a flight.
        lost: [50, 89, 90].into(),
        ..Transfer::default()
    };
    let (flow, truth) = only(&transfer, USUAL);
    let sent = flow.sent_by(Side::Initiator);
    assert_eq!(sent.retransmitted.segments, truth.retransmitted);
    assert_eq!(sent.retransmitted.episodes, 1, "{flow:?}");
    assert_eq!(sent.loss_flights.len(), 1, "{flow:?}");
    let segments = sent.loss_flights[0] / 1448;
    assert!((40..=43).contains(&segments), "{flow:?}");
}

#[test]
fn a_writer_with_nothing_to_send_is_idle() {
    let transfer =
        Transfer { burst: Some((20_000, 100_000)), bytes: 400_000, ..Transfer::default() };
    for place in [0, 100] {
        let (flow, _) = only(&Transfer { place, ..transfer.clone() }, USUAL);
        let sent = flow.sent_by(Side::Initiator);
        let share = sent.idle.0 as f64 / sent.lasted.0 as f64;
        assert!((0.7..0.9).contains(&share), "at {place} %: {share} {flow:?}");
        assert_eq!(full_share(sent), 0.0);
    }
}

#[test]
fn every_kind_of_file_gives_the_same() {
    let transfer = Transfer::default();
    let (expected, truth) = only(&transfer, USUAL);
    let layers = [
        Layer::Ethernet,
        Layer::Vlan(1),
        Layer::Vlan(2),
        Layer::Cooked,
        Layer::Cooked2,
        Layer::Raw,
    ];
    for layer in layers {
        for kind in 0..8 {
            let file = File {
                layer,
                is_ng: kind & 1 != 0,
                is_big_endian: kind & 2 != 0,
                nanoseconds: kind & 4 != 0,
                ..USUAL
            };
            let capture = read(file.write(&truth.packets));
            assert_eq!(capture.flows[0], expected, "{file:?}");
            assert_eq!(capture.packets as usize, truth.packets.len());
            assert_eq!(capture.snap_bytes, Some(96));
        }
    }
    for extensions in [false, true] {
        let file = File { ipv6: true, extensions, snap: 120, ..USUAL };
        let capture = read(file.write(&truth.packets));
        assert_eq!(capture.flows[0].sent, expected.sent);
        assert_eq!(capture.flows[0].ends[1].to_string(), "[2001:db8::2]:443");
    }
}

#[test]
fn one_direction_alone_gives_its_bytes() {
    let truth = Transfer::default().run();
    for from_sender in [true, false] {
        let packets = truth.packets.iter().filter(|packet| packet.from_sender == from_sender);
        let capture = read(USUAL.write(&packets.cloned().collect::<Vec<_>>()));
        let sent = capture.flows[0].sent_by(Side::Initiator);
        assert_eq!(sent.bytes, 2_000_000, "data seen: {from_sender}");
        assert!(sent.readings.iter().all(|reading| reading.rtt.is_none()));
        assert_eq!(full_share(sent), 0.0);
    }
}

#[test]
fn without_its_handshake_a_connection_has_no_window() {
    let transfer = Transfer { handshake: false, place: 100, ..Transfer::default() };
    let (flow, _) = only(&transfer, USUAL);
    let sent = flow.sent_by(Side::Initiator);
    assert_eq!(flow.handshake, None);
    assert_eq!(flow.near, Some(Side::Responder));
    assert_eq!((sent.window_largest, full_share(sent)), (None, 0.0));
    assert!(near(rtt_us(sent), 20_000.0, 0.05), "{}", rtt_us(sent));
    assert_eq!(sent.bytes, 2_000_000);
}

#[test]
fn frames_of_an_offload_are_the_segments_that_they_carry() {
    let transfer = Transfer { offload: 8, ..Transfer::default() };
    let (flow, truth) = only(&transfer, USUAL);
    let sent = flow.sent_by(Side::Initiator);
    assert_eq!(sent.bytes, transfer.bytes);
    assert!(sent.counts.frames < sent.counts.segments / 2);
    let data = truth.packets.iter().filter(|packet| packet.payload > 0);
    let segments: u32 = data.map(|packet| packet.payload.div_ceil(transfer.mss)).sum();
    assert_eq!(sent.counts.segments, u64::from(segments));
}

#[test]
fn what_the_capture_missed_is_told_and_is_no_loss() {
    let truth = Transfer::default().run();
    let packets = truth.packets.iter().enumerate();
    let kept = packets.filter(|(number, _)| number % 37 != 30).map(|(_, packet)| packet.clone());
    let capture = read(USUAL.write(&kept.collect::<Vec<_>>()));
    let sent = capture.flows[0].sent_by(Side::Initiator);
    assert_eq!(sent.bytes, 2_000_000);
    assert_eq!(sent.retransmitted.segments, 0);
    assert!(sent.counts.missing_bytes > 10_000, "{sent:?}");
}

#[test]
fn a_file_that_ends_early_is_partial_and_says_so() {
    let truth = Transfer::default().run();
    for is_ng in [false, true] {
        let mut file = File { is_ng, ..USUAL }.write(&truth.packets);
        file.truncate(file.len() * 2 / 3);
        let capture = read(file);
        assert!(capture.truncated);
        assert!(capture.flows[0].bytes() > 1_000_000);
    }
}

#[test]
fn what_is_no_capture_of_tcp_is_refused_in_words() {
    let refused = |file: Vec<u8>| follow(Cursor::new(file), 10, |_| true).unwrap_err();
    assert!(matches!(refused(vec![]), CaptureError::NoCapture));
    assert!(matches!(refused(b"GIF89a".to_vec()), CaptureError::NoCapture));
    assert!(matches!(refused(USUAL.write(&[])), CaptureError::NoTcp { packets: 0, .. }));
    let mut file = USUAL.write(&Transfer::default().run().packets);
    file[20] = 220;
    assert!(matches!(refused(file), CaptureError::LinkType(220)));
}

#[test]
fn connections_beyond_the_bound_are_counted() {
    let mut packets = Vec::new();
    let mut file = USUAL.write(&[]);
    let head = file.len();
    for number in 0..50_u8 {
        packets =
            Transfer { bytes: 2000 + u64::from(number) * 100, ..Transfer::default() }.run().packets;
        let mut one = USUAL.write(&packets).split_off(head);
        // The last byte of both addresses' third octet tells connections apart.
        let mut at = 0;
        while at < one.len() {
            let kept = u32::from_le_bytes(one[at + 8..at + 12].try_into().unwrap()) as usize;
            one[at + 16 + 28] = number;
            one[at + 16 + 32] = number;
            at += 16 + kept;
        }
        file.extend(one);
    }
    let capture = follow(Cursor::new(file), 20, |_| true).unwrap();
    assert!(!packets.is_empty());
    assert!(capture.flows.len() <= 20);
    assert_eq!(capture.flows.len() as u64 + capture.left_out.flows, 50);
    assert!(capture.flows.is_sorted_by(|a, b| a.bytes() >= b.bytes()));
}

/// Found by the property below: the number of the second loss is that of the first one's
/// retransmission.
#[test]
fn a_transfer_whose_retransmission_has_the_number_of_a_loss_is_whole() {
    let transfer = Transfer {
        bytes: 100_000,
        rtt_us: 1000,
        place: 0,
        window: 35 * 128 * 12,
        lost: [11, 48].into(),
        ..Transfer::default()
    };
    let (flow, truth) = only(&transfer, USUAL);
    let sent = flow.sent_by(Side::Initiator);
    assert_eq!(sent.bytes, 100_000);
    assert_eq!(sent.retransmitted.segments, truth.retransmitted);
}

proptest! {
    /// Following a transfer gives back its truth.
    #[test]
    fn a_transfer_is_followed_to_its_truth(
        bytes in 100_000..3_000_000_u64,
        rtt_us in 1_000..200_000_u64,
        place in 0..=100_u64,
        windows in 20..400_u64,
        first_seq: u32,
        timestamps: bool,
        lost in prop::collection::btree_set(5..60_u64, 0..3),
    ) {
        let transfer = Transfer {
            bytes,
            rtt_us,
            place,
            window: windows * 128 * 12,
            first_seq,
            timestamps,
            lost,
            ..Transfer::default()
        };
        let (flow, truth) = only(&transfer, USUAL);
        let sent = flow.sent_by(Side::Initiator);
        prop_assert_eq!(sent.bytes, bytes);
        prop_assert_eq!(sent.retransmitted.segments, truth.retransmitted);
        prop_assert_eq!(sent.counts.reordered, 0);
    }

    /// No bytes make it panic, neither any nor a capture's with some of them changed.
    #[test]
    fn no_file_makes_it_panic(
        any in prop::collection::vec(any::<u8>(), 0..600),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
        is_ng: bool,
    ) {
        drop(follow(Cursor::new(any), 10, |_| true));
        let transfer = Transfer { bytes: 40_000, lost: [3].into(), ..Transfer::default() };
        let mut file = File { is_ng, ..USUAL }.write(&transfer.run().packets);
        for (place, byte) in changes {
            let place = place.index(file.len());
            file[place] = byte;
        }
        drop(follow(Cursor::new(file), 10, |_| true));
    }

    /// Blocks of pcapng that lie about their length, and options that lie about theirs.
    #[test]
    fn no_length_in_a_pcapng_file_makes_it_panic(
        is_big_endian: bool,
        lies in prop::collection::vec((any::<prop::sample::Index>(), length(), any::<bool>()),
            0..6),
        options in prop::collection::vec((0..20_u16, any::<u16>(),
            prop::collection::vec(any::<u8>(), 0..12)), 0..5),
        ends: bool,
    ) {
        let transfer = Transfer { bytes: 20_000, ..Transfer::default() };
        let file = File { is_ng: true, is_big_endian, ..USUAL };
        let (mut bytes, blocks) = file.write_blocks(&transfer.run().packets, &options, ends);
        for (block, length, at_its_end) in lies {
            let (begin, end) = blocks[block.index(blocks.len())];
            let place = if at_its_end { end - 4 } else { begin + 4 };
            bytes[place..place + 4].copy_from_slice(&file.word(length));
        }
        drop(follow(Cursor::new(bytes), 10, |_| true));
    }
}

/// Lengths about those of blocks, about 0, and any.
fn length() -> impl Strategy<Value = u32> {
    prop_oneof![
        0..40_u32,
        100..200_u32,
        1_000_000..2_000_000_u32,
        (u32::MAX - 20)..u32::MAX,
        any::<u32>()
    ]
}

//! Captures of one kind each, packet by packet: what others' hosts and places of capture bring.
#![allow(clippy::unwrap_used, reason = "a test says what it expects by panicking")]

mod simulation;

use std::io::Cursor;

use linerate_capture::{Capture, Flow, Reading, Sent, Side, follow};
use simulation::{File, Packet, Transfer, USUAL};

const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 17;
const MSS: u32 = 1300;
/// Sequence numbers of the first data of the sender and of its peer.
const FROM: u32 = 70_001;
const TO: u32 = 9_001;

/// Packets of a connection between 192.0.2.1:40000, the sender, and 192.0.2.2:443.
#[derive(Default)]
struct Scene {
    packets: Vec<Packet>,
    number: u16,
    window: Option<u16>,
}

impl Scene {
    /// With a handshake that is answered after so long, and completed so long after that.
    fn new(answer_us: u64, third_us: u64) -> Self {
        let mut scene = Self::default();
        scene.syn(0, true, SYN);
        scene.syn(answer_us, false, SYN | ACK);
        scene.put(answer_us + third_us, true, FROM, TO, 0);
        scene
    }

    fn syn(&mut self, at_us: u64, from_sender: bool, flags: u8) {
        let [seq, ack] = if from_sender { [FROM, TO] } else { [TO, FROM] };
        let answers = if flags & ACK != 0 { ack } else { 0 };
        let packet = self.put(at_us, from_sender, seq.wrapping_sub(1), answers, 0);
        packet.flags = flags;
        packet.options = vec![2, 4, 5, 20, 1, 3, 3, 3];
    }

    fn put(&mut self, at_us: u64, from_sender: bool, seq: u32, ack: u32, n: u32) -> &mut Packet {
        self.number += 1;
        self.packets.push(Packet {
            at_us: 5_000_000 + at_us,
            from_sender,
            seq,
            ack,
            flags: ACK,
            window: self.window.unwrap_or(8000),
            payload: n,
            options: Vec::new(),
            ip_id: self.number,
            ttl: 64,
        });
        self.packets.last_mut().unwrap()
    }

    /// So many bytes of the sender from this one on.
    fn data(&mut self, at_us: u64, offset: u32, bytes: u32) -> &mut Packet {
        self.put(at_us, true, FROM.wrapping_add(offset), TO, bytes)
    }

    /// The peer's acknowledgement of all bytes before this one.
    fn ack(&mut self, at_us: u64, offset: u32) -> &mut Packet {
        self.put(at_us, false, TO, FROM.wrapping_add(offset), 0)
    }

    fn capture(mut self) -> Capture {
        self.packets.sort_by_key(|packet| packet.at_us);
        follow(Cursor::new(USUAL.write(&self.packets)), 100, |_| true).unwrap()
    }

    fn flow(self) -> Flow {
        let mut capture = self.capture();
        assert_eq!(capture.flows.len(), 1, "{capture:?}");
        capture.flows.remove(0)
    }

    fn sent(self) -> Sent {
        let flow = self.flow();
        let sender = usize::from(flow.ends[0].port() != 40_000);
        flow.sent[sender].clone()
    }
}

fn mean_rtt_us(sent: &Sent) -> f64 {
    let timed: Vec<&Reading> = sent.readings.iter().filter(|r| r.rtt.is_some()).collect();
    let sum: f64 = timed.iter().map(|r| r.rtt.unwrap().0 as f64 * r.rtt_samples as f64).sum();
    sum / timed.iter().map(|r| r.rtt_samples as f64).sum::<f64>() / 1e3
}

fn is_near(a: f64, b: f64, tolerance: f64) -> bool {
    (a / b - 1.0).abs() <= tolerance
}

#[test]
fn an_acknowledgement_recorded_before_its_data_is_no_loss() {
    let mut scene = Scene::new(12_000, 50);
    for n in 0..40 {
        let at = 20_000 + 13_000 * u64::from(n);
        let late = if n % 4 == 1 { 12_030 } else { 0 };
        scene.data(at + late, MSS * n, MSS);
        scene.ack(at + 12_000, MSS * (n + 1));
    }
    let sent = scene.sent();
    assert_eq!((sent.bytes, sent.counts.missing_bytes), (u64::from(MSS) * 40, 0), "{sent:?}");
    assert_eq!((sent.retransmitted.segments, sent.counts.reordered), (0, 0), "{sent:?}");
    assert!(is_near(mean_rtt_us(&sent), 12_000.0, 0.02), "{sent:?}");
}

#[test]
fn the_silence_after_the_last_byte_is_not_of_the_transfer() {
    for place in [0, 50, 100] {
        let transfer = Transfer { place, rtt_us: 60_000, bytes: 900_000, ..Transfer::default() };
        let mut truth = transfer.run();
        let end = truth.packets.iter().map(|packet| packet.at_us).max().unwrap();
        let last = truth.packets.iter().rev().find(|packet| packet.payload > 0).unwrap().clone();
        let mut fin = last.clone();
        (fin.at_us, fin.flags, fin.payload) = (end + 7_000_000, FIN, 0);
        fin.seq = last.seq.wrapping_add(last.payload);
        let mut keep_alive = fin.clone();
        (keep_alive.at_us, keep_alive.flags) = (end + 3_000_000, ACK);
        keep_alive.seq = fin.seq.wrapping_sub(1);
        truth.packets.extend([keep_alive, fin]);
        let capture = follow(Cursor::new(USUAL.write(&truth.packets)), 10, |_| true).unwrap();
        let sent = capture.flows[0].sent_by(Side::Initiator);
        let lasted = sent.lasted.0 as f64 / 1e9;
        assert!(is_near(lasted, truth.seconds, 0.08), "{lasted} {} {sent:?}", truth.seconds);
        assert!(sent.silent_after.0 > 6_800_000_000, "at {place} %: {sent:?}");
        assert!(sent.idle.0 < 100_000_000, "at {place} %: {sent:?}");
    }
}

#[test]
fn a_closed_window_is_counted_and_its_probes_are_no_losses() {
    for (handshake, taken) in [(true, 0), (false, 0), (true, 1)] {
        let mut scene = if handshake { Scene::new(9000, 30) } else { Scene::default() };
        for n in 0..12_u16 {
            let at = 10_000 + 10_000 * u64::from(n);
            scene.window = Some(150 * (11 - n));
            scene.data(at, MSS * u32::from(n), MSS);
            scene.ack(at + 9000, MSS * u32::from(n + 1));
        }
        let (mut at, mut end) = (130_000, MSS * 12);
        for n in 0..5 {
            at += 400_000 << n;
            scene.data(at, end, 1);
            // The peer may take the byte though its window stays closed.
            end += if n == 2 { taken } else { 0 };
            scene.ack(at + 9000, end);
        }
        scene.window = Some(4000);
        scene.ack(at + 700_000, end);
        for n in 0..12 {
            scene.data(at + 710_000 + 20_000 * n, end, MSS);
            end += MSS;
            scene.ack(at + 719_000 + 20_000 * n, end);
        }
        let sent = scene.sent();
        let closed = sent.window_closed.0 as f64 / 1e9;
        assert!(is_near(closed, 12.4 + 0.7, 0.03), "{handshake}: {closed} {sent:?}");
        assert_eq!((sent.counts.zero_windows, sent.counts.window_probes), (1, 5), "{sent:?}");
        let again = sent.retransmitted;
        assert_eq!((again.segments, again.timeouts, again.episodes), (0, 0, 0), "{sent:?}");
        assert_eq!(sent.bytes, u64::from(24 * MSS + taken), "{sent:?}");
        assert_eq!(sent.counts.missing_bytes, 0, "{sent:?}");
    }
}

/// Keys that are echoed at once; the acknowledgement of the echo goes with the next key.
#[test]
fn an_acknowledgement_that_waited_for_data_is_no_round_trip() {
    let mut scene = Scene::new(150, 90);
    for n in 0..300 {
        let at = 10_000 + 31_000 * u64::from(n);
        scene.put(at, true, FROM + 20 * n, TO + 44 * n, 20);
        scene.put(at + 140, false, TO + 44 * n, FROM + 20 * (n + 1), 44);
    }
    let flow = scene.flow();
    let echoes = flow.sent_by(Side::Responder);
    assert!(echoes.rtt_min.unwrap().0 <= 250_000, "{echoes:?}");
    assert!(echoes.readings.iter().all(|r| r.rtt.is_none()), "{echoes:?}");
    // The writer of keys is the one that pauses.
    assert!(is_near(echoes.asked.0 as f64, 299.0 * 30_860e3, 0.02), "{echoes:?}");
    assert!(echoes.idle.0 - echoes.asked.0 < 100_000_000, "{echoes:?}");
}

#[test]
fn data_that_goes_both_ways_without_a_rest_has_round_trips() {
    let mut scene = Scene::new(20_000, 30);
    for n in 0..2000_u32 {
        let at = 30_000 + 500 * u64::from(n);
        let known = n.saturating_sub(1) * 1000;
        scene.put(at, true, FROM + 1000 * n, TO + known, 1000);
        // What passed the capture 20 ms before is acknowledged.
        let before = (n + 1).saturating_sub(40) * 1000;
        scene.put(at + 7, false, TO + 1000 * n, FROM + before, 1000);
    }
    let sent = scene.sent();
    assert!(is_near(mean_rtt_us(&sent), 20_000.0, 0.05), "{} {sent:?}", mean_rtt_us(&sent));
}

#[test]
fn a_late_third_packet_of_the_handshake_does_not_make_the_path_long() {
    let mut scene = Scene { window: Some(2 * MSS as u16), ..Scene::default() };
    for (at, from_sender, flags) in [(0, true, SYN), (900, false, SYN | ACK)] {
        scene.syn(at, from_sender, flags);
        scene.packets.last_mut().unwrap().options.truncate(4);
    }
    scene.put(71_000, true, FROM, TO, 0);
    for n in 0..200 {
        let at = 80_000 + 2100 * u64::from(n);
        for k in 0..2 {
            scene.data(at + 60 * k, MSS * (2 * n + k as u32), MSS);
        }
        scene.ack(at + 700, MSS * 2 * (n + 1));
    }
    let sent = scene.sent();
    assert!(mean_rtt_us(&sent) <= 2100.0, "{} {sent:?}", mean_rtt_us(&sent));
    assert!(sent.rtt_min.unwrap().0 <= 2_100_000, "{sent:?}");
    let full: u32 = sent.readings.iter().map(|r| r.full).sum();
    let rounds: u32 = sent.readings.iter().map(|r| r.rounds).sum();
    assert!(full * 10 >= rounds * 9, "{sent:?}");
}

/// A segment of each sixteen comes 14 ms late: IP identifications tell whether it was sent late.
#[test]
fn ip_identifications_tell_reordering_from_retransmission() {
    let scene = |number: fn(u32, bool) -> u16| {
        let mut scene = Scene::new(60_000, 30);
        let mut end = 0;
        for n in 0..320_u32 {
            let is_late = n % 16 == 5;
            let at = 90_000 + 900 * u64::from(n) + if is_late { 14_000 } else { 0 };
            scene.data(at, MSS * n, MSS).ip_id = number(n, is_late);
            end = end.max(at);
        }
        scene.ack(end + 60_000, MSS * 320);
        let sent = scene.sent();
        (sent.counts.reordered, sent.retransmitted.segments)
    };
    // In the order of the bytes; sent again later; drawn at random, which tells nothing.
    assert_eq!(scene(|n, _| 40_000 + n as u16 * 3), (20, 0));
    assert_eq!(
        scene(|n, is_late| 65_000_u16.wrapping_add(n as u16 + u16::from(is_late) * 15)),
        (0, 20)
    );
    let random = |n: u32, _| (n + 1).wrapping_mul(2_654_435_761).rotate_left(16) as u16;
    assert_eq!(scene(random), (0, 20));
}

#[test]
fn acknowledgements_alone_count_the_bytes_and_their_time() {
    let mut scene = Scene::default();
    scene.syn(0, false, SYN);
    for n in 0..=250_u32 {
        scene.ack(40_000 + 8000 * u64::from(n), 1000 * n);
    }
    let sent = scene.sent();
    assert_eq!((sent.bytes, sent.is_seen), (250_000, false), "{sent:?}");
    let bps = sent.bytes as f64 * 8e9 / sent.lasted.0 as f64;
    assert!(is_near(bps, 1e6, 0.01), "{bps} {sent:?}");
    assert_eq!((sent.rtt_min, sent.idle.0), (None, 0), "{sent:?}");
}

#[test]
fn a_fin_is_no_byte_and_nothing_is_missing() {
    let mut scene = Scene::new(5000, 30);
    scene.data(10_000, 0, MSS);
    scene.ack(15_000, MSS);
    scene.data(20_000, MSS, 0).flags = FIN;
    scene.ack(25_000, MSS + 1).flags = FIN;
    scene.put(25_030, true, FROM + MSS + 1, TO + 1, 0);
    let flow = scene.flow();
    assert_eq!(flow.sent.each_ref().map(|sent| sent.bytes), [u64::from(MSS), 0], "{flow:?}");
    assert!(flow.sent.iter().all(|sent| sent.counts.missing_bytes == 0), "{flow:?}");
}

#[test]
fn the_first_segment_may_be_overtaken() {
    let mut scene = Scene::new(5000, 30);
    scene.data(10_000, MSS, MSS);
    scene.data(10_040, 0, MSS);
    scene.ack(15_000, 2 * MSS);
    let sent = scene.sent();
    assert_eq!(sent.bytes, u64::from(2 * MSS), "{sent:?}");
    assert_eq!((sent.counts.reordered, sent.retransmitted.segments), (1, 0), "{sent:?}");
}

#[test]
fn data_in_a_syn_is_the_first_of_the_connection() {
    let mut scene = Scene::default();
    scene.syn(0, true, SYN);
    scene.packets[0].payload = 333;
    scene.syn(7000, false, SYN | ACK);
    scene.packets[1].ack = FROM + 333;
    scene.data(7100, 333, 700);
    scene.ack(14_100, 1033);
    let sent = scene.sent();
    assert_eq!((sent.bytes, sent.counts.missing_bytes), (1033, 0), "{sent:?}");
}

#[test]
fn both_ends_may_open_at_once_and_answers_may_be_recorded_first() {
    let mut scene = Scene::default();
    scene.syn(0, true, SYN);
    scene.syn(2000, false, SYN);
    scene.syn(15_000, false, SYN | ACK);
    scene.syn(16_000, true, SYN | ACK);
    scene.data(40_000, 0, MSS);
    scene.ack(55_000, MSS);
    let flow = scene.flow();
    assert_eq!(flow.sent[0].bytes, u64::from(MSS), "{flow:?}");
    assert_eq!(flow.handshake, None);

    let mut scene = Scene::default();
    scene.syn(1, true, SYN);
    scene.syn(0, false, SYN | ACK);
    scene.put(30, true, FROM, TO, 0);
    scene.data(1000, 0, MSS);
    let flow = scene.flow();
    assert_eq!(flow.ends[0].port(), 40_000);
    assert_eq!(flow.sent[0].bytes, u64::from(MSS), "{flow:?}");
}

#[test]
fn new_connections_between_the_same_ports_are_others() {
    let mut scene = Scene::new(5000, 30);
    scene.data(10_000, 0, MSS);
    scene.syn(900_000, true, SYN);
    scene.packets.last_mut().unwrap().seq = 5;
    assert_eq!(scene.capture().flows.len(), 2);
}

/// On both sides of a router, and on two interfaces of a host.
#[test]
fn a_packet_recorded_twice_counts_once() {
    for (ttl, has_ids) in [(63, true), (64, true), (63, false)] {
        let transfer = Transfer { lost: [40, 41, 90].into(), ..Transfer::default() };
        let mut packets = transfer.run().packets;
        if !has_ids {
            packets.iter_mut().for_each(|packet| packet.ip_id = 0);
        }
        let once = follow(Cursor::new(USUAL.write(&packets)), 10, |_| true).unwrap();
        let identified = packets.iter().filter(|packet| packet.ip_id != 0 || ttl != 64);
        let copies: Vec<Packet> = identified
            .map(|packet| Packet { at_us: packet.at_us + 300, ttl, ..packet.clone() })
            .collect();
        let number = copies.len() as u64;
        packets.extend(copies);
        packets.sort_by_key(|packet| packet.at_us);
        let twice = follow(Cursor::new(USUAL.write(&packets)), 10, |_| true).unwrap();
        assert_eq!(twice.flows[0].copies, number);
        assert_eq!(twice.flows[0].sent, once.flows[0].sent, "hop limit {ttl}, {has_ids}");
    }
}

#[test]
fn what_was_acknowledged_and_is_sent_again_is_spurious() {
    let mut scene = Scene::new(30_000, 30);
    for n in 0..20 {
        let at = 50_000 + 31_000 * u64::from(n);
        scene.data(at, MSS * n, MSS);
        scene.ack(at + 30_000, MSS * (n + 1));
    }
    for n in 0..3 {
        scene.data(690_000 + 100 * n, MSS * (10 + n as u32), MSS);
    }
    scene.data(700_000, 20 * MSS, MSS);
    scene.ack(730_000, 21 * MSS);
    let sent = scene.sent();
    let again = sent.retransmitted;
    assert_eq!((again.segments, again.spurious), (3, 3), "{sent:?}");
    assert_eq!((again.episodes, again.fast, again.timeouts), (0, 0, 0), "{sent:?}");
}

#[test]
fn timeouts_to_a_peer_that_is_gone_are_counted_apart_from_the_transfer() {
    let mut scene = Scene::new(30_000, 30);
    for n in 0..30 {
        let at = 50_000 + 31_000 * u64::from(n);
        scene.data(at, MSS * n, MSS);
        scene.ack(at + 30_000, MSS * (n + 1));
    }
    let mut at = 1_000_000;
    scene.data(at, 30 * MSS, MSS);
    for n in 0..5 {
        at += 250_000 << n;
        scene.data(at, 30 * MSS, MSS);
    }
    let sent = scene.sent();
    assert_eq!((sent.unanswered, sent.retransmitted.timeouts), (5, 5), "{sent:?}");
    assert!(is_near(sent.silent_after.0 as f64, 7.75e9, 0.01), "{sent:?}");
    assert!(is_near(sent.lasted.0 as f64, 0.95e9, 0.02), "{sent:?}");
    assert!(is_near(sent.retransmitted.waited.0 as f64, 7.75e9, 0.01), "{sent:?}");
}

#[test]
fn the_senders_clock_may_tick_at_any_rate() {
    for tick_us in [1, 100, 1000, 4000, 10_000, 100_000, 500_000, 1_000_000] {
        for place in [0, 50, 100] {
            let transfer = Transfer { tick_us, place, rtt_us: 30_000, ..Transfer::default() };
            let mut packets = transfer.run().packets;
            // Two clocks are not in step.
            packets.iter_mut().for_each(|packet| packet.at_us += 3_333);
            let capture = follow(Cursor::new(USUAL.write(&packets)), 10, |_| true).unwrap();
            let sent = capture.flows[0].sent_by(Side::Initiator);
            let (mean, least) = (mean_rtt_us(sent), sent.rtt_min.unwrap().0 as f64 / 1e3);
            let what = format!("a tick of {tick_us} us, at {place} %: {mean} {least}");
            assert!(is_near(mean, 30_000.0, 0.05) && is_near(least, 30_000.0, 0.02), "{what}");
        }
    }
}

/// At the receiver a queue shows in the sender's timestamps alone.
#[test]
fn a_queue_shows_in_timestamps_of_any_tick() {
    for tick_us in [1, 1000, 4000, 10_000] {
        let transfer = Transfer {
            tick_us,
            place: 100,
            queue_before: true,
            bytes: 15_000_000,
            window: 4 << 20,
            congestion_window: 400_000,
            link_bps: 40_000_000,
            ..Transfer::default()
        };
        let file = USUAL.write(&transfer.run().packets);
        let capture = follow(Cursor::new(file), 10, |_| true).unwrap();
        let mean = mean_rtt_us(capture.flows[0].sent_by(Side::Initiator));
        // 400 kB at 40 Mbit/s: 80 ms.
        assert!(is_near(mean, 80_000.0, 0.1), "a tick of {tick_us} us: {mean}");
    }
}

#[test]
fn frames_above_64_kib_are_whole() {
    for (ipv6, offload) in [(false, 60), (true, 90), (false, 120)] {
        let transfer = Transfer { offload, window: 1 << 20, ..Transfer::default() };
        let packets = transfer.run().packets;
        assert!(packets.iter().any(|packet| packet.payload > 80_000));
        let file = File { ipv6, snap: 120, ..USUAL }.write(&packets);
        let capture = follow(Cursor::new(file), 10, |_| true).unwrap();
        let sent = capture.flows[0].sent_by(Side::Initiator);
        assert_eq!((sent.bytes, sent.counts.missing_bytes), (transfer.bytes, 0), "{sent:?}");
        assert_eq!(sent.retransmitted.segments, 0, "{sent:?}");
    }
}

#[test]
fn old_and_simple_blocks_of_pcapng_are_read() {
    let packets = Transfer::default().run().packets;
    let read = |block, is_big_endian| {
        let file = File { is_ng: true, block, is_big_endian, ..USUAL }.write(&packets);
        follow(Cursor::new(file), 10, |_| true).unwrap()
    };
    for is_big_endian in [false, true] {
        let usual = read(6, is_big_endian);
        assert_eq!(read(2, is_big_endian), usual);
        let simple = read(3, is_big_endian);
        assert_eq!((simple.packets, simple.left_out.untimed), (usual.packets, usual.packets));
        assert_eq!(simple.flows[0].bytes(), usual.flows[0].bytes());
        assert_eq!(simple.flows[0].sent[0].lasted.0, 0);
    }
}

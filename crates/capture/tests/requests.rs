//! Requests whose times are known, captured at the client, at the server and between.
#![allow(clippy::unwrap_used, reason = "a test says what it expects by panicking")]

use std::io::Cursor;
use std::net::SocketAddr;

use linerate_capture::{
    Capture, CaptureError, ConnectFailure, RequestProtocol, Requests, Selection, SlowRequest,
    Whose, follow, follow_selected,
};
use proptest::prelude::*;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;
const CLIENT: usize = 0;
const SERVER: usize = 1;

/// A segment, when it was sent at its end.
#[derive(Debug, Clone)]
struct Segment {
    from: usize,
    at_us: u64,
    /// Of the payload, from the first byte of its end.
    offset: u32,
    payload: Vec<u8>,
    flags: u8,
    window: u16,
    /// It is lost behind the capture.
    is_lost: bool,
}

/// A connection, and datagrams of the same two hosts.
#[derive(Debug, Clone)]
struct Talk {
    rtt_us: u64,
    /// Where it is captured, per cent of the way from the client.
    place: u64,
    segments: Vec<Segment>,
    datagrams: Vec<(usize, u64, u16, Vec<u8>)>,
    sent: [u32; 2],
    port: u16,
    snap: usize,
    /// The capture begins and ends at these times.
    times_us: [u64; 2],
    /// As what an IP packet is recorded.
    framing: Framing,
}

impl Talk {
    /// With a handshake at 0.
    fn new(place: u64) -> Self {
        let mut talk = Self::silent(place);
        talk.put(CLIENT, 0, SYN);
        talk.put(SERVER, talk.rtt_us / 2, SYN | ACK);
        talk.put(CLIENT, talk.rtt_us, ACK);
        talk
    }

    fn silent(place: u64) -> Self {
        let (segments, datagrams) = (Vec::new(), Vec::new());
        Self {
            rtt_us: RTT,
            place,
            segments,
            datagrams,
            sent: [0; 2],
            port: 40_000,
            snap: 2000,
            times_us: [0, u64::MAX],
            framing: |packet| vec![packet.to_vec()],
        }
    }

    fn put(&mut self, from: usize, at_us: u64, flags: u8) -> &mut Segment {
        let (offset, payload) = (self.sent[from], Vec::new());
        let window = 8000;
        self.segments.push(Segment { from, at_us, offset, payload, flags, window, is_lost: false });
        self.segments.last_mut().unwrap()
    }

    fn data(&mut self, from: usize, at_us: u64, payload: impl Into<Vec<u8>>) -> &mut Segment {
        let payload = payload.into();
        let offset = self.sent[from];
        self.sent[from] += payload.len() as u32;
        let segment = self.put(from, at_us, ACK | PSH);
        (segment.offset, segment.payload) = (offset, payload);
        segment
    }

    /// A request, its acknowledgement, the response after so long in three segments within 4 ms,
    /// and its acknowledgement; returns when the client has all of it.
    fn exchange(&mut self, at_us: u64, think_us: u64) -> u64 {
        let half = self.rtt_us / 2;
        self.data(CLIENT, at_us, vec![b'q'; 200]);
        self.put(SERVER, at_us + half, ACK);
        for n in 0..3 {
            self.data(SERVER, at_us + half + think_us + 2000 * n, vec![b'r'; 1000]);
        }
        let end = at_us + 2 * half + think_us + 4000;
        self.put(CLIENT, end, ACK);
        end
    }

    /// The bytes of `from` that the other end had in order at that time.
    fn received(&self, from: usize, at_us: u64) -> u32 {
        let arrived = self
            .segments
            .iter()
            .filter(|it| it.from == from && !it.is_lost && it.at_us + self.rtt_us / 2 <= at_us);
        let mut arrived: Vec<_> =
            arrived.map(|it| (it.offset, it.offset + it.payload.len() as u32)).collect();
        arrived.sort_unstable();
        arrived
            .iter()
            .fold(0, |next, (start, end)| if *start <= next { next.max(*end) } else { next })
    }

    fn file(&self) -> Vec<u8> {
        let half = self.rtt_us / 2;
        let to_capture = [half * self.place / 100, half - half * self.place / 100];
        let mut packets: Vec<(u64, Vec<u8>)> = Vec::new();
        for segment in &self.segments {
            let from = segment.from;
            let has_syn = segment.flags & SYN != 0;
            let seq = [70_000, 9_000_u32][from] + segment.offset + u32::from(!has_syn);
            let ack = [9_001, 70_001_u32][from] + self.received(1 - from, segment.at_us);
            let mut tcp = Vec::new();
            let ports = [self.port, 80];
            tcp.extend([ports[from], ports[1 - from]].iter().flat_map(|port| port.to_be_bytes()));
            tcp.extend(seq.to_be_bytes());
            tcp.extend(if segment.flags & ACK != 0 { ack } else { 0 }.to_be_bytes());
            tcp.extend([if has_syn { 6 << 4 } else { 5 << 4 }, segment.flags]);
            tcp.extend(segment.window.to_be_bytes());
            tcp.extend([0; 4]);
            // The MSS, 1460.
            tcp.extend(if has_syn { &[2, 4, 5, 180][..] } else { &[] });
            tcp.extend(&segment.payload);
            packets.push((segment.at_us + to_capture[from], ip(from, 6, &tcp)));
        }
        for (from, at_us, port, payload) in &self.datagrams {
            let ports = [self.port, *port];
            let mut udp: Vec<u8> =
                [ports[*from], ports[1 - from]].iter().flat_map(|it| it.to_be_bytes()).collect();
            udp.extend((payload.len() as u16 + 8).to_be_bytes());
            udp.extend([0; 2]);
            udp.extend(payload);
            packets.push((at_us + to_capture[*from], ip(*from, 17, &udp)));
        }
        let [begin, end] = self.times_us;
        packets.retain(|(at_us, _)| (begin..end).contains(at_us));
        packets.sort_by_key(|(at_us, _)| *at_us);
        let mut file = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
        file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 101, 0, 0, 0]);
        let frames = |(at, packet): &(u64, Vec<u8>)| {
            (self.framing)(packet).into_iter().map(|it| (*at, it)).collect::<Vec<_>>()
        };
        for (at_us, packet) in packets.iter().flat_map(frames) {
            let at = at_us + 1_000_000_000;
            let kept = packet.len().min(self.snap);
            let words = [at / 1_000_000, at % 1_000_000, kept as u64, packet.len() as u64];
            words.iter().for_each(|word| file.extend((*word as u32).to_le_bytes()));
            file.extend(&packet[..kept]);
        }
        file
    }

    fn capture(&self) -> Capture {
        follow(Cursor::new(self.file()), 100, |_| true).unwrap()
    }

    fn requests(&self) -> Requests {
        self.capture().requests
    }
}

fn ip(from: usize, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((payload.len() as u16 + 20).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    let ends = [[192, 0, 2, 1], [192, 0, 2, 2]];
    packet.extend(ends[from]);
    packet.extend(ends[1 - from]);
    packet.extend(payload);
    packet
}

const RTT: u64 = 20_000;
const PLACES: [u64; 3] = [0, 40, 100];

#[track_caller]
fn is(found: Option<f64>, us: f64) {
    let found = found.expect("a time");
    assert!((found - us).abs() <= 1.0, "{found} µs and not {us}");
}

/// In the order in which they were sent.
fn in_order(requests: &Requests) -> Vec<SlowRequest> {
    let mut all = requests.slowest.clone();
    all.sort_by_key(|one| one.packet);
    all
}

#[test]
fn phases_are_those_of_the_clients_clock_wherever_they_were_captured() {
    for place in PLACES {
        let mut talk = Talk::new(place);
        let end = talk.exchange(25_000, 300_000);
        let end = talk.exchange(end + 120_000, 50_000);
        talk.put(CLIENT, end, ACK | FIN);
        let requests = talk.requests();
        assert_eq!((requests.count, requests.unfinished), (2, 0), "{requests:#?}");
        let [first, second] = &in_order(&requests)[..] else {
            panic!("two: {requests:#?}");
        };
        is(first.phases.connect_us, 20_000.0);
        is(first.phases.client_us, 5_000.0);
        is(first.phases.request_us, 10_000.0);
        is(first.phases.server_us, 300_000.0);
        is(first.phases.response_us, 14_000.0);
        is(first.phases.round_trip_us, 20_000.0);
        is(first.phases.total_us, 344_000.0);
        assert_eq!((first.packet, first.request_bytes, first.response_bytes), (4, 200, 3000));
        is(second.phases.client_us, 120_000.0);
        is(second.phases.server_us, 50_000.0);
        is(second.phases.total_us, 74_000.0);
        assert_eq!(second.phases.connect_us, None);
        let spent = requests.spent;
        is(Some(spent.total_s * 1e6), 418_000.0);
        is(Some((spent.server_s + spent.network_s + spent.client_s) * 1e6), 418_000.0);
        // Of 4 ms in which nothing was outstanding for no longer than the server paused.
        assert!((0.35..0.358).contains(&spent.server_s), "{spent:?}");
        is(Some(spent.between_s * 1e6), 125_000.0);
        assert_eq!(requests.verdict.unwrap().whose, Whose::Server);
        let captured = requests.captured;
        let at = [captured.client_requests, captured.between_requests, captured.server_requests];
        assert_eq!(at, [0, 40, 100].map(|it| if it == place { 2 } else { 0 }), "{captured:?}");
    }
}

#[test]
fn a_response_that_acknowledges_its_request_tells_as_much() {
    for place in PLACES {
        let mut talk = Talk::new(place);
        for n in 0..12 {
            talk.data(CLIENT, 30_000 + 400_000 * n, vec![b'q'; 90]);
            talk.data(SERVER, 40_000 + 400_000 * n + 250_000, vec![b'r'; 90]);
            talk.put(CLIENT, 50_000 + 400_000 * n + 250_000, ACK);
        }
        let requests = talk.requests();
        assert_eq!((requests.count, requests.slowest.len()), (12, 10));
        let server = requests.phases.server_us.unwrap();
        assert!((server.min / 250_000.0 - 1.0).abs() < 0.002, "{server:?}");
        assert!((server.p99 / 250_000.0 - 1.0).abs() < 0.002, "{server:?}");
        assert_eq!(requests.phases.client_us.unwrap().count, 12);
    }
}

#[test]
fn a_queue_that_the_acknowledgement_shows_is_the_networks() {
    for (late_us, think_us) in [(15_000, 285_000), (60_000, 300_000)] {
        let mut talk = Talk::new(0);
        talk.data(CLIENT, 30_000, vec![b'q'; 90]);
        // Later than 40 ms it may have been delayed.
        talk.put(SERVER, 40_000 + late_us, ACK);
        talk.data(SERVER, 40_000 + 300_000, vec![b'r'; 90]);
        talk.put(CLIENT, 350_000, ACK | FIN);
        is(talk.requests().slowest[0].phases.server_us, f64::from(think_us));
    }
}

#[test]
fn a_request_that_was_lost_is_the_networks_time() {
    for place in [0, 40] {
        let mut talk = Talk::new(place);
        talk.data(CLIENT, 30_000, vec![b'q'; 200]).is_lost = true;
        talk.sent[CLIENT] = 0;
        talk.data(CLIENT, 250_000, vec![b'q'; 200]);
        talk.put(SERVER, 260_000, ACK);
        talk.data(SERVER, 260_000 + 80_000, vec![b'r'; 200]);
        talk.put(CLIENT, 350_000, ACK | FIN);
        let requests = talk.requests();
        let slow = &requests.slowest[0];
        is(slow.phases.server_us, 80_000.0);
        is(slow.phases.request_us, 230_000.0);
        is(slow.phases.total_us, 340_000.0);
        assert_eq!((slow.retransmitted_segments, requests.count), (1, 1));
        assert_eq!(requests.verdict.unwrap().whose, Whose::Network);
    }
}

#[test]
fn pauses_of_a_server_and_closed_windows_of_a_client_are_theirs() {
    let mut talk = Talk::new(0);
    talk.data(CLIENT, 30_000, vec![b'q'; 200]);
    talk.put(SERVER, 40_000, ACK);
    talk.data(SERVER, 50_000, vec![b'r'; 900]);
    talk.put(CLIENT, 60_000, ACK);
    talk.data(SERVER, 650_000, vec![b'r'; 900]);
    talk.put(CLIENT, 660_000, ACK | FIN);
    let requests = talk.requests();
    let slow = &requests.slowest[0];
    is(slow.phases.server_us, 10_000.0);
    is(slow.phases.response_us, 610_000.0);
    is(Some(slow.spent.server_s * 1e6), 10_000.0 + 600_000.0);

    let mut talk = Talk::new(100);
    talk.data(CLIENT, 30_000, vec![b'q'; 200]);
    talk.data(SERVER, 50_000, vec![b'r'; 900]);
    talk.put(CLIENT, 60_000, ACK).window = 0;
    talk.put(CLIENT, 560_000, ACK);
    talk.data(SERVER, 570_000, vec![b'r'; 900]);
    talk.put(CLIENT, 580_000, ACK | FIN);
    let requests = talk.requests();
    is(Some(requests.spent.client_s * 1e6), 500_000.0);
    assert_eq!(requests.verdict.unwrap().whose, Whose::Client);
}

#[test]
fn http_is_read_by_its_lines_and_queries_are_not_kept() {
    for snap in [2000, 60] {
        let mut talk = Talk::new(0);
        talk.snap = snap;
        let request = "GET /a/b?token=secret HTTP/1.1\r\nHost: x\r\n\r\n";
        talk.data(CLIENT, 30_000, request);
        talk.data(SERVER, 90_000, "HTTP/1.1 503 Service Unavailable\r\n\r\n");
        talk.put(CLIENT, 100_000, ACK);
        talk.data(CLIENT, 200_000, format!("POST /{} HTTP/1.1\r\n", "x".repeat(99)));
        // It asks to go on: that is no response.
        talk.data(SERVER, 211_000, "HTTP/1.1 100 Continue\r\n\r\n");
        talk.data(CLIENT, 222_000, vec![b'b'; 500]);
        talk.data(SERVER, 332_000, "HTTP/1.1 200 OK\r\n\r\n");
        talk.put(CLIENT, 342_000, ACK | FIN);
        let capture = talk.capture();
        let [first, second] = &in_order(&capture.requests)[..] else {
            panic!("two: {capture:#?}");
        };
        assert_eq!((first.line.as_deref(), first.status), (Some("GET /a/b"), Some(503)));
        assert!(second.line.as_ref().unwrap().len() <= 49, "{second:?}");
        assert!(second.line.as_ref().unwrap().ends_with("x…"), "{second:?}");
        assert_eq!((second.status, second.request_bytes > 500), (Some(200), true));
        is(second.phases.server_us, 100_000.0);
        let own = capture.flows[0].requests.as_ref().unwrap();
        assert_eq!((own.count, own.protocol), (2, RequestProtocol::Http1));
    }
}

#[test]
fn one_direction_alone_tells_no_request() {
    for place in PLACES {
        for from in [CLIENT, SERVER] {
            let mut talk = Talk::new(place);
            talk.exchange(30_000, 50_000);
            talk.exchange(1_300_000, 50_000);
            talk.put(CLIENT, 9_000_000, ACK | FIN);
            talk.put(SERVER, 9_000_000, ACK | FIN);
            talk.segments.retain(|segment| segment.from == from);
            let requests = talk.requests();
            assert_eq!((requests.count, requests.unanswered), (0, 0), "{requests:#?}");
            assert_eq!(requests.connects.unanswered, 0, "{requests:#?}");
        }
    }
}

#[test]
fn a_capture_that_begins_and_ends_in_a_connection_tells_what_is_whole() {
    for place in PLACES {
        let mut talk = Talk::new(place);
        let mut begun = Vec::new();
        for n in 0..5 {
            begun.push(30_000 + 200_000 * n);
            talk.exchange(begun[n as usize], 90_000);
        }
        // It begins within the first response, and ends within the last.
        talk.times_us = [begun[0] + 112_000, begun[4] + 112_500];
        let requests = talk.requests();
        assert_eq!((requests.count, requests.unfinished), (3, 1), "at {place}: {requests:#?}");
        assert_eq!(requests.captured.unknown_requests, 0);
        let server = requests.phases.server_us.unwrap();
        assert!((server.min / 90_000.0 - 1.0).abs() < 0.002, "at {place}: {server:?}");
        assert!((server.max / 90_000.0 - 1.0).abs() < 0.002, "at {place}: {server:?}");
        // The file itself may end within a packet.
        let mut bytes = talk.file();
        bytes.truncate(bytes.len() - 20);
        let cut = follow(Cursor::new(bytes), 10, |_| true).unwrap();
        assert!(cut.truncated && cut.requests.count == 3, "{cut:#?}");
    }
}

#[test]
fn requests_that_overlap_are_counted_and_have_no_times() {
    for place in PLACES {
        // The second leaves before the response to the first has arrived.
        let mut talk = Talk::new(place);
        talk.data(CLIENT, 30_000, "GET /1 HTTP/1.1\r\n\r\n");
        talk.data(SERVER, 45_000, vec![b'r'; 1000]);
        talk.data(CLIENT, 56_000, "GET /2 HTTP/1.1\r\n\r\n");
        talk.data(SERVER, 60_000, vec![b'r'; 1000]);
        talk.put(CLIENT, 70_000, ACK);
        talk.data(SERVER, 75_000, vec![b'r'; 1000]);
        talk.put(CLIENT, 85_000, ACK);
        talk.exchange(300_000, 40_000);
        talk.put(CLIENT, 500_000, ACK | FIN);
        let requests = talk.requests();
        assert_eq!((requests.overlapped, requests.count), (2, 1), "at {place}: {requests:#?}");
        is(requests.slowest[0].phases.server_us, 40_000.0);

        // Both leave at once.
        let mut talk = Talk::new(place);
        talk.data(CLIENT, 30_000, "GET /1 HTTP/1.1\r\n\r\n");
        talk.data(CLIENT, 30_100, "GET /2 HTTP/1.1\r\n\r\n");
        talk.data(SERVER, 45_000, vec![b'r'; 1000]);
        talk.put(CLIENT, 60_000, ACK | FIN);
        let requests = talk.requests();
        assert_eq!((requests.overlapped, requests.count), (1, 0), "at {place}: {requests:#?}");
    }
    let mut talk = Talk::new(0);
    talk.data(CLIENT, 30_000, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    talk.exchange(300_000, 40_000);
    let requests = talk.requests();
    assert_eq!((requests.multiplexed_connections, requests.count), (1, 0), "{requests:#?}");
}

#[test]
fn keep_alives_are_no_requests() {
    for place in PLACES {
        let mut talk = Talk::new(place);
        let end = talk.exchange(30_000, 50_000);
        for from in [CLIENT, SERVER] {
            let at = end + 1_000_000 * (from as u64 + 1);
            let probe = talk.put(from, at, ACK);
            (probe.offset, probe.payload) = (probe.offset - 1, vec![0]);
            talk.put(1 - from, at + RTT / 2, ACK);
        }
        talk.exchange(end + 5_000_000, 50_000);
        talk.put(CLIENT, end + 6_000_000, ACK | FIN);
        let requests = talk.requests();
        assert_eq!((requests.count, requests.unanswered, requests.overlapped), (2, 0, 0));
        let client = requests.phases.client_us.unwrap();
        assert!((client.max / 5e6 - 1.0).abs() < 0.002, "at {place}: {client:?}");
    }
}

fn record(kind: u8, bytes: usize, first: u8) -> Vec<u8> {
    let mut record = vec![kind, 3, 3];
    record.extend((bytes as u16).to_be_bytes());
    record.extend(vec![first; bytes]);
    record
}

#[test]
fn tls_is_told_by_the_types_of_its_records() {
    for place in PLACES {
        // TLS 1.3: 12 ms of the server and 7 ms of the client; two tickets at once, the response
        // 150 ms after the request.
        let mut talk = Talk::new(place);
        talk.data(CLIENT, 21_000, record(22, 300, 1));
        let flight = [record(22, 90, 2), record(20, 1, 1), record(23, 900, 9), record(23, 60, 9)];
        talk.data(SERVER, 43_000, flight.concat());
        talk.put(CLIENT, 53_000, ACK);
        talk.data(CLIENT, 60_000, [record(20, 1, 1), record(23, 53, 9)].concat());
        talk.data(CLIENT, 60_200, record(23, 120, 9));
        talk.data(SERVER, 70_100, [record(23, 250, 9), record(23, 250, 9)].concat());
        talk.data(SERVER, 220_200, record(23, 700, 9));
        talk.put(CLIENT, 230_200, ACK);
        // It closes with an alert.
        talk.data(CLIENT, 240_000, record(23, 19, 9));
        talk.put(CLIENT, 240_001, ACK | FIN);
        let capture = talk.capture();
        let requests = &capture.requests;
        assert_eq!((requests.count, requests.overlapped), (1, 0), "at {place}: {requests:#?}");
        let slow = &requests.slowest[0];
        is(slow.phases.tls_us, 39_000.0);
        is(slow.phases.server_us, 150_000.0);
        is(Some(slow.spent.server_s * 1e6), 162_000.0);
        is(Some(slow.spent.client_s * 1e6), 7_000.0);
        assert_eq!(capture.flows[0].requests.as_ref().unwrap().protocol, RequestProtocol::Tls);

        // TLS 1.2, with frames that were cut or not.
        for snap in [2000, 70] {
            let mut talk = Talk::new(place);
            talk.snap = snap;
            talk.data(CLIENT, 21_000, record(22, 300, 1));
            talk.data(SERVER, 36_000, [record(22, 80, 2), record(22, 900, 11)].concat());
            talk.put(CLIENT, 46_000, ACK);
            let key = [record(22, 37, 16), record(20, 1, 1), record(22, 40, 7)];
            talk.data(CLIENT, 47_000, key.concat());
            talk.data(SERVER, 60_000, [record(20, 1, 1), record(22, 40, 7)].concat());
            talk.put(CLIENT, 70_000, ACK);
            talk.data(CLIENT, 80_000, record(23, 400, 9));
            talk.data(SERVER, 190_000, record(23, 400, 9));
            talk.put(CLIENT, 200_000, ACK | FIN);
            let slow = &talk.requests().slowest[0];
            is(slow.phases.tls_us, 49_000.0);
            is(slow.phases.client_us, 10_000.0);
            is(slow.phases.server_us, 100_000.0);
        }
    }
}

#[test]
fn a_server_that_speaks_first_answers_the_handshake() {
    for place in PLACES {
        let mut talk = Talk::new(place);
        talk.data(SERVER, 30_000 + 700_000, "220 mail\r\n");
        talk.put(CLIENT, 740_000, ACK);
        talk.exchange(750_000, 5_000);
        talk.put(CLIENT, 2_000_000, ACK | FIN);
        let requests = talk.requests();
        let first = &in_order(&requests)[0];
        assert_eq!((requests.count, first.line.as_deref()), (2, Some("(greeting)")));
        is(first.phases.server_us, 700_000.0);
        is(first.phases.connect_us, 20_000.0);
    }
}

#[test]
fn a_request_without_an_answer_is_named_and_a_stream_is_none() {
    for place in PLACES {
        let mut talk = Talk::new(place);
        talk.exchange(30_000, 5_000);
        talk.data(CLIENT, 100_000, vec![b'q'; 100]);
        talk.put(SERVER, 110_000, ACK);
        talk.put(CLIENT, 5_110_000, ACK | FIN);
        let requests = talk.requests();
        assert_eq!((requests.count, requests.unanswered), (2, 1), "{requests:#?}");
        let slow = &requests.slowest[0];
        assert!(!slow.answered && slow.phases.response_us.is_none(), "{slow:#?}");
        assert!((slow.spent.server_s - 5.0).abs() < 0.03, "{slow:#?}");

        let mut stream = Talk::new(place);
        for n in 0..40 {
            stream.data(CLIENT, 100_000 + 10_000 * n, vec![b'q'; 1000]);
            stream.put(SERVER, 110_000 + 10_000 * n, ACK);
        }
        stream.put(CLIENT, 5_110_000, ACK | FIN);
        let requests = stream.requests();
        assert_eq!((requests.count, requests.unfinished), (0, 0), "{requests:#?}");
    }
}

#[test]
fn connects_that_fail_are_told_apart_and_their_syns_counted() {
    let mut refused = Talk::silent(0);
    refused.put(CLIENT, 0, SYN);
    refused.put(SERVER, 10_000, RST | ACK);
    let capture = refused.capture();
    assert_eq!((capture.requests.connects.refused, capture.requests.connects.count), (1, 1));
    let failed = capture.flows[0].requests.as_ref().unwrap().failed;
    assert_eq!(failed, Some(ConnectFailure::Refused));

    let mut dropped = Talk::silent(40);
    for at in [0, 1_000_000, 3_000_000] {
        dropped.put(CLIENT, at, SYN);
    }
    let connects = dropped.requests().connects;
    assert_eq!((connects.unanswered, connects.retransmitted_syns), (1, 2));
    assert_eq!(connects.failed_s, 3.0);

    let mut late = Talk::silent(0);
    late.put(CLIENT, 0, SYN);
    late.put(CLIENT, 1_000_000, SYN);
    late.put(SERVER, 1_010_000, SYN | ACK);
    late.put(CLIENT, 1_020_000, ACK);
    late.exchange(1_030_000, 9_000);
    let requests = late.requests();
    is(requests.slowest[0].phases.connect_us, 1_020_000.0);
    is(requests.slowest[0].phases.server_us, 9_000.0);
    assert_eq!(requests.connects.retransmitted_syns, 1);
}

fn dns(id: u16, name: &str, flags: u16, address: Option<[u8; 4]>) -> Vec<u8> {
    let mut message = Vec::new();
    let answers = u16::from(address.is_some());
    for half in [id, flags, 1, answers, 0, 0] {
        message.extend(half.to_be_bytes());
    }
    for label in name.split('.') {
        message.push(label.len() as u8);
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    if let Some(address) = address {
        message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        message.extend(address);
    }
    message
}

#[test]
fn lookups_stand_beside_the_requests_and_before_the_connect() {
    let mut talk = Talk::new(0);
    let shift = 6_000_000;
    talk.segments.iter_mut().for_each(|segment| segment.at_us += shift);
    talk.exchange(shift + 21_000, 50_000);
    let mut ask = |from, at_us, message| talk.datagrams.push((from, at_us, 53, message));
    // Asked again after 5 s, answered 30 ms later; the client connects at 6 s.
    ask(CLIENT, 900_000, dns(7, "www.example.net", 0x100, None));
    ask(CLIENT, 5_900_000, dns(7, "www.example.net", 0x100, None));
    ask(SERVER, 5_930_000, dns(7, "www.example.net", 0x8180, Some([192, 0, 2, 2])));
    ask(CLIENT, 5_000, dns(8, "no.example.net", 0x100, None));
    ask(SERVER, 9_000, dns(8, "no.example.net", 0x8183, None));
    ask(CLIENT, 6_000, dns(9, "silent.example.net", 0x100, None));
    let requests = talk.requests();
    let names = requests.names.unwrap();
    assert_eq!((names.count, names.nxdomain, names.failed), (3, 1, 0));
    assert_eq!((names.retried, names.unanswered), (1, 1));
    assert_eq!(names.slowest[0].name, "silent.example.net");
    let slow = &requests.slowest[0];
    is(slow.phases.name_us, 5_040_000.0);
    assert_eq!(requests.verdict.unwrap().whose, Whose::Names);
}

type Framing = fn(&[u8]) -> Vec<Vec<u8>>;

fn gre(packet: &[u8]) -> Vec<u8> {
    ip(0, 47, &[&[0, 0, 8, 0], packet].concat())
}

/// From the port of DNS, as though that were any.
fn vxlan(packet: &[u8]) -> Vec<u8> {
    let ethernet = [&[2; 12], &[8, 0][..], packet].concat();
    let length = (ethernet.len() as u16 + 16).to_be_bytes();
    let udp = [0, 53, 0x12, 0xb5, length[0], length[1], 0, 0, 8, 0, 0, 0, 0, 0, 9, 0];
    ip(0, 17, &[&udp, &ethernet[..]].concat())
}

fn fragments(packet: &[u8]) -> Vec<Vec<u8>> {
    let (header, payload) = packet.split_at(20);
    let pieces = payload.chunks(72).enumerate();
    pieces
        .map(|(number, piece)| {
            let more = if (number + 1) * 72 < payload.len() { 0x20 } else { 0 };
            let mut fragment = [header, piece].concat();
            fragment[2..4].copy_from_slice(&(piece.len() as u16 + 20).to_be_bytes());
            fragment[6..8].copy_from_slice(&[more, 9 * number as u8]);
            fragment
        })
        .collect()
}

#[test]
fn requests_and_lookups_are_the_same_in_tunnels_in_fragments_and_recorded_twice() {
    let mut talk = Talk::new(40);
    let header = "x".repeat(150);
    talk.segments.iter_mut().for_each(|segment| segment.at_us += 40_000);
    talk.datagrams.push((CLIENT, 0, 53, dns(7, "www.example.net", 0x100, None)));
    let answer = dns(7, "www.example.net", 0x8180, Some([192, 0, 2, 2]));
    talk.datagrams.push((SERVER, 30_000, 53, answer));
    talk.data(CLIENT, 70_000, format!("GET /a/b HTTP/1.1\r\nx: {header}\r\n\r\n"));
    talk.data(SERVER, 180_000, format!("HTTP/1.1 404 Not Found\r\nx: {header}\r\n\r\n"));
    talk.put(CLIENT, 190_000, ACK | FIN);
    let told = |talk: &Talk| {
        let mut requests = talk.requests();
        requests.slowest.iter_mut().for_each(|one| one.packet = 0);
        requests.names.iter_mut().for_each(|it| it.slowest[0].packet = 0);
        requests
    };
    let truth = told(&talk);
    let slow = &truth.slowest[0];
    assert_eq!((slow.line.as_deref(), slow.status), (Some("GET /a/b"), Some(404)));
    is(slow.phases.name_us, 32_000.0);
    let framings: [Framing; 6] = [
        |packet| vec![gre(packet)],
        |packet| vec![vxlan(packet)],
        |packet| vec![vxlan(&gre(packet)), packet.to_vec()],
        |packet| vec![packet.to_vec(), gre(packet)],
        fragments,
        |packet| fragments(packet).iter().map(|piece| vxlan(piece)).collect(),
    ];
    for (number, framing) in framings.into_iter().enumerate() {
        assert_eq!(told(&Talk { framing, ..talk.clone() }), truth, "{number}");
    }
}

#[test]
fn lookups_alone_are_no_refusal_and_neither_are_they_in_a_tunnel() {
    for framing in [|packet: &[u8]| vec![packet.to_vec()], |packet: &[u8]| vec![vxlan(packet)]] {
        let mut talk = Talk { framing, ..Talk::silent(0) };
        let refused = follow(Cursor::new(talk.file()), 10, |_| true).unwrap_err();
        assert!(matches!(refused, CaptureError::NoTcp { packets: 0, .. }), "{refused}");
        talk.datagrams.push((CLIENT, 0, 53, dns(7, "www.example.net", 0x100, None)));
        let capture = talk.capture();
        assert_eq!((capture.kinds.len(), &*capture.kinds[0].what), (1, "UDP port 53 (DNS)"));
    }
}

#[test]
fn quic_is_named() {
    let mut talk = Talk::silent(0);
    talk.datagrams.push((CLIENT, 0, 443, vec![0xc3, 0, 0, 0, 1, 8]));
    talk.datagrams.push((SERVER, 15_000, 443, vec![0xc3, 0, 0, 0, 1, 8]));
    talk.datagrams.push((CLIENT, 25_000, 443, vec![0xe3, 0, 0, 0, 1, 8]));
    talk.datagrams.push((CLIENT, 26_000, 443, vec![0x43, 7]));
    let quic = talk.requests().quic.unwrap();
    assert_eq!(quic.connections, 1);
    assert!((quic.handshake_us.unwrap().max / 26_000.0 - 1.0).abs() < 0.002);
}

#[test]
fn requests_of_other_connections_are_left_out() {
    let mut talk = Talk::new(0);
    talk.exchange(30_000, 50_000);
    let of = |ports: Vec<u16>, network: Option<(&str, u8)>| {
        let peers = network.map(|(network, length)| vec![(network.parse().unwrap(), length)]);
        let selection = Selection { ports, peers };
        let ends: [SocketAddr; 2] =
            ["192.0.2.1:40000".parse().unwrap(), "192.0.2.2:80".parse().unwrap()];
        let has = selection.has(&ends);
        let file = Cursor::new(talk.file());
        let capture = follow_selected(file, 10, selection, |_| true).unwrap();
        assert_eq!(capture.flows.len(), 1);
        assert_eq!(has, capture.requests.count == 1);
        has
    };
    assert!(of(vec![80], None) && of(vec![], Some(("192.0.2.2", 32))));
    assert!(of(vec![], Some(("192.0.0.0", 16))) && !of(vec![443], None));
    assert!(!of(vec![80], Some(("192.0.2.3", 32))));
}

proptest! {
    #[test]
    fn any_payload_is_read_without_panic_and_sums_hold(
        parts in prop::collection::vec(
            (0..2_usize, 0..60_000_u64, prop::collection::vec(any::<u8>(), 0..40), 0..6_usize),
            0..60,
        ),
        place in 0..101_u64,
    ) {
        let begins =
            [&b"GET /"[..], b"HTTP/1.1 1", b"\x16\x03\x01\x00\x20\x01", b"\x17\x03\x03\x00"];
        let mut talk = Talk::new(place);
        let mut at = 25_000;
        for (from, after, bytes, begin) in parts {
            at += after;
            let begin = begins.get(begin).copied().unwrap_or_default();
            let segment = talk.data(from, at, [begin, &bytes].concat());
            segment.flags |= bytes.first().map_or(0, |byte| byte & FIN);
            talk.datagrams.push((from, at, 53, bytes));
        }
        let requests = talk.requests();
        let spent = requests.spent;
        let parts = spent.server_s + spent.network_s + spent.client_s + spent.name_s;
        prop_assert!((parts - spent.total_s).abs() < 1e-6, "{spent:?}");
        prop_assert!(requests.slowest.len() as u64 == requests.count.min(10));
    }
}

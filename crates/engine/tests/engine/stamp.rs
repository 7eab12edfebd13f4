//! STAMP on loopback: one-way delays of `rr`, and which packets the reflector answers.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linerate_core::foreign::Tool;
use linerate_core::plan::*;
use linerate_core::record::{Record, Status};
use linerate_core::units::Span;
use linerate_core::wire::{STAMP_BYTES, StampAnswer, StampArrival, StampRequest, reflect};
use linerate_engine::{Partner, ServeOptions, StampOptions, Stop, Target};
use linerate_sys::netns::Namespace;
use linerate_sys::proc::counters::ProtocolCounters;
use linerate_sys::socket::send_from;
use linerate_testkit::{Need, PATIENCE, made_or_skip, uninterrupted};

use super::support::{LIMITS, Served, run};

fn test(count: u64) -> Test {
    let exchange =
        ExchangeTest { stamp: true, ..ExchangeTest::new(STAMP_BYTES as u64, STAMP_BYTES as u64) };
    Test {
        traffic: Traffic::Rr(exchange),
        protocol: Protocol::Udp,
        direction: Direction::Up,
        streams: 2,
        extent: Extent::Count(count),
        warm_up: Span(Duration::ZERO),
        interval: Span(Duration::from_millis(100)),
        options: SocketOptions::default(),
        seed: 7,
    }
}

/// Both ends have one clock: its offset from itself is within what is said of it.
fn has_each_way(record: &Record) {
    let ways = record.one_way.as_ref().unwrap();
    let answered = record.transactions.unwrap();
    assert_eq!((ways.up_us.count, ways.down_us.count), (answered, answered));
    let lost = ways.up_lost.unwrap() + ways.down_lost.unwrap();
    assert!(lost <= record.failed.unwrap(), "{ways:?}");
    let clock = ways.clock;
    assert!(clock.offset_us.abs() <= clock.offset_error_us + 100.0, "{clock:?}");
    assert!(clock.drift_min_ppm <= 0.0 && clock.drift_max_ppm >= 0.0, "{clock:?}");
}

#[test]
fn rr_by_stamp_shows_the_delay_in_each_direction() {
    let record = run(&test(200));
    assert_eq!(record.transactions.unwrap() + record.failed.unwrap(), 400);
    has_each_way(&record);
}

/// An endpoint that reflects what these networks send.
fn reflecting(allowed: &[&str]) -> (Served, SocketAddr) {
    reflecting_at([127, 0, 0, 1], allowed)
}

fn reflecting_at(bind: [u8; 4], allowed: &[&str]) -> (Served, SocketAddr) {
    let allowed = allowed.iter().map(|network| network.parse().unwrap());
    let served = Served::of(&ServeOptions {
        bind: Some(bind.into()),
        stamp: Some(StampOptions { port: 0, allowed: allowed.collect() }),
        ..ServeOptions::within(LIMITS)
    });
    let reflector = served.foreign.iter().find(|(tool, _)| *tool == "stamp");
    let address = reflector.unwrap().1;
    (served, address)
}

fn sender(from: &str, reflector: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((from, 0)).unwrap();
    socket.connect(reflector).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn send(socket: &UdpSocket, sequence: u32, session: u16) {
    let mut packet = [0; STAMP_BYTES];
    StampRequest { sequence, sent_ns: 1_795_435_200_000_000_000, session }.write(&mut packet);
    socket.send(&packet).unwrap();
}

fn answer(socket: &UdpSocket) -> StampAnswer {
    let mut packet = [0; 2000];
    let length = uninterrupted(|| socket.recv(&mut packet)).unwrap();
    assert_eq!(length, STAMP_BYTES);
    StampAnswer::read(&packet[..length]).unwrap()
}

fn has_nothing(socket: &UdpSocket) {
    socket.set_nonblocking(true).unwrap();
    let error = socket.recv(&mut [0; 2000]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    socket.set_nonblocking(false).unwrap();
}

#[test]
fn the_reflector_answers_only_peers_of_sessions_and_named_networks() {
    let (served, reflector) = reflecting(&["127.0.0.3", "127.8.0.0/16"]);
    let [stranger, here, named, near] =
        ["127.0.0.2", "127.0.0.1", "127.0.0.3", "127.8.9.1"].map(|from| sender(from, reflector));
    send(&stranger, 0, 1);
    send(&here, 0, 1);
    // The answer belongs to the later request.
    for (number, socket) in [&named, &near].into_iter().enumerate() {
        send(socket, 7, 1);
        let answer = answer(socket);
        assert_eq!((answer.request_sequence, answer.sequence), (7, 0), "{number}");
        assert!(answer.received_ns <= answer.sent_ns && answer.request_ttl > 0);
    }
    has_nothing(&stranger);
    has_nothing(&here);
    // The reflector counts each session by itself.
    for (session, sequence, count) in [(1, 9, 1), (2, 5, 0), (1, 11, 2)] {
        send(&named, sequence, session);
        assert_eq!(answer(&named).sequence, count);
    }
    // Shorter than an answer, or longer than an Ethernet packet: neither is answered.
    named.send(&[1; 40]).unwrap();
    named.send(&[1; 1501]).unwrap();
    let client = served.client();
    send(&here, 3, 0);
    assert_eq!(answer(&here).request_sequence, 3);
    has_nothing(&named);
    drop(client);
    // A request of TWAMP's light mode, padded to an answer's 41 bytes.
    let mut light = [0x5a; 41];
    light[..4].copy_from_slice(&8u32.to_be_bytes());
    light[4..8].copy_from_slice(&4_004_424_000u32.to_be_bytes());
    named.send(&light).unwrap();
    let mut packet = [0; 100];
    assert_eq!(uninterrupted(|| named.recv(&mut packet)).unwrap(), 41);
    assert_eq!(StampAnswer::read(&packet[..41]).unwrap().request_sequence, 8);
}

/// How many datagrams the sockets of this network namespace have received.
fn received() -> u64 {
    let counters = ProtocolCounters::read().unwrap();
    counters.value("UdpInDatagrams").unwrap()
}

/// Two reflectors, each of which knows the other's address, and a packet to one that seems to come
/// from the other.
fn forge_a_packet_between_two_reflectors() {
    let [here, there] = [1, 2].map(|last| {
        let bind = [127, 0, 0, last];
        reflecting_at(bind, &["127.0.0.0/8"])
    });
    let (a, b) = (here.1, there.1);
    // The reflectors' addresses belong to one host, on which any socket can send from both.
    let forger = UdpSocket::bind(("127.0.0.3", b.port())).unwrap();
    let mut packet = [0; STAMP_BYTES];
    StampRequest { sequence: 0, sent_ns: 1_795_435_200_000_000_000, session: 1 }.write(&mut packet);
    let before = received();
    send_from(&forger, &packet, a, b).unwrap();
    // Each request is answered after all that came before it at that reflector.
    const ROUNDS: u64 = 100;
    let senders = [a, b].map(|reflector| sender("127.0.0.4", reflector));
    for sequence in 0..ROUNDS as u32 {
        for socket in &senders {
            send(socket, sequence, 0);
            assert_eq!(answer(socket).request_sequence, sequence);
        }
    }
    // The requests and their answers, the forged packet, and its answer.
    assert_eq!(received() - before, 2 * 2 * ROUNDS + 2);
}

#[test]
fn two_reflectors_do_not_answer_each_other() {
    let made = Namespace::create("reflectors");
    if let Some(namespace) = made_or_skip(Need::Lab, made) {
        let forged = namespace.run(forge_a_packet_between_two_reflectors);
        forged.unwrap();
    }
}

#[test]
fn a_reflector_answers_no_port_of_another_service() {
    let (_served, reflector) = reflecting(&["127.0.0.0/8"]);
    let bind = |port| UdpSocket::bind(("127.0.0.3", port));
    // Other tests of this host may have one of them.
    let service = (900..1023).find_map(|port| bind(port).ok());
    let service = service.map_or_else(|| bind(1023), Ok);
    let Some(service) = made_or_skip(Need::Root, service) else {
        return;
    };
    service.connect(reflector).unwrap();
    let sender = sender("127.0.0.3", reflector);
    send(&service, 1, 1);
    // The answer belongs to the later request.
    send(&sender, 2, 1);
    assert_eq!(answer(&sender).request_sequence, 2);
    has_nothing(&service);
}

#[test]
fn a_reflector_of_another_tool_needs_no_session() {
    let (_served, reflector) = reflecting(&["127.0.0.0/8"]);
    let target = Target::at("reflector", reflector);
    let mut partner = Partner::connect(target, Some(Tool::Stamp), Stop::new()).unwrap();
    let outcome = partner.run(&test(100), &mut |_| true).unwrap();
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    assert_eq!(outcome.record.via, Some(Tool::Stamp));
    assert_eq!(outcome.record.status, Status::Complete);
    has_each_way(&outcome.record);
    let plain = Test { traffic: Traffic::Rr(ExchangeTest::new(1, 1)), ..test(1) };
    let error = partner.run(&plain, &mut |_| true).unwrap_err();
    assert!(error.to_string().contains("rr -u --stamp"), "{error}");
}

#[test]
fn answers_of_a_reflector_may_have_any_length() {
    for length in [41, 44, 52, 600] {
        let record = reflected_with(length);
        // An answer that a slow machine delays by more than 200 ms comes too late.
        let (taken, failed) = (record.transactions.unwrap(), record.failed.unwrap());
        assert_eq!(taken + failed, 100, "{length}");
        assert!(taken > 0 && record.one_way.is_some(), "{length}: {failed}");
    }
}

/// A test with a reflector whose answers have this length.
fn reflected_with(length: usize) -> Record {
    let reflector = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let target = Target::at("reflector", reflector.local_addr().unwrap());
    reflector.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let over = Stop::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.is_requested() {
                let mut packet = [0; 600];
                let Ok((_, from)) = reflector.recv_from(&mut packet) else {
                    continue;
                };
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
                let now_ns = since.as_nanos() as u64;
                let arrival = StampArrival { received_ns: now_ns, ttl: 64 };
                assert!(reflect(&mut packet, arrival, None, now_ns));
                reflector.send_to(&packet[..length], from).unwrap();
            }
        });
        let partner = Partner::connect(target, Some(Tool::Stamp), Stop::new());
        let outcome = partner.and_then(|mut partner| partner.run(&test(50), &mut |_| true));
        over.request();
        let outcome = outcome.unwrap();
        assert!(outcome.error.is_none(), "{:?}", outcome.error);
        outcome.record
    })
}

//! UDP at the endpoint's port: strangers get no answers, and their datagrams are not counted.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use linerate_core::plan::{Protocol, Test, Traffic};
use linerate_core::session::ClientEvent;
use linerate_core::units::BitRate;
use linerate_core::wire::{
    DatagramHeader, HANDSHAKE_BYTES, Handshake, HandshakeStep, Phase, Token,
};

use super::bench::{Bench, SOON, stream};
use super::stranger::{Leave, Stage, Stranger, frame};

fn datagrams() -> Test {
    let mut test = Test {
        protocol: Protocol::Udp,
        ..stream(500)
    };
    if let Traffic::Stream(stream) = &mut test.traffic {
        stream.message_bytes = 1000;
        stream.rate_bps = Some(BitRate(8_000_000));
    }
    test
}

fn socket(address: &str, endpoint: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket.connect(endpoint).unwrap();
    socket
}

/// The answer, if one arrives in time.
fn answer(socket: &UdpSocket, datagram: &[u8], patience: Duration) -> Option<Handshake> {
    socket.send(datagram).unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    let mut bytes = [0; 2048];
    let n = socket.recv(&mut bytes).ok()?;
    assert!(n <= datagram.len(), "an answer longer than its question");
    Some(Handshake::decode(&bytes[..n]).expect("a handshake of linerate's"))
}

/// The datagram gets no answer, and a valid request still gets one.
fn assert_silent(socket: &UdpSocket, datagram: &[u8], what: &str) {
    let answer = answer(socket, datagram, Duration::from_millis(100));
    assert_eq!(answer, None, "{what}");
}

#[test]
fn a_flow_is_bound_only_with_the_token_and_after_the_challenge() {
    own_process!();
    let bench = Bench::start();
    let mut stranger = Stranger::at(bench.address, &datagrams(), Stage::Opened);
    let ask = Handshake {
        kind: HandshakeStep::Ask,
        token: stranger.token,
        flow: 0,
        cookie: 0,
    };
    let mine = socket("127.0.0.1:0", bench.address);
    let wrong_token = Handshake {
        token: Token([7; 16]),
        ..ask
    };
    assert_silent(&mine, &wrong_token.encode(), "another token");
    assert_silent(
        &mine,
        &Handshake { flow: 2, ..ask }.encode(),
        "no such flow",
    );
    assert_silent(&mine, &ask.encode()[..HANDSHAKE_BYTES - 1], "too short");
    assert_silent(&mine, &[&ask.encode()[..], &[0]].concat(), "too long");
    assert_silent(&mine, &[0; 1400], "no handshake at all");
    let elsewhere = socket("127.0.0.2:0", bench.address);
    assert_silent(&elsewhere, &ask.encode(), "another address");

    let challenge = answer(&mine, &ask.encode(), SOON).expect("a challenge");
    assert_eq!(challenge.kind, HandshakeStep::Challenge);
    let prove = Handshake {
        kind: HandshakeStep::Answer,
        ..challenge
    };
    let guessed = Handshake {
        cookie: prove.cookie ^ 1,
        ..prove
    };
    assert_silent(&mine, &guessed.encode(), "a guessed cookie");
    let other_port = socket("127.0.0.1:0", bench.address);
    assert_silent(&other_port, &prove.encode(), "another's cookie");
    for kind in [HandshakeStep::Challenge, HandshakeStep::Welcome] {
        assert_silent(
            &mine,
            &Handshake { kind, ..prove }.encode(),
            "the endpoint's part",
        );
    }

    let welcome = answer(&mine, &prove.encode(), SOON).expect("a welcome");
    assert_eq!(welcome.kind, HandshakeStep::Welcome);
    assert_silent(&other_port, &ask.encode(), "a flow that is taken");
    let second = Handshake { flow: 1, ..ask };
    let challenge = answer(&other_port, &second.encode(), SOON).expect("a challenge");
    let prove = Handshake {
        kind: HandshakeStep::Answer,
        ..challenge
    };
    assert!(answer(&other_port, &prove.encode(), SOON).is_some());
    assert_eq!(stranger.event(), ClientEvent::Ready);
    drop((stranger, mine, other_port, elsewhere));
    bench.assert_clean_within(SOON, "UDP flows");
}

#[test]
fn datagrams_of_others_are_not_counted() {
    own_process!();
    let bench = Bench::start();
    let over = Arc::new(AtomicBool::new(false));
    let flood = {
        let (over, endpoint) = (Arc::clone(&over), bench.address);
        thread::spawn(move || {
            let socket = socket("127.0.0.1:0", endpoint);
            let mut datagram = [0x5a; 1000];
            let mut sequence = 0;
            while !over.load(Ordering::Relaxed) {
                let header = DatagramHeader {
                    phase: Phase::Measured,
                    sequence,
                    sent_ns: 0,
                };
                header.write(&mut datagram);
                // If the buffer at the port is full, the stranger's datagram is lost.
                let _ = socket.send(&datagram);
                sequence += 1;
                thread::sleep(Duration::from_micros(200));
            }
        })
    };
    let outcome = bench
        .connect(None)
        .unwrap()
        .run(&datagrams(), &mut |_| true)
        .unwrap();
    over.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    let udp = outcome.record.udp().unwrap();
    assert!(udp.received > 0);
    assert_eq!((udp.malformed, udp.duplicated), (0, 0));
    assert!(udp.received <= udp.sent, "{udp:?}");
    bench.assert_clean_within(SOON, "a UDP flood");
}

#[test]
fn a_slow_reader_of_datagrams_ends_with_its_client() {
    own_process!();
    let bench = Bench::start();
    let mut test = Test {
        streams: 1,
        ..datagrams()
    };
    if let Traffic::Stream(stream) = &mut test.traffic {
        // One datagram takes 100 s to be read.
        stream.read_rate_bps = Some(BitRate(80));
    }
    let mut stranger = Stranger::at(bench.address, &test, Stage::Opened);
    let socket = socket("127.0.0.1:0", bench.address);
    let ask = Handshake {
        kind: HandshakeStep::Ask,
        token: stranger.token,
        flow: 0,
        cookie: 0,
    };
    let challenge = answer(&socket, &ask.encode(), SOON).expect("a challenge");
    let prove = Handshake {
        kind: HandshakeStep::Answer,
        ..challenge
    };
    answer(&socket, &prove.encode(), SOON).expect("a welcome");
    assert_eq!(stranger.event(), ClientEvent::Ready);
    stranger.write(&frame(br#"{"say":"begin"}"#));
    for _ in 0..10 {
        socket.send(&[0; 1000]).unwrap();
        thread::sleep(Duration::from_millis(50));
    }
    stranger.leave(Leave::Close);
    drop(socket);
    bench.assert_clean_within(SOON, "a slow reader");
}

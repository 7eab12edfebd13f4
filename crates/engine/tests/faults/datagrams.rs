//! UDP at the endpoint's port: strangers get no answers, and their datagrams are not counted.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use linerate_core::plan::{Extent, Protocol, Test, Traffic};
use linerate_core::session::ClientEvent;
use linerate_core::units::BitRate;
use linerate_core::wire::{
    DatagramHeader, HANDSHAKE_BYTES, Handshake, HandshakeStep, Phase, Token,
};
use linerate_engine::{Client, Stop};
use linerate_testkit::{PATIENCE, uninterrupted};

use super::bench::{Bench, stream, target};
use super::fake::{Fake, Stage as Fault, endpoint, welcome};
use super::stranger::{Leave, Stage, Stranger, frame};

fn datagrams() -> Test {
    let mut test = Test { protocol: Protocol::Udp, ..stream(500) };
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

/// The answer to a datagram.
fn answer(socket: &UdpSocket, datagram: &[u8]) -> Handshake {
    socket.send(datagram).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = [0; 2048];
    let n = uninterrupted(|| socket.recv(&mut bytes)).expect("an answer");
    assert!(n <= datagram.len(), "an answer longer than its question");
    Handshake::decode(&bytes[..n]).expect("a handshake of linerate's")
}

/// Nothing has come. The endpoint takes one datagram after the other: when it has answered a later
/// one, those before have had their answers.
fn assert_silent(socket: &UdpSocket, what: &str) {
    socket.set_nonblocking(true).unwrap();
    let error = socket.recv(&mut [0; 2048]).expect_err(what);
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "{what}");
    socket.set_nonblocking(false).unwrap();
}

#[test]
fn a_flow_is_bound_only_with_the_token_and_after_the_challenge() {
    own_process!();
    let bench = Bench::start();
    let mut stranger = Stranger::at(bench.address, &datagrams(), Stage::Opened);
    let ask = Handshake { kind: HandshakeStep::Ask, token: stranger.token, flow: 0, cookie: 0 };
    let [mine, other_port] = [(); 2].map(|()| socket("127.0.0.1:0", bench.address));
    let elsewhere = socket("127.0.0.2:0", bench.address);
    elsewhere.send(&ask.encode()).unwrap();
    let wrong_token = Handshake { token: Token([7; 16]), ..ask };
    for bad in [
        &wrong_token.encode()[..],
        &Handshake { flow: 2, ..ask }.encode(),
        &ask.encode()[..HANDSHAKE_BYTES - 1],
        &[&ask.encode()[..], &[0]].concat(),
        &[0; 1400],
    ] {
        mine.send(bad).unwrap();
    }
    let challenge = answer(&mine, &ask.encode());
    assert_eq!(challenge.kind, HandshakeStep::Challenge);
    assert_eq!((challenge.token, challenge.flow), (ask.token, ask.flow));
    assert_silent(&mine, "another token or flow, too short, too long, no handshake");
    assert_silent(&elsewhere, "another address");

    let prove = Handshake { kind: HandshakeStep::Answer, ..challenge };
    other_port.send(&prove.encode()).unwrap();
    let guessed = Handshake { cookie: prove.cookie ^ 1, ..prove };
    mine.send(&guessed.encode()).unwrap();
    for kind in [HandshakeStep::Challenge, HandshakeStep::Welcome] {
        mine.send(&Handshake { kind, ..prove }.encode()).unwrap();
    }
    let welcome = answer(&mine, &prove.encode());
    assert_eq!(welcome.kind, HandshakeStep::Welcome);
    assert_silent(&mine, "a guessed cookie, and the endpoint's part");
    assert_silent(&other_port, "another's cookie");

    other_port.send(&ask.encode()).unwrap();
    let second = Handshake { flow: 1, ..ask };
    let challenge = answer(&other_port, &second.encode());
    assert_eq!(challenge.flow, 1, "flow 0 is taken");
    let prove = Handshake { kind: HandshakeStep::Answer, ..challenge };
    assert_eq!(answer(&other_port, &prove.encode()).kind, HandshakeStep::Welcome);
    assert_eq!(stranger.event(), ClientEvent::Ready);
    drop((stranger, mine, other_port, elsewhere));
    bench.assert_clean("UDP flows");
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
                let header = DatagramHeader { phase: Phase::Measured, sequence, sent_ns: 0 };
                header.write(&mut datagram);
                // If the buffer at the port is full, the stranger's datagram is lost.
                let _ = socket.send(&datagram);
                sequence += 1;
                thread::sleep(Duration::from_micros(200));
            }
        })
    };
    // An amount, not a time: in half a second a starved sender may send none.
    let test = Test { extent: Extent::Count(500), ..datagrams() };
    let outcome = bench.connect(None).unwrap().run(&test, &mut |_| true).unwrap();
    over.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    let udp = outcome.record.udp().unwrap();
    assert!(udp.received > 0);
    assert_eq!((udp.malformed, udp.duplicated), (0, 0));
    assert!(udp.received <= udp.sent, "{udp:?}");
    bench.assert_clean("a UDP flood");
}

#[test]
fn a_slow_reader_of_datagrams_ends_with_its_client() {
    own_process!();
    let bench = Bench::start();
    let mut test = Test { streams: 1, ..datagrams() };
    if let Traffic::Stream(stream) = &mut test.traffic {
        // One datagram takes 100 s to be read.
        stream.read_rate_bps = Some(BitRate(80));
    }
    let mut stranger = Stranger::at(bench.address, &test, Stage::Opened);
    let socket = socket("127.0.0.1:0", bench.address);
    let ask = Handshake { kind: HandshakeStep::Ask, token: stranger.token, flow: 0, cookie: 0 };
    let challenge = answer(&socket, &ask.encode());
    let prove = Handshake { kind: HandshakeStep::Answer, ..challenge };
    assert_eq!(answer(&socket, &prove.encode()).kind, HandshakeStep::Welcome);
    assert_eq!(stranger.event(), ClientEvent::Ready);
    stranger.write(&frame(br#"{"say":"begin"}"#));
    for _ in 0..10 {
        socket.send(&[0; 1000]).unwrap();
        thread::sleep(Duration::from_millis(50));
    }
    stranger.leave(Leave::Close);
    drop(socket);
    bench.assert_clean("a slow reader");
    bench.assert_waited_for_nobody();
}

#[test]
fn where_tcp_alone_gets_through_the_error_says_so() {
    own_process!();
    let (address, fake) = endpoint(Fault::Opened, welcome(), Fake::stall);
    let mut client = Client::connect(target(address, None), Stop::new()).unwrap();
    let error = client.run(&datagrams(), &mut |_| true).unwrap_err().to_string();
    let words = format!("{address}: UDP {} is blocked, TCP works", address.port());
    assert!(error.starts_with(&words), "{error}");
    drop(client);
    fake.join().unwrap();
}

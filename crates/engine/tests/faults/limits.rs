//! The limits that the owner of an endpoint sets, and clients with and without the key.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use linerate_core::plan::{Protocol, Traffic};
use linerate_core::session::message::Limits;
use linerate_core::units::BitRate;
use linerate_core::wire::{Hello, HelloKind, Key};
use linerate_engine::{Slot, Stop};
use linerate_testkit::{PATIENCE, eventually};

use super::bench::{Bench, limits, measuring_threads, stream, target};

fn key(digit: &str) -> Key {
    Key::from_text(&digit.repeat(64)).unwrap()
}

#[test]
fn a_busy_endpoint_gives_its_numbers() {
    own_process!();
    let bench = Bench::with(Limits { clients: 1, ..limits() }, None);
    let mut first = bench.connect(None).unwrap();
    for _ in 0..3 {
        let error = bench.connect(None).unwrap_err();
        assert!(error.is_busy(), "{error}");
        let words = "the endpoint is busy: 1 of at most 1 clients are there";
        assert!(error.to_string().ends_with(words), "{error}");
    }
    let outcome = first.run(&stream(100), &mut |_| true).unwrap();
    assert!(outcome.error.is_none());
    drop(first);
    bench.assert_clean("busy");
    bench.assert_serves();
}

/// Who has the slot takes no place, but only for as long as it has the slot.
#[test]
fn leases_of_the_slot_one_after_another_let_in_no_more_clients_than_there_are_places() {
    own_process!();
    let clients = 4;
    let bench = Bench::with(Limits { clients, ..limits() }, None);
    let take = || {
        let (at, lasts) = (target(bench.address, None), Duration::from_secs(1));
        Slot::take(at, lasts, PATIENCE, &Stop::new(), &mut |_| ())
    };
    // Each of them waits until the lease of the one before is over.
    let taken: Vec<_> = (0..10).map_while(|_| take().ok()).collect();
    eventually("no more sessions than places", || measuring_threads().len() <= clients as usize);
    drop(taken);
    bench.assert_clean("leases");
    bench.assert_serves();
}

#[test]
fn limits_are_refused_with_their_numbers() {
    own_process!();
    let bench = Bench::with(Limits { rate_bps: Some(10_000_000), ..limits() }, None);
    let mut client = bench.connect(None).unwrap();
    let mut refused = |test, words: &str| {
        let error = client.run(&test, &mut |_| true).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    let mut many = stream(100);
    many.streams = 9;
    refused(many, "the endpoint allows 8 streams in all, 9 were asked for");
    refused(stream(61_000), "the endpoint allows 60 s, 61 s were asked for");
    let mut fast = stream(100);
    fast.protocol = Protocol::Udp;
    fast.options.pacing_bps = None;
    if let Traffic::Stream(stream) = &mut fast.traffic {
        stream.message_bytes = 1000;
        stream.rate_bps = Some(BitRate(6_000_000));
    }
    let mut slow = fast.clone();
    if let Traffic::Stream(stream) = &mut slow.traffic {
        stream.rate_bps = Some(BitRate(4_000_000));
    }
    refused(fast, "allows 10 Mbit/s in all: give --rate 5000000 or less");
    let outcome = client.run(&slow, &mut |_| true).unwrap();
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    // A refused test is no reason to hang up.
    let outcome = client.run(&stream(100), &mut |_| true).unwrap();
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
}

#[test]
fn only_the_right_key_is_accepted_and_a_wrong_one_is_an_error() {
    own_process!();
    let words = |bench: &Bench, key: Option<Key>| bench.connect(key).unwrap_err().to_string();
    let bench = Bench::with(limits(), Some(key("a")));
    assert!(
        words(&bench, Some(key("b")))
            .ends_with("the peer has another key (or the bytes were altered on the way)")
    );
    assert!(
        words(&bench, None)
            .ends_with("the endpoint takes only clients with its key: give --key-file")
    );
    let mut client = bench.connect(Some(key("a"))).unwrap();
    let outcome = client.run(&stream(100), &mut |_| true).unwrap();
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    drop(client);
    bench.assert_clean("keys");
    drop(bench);
    let bench = Bench::start();
    assert!(
        words(&bench, Some(key("a"))).contains("the endpoint has no key: leave --key-file out")
    );
    bench.assert_clean("no key");
}

/// Each of them has five seconds to prove the key: thirteen a second would take all places.
#[test]
fn connections_without_the_key_take_no_place_of_a_client_with_it() {
    own_process!();
    let bench = Bench::with(limits(), Some(key("a")));
    let hello = Hello::new(HelloKind::Control { sealed: true }).encode();
    let iperf3 = [b'a'; 36].iter().chain(&[0]).copied().collect::<Vec<u8>>();
    let strangers: Vec<TcpStream> = (0..3 * limits().clients)
        .map(|number| {
            let mut stream = TcpStream::connect(bench.address).unwrap();
            let cookie =
                [&number.to_be_bytes().map(|byte| b'a' + byte % 26), &iperf3[4..]].concat();
            let words = if number % 2 == 0 { &hello[..] } else { &cookie };
            stream.write_all(words).unwrap();
            stream
        })
        .collect();
    let mut clients: Vec<_> =
        (0..limits().clients).map(|_| bench.connect(Some(key("a"))).unwrap()).collect();
    assert!(bench.connect(Some(key("a"))).unwrap_err().is_busy());
    let outcome = clients[0].run(&stream(100), &mut |_| true).unwrap();
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    drop((clients, strangers));
    bench.assert_clean("strangers");
}

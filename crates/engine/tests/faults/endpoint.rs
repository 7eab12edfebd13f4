//! Strangers and misbehaving clients at an endpoint.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use linerate_core::plan::{Closer, Direction, ExchangeTest, Extent, Protocol, Test, Traffic};
use linerate_core::record::Status;
use linerate_core::session::ClientEvent;
use linerate_core::session::message::{Limits, RefusalReason};
use linerate_core::units::ByteCount;
use linerate_core::wire::{HELLO_BYTES, Hello, HelloKind, Token};
use linerate_engine::{ServeEvent, ServeOptions};
use linerate_testkit::PATIENCE;
use serde_json::{Value, json};

use super::bench::{Bench, limits, options, stream};
use super::stranger::{Leave, STAGES, Stage, Stranger, data_connection, frame, is_closed, refusal};

fn control_hello() -> [u8; HELLO_BYTES] {
    Hello::new(HelloKind::Control { sealed: false }).encode()
}

/// Bytes that are sent in place of a hello, and a word of the answer.
fn rubbish() -> Vec<(Vec<u8>, &'static str)> {
    let mut other_version = control_hello();
    other_version[11] = 99;
    let mut other_kind = control_hello();
    other_kind[9] = 7;
    let not_linerate = "does not speak linerate's protocol";
    vec![
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), not_linerate),
        (vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3], not_linerate),
        // As long as an iperf3 cookie, but none.
        (b"abcdefghijklmnopqrstuvwxyz234567 345\0".to_vec(), not_linerate),
        (vec![0; 1], not_linerate),
        ([&[0xd1][..], &[0xee; 100]].concat(), not_linerate),
        (other_version.to_vec(), "version 99"),
        (other_kind.to_vec(), "kind 7"),
    ]
}

#[test]
fn rubbish_gets_a_refusal_and_leaves_no_thread_or_descriptor() {
    own_process!();
    let bench = Bench::start();
    for (bytes, words) in rubbish() {
        let mut stream = TcpStream::connect(bench.address).unwrap();
        stream.write_all(&bytes).unwrap();
        let message = refusal(&mut stream).message;
        assert!(message.contains(words), "{bytes:?}: {message}");
        drop(stream);
        bench.assert_clean(words);
        bench.assert_serves();
    }
}

#[test]
fn two_hundred_strangers_do_not_disturb_a_measurement() {
    own_process!();
    let bench = Bench::start();
    let address = bench.address;
    let strangers = thread::spawn(move || {
        let rubbish = rubbish();
        let come = |n: usize| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(&rubbish[n % rubbish.len()].0).unwrap();
            stream
        };
        (0..200).map(come).collect::<Vec<_>>()
    });
    let mut client = bench.connect(None).unwrap();
    let test = Test { extent: Extent::Bytes(ByteCount(100_000_000)), ..stream(1000) };
    let outcome = client.run(&test, &mut |_| true).unwrap();
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    assert_eq!(outcome.record.status, Status::Complete);
    assert_eq!(outcome.record.bytes(), 2 * 100_000_000);
    drop((strangers.join().unwrap(), client));
    bench.assert_clean("200 strangers");
}

#[test]
fn bad_frames_end_their_session_with_a_reason() {
    own_process!();
    let bench = Bench::start();
    let introduced = frame(br#"{"say":"introduce","software":"x"}"#);
    let oversized = |length: u32| (1 << 24 | length).to_be_bytes().to_vec();
    let mut deep = br#"{"say":"introduce","software":"x","more":"#.to_vec();
    deep.resize(4000, b'[');
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (oversized(5000), "5000 bytes was announced where at most 4096"),
        (
            [introduced.clone(), oversized(65_537)].concat(),
            "65537 bytes was announced where at most 65536",
        ),
        (b"\x07\x00\x00\x01x".to_vec(), "0x07"),
        (frame(b"{"), "cannot be read"),
        (frame(&deep), "recursion limit"),
        (frame(br#"{"say":"sing"}"#), "cannot be read"),
        (frame(br#"{"say":"begin"}"#), "an unexpected message"),
        ([introduced.clone(), introduced].concat(), "an unexpected message"),
        (vec![3, 0, 0, 1, 0], "encrypts"),
    ];
    for (bytes, words) in cases {
        let mut stream = TcpStream::connect(bench.address).unwrap();
        stream.write_all(&control_hello()).unwrap();
        stream.write_all(&bytes).unwrap();
        let message = refusal(&mut stream).message;
        assert!(message.contains(words), "{message}");
        assert!(is_closed(&mut stream), "{words}");
        drop(stream);
        bench.assert_clean(words);
    }
    bench.assert_serves();
}

#[test]
fn a_client_that_has_read_its_refusal_can_connect_again() {
    own_process!();
    let two = Limits { clients: 2, ..limits() };
    let bench = Bench::with(two, None);
    let mut gone = Vec::new();
    for _ in 0..20 {
        let mut stranger = Stranger::at(bench.address, &stream(1000), Stage::Welcomed);
        stranger.write(&frame(b"{"));
        refusal(&mut stranger.control);
        // The endpoint still waits for the end of the connection.
        gone.push(stranger);
    }
    drop(gone);
    bench.assert_clean("twenty in two places");
}

/// A test as JSON, in which one field (given by its path) has another value.
fn absurd(path: &str, value: Value) -> Value {
    let mut test = serde_json::to_value(stream(1000)).unwrap();
    *test.pointer_mut(path).expect(path) = value;
    test
}

/// A test with a warm-up and another extent.
fn warmed_up(extent: Value) -> Value {
    let mut test = absurd("/warm_up", json!(0.1));
    test["extent"] = extent;
    test
}

#[test]
fn absurd_tests_are_refused_and_the_session_goes_on() {
    own_process!();
    let bench = Bench::start();
    let cases = [
        (absurd("/streams", json!(0)), "`streams` 0"),
        (absurd("/streams", json!(1_000_000_000)), "`streams` 1000000000"),
        (absurd("/streams", json!(u32::MAX)), "`streams` 4294967295"),
        (absurd("/streams", json!(9)), "allows 8 streams in all, 9"),
        (absurd("/extent", json!({"time": 0})), "`time` 0"),
        (absurd("/extent", json!({"time": 1e8})), "`time` 100000000"),
        (absurd("/extent", json!({"time": 61})), "allows 60 s, 61 s"),
        (absurd("/extent", json!({"bytes": 0})), "`bytes` 0"),
        (absurd("/extent", json!({"count": u64::MAX})), "`count` "),
        (absurd("/warm_up", json!(1e8)), "`warm-up` "),
        // The test may be over before its warm-up is.
        (warmed_up(json!({"bytes": 1000})), "cannot be used with `bytes`"),
        (warmed_up(json!({"count": 1})), "cannot be used with `count`"),
        (absurd("/interval", json!(0)), "`interval` 0"),
        (absurd("/message_bytes", json!(0)), "`size` 0"),
        (absurd("/message_bytes", json!(u64::MAX)), "`size` "),
        (absurd("/write_rate_bps", json!(0)), "`write-rate` 0"),
        (absurd("/read_rate_bps", json!(u64::MAX)), "`read-rate` "),
        (absurd("/options", json!({"mss_bytes": 1})), "`mss` 1"),
        (absurd("/options", json!({"congestion": "../../etc"})), "`congestion` ../../etc"),
        (absurd("/options", json!({"receive_window_bytes": u64::MAX})), "`receive-window` "),
    ];
    let mut stranger = Stranger::at(bench.address, &stream(1000), Stage::Welcomed);
    for (test, words) in &cases {
        let refusal = stranger.ask(test);
        assert!(refusal.message.contains(words), "{}", refusal.message);
        assert!(
            matches!(refusal.reason, RefusalReason::Test | RefusalReason::Limit),
            "{refusal:?}"
        );
    }
    drop(stranger);
    bench.assert_serves();
}

#[test]
fn values_out_of_range_end_the_session_with_a_reason() {
    own_process!();
    let bench = Bench::start();
    for test in [
        absurd("/extent", json!({"time": 1e308})),
        absurd("/extent", json!({"time": -1})),
        absurd("/streams", json!(-1)),
        absurd("/message_bytes", json!(1e30)),
        absurd("/seed", json!(null)),
        json!([]),
    ] {
        let mut stranger = Stranger::at(bench.address, &stream(1000), Stage::Welcomed);
        let refusal = stranger.ask(&test);
        assert_eq!(refusal.reason, RefusalReason::Protocol, "{test}");
        assert!(refusal.message.contains("cannot be read"), "{refusal:?}");
        drop(stranger);
    }
    bench.assert_clean("unreadable tests");
    bench.assert_serves();
}

#[test]
fn messages_do_not_fill_the_endpoints_memory() {
    own_process!();
    let owners = ServeOptions { max_memory: Some(256 << 20), ..options(limits(), None) };
    let bench = Bench::serving(&owners);
    let mut test = absurd("/message_bytes", json!(64 << 20));
    test["direction"] = json!("down");
    test["streams"] = json!(8);
    // Each flow has its own pattern; plain payload is in memory once for all flows.
    test["verify"] = json!(true);
    let mut stranger = Stranger::at(bench.address, &stream(1000), Stage::Welcomed);
    let refusal = stranger.ask(&test);
    assert_eq!(refusal.reason, RefusalReason::Limit);
    assert!(refusal.message.contains("has 256 MiB of memory"), "{}", refusal.message);
}

#[test]
fn data_connections_that_belong_to_nobody_are_closed() {
    own_process!();
    let bench = Bench::start();
    let test = stream(1000);
    let mut stranger = Stranger::at(bench.address, &test, Stage::HalfTheFlows);
    for (token, flow) in [
        (Token([7; 16]), 1),
        (stranger.token, test.flows()),
        (stranger.token, u32::MAX),
        // Flow 0 has arrived already.
        (stranger.token, 0),
    ] {
        let mut stream = data_connection(bench.address, token, flow);
        assert!(is_closed(&mut stream), "{flow}");
    }
    let mut elsewhere = from_elsewhere(bench.address, stranger.token);
    assert!(is_closed(&mut elsewhere));
    // The test itself is not disturbed.
    stranger.connect_flow(1);
    assert_eq!(stranger.event(), ClientEvent::Ready);
    let mut late = data_connection(bench.address, stranger.token, 1);
    assert!(is_closed(&mut late));
    drop((stranger, elsewhere, late));
    bench.assert_clean("data connections");
}

#[test]
fn data_connections_come_from_the_address_that_the_test_names_and_no_other() {
    own_process!();
    let bench = Bench::start();
    let mut test = stream(1000);
    test.options.source = Some(std::net::Ipv4Addr::new(127, 0, 0, 3).into());
    let stranger = Stranger::at(bench.address, &test, Stage::Opened);
    let mut third = from_elsewhere(bench.address, stranger.token);
    assert!(is_closed(&mut third), "an address that nobody named");
    let mut own = data_connection(bench.address, stranger.token, 0);
    assert!(is_closed(&mut own), "the control connection's own");
    drop((stranger, third, own));
    bench.assert_clean("a test that names its source");
}

/// The right token, from another address than that of the control connection.
fn from_elsewhere(endpoint: SocketAddr, token: Token) -> TcpStream {
    use linerate_sys::socket::{Mptcp, connect, tcp_socket};
    let here = std::net::Ipv4Addr::new(127, 0, 0, 2).into();
    let socket = tcp_socket(endpoint, Some(here), Mptcp::Off).unwrap();
    let mut stream = connect(socket, endpoint, PATIENCE).unwrap();
    let hello = Hello::new(HelloKind::Data { token, flow: 1 });
    stream.write_all(&hello.encode()).unwrap();
    stream
}

fn exchange(crr: bool) -> Test {
    let exchange = ExchangeTest { closer: Closer::Client, ..ExchangeTest::new(1, 60_000) };
    Test {
        traffic: if crr { Traffic::Crr(exchange) } else { Traffic::Rr(exchange) },
        ..stream(30_000)
    }
}

fn whole() -> Test {
    let mut test = stream(30_000);
    if let Traffic::Stream(stream) = &mut test.traffic {
        stream.whole = true;
    }
    test
}

#[test]
fn a_client_that_vanishes_leaves_no_thread_or_descriptor() {
    own_process!();
    let bench = Bench::start();
    // Flows are not read: an endpoint that sends is blocked when the client leaves.
    let both = Test { direction: Direction::Both, ..stream(30_000) };
    let zero_copy = {
        let mut test = Test { direction: Direction::Down, ..stream(30_000) };
        if let Traffic::Stream(stream) = &mut test.traffic {
            stream.send = linerate_core::plan::SendMethod::ZeroCopy;
        }
        test
    };
    let mptcp = Test { protocol: Protocol::Mptcp, ..both.clone() };
    for test in [both, zero_copy, mptcp, exchange(false)] {
        for stage in STAGES {
            for leave in [Leave::Close, Leave::Reset] {
                let stranger = Stranger::at(bench.address, &test, stage);
                stranger.leave(leave);
                let what = format!("{stage:?} {leave:?} {:?}", test.workload());
                bench.assert_clean(&what);
            }
        }
    }
    bench.assert_waited_for_nobody();
    bench.assert_serves();
}

#[test]
fn connections_made_within_a_run_end_with_their_client() {
    own_process!();
    let bench = Bench::start();
    for test in [whole(), exchange(true)] {
        for leave in [Leave::Close, Leave::Reset] {
            let mut stranger = Stranger::at(bench.address, &test, Stage::Opened);
            assert_eq!(stranger.event(), ClientEvent::Ready);
            stranger.write(&frame(br#"{"say":"begin"}"#));
            // Half a request on each, and then nothing.
            stranger.connect_flow(0);
            stranger.connect_flow(1);
            thread::sleep(Duration::from_millis(50));
            stranger.leave(leave);
            bench.assert_clean(&format!("{leave:?} {:?}", test.workload()));
        }
    }
    bench.assert_waited_for_nobody();
    bench.assert_serves();
}

#[test]
fn flows_that_accept_connections_themselves_shut_nobody_out() {
    own_process!();
    let bench = Bench::start();
    let mut stranger = Stranger::at(bench.address, &exchange(true), Stage::Opened);
    assert_eq!(stranger.event(), ClientEvent::Ready);
    stranger.write(&frame(br#"{"say":"begin"}"#));
    let mut client = bench.connect(None).unwrap();
    let mut others_are_served = || {
        bench.assert_serves();
        let test = Test { extent: Extent::Count(20), ..exchange(true) };
        let record = client.run(&test, &mut |_| true).unwrap().record;
        assert_eq!(record.transactions, Some(40), "{:?}", record.caveats);
        let mut rubbish = TcpStream::connect(bench.address).unwrap();
        rubbish.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        refusal(&mut rubbish);
    };
    others_are_served();
    // Both flows wait for a request that never arrives.
    stranger.connect_flow(0);
    stranger.connect_flow(1);
    others_are_served();
    stranger.leave(Leave::Close);
    others_are_served();
    drop(client);
    bench.assert_clean("a test that takes its connections itself");
}

#[test]
fn an_endpoint_ends_even_if_a_client_does_not_read() {
    own_process!();
    let bench = Bench::start();
    let mut stranger = Stranger::at(bench.address, &stream(1000), Stage::Welcomed);
    let asks = frame(
        json!({"say": "ask", "operation": "open", "request": {"test": absurd("/streams", json!(0))}})
            .to_string()
            .as_bytes(),
    )
    .repeat(200);
    let patience = Some(Duration::from_millis(500));
    stranger.control.set_write_timeout(patience).unwrap();
    // Until the buffers of both ends are full: the endpoint reads no more than it can answer.
    let mut asked = 0;
    while let Ok(n) = stranger.control.write(&asks[asked % asks.len()..]) {
        asked += n;
        assert!(asked < 1 << 30, "answers are kept without end");
    }
    bench.assert_serves();
    // One that blocks in a write gives the connection up before it sees the stop.
    let log = bench.end();
    let stopped = |event: &ServeEvent| format!("{event:?}").contains("is shutting down");
    assert!(log.iter().any(stopped), "{log:?}");
}

#[test]
fn a_flood_of_messages_does_not_hold_up_others() {
    own_process!();
    let bench = Bench::start();
    let mut stranger = Stranger::at(bench.address, &stream(30_000), Stage::Running);
    let alive = frame(br#"{"say":"alive"}"#).repeat(1000);
    let until = Instant::now() + Duration::from_millis(500);
    while Instant::now() < until {
        stranger.write(&alive);
    }
    bench.assert_serves();
    stranger.leave(Leave::Close);
    bench.assert_clean("a flood");
}

#[test]
fn many_flows_that_wait_for_connections_end_together() {
    own_process!();
    let bench = Bench::with(Limits { streams: 256, ..limits() }, None);
    let test = Test { streams: 128, direction: Direction::Both, ..whole() };
    let mut stranger = Stranger::at(bench.address, &test, Stage::Opened);
    assert_eq!(stranger.event(), ClientEvent::Ready);
    stranger.write(&frame(br#"{"say":"begin"}"#));
    thread::sleep(Duration::from_millis(300));
    stranger.leave(Leave::Close);
    bench.assert_clean("256 flows");
    bench.assert_waited_for_nobody();
}

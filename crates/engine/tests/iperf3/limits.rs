//! What the owner allows, and what a client of iperf3's is told.

use std::io::Read;
use std::net::Ipv4Addr;

use linerate_core::foreign::iperf3::{ACCESS_DENIED, Cookie, ErrorCode, State};
use linerate_core::session::message::Limits;

use super::bench::{Bench, LIMITS, is_installed};

const LOCALHOST: std::net::IpAddr = std::net::IpAddr::V4(Ipv4Addr::LOCALHOST);

fn greeting(number: u8, parameters: &str) -> Vec<u8> {
    let mut bytes = Cookie::from_random([number; 36]).0.to_vec();
    bytes.extend_from_slice(&(parameters.len() as u32).to_be_bytes());
    bytes.extend_from_slice(parameters.as_bytes());
    bytes
}

/// What a client is told that asks for this.
fn refusal(bench: &Bench, number: u8, parameters: &str) -> ErrorCode {
    let mut stream = bench.say(&greeting(number, parameters));
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes[0], State::PARAM_EXCHANGE.0);
    assert_eq!(bytes[1], State::SERVER_ERROR.0);
    ErrorCode(i32::from_be_bytes(bytes[2..6].try_into().unwrap()))
}

#[test]
fn what_the_owner_does_not_allow_is_refused_with_iperf3s_own_numbers() {
    let limits = Limits { streams: 4, seconds: 10.0, rate_bps: Some(1_000_000), ..LIMITS };
    let bench = Bench::with(LOCALHOST, limits);
    let cases = [
        (r#"{"tcp":true,"len":1000,"parallel":5,"time":1}"#, ErrorCode::STREAMS),
        (r#"{"tcp":true,"len":1000,"time":11,"client_version":"3.21"}"#, ErrorCode::MAX_DURATION),
        // 3.12 has no words for that one.
        (r#"{"tcp":true,"len":1000,"time":11,"client_version":"3.12"}"#, ErrorCode::DURATION),
        (r#"{"udp":true,"len":1000,"time":1,"bandwidth":1000001}"#, ErrorCode::TOTAL_RATE),
        // Without a rate it would be as fast as it goes.
        (r#"{"udp":true,"len":1000,"time":1}"#, ErrorCode::TOTAL_RATE),
        (
            r#"{"tcp":true,"len":1000,"time":1,"reverse":true,"congestion":"nosuch"}"#,
            ErrorCode::CONGESTION,
        ),
        (r#"{"tcp":true,"len":0}"#, ErrorCode::BLOCK),
        ("{", ErrorCode::PARAMS),
    ];
    for (number, (parameters, code)) in (1..).zip(cases) {
        assert_eq!(refusal(&bench, number, parameters), code, "{parameters}");
    }
    bench.assert_says("the owner allows 4");
}

#[test]
fn a_control_connection_too_many_is_turned_away() {
    let limits = Limits { streams: 1, ..LIMITS };
    let bench = Bench::with(LOCALHOST, limits);
    let mut first = bench.say(&Cookie::from_random([1; 36]).0);
    let mut byte = [0];
    first.read_exact(&mut byte).unwrap();
    let mut second = bench.say(&Cookie::from_random([2; 36]).0);
    second.read_exact(&mut byte).unwrap();
    assert_eq!(byte, [ACCESS_DENIED]);
    bench.assert_says("1 of at most 1 flows of one client");
}

#[test]
fn a_connection_that_a_test_does_not_want_is_turned_away() {
    let bench = Bench::start();
    let mut control = bench.say(&Cookie::from_random([1; 36]).0);
    let mut byte = [0];
    control.read_exact(&mut byte).unwrap();
    // Its streams are not wanted yet.
    let mut forged = bench.say(&Cookie::from_random([1; 36]).0);
    forged.read_exact(&mut byte).unwrap();
    assert_eq!(byte, [ACCESS_DENIED]);
}

#[test]
fn a_greeting_by_udp_is_not_answered_without_a_test() {
    let bench = Bench::start();
    let socket = std::net::UdpSocket::bind((LOCALHOST, 0)).unwrap();
    socket.send_to(b"9876", bench.address).unwrap();
    // Whoever is refused by the same thread comes after it.
    bench.say(b"GET /").read_to_end(&mut Vec::new()).unwrap();
    // The answer to a test's own greeting comes later than this one would have.
    let mut control = bench.say(&greeting(1, r#"{"udp":true,"len":1000,"time":1,"parallel":1}"#));
    let mut bytes = [0; 2];
    control.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, [State::PARAM_EXCHANGE.0, State::CREATE_STREAMS.0]);
    let wanted = std::net::UdpSocket::bind((LOCALHOST, 0)).unwrap();
    wanted.set_read_timeout(Some(linerate_testkit::PATIENCE)).unwrap();
    wanted.send_to(b"9876", bench.address).unwrap();
    let mut answer = [0; 8];
    assert_eq!(linerate_testkit::uninterrupted(|| wanted.recv(&mut answer)).unwrap(), 4);
    assert_eq!(&answer[..4], b"6789");
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut answer).is_err());
}

#[test]
fn a_rate_that_the_owner_has_set_is_kept_in_both_directions() {
    if !is_installed() {
        return;
    }
    let limits = Limits { rate_bps: Some(20_000_000), ..LIMITS };
    let bench = Bench::with(LOCALHOST, limits);
    for arguments in ["-t 2", "-t 2 -R"] {
        let json = bench.client(arguments);
        assert_eq!(json.get("error"), None, "{arguments}");
    }
    for record in bench.records(2) {
        // What fits the buffers of both ends comes on top.
        let most = 20e6 / 8.0 * record.seconds + 12e6;
        assert!(record.bytes() as f64 <= most, "{}", record.bytes());
    }
}

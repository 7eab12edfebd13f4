//! The worker of a flow against a peer that the test plays.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use linerate_core::plan::{
    Direction, ExchangeTest, Extent, Protocol, SocketOptions, Test, Traffic,
};
use linerate_core::units::{End, Span};

use super::*;
use crate::clock::nanos;
use crate::measure::outcome::ExchangeOutcome;
use crate::measure::source::FlowSource;
use crate::stop::Stop;

const CLOSED: ExchangeTest = ExchangeTest::new(1, 1);

fn test_of(exchange: &ExchangeTest, protocol: Protocol, extent: Extent) -> Test {
    Test {
        traffic: Traffic::Rr(exchange.clone()),
        protocol,
        direction: Direction::Up,
        streams: 1,
        extent,
        warm_up: Span(Duration::ZERO),
        interval: Span(Duration::from_secs(1)),
        options: SocketOptions::default(),
        seed: 7,
    }
}

fn time(ms: u64) -> Extent {
    Extent::Time(Span(Duration::from_millis(ms)))
}

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn udp_pair() -> (UdpSocket, UdpSocket) {
    let [one, other] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    one.connect(other.local_addr().unwrap()).unwrap();
    other.connect(one.local_addr().unwrap()).unwrap();
    (one, other)
}

/// Runs the client's worker to its end; the flow's messages and what it leaves.
fn request_with(exchange: &ExchangeTest, extent: Extent, socket: FlowSocket) -> (u64, WorkerEnd) {
    let protocol = match socket {
        FlowSocket::Tcp(_) => Protocol::Tcp,
        FlowSocket::Udp(_) => Protocol::Udp,
    };
    let test = test_of(exchange, protocol, extent);
    test.check().unwrap();
    let shared = Shared::alone(End::Client, &test, FlowSource::Bound);
    let flow = &shared.flows[0];
    let end = request(&shared, flow, exchange, &socket).unwrap();
    (flow.counters.messages(), end)
}

/// The same against linerate's own responder, which also tells how much it answered.
fn both_ends(
    exchange: &ExchangeTest,
    extent: Extent,
    sockets: (FlowSocket, FlowSocket),
) -> (u64, ExchangeOutcome, u64) {
    let (here, there) = sockets;
    let test = test_of(exchange, Protocol::Tcp, extent);
    let server = Shared::alone(End::Server, &test, FlowSource::Bound);
    thread::scope(|scope| {
        let responder = scope.spawn(|| {
            let flow = &server.flows[0];
            respond(&server, flow, exchange, &there).unwrap();
            flow.counters.messages()
        });
        let (messages, end) = request_with(exchange, extent, here);
        server.stop.request();
        let answered = responder.join().unwrap();
        assert!(end.error.is_none(), "{:?}", end.error);
        (messages, end.exchange.unwrap(), answered)
    })
}

/// The client's worker against a peer that answers each datagram in its own way, for as long as the
/// worker runs.
fn request_of(
    exchange: &ExchangeTest,
    count: u64,
    mut answer: impl FnMut(&UdpSocket, &[u8]) + Send,
) -> (u64, ExchangeOutcome) {
    let (client, server) = udp_pair();
    server.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let over = Stop::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut bytes = [0; 64];
            while !over.is_requested() {
                if let Ok(n) = server.recv(&mut bytes) {
                    answer(&server, &bytes[..n]);
                }
            }
        });
        let (messages, end) = request_with(exchange, Extent::Count(count), FlowSocket::Udp(client));
        over.request();
        assert!(end.error.is_none(), "{:?}", end.error);
        (messages, end.exchange.unwrap())
    })
}

fn tcp_sockets() -> (FlowSocket, FlowSocket) {
    let (here, there) = tcp_pair();
    (FlowSocket::Tcp(here), FlowSocket::Tcp(there))
}

fn udp_sockets() -> (FlowSocket, FlowSocket) {
    let (here, there) = udp_pair();
    (FlowSocket::Udp(here), FlowSocket::Udp(there))
}

#[test]
fn a_counted_run_makes_exactly_that_many_transactions() {
    // No more than a UDP socket's buffer holds: what it drops would be lost, and rightly so
    // counted.
    for (is_tcp, sockets) in [(true, tcp_sockets as fn() -> _), (false, udp_sockets)] {
        for (depth, rate_per_s) in [(1, None), (5, None), (1, Some(5_000.0))] {
            for spin in [false, true] {
                for (request_bytes, response_bytes) in [(1, 1), (300, 1_000)] {
                    let exchange = ExchangeTest {
                        request_bytes,
                        response_bytes,
                        depth,
                        rate_per_s,
                        spin,
                        ..CLOSED
                    };
                    let (messages, outcome, answered) =
                        both_ends(&exchange, Extent::Count(51), sockets());
                    // A thread that gets no CPU for 200 ms lets a datagram's answer come too late,
                    // the last one even after the end.
                    let failed = outcome.failed;
                    assert!(failed == 0 || !is_tcp, "{exchange:?}");
                    let all = [messages + failed, outcome.transactions + failed];
                    assert_eq!(all, [51; 2], "{exchange:?}");
                    assert!((messages..=51).contains(&answered), "{answered} {exchange:?}");
                    let timed = outcome.latency.summary().map_or(0, |it| it.count);
                    assert_eq!(timed, 51 - failed, "{exchange:?}");
                    assert_eq!(outcome.not_sent, 0);
                }
            }
        }
    }
}

#[test]
fn large_requests_and_responses_under_way_do_not_block_both_ends() {
    let exchange =
        ExchangeTest { request_bytes: 4 << 20, response_bytes: 4 << 20, depth: 16, ..CLOSED };
    let (messages, ..) = both_ends(&exchange, Extent::Count(32), tcp_sockets());
    assert_eq!(messages, 32);
}

#[test]
fn only_what_begins_in_the_measured_time_counts_as_a_transaction() {
    let mut test = test_of(&CLOSED, Protocol::Tcp, time(200));
    test.warm_up = Span(Duration::from_millis(100));
    let shared = Shared::alone(End::Client, &test, FlowSource::Bound);
    let flow = &shared.flows[0];
    let mut tally = Tally::new(&shared, flow, &CLOSED);
    let begin = shared.began_ns + nanos(test.warm_up.0);
    let end = begin + 200_000_000;
    for start in [shared.began_ns, begin - 1, begin, end - 1, end] {
        tally.answered(start, start + 5_000);
    }
    assert!(tally.wants(end - 1) && !tally.wants(end));
    assert_eq!((flow.counters.messages(), tally.outcome.transactions), (5, 2));
    let latency = tally.outcome.latency.summary().unwrap();
    assert_eq!(latency.count, 2);
}

/// A stall of 300 ms at 1000/s delays all requests that are due in it: an open loop must show it in
/// each of them, where a closed loop would have one slow transaction.
#[test]
fn an_open_loop_shows_a_stall_in_every_request_that_was_due_in_it() {
    let (client, mut server) = tcp_pair();
    let exchange = ExchangeTest { rate_per_s: Some(1000.0), ..CLOSED };
    let peer = thread::spawn(move || {
        let mut bytes = [0; 1024];
        let (mut answered, mut has_stalled) = (0, false);
        loop {
            let n = server.read(&mut bytes).unwrap();
            if n == 0 {
                return;
            }
            if answered + n > 300 && !std::mem::replace(&mut has_stalled, true) {
                thread::sleep(Duration::from_millis(300));
            }
            server.write_all(&bytes[..n]).unwrap();
            answered += n;
        }
    });
    let (_, end) = request_with(&exchange, Extent::Count(1000), FlowSocket::Tcp(client));
    peer.join().unwrap();
    let outcome = end.exchange.unwrap();
    assert_eq!((outcome.transactions, outcome.not_sent), (1000, 0));
    // When the stall begins, request 300 has been due; those of the 300 ms from there on wait for
    // its end, each for what was left of it when it was due.
    let latency = outcome.latency.summary().unwrap();
    assert!(latency.p99 > 280_000.0, "{latency:?}");
    assert!(latency.p90 > 150_000.0, "{latency:?}");
    assert_eq!(outcome.send_lag.unwrap().summary().unwrap().count, 1000);
}

#[test]
fn requests_that_were_due_and_found_no_room_are_counted() {
    let (client, mut server) = tcp_pair();
    let exchange = ExchangeTest { rate_per_s: Some(20_000.0), ..CLOSED };
    // The peer answers nothing: after MAX_DEPTH requests there is no room. It leaves when it has
    // them, and all 4000 have been due.
    let peer = thread::spawn(move || {
        server.read_exact(&mut [0; 1024]).unwrap();
        thread::sleep(Duration::from_millis(200));
    });
    let (messages, end) = request_with(&exchange, Extent::Count(4000), FlowSocket::Tcp(client));
    peer.join().unwrap();
    let outcome = end.exchange.unwrap();
    assert!(end.error.is_some());
    assert_eq!((messages, outcome.transactions), (0, 0));
    assert_eq!(outcome.failed, 1024);
    assert_eq!(outcome.not_sent, 4000 - 1024);
}

#[test]
fn a_timed_open_loop_lasts_to_the_end_of_its_time() {
    let exchange = ExchangeTest { rate_per_s: Some(10.0), ..CLOSED };
    for sockets in [tcp_sockets(), udp_sockets()] {
        let (messages, outcome, _) = both_ends(&exchange, time(300), sockets);
        assert!((outcome.seconds - 0.3).abs() < 1e-9, "{}", outcome.seconds);
        assert_eq!(messages + outcome.failed + outcome.not_sent, 3);
    }
}

#[test]
fn lost_datagrams_count_as_failed_and_the_run_goes_on() {
    for depth in [1, 8] {
        let exchange = ExchangeTest { request_bytes: 16, response_bytes: 16, depth, ..CLOSED };
        let mut seen = 0;
        let (messages, outcome) = request_of(&exchange, 30, |server, bytes| {
            seen += 1;
            if seen % 10 != 0 {
                // Whoever asked may have given up.
                let _ = server.send(bytes);
            }
        });
        assert_eq!(messages, outcome.transactions);
        assert_eq!(outcome.transactions + outcome.failed, 30);
        // More than three if the machine itself was too slow for an answer within 200 ms.
        assert!(outcome.failed >= 3, "{}", outcome.failed);
    }
}

#[test]
fn a_late_or_foreign_datagram_is_not_taken_for_the_answer() {
    let exchange = ExchangeTest { request_bytes: 8, response_bytes: 8, ..CLOSED };
    let mut last = [0; 8];
    let (messages, outcome) = request_of(&exchange, 5, |server, bytes| {
        // The previous answer again, and something longer, before the right one 20 ms later. Whoever
        // asked may have given up.
        let _ = server.send(&last);
        let _ = server.send(&[bytes, &[0]].concat());
        thread::sleep(Duration::from_millis(20));
        let _ = server.send(bytes);
        last.copy_from_slice(bytes);
    });
    // A right one that a slow machine delays by more than 200 ms is late, too.
    assert_eq!(messages + outcome.failed, 5);
    let latency = outcome.latency.summary();
    assert!(latency.is_none_or(|it| it.min >= 20_000.0), "{latency:?}");
}

#[test]
fn pipelined_responses_end_their_requests_in_order() {
    let (client, mut server) = tcp_pair();
    let exchange = ExchangeTest { depth: 4, ..CLOSED };
    // Of four requests that are there together the answers come 5 ms apart: the fourth waits for
    // the three before it.
    let peer = thread::spawn(move || {
        let mut bytes = [0; 4];
        while server.read_exact(&mut bytes).is_ok() {
            for byte in bytes {
                thread::sleep(Duration::from_millis(5));
                server.write_all(&[byte]).unwrap();
            }
        }
    });
    let (_, end) = request_with(&exchange, Extent::Count(12), FlowSocket::Tcp(client));
    peer.join().unwrap();
    let latency = end.exchange.unwrap().latency.summary().unwrap();
    assert!(latency.min >= 5_000.0, "{latency:?}");
    assert!(latency.max >= 20_000.0, "{latency:?}");
}

#[test]
fn a_lost_connection_leaves_what_was_counted_and_says_so() {
    let (client, mut server) = tcp_pair();
    let peer = thread::spawn(move || {
        let mut byte = [0];
        for _ in 0..10 {
            server.read_exact(&mut byte).unwrap();
            server.write_all(&byte).unwrap();
        }
    });
    let (messages, end) = request_with(&CLOSED, Extent::Count(100), FlowSocket::Tcp(client));
    peer.join().unwrap();
    let outcome = end.exchange.unwrap();
    assert!(end.error.is_some());
    assert_eq!((messages, outcome.transactions, outcome.failed), (10, 10, 1));
}

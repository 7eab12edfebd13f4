//! The real iperf3 as a server, and an endpoint of linerate's in its place.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use linerate_core::foreign::Tool;
use linerate_core::foreign::iperf3::State;
use linerate_core::plan::*;
use linerate_core::proof::{Offer, PlainRuns, RunFigures, intervention};
use linerate_core::record::{CaveatKind, Record, Status};
use linerate_core::units::{BitRate, ByteCount, Span};
use linerate_engine::{Categorized, Category, Partner, Stop, Target};
use linerate_testkit::{PATIENCE as LONG, eventually, free_port};

use super::bench::{Bench, assert_within_1_percent, is_installed};

/// iperf3's server until it is dropped.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(more: &[&str]) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let child = Command::new("iperf3")
            .args(["-s", "-B", "127.0.0.1", "-p", &address.port().to_string()])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // To try the port would keep iperf3 from it, and to connect would be a test that fails.
        let listening = format!(":{:04X} 00000000:0000 0A", address.port());
        let listens = || {
            let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
            sockets.contains(&listening)
        };
        eventually("iperf3 -s listens", listens);
        Self { child, address }
    }

    fn partner(&self, via: Option<Tool>) -> Partner {
        partner(self.address, via)
    }

    fn run(&self, test: &Test) -> Record {
        let mut partner = self.partner(Some(Tool::Iperf3));
        run(&mut partner, test)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn partner(address: SocketAddr, via: Option<Tool>) -> Partner {
    let target = Target { connect_timeout: LONG, ..Target::at("server", address) };
    Partner::connect(target, via, Stop::new()).unwrap()
}

fn run(partner: &mut Partner, test: &Test) -> Record {
    let outcome = partner.run(test, &mut |_| true).unwrap();
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    assert_eq!(outcome.record.status, Status::Complete);
    outcome.record
}

fn test(direction: Direction, extent: Extent) -> Test {
    Test {
        traffic: Traffic::Stream(StreamTest::new(131_072)),
        protocol: Protocol::Tcp,
        direction,
        streams: 2,
        extent,
        warm_up: Span(Duration::ZERO),
        interval: Span(Duration::from_secs(1)),
        options: SocketOptions::default(),
        seed: 1,
    }
}

fn udp(direction: Direction, extent: Extent) -> Test {
    let mut test = test(direction, extent);
    test.protocol = Protocol::Udp;
    if let Traffic::Stream(stream) = &mut test.traffic {
        stream.message_bytes = 1400;
        stream.rate_bps = Some(BitRate(20_000_000));
    }
    test
}

const SECOND: Extent = Extent::Time(Span(Duration::from_secs(1)));

#[test]
fn a_server_for_one_client_on_this_host_is_not_used_up_by_finding_out_what_it_is() {
    if !is_installed() {
        return;
    }
    let server = Server::start_with(&["-1"]);
    let mut partner = server.partner(None);
    assert_eq!(partner.tool(), Some(Tool::Iperf3));
    let record = run(&mut partner, &test(Direction::Up, SECOND));
    assert!(record.throughput_bps().is_some_and(|rate| rate > 0.0));
}

/// The greeting that finds out what it is was its one client. A server like `iperf3 -s -1`, which
/// has ended at the latest when its answer arrives.
#[test]
fn a_server_for_one_client_that_is_gone_after_the_greeting_is_told_apart_from_none() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target::at("server", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let (mut control, _) = listener.accept().unwrap();
        control.read_exact(&mut [0; 37]).unwrap();
        drop(listener);
        control.write_all(&[State::PARAM_EXCHANGE.0]).unwrap();
    });
    let error = Partner::connect(target, None, Stop::new()).unwrap_err();
    server.join().unwrap();
    let words = error.to_string();
    assert!(words.contains("listens no more"), "{words}");
    assert!(words.contains("`--via iperf3`"), "{words}");
}

#[test]
fn an_iperf3_server_is_found_and_used_up_and_down() {
    if !is_installed() {
        return;
    }
    let server = Server::start();
    let mut partner = server.partner(None);
    assert_eq!(partner.tool(), Some(Tool::Iperf3));
    let bytes = ByteCount(10 << 20);
    let up = run(&mut partner, &test(Direction::Up, Extent::Bytes(bytes)));
    // What the server has counted of what was sent to it: a busy one leaves some unread.
    assert!((1..=2 * bytes.0).contains(&up.bytes()), "{}", up.bytes());
    assert_eq!((up.via, up.served), (Some(Tool::Iperf3), false));
    assert!(up.tcp_sender().is_some_and(|tcp| tcp.cwnd_bytes > 0 && tcp.busy_us.is_some()));
    assert!(up.verdict().is_some());
    assert!(up.caveats.iter().any(|c| c.kind == CaveatKind::OtherTool));
    assert!(up.legs[0].receiver.as_ref().is_some_and(|end| end.busiest_thread_percent.is_none()));
    for direction in [Direction::Down, Direction::Both, Direction::Up] {
        let record = run(&mut partner, &test(direction, SECOND));
        assert!(!record.intervals.is_empty(), "{direction:?}");
    }
}

#[test]
fn datagrams_go_to_and_come_from_an_iperf3_server() {
    if !is_installed() {
        return;
    }
    let server = Server::start();
    let up = server.run(&udp(Direction::Up, Extent::Count(500)));
    let sent = up.udp().unwrap();
    assert_eq!(sent.sent, 1000);
    assert_eq!(sent.received + sent.lost, 1000, "{sent:?}");
    for direction in [Direction::Up, Direction::Down] {
        let record =
            server.run(&Test { warm_up: Span(Duration::from_secs(1)), ..udp(direction, SECOND) });
        let udp = record.udp().unwrap();
        assert_eq!(udp.received + udp.lost, udp.sent, "{udp:?}");
    }
}

#[test]
fn tests_that_iperf3_lacks_are_refused_before_they_begin() {
    if !is_installed() {
        return;
    }
    let server = Server::start();
    let mut partner = server.partner(Some(Tool::Iperf3));
    let mut verified = test(Direction::Up, SECOND);
    if let Traffic::Stream(stream) = &mut verified.traffic {
        stream.verify = true;
    }
    let mut requests = test(Direction::Up, SECOND);
    requests.traffic = Traffic::Rr(ExchangeTest::new(1, 1));
    for (test, words) in [(verified, "no --verify"), (requests, "rr and crr need")] {
        let error = partner.run(&test, &mut |_| true).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(error.category(), Category::Missing);
    }
}

/// Without iperf3: both ends are linerate's, and speak iperf3's protocol.
#[test]
fn linerate_serves_what_it_asks_for_as_iperf3() {
    let bench = Bench::start();
    assert_eq!(partner(bench.address, None).tool(), None);
    let mut partner = partner(bench.address, Some(Tool::Iperf3));
    let bytes = Extent::Bytes(ByteCount(5 << 20));
    let tests = [
        test(Direction::Up, bytes),
        test(Direction::Down, bytes),
        test(Direction::Both, bytes),
        // No more than a socket's buffer holds.
        udp(Direction::Up, Extent::Count(50)),
        udp(Direction::Both, Extent::Count(50)),
    ];
    for (done, test) in (1..).zip(tests) {
        let here = run(&mut partner, &test);
        let there = bench.records(done).pop().unwrap();
        assert!(here.bytes() > 0 && there.bytes() > 0);
        if test.direction == Direction::Up {
            assert_within_1_percent(here.bytes() as f64, there.bytes() as f64, "both ends");
        }
    }
    let there = bench.records(5);
    assert!(there.iter().all(|record| record.via == Some(Tool::Iperf3) && record.served));
}

#[test]
fn a_change_of_a_servers_buffer_changes_the_window_that_its_sender_sees() {
    if !is_installed() {
        return;
    }
    let server = Server::start();
    let mut plain = Test { streams: 1, ..test(Direction::Up, SECOND) };
    plain.options.receive_window_bytes = Some(ByteCount(100_000));
    let first = server.run(&plain);
    let seen = PlainRuns::of(&first).unwrap();
    let window = |record: &Record| RunFigures::of(record, 1.0).unwrap().window_bytes.unwrap();
    for (change, range) in [("receive_window=2", 1.25..4.0), ("receive_window=0.6", 0.2..0.8)] {
        let offer = Offer::new(intervention(change).unwrap(), &plain, &seen).unwrap();
        let ratio = window(&server.run(&offer.test)) / window(&first);
        assert!(range.contains(&ratio), "{change}: {ratio}");
    }
}

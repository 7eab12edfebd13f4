//! linerate as a client of a netserver: its own endpoint, which other tests check with stock
//! clients, and a stock netserver if one is installed.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use linerate_core::foreign::Tool;
use linerate_core::plan::{
    Direction, ExchangeTest, Extent, Protocol, SocketOptions, StreamTest, Test, Traffic,
};
use linerate_core::record::{CaveatKind, Record};
use linerate_core::units::{ByteCount, Span};
use linerate_engine::{MeasureError, Partner, Stop, Target};
use linerate_testkit::{PATIENCE, eventually, free_port};

use super::bench::Bench;
use super::programs::program;

fn stream(direction: Direction, protocol: Protocol, extent: Extent) -> Test {
    Test {
        traffic: Traffic::Stream(if protocol == Protocol::Udp {
            StreamTest {
                rate_bps: Some(linerate_core::units::BitRate(8_000_000)),
                ..StreamTest::new(1000)
            }
        } else {
            StreamTest::new(64 << 10)
        }),
        protocol,
        direction,
        streams: 2,
        extent,
        warm_up: Span(Duration::ZERO),
        interval: Span(Duration::from_secs(1)),
        options: SocketOptions::default(),
        seed: 1,
    }
}

fn exchange(connects: bool, extent: Extent) -> Test {
    let exchange = ExchangeTest::new(16, 32);
    Test {
        traffic: if connects { Traffic::Crr(exchange) } else { Traffic::Rr(exchange) },
        streams: 1,
        ..stream(Direction::Up, Protocol::Tcp, extent)
    }
}

const SECOND: Extent = Extent::Time(Span(Duration::from_secs(1)));

fn connect(address: SocketAddr) -> Result<Partner, MeasureError> {
    let target = Target { connect_timeout: PATIENCE, ..Target::at("netserver", address) };
    Partner::connect(target, Some(Tool::Netperf), Stop::new())
}

fn run(partner: &mut Partner, test: &Test) -> Record {
    let outcome = partner.run(test, &mut |_| true).expect("it begins");
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    let record = outcome.record;
    assert_eq!(record.via, Some(Tool::Netperf));
    assert!(record.caveats.iter().any(|c| c.kind == CaveatKind::OtherTool));
    record
}

/// Tests that hold with any netserver.
fn uses_it(address: SocketAddr) {
    let mut partner = connect(address).expect("a netserver answers");
    let bytes = Extent::Bytes(ByteCount(4 << 20));
    let up = run(&mut partner, &stream(Direction::Up, Protocol::Tcp, bytes));
    assert_eq!(up.bytes(), 8 << 20);
    assert!(up.legs[0].sender.is_some() && up.legs[0].receiver.is_none() && up.verdict().is_some());
    let down = run(&mut partner, &stream(Direction::Down, Protocol::Tcp, bytes));
    assert_eq!(down.bytes(), 8 << 20);
    // No more than a socket's buffer holds.
    let few = Extent::Count(50);
    let udp = run(&mut partner, &stream(Direction::Up, Protocol::Udp, few));
    assert_eq!(udp.udp().expect("counts").received, 100);
    let rr = run(&mut partner, &exchange(false, Extent::Count(200)));
    assert_eq!(rr.transactions, Some(200));
    let crr = run(&mut partner, &exchange(true, Extent::Count(20)));
    assert_eq!(crr.transactions, Some(20));
    let lacks = partner.run(&stream(Direction::Down, Protocol::Udp, SECOND), &mut |_| true);
    assert!(matches!(lacks, Err(MeasureError::Lacks { .. })));
}

#[test]
fn linerate_uses_what_speaks_netperf() {
    let bench = Bench::start();
    uses_it(bench.netperf);
}

#[test]
fn a_server_that_is_no_netserver_is_an_error() {
    let bench = Bench::start();
    let error = connect(bench.own).expect_err("linerate answers there");
    let text = error.to_string();
    assert!(text.contains("netserver") || text.contains("closed"), "{text}");
}

/// A stock netserver; it ends with its owner.
struct Netserver(Child);

impl Drop for Netserver {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn linerate_uses_a_stock_netserver() {
    let Some(netserver) = program("netserver", "build netperf from its source") else {
        return;
    };
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let child = Command::new(netserver)
        .args(["-D", "-4", "-p", &address.port().to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let _netserver = Netserver(child);
    eventually("it listens", || std::net::TcpStream::connect(address).is_ok());
    uses_it(address);
}

//! Client and endpoint on loopback, in one process.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use linerate_core::plan::*;
use linerate_core::record::{Record, Status};
use linerate_core::units::{ByteCount, Span};
use linerate_core::wire::message::Limits;
use linerate_engine::{Client, Endpoint, ServeOptions, Stop, Target};

struct Served {
    address: SocketAddr,
    stop: Stop,
    thread: Option<thread::JoinHandle<()>>,
}

impl Served {
    fn start() -> Self {
        let options = ServeOptions {
            bind: Some(Ipv4Addr::LOCALHOST.into()),
            family: None,
            port: 0,
            limits: Limits {
                clients: 4,
                streams: 32,
                seconds: 60.0,
                rate_bps: None,
            },
            key: None,
            one_off: false,
        };
        let endpoint = Endpoint::bind(&options).unwrap();
        let address = endpoint.addresses()[0];
        let stop = Stop::new();
        let thread = {
            let stop = stop.clone();
            thread::spawn(move || endpoint.serve(&stop, |_| {}).unwrap())
        };
        Self {
            address,
            stop,
            thread: Some(thread),
        }
    }

    fn client(&self) -> Client {
        Client::connect(
            Target {
                name: "loopback".into(),
                addresses: vec![self.address],
                source: None,
                device: None,
                key: None,
                connect_timeout: Duration::from_secs(5),
            },
            Stop::new(),
        )
        .unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn stream() -> Test {
    Test {
        traffic: Traffic::Stream(StreamTest {
            message_bytes: 131_072,
            send: SendMethod::Copy,
            receive: ReceiveMethod::Read,
            verify: false,
            whole: false,
            write_rate_bps: None,
            read_rate_bps: None,
            rate_bps: None,
            offload: false,
        }),
        protocol: Protocol::Tcp,
        direction: Direction::Up,
        streams: 1,
        extent: Extent::Time(Span(Duration::from_millis(500))),
        warm_up: Span(Duration::from_millis(100)),
        interval: Span(Duration::from_millis(100)),
        options: SocketOptions::default(),
        seed: 7,
    }
}

fn run(test: &Test) -> Record {
    let served = Served::start();
    let outcome = served.client().run(test, &mut |_| true).unwrap();
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    outcome.record
}

#[test]
fn every_direction_is_measured_by_its_receiver() {
    for direction in [Direction::Up, Direction::Down, Direction::Both] {
        let record = run(&Test {
            direction,
            streams: 2,
            ..stream()
        });
        assert_eq!(record.status, Status::Complete);
        assert!(record.throughput_bps.unwrap() > 1e8, "{direction:?}");
        assert!((record.seconds - 0.5).abs() < 0.05, "{}", record.seconds);
        assert_eq!(record.flows.len(), 2 * direction.parts().len());
        println!("{}", serde_json::to_string_pretty(&record).unwrap());
    }
}

#[test]
fn a_counted_transfer_moves_exactly_that_much() {
    let record = run(&Test {
        extent: Extent::Bytes(ByteCount(10_000_001)),
        warm_up: Span(Duration::ZERO),
        ..stream()
    });
    assert_eq!(record.bytes, 10_000_001);
}

fn datagrams(offload: bool, rate: Option<u64>) -> Test {
    let mut test = Test {
        protocol: Protocol::Udp,
        ..stream()
    };
    if let Traffic::Stream(stream) = &mut test.traffic {
        stream.message_bytes = 1448;
        stream.offload = offload;
        stream.rate_bps = rate.map(linerate_core::units::BitRate);
    }
    test
}

#[test]
fn paced_datagrams_arrive_and_are_counted() {
    for offload in [false, true] {
        let record = run(&datagrams(offload, Some(1448 * 8 * 20_000)));
        let udp = record.udp.unwrap();
        println!("{udp:?}");
        assert!(udp.sent > 9_000 && udp.sent <= 10_001, "{}", udp.sent);
        assert_eq!(udp.sent, udp.received + udp.lost);
        assert!(udp.gaps_us.unwrap().p50 > 10.0);
        assert_eq!(udp.malformed, 0);
    }
}

#[test]
fn unpaced_datagrams_are_counted_in_every_direction() {
    for direction in [Direction::Up, Direction::Down, Direction::Both] {
        let record = run(&Test {
            direction,
            ..datagrams(true, None)
        });
        let udp = record.udp.unwrap();
        println!(
            "{udp:?} {:?} {:?}",
            record.sender.unwrap().method,
            record.receiver.unwrap().method
        );
        assert!(udp.received > 100_000);
        assert_eq!(udp.sent, udp.received + udp.lost);
    }
}

#[test]
fn a_count_of_datagrams_is_exact() {
    let record = run(&Test {
        extent: Extent::Count(5000),
        warm_up: Span(Duration::ZERO),
        ..datagrams(false, Some(1448 * 8 * 50_000))
    });
    let udp = record.udp.unwrap();
    assert_eq!(udp.sent, 5000);
    assert_eq!(record.messages, Some(udp.received));
}

//! An endpoint, a client, and plain tests to vary.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use linerate_core::plan::*;
use linerate_core::record::{Record, Status};
use linerate_core::session::message::Limits;
use linerate_core::units::{BitRate, ByteCount, Span};
use linerate_core::wire::Key;
use linerate_engine::{Client, Endpoint, MeasureError, ServeOptions, Stop, Target};

pub(crate) const LIMITS: Limits =
    Limits { clients: 4, streams: 32, seconds: 60.0, rate_bps: None, connections: 100_000 };

/// An endpoint that runs until it is dropped.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    /// For other tools.
    pub(crate) foreign: Vec<(&'static str, SocketAddr)>,
    stop: Stop,
    thread: Option<thread::JoinHandle<()>>,
}

impl Served {
    pub(crate) fn start() -> Self {
        Self::with(Ipv4Addr::LOCALHOST.into(), LIMITS, None)
    }

    pub(crate) fn with(bind: IpAddr, limits: Limits, key: Option<Key>) -> Self {
        Self::of(&ServeOptions { bind: Some(bind), key, ..ServeOptions::within(limits) })
    }

    pub(crate) fn of(options: &ServeOptions) -> Self {
        let endpoint = Endpoint::bind(options).unwrap();
        let address = endpoint.addresses()[0];
        let foreign = endpoint.foreign_addresses();
        let stop = Stop::new();
        let thread = {
            let stop = stop.clone();
            thread::spawn(move || endpoint.serve(&stop, |_| {}).unwrap())
        };
        Self { address, foreign, stop, thread: Some(thread) }
    }

    pub(crate) fn client(&self) -> Client {
        self.client_with(None).unwrap()
    }

    pub(crate) fn client_with(&self, key: Option<Key>) -> Result<Client, MeasureError> {
        let target = Target { key, ..Target::at("endpoint", self.address) };
        Client::connect(target, Stop::new())
    }

    /// Runs a test to its end.
    pub(crate) fn run(&self, test: &Test) -> Record {
        let outcome = self.client().run(test, &mut |_| true).unwrap();
        assert!(outcome.error.is_none(), "{:?}", outcome.error);
        assert_eq!(outcome.record.status, Status::Complete);
        outcome.record
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !thread::panicking()
        {
            panic!("the endpoint panicked");
        }
    }
}

/// Runs a test against an endpoint of its own on loopback.
pub(crate) fn run(test: &Test) -> Record {
    Served::start().run(test)
}

/// Half a second of one TCP stream up.
pub(crate) fn stream() -> Test {
    Test {
        traffic: Traffic::Stream(StreamTest::new(131_072)),
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

/// [`stream`] of a given amount, which arrives however slow the machine is: in half a second a
/// starved sender may send nothing.
pub(crate) fn bytes(bytes: u64) -> Test {
    Test { extent: Extent::Bytes(ByteCount(bytes)), warm_up: Span(Duration::ZERO), ..stream() }
}

/// [`stream`] with its traffic changed.
pub(crate) fn stream_with(change: impl FnOnce(&mut StreamTest)) -> Test {
    let mut test = stream();
    if let Traffic::Stream(stream) = &mut test.traffic {
        change(stream);
    }
    test
}

/// Half a second of UDP datagrams of 1448 bytes up.
pub(crate) fn datagrams(offload: bool, per_second: Option<u64>) -> Test {
    Test {
        protocol: Protocol::Udp,
        ..stream_with(|stream| {
            stream.message_bytes = 1448;
            stream.offload = offload;
            stream.rate_bps = per_second.map(|rate| BitRate(rate * 1448 * 8));
        })
    }
}

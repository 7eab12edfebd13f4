//! The transfers and the small requests that a check makes.

use std::time::Duration;

use linerate_core::plan::{
    Direction, ExchangeTest, Extent, Protocol, SocketOptions, StreamTest, Test, Traffic,
};
use linerate_core::units::{BitRate, Span};

/// How long a run and its warm-up are: so many round trips, and a time at least.
#[derive(Debug, Clone, Copy)]
pub(super) struct Length {
    round_trips: u32,
    least: Duration,
}

/// Length of a run.
pub(super) const RUN: Length = Length::new(18, 800);
/// Length of the only run of `--quick`.
pub(super) const QUICK_RUN: Length = Length::new(15, 600);
/// A start that overfills the queue is mended after some 20 round trips: bytes that waited behind
/// its losses would count as if they had come within the measured time, and make a rate above the
/// link's.
pub(super) const WARM_UP: Length = Length::new(22, 300);
/// One that loses nothing has filled the path after half of them.
pub(super) const CLEAN_WARM_UP: Length = Length::new(12, 300);
/// A long path gets longer runs, but the check has an end.
const LONGEST: Duration = Duration::from_secs(5);
/// Small requests for latency, for each second.
const PROBES_PER_S: f64 = 100.0;

impl Length {
    const fn new(round_trips: u32, least_ms: u64) -> Self {
        let least = Duration::from_millis(least_ms);
        Self { round_trips, least }
    }

    /// On a path with this round trip.
    pub(super) fn on(self, rtt: Duration) -> Duration {
        (rtt * self.round_trips).max(self.least).min(LONGEST)
    }
}

pub(super) fn bulk(direction: Direction, time: Duration, warm_up: Duration, seed: u64) -> Test {
    let traffic = Traffic::Stream(StreamTest::new(128 << 10));
    test(traffic, direction, time, warm_up, seed)
}

/// The test by datagrams that fit a path of 1500 bytes.
pub(super) fn over_udp(mut test: Test, rate: BitRate) -> Test {
    test.protocol = Protocol::Udp;
    test.traffic = Traffic::Stream(StreamTest { rate_bps: Some(rate), ..StreamTest::new(1448) });
    test
}

pub(super) fn probe(time: Duration, warm_up: Duration, seed: u64) -> Test {
    let traffic =
        Traffic::Rr(ExchangeTest { rate_per_s: Some(PROBES_PER_S), ..ExchangeTest::new(1, 1) });
    test(traffic, Direction::Up, time, warm_up, seed)
}

fn test(
    traffic: Traffic,
    direction: Direction,
    time: Duration,
    warm_up: Duration,
    seed: u64,
) -> Test {
    let nodelay = matches!(traffic, Traffic::Rr(_));
    Test {
        traffic,
        protocol: Protocol::Tcp,
        direction,
        streams: 1,
        extent: Extent::Time(Span(time)),
        warm_up: Span(warm_up),
        interval: Span(time / 5),
        options: SocketOptions { nodelay, ..SocketOptions::default() },
        seed,
    }
}

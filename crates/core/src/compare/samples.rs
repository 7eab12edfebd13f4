//! Records for the tests of this module.

use crate::plan::{
    Direction, Extent, Protocol, ReceiveMethod, SendMethod, SocketOptions, StreamTest, Test,
    Traffic,
};
use crate::record::{Leg, Record};
use crate::units::Span;

/// A stream of one second at so many bits per second.
pub(crate) fn record(throughput_bps: f64) -> Record {
    Record {
        started_at: "2026-01-01T00:00:00Z".to_owned(),
        host: "pit".to_owned(),
        peer: "198.18.0.1:5201".to_owned(),
        seconds: 1.0,
        legs: vec![Leg {
            throughput_bps: Some(throughput_bps),
            bytes: (throughput_bps / 8.0) as u64,
            ..Leg::new(Direction::Up)
        }],
        ..Record::new(test())
    }
}

fn test() -> Test {
    let second = Span::from_secs_f64(1.0).expect("a second is short");
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
            train: false,
        }),
        protocol: Protocol::Tcp,
        direction: Direction::Up,
        streams: 1,
        extent: Extent::Time(second),
        warm_up: Span::from_secs_f64(0.0).expect("no time is short"),
        interval: second,
        options: SocketOptions::default(),
        seed: 1,
    }
}

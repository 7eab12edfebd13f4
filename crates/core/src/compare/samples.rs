//! Records for the tests of this module.

use crate::plan::{
    Direction, Extent, Protocol, ReceiveMethod, SendMethod, SocketOptions, StreamTest, Test,
    Traffic, Workload,
};
use crate::record::{Environment, RECORD_SCHEMA, Record, Status};
use crate::units::{Family, Span};

/// A stream of one second at so many bits per second.
pub(crate) fn record(throughput_bps: f64) -> Record {
    Record {
        schema: RECORD_SCHEMA.to_owned(),
        status: Status::Complete,
        started_at: "2026-01-01T00:00:00Z".to_owned(),
        host: "pit".to_owned(),
        peer: "198.18.0.1:5201".to_owned(),
        workload: Workload::Stream,
        protocol: Protocol::Tcp,
        family: Family::Ipv4,
        direction: Direction::Up,
        plan: test(),
        throughput_bps: Some(throughput_bps),
        seconds: 1.0,
        bytes: (throughput_bps / 8.0) as u64,
        messages: None,
        transactions: None,
        transactions_per_s: None,
        connections_per_s: None,
        latency_us: None,
        latency_histogram: None,
        send_lag_us: None,
        requests_not_sent: None,
        failed: None,
        corrupted_bytes: None,
        path_train: None,
        via: None,
        served: false,
        sender: None,
        receiver: None,
        tcp: None,
        udp: None,
        flows: vec![],
        directions: Default::default(),
        intervals: vec![],
        ceilings: vec![],
        verdict: None,
        caveats: vec![],
        environment: Environment::default(),
        seed: 1,
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

//! TCP streams.

use std::net::Ipv4Addr;
use std::time::Duration;

use linerate_core::plan::*;
use linerate_core::record::{CaveatKind, Status};
use linerate_core::session::message::Limits;
use linerate_core::units::{BitRate, ByteCount, Span};
use linerate_engine::{Live, Partner, Stop, Target};
use linerate_testkit::{Need, skip};

use super::support::{LIMITS, Served, bytes, run, stream, stream_with};

#[test]
fn every_direction_is_measured_by_its_receiver() {
    for direction in [Direction::Up, Direction::Down, Direction::Both] {
        let record = run(&Test { direction, streams: 2, ..stream() });
        assert!(record.seconds >= 0.5, "{}", record.seconds);
        assert_eq!(record.flows.len(), 2 * direction.parts().len());
        let legs = record.legs.iter().map(|leg| leg.direction);
        assert_eq!(legs.collect::<Vec<_>>(), direction.parts());
        let intervals: u64 = record.intervals.iter().map(|i| i.bytes).sum();
        assert_eq!(intervals, record.bytes(), "{direction:?}");
    }
}

#[test]
fn a_counted_transfer_moves_exactly_that_much() {
    for direction in [Direction::Up, Direction::Down] {
        let record = run(&Test { direction, ..bytes(10_000_001) });
        assert_eq!(record.bytes(), 10_000_001);
        assert!(record.seconds > 0.0);
    }
}

#[test]
fn a_test_without_an_end_lasts_as_long_as_the_endpoint_allows_or_until_it_is_stopped() {
    let day = Test { extent: Extent::Time(Span(Duration::from_secs(86_400))), ..stream() };
    for (seconds, stops) in [(1.0, false), (3600.0, true)] {
        let limits = Limits { seconds, ..LIMITS };
        let served = Served::with(Ipv4Addr::LOCALHOST.into(), limits, None);
        let (target, stop) = (Target::at("endpoint", served.address), Stop::new());
        let mut partner = Partner::connect(target, None, stop.clone()).unwrap();
        assert_eq!(partner.set_open_ended(), Some(seconds));
        let mut observe = |live: &Live| {
            if stops && live.at_s > 0.3 {
                stop.request();
            }
            true
        };
        let outcome = partner.run(&day, &mut observe).unwrap();
        assert!(outcome.error.is_none(), "{:?}", outcome.error);
        assert_eq!(outcome.record.status, Status::Complete, "{:?}", outcome.record.caveats);
        assert!(outcome.record.bytes() > 0);
    }
}

#[test]
fn a_batch_is_handed_over_in_one_call_and_counted_by_its_messages() {
    for direction in [Direction::Up, Direction::Down] {
        let record = run(&Test {
            direction,
            extent: Extent::Count(50),
            warm_up: Span(Duration::ZERO),
            ..stream_with(|stream| {
                stream.message_bytes = 32;
                stream.batch = Some(16);
            })
        });
        assert_eq!((record.bytes(), record.messages), (50 * 32, Some(50)));
        let sender = record.leg().unwrap().sender.as_ref().unwrap();
        assert_eq!((sender.method.as_deref(), sender.calls), (Some("writev"), Some(4)));
    }
}

#[test]
fn two_hundred_and_fifty_six_flows_are_measured() {
    let limits = Limits { streams: MAX_STREAMS, ..LIMITS };
    let served = Served::with(Ipv4Addr::LOCALHOST.into(), limits, None);
    let record = served.run(&Test { streams: MAX_STREAMS, ..bytes(100_000) });
    assert_eq!(record.flows.len(), 256);
    assert_eq!(record.bytes(), 256 * 100_000);
}

#[test]
fn verified_bytes_are_those_that_were_sent() {
    let record = run(&Test {
        extent: Extent::Bytes(ByteCount(10_000_001)),
        warm_up: Span(Duration::ZERO),
        ..stream_with(|stream| {
            stream.verify = true;
            stream.message_bytes = 1000;
        })
    });
    assert_eq!(record.corrupted_bytes, Some(0));
    assert_eq!(record.bytes(), 10_000_001);
}

#[test]
fn bytes_are_sent_and_received_without_copies_and_the_record_says_how() {
    for direction in [Direction::Up, Direction::Down] {
        let record = run(&Test {
            direction,
            extent: Extent::Bytes(ByteCount(10_000_000)),
            warm_up: Span(Duration::ZERO),
            ..stream_with(|stream| {
                stream.send = SendMethod::ZeroCopy;
                stream.receive = ReceiveMethod::Discard;
            })
        });
        let leg = record.leg().unwrap();
        let method = leg.sender.as_ref().unwrap().method.as_deref().unwrap();
        assert!(["vmsplice", "sendfile"].contains(&method));
        let received = leg.receiver.as_ref().unwrap().method.as_deref();
        assert_eq!(received, Some("discard"));
        assert!(record.caveats.iter().any(|c| c.kind == CaveatKind::Discarded));
    }
}

#[test]
fn the_applications_own_rates_hold() {
    let limits: [fn(&mut StreamTest); 2] = [
        |stream| stream.write_rate_bps = Some(BitRate(160_000_000)),
        |stream| stream.read_rate_bps = Some(BitRate(160_000_000)),
    ];
    for limit in limits {
        // Two seconds at that rate: a busy machine takes longer. A receiver that begins late finds
        // what fits the buffers.
        let record = run(&Test {
            extent: Extent::Bytes(ByteCount(40_000_000)),
            warm_up: Span(Duration::ZERO),
            ..stream_with(limit)
        });
        assert_eq!(record.bytes(), 40_000_000);
        assert!(record.seconds > 1.0, "{}", record.seconds);
    }
}

#[test]
fn the_work_of_an_application_takes_the_cpu_time_that_was_asked_for() {
    // A second of CPU time for 1000 KiB.
    const NS_PER_KIB: u32 = 1_000_000;
    let works: [fn(&mut StreamTest); 2] = [
        |stream| stream.send_work_ns_per_kib = Some(NS_PER_KIB),
        |stream| stream.receive_work_ns_per_kib = Some(NS_PER_KIB),
    ];
    for direction in [Direction::Up, Direction::Down] {
        for work in works {
            let test = stream_with(|stream| {
                work(stream);
                stream.message_bytes = 4096;
            });
            // Small buffers, for the sender begins before the measured time does: what it worked
            // on until then is at most what fits them.
            let record = run(&Test {
                direction,
                extent: Extent::Bytes(ByteCount(256 << 10)),
                warm_up: Span(Duration::ZERO),
                options: SocketOptions {
                    receive_window_bytes: Some(ByteCount(16 << 10)),
                    send_buffer_bytes: Some(ByteCount(16 << 10)),
                    ..SocketOptions::default()
                },
                ..test
            });
            let leg = record.leg().unwrap();
            let ends = [&leg.sender, &leg.receiver];
            let took: f64 = ends.map(|end| end.as_ref().unwrap().cpu_seconds.total()).iter().sum();
            assert!((0.13..0.4).contains(&took), "{took} s");
        }
    }
}

#[test]
fn options_of_the_socket_are_seen_in_the_evidence() {
    let record = run(&Test {
        options: SocketOptions {
            mss_bytes: Some(1000),
            congestion: Some("reno".into()),
            pacing_bps: Some(BitRate(400_000_000)),
            nodelay: true,
            ..SocketOptions::default()
        },
        ..stream()
    });
    let tcp = record.tcp_sender().unwrap();
    assert_eq!(tcp.congestion.as_deref(), Some("reno"));
    assert_eq!(tcp.mss_bytes, 988);
    assert_eq!(tcp.max_pacing_rate_bps, Some(400_000_000));
}

#[test]
fn the_sender_sees_the_receive_window_that_was_set() {
    let record = run(&Test {
        warm_up: Span(Duration::from_millis(500)),
        options: SocketOptions {
            receive_window_bytes: Some(ByteCount(51_200)),
            ..SocketOptions::default()
        },
        ..stream()
    });
    let seen = record.tcp_sender().unwrap().send_window_bytes.unwrap();
    assert!(seen <= 56_320, "{seen}");
}

#[test]
fn mptcp_carries_a_stream_and_says_so() {
    let record = run(&Test { protocol: Protocol::Mptcp, ..bytes(1_000_000) });
    let tcp = record.tcp_sender().unwrap();
    if tcp.subflows.is_none() {
        skip(Need::Mptcp, format_args!("this kernel made no MPTCP connection: {tcp:?}"));
        return;
    }
    assert_eq!(tcp.mptcp_fallback, Some(false));
    assert_eq!(record.bytes(), 1_000_000);
}

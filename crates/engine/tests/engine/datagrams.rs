//! UDP streams.

use std::time::Duration;

use linerate_core::plan::*;
use linerate_core::units::Span;

use crate::support::{datagrams, run};

#[test]
fn paced_datagrams_arrive_and_are_counted() {
    for offload in [false, true] {
        let record = run(&datagrams(offload, Some(20_000)));
        let udp = record.udp.unwrap();
        assert!(udp.sent > 0 && udp.sent <= 10_100, "{}", udp.sent);
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
        assert!(udp.received > 1_000);
        assert_eq!(udp.sent, udp.received + udp.lost);
        assert!(udp.socket_drops <= udp.lost);
    }
}

#[test]
fn a_count_of_datagrams_is_exact() {
    for direction in [Direction::Up, Direction::Down] {
        let record = run(&Test {
            direction,
            extent: Extent::Count(5000),
            warm_up: Span(Duration::ZERO),
            ..datagrams(false, Some(50_000))
        });
        let udp = record.udp.unwrap();
        assert_eq!(udp.sent, 5000);
        assert_eq!(record.messages, Some(udp.received));
    }
}

#[test]
fn every_size_that_the_family_allows_goes_through() {
    for size in [16, 1472, 9000, 65_507] {
        let mut test = datagrams(false, None);
        test.extent = Extent::Count(50);
        test.warm_up = Span(Duration::ZERO);
        if let Traffic::Stream(stream) = &mut test.traffic {
            stream.message_bytes = size;
            stream.verify = true;
        }
        let record = run(&test);
        assert_eq!(record.udp.as_ref().unwrap().sent, 50, "{size}");
        assert_eq!(record.corrupted_bytes, Some(0), "{size}");
        assert!(record.bytes > 0, "{size}");
    }
}

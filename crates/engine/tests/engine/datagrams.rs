//! UDP streams.

use std::net::Ipv4Addr;
use std::time::Duration;

use linerate_core::plan::*;
use linerate_core::units::Span;

use super::support::{LIMITS, Served, datagrams, run};

#[test]
fn paced_datagrams_arrive_and_are_counted() {
    for offload in [false, true] {
        // An amount, not a time: in half a second a starved sender may send none.
        let record = run(&Test {
            extent: Extent::Count(4000),
            warm_up: Span(Duration::ZERO),
            ..datagrams(offload, Some(20_000))
        });
        let udp = record.udp().unwrap();
        assert_eq!(udp.sent, 4000);
        assert_eq!(udp.sent, udp.received + udp.lost);
        // How fast and how even they are is the host's affair: one that is busy makes up for a late
        // departure at once.
        let gaps = udp.gaps_us.unwrap();
        assert!(gaps.p50 <= gaps.max && gaps.max > 0.0, "{gaps:?}");
        assert_eq!(udp.malformed, 0);
    }
}

#[test]
fn unpaced_datagrams_are_counted_in_every_direction() {
    for direction in [Direction::Up, Direction::Down, Direction::Both] {
        for offload in [false, true] {
            let record = run(&Test {
                direction,
                extent: Extent::Count(10_000),
                warm_up: Span(Duration::ZERO),
                ..datagrams(offload, None)
            });
            for leg in &record.legs {
                let udp = leg.udp.as_ref().unwrap();
                assert!(udp.sent == 10_000 && udp.received > 0);
                assert_eq!(udp.sent, udp.received + udp.lost);
                // With offload the kernel counts frames, and the datagrams of each are estimated.
                assert!(offload || udp.socket_drops.is_some_and(|drops| drops <= udp.lost));
            }
        }
    }
}

#[test]
fn datagrams_go_to_any_address_of_the_endpoints_host() {
    let mut served = Served::with(Ipv4Addr::UNSPECIFIED.into(), LIMITS, None);
    served.address.set_ip(Ipv4Addr::new(127, 0, 0, 9).into());
    for direction in [Direction::Up, Direction::Down] {
        let record = served.run(&counted(direction, 100));
        assert!(record.udp().is_some_and(|udp| udp.received > 0));
    }
}

#[test]
fn a_count_of_datagrams_is_exact() {
    for direction in [Direction::Up, Direction::Down] {
        let record = run(&counted(direction, 5000));
        let udp = record.udp().unwrap();
        assert_eq!(udp.sent, 5000);
        assert_eq!(record.messages, Some(udp.received));
    }
}

/// Neither end knows how many datagrams it will receive; it is done when it has sent its own.
#[test]
fn a_count_of_datagrams_is_exact_in_both_directions_at_once() {
    for streams in [1, 3] {
        let record = run(&Test { streams, ..counted(Direction::Both, 1000) });
        for leg in &record.legs {
            let (direction, udp) = (leg.direction.word(), leg.udp.as_ref().unwrap());
            assert_eq!(udp.sent, 1000 * u64::from(streams), "{direction}");
            assert_eq!(udp.sent, udp.received + udp.lost, "{direction}");
            assert!(udp.received > 0, "{direction}");
        }
        let received: u64 = record.flows.iter().map(|flow| flow.bytes).sum();
        assert_eq!(record.bytes(), received);
    }
}

fn counted(direction: Direction, datagrams_each: u64) -> Test {
    Test {
        direction,
        extent: Extent::Count(datagrams_each),
        warm_up: Span(Duration::ZERO),
        ..datagrams(false, Some(50_000))
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
        assert_eq!(record.udp().unwrap().sent, 50, "{size}");
        assert_eq!(record.corrupted_bytes, Some(0), "{size}");
        assert!(record.bytes() > 0, "{size}");
    }
}

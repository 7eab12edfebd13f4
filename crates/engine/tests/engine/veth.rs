//! Between two hosts: network namespaces joined by a veth pair.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::Duration;

use linerate_core::plan::*;
use linerate_core::units::Span;
use linerate_sys::netns::Pair;
use linerate_sys::proc::sysctl;
use linerate_testkit::{Need, skip};

use super::support::{LIMITS, Served, bytes, datagrams};

/// `None`, with the reason printed, if namespaces cannot be made.
fn pair() -> Option<Pair> {
    match Pair::create() {
        Ok(pair) => Some(pair),
        Err(error) => {
            skip(Need::Lab, format_args!("no network namespaces here: {error}"));
            None
        }
    }
}

/// Runs each test on a path of its own family.
fn on(pair: &Pair, address: IpAddr, tests: &[Test]) {
    let b = pair.b.namespace.clone();
    let served = b.run(|| Served::with(address, LIMITS, None)).unwrap();
    for test in tests {
        let record = pair.a.namespace.run(|| served.run(test)).unwrap();
        let device = record.environment.client.device.as_ref().unwrap();
        assert_eq!(device.name, Pair::LINK);
        assert_eq!(device.mtu_bytes, 1500);
        assert!(record.bytes() > 0, "{test:?}");
        if test.protocol == Protocol::Tcp {
            let options = 12;
            let headers = if address.is_ipv6() { 60 } else { 40 };
            assert_eq!(record.tcp_sender().unwrap().mss_bytes, 1500 - headers - options);
        }
    }
}

#[test]
fn streams_and_datagrams_cross_a_link_in_both_families() {
    let Some(pair) = pair() else {
        return;
    };
    let down = |test: Test| Test { direction: Direction::Down, ..test };
    let counted =
        |test: Test| Test { extent: Extent::Count(500), warm_up: Span(Duration::ZERO), ..test };
    let tests = [
        bytes(1 << 20),
        down(bytes(1 << 20)),
        counted(datagrams(true, Some(5000))),
        down(counted(datagrams(false, Some(1000)))),
    ];
    for address in pair.b.addresses() {
        on(&pair, address, &tests);
    }
}

#[test]
fn an_endpoint_gets_a_port_that_is_free_for_udp_too() {
    let Some(pair) = pair() else {
        return;
    };
    let work = || {
        sysctl::write("net.ipv4.ip_local_port_range", "40000 40009").unwrap();
        let bind = |port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        // Of the four from which the kernel chooses first.
        let _taken = [40_000, 40_001].map(bind);
        (0..10).for_each(|_| drop(Served::start()));
    };
    pair.a.namespace.run(work).unwrap();
}

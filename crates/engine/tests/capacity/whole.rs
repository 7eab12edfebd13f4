//! Runs to their end.

use linerate_core::capacity::{FailureCause, Load, LoadPace};
use linerate_core::record::Status;
use linerate_core::units::ByteCount;
use linerate_engine::CapacityOptions;
use linerate_sys::netns::Pair;
use linerate_testkit::{Need, skip};

use crate::support::{Served, assert_clean, run, span, test};

pub(crate) fn all_of_20000_connections_and_10000_udp_sockets_stay_alive() {
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => {
            skip(Need::Lab, format_args!("no network namespaces here: {error}"));
            return;
        }
    };
    let b = pair.b.namespace.clone();
    let served = b.run(|| Served::at(pair.b.ipv4.into())).expect("b is there");
    let test = linerate_core::capacity::CapacityTest {
        hold: span(1.0),
        heartbeat: span(1.0),
        latency: true,
        ..test(20_000, 10_000)
    };
    let options = CapacityOptions::default();
    let outcome =
        pair.a.namespace.run(|| run(served.address, &test, &options)).expect("a is there");
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    let document = &outcome.document;
    assert_eq!(document.status, Status::Complete);
    for (pool, asked) in [(&document.tcp, 20_000), (&document.udp, 10_000)] {
        let pool = pool.as_ref().expect("it was asked for");
        assert_eq!((pool.opened, pool.alive, pool.lost), (asked, asked, 0), "{pool:?}");
        assert_eq!(pool.failures, []);
        assert!(pool.heartbeats_answered >= asked, "{pool:?}");
        let latency = pool.connect_latency_us.as_ref().expect("all were timed");
        let timed: u64 = latency.histogram.0.iter().map(|(_, count)| count).sum();
        assert_eq!(timed, asked);
    }
    let populations: Vec<u64> = document.latency.iter().map(|l| l.population).collect();
    assert_eq!(populations, [0, 2_000, 10_000, 20_000]);
    let server = document.server.as_ref().expect("the endpoint has reported");
    assert_eq!((server.tcp.alive, server.udp.alive), (20_000, 10_000));
    assert_eq!(document.stopped_by, None);
    assert_clean(&outcome);
}

pub(crate) fn ipv6_holds_as_well() {
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => {
            skip(Need::Lab, format_args!("no network namespaces here: {error}"));
            return;
        }
    };
    let b = pair.b.namespace.clone();
    let served = b.run(|| Served::at(pair.b.ipv6.into())).expect("b is there");
    let options = CapacityOptions::default();
    let outcome = pair
        .a
        .namespace
        .run(|| run(served.address, &test(300, 300), &options))
        .expect("a is there");
    for pool in [&outcome.document.tcp, &outcome.document.udp] {
        assert_eq!(pool.as_ref().map(|pool| (pool.alive, pool.lost)), Some((300, 0)));
    }
    assert_clean(&outcome);
}

pub(crate) fn churn_and_load_lose_nothing() {
    let served = Served::start();
    for pace in [LoadPace::Closed, LoadPace::PerSecond(500)] {
        let test = linerate_core::capacity::CapacityTest {
            churn_per_s: 400,
            load: Some(Load {
                connections: 50,
                pace,
                time: span(0.5),
                request_bytes: ByteCount(1_000),
                response_bytes: ByteCount(100_000),
            }),
            ..test(1_000, 0)
        };
        let outcome = run(served.address, &test, &CapacityOptions::default());
        assert!(outcome.error.is_none(), "{:?}", outcome.error);
        let document = &outcome.document;
        let tcp = document.tcp.as_ref().expect("it was asked for");
        assert_eq!((tcp.opened, tcp.alive, tcp.lost), (1_000, 1_000, 0), "{tcp:?}");
        let churn = document.churn.as_ref().expect("it was asked for");
        assert_eq!(churn.opened, churn.closed);
        let load = document.load.as_ref().expect("it was asked for");
        assert_eq!(load.connections, 50);
        let timed = load.latency_us.map_or(0, |latency| latency.count);
        assert_eq!(timed, load.transactions, "{load:?}");
        let server = document.server.as_ref().expect("the endpoint has reported");
        let resets: u64 = server.tcp.lost.iter().map(|lost| lost.count).sum();
        assert_eq!(resets, churn.closed, "each of them is a reset there: {:?}", server.tcp);
        let other = server.tcp.lost.iter().find(|f| f.cause != FailureCause::Reset);
        assert_eq!(other, None);
        assert_clean(&outcome);
    }
}

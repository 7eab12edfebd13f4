//! Limits that are reached in the middle.

use linerate_core::capacity::{CapacityTest, FailureCause};
use linerate_engine::CapacityOptions;
use linerate_sys::netns::Pair;
use linerate_sys::proc::sysctl;
use linerate_testkit::{Need, skip};

use crate::support::{Served, assert_clean, count_of, run, test};

pub(crate) fn a_descriptor_limit_is_reported_and_everything_is_freed() {
    let served = Served::start();
    let few = CapacityOptions { descriptors: Some(300), workers: Some(1) };
    let outcome = run(served.address, &test(1_000, 0), &few);
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    let tcp = outcome.document.tcp.as_ref().expect("it was asked for");
    assert!((200..300).contains(&tcp.opened), "{tcp:?}");
    assert_eq!((tcp.alive, tcp.lost), (tcp.opened, 0), "{tcp:?}");
    assert_eq!(count_of(&tcp.failures, FailureCause::Descriptors), 1);
    assert!(outcome.document.stopped_by.is_some());
    assert_clean(&outcome);
    // As many workers as it takes hold all of them, at the same endpoint.
    let enough = CapacityOptions { workers: None, ..few };
    let outcome = run(served.address, &test(1_000, 300), &enough);
    let (tcp, udp) = (&outcome.document.tcp, &outcome.document.udp);
    assert_eq!(tcp.as_ref().map(|pool| pool.alive), Some(1_000));
    assert_eq!(udp.as_ref().map(|pool| pool.alive), Some(300));
    assert!(outcome.document.client.workers >= 6);
    assert_clean(&outcome);
}

pub(crate) fn running_out_of_ports_is_reported() {
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => {
            skip(Need::Lab, format_args!("no network namespaces here: {error}"));
            return;
        }
    };
    let b = pair.b.namespace.clone();
    let served = b.run(|| Served::at(pair.b.ipv4.into())).expect("b is there");
    let run = || {
        // Of this namespace alone, which ends with the test.
        if let Err(error) = sysctl::write("net.ipv4.ip_local_port_range", "40000 40299") {
            skip(Need::Root, format_args!("the range of ports cannot be set: {error}"));
            return;
        }
        let outcome = run(served.address, &test(1_000, 0), &CapacityOptions::default());
        let tcp = outcome.document.tcp.as_ref().expect("it was asked for");
        // One may be the control connection's.
        assert!((299..=300).contains(&tcp.opened), "{tcp:?}");
        assert_eq!(count_of(&tcp.failures, FailureCause::Ports), 1, "{tcp:?}");
        assert_eq!(tcp.alive, tcp.opened);
        assert_clean(&outcome);
    };
    pair.a.namespace.run(run).expect("a is there");
}

pub(crate) fn the_search_finds_a_limit() {
    let served = Served::start();
    let options = CapacityOptions { descriptors: Some(1_500), workers: Some(1) };
    let test =
        CapacityTest { find_limit: true, hold: crate::support::span(0.0), ..test(20_000, 0) };
    let outcome = run(served.address, &test, &options);
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    let found = outcome.document.search.as_ref().expect("it was searched for");
    assert!((1_400..1_500).contains(&found.holds), "{found:?}");
    assert!(found.stops_at.is_some_and(|stops| stops <= 1_600), "{found:?}");
    assert_clean(&outcome);
}

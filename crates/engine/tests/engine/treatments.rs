//! Treatments of sockets, from their text to what the record shows.

use linerate_core::plan::*;
use linerate_core::record::Record;
use linerate_core::treatment::Treatments;
use linerate_engine::Applied;
use linerate_sys::netns::Pair;
use linerate_testkit::{Need, skip};

use super::support::{run, stream};

fn treated(mut test: Test, text: &str) -> Record {
    let treatments: Treatments = text.parse().unwrap();
    treatments.apply_to(&mut test).unwrap();
    let record = run(&test);
    treatments.took(&record).unwrap_or_else(|error| panic!("{text}: {error}"));
    record
}

#[test]
fn each_treatment_of_a_socket_shows_in_the_record() {
    for direction in [Direction::Up, Direction::Down] {
        let test = Test { direction, ..stream() };
        let text = "mss=1000,congestion=reno,receive_window=64KiB,nodelay=on,dscp=AF11,quickack=on";
        let record = treated(test.clone(), text);
        assert_eq!(record.tcp_sender().unwrap().congestion.as_deref(), Some("reno"));
        treated(test.clone(), "zerocopy=on,busy_poll=0");
        treated(test.clone(), "pacing=20mbit");
        let elsewhere = treated(test, "source=127.0.0.2");
        assert!(elsewhere.flows[0].local.starts_with("127.0.0.2:"));
    }
}

#[test]
fn a_source_address_of_another_host_is_an_error() {
    let mut test = stream();
    let treatments: Treatments = "source=192.0.2.1".parse().unwrap();
    treatments.apply_to(&mut test).unwrap();
    let served = super::support::Served::start();
    let error = served.client().run(&test, &mut |_| true).unwrap_err();
    assert!(error.to_string().contains("not one of this host's"), "{error}");
}

/// By the public API, with the journal in this user's own directory.
#[test]
fn a_host_is_treated_and_put_back() {
    let pair = match Pair::create() {
        Ok(pair) => pair,
        Err(error) => {
            skip(Need::Lab, format_args!("no network namespaces here: {error}"));
            return;
        }
    };
    let treatments: Treatments = "mtu=1400,server.tso=off".parse().unwrap();
    let peer = pair.b.ipv4.into();
    let mtu = || {
        let mut netlink = pair.a.namespace.netlink().unwrap();
        netlink.link(Pair::LINK).unwrap().mtu
    };
    let changes = treatments.host_changes(End::Client);
    let apply = || Applied::apply(&changes, peer).unwrap();
    let applied = pair.a.namespace.run(apply).unwrap();
    assert_eq!(applied.read_back(), ["veth0: mtu 1400"]);
    assert_eq!(mtu(), 1400);
    applied.undo().unwrap();
    assert_eq!(mtu(), 1500);
    let nothing = Applied::apply(&[], peer).unwrap();
    assert!(nothing.read_back().is_empty());
    nothing.undo().unwrap();
}

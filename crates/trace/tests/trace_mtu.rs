//! What fits through paths whose links are known.

use crate::trace_support::{Net, Run, run, trace};
use linerate_trace::{MtuConfig, MtuOutcome, PathMtu, ProbeKind, TraceConfig};
use linerate_units::Nanos;
use proptest::prelude::*;

fn search(net: &mut Net, most: u16) -> (MtuOutcome, Run<PathMtu>) {
    let outcome = trace(net).machine.finish();
    let config = MtuConfig::after(&net.config(), &outcome, most).expect("the target was reached");
    let search = PathMtu::new(config, Nanos::ZERO, 3).expect("the configuration is in range");
    let run = run(search, net, ProbeKind::Udp);
    (run.machine.clone().finish(), run)
}

fn narrowings(outcome: &MtuOutcome) -> Vec<(Option<u8>, u16, bool)> {
    outcome.narrowings.iter().map(|n| (n.after_ttl, n.mtu_bytes, n.is_told)).collect()
}

#[test]
fn where_all_fits_one_probe_is_enough() {
    let (outcome, run) = search(&mut Net::chain(8), 1_500);
    assert_eq!((outcome.mtu_bytes, outcome.sent), (Some(1_500), 1));
    assert_eq!(run.ended, Nanos::from_millis(16));
    assert!(outcome.narrowings.is_empty());
}

#[test]
fn each_message_costs_one_round_trip_to_its_router() {
    let mut net = Net::chain(8);
    net.at(3).mtu = Some(1_492);
    net.at(6).mtu = Some(1_400);
    let (outcome, run) = search(&mut net, 9_000);
    assert_eq!(outcome.mtu_bytes, Some(1_400));
    assert_eq!(narrowings(&outcome), [(Some(3), 1_492, true), (Some(6), 1_400, true)]);
    assert_eq!((outcome.sent, run.ended), (3, Nanos::from_millis(6 + 12 + 16)));
}

#[test]
fn a_black_hole_is_found_with_its_place_and_size() {
    let mut net = Net::chain(8);
    net.at(2).mtu = Some(1_492);
    net.at(5).mtu = Some(1_437);
    net.at(5).hides_mtu = true;
    net.at(4).is_silent = true;
    let (outcome, run) = search(&mut net, 1_500);
    assert_eq!(outcome.mtu_bytes, Some(1_437));
    assert_eq!(narrowings(&outcome), [(Some(2), 1_492, true), (Some(5), 1_437, false)]);
    assert!(run.ended < Nanos::from_millis(1_500), "{} ms", run.ended.0 / 1_000_000);
}

#[test]
fn a_message_without_an_mtu_or_with_an_absurd_one_is_not_believed() {
    for told in [0, 20, 60_000] {
        // The router's word is not what its link carries: only what fits tells.
        let mut net = Net::chain(6);
        net.at(3).mtu = Some(1_300);
        let outcome = trace(&mut net).machine.finish();
        let config = MtuConfig::after(&net.config(), &outcome, 1_500).unwrap();
        let search = PathMtu::new(config, Nanos::ZERO, 3).unwrap();
        net.told_mtu = Some(told);
        let outcome = run(search, &mut net, ProbeKind::Udp).machine.finish();
        assert_eq!(outcome.mtu_bytes, Some(1_300), "told {told}");
        assert_eq!(narrowings(&outcome), [(Some(3), 1_300, false)]);
    }
}

#[test]
fn what_was_not_reached_or_is_out_of_range_is_not_searched() {
    let mut net = Net::chain(3);
    net.at(3).is_silent = true;
    let outcome = trace(&mut net).machine.finish();
    assert_eq!(MtuConfig::after(&net.config(), &outcome, 1_500), None);
    let config = MtuConfig {
        trace: TraceConfig::new(net.target()),
        hops: vec![(1, net.target())],
        rtt: Nanos::from_millis(1),
        most: 59,
    };
    let error = PathMtu::new(config, Nanos::ZERO, 1).unwrap_err().to_string();
    assert!(error.contains("the largest size is 59, allowed are 60 to 65535"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_least_mtu_is_found_whoever_tells(
        links in prop::collection::vec((prop::option::of(100..9_000u32), any::<bool>(),
            any::<bool>()), 2..20),
        most in 100..9_000u16,
    ) {
        let mut net = Net::chain(links.len() + 1);
        let mut least = u32::from(most);
        for (ttl, (mtu, hides, is_silent)) in (1..).zip(links) {
            net.at(ttl).mtu = mtu;
            net.at(ttl).hides_mtu = hides || is_silent;
            net.at(ttl).is_silent = is_silent;
            least = least.min(mtu.unwrap_or(u32::MAX));
        }
        let (outcome, _) = search(&mut net, most);
        prop_assert_eq!(outcome.mtu_bytes.map(u32::from), Some(least));
        prop_assert!(outcome.narrowings.is_sorted_by(|a, b| a.mtu_bytes > b.mtu_bytes));
    }

    #[test]
    fn it_ends_whatever_is_lost(loss in 0.0..0.5f64, seed: u64, mtu in 100..1_500u32, hides: bool) {
        let mut net = Net::chain(6);
        net.at(3).mtu = Some(mtu);
        net.at(3).hides_mtu = hides;
        let outcome = trace(&mut net).machine.finish();
        let config = MtuConfig::after(&net.config(), &outcome, 1_500).unwrap();
        let search = PathMtu::new(config, Nanos::ZERO, 3).unwrap();
        net.loss = loss;
        net.dice.0 = seed;
        let outcome = run(search, &mut net, ProbeKind::Udp).machine.finish();
        prop_assert!(outcome.mtu_bytes.is_none_or(|found| u32::from(found) <= mtu));
    }
}

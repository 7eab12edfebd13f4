//! All paths of networks whose paths are known.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::trace_support::{ByPacket, Net, Run, run};
use linerate_trace::{
    ConfigError, MAX_FLOWS, MultipathConfig, PathFinder, PathsDocument, ProbeKind, TraceConfig,
};
use linerate_units::Nanos;
use proptest::prelude::*;

fn find(net: &mut Net, change: impl Fn(&mut MultipathConfig)) -> (PathsDocument, Run<PathFinder>) {
    let mut config = MultipathConfig::new(net.config());
    change(&mut config);
    let kind = config.trace.kind;
    let finder = PathFinder::new(config, Nanos::ZERO, 7).expect("the configuration is in range");
    let run = run(finder, net, kind);
    (run.machine.clone().finish(), run)
}

/// Whether a path ends at the target.
fn is_reached(outcome: &PathsDocument) -> bool {
    outcome.paths.iter().any(|path| path.is_whole)
}

/// Addresses by level.
fn found(outcome: &PathsDocument) -> Vec<BTreeSet<IpAddr>> {
    let addresses =
        |level: &linerate_trace::Level| level.nodes.iter().map(|node| node.address).collect();
    outcome.levels.iter().map(addresses).collect()
}

fn there(net: &Net) -> Vec<BTreeSet<IpAddr>> {
    let addresses = |level: &Vec<crate::trace_support::Router>| {
        level.iter().map(|router| router.address).collect()
    };
    net.levels.iter().map(addresses).collect()
}

/// All links of a network, by TTL of the nearer end.
fn links_there(net: &Net) -> BTreeSet<(u8, IpAddr, IpAddr)> {
    let mut links = BTreeSet::new();
    for (ttl, pair) in (1..).zip(net.levels.windows(2)) {
        for router in &pair[0] {
            links.extend(
                router.next.iter().map(|next| (ttl, router.address, pair[1][*next].address)),
            );
        }
    }
    links
}

fn links_found(outcome: &PathsDocument) -> BTreeSet<(u8, IpAddr, IpAddr)> {
    outcome.links.iter().map(|link| (link.ttl, link.from, link.to)).collect()
}

#[test]
fn a_single_path_takes_six_flows_and_a_little_more_than_a_round_trip() {
    let mut net = Net::chain(12).with_linux_limits();
    let (outcome, run) = find(&mut net, |_| ());
    assert!(outcome.is_complete && is_reached(&outcome));
    assert_eq!(found(&outcome), there(&net));
    assert_eq!((outcome.paths.len(), outcome.paths[0].flows.len()), (1, 6));
    assert!(outcome.paths[0].is_whole);
    assert!(outcome.paths[0].rtt_us.iter().all(|rtts| rtts.len() == 6));
    // 6 flows at 12 TTLs and what was sent before the target answered, 24 ms later.
    assert!(run.sent.len() <= 6 * 30);
    assert!(run.ended <= Nanos::from_millis(24 + 18), "{} us", run.ended.0 / 1_000);
}

#[test]
fn the_known_set_of_equal_paths_is_found() {
    let mut net = Net::wide(&[1, 2, 4, 4, 1, 3, 1], false);
    // 2 to 4: each its own two. 4 to 4: one each.
    net.levels[1][0].next = vec![0, 1];
    net.levels[1][1].next = vec![2, 3];
    for place in 0..4 {
        net.levels[2][place].next = vec![place];
    }
    let (outcome, _) = find(&mut net, |config| config.confidence = 0.99);
    assert!(outcome.is_complete);
    assert_eq!(found(&outcome), there(&net));
    assert_eq!(links_found(&outcome), links_there(&net));
    let whole = outcome.paths.iter().filter(|path| path.is_whole);
    let through: BTreeSet<_> = whole.flat_map(|path| path.hops.iter().flatten().copied()).collect();
    assert_eq!(through, there(&net).into_iter().flatten().collect());
}

#[test]
fn the_kernels_limits_slow_it_down_and_hide_nothing() {
    let mut net = Net::wide(&[1, 2, 1, 1], false).with_linux_limits();
    let (outcome, run) = find(&mut net, |_| ());
    assert_eq!(links_found(&outcome), links_there(&net));
    assert!(outcome.is_complete);
    assert!(run.ended > Nanos::from_millis(1_000), "the third hop answers 6 of its 12 at once");
    assert!(run.ended < Nanos::from_millis(20_000), "{} ms", run.ended.0 / 1_000_000);
}

#[test]
fn paths_of_different_lengths_are_followed_to_their_ends() {
    // From hop 2 some flows go to the target, others over two more routers, the first of them at
    // its distance.
    let mut net = Net::wide(&[1, 2, 2, 2, 1], false);
    net.levels[1][0].next = vec![0];
    net.levels[1][1].next = vec![1];
    net.levels[2][0].address = net.target();
    net.levels[2][0].is_target = true;
    let (outcome, _) = find(&mut net, |config| config.confidence = 0.99);
    assert!(is_reached(&outcome) && outcome.is_complete);
    assert_eq!(found(&outcome), there(&net));
    let lengths: BTreeSet<_> = outcome.paths.iter().map(|path| path.hops.len()).collect();
    assert_eq!(lengths, BTreeSet::from([3, 5]));
    assert!(outcome.paths.iter().all(|path| path.is_whole));
    assert_eq!(outcome.paths.len(), 3);
}

#[test]
fn silent_levels_are_bridged() {
    let mut net = Net::wide(&[1, 1, 2, 1, 1], false);
    net.levels[1][0].is_silent = true;
    let (outcome, _) = find(&mut net, |_| ());
    assert!(is_reached(&outcome) && outcome.is_complete);
    let mut there = there(&net);
    there[1].clear();
    assert_eq!(found(&outcome), there);
}

#[test]
fn a_branch_with_a_silent_router_is_not_complete() {
    let mut net = Net::wide(&[1, 2, 2, 1], false);
    net.levels[1][0].next = vec![0];
    net.levels[1][1].next = vec![1];
    net.levels[2][1].is_silent = true;
    let (outcome, _) = find(&mut net, |_| ());
    assert!(is_reached(&outcome) && !outcome.is_complete);
}

#[test]
fn flows_and_time_are_bounded() {
    let mut net = Net::wide(&[1, 16, 1], false);
    let (outcome, run) = find(&mut net, |config| config.most_flows = 10);
    assert!(!outcome.is_complete);
    assert!(run.sent.iter().all(|(_, probe)| probe.flow < 10));
    let mut net = Net::wide(&[1, 2, 1, 1], false).with_linux_limits();
    let (outcome, run) = find(&mut net, |config| config.longest = Nanos::from_millis(500));
    assert!(!outcome.is_complete);
    assert!(run.ended <= Nanos::from_millis(500));
}

#[test]
fn what_is_out_of_range_is_refused() {
    let trace = TraceConfig::new(IpAddr::from([192, 0, 2, 1]));
    let config = || MultipathConfig::new(trace.clone());
    assert_eq!(config().check(), Ok(()));
    for confidence in [f64::NAN, 0.4, 1.0, f64::INFINITY] {
        let error = MultipathConfig { confidence, ..config() }.check();
        assert!(matches!(error, Err(ConfigError { least: 5_000, .. })), "{confidence}");
    }
    assert!(MultipathConfig { most_flows: 0, ..config() }.check().is_err());
    assert!(MultipathConfig { most_flows: MAX_FLOWS + 1, ..config() }.check().is_err());
}

/// The TTLs at which it is said that a flow's packets take several routers.
fn by_packet(outcome: &PathsDocument) -> Vec<u8> {
    outcome.levels.iter().filter(|level| level.is_by_packet).map(|level| level.ttl).collect()
}

#[test]
fn balancing_by_packet_is_told_from_balancing_by_flow() {
    let mut told = 0;
    for seed in 0..300 {
        for choice in [ByPacket::AtRandom, ByPacket::InTurn] {
            let mut net = Net::wide(&[1, 3, 2, 1, 2, 1], false);
            net.levels[0][0].by_packet = Some(choice);
            net.levels[1].iter_mut().zip([0, 1, 1]).for_each(|(one, to)| one.next = vec![to]);
            net.dice.0 = seed;
            net.packets = seed;
            // The third TTL passes on what the second has mixed; the fifth balances by flow.
            let (outcome, run) = find(&mut net, |_| ());
            assert!(is_reached(&outcome) && run.sent.len() < 400, "{}", run.sent.len());
            assert!(!by_packet(&outcome).contains(&5), "{seed}: {outcome:?}");
            let is_told = by_packet(&outcome).starts_with(&[2]);
            // What two probes of a flow passed is no link.
            let is_true = links_found(&outcome).is_subset(&links_there(&net));
            assert!(is_true || !is_told, "{seed}: {outcome:?}");
            told += usize::from(is_told);
        }
    }
    // 5 flows more: each goes the same way again in 1 of 3 cases.
    assert!(told >= 594, "{told} of 600");
}

#[test]
fn what_is_balanced_by_packet_has_one_path() {
    let mut net = Net::wide(&[1, 2, 1, 1], false).with_linux_limits();
    net.levels[0][0].by_packet = Some(ByPacket::InTurn);
    let (outcome, run) = find(&mut net, |_| ());
    assert_eq!((by_packet(&outcome), outcome.paths.len()), (vec![2], 1));
    assert_eq!(outcome.paths[0].hops[1], None);
    assert!(outcome.paths[0].is_whole && outcome.is_complete);
    assert!(outcome.levels[1].nodes.iter().all(|node| node.rtt_us.len() >= node.flows.len()));
    assert!(run.ended < Nanos::from_millis(20_000), "{} ms", run.ended.0 / 1_000_000);
}

/// All flows take one router, and from some time on another.
#[test]
fn a_route_that_changes_once_is_not_balanced_by_packet() {
    for change_after in 0..60 {
        let mut net = Net::wide(&[1, 2, 1], false);
        net.route_change = Some((change_after, 1));
        let (outcome, _) = find(&mut net, |_| ());
        assert_eq!(by_packet(&outcome), [0; 0], "after {change_after} packets");
    }
}

/// At 95 % each router's next ones are all found in at least 95 % of cases.
#[test]
fn the_stated_confidence_is_kept() {
    let mut complete = 0;
    for seed in 0..300u16 {
        let mut net = Net::wide(&[1, 2, 1], false);
        let (outcome, _) = find(&mut net, |config| {
            config.trace.flow = seed;
            config.most_flows = 200;
        });
        complete += usize::from(outcome.levels[1].nodes.len() == 2);
    }
    // 2^-5 are missed: 97 %, less four standard errors.
    assert!(complete >= 278, "{complete} of 300");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn it_ends_and_invents_nothing(
        widths in prop::collection::vec(1..5usize, 1..12),
        silent in prop::collection::vec((0..12usize, 0..5usize), 0..4),
        limited: bool,
        loss in prop::option::of(0.0..0.2f64),
        seed: u64,
        icmp: bool,
        first_flow in 0..100u16,
    ) {
        let mut widths = widths;
        widths.push(1);
        let mut net = Net::wide(&widths, false);
        if limited {
            net = net.with_linux_limits();
        }
        for (level, place) in silent {
            if let Some(router) = net.levels.get_mut(level).and_then(|level| level.get_mut(place)) {
                router.is_silent = true;
            }
        }
        net.loss = loss.unwrap_or(0.0);
        net.dice.0 = seed;
        let (outcome, run) = find(&mut net, |config| {
            config.trace.flow = first_flow;
            if icmp {
                config.trace = config.trace.clone().with_kind(ProbeKind::Icmp);
            }
        });
        prop_assert!(run.ended <= Nanos::from_millis(60_000));
        prop_assert_eq!(run.machine.foreign(), 0);
        let ids: BTreeSet<_> = run.sent.iter().map(|(_, probe)| probe.id).collect();
        prop_assert_eq!(ids.len(), run.sent.len());
        prop_assert!(links_found(&outcome).is_subset(&all_links(&net)));
        prop_assert!(by_packet(&outcome).is_empty(), "all balance by flow");
        for (found, there) in found(&outcome).iter().zip(there(&net)) {
            prop_assert!(found.is_subset(&there));
        }
        for path in &outcome.paths {
            prop_assert_eq!(path.hops.len(), path.rtt_us.len());
            prop_assert!(path.flows.iter().all(|flow| (first_flow..MAX_FLOWS).contains(flow)));
        }
    }
}

/// With losses a level may look as if it had one router alone, and its links be put down to that
/// one.
fn all_links(net: &Net) -> BTreeSet<(u8, IpAddr, IpAddr)> {
    let mut links = BTreeSet::new();
    for (ttl, pair) in (1..).zip(net.levels.windows(2)) {
        for from in &pair[0] {
            links.extend(pair[1].iter().map(|to| (ttl, from.address, to.address)));
        }
    }
    links
}

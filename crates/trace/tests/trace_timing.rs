//! What a trace costs in time and packets, in virtual time.

use crate::trace_support::{Net, trace, trace_with};
use linerate_trace::{HopFate, PathEnd, ProbeKind, TraceConfig};
use linerate_units::Nanos;

/// 1.2 round trips of the target and 5 ms.
fn goal(net: &Net) -> Nanos {
    Nanos(net.rtt().0 * 12 / 10 + 5_000_000)
}

#[test]
fn thirty_hops_of_2_ms_with_the_kernels_limits_take_1_2_round_trips_and_5_ms() {
    let mut net = Net::chain(30).with_linux_limits();
    let run = trace(&mut net);
    assert!(run.ended <= goal(&net), "{} us", run.ended.0 / 1_000);
    // traceroute sends 3 probes to each of 30 TTLs too.
    assert_eq!(run.sent.len(), 90);
    let outcome = run.machine.finish();
    assert_eq!(outcome.end, PathEnd::Reached { ttl: 30 });
    assert!(outcome.hops.iter().all(|hop| hop.fate == HopFate::Answers));
    assert!(outcome.hops.iter().all(|hop| hop.rtts_us().len() == 3));
}

#[test]
fn chains_of_1_to_60_hops_keep_the_goal_with_every_kind() {
    for kind in [ProbeKind::Udp, ProbeKind::Icmp, ProbeKind::Tcp] {
        for length in 1..=60 {
            let mut net = Net::chain(length).with_linux_limits();
            let config = TraceConfig { hops: 60, ..net.config().with_kind(kind) };
            let run = trace_with(&mut net, config);
            assert!(run.ended <= goal(&net), "{kind:?}, {length}: {} us", run.ended.0 / 1_000);
            let outcome = run.machine.finish();
            assert_eq!(outcome.end, PathEnd::Reached { ttl: length as u8 });
            assert!(outcome.hops.iter().all(|hop| hop.rtts_us().len() == 3), "{kind:?}, {length}");
        }
    }
}

#[test]
fn a_near_target_ends_the_sending() {
    // 0.2 ms a hop: the target's first answer comes 1 ms after its first probe, when 4 TTLs beyond
    // are sent.
    let mut net = Net::chain(5);
    net.link = Nanos::from_micros(100);
    let run = trace(&mut net);
    assert!(run.sent.len() <= 3 * 5 + 3 * 4, "{} probes", run.sent.len());
    // On the far side of the world nothing is known before all are sent.
    let mut net = Net::chain(5);
    net.link = Nanos::from_millis(20);
    assert_eq!(trace(&mut net).sent.len(), 90);
}

#[test]
fn three_silent_hops_of_thirty_take_at_most_0_4_s() {
    for silent in [[3, 15, 29], [1, 2, 3], [27, 28, 29]] {
        let mut net = Net::chain(30).with_linux_limits();
        for ttl in silent {
            net.at(ttl).is_silent = true;
        }
        let run = trace(&mut net);
        assert!(run.ended <= Nanos::from_millis(400), "{} us", run.ended.0 / 1_000);
        // One more probe for each.
        assert_eq!(run.sent.len(), 93);
        let outcome = run.machine.finish();
        assert!(outcome.is_reached());
        for hop in &outcome.hops {
            let is_silent = silent.contains(&usize::from(hop.ttl));
            assert_eq!(hop.fate == HopFate::Silent, is_silent, "hop {}", hop.ttl);
        }
    }
}

#[test]
fn a_silent_target_ends_in_3_s_and_leaves_what_is_known() {
    for length in [1, 2, 30] {
        let mut net = Net::chain(length).with_linux_limits();
        net.at(length).is_silent = true;
        let run = trace(&mut net);
        assert!(run.ended <= Nanos::from_millis(3_000), "{} ms", run.ended.0 / 1_000_000);
        let outcome = run.machine.finish();
        let known = length as u8 - 1;
        let end = if known == 0 { PathEnd::NoAnswer } else { PathEnd::Silent { after_ttl: known } };
        assert_eq!((outcome.end, outcome.hops.len()), (end, usize::from(known)));
    }
}

#[test]
fn behind_a_silent_target_few_are_asked_again() {
    let mut net = Net::chain(10);
    net.at(10).is_silent = true;
    // 4 behind the last answer, and the last TTL.
    assert_eq!(trace(&mut net).sent.len(), 90 + 5);
}

#[test]
fn a_tracer_whose_driver_was_late_makes_up_for_a_few_probes_at_once() {
    let mut tracer = linerate_trace::Tracer::new(Net::chain(30).config(), Nanos::ZERO, 1).unwrap();
    let mut count = || std::iter::from_fn(|| tracer.poll_transmit(Nanos::from_millis(100))).count();
    assert_eq!(count(), 11);
    assert_eq!(count(), 0);
}

#[test]
fn the_rate_is_kept() {
    let mut net = Net::chain(30);
    let run = trace(&mut net);
    assert!(run.sent.windows(2).all(|pair| pair[1].0 - pair[0].0 >= Nanos::from_micros(100)));
    let config = TraceConfig { rate_per_s: 100, ..net.config() };
    let run = trace_with(&mut net, config);
    assert!(run.sent.windows(2).all(|pair| pair[1].0 - pair[0].0 >= Nanos::from_millis(10)));
    let outcome = run.machine.finish();
    assert!(outcome.hops.iter().all(|hop| hop.rtts_us().len() == 3));
}

//! What holds of every trace, whatever the network does.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::trace_support::{Bucket, ByPacket, Net, Run, address, run, trace, trace_with};
use linerate_trace::{
    Answer, AnswerKind, HopDocument, HopFate, PathEnd, ProbeIdentity, ProbeKind, Quoted,
    TraceConfig, TraceDocument, TraceHeader, Tracer,
};
use linerate_units::Nanos;
use proptest::prelude::*;

fn kinds() -> impl Strategy<Value = ProbeKind> {
    prop::sample::select(vec![ProbeKind::Udp, ProbeKind::Icmp, ProbeKind::Tcp])
}

/// Any network: silent and slow routers, limits, losses, a NAT, duplicates, short quotes, loops.
fn nets() -> impl Strategy<Value = Net> {
    let router = (0..20u8, 0..300u64, 0..8u64);
    let routers = prop::collection::vec(router, 1..40);
    let net = (any::<bool>(), 0..30u64, prop::option::of(0.0..0.3f64), any::<u64>());
    let habits = (any::<bool>(), any::<bool>(), any::<bool>(), 0..20usize);
    (routers, net, habits).prop_map(|(routers, (is_v6, link, loss, seed), habits)| {
        let length = routers.len();
        let mut net = if is_v6 { Net::chain_v6(length) } else { Net::chain(length) };
        net.link = Nanos::from_millis(link);
        net.loss = loss.unwrap_or(0.0);
        net.dice.0 = seed;
        for (ttl, (nature, slow, burst)) in (1..).zip(routers) {
            let router = net.at(ttl);
            router.is_silent = nature == 0;
            router.is_nat = nature == 1;
            router.unreachable = (nature == 2).then_some(13);
            router.remark = (nature == 3).then_some(0);
            router.slow = Nanos::from_millis(if nature == 4 { slow } else { 0 });
            router.bucket = (nature == 5).then(|| Bucket::of(burst));
        }
        let (duplicates, short_quotes, circles, from) = habits;
        net.duplicates = duplicates;
        net.short_quotes = short_quotes;
        net.loop_from = (circles && length > from + 3).then_some(from);
        net
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn each_answer_is_its_probes_and_no_probe_is_sent_twice(
        net in nets(), kind in kinds(), probes in 1..5u8,
    ) {
        let mut net = net;
        let config = TraceConfig { probes, hops: 45, ..net.config().with_kind(kind) };
        let (retries, timeout, gap) = (u64::from(config.retries), config.timeout,
            1_000_000_000 / u64::from(config.rate_per_s));
        let run = trace_with(&mut net, config);

        // Ends: each round waits a timeout at most after its last probe, and begins 0.1 s later at
        // most.
        let sending = gap * run.sent.len() as u64 + 100_000_000;
        prop_assert!(run.ended.0 <= (retries + 1) * timeout.0 + sending, "{} ms",
            run.ended.0 / 1_000_000);

        let ids: BTreeSet<_> = run.sent.iter().map(|(_, probe)| probe.id).collect();
        prop_assert_eq!(ids.len(), run.sent.len());
        for ttl in 1..=45 {
            let count = run.sent.iter().filter(|(_, probe)| probe.ttl == ttl).count();
            prop_assert!(count <= usize::from(probes) + 1);
        }
        let outcome = run.machine.finish();
        prop_assert_eq!(outcome.foreign, 0);
        for probe in outcome.hops.iter().flat_map(|hop| &hop.probes) {
            if let Some(reply) = &probe.reply {
                let (from, rtt) = net.truth[&probe.id.0];
                prop_assert_eq!((reply.from, reply.rtt), (from, rtt));
            }
        }
    }

    #[test]
    fn what_is_forged_changes_nothing(
        net in nets(),
        forged in prop::collection::vec((0..100u64, any::<u16>(), any::<u16>(), any::<u8>()),
            0..40),
    ) {
        let honest = trace(&mut net.clone()).machine.finish();
        let mut net = net;
        let session = Tracer::new(net.config(), Nanos::ZERO, 42).unwrap().session();
        let wrong: Vec<(Nanos, Answer)> = forged
            .into_iter()
            .filter(|(_, guessed, ..)| *guessed != session)
            .map(|(at, guessed, sequence, of)| {
                let identity = ProbeIdentity { sequence: sequence % 90, session: Some(guessed),
                    flow: Some(0) };
                let kind = match of % 3 {
                    0 => AnswerKind::PortUnreachable,
                    1 => AnswerKind::TimeExceeded,
                    _ => AnswerKind::Unreachable { code: 1 },
                };
                let from = IpAddr::from([203, 0, 113, of]);
                let (quoted, mpls) = (Quoted::default(), Vec::new());
                (Nanos::from_millis(at),
                    Answer { identity, from, kind, reply_ttl: None, quoted, mpls })
            })
            .collect();
        net.noise = wrong;
        let outcome = trace(&mut net).machine.finish();
        prop_assert_eq!(&outcome.hops, &honest.hops);
        prop_assert_eq!(outcome.end, honest.end);
    }

    #[test]
    fn any_document_can_be_written_and_read_again(net in nets()) {
        let mut net = net;
        let config = net.config();
        let outcome = trace(&mut net).machine.finish();
        let document = TraceDocument::new(TraceHeader::default(), &config, &outcome);
        let text = serde_json::to_string(&document).unwrap();
        let again: TraceDocument = serde_json::from_str(&text).unwrap();
        // Floats may differ in their last bit.
        let known = |document: &TraceDocument| {
            let hop = |hop: &HopDocument| (hop.ttl, hop.address, hop.fate, hop.probes.len());
            (document.end, document.hops.iter().map(hop).collect::<Vec<_>>())
        };
        prop_assert_eq!(known(&again), known(&document));
    }

    #[test]
    fn any_answers_at_any_time_are_stood(
        answers in prop::collection::vec((0..3_000u64, 0..100u16, any::<u8>(), any::<bool>()),
            0..100),
    ) {
        let mut net = Net::chain(5);
        net.levels.iter_mut().flatten().for_each(|router| router.is_silent = true);
        net.noise = answers
            .into_iter()
            .map(|(at, sequence, of, is_target)| {
                let identity = ProbeIdentity { sequence, session: None, flow: None };
                let kind = [
                    AnswerKind::TimeExceeded,
                    AnswerKind::PortUnreachable,
                    AnswerKind::EchoReply,
                    AnswerKind::TcpRst,
                    AnswerKind::TooBig { mtu: u32::from(of) },
                    AnswerKind::Unreachable { code: of },
                ][usize::from(of) % 6];
                let elsewhere = address(7, usize::from(of % 9), false);
                let from = if is_target { net.target() } else { elsewhere };
                let (quoted, mpls) = (Quoted::default(), Vec::new());
                (Nanos::from_millis(at),
                    Answer { identity, from, kind, reply_ttl: Some(of), quoted, mpls })
            })
            .collect();
        let run = trace(&mut net);
        prop_assert!(run.ended <= Nanos::from_millis(3_000));
        let config = net.config();
        let outcome = run.machine.finish();
        prop_assert!(outcome.hops.len() <= 30);
        let document = TraceDocument::new(TraceHeader::default(), &config, &outcome);
        prop_assert!(document.delay.words.iter().all(|words| !words.contains("NaN")));
    }
}

#[test]
fn a_limited_hop_is_told_from_a_lossy_path() {
    let mut net = Net::chain(12);
    net.at(4).bucket = Some(Bucket { interval: 50_000_000, burst: 1, tokens: 50_000_000, last: 0 });
    let outcome = trace(&mut net).machine.finish();
    assert_eq!(outcome.hops[3].fate, HopFate::RateLimited);
    assert_eq!(
        outcome.hops[3].rtts_us().len(),
        2,
        "the first of the burst, and the one asked later"
    );

    // Each link loses 2 %, both ways: 20 traces of 24 hops.
    let mut fates = Vec::new();
    for seed in 0..20 {
        let mut net = Net::chain(24);
        net.loss = 0.02;
        net.dice.0 = seed;
        fates.extend(trace(&mut net).machine.finish().hops.iter().map(|hop| hop.fate));
    }
    let count = |fate| fates.iter().filter(|other| **other == fate).count();
    assert!(count(HopFate::Lossy) > 50, "{}", count(HopFate::Lossy));
    assert!(
        count(HopFate::RateLimited) * 20 < count(HopFate::Lossy),
        "{}",
        count(HopFate::RateLimited)
    );
}

#[test]
fn a_router_whose_answers_were_used_up_answers_later() {
    let mut net = Net::chain(12);
    net.at(4).bucket = Some(Bucket { interval: 50_000_000, burst: 1, tokens: 0, last: 0 });
    let outcome = trace(&mut net).machine.finish();
    assert_eq!(outcome.hops[3].fate, HopFate::RateLimited);
}

#[test]
fn every_code_of_unreachable_ends_the_path_where_it_is_said() {
    for is_v6 in [false, true] {
        for code in 0..16 {
            // These two have answers of their own.
            if code == 4 || code == 3 && !is_v6 {
                continue;
            }
            let mut net = if is_v6 { Net::chain_v6(9) } else { Net::chain(9) };
            net.at(5).unreachable = Some(code);
            let run = trace(&mut net);
            assert!(run.ended < Nanos::from_millis(30));
            let outcome = run.machine.finish();
            assert_eq!(outcome.end, PathEnd::Unreachable { ttl: 6, code });
            assert_eq!(outcome.hops.len(), 6);
            assert!(!outcome.is_reached());
        }
    }
}

#[test]
fn a_target_that_refuses_is_reached() {
    let mut net = Net::chain(4);
    let target = net.target();
    let identity = |session| ProbeIdentity { sequence: 11, session: Some(session), flow: Some(0) };
    let config = net.config().with_kind(ProbeKind::Tcp);
    let tracer = Tracer::new(config, Nanos::ZERO, 42).unwrap();
    let answer = |from, kind| Answer {
        identity: identity(tracer.session()),
        from,
        kind,
        reply_ttl: None,
        quoted: Quoted::default(),
        mpls: Vec::new(),
    };
    net.at(4).is_silent = true;
    net.noise = vec![
        (Nanos::from_millis(9), answer(address(9, 9, false), AnswerKind::TcpRst)),
        (Nanos::from_millis(10), answer(target, AnswerKind::TcpRst)),
    ];
    let outcome = run(tracer, &mut net, ProbeKind::Tcp).machine.finish();
    assert_eq!(outcome.end, PathEnd::Reached { ttl: 4 });
    assert_eq!(outcome.foreign, 1, "a reset by another is not the target's");
}

/// The probes of a trace are of one flow.
#[test]
fn a_hop_that_answers_from_several_routers_is_balanced_by_packet() {
    let by_packet = |net: &mut Net| -> Vec<u8> {
        let config = net.config();
        let outcome = trace(net).machine.finish();
        let document = TraceDocument::new(TraceHeader::default(), &config, &outcome);
        document.hops.iter().filter(|hop| hop.is_by_packet).map(|hop| hop.ttl).collect()
    };
    let mut net = Net::wide(&[1, 2, 1, 2, 1], false);
    assert_eq!(by_packet(&mut net.clone()), [0; 0]);
    net.levels[2][0].by_packet = Some(ByPacket::InTurn);
    assert_eq!(by_packet(&mut net.clone()), [4]);
    // Asked again after a second, a route may have changed.
    net.levels[2][0].by_packet = None;
    net.levels[3][0].bucket = Some(Bucket::of(2));
    net.route_change = Some((14, 3));
    assert_eq!(by_packet(&mut net), [0; 0]);
}

#[test]
fn loops_are_noticed_with_their_length() {
    for (length, from) in [(6, 3), (8, 1), (12, 7)] {
        let mut net = Net::chain(length);
        net.loop_from = Some(from);
        let outcome = trace(&mut net).machine.finish();
        let routers = (length - 1 - from) as u8;
        let end = PathEnd::Loop { from_ttl: from as u8 + 1, length: routers };
        assert_eq!(outcome.end, end);
        let again = &outcome.hops[from + usize::from(routers)];
        assert_eq!(again.repeats, Some(from as u8 + 1));
    }
}

#[test]
fn a_router_that_answers_twice_is_no_loop_but_a_repeat() {
    let mut net = Net::chain(6);
    net.at(2).address = net.at(1).address;
    let outcome = trace(&mut net).machine.finish();
    assert_eq!(outcome.hops[1].repeats, Some(1));
    assert!(outcome.is_reached());
}

#[test]
fn probes_that_do_not_fit_end_where_the_link_shrinks() {
    let mut net = Net::chain(8);
    net.at(3).mtu = Some(1_400);
    let config = TraceConfig { size: 1_500, ..net.config() };
    let outcome = trace_with(&mut net, config).machine.finish();
    assert_eq!(outcome.end, PathEnd::TooBig { ttl: 4, mtu: 1_400 });
    let config = TraceConfig { size: 1_400, ..net.config() };
    assert!(trace_with(&mut net, config).machine.finish().is_reached());
}

#[test]
fn the_hop_at_which_marks_are_changed_is_named_and_so_is_a_nat() {
    let mut net = Net::chain(7);
    net.at(4).remark = Some(0);
    net.at(2).is_nat = true;
    let config = TraceConfig { dscp: "EF".parse().unwrap(), ..net.config() };
    let outcome = trace_with(&mut net, config.clone()).machine.finish();
    let document = TraceDocument::new(TraceHeader::default(), &config, &outcome);
    let remarked: Vec<u8> =
        document.hops.iter().filter(|hop| hop.is_remarked).map(|hop| hop.ttl).collect();
    assert_eq!(remarked, [5]);
    assert_eq!((document.hops[3].dscp, document.hops[4].dscp), (Some(46), Some(0)));
    let translated: Vec<u8> = document
        .hops
        .iter()
        .filter(|hop| hop.is_translated == Some(true))
        .map(|hop| hop.ttl)
        .collect();
    assert_eq!(translated, [3, 4, 5, 6, 7]);
    assert!(document.hops.iter().all(|hop| hop.return_hops == Some(hop.ttl)));
}

#[test]
fn duplicates_and_late_answers_are_counted_and_true() {
    let mut net = Net::chain(6);
    net.duplicates = true;
    let outcome = trace(&mut net).machine.finish();
    assert!(outcome.duplicates >= 15, "{}", outcome.duplicates);
    assert!(outcome.hops.iter().all(|hop| hop.rtts_us().len() == 3));

    // Slower than it is waited for (2 × 8 ms + 50 ms), but before the end, which the other hop
    // delays.
    let mut net = Net::chain(6);
    net.at(3).slow = Nanos::from_millis(70);
    net.at(2).is_silent = true;
    let outcome = trace(&mut net).machine.finish();
    assert!(outcome.late > 0);
    let rtts = outcome.hops[2].rtts_us();
    assert!(rtts.iter().all(|rtt| (*rtt - 76_000.0).abs() < 1.0), "{rtts:?}");
}

#[test]
fn a_trace_that_is_stopped_says_what_it_knows() {
    let net = Net::chain(4);
    let mut tracer = Tracer::new(net.config(), Nanos::ZERO, 1).unwrap();
    tracer.poll_transmit(Nanos::ZERO).unwrap();
    let outcome = tracer.finish();
    assert_eq!((outcome.end, outcome.sent), (PathEnd::NoAnswer, 1));
}

#[test]
fn first_and_last_ttl_are_kept() {
    let mut net = Net::chain(9);
    let config = TraceConfig { first: 4, hops: 6, ..net.config() };
    let Run { machine, sent, .. } = trace_with(&mut net, config);
    assert!(sent.iter().all(|(_, probe)| (4..=6).contains(&probe.ttl)));
    let outcome = machine.finish();
    assert_eq!((outcome.end, outcome.hops.len()), (PathEnd::HopLimit, 3));
    let config = TraceConfig { first: 255, hops: 255, ..net.config() };
    assert_eq!(trace_with(&mut net, config).machine.finish().end, PathEnd::Reached { ttl: 255 });
}

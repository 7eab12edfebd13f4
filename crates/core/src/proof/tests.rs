//! Laws of the proof: they hold whatever the figures are.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::change::intervention;
use super::*;
use crate::plan::{Extent, Protocol, Test, Traffic};
use crate::record::{Cause, ProofDoubt, ProofLevel};
use crate::units::{BitRate, Dice, Family, Span};

/// A test of 1.3 s over TCP.
fn plain() -> Test {
    let mut test = Test::stream().resolve(1).unwrap();
    test.extent = Extent::Time(Span::from_secs_f64(1.3).unwrap());
    test
}

/// Plain runs at 100 Mbit/s over 20 ms, of which everything is known.
fn seen() -> PlainRuns {
    PlainRuns {
        rtt_min_s: Some(0.020),
        rtt_s: Some(0.024),
        mss_bytes: Some(1448.0),
        receive_window_bytes: Some(1e6),
        max_receive_window_bytes: Some(6e6),
        send_buffer_bytes: Some(1e6),
        max_send_buffer_bytes: Some(4e6),
        congestion: Some("cubic".to_owned()),
        allowed_congestion: vec!["reno".to_owned(), "cubic".to_owned(), "bbr".to_owned()],
        retransmitted_share: Some(0.01),
        can_hold_window: true,
        can_send_without_copy: true,
        can_discard: true,
        rate_bps: 100e6,
        family: Some(Family::Ipv4),
        ..PlainRuns::default()
    }
}

fn predicted(change: &str, seen: &PlainRuns, watched: Watched, cause: Cause) -> Option<Predicted> {
    intervention(change).unwrap().predicted(&Case {
        test: &plain(),
        seen,
        watched,
        cause,
        window_ratio: None,
    })
}

const UNLIMITED: ProofBudget =
    ProofBudget { runs: 60, seconds: f64::INFINITY, bytes: f64::INFINITY };

/// Runs a proof to its end; `rate` has the rate of a change, of plain runs by the name `plain`.
fn run(prover: &mut Prover, mut rate: impl FnMut(&str) -> f64) -> Vec<String> {
    let mut made = Vec::new();
    while let Some(run) = prover.next_run() {
        let name = match &run {
            ProofRun::Plain => "plain",
            ProofRun::Changed { change, .. } => change,
        };
        made.push(name.to_owned());
        prover.record(RunFigures { rate: rate(name), seconds: 1.3, ..RunFigures::default() });
        assert!(made.len() <= 200, "it does not end");
    }
    made
}

/// Rates of a proof with random answers from 0.3 to 3.
fn answers(seed: u64) -> impl FnMut(&str) -> f64 {
    let mut dice = Dice::new(seed, 1);
    let mut ratios: BTreeMap<String, f64> = BTreeMap::from([("plain".to_owned(), 1.0)]);
    move |name| {
        let ratio = *ratios.entry(name.to_owned()).or_insert_with(|| dice.log_uniform(0.3, 3.0));
        100e6 * ratio * (0.03 * dice.normal()).exp()
    }
}

fn prover(budget: ProofBudget, seed: u64) -> Prover {
    Prover::new(&plain(), &seen(), &[(Cause::ReceiveWindow, 1.0)], &[], budget, seed)
}

#[test]
fn names_are_unique_and_found() {
    let names: BTreeSet<_> = INTERVENTIONS.iter().map(|change| change.name).collect();
    assert_eq!(names.len(), INTERVENTIONS.len());
    assert!(names.iter().all(|name| intervention(name).is_some_and(|found| found.name == *name)));
}

#[test]
fn each_change_makes_a_valid_test_that_differs_or_says_why_not() {
    let mut udp = plain();
    udp.protocol = Protocol::Udp;
    if let Traffic::Stream(stream) = &mut udp.traffic {
        (stream.message_bytes, stream.rate_bps) = (1200, Some(BitRate(50_000_000)));
    }
    for test in [plain(), udp] {
        for change in &INTERVENTIONS {
            match change.changed(&test, &seen()) {
                Ok(changed) => {
                    assert_ne!(changed, test, "{}", change.name);
                    assert!(changed.check().is_ok(), "{}", change.name);
                }
                Err(why) => assert!(!why.to_string().is_empty(), "{}", change.name),
            }
        }
    }
}

#[test]
fn what_is_not_known_is_never_guessed() {
    let nothing = PlainRuns { rate_bps: 100e6, can_hold_window: true, ..PlainRuns::default() };
    let made = |name: &str, seen: &PlainRuns| intervention(name).unwrap().changed(&plain(), seen);
    for name in ["receive_window=2", "send_buffer=0.6", "mss=0.6", "congestion=bbr"] {
        assert!(matches!(made(name, &nothing), Err(Refusal::NotKnown(_))), "{name}");
    }
    let limit = PlainRuns { max_receive_window_bytes: Some(1.5e6), ..seen() };
    assert!(matches!(made("receive_window=2", &limit), Err(Refusal::NotAllowed(_))));
    assert!(made("receive_window=0.6", &limit).is_ok());
    let bbr = PlainRuns { congestion: Some("bbr".to_owned()), ..seen() };
    assert_eq!(made("congestion=bbr", &bbr), Err(Refusal::AlreadySo));
    assert!(made("congestion=cubic", &bbr).is_ok());
}

#[test]
fn a_full_link_keeps_its_rate_until_the_window_is_below_what_the_path_holds() {
    let window = |bytes: f64| {
        let seen = PlainRuns { receive_window_bytes: Some(bytes), ..seen() };
        predicted("receive_window=0.6", &seen, Watched::Rate, Cause::PathRate).unwrap()
    };
    // The path holds 250 kB at its smallest RTT.
    assert_eq!(window(1e6).expected, 1.0);
    assert!((window(250e3).expected - 0.6).abs() < 1e-9);
    assert!(window(250e3).meets([0.6_f64.ln(); 2]) && window(250e3).meets([0.0; 2]));
}

#[test]
fn smaller_segments_lose_the_share_of_their_headers() {
    let of = |cause| {
        predicted(
            "mss=0.6",
            &PlainRuns { loss_events: Some(100.0), ..seen() },
            Watched::Rate,
            cause,
        )
        .unwrap()
    };
    // 1448 of 1538 bytes against 868.8 of 958.8.
    let share = (868.8 / 958.8) / (1448.0 / 1538.0);
    assert!((of(Cause::PathRate).expected - share).abs() < 1e-9);
    assert!(!of(Cause::Congestion).meets([share.ln(); 2]));
}

#[test]
fn a_pace_shows_a_buffer_that_was_exceeded() {
    let seen = seen();
    for change in ["pace=0.9", "congestion=bbr"] {
        let low = |cause| predicted(change, &seen, Watched::Rate, cause).unwrap().low;
        assert!(low(Cause::SendBuffer) <= 0.26, "{change}");
        assert!(low(Cause::ReceiveWindow) > 0.7 && low(Cause::PathRate) > 0.7, "{change}");
    }
}

#[test]
fn what_loses_segments_and_has_no_queue_is_no_link() {
    let test = plain();
    let seen = |queue_s: f64, share: f64| PlainRuns {
        rate_bps: 23.6e6,
        rtt_min_s: Some(0.005),
        rtt_s: Some(0.005 + queue_s),
        retransmitted_share: Some(share),
        never_lost: Some(false),
        ..seen()
    };
    let is_link = |seen: PlainRuns| ruled_out(Cause::PathRate, &test, &seen).is_none();
    // Eight flows at a policer lost three tenths; a queue of 9 packets at 93 Mbit/s is as short.
    assert!(!is_link(seen(0.000_47, 0.3)));
    assert!(ruled_out(Cause::Policer, &test, &seen(0.000_47, 0.3)).is_none());
    assert!(is_link(seen(0.001_5, 0.3)) && is_link(seen(0.000_47, 0.001)));
}

#[test]
fn the_second_change_is_another_one() {
    let mut prover = prover(UNLIMITED, 3);
    let made = run(&mut prover, |_| 1.0);
    let changes: Vec<&String> = made.iter().filter(|name| *name != "plain").collect();
    assert_ne!(changes[0], changes[1], "{made:?}");
}

#[test]
fn a_queue_that_is_nearly_nothing_predicts_nothing() {
    let of = |rtt: f64| {
        let seen = PlainRuns { rtt_s: Some(rtt), ..seen() };
        predicted("pace=0.9", &seen, Watched::Queue, Cause::PathRate)
    };
    assert_eq!(of(0.021), None);
    let drained = of(0.060).unwrap();
    assert!(drained.is_a_change() && drained.meets([(1.0_f64 / 41.0).ln(); 2]));
}

#[test]
fn exact_evidence_leaves_causes_out() {
    let idle = PlainRuns {
        thread_shares: [Some(0.1); 2],
        core_shares: [Some(0.3); 2],
        host_shares: [Some(0.2); 2],
        retransmitted_share: Some(0.0),
        ..seen()
    };
    for cause in [Cause::CpuSend, Cause::CpuReceive, Cause::CpuHost, Cause::Policer] {
        assert!(ruled_out(cause, &plain(), &idle).is_some(), "{cause:?}");
        assert!(ruled_out(cause, &plain(), &seen()).is_none(), "{cause:?}");
    }
    // A neighbour that has the core is not this thread's own time.
    let busy = PlainRuns { core_shares: [Some(0.9); 2], ..idle };
    assert!(ruled_out(Cause::CpuSend, &plain(), &busy).is_none());
    assert!(ruled_out(Cause::PathRate, &plain(), &busy).is_none());
}

/// Offers with synthetic predictions for the rate.
fn offer(change: &'static str, predicted: &[(Cause, f64)]) -> Offer {
    let range = |expected: f64| Predicted {
        low: 0.93 * expected,
        expected,
        high: 1.07 * expected,
        is_not_one: false,
    };
    let predicted = predicted.iter().map(|(cause, e)| ((Watched::Rate, *cause), range(*e)));
    Offer {
        change,
        end: None,
        test: plain(),
        lifts: None,
        length: 1.0,
        predicted: predicted.collect(),
        basis: None,
    }
}

#[test]
fn a_change_that_nobody_predicts_differently_is_never_run() {
    let (one, other) = (Cause::SendBuffer, Cause::ReceiveWindow);
    let offers = || {
        vec![
            offer("same", &[(one, 1.9), (other, 1.9)]),
            offer("silent", &[]),
            offer("differs", &[(one, 1.9), (other, 1.0)]),
        ]
    };
    let mut prover = Prover::with_offers(offers(), &[one, other], &[], UNLIMITED, 3);
    // Between the two, so that neither is excluded and nothing is confirmed.
    let made = run(&mut prover, |name| if name == "differs" { 1.38 } else { 1.0 });
    assert!(made.iter().any(|name| name == "differs"));
    assert!(!made.iter().any(|name| name == "same" || name == "silent"));
}

#[test]
fn a_cause_that_one_change_contradicts_is_not_likely() {
    let causes = [Cause::PathRate, Cause::SendBuffer];
    for (ratio, expected) in [(1.0, &causes[..1]), (1.9, &causes[1..]), (1.4, &[])] {
        let offers = vec![offer("streams", &[(causes[0], 1.0), (causes[1], 1.9)])];
        let ranking = [(causes[0], 0.6), (causes[1], 0.4)];
        let budget = ProofBudget { runs: 2, ..UNLIMITED };
        let mut prover = Prover::with_offers(offers, &causes, &ranking, budget, 3);
        run(&mut prover, |name| if name == "streams" { ratio } else { 1.0 });
        assert_eq!(prover.findings().proof.causes, expected, "{ratio}");
    }
}

#[test]
fn all_excluded_is_open_and_never_the_least_bad() {
    let causes = [Cause::SendBuffer, Cause::ReceiveWindow];
    let offers = vec![offer("a", &[(causes[0], 1.9), (causes[1], 1.0)])];
    let mut prover = Prover::with_offers(offers, &causes, &[(causes[0], 1.0)], UNLIMITED, 3);
    run(&mut prover, |name| if name == "a" { 0.4 } else { 1.0 });
    let findings = prover.findings();
    assert_eq!((findings.proof.level, findings.proof.ruled_out.len()), (ProofLevel::Open, 2));
    assert!(
        findings.proof.causes.is_empty()
            && findings.proof.ruled_out.iter().all(|out| out.by == "a")
    );
}

#[test]
fn two_limits_near_to_each_other_are_both_named() {
    let (one, other) = (Cause::ReceiveWindow, Cause::PathRate);
    let mut prover = Prover::new(&plain(), &windowed(), &[(one, 1.0)], &[], UNLIMITED, 5);
    run(&mut prover, |name| match name {
        "receive_window=2" | "streams=2" => 1.11,
        "receive_window=0.6" => 0.6,
        _ => 1.0,
    });
    let findings = prover.findings();
    assert_eq!(findings.proof.causes, [one, other], "{findings:?}");
    assert_eq!(findings.proof.level, ProofLevel::Proved);
}

/// A window of 250 kB over 20 ms, with nothing else near.
fn windowed() -> PlainRuns {
    PlainRuns {
        receive_window_bytes: Some(250e3),
        rtt_s: Some(0.02),
        retransmitted_share: Some(0.0),
        max_pacing_bps: Some(f64::INFINITY),
        is_class_full: Some(false),
        host_shares: [Some(0.1); 2],
        thread_shares: [Some(0.1); 2],
        core_shares: [Some(0.1); 2],
        ..seen()
    }
}

#[test]
fn the_remedy_of_what_is_proved_is_tried_once_and_of_nothing_else() {
    for follows in [true, false] {
        let ranking = [(Cause::ReceiveWindow, 1.0)];
        let mut prover = Prover::new(&plain(), &windowed(), &ranking, &[], UNLIMITED, 5);
        let made = run(&mut prover, |name| match name {
            "receive_window=0.6" if follows => 0.6,
            "receive_window=2" | "streams=2" if follows => 2.0,
            "receive_window=most" => 7.0,
            _ => 1.0,
        });
        let tried: Vec<&String> = made.iter().filter(|name| name.contains("most")).collect();
        let findings = prover.findings();
        let worth = findings.experiments.iter().find(|one| one.change == "receive_window=most");
        if follows {
            assert_eq!(tried.len(), 1, "{made:?}");
            assert!((worth.unwrap().ratio - 7.0).abs() < 1e-9);
            assert_eq!(findings.proof.level, ProofLevel::Proved);
        } else {
            assert!(tried.is_empty() && worth.is_none(), "{made:?}");
        }
    }
}

#[test]
fn a_path_that_goes_away_proves_nothing_and_says_so() {
    let mut prover = prover(UNLIMITED, 4);
    let mut runs = 0;
    run(&mut prover, |name| {
        runs += 1;
        let rate = 100e6 * (-0.05 * f64::from(runs)).exp();
        if name.contains("window=2") || name == "streams=2" { 1.9 * rate } else { rate }
    });
    let findings = prover.findings();
    assert_eq!(findings.proof.doubt, Some(ProofDoubt::Drift));
    assert_ne!(findings.proof.level, ProofLevel::Proved);
}

#[test]
fn runs_that_scatter_by_half_prove_nothing_and_say_so() {
    let mut prover = prover(UNLIMITED, 4);
    let mut dice = Dice::new(8, 0);
    run(&mut prover, |_| 100e6 * (0.6 * dice.normal()).exp());
    let findings = prover.findings();
    assert_eq!(findings.proof.doubt, Some(ProofDoubt::Scatter));
    assert_ne!(findings.proof.level, ProofLevel::Proved);
}

proptest! {
    // A case is a whole proof, or several.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_ends_and_never_exceeds_its_budget(
        seed: u64,
        runs in 0_u32..20,
        seconds in 0.0..40.0_f64,
        bytes in 1e6..1e9_f64,
    ) {
        let budget = ProofBudget { runs, seconds, bytes };
        let mut prover = prover(budget, seed);
        // No path carries more than the changes predict, or its bytes could not be planned.
        let mut rate = answers(seed);
        let mut spent = 0.0;
        let made = run(&mut prover, |name| {
            let rate = rate(name).min(100e6);
            spent += rate / 8.0 * 1.3;
            rate
        });
        prop_assert!(made.len() as u32 <= runs);
        // What a run costs is known after the first one.
        prop_assert!(made.len() as f64 * 1.3 <= seconds.max(1.3) + 1e-9);
        prop_assert!(spent <= 1.1 * bytes.max(100e6 / 8.0 * 1.3), "{spent} of {bytes}");
    }

    #[test]
    fn the_conclusion_does_not_depend_on_the_unit_of_the_rate(seed: u64) {
        let conclude = |unit: f64| {
            let mut prover = prover(ProofBudget::default(), seed);
            let mut rate = answers(seed);
            let made = run(&mut prover, |name| unit * rate(name));
            let findings = prover.findings();
            (made, findings.proof.level, findings.proof.causes, findings.proof.ruled_out)
        };
        prop_assert_eq!(conclude(1.0), conclude(1e-6));
    }

    #[test]
    fn what_was_refused_is_never_asked_again(seed: u64) {
        let mut prover = prover(UNLIMITED, seed);
        let mut rate = answers(seed);
        let mut dice = Dice::new(seed, 2);
        let mut refused = BTreeSet::new();
        while let Some(run) = prover.next_run() {
            match run {
                ProofRun::Changed { change, .. } if dice.chance(0.5) => {
                    prop_assert!(refused.insert(change), "{} again", change);
                    prover.skip("the endpoint refuses it");
                }
                ProofRun::Changed { change, .. } => {
                    prop_assert!(!refused.contains(change), "{} again", change);
                    let figures = RunFigures { rate: rate(change), seconds: 1.3, ..RunFigures::default() };
                    prover.record(figures);
                }
                ProofRun::Plain => {
                    let figures = RunFigures { rate: rate("plain"), seconds: 1.3, ..RunFigures::default() };
                    prover.record(figures);
                }
            }
        }
        let not_made = prover.findings().not_made;
        prop_assert!(refused.iter().all(|change| not_made.iter().any(|n| n.change == *change)));
    }

    #[test]
    fn the_same_seed_makes_the_same_runs(seed: u64) {
        let made = || run(&mut prover(ProofBudget::default(), seed), answers(seed));
        prop_assert_eq!(made(), made());
    }
}

#[test]
fn a_policer_that_took_its_losses_before_the_measured_time_stays_possible() {
    let quiet = PlainRuns { retransmitted_share: Some(0.0), ..seen() };
    let after_losses = PlainRuns { never_lost: Some(false), ..quiet.clone() };
    assert!(ruled_out(Cause::Policer, &plain(), &quiet).is_some());
    assert!(ruled_out(Cause::Policer, &plain(), &after_losses).is_none());
}

/// Plain runs against another tool's server, whose window is full nearly always: its 250 kB are
/// this share of its widest.
fn foreign(open: f64) -> PlainRuns {
    PlainRuns {
        rtt_s: Some(0.020),
        receive_window_bytes: Some(250e3 / open),
        window_held_share: Some(0.98),
        window_open_share: Some(open),
        window_over_cwnd: Some(0.5),
        can_hold_window: false,
        thread_shares: [Some(0.1), None],
        core_shares: [Some(0.2), None],
        process_shares: [None, Some(0.01)],
        never_lost: Some(true),
        retransmitted_share: Some(0.0),
        ..seen()
    }
}

#[test]
fn what_a_window_predicts_follows_from_the_window_that_was_seen() {
    let offer = |change: &str, ratio: f64| {
        let change = intervention(change).unwrap();
        let mut offer = Offer::new(change, &plain(), &foreign(1.0)).unwrap();
        assert!(offer.changes_window());
        offer.follow_window(250e3, ratio);
        offer
    };
    let of = |change: &str, ratio: f64, cause| {
        offer(change, ratio).predicted.get(&(Watched::Rate, cause)).copied().unwrap()
    };
    // The server makes more or less of what it is asked for, or even a smaller one.
    for (change, ratio) in
        [("receive_window=2", 2.4), ("receive_window=2", 0.3), ("receive_window=0.6", 0.5)]
    {
        let window = of(change, ratio, Cause::ReceiveWindow);
        assert!(window.is_a_change() && window.meets([ratio.ln(); 2]), "{change}: {window:?}");
    }
    // A path that was just full slows down, too.
    assert!((of("receive_window=2", 0.3, Cause::PathRate).expected - 0.3).abs() < 1e-9);
    // A window that has not changed tells nothing.
    for ratio in [0.9, 1.0, 1.2] {
        assert!(offer("receive_window=2", ratio).predicted.is_empty(), "{ratio}");
    }
}

/// A proof against a server of another tool, which makes a window of 1.2 of the size it is asked
/// for; `rate` has the rate of a change and its window, which is 1 where nothing is asked.
fn prove_foreign(seen: &PlainRuns, rate: impl Fn(&str, f64) -> f64) -> ProofFindings {
    let mut prover = Prover::new(&plain(), seen, &[], &[], UNLIMITED, 6);
    while let Some(run) = prover.next_run() {
        let (name, asked) = match &run {
            ProofRun::Plain => ("plain", None),
            ProofRun::Changed { change, test } => (*change, test.options.receive_window_bytes),
        };
        let now = seen.receive_window_bytes.unwrap();
        let window = asked.map_or(1.0, |asked| 1.2 * asked.0 as f64 / now);
        let (rate, window_bytes) = (rate(name, window), Some(now * window));
        prover.record(RunFigures { rate, seconds: 1.3, window_bytes, ..RunFigures::default() });
    }
    prover.findings()
}

#[test]
fn a_late_reader_is_told_from_a_small_window_by_another_one() {
    let proved = |findings: &ProofFindings, cause| {
        assert_eq!(findings.proof.causes, [cause], "{findings:?}");
        assert_eq!(findings.proof.level, ProofLevel::Proved, "{findings:?}");
    };
    let small = prove_foreign(&foreign(0.95), |name, window| match name {
        "streams=2" => 2.0,
        _ => window,
    });
    proved(&small, Cause::ReceiveWindow);
    // The server reads each connection as slowly, or all of them together.
    for with_flows in [1.0, 2.0] {
        let late = prove_foreign(&foreign(0.2), |name, _| match name {
            "streams=2" => with_flows,
            _ => 1.0,
        });
        proved(&late, Cause::ApplicationReceive);
    }
    // Something else may have had its CPU.
    let busy = PlainRuns { process_shares: [None, Some(0.2)], ..foreign(0.2) };
    let findings = prove_foreign(&busy, |_, _| 1.0);
    assert_eq!(findings.proof.causes, [Cause::ApplicationReceive], "{findings:?}");
    assert_eq!(findings.proof.level, ProofLevel::Likely, "{findings:?}");
}

#[test]
fn a_window_that_stays_open_or_does_not_hold_is_no_late_readers() {
    let reader = |seen: &PlainRuns| ruled_out(Cause::ApplicationReceive, &plain(), seen);
    assert!(reader(&foreign(0.95)).is_some());
    assert!(reader(&PlainRuns { window_over_cwnd: Some(1.5), ..foreign(0.2) }).is_some());
    assert!(reader(&foreign(0.2)).is_none());
    // Behind a closing window nothing on the way is the limit.
    for cause in [Cause::PathRate, Cause::Policer, Cause::Congestion, Cause::CpuSend] {
        assert!(ruled_out(cause, &plain(), &foreign(0.2)).is_some(), "{cause:?}");
    }
}

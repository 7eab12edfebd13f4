//! Rounds of traces of a network that changes.

use crate::trace_support::{Net, address, trace};
use linerate_trace::Watch;
use linerate_units::Nanos;

fn second(n: u64) -> Nanos {
    Nanos::from_millis(1_000 * n)
}

#[test]
fn figures_are_those_of_all_rounds() {
    let mut watch = Watch::new();
    for (round, slow) in [0, 3, 6].into_iter().enumerate() {
        let mut net = Net::chain(4);
        net.at(2).slow = Nanos::from_millis(slow);
        net.at(3).is_silent = true;
        watch.add(second(round as u64), &trace(&mut net).machine.finish());
    }
    let rows = watch.rows();
    assert_eq!((rows.len(), watch.rounds()), (4, 3));
    let rtt = rows[1].rtt_us.expect("hop 2 answers");
    assert_eq!((rtt.best, rtt.worst, rtt.last, rtt.mean), (4_000.0, 10_000.0, 10_000.0, 7_000.0));
    // Three of each: √(2·3·3,000² / 8).
    assert!((rtt.deviation - 2_598.076).abs() < 0.001, "{}", rtt.deviation);
    assert!((rtt.p50 - 7_000.0).abs() < 10.0 && (rtt.p99 - 10_000.0).abs() < 10.0);
    assert!(rtt.jitter > 0.0 && rows[0].rtt_us.expect("hop 1 answers").jitter == 0.0);
    assert_eq!((rows[1].loss_percent, rows[1].sent), (0.0, 9));
    assert_eq!((rows[2].loss_percent, rows[2].rtt_us, rows[2].address), (100.0, None, None));
    assert_eq!(rows[2].recent_us, vec![None; 12]);
}

#[test]
fn a_change_of_the_path_is_noted_with_its_time_and_silence_is_none() {
    let mut watch = Watch::new();
    for round in 0..6 {
        let mut net = Net::chain(5);
        net.at(2).is_silent = round == 1;
        if round >= 3 {
            net.at(3).address = address(2, 7, false);
        }
        watch.add(second(round), &trace(&mut net).machine.finish());
    }
    let changes: Vec<_> = watch.changes().copied().collect();
    assert_eq!(changes.len(), 1);
    assert_eq!((changes[0].at_s, changes[0].ttl), (3.0, 3));
    assert_eq!((changes[0].from, changes[0].to), (address(2, 0, false), address(2, 7, false)));
}

#[test]
fn what_is_kept_is_bounded() {
    let mut watch = Watch::new();
    let mut net = Net::chain(2);
    let outcomes: Vec<_> = (0..2)
        .map(|place| {
            net.at(1).address = address(0, place, false);
            trace(&mut net).machine.finish()
        })
        .collect();
    for round in 0..1_201 {
        watch.add(second(round), &outcomes[round as usize % 2]);
    }
    assert_eq!((watch.changes().count(), watch.forgotten_changes()), (1_000, 200));
    assert!(watch.rows().iter().all(|row| row.recent_us.len() == 60));
}

#[test]
fn a_target_that_falls_silent_has_lost_its_probes() {
    let mut watch = Watch::new();
    for is_silent in [false, true] {
        let mut net = Net::chain(4);
        net.at(4).is_silent = is_silent;
        let round = second(u64::from(is_silent));
        watch.add(round, &trace(&mut net).machine.finish());
    }
    let rows = watch.rows();
    assert_eq!((rows.len(), rows[2].loss_percent), (4, 0.0));
    assert_eq!((rows[3].sent, rows[3].loss_percent), (6, 50.0));
}

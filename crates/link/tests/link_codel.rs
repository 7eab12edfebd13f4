//! CoDel on a link against RFC 8289.

use crate::link_support::{drive, packet};
use linerate_link::{Aqm, Delivery, DropCause, Fate, Link, LinkSpec, Packet, QueueLimit};
use linerate_units::{Ecn, Nanos};

/// 12 Mbit/s, so that a packet of 1500 bytes on the wire takes 1 ms.
fn link(marks_ect: bool) -> Link {
    let spec = LinkSpec {
        rate_bps: Some(12_000_000),
        aqm: Aqm::CoDel { marks_ect },
        queue: QueueLimit::Packets(100_000),
        ..LinkSpec::default()
    };
    Link::new(&spec, 0)
}

/// Packets of 1500 bytes on the wire, one each `gap_us`, from `begin_ms` to `end_ms`.
fn packets(
    begin_ms: u64,
    end_ms: u64,
    gap_us: u64,
    ecn: Ecn,
) -> impl Iterator<Item = (Nanos, Packet)> {
    (begin_ms * 1000..end_ms * 1000).step_by(gap_us as usize).map(move |us| {
        let packet = Packet { ecn, ..packet(us, 1486) };
        (Nanos::from_micros(us), packet)
    })
}

fn drop_times_ms(deliveries: &[Delivery]) -> Vec<f64> {
    deliveries
        .iter()
        .filter(|delivery| delivery.fate == Fate::Dropped(DropCause::Aqm))
        .map(|delivery| delivery.at.0 as f64 / 1e6)
        .collect()
}

#[test]
fn drops_follow_the_control_law() {
    // 20 % more than the line carries, from a sender that does not listen.
    let deliveries = drive(&mut link(false), packets(0, 3000, 833, Ecn::NotEct));
    let drops = drop_times_ms(&deliveries);
    let mut table = String::from("drop  due ms    at ms\n");
    let mut due = drops[0];
    for (index, at) in drops.iter().take(40).enumerate() {
        let count = index + 1;
        // A drop is made at the first departure after it is due, at most the 1 ms of a packet
        // later.
        assert!((due - 1e-3..due + 1.0 + 1e-3).contains(at), "drop {count}: {at}, due {due}");
        table += &format!("{count:4} {due:8.3} {at:8.3}\n");
        due += 100.0 / (count as f64).sqrt();
    }
    insta::assert_snapshot!(table);
}

#[test]
fn first_drop_comes_one_interval_after_the_target_was_passed() {
    let deliveries = drive(&mut link(false), packets(0, 1000, 833, Ecn::NotEct));
    let sojourn_ms = |delivery: &Delivery| delivery.at.0 as f64 / 1e6 - delivery.id as f64 / 1e3;
    // An arrival is 1 ms on the line after its sojourn.
    let above = deliveries
        .iter()
        .find(|delivery| sojourn_ms(delivery) - 1.0 >= 5.0)
        .expect("the queue grows");
    let passed_ms = above.at.0 as f64 / 1e6 - 1.0;
    let first_drop = drop_times_ms(&deliveries)[0];
    assert!(
        (passed_ms + 100.0..passed_ms + 101.0).contains(&first_drop),
        "{first_drop}, passed at {passed_ms}"
    );
}

#[test]
fn capable_packets_are_marked_and_others_dropped() {
    for ecn in [Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
        let mut marking = link(true);
        let deliveries = drive(&mut marking, packets(0, 1000, 833, ecn));
        let marks = deliveries
            .iter()
            .filter(|delivery| matches!(delivery.fate, Fate::Arrived { mark_ce: true, .. }))
            .count();
        assert!(marks > 10, "{ecn:?}: {marks}");
        assert_eq!(marking.counters().marked, marks as u64);
        assert_eq!(marking.counters().dropped.total(), 0);
    }
    for (marks_ect, ecn) in [(true, Ecn::NotEct), (false, Ecn::Ect0)] {
        let mut dropping = link(marks_ect);
        drive(&mut dropping, packets(0, 1000, 833, ecn));
        assert_eq!(dropping.counters().marked, 0);
        assert!(dropping.counters().dropped.aqm > 10);
    }
}

#[test]
fn a_burst_that_drains_within_an_interval_is_left_alone() {
    let mut link = link(false);
    // 80 ms of packets at once, again and again, at 80 % of the rate.
    let bursts = (0..20u64).flat_map(|burst| {
        (0..80)
            .map(move |index| (Nanos::from_millis(100 * burst), packet(burst * 80 + index, 1486)))
    });
    drive(&mut link, bursts);
    assert_eq!(link.counters().dropped.total(), 0);
    assert_eq!(link.counters().delivered, 1600);
}

#[test]
fn dropping_resumes_at_its_rate_after_a_short_pause_and_begins_anew_after_a_long_one() {
    let second_gap_ms = |pause_ms: u64| {
        let mut link = link(false);
        let first = packets(0, 2000, 833, Ecn::NotEct);
        // The first flood has drained by 2400 ms.
        let begin = 2400 + pause_ms;
        let second = packets(begin, begin + 1000, 833, Ecn::NotEct);
        let drops = drop_times_ms(&drive(&mut link, first.chain(second)));
        let resumed: Vec<_> = drops.into_iter().filter(|at| *at > begin as f64).collect();
        resumed[1] - resumed[0]
    };
    // 16 intervals are 1.6 s.
    assert!(second_gap_ms(100) < 30.0, "{}", second_gap_ms(100));
    assert!((99.0..102.0).contains(&second_gap_ms(3000)), "{}", second_gap_ms(3000));
}

#[test]
fn a_queue_of_one_packet_is_left_alone_however_slow_the_line() {
    // 12 ms for a packet: each of a pair that waits has stood longer than the target.
    let spec = LinkSpec {
        rate_bps: Some(1_000_000),
        aqm: Aqm::CoDel { marks_ect: false },
        ..LinkSpec::default()
    };
    let mut link = Link::new(&spec, 0);
    // Three at the start keep two waiting all the time.
    let start = (0..2).map(|id| (Nanos::ZERO, packet(id, 1486)));
    let steady = (0..500).map(|id| (Nanos::from_millis(12 * id), packet(2 + id, 1486)));
    drive(&mut link, start.chain(steady));
    assert_eq!(link.counters().dropped.total(), 0);
    assert_eq!(link.counters().delivered, 502);
}

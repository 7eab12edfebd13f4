//! The text of a recorded rate: what is read, what is refused, and that a link keeps to it.

use linerate_link::{Link, LinkSpec, Packet, RateTrace};
use linerate_units::Nanos;
use proptest::prelude::*;

fn trace(steps: &[(u64, u64)], period_ms: u64) -> RateTrace {
    let steps: Vec<_> = steps.iter().map(|(ms, rate)| (Nanos::from_millis(*ms), *rate)).collect();
    RateTrace::new(&steps, Nanos::from_millis(period_ms)).expect("valid steps")
}

#[test]
fn seconds_and_rates_are_steps_until_the_end() {
    let text = "# a cell\n\n0 10mbit\n1.5\t2mbit # shade\n  2 0\n10 end\n";
    let expected = trace(&[(0, 10_000_000), (1500, 2_000_000), (2000, 0)], 10_000);
    assert_eq!(RateTrace::parse(text), Ok(expected));
}

#[test]
fn a_line_of_mahimahi_is_a_packet_in_the_millisecond_before_it() {
    // Two packets by 1 ms, one by 2 ms, none by 4 ms, one by 5 ms.
    let expected = trace(&[(0, 24_000_000), (1, 12_000_000), (2, 0), (4, 12_000_000)], 5);
    assert_eq!(RateTrace::parse("0\n1\r\n2\n5\n"), Ok(expected));
    // A first packet after a pause.
    assert_eq!(RateTrace::parse("3\n3"), Ok(trace(&[(0, 0), (2, 24_000_000)], 3)));
}

#[test]
fn what_is_no_recorded_rate_is_refused_with_its_line() {
    let wrong = [
        "",
        "# nothing\n\n",
        "x",
        "1\n-2",
        "1\n1.5",
        "2\n1",
        "1\n2 3mbit",
        "3600001",
        "99999999999999999999",
        "0 1mbit",
        "0 1mbit\n5",
        "0 end",
        "1 1mbit\n2 end",
        "0 1mbit\n0 2mbit\n1 end",
        "0 1mbit\n0 end",
        "0 1mbit\n1 fast\n2 end",
        "0 1mbit\n1 2tbit\n2 end",
        "0 1mbit\n1e3 2mbit\n2 end",
        "0 1mbit\n3601 end",
        "0 1mbit\n1 end\n2 1mbit",
        "0 0\n1 0mbit\n2 end",
    ];
    let report: String = wrong
        .iter()
        .map(|text| format!("{text:?}\n    {}\n", RateTrace::parse(text).expect_err(text)))
        .collect();
    insta::assert_snapshot!(report);
}

#[test]
fn a_trace_has_a_million_lines_at_most_and_a_terabit_a_second() {
    let lines = |count: usize, ms: fn(usize) -> usize| -> String {
        (0..count).map(|i| format!("{}\n", ms(i))).collect()
    };
    assert!(RateTrace::parse(&lines(1_000_000, |i| i / 1000 + 1)).is_ok());
    let error = RateTrace::parse(&lines(1_000_001, |i| i / 1000 + 1)).unwrap_err();
    assert_eq!(error.to_string(), "line 1000001: a trace has 1,000,000 lines at most");
    assert!(RateTrace::parse(&lines(83_333, |_| 1)).is_ok());
    let error = RateTrace::parse(&lines(83_334, |_| 1)).unwrap_err();
    assert_eq!(error.to_string(), "line 83334: more packets in this millisecond than at 1 Tbit/s");
}

/// The packets of 1500 bytes that a saturated link delivers by each of `until` milliseconds.
fn delivered(trace: RateTrace, until: u64) -> Vec<u64> {
    let mut link = Link::with_rate_trace(&LinkSpec::default(), trace, 1);
    let (mut sent, mut arrived, mut counts) = (0, 0, Vec::new());
    for ms in 0..=until {
        while let Some(delivery) = link.poll_deliver(Nanos::from_millis(ms)) {
            arrived += u64::from(delivery.at <= Nanos::from_millis(ms));
        }
        counts.push(arrived);
        while link.in_flight() < 50 {
            let packet = Packet { id: sent, ip_bytes: 1486, ecn: Default::default() };
            link.handle_packet(Nanos::from_millis(ms), packet);
            sent += 1;
        }
    }
    counts
}

proptest! {
    #[test]
    fn a_saturated_link_delivers_the_packets_of_a_mahimahi_trace(
        mut stamps in prop::collection::vec(0u64..40, 1..60),
        last in 40u64..50,
    ) {
        stamps.push(last);
        stamps.sort_unstable();
        let text: String = stamps.iter().map(|ms| format!("{ms}\n")).collect();
        let counts = delivered(RateTrace::parse(&text).unwrap(), 2 * last);
        for ms in 1..=2 * last {
            let turn = |ms: u64| stamps.iter().filter(|stamp| **stamp <= ms).count() as u64;
            let expected = if ms <= last { turn(ms) } else { turn(last) + turn(ms - last) };
            prop_assert_eq!(counts[ms as usize], expected, "by {} ms", ms);
        }
    }

    #[test]
    fn no_text_is_too_strange_for_a_trace(text in "([0-9]{1,4}( \
        |\t)?([0-9.]{0,3}(mbit|end|é)?)?\r?\n?){0,8}") {
        if let Err(error) = RateTrace::parse(&text) {
            prop_assert!((1..=text.lines().count().max(1)).contains(&error.line), "{}", error);
        }
    }
}

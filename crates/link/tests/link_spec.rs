//! The text of a path: what is read, what is refused and what is written back.

use linerate_link::{
    Aqm, Corrupt, CorruptionPlace, Distribution, Framing, Jitter, LinkSpec, Loss, Mtu, PathSpec,
    QueueLimit, Reorder, SpecError,
};
use linerate_units::Nanos;
use proptest::prelude::*;
use proptest::sample::select;

fn path(text: &str) -> PathSpec {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn a_path_is_read_with_half_its_round_trip_each_way() {
    let expected = LinkSpec {
        rate_bps: Some(100_000_000),
        delay: Nanos::from_micros(14_500),
        loss: Some(Loss::Random { percent: 0.1 }),
        mtu: Some(Mtu { bytes: 1500, is_black_hole: false }),
        queue: QueueLimit::Packets(100),
        ..LinkSpec::default()
    };
    assert_eq!(
        path("rate=100mbit,rtt=29ms,loss=0.1%,mtu=1500,queue=100p"),
        PathSpec { up: expected.clone(), down: expected, hops: 0 }
    );
}

#[test]
fn all_keys_are_read() {
    let path = path(
        "rate=6mbit,burst=10KiB,framing=aal5,overhead=8,rtt=40ms,jitter=normal(2ms),reorder=1%:5ms,\
         duplicate=2%,corrupt=3%:host,verified=yes,aqm=codel:ecn,queue=64KiB,loss=ge(1%,25%,90%,0.5%),mtu=1400:blackhole,hops=3",
    );
    let expected = LinkSpec {
        rate_bps: Some(6_000_000),
        trace: None,
        burst_bytes: Some(10_240),
        policer_bps: None,
        delay: Nanos::from_millis(20),
        jitter: Some(Jitter { distribution: Distribution::Normal, size: Nanos::from_millis(2) }),
        reorder: Some(Reorder { percent: 1.0, hold_back: Nanos::from_millis(5) }),
        queue: QueueLimit::Bytes(65_536),
        aqm: Aqm::CoDel { marks_ect: true },
        loss: Some(Loss::GilbertElliott {
            enter_percent: 1.0,
            leave_percent: 25.0,
            bad_loss_percent: 90.0,
            good_loss_percent: 0.5,
        }),
        duplicate_percent: 2.0,
        corrupt: Some(Corrupt { percent: 3.0, place: CorruptionPlace::Host }),
        is_verified: true,
        mtu: Some(Mtu { bytes: 1400, is_black_hole: true }),
        framing: Framing::Aal5,
        overhead_bytes: 8,
    };
    assert_eq!(path.up, expected);
    assert_eq!(path.down, expected);
    assert_eq!(path.hops, 3);
}

#[test]
fn one_direction_outweighs_both_wherever_it_stands() {
    let path = path("up.rate=1mbit,rate=16mbit,up.delay=5ms,down.delay=20ms,down.policer=9mbit");
    assert_eq!(path.up.rate_bps, Some(1_000_000));
    assert_eq!(path.down.rate_bps, Some(16_000_000));
    assert_eq!(path.up.delay, Nanos::from_millis(5));
    assert_eq!(path.down.delay, Nanos::from_millis(20));
    assert_eq!((path.up.policer_bps, path.down.policer_bps), (None, Some(9_000_000)));
}

#[test]
fn the_default_queue_is_a_bandwidth_delay_product_and_at_least_100_packets() {
    assert_eq!(path("rate=1gbit,rtt=100ms").up.queue, QueueLimit::Bytes(12_500_000));
    assert_eq!(path("rate=1mbit,rtt=100ms").up.queue, QueueLimit::Bytes(151_400));
    assert_eq!(path("rate=1mbit,mtu=9000").up.queue, QueueLimit::Bytes(901_400));
    assert_eq!(path("rtt=1s").up.queue, QueueLimit::Packets(100));
}

#[test]
fn a_recorded_rate_is_a_line_whose_queue_is_100_packets_unless_told_otherwise() {
    let path = path("up.trace=lte/up.txt,down.rate=1gbit,rtt=100ms,aqm=codel,overhead=24");
    assert_eq!(path.up.trace.as_deref(), Some("lte/up.txt"));
    assert_eq!((path.up.rate_bps, &path.down.trace), (None, &None));
    assert_eq!(path.up.queue, QueueLimit::Packets(100));
    assert!(!path.up.treats_packets_alike() && !path.up.changes_nothing());
}

#[test]
fn a_packet_is_held_back_by_the_delay_unless_told_otherwise() {
    let hold_back = |text| path(text).up.reorder.map(|reorder| reorder.hold_back);
    assert_eq!(hold_back("reorder=1%,rtt=30ms"), Some(Nanos::from_millis(15)));
    assert_eq!(hold_back("reorder=1%"), Some(Nanos::from_millis(1)));
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let wrong = [
        "rat=100mbit",
        "rate=1mbit,latency=5ms",
        "rate=100mbit,rtt",
        "rate=1mbit,,rtt=1ms",
        "rate=100mbit,",
        "rate=fast",
        "rate = 100 mbit, rtt = 29",
        "rate=0",
        "rate=2tbit",
        "rate=100",
        "rtt=101s",
        "rtt=29ms,delay=3ms",
        "up.rtt=29ms",
        "sideways.rate=1mbit",
        "loss=0.1",
        "loss=101%",
        "loss=NaN%",
        "loss=ge(1%)",
        "loss=ge(1%,0%)",
        "loss=every(0)",
        "rate=1mbit,rate=2mbit",
        "corrupt=1%:air",
        "verified=perhaps",
        "mtu=67",
        "mtu=1500:quiet",
        "rtt=2ms,jitter=2ms",
        "rtt=2ms,jitter=normal(1ms)",
        "queue=100p",
        "rate=1mbit,queue=100",
        "aqm=codel",
        "rate=1mbit,aqm=red",
        "burst=64KiB",
        "policer=1mbit,burst=1000",
        "up.rate=1mbit,overhead=4",
        "rate=1mbit,framing=atm",
        "hops=61",
        "trace=",
        "trace=a(b.txt",
        "rate=1mbit,trace=cell.txt",
        "rate=1mbit,down.trace=cell.txt",
        "reorder=1%:0ms",
    ];
    let report: String = wrong
        .iter()
        .map(|text| {
            let error: SpecError = text.parse::<PathSpec>().expect_err(text);
            format!("{text}\n    {error}\n")
        })
        .collect();
    insta::assert_snapshot!(report);
}

#[test]
fn a_path_is_written_with_what_it_resolved_to() {
    let written: Vec<_> = [
        "",
        "rate=100mbit,rtt=29ms",
        "rtt=3ns",
        "rate=16mbit,up.rate=1mbit,rtt=40ms,hops=2",
        "up.delay=5ms,down.loss=every(9)",
        "aqm=codel,up.aqm=fifo,rate=1.5mbit",
        "trace=cell.txt,rtt=30ms",
        "up.rate=1mbit,down.trace=/a b/c=d.txt,down.queue=64KiB",
    ]
    .iter()
    .map(|text| path(text).to_string())
    .collect();
    insta::assert_snapshot!(written.join("\n"));
}

/// An entry of any key with a value that goes with the others.
fn entry() -> impl Strategy<Value = String> {
    let share = || (0u32..100_001).prop_map(|thousandths| f64::from(thousandths) / 1000.0);
    prop_oneof![
        (1_000u64..1_000_000_000).prop_map(|bps| format!("policer={bps}")),
        share().prop_map(|share| format!("loss={share}%")),
        (share(), 1u32..101, share(), share())
            .prop_map(|(p, r, bad, good)| format!("loss=ge({p}%,{r}%,{bad}%,{good}%)")),
        (1u64..1_000_000).prop_map(|nth| format!("loss=every({nth})")),
        (0u64..3_000_000).prop_map(|ns| format!("jitter={ns}ns")),
        (0u64..1_000).prop_map(|us| format!("jitter=normal({us}us)")),
        share().prop_map(|share| format!("reorder={share}%")),
        (share(), 1u64..1_000_000_000).prop_map(|(share, ns)| format!("reorder={share}%:{ns}ns")),
        share().prop_map(|share| format!("duplicate={share}%")),
        (share(), select(vec!["", ":payload", ":host"]))
            .prop_map(|(share, place)| format!("corrupt={share}%{place}")),
        (68u32..65_536, select(vec!["", ":blackhole"]))
            .prop_map(|(mtu, hole)| format!("mtu={mtu}{hole}")),
        (0u64..1_000_000).prop_map(|packets| format!("queue={packets}p")),
        (100_000u64..1_000_000_000).prop_map(|bytes| format!("queue={bytes}")),
        (100_000u64..1_000_000_000).prop_map(|bytes| format!("burst={bytes}")),
        select(vec![
            "aqm=codel",
            "aqm=codel:ecn",
            "aqm=fifo",
            "framing=aal5",
            "framing=ethernet",
            "verified=yes",
            "verified=no"
        ])
        .prop_map(str::to_owned),
        (0u32..257).prop_map(|bytes| format!("overhead={bytes}")),
    ]
}

/// The text of a path that is valid, each key at most once for a scope.
fn valid_text() -> impl Strategy<Value = String> {
    let delay = prop_oneof![
        (6_000_000u64..1_000_000_000).prop_map(|ns| format!("rtt={ns}ns")),
        (3_000_000u64..1_000_000_000, 3_000_000u64..1_000_000_000)
            .prop_map(|(up, down)| format!("up.delay={up}ns,delay={down}ns")),
    ];
    let scoped = (select(vec!["", "up.", "down."]), entry());
    let rate = prop_oneof![
        (1_000u64..1_000_000_000_000).prop_map(|bps| format!("rate={bps}")),
        "trace=[a-zµ./][a-z =./-]{0,20}[a-z]",
    ];
    (rate, delay, 0u32..61, prop::collection::vec(scoped, 0..20)).prop_map(
        |(rate, delay, hops, entries)| {
            let mut text = format!("{rate},{delay},hops={hops}");
            let mut given = Vec::new();
            for (scope, entry) in entries {
                let key = format!(
                    "{scope}{}",
                    entry.split('=').next().expect("a split has a first part")
                );
                if !given.contains(&key) {
                    text += &format!(",{scope}{entry}");
                    given.push(key);
                }
            }
            text
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_reads_back_as_the_same_path(text in valid_text()) {
        let path: PathSpec = text.parse().map_err(|error| TestCaseError::fail(format!("{text}: \
            {error}")))?;
        let written = path.to_string();
        prop_assert_eq!(written.parse::<PathSpec>(), Ok(path), "{}", written);
    }

    #[test]
    fn no_text_is_too_strange(
        text in "(up\\.|down\\.)?(rate|rtt|loss|queue|jitter|mtu)?[=,]?[0-9a-zé(),.:%= ]{0,30}",
    ) {
        if let Err(error) = text.parse::<PathSpec>() {
            prop_assert!((1..=text.chars().count() + 1).contains(&error.column), "{}", error);
        }
    }
}

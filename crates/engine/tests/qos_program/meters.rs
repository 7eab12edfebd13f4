//! Meters, to the nanosecond and to the byte.

use linerate_core::units::{BitRate, ByteCount, Dscp};
use linerate_qos::packet::{LinkType, Metadata};
use linerate_qos::policy::{Fragments, Meter, MeterKind};
use linerate_qos::rules::{Action, Rule, RuleSet, Slot};

use super::common::Dice;
use super::{Trial, allowed, in_test_run};

fn rules(meter: Meter) -> RuleSet {
    let rule = Rule { filter: 0, action: 0, conditions: Vec::new() };
    RuleSet {
        filters: vec![("all".to_owned(), Slot(0))],
        actions: vec![Action {
            policy: "metered".to_owned(),
            slot: Slot(1),
            dscp: None,
            vlan_priority: None,
            class: None,
            meter: Some(meter),
            drop: false,
        }],
        v4: vec![rule],
        v6: Vec::new(),
        other: Vec::new(),
        fragments: Fragments::Plain,
        default_class: None,
    }
}

fn kinds(dice: &mut Dice) -> [MeterKind; 2] {
    let mut rate = || BitRate(dice.pick(&[1, 999, 8_000_000_000, 10_000_000_000_000]));
    let (committed, peak) = (rate(), rate());
    let mut burst = || ByteCount(dice.pick(&[0, 1, 1500, 60_000, 1 << 30]));
    let (committed_burst, second) = (burst(), burst());
    [
        MeterKind::SingleRate { committed, committed_burst, excess_burst: second },
        MeterKind::TwoRate { committed, committed_burst, peak, peak_burst: second },
    ]
}

#[test]
fn meters_colour_like_the_interpreter_over_all_times_and_sizes() {
    if !allowed() {
        return;
    }
    let mut dice = Dice::new(9);
    let code = |number| Dscp::new(number);
    for _ in 0..30 {
        for kind in kinds(&mut dice) {
            let meter = Meter {
                kind,
                colour_aware: dice.one_in(2),
                colours: [code(10), code(12), code(14)],
                drop_red: dice.one_in(2),
            };
            let mut trial = Trial::new(rules(meter), 2, LinkType::Ethernet);
            for _ in 0..100 {
                let mut frame = vec![0xff; 12];
                frame.extend([0x08, 0x00, 0x45, dice.pick(&[0, 40, 48, 56])]);
                frame.resize(64, 0);
                let metadata = in_test_run(Metadata {
                    protocol: 0x0800,
                    wire_length: dice.pick(&[64, 65, 1514, 60_000]),
                    ..Metadata::default()
                });
                trial.now_ns += dice.pick(&[0, 1, 1000, 12_000_000, 1 << 40]);
                assert!(trial.check(&frame, &metadata, &|| format!("{meter:?}")));
            }
            trial.check_counters();
        }
    }
}

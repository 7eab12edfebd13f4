use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::policy::Place;

fn policy(
    name: &str,
    reserve: Option<Share>,
    limit: Option<Share>,
    priority: Option<u8>,
) -> Policy {
    Policy {
        name: name.to_owned(),
        place: Place { line: 7, column: 1 },
        dscp: None,
        vlan_priority: None,
        parent: None,
        reserve,
        limit,
        priority,
        meter: None,
        drop: false,
    }
}

fn file(policies: Vec<Policy>, rate: Option<BitRate>) -> PolicyFile {
    let adapter = Adapter {
        name: "eth0".to_owned(),
        place: Place::default(),
        rate,
        policies: (0..policies.len()).collect(),
        ingress: false,
    };
    PolicyFile { policies, adapters: vec![adapter], ..PolicyFile::default() }
}

fn plan(file: &PolicyFile, speed: Option<BitRate>) -> Result<Option<ClassPlan>, ClassError> {
    let slots: Vec<_> = (0..file.policies.len()).map(|slot| Slot(slot as u32 + 40)).collect();
    ClassPlan::new(file, &file.adapters[0], &slots, speed)
}

const MBIT: u64 = 1_000_000;

fn mbit(rate: u64) -> Option<Share> {
    Some(Share::Rate(BitRate(rate * MBIT)))
}

#[test]
fn what_is_not_reserved_is_the_default_class() {
    let voice = policy("voice", mbit(30), mbit(60), Some(0));
    let web = policy("web", Some(Share::Percent(50.0)), None, None);
    let marked = policy("marked", None, None, None);
    let file = file(vec![voice, marked, web], Some(BitRate(100 * MBIT)));
    let plan = plan(&file, None).unwrap().unwrap();
    let row = |class: &Class| (class.rate.0 / MBIT, class.ceil.0 / MBIT, class.priority);
    let rows: Vec<_> = plan.classes.iter().map(row).collect();
    assert_eq!(rows, [(100, 100, 0), (30, 60, 0), (50, 100, 7), (20, 100, 7)]);
    assert_eq!(plan.of_policy, [Some(0x4c51_0038), None, Some(0x4c51_003a)]);
    assert_eq!(plan.default, plan.classes[3].id);
}

#[test]
fn who_reserves_nothing_has_a_part_of_what_is_left() {
    let voice = policy("voice", mbit(40), None, None);
    let capped = policy("capped", None, mbit(10), None);
    let first = policy("first", None, None, Some(0));
    let file = file(vec![voice, capped, first], Some(BitRate(100 * MBIT)));
    let plan = plan(&file, None).unwrap().unwrap();
    let rates: Vec<_> = plan.classes.iter().map(|class| class.rate.0).collect();
    let [_, voice, capped, first, default] = rates[..] else { panic!("{rates:?}") };
    assert_eq!((voice, capped, first), (40 * MBIT, 10 * MBIT, 20 * MBIT));
    assert_eq!(default, 30 * MBIT);
}

/// `office` with 40 of 100 Mbit/s, and three inside.
fn office(inside: [Option<Share>; 3]) -> PolicyFile {
    let mut policies = vec![policy("voice", inside[0], None, Some(0))];
    policies.push(policy("office", mbit(40), mbit(60), None));
    policies.push(policy("web", inside[1], None, None));
    policies.push(policy("mail", inside[2], Some(Share::Percent(50.0)), None));
    for inside in [0, 2, 3] {
        policies[inside].parent = Some(1);
    }
    file(policies, Some(BitRate(100 * MBIT)))
}

#[test]
fn classes_inside_one_share_what_it_has() {
    let half = Some(Share::Percent(50.0));
    let plan = plan(&office([mbit(4), half, None]), None).unwrap().unwrap();
    let row = |class: &Class| (class.rate.0 / MBIT, class.ceil.0 / MBIT);
    let rows: Vec<_> = plan.classes.iter().map(row).collect();
    // The link, the office, voice, web, mail with what they leave, all others.
    let should = [(100, 100), (40, 60), (4, 60), (20, 60), (16, 30), (60, 100)];
    assert_eq!(rows, should);
    let office = plan.of_policy[1];
    let parents: Vec<_> = plan.classes.iter().map(|class| class.parent).collect();
    let root = Some(plan.classes[0].id);
    assert_eq!(parents, [None, root, office, office, office, root]);
    let mut renumbered = plan.clone();
    renumbered.renumber(1, 0x4c51_8000);
    assert_eq!(renumbered.classes[3].parent, Some(0x4c51_8000));
}

#[test]
fn what_does_not_fit_into_a_class_is_refused() {
    let said = |file: &PolicyFile| plan(file, None).unwrap_err().to_string();
    assert_eq!(
        said(&office([mbit(30), Some(Share::Percent(50.0)), None])),
        "line 7: policy `office` is guaranteed 40 Mbit/s on adapter `eth0`, but those inside it \
         need \
         50.0 Mbit/s"
    );
    let mut file = office([None, None, None]);
    file.policies[2].limit = mbit(61);
    assert_eq!(
        said(&file),
        "line 7: policy `web` limits to 61 Mbit/s on adapter `eth0`, but it is inside `office`, \
         which never exceeds 60 Mbit/s"
    );
}

#[test]
fn without_a_class_no_rate_is_asked_for() {
    let file = file(vec![policy("marked", None, None, None)], None);
    assert_eq!(plan(&file, None), Ok(None));
}

#[test]
fn the_drivers_speed_is_taken_where_the_file_has_none() {
    let file = file(vec![policy("a", mbit(1), None, None)], None);
    assert_eq!(plan(&file, Some(BitRate(10 * MBIT))).unwrap().unwrap().rate, BitRate(10 * MBIT));
    let error = plan(&file, None).unwrap_err();
    assert!(matches!(error, ClassError::NoRate { .. }), "{error}");
}

#[test]
fn the_whole_link_cannot_be_reserved() {
    let file =
        file(vec![policy("a", Some(Share::Percent(100.0)), None, None)], Some(BitRate(10 * MBIT)));
    assert_eq!(
        plan(&file, None).unwrap_err().to_string(),
        "adapter `eth0` carries 10 Mbit/s, but its policies reserve 10 Mbit/s, and 80 kbit/s must \
         be left for packets of no policy"
    );
}

#[test]
fn a_limit_in_percent_can_be_below_a_reservation() {
    let file = file(
        vec![policy("a", mbit(5), Some(Share::Percent(10.0)), None)],
        Some(BitRate(10 * MBIT)),
    );
    assert_eq!(
        plan(&file, None).unwrap_err().to_string(),
        "line 7: policy `a` limits to 1 Mbit/s what it reserves 5 Mbit/s for, on adapter `eth0` \
         with 10 Mbit/s"
    );
}

#[test]
fn a_share_of_a_slow_link_can_be_too_small() {
    let file =
        file(vec![policy("a", Some(Share::Percent(1.0)), None, None)], Some(BitRate(500_000)));
    assert_eq!(
        plan(&file, None).unwrap_err().to_string(),
        "line 7: policy `a`: 5 kbit/s on adapter `eth0` is below 8 kbit/s, the least that a class \
         can keep"
    );
}

#[test]
fn an_offloaded_frame_takes_a_millisecond_at_most() {
    let bytes = |rate, mtu| largest_offload(BitRate(rate * MBIT), mtu);
    assert_eq!(bytes(100, 1500), Some(12_500));
    assert_eq!(bytes(10, 1500), Some(1842));
    assert_eq!(bytes(10, 9000), Some(9342));
    assert_eq!(bytes(1000, 1500), None);
    assert_eq!(bytes(524, 1500), Some(65_500));
    assert_eq!(bytes(525, 1500), None);
}

fn share() -> impl Strategy<Value = Option<Share>> {
    prop_oneof![
        Just(None),
        (1_u64..2_000_000_000).prop_map(|rate| Some(Share::Rate(BitRate(rate)))),
        (0.001_f64..=100.0).prop_map(|percent| Some(Share::Percent(percent))),
    ]
}

fn policies() -> impl Strategy<Value = Vec<Policy>> {
    let one = (share(), share(), prop::option::of(0_u8..8));
    prop::collection::vec(one, 1..12).prop_map(|shares| {
        let numbered = shares.into_iter().enumerate();
        numbered
            .map(|(index, (reserve, limit, priority))| {
                policy(&format!("p{index}"), reserve, limit, priority)
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn classes_inside_one_have_no_more_than_it(
        policies in policies(), parents in prop::collection::vec(0_usize..4, 12),
            rate in 1_000_000_u64..20_000_000_000
    ) {
        let mut file = file(policies, Some(BitRate(rate)));
        for (at, back) in parents.iter().enumerate().take(file.policies.len()).skip(1) {
            // Some are at the root; nobody is inside a later one, so that there is no circle.
            file.policies[at].parent = at.checked_sub(*back).filter(|parent| *parent < at);
        }
        let Ok(Some(plan)) = plan(&file, None) else { return Ok(()) };
        for above in &plan.classes {
            let inside = plan.classes.iter().filter(|class| class.parent == Some(above.id));
            prop_assert!(inside.clone().map(|class| class.rate.0).sum::<u64>() <= above.rate.0);
            for class in inside {
                prop_assert!(class.ceil <= above.ceil && class.rate <= class.ceil, "{:?}", plan);
            }
        }
        for (policy, id) in file.policies.iter().zip(&plan.of_policy) {
            let above =
                policy.parent.map_or(Some(plan.classes[0].id), |parent| plan.of_policy[parent]);
            let place = plan.classes.iter().position(|class| Some(class.id) == *id);
            let above_place = plan.classes.iter().position(|class| Some(class.id) == above);
            prop_assert!(place.is_none() || place > above_place, "{:?}", plan);
        }
    }

    #[test]
    fn classes_share_the_link_and_no_more(
        policies in policies(), rate in 10_000_u64..20_000_000_000,
    ) {
        let rate = BitRate(rate);
        let file = file(policies, Some(rate));
        let sum: u64 = file.policies.iter().filter_map(|policy| Some(policy.reserve?.of(rate).0))
            .sum();
        match plan(&file, None) {
            Ok(Some(plan)) => {
                prop_assert!(sum <= rate.0);
                let (root, leaves) = plan.classes.split_first().unwrap();
                prop_assert_eq!((root.parent, root.rate, root.ceil), (None, rate, rate));
                prop_assert_eq!(leaves.iter().map(|class| class.rate.0).sum::<u64>(), rate.0);
                let ids: BTreeSet<_> = plan.classes.iter().map(|class| class.id).collect();
                prop_assert_eq!(ids.len(), plan.classes.len());
                for class in leaves {
                    prop_assert_eq!(class.parent, Some(root.id));
                    prop_assert!(class.ceil >= class.rate && class.rate >= MIN_RATE
                        && class.ceil <= rate);
                    prop_assert!(class.priority < 8);
                }
                let default = leaves.last().unwrap();
                prop_assert!(default.id == plan.default && default.rate >= least_default(rate));
                for (policy, id) in file.policies.iter().zip(&plan.of_policy) {
                    prop_assert_eq!(id.is_some(), policy.has_class());
                    let class = leaves.iter().find(|class| Some(class.id) == *id);
                    match (class, policy.reserve) {
                        (Some(class), Some(share)) => prop_assert_eq!(class.rate, share.of(rate)),
                        // Nobody starves beside the default class.
                        (Some(class), None) => {
                            let without = leaves.iter().filter(|class| !class.reserves);
                            let (left, count) = without
                                .fold((0, 0), |(sum, count), class| (sum + class.rate.0, count + 1));
                            let even = (left / count).min(class.ceil.0);
                            let floor = least_default(rate).0;
                            prop_assert!(class.rate.0 + floor >= even, "{:?}", plan);
                        }
                        (None, _) => {}
                    }
                    if let (Some(class), Some(priority)) = (class, policy.priority) {
                        prop_assert_eq!(class.priority, priority);
                    }
                }
            }
            Ok(None) => prop_assert!(!file.policies.iter().any(Policy::has_class)),
            Err(_) => {}
        }
    }

    #[test]
    fn more_than_the_link_is_refused(
        rate in 100_000_u64..1_000_000_000, percent in 50.0_f64..=100.0,
    ) {
        let share = Some(Share::Percent(percent));
        let policies = vec![policy("a", share, None, None), policy("b", share, None, None)];
        let error = plan(&file(policies, Some(BitRate(rate))), None);
        let is_refused = matches!(error, Err(ClassError::Overbooked { .. }));
        prop_assert!(is_refused, "{:?}", error);
    }

    #[test]
    fn a_policy_keeps_its_class_whatever_comes_before_it(others in policies()) {
        let limit = Some(Share::Percent(50.0));
        let alone = file(vec![policy("a", None, limit, None)], Some(BitRate(MBIT)));
        let class = ClassPlan::new(&alone, &alone.adapters[0], &[Slot(3)], None).unwrap()
            .unwrap().of_policy[0];
        let mut all = others;
        all.iter_mut().for_each(|policy| (policy.reserve, policy.limit) = (None, limit));
        let mut slots: Vec<_> = (10..).map(Slot).take(all.len()).collect();
        all.push(policy("a", None, limit, None));
        slots.push(Slot(3));
        let file = file(all, Some(BitRate(10 * MBIT)));
        let plan = ClassPlan::new(&file, &file.adapters[0], &slots, None).unwrap().unwrap();
        prop_assert_eq!(plan.of_policy.last().copied().flatten(), class);
    }
}

use std::collections::BTreeMap;

use linerate_core::plan::Traffic;
use proptest::prelude::*;

use super::draw::CLEAR;
use super::*;

/// Seeds of the laws; those of a real test are never among them.
const SEEDS: [u64; 3] = [1, 77, 4242];
const COUNT: u32 = 600;

fn drawn(seed: u64, count: u32) -> Vec<Scenario> {
    draw(seed, count, &families_named(SINGLE_LIMIT).unwrap())
}

fn limit(scenario: &Scenario) -> f64 {
    scenario.limit_bps.unwrap()
}

fn all() -> impl Iterator<Item = Scenario> {
    SEEDS.into_iter().flat_map(|seed| drawn(seed, COUNT))
}

#[test]
fn a_seed_and_a_number_make_the_same_scenario_whatever_the_count() {
    let many = drawn(9, 60);
    assert_eq!(many, drawn(9, 60));
    for few in drawn(9, 30) {
        assert!(many.contains(&few));
    }
    assert_ne!(many[0].describe, drawn(10, 60)[0].describe);
}

#[test]
fn the_drawn_cause_is_the_lowest_limit_and_clearly_or_at_a_border() {
    for scenario in all() {
        let near = scenario.rivals.iter().filter(|(_, bps)| *bps < CLEAR * limit(&scenario));
        for (rival, bps) in near {
            let ratio = bps / limit(&scenario);
            assert!(
                scenario.is_border && (1.0..=BORDER).contains(&ratio),
                "{scenario:?} {rival:?}"
            );
        }
    }
}

#[test]
fn causes_come_equally_often_and_a_tenth_are_borders() {
    let mut counts: BTreeMap<Cause, u32> = BTreeMap::new();
    let scenarios = drawn(5, COUNT);
    for scenario in &scenarios {
        *counts.entry(scenario.cause).or_default() += 1;
    }
    assert!(counts.len() == CAUSES.len() && counts.values().all(|n| *n == 50));
    let borders = scenarios.iter().filter(|s| s.is_border).count();
    assert_eq!(borders, 60);
    // Shuffled: a stop halfway leaves no cause out.
    assert!(scenarios.windows(2).any(|two| two[0].number > two[1].number));
}

#[test]
fn send_buffers_are_limits_only_without_nagles_algorithm() {
    for scenario in all().filter(|s| s.cause == Cause::SendBuffer) {
        assert!(scenario.test.options.nodelay, "{}", scenario.describe);
    }
}

#[test]
fn every_test_is_one_that_an_endpoint_takes() {
    for scenario in all() {
        scenario.test.check().unwrap();
    }
}

#[test]
fn emulated_paths_carry_at_most_100_000_packets_a_second() {
    for scenario in all().filter(|scenario| scenario.path.is_some()) {
        let Traffic::Stream(stream) = &scenario.test.traffic else {
            panic!("all are streams");
        };
        let segment = match stream.rate_bps {
            Some(rate) => {
                assert!(rate.0 as f64 / 8.0 / stream.message_bytes as f64 <= 100_000.0);
                stream.message_bytes as f64
            }
            None => f64::from(scenario.test.options.mss_bytes.unwrap_or(1500).min(9000) - 12),
        };
        let packets = limit(&scenario) / 8.0 / segment;
        assert!(packets <= 110_000.0, "{packets} {}", scenario.describe);
    }
}

#[test]
fn runs_are_short() {
    let mut total = 0.0;
    let mut n = 0.0;
    for scenario in all() {
        let seconds = scenario.seconds();
        assert!(seconds <= 23.0, "{seconds} {}", scenario.describe);
        total += seconds;
        n += 1.0;
    }
    assert!(total / n <= 6.5, "{} s in the mean", total / n);
}

#[test]
fn specs_read_back_as_they_were_drawn() {
    let outside = draw(7, 3000, &families_named("wild").unwrap());
    for scenario in all().chain(outside) {
        if let Some(path) = &scenario.path {
            assert_eq!(path.to_string().parse().as_ref(), Ok(path), "{path}");
        }
    }
}

#[test]
fn topologies_have_the_settings_and_routes_of_the_hosts() {
    for scenario in all() {
        let topology = scenario.topology();
        for (name, setup) in [("client", &scenario.client), ("server", &scenario.server)] {
            let node = topology.node(name).unwrap();
            assert!(setup.sysctls.iter().all(|(k, v)| node.sysctls.get(k) == Some(v)));
            let advertised = node.routes.iter().any(|route| route.advmss.is_some());
            assert_eq!(advertised, setup.advertised_mss.is_some());
        }
        assert_eq!(scenario.path.is_none(), topology.links.iter().all(|l| l.is_plain()));
    }
}

#[test]
fn ranges_are_wide() {
    for cause in [Cause::PathRate, Cause::Pacing] {
        let limits: Vec<f64> = all().filter(|s| s.cause == cause).map(|s| limit(&s)).collect();
        let least = limits.iter().copied().fold(f64::INFINITY, f64::min);
        let most = limits.iter().copied().fold(0.0, f64::max);
        assert!(least < 2e6 && most > 2e8, "{cause:?}: {least} to {most}");
    }
    let transfers = all().filter(|s| matches!(s.test.extent, Extent::Bytes(_)));
    assert!(transfers.count() >= 100);
}

fn outside() -> Vec<Scenario> {
    draw(5, 40 * families().count() as u32, &families_named("wild").unwrap())
}

#[test]
fn every_family_is_drawn_and_its_tests_are_ones_that_an_endpoint_takes() {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for scenario in outside() {
        scenario.test.check().unwrap();
        assert!(scenario.seconds() <= 20.0, "{}", scenario.describe);
        *counts.entry(scenario.family.clone()).or_default() += 1;
    }
    // All but single limits and other programs.
    assert_eq!(counts.len(), families().count() - 2);
    assert!(counts.values().all(|count| *count >= 40));
}

#[test]
fn a_scenario_that_was_kept_is_read_as_it_was_drawn() {
    for scenario in draw(8, 120, &families_named("all").unwrap()) {
        let text = serde_json::to_string(&scenario).unwrap();
        let read: Scenario = serde_json::from_str(&text).unwrap();
        assert_eq!(read, scenario, "{text}");
    }
}

#[test]
fn a_third_of_a_mixed_run_is_by_the_kernels_own_means() {
    let all = draw(8, 600, &families_named("all").unwrap());
    let kernels = all.iter().filter(|s| s.is_kernels_own()).count();
    assert!(3 * kernels >= all.len(), "{kernels} of {}", all.len());
}

#[test]
fn a_family_draws_the_same_whatever_is_beside_it() {
    let alone = draw(6, 8, &families_named("tbf").unwrap());
    let both = [families_named("htb").unwrap(), families_named("tbf").unwrap()].concat();
    let beside = draw(6, 16, &both);
    let words = |scenarios: &[Scenario]| {
        let own = scenarios.iter().filter(|s| s.family == "tbf");
        let mut words: Vec<String> = own.map(|s| s.describe.clone()).collect();
        words.sort();
        words
    };
    assert_eq!(words(&alone), words(&beside));
    assert!(families_named("no such").is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_seed_gives_scenarios(seed: u64) {
        prop_assert_eq!(drawn(seed, 36).len(), 36);
    }
}

//! Laws of the schedule, in a simulated mesh.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "../examples/simulate/world.rs"]
mod world;

use linerate_mesh::Mesh;
use proptest::prelude::*;
use world::{Simulated, Simulation, simulate};

fn mesh(sites: usize, group: usize, tests: &str) -> Mesh {
    let site = |number: usize| {
        let group = number.checked_div(group);
        let group = group.map(|group| format!("groups = [\"up{group}\"]\n"));
        let group = group.unwrap_or_default();
        format!("[[site]]\nname = \"s{number}\"\nhost = \"192.0.2.1\"\n{group}")
    };
    let sites: String = (0..sites).map(site).collect();
    Mesh::from_toml(&format!("{sites}{tests}"), 7).unwrap()
}

const BULK: &str =
    "[[test]]\nname = \"bulk\"\nworkload = { command = \"stream\", time = \"10s\" }\n";
const DELAY: &str = "[[test]]\nname = \"delay\"\nworkload = { command = \"rr\", time = \"1s\" }\n";
const HOW: Simulation =
    Simulation { seed: 7, slowest: 1.3, away: 0.0, fails: 0.0, seconds: 30 * 86_400 };

fn simulated(sites: usize, group: usize, how: Simulation) -> Simulated {
    let (mut results, _) = simulate(&mesh(sites, group, BULK), how);
    let result = results.remove(0);
    assert_eq!((result.clashes, result.forgotten), (0, 0), "{result:?}");
    result
}

#[test]
fn all_pairs_are_measured_with_few_slots_lost() {
    for (sites, group) in [(3, 0), (10, 0), (50, 0), (300, 0), (50, 5)] {
        let result = simulated(sites, group, HOW);
        assert_eq!((result.measured, result.missed), (result.pairs, 0), "{sites}: {result:?}");
        // Nobody knows beforehand which test takes how long: a slot is as long as the longest.
        assert!(result.slots <= 1.05 * result.bound_slots as f64, "{sites}: {result:?}");
        let (fewest, most) = result.runs_of_site;
        assert!(most <= fewest + 2, "{sites}: {result:?}");
        assert!(result.messages < 3.5, "{result:?}");
    }
}

#[test]
fn sites_that_come_and_go_delay_no_other_site() {
    for (sites, group) in [(50, 0), (50, 5), (300, 0)] {
        let result = simulated(sites, group, Simulation { away: 0.01, ..HOW });
        assert_eq!(result.measured, result.pairs, "{result:?}");
        assert!(result.missed * 20 <= result.done, "{sites}: {result:?}");
        // Who was never away has used its slots, whatever it waits for at the ends of cycles.
        let used = result.runs_of_site.1 * result.bound_slots / (sites as u64 - 1);
        assert!(result.slots <= 1.1 * used as f64 + 2.0, "{sites}: {result:?}");
    }
}

#[test]
fn priority_divides_the_time_between_two_tests() {
    let two = format!("{BULK}priority = 4\n{}", BULK.replace("bulk", "more"));
    let how = Simulation { seconds: 4000, ..HOW };
    let (results, _) = simulate(&mesh(20, 0, &two), how);
    let done: Vec<u64> = results.iter().map(|it| it.done).collect();
    assert!(done[0] > 2 * done[1] && done[1] >= 190, "{done:?}");
    assert!(results.iter().all(|it| it.clashes == 0 && it.forgotten == 0));
}

#[test]
fn latency_tests_run_beside_bandwidth_tests() {
    let how = Simulation { seconds: 4000, ..HOW };
    let (results, _) = simulate(&mesh(20, 4, &format!("{BULK}{DELAY}")), how);
    assert_eq!(results[1].measured, 190);
    assert!(results[1].took_s.unwrap() < 60.0, "{results:?}");
    assert!(results.iter().all(|it| it.clashes == 0 && it.forgotten == 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn bandwidth_tests_never_clash_and_every_pair_is_measured_or_missed(
        sites in 2_usize..24,
        group in 0_usize..6,
        away in 0.0..0.3_f64,
        fails in 0.0..0.3_f64,
        seed in any::<u64>(),
        both in any::<bool>(),
    ) {
        let tests = if both { format!("{BULK}{DELAY}") } else { BULK.to_owned() };
        let how = Simulation { seed, away, fails, seconds: 6 * 3600, ..HOW };
        let (results, _) = simulate(&mesh(sites, group, &tests), how);
        for result in results {
            prop_assert_eq!((result.clashes, result.forgotten), (0, 0), "{:?}", result);
            prop_assert!(result.runs_of_site.0 > 0, "nobody starves: {:?}", result);
        }
    }
}

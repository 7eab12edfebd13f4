use proptest::prelude::*;

use super::*;

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
const BEGIN: Nanos = Nanos::from_millis(1_800_000_000_000);

#[test]
fn a_pair_costs_less_than_a_byte() {
    let schedule = Schedule::new(&mesh(3000, 0, BULK), BEGIN);
    let pairs = 3000 * 2999 / 2;
    assert!(schedule.pair_bytes() < pairs, "{}", schedule.pair_bytes());
}

/// All sites are there, and the first assignments given.
fn begun(mesh: &Mesh) -> Schedule {
    begun_as(mesh, |_| ())
}

fn begun_as(mesh: &Mesh, prepare: impl FnOnce(&mut Schedule)) -> Schedule {
    let mut schedule = Schedule::new(mesh, BEGIN);
    prepare(&mut schedule);
    for site in 0..mesh.sites.len() {
        schedule.handle_input(Nanos::ZERO, Input::Joined { site, reachable: true });
    }
    schedule.handle_timeout(BEGIN);
    schedule
}

fn later(seconds: u64) -> Nanos {
    BEGIN + Nanos::from_millis(seconds * 1000)
}

#[test]
fn a_silent_run_ends_after_its_deadline_and_is_tried_again() {
    let mut schedule = begun(&mesh(2, 0, BULK));
    let first = schedule.poll_transmit().unwrap();
    assert_eq!((first.attempt, schedule.poll_transmit()), (1, None));
    schedule.handle_timeout(first.deadline);
    assert_eq!(schedule.poll_transmit(), None, "clocks differ");
    schedule.handle_timeout(first.deadline + GRACE);
    assert_eq!(schedule.poll_transmit(), None, "a pause before it is tried again");
    schedule.handle_timeout(first.deadline + GRACE + RETRY_AFTER);
    let second = schedule.poll_transmit().unwrap();
    assert_eq!(second.attempt, 2);
    // What comes late of the first one changes nothing.
    let late = Input::Finished { task: first.id, bytes: 1 };
    schedule.handle_input(second.assigned_at, late);
    assert_eq!(schedule.poll_transmit(), None);
    assert_eq!(schedule.progress()[0].running, 1);
}

#[test]
fn a_refused_pair_is_missed_and_tried_again_in_the_next_cycle() {
    let mut schedule = begun(&mesh(3, 0, &BULK.replace("[[test]]", "[[test]]\nevery = \"1h\"")));
    let first = schedule.poll_transmit().unwrap();
    let why = Failure::Refused;
    schedule.handle_input(later(1), Input::Failed { task: first.id, why });
    let missed = schedule.poll_event().unwrap();
    assert_eq!((missed.why, missed.cycle), (MissReason::Refused, first.cycle));
    let mut pairs = Vec::new();
    let mut now = later(1);
    while let Some(next) = schedule.poll_transmit() {
        pairs.push((next.from.min(next.to), next.from.max(next.to)));
        now = now + Nanos::from_millis(10_000);
        schedule.handle_input(now, Input::Finished { task: next.id, bytes: 1 });
    }
    assert_eq!(pairs.len(), 2);
    assert!(!pairs.contains(&missed.pair));
    let next_hour = Nanos((BEGIN.0 / HOUR.0 + 1) * HOUR.0);
    while let Some(at) = schedule.poll_timeout().filter(|at| *at < next_hour) {
        schedule.handle_timeout(at);
        assert_eq!(schedule.poll_transmit(), None);
    }
    assert_eq!(schedule.poll_timeout(), Some(next_hour));
}

#[test]
fn a_site_that_cannot_be_reached_connects_itself() {
    let mut schedule = Schedule::new(&mesh(2, 0, BULK), BEGIN);
    for (site, reachable) in [(0, true), (1, false)] {
        schedule.handle_input(Nanos::ZERO, Input::Joined { site, reachable });
    }
    let mut turned = Vec::new();
    let mut now = BEGIN;
    for _ in 0..4 {
        schedule.handle_timeout(now);
        let next = schedule.poll_transmit().unwrap();
        assert_eq!(next.turned, next.to == 1);
        turned.push(next.turned);
        now = now + Nanos::from_millis(12_000);
        schedule.handle_input(now, Input::Finished { task: next.id, bytes: 1 });
    }
    turned.sort_unstable();
    assert_eq!(turned, [false, false, true, true], "each direction in turn");
}

#[test]
fn a_saved_result_of_this_cycle_is_not_measured_again() {
    let tests = BULK.replace("[[test]]", "[[test]]\nevery = \"1h\"");
    let mesh = mesh(3, 0, &tests);
    let mut schedule = Schedule::new(&mesh, BEGIN);
    schedule.remember(0, (0, 1), BEGIN, (1, 1));
    schedule.remember(0, (2, 1), BEGIN - HOUR, (1, 1));
    for site in 0..3 {
        schedule.handle_input(BEGIN, Input::Joined { site, reachable: true });
    }
    schedule.handle_timeout(BEGIN);
    let first = schedule.poll_transmit().unwrap();
    assert_ne!((first.from.min(first.to), first.from.max(first.to)), (0, 1));
    schedule.handle_input(later(12), Input::Finished { task: first.id, bytes: 1 });
    let second = schedule.poll_transmit().unwrap();
    schedule.handle_input(later(24), Input::Finished { task: second.id, bytes: 1 });
    assert_eq!(schedule.poll_transmit(), None);
}

#[test]
fn in_a_hurry_each_pair_is_tested_both_ways_and_then_nothing_more() {
    let tests = BULK.replace("[[test]]", "[[test]]\nevery = \"1h\"");
    let mut schedule = begun_as(&mesh(3, 0, &tests), Schedule::hurry);
    let (mut now, mut ways) = (BEGIN, std::collections::BTreeSet::new());
    while let Some(next) = schedule.poll_transmit() {
        assert!(ways.insert((next.from, next.to)), "{next:?} again");
        now = now + Nanos::from_millis(10_000);
        if ways.len() == 6 {
            schedule.handle_input(now, Input::Enough { test: 0 });
        }
        schedule.handle_input(now, Input::Finished { task: next.id, bytes: 1 });
    }
    assert_eq!(ways.len(), 6);
}

#[test]
fn in_a_hurry_no_cycle_begins_before_the_results_of_the_last_one() {
    let ping = "[[test]]\nname = \"ping\"\nworkload = { command = \"rr\", time = \"1s\" }\n";
    let mut schedule = begun_as(&mesh(4, 0, ping), Schedule::hurry);
    let mut open = Vec::from_iter(std::iter::from_fn(|| schedule.poll_transmit()));
    let first = open[0].cycle;
    for second in 1..=10 {
        while let Some(next) = open.pop() {
            let is_same = open.iter().all(|other| other.cycle == next.cycle);
            assert!(is_same, "cycle {first}: {next:?}, {open:?}");
            schedule.handle_input(later(second), Input::Finished { task: next.id, bytes: 1 });
            open.extend(std::iter::from_fn(|| schedule.poll_transmit()));
            if next.cycle > first {
                return;
            }
        }
        schedule.handle_timeout(later(second));
        open.extend(std::iter::from_fn(|| schedule.poll_transmit()));
    }
    panic!("no second cycle: {:?}", schedule.progress());
}

#[test]
fn runs_of_a_proof_follow_each_other_alone_and_take_no_pairs_turn() {
    let mesh = mesh(5, 0, &BULK.replace("[[test]]", "[[test]]\nevery = \"1h\""));
    let mut schedule = begun(&mesh);
    let (mut now, mut open, mut pairs, mut proofs) = (BEGIN, Vec::new(), Vec::new(), Vec::new());
    let wanted = Input::Prove { test: 0, from: 3, to: 1 };
    schedule.handle_input(now, wanted);
    for number in 0.. {
        while let Some(next) = schedule.poll_transmit() {
            let ends = [next.from.min(next.to), next.from.max(next.to)];
            let is_alone =
                |other: &Assignment| ![other.from, other.to].iter().any(|it| ends.contains(it));
            assert!(open.iter().all(is_alone), "a site is in two tests: {next:?}");
            if next.is_proof {
                proofs.push((number, next.from, next.to))
            } else {
                pairs.push(ends)
            }
            open.push(next);
        }
        let Some(ended) = (!open.is_empty()).then(|| open.remove(0)) else {
            break;
        };
        now = now + Nanos::from_millis(10_000);
        // Of the first run of a proof the next is known when it has ended.
        if ended.is_proof && proofs.len() < 4 {
            schedule.handle_input(now, wanted);
        }
        let outcome = match proofs.len() {
            2 if ended.is_proof => Input::Failed { task: ended.id, why: Failure::Refused },
            _ => Input::Finished { task: ended.id, bytes: 1 },
        };
        schedule.handle_input(now, outcome);
    }
    assert_eq!(proofs.iter().map(|it| (it.1, it.2)).collect::<Vec<_>>(), [(3, 1); 4]);
    // Two runs are under way at a time: another one ends between two of a proof.
    assert!(proofs.windows(2).all(|pair| pair[1].0 - pair[0].0 <= 2), "{proofs:?}");
    pairs.sort_unstable();
    pairs.dedup();
    assert_eq!((pairs.len(), schedule.poll_event()), (10, None), "each pair has its turn");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn budgets_and_shares_of_time_hold(budget in 1_u64..20, share in 5_u32..100) {
        let text = format!(
            "[[site]]\nname = \"a\"\nhost = \"h\"\nrate = \"8mbit\"\nbytes-per-day = \"{}MB\"\n\
             share-of-time = \"{share}%\"\n[[site]]\nname = \"b\"\nhost = \"h\"\n{BULK}",
            budget * 12
        );
        let mesh = Mesh::from_toml(&text, 7).unwrap();
        let mut schedule = begun(&mesh);
        let (mut now, mut runs) = (BEGIN, Vec::new());
        while now < later(86_400) {
            while let Some(next) = schedule.poll_transmit() {
                runs.push(now);
                let done = now + Nanos::from_millis(12_000);
                schedule.handle_input(done, Input::Finished { task: next.id, bytes: 12_000_000 });
                now = done;
            }
            match schedule.poll_timeout() {
                Some(at) => now = at.max(now),
                None => break,
            }
            schedule.handle_timeout(now);
        }
        prop_assert!(!runs.is_empty() && runs.len() as u64 <= budget, "{} {budget}", runs.len());
        for pair in runs.windows(2) {
            let least = 12_000_000_000 * 100 / u64::from(share);
            prop_assert!((pair[1] - pair[0]).0 + 1_000 >= least);
        }
    }
}

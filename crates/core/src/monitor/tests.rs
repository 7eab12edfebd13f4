use proptest::prelude::*;

use super::*;

const FILE: &str = r#"
seed = 7
quiet = ["22:00-06:00"]
bytes-per-day = "10GB"

[[path]]
name = "pit"
host = "pit:5202"
labels = { site = "north" }
rate = "100mbit"
share = "1%"

[[path]]
name = "lab"
host = "192.0.2.1"

[[test]]
name = "bulk"
every = "15min"
jitter = "2min"
workload = { command = "stream", time = "2s", streams = 4 }

[[test]]
name = "health"
every = "6h"
paths = ["lab"]
workload = { command = "check", quick = true }

[alarm]
command = ["/bin/mail", "-s", "slow"]
webhook = "http://hooks:8080/linerate?a=b"
"#;

#[test]
fn a_file_says_what_runs_where_and_when() {
    let monitor = Monitor::from_toml(FILE, 1).unwrap();
    assert_eq!(monitor.seed, 7);
    assert_eq!(monitor.paths[0].bytes_per_day, Some(10_800_000_000));
    assert_eq!(monitor.paths[0].labels, [("site".to_owned(), "north".to_owned())]);
    assert_eq!(monitor.tests[0].paths, [0, 1]);
    assert_eq!((monitor.tests[1].every_s, monitor.tests[1].jitter_s), (21_600, 2_160));
    assert_eq!(monitor.tests[0].work.proof_runs(), Some(12));
    assert_eq!(monitor.tests[1].work.proof_runs(), Some(4), "a quick check is made a whole one");
    assert!(monitor.alarm.prove);
    let webhook = monitor.alarm.webhook.unwrap();
    assert_eq!(webhook.authority, "hooks:8080");
    assert_eq!(webhook.path, "/linerate?a=b");
    for url in ["https://[::1]:8443/a", "https://hooks/"] {
        assert_eq!(url.parse::<HttpUrl>().unwrap().to_string(), url);
    }
    for url in ["ftp://hooks", "http://a@hooks", "http://::1/", "https://hooks:0x/"] {
        assert!(url.parse::<HttpUrl>().is_err(), "{url}");
    }
    let other = FILE.replace("seed = 7\n", "") + "prove = false\n";
    let other = Monitor::from_toml(&other, 9).unwrap();
    assert_eq!((other.seed, other.alarm.prove), (9, false));
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let cases = [
        (
            "every = \"15min\"",
            "every = \"soon\"",
            "line 19, column 9: `soon` is no time between runs",
        ),
        (
            "streams = 4",
            "streems = 4",
            "line 21, column 47: the workload has no key `streems`; did you mean",
        ),
        ("streams = 4", "streams = 999", "line 21, column 57: `streams` 999: it must be 1 to 256"),
        (
            "\"stream\", time = \"2s\", streams = 4",
            "\"file_write\", bytes = \"1MB\"",
            "line 21, column 24: `file_write` is no command of a monitor",
        ),
        (
            "paths = [\"lab\"]",
            "paths = [\"lap\"]",
            "line 26, column 10: there is no path `lap`; did you mean `lab`?",
        ),
        ("name = \"lab\"", "name = \"pit\"", "there are two paths with the name `pit`"),
        ("22:00-06:00", "22-06", "line 3, column 10: `22-06` is no part of a day"),
        ("\"2min\"", "\"14min\"", "`jitter` of `bulk`: it may be half of `every` at most"),
        (
            "http://hooks",
            "ftp://hooks",
            "is no webhook; write http://host:port/path or https://host:port/path",
        ),
        ("site =", "test =", "line 9, column 12: `test` is no label of yours"),
        ("rate = \"100mbit\"\n", "", "[[path]] needs `rate`"),
        ("\"10GB\"", "\"10kB\"", "one run of `bulk` on `pit` may carry"),
        ("name = \"pit\"", "name = \"p{t\"", "is no name"),
    ];
    for (text, other, says) in cases {
        let error = Monitor::from_toml(&FILE.replacen(text, other, 1), 1).unwrap_err();
        assert!(error.to_string().contains(says), "{error}\n{says}");
    }
}

fn monitor(
    every_s: &[u64],
    jitter: u64,
    quiet: Option<(u64, u64)>,
    budget: Option<u64>,
) -> Monitor {
    let base = Monitor::from_toml(FILE, 1).unwrap();
    let tests = every_s.iter().enumerate().map(|(number, every_s)| MonitoredTest {
        name: number.to_string(),
        every_s: *every_s,
        jitter_s: jitter.min(every_s / 2),
        ..base.tests[0].clone()
    });
    Monitor {
        tests: tests.collect(),
        quiet: quiet.map(|(from_s, to_s)| QuietHours { from_s, to_s }).into_iter().collect(),
        bytes_per_day: budget,
        paths: base
            .paths
            .into_iter()
            .map(|path| MonitoredPath { bytes_per_day: None, ..path })
            .collect(),
        ..base
    }
}

/// Runs as they began and ended, with their task and bytes, until `end`; a sleep of the host goes
/// on for `sleep` from its first number on.
fn simulated(
    schedule: &mut Schedule,
    begin: u64,
    end: u64,
    takes_s: u64,
    bytes: u64,
    sleep: (u64, u64),
) -> Vec<(u64, u64, usize)> {
    let mut now = begin;
    let mut runs = Vec::new();
    while now < end {
        if (sleep.0..sleep.0 + sleep.1).contains(&now) {
            now = sleep.0 + sleep.1;
        }
        match schedule.next(now) {
            Next::Run(task) => {
                runs.push((now, now + takes_s, task));
                now += takes_s;
                schedule.finished(now, Outcome::Done(bytes));
            }
            Next::Wait(until) => {
                assert!(until > now, "a wait is over later");
                now = until;
            }
            Next::Never => break,
        }
    }
    runs
}

const BEGIN: u64 = 1_795_000_000;

proptest! {
    #[test]
    fn a_task_runs_once_a_slot_and_never_beside_another(
        every in prop::collection::vec(30u64..7200, 1..4),
        jitter in 0u64..600,
        takes in 1u64..40,
        sleep in (0u64..DAY, 0u64..DAY),
    ) {
        let monitor = monitor(&every, jitter, None, None);
        let mut schedule = Schedule::new(&monitor);
        let tasks: Vec<Task> = schedule.tasks().collect();
        let sleep = (BEGIN + sleep.0, sleep.1);
        let runs = simulated(&mut schedule, BEGIN, BEGIN + 2 * DAY, takes, 1, sleep);
        prop_assert!(runs.windows(2).all(|pair| pair[0].1 <= pair[1].0), "one at a time");
        for (number, task) in tasks.iter().enumerate() {
            let (every, jitter) =
                (monitor.tests[task.test].every_s, monitor.tests[task.test].jitter_s);
            let own: Vec<u64> = runs.iter().filter(|run| run.2 == number)
                .map(|run| run.0).collect();
            // A slot is used once: in any time there are as many runs as slots, and one that makes
            // up.
            for (first, begin) in own.iter().enumerate() {
                for (more, later) in own[first + 1..].iter().enumerate() {
                    prop_assert!((more as u64) <= (later - begin + jitter) / every);
                }
            }
            // None is later than its jitter and what else runs, unless the host slept.
            let wait = every + jitter + takes * (tasks.len() as u64 + 1);
            if takes * tasks.len() as u64 * 4 < every {
                for pair in own.windows(2) {
                    let slept = pair[0] <= sleep.0 + sleep.1 && sleep.0 <= pair[1];
                    prop_assert!(slept || pair[1] - pair[0] <= wait, "{pair:?} {every} {jitter}");
                }
            }
        }
    }

    #[test]
    fn nothing_runs_in_quiet_hours_or_over_its_budget(
        every in prop::collection::vec(60u64..7200, 1..3),
        quiet in (0u64..DAY, 0u64..DAY - 120),
        budget in 1u64..200,
    ) {
        let (from, to) = (quiet.0, (quiet.0 + quiet.1) % DAY);
        prop_assume!(from != to);
        let most = monitor(&[60], 0, None, None).tests[0].work
            .most_bytes(Some("100mbit".parse().unwrap()));
        let each = most.unwrap();
        let mut monitor = monitor(&every, 10, Some((from, to)), Some(budget * each));
        monitor.paths.truncate(1);
        monitor.tests.iter_mut().for_each(|test| test.paths = vec![0]);
        let mut schedule = Schedule::new(&monitor);
        let runs = simulated(&mut schedule, BEGIN, BEGIN + 3 * DAY, 3, each, (0, 0));
        prop_assert!(!runs.is_empty());
        for (begin, end, _) in &runs {
            let into = (begin % DAY + DAY - from) % DAY;
            prop_assert!(into >= quiet.1, "begun in quiet hours");
            prop_assert!(into + (end - begin) <= DAY, "still going in them");
        }
        for (number, run) in runs.iter().enumerate() {
            let day = runs[number..].iter().take_while(|other| other.0 < run.1 + DAY);
            prop_assert!(day.count() as u64 <= budget, "over the budget");
        }
    }

    #[test]
    fn a_restart_repeats_no_slot(every in 30u64..7200, jitter in 0u64..600, stop in 0u64..DAY) {
        let monitor = monitor(&[every], jitter, None, None);
        let whole = simulated(&mut Schedule::new(&monitor), BEGIN, BEGIN + DAY, 3, 1, (0, 0));
        let mut schedule = Schedule::new(&monitor);
        let before: Vec<_> = whole.iter().filter(|run| run.1 <= BEGIN + stop).collect();
        for run in &before {
            schedule.remember(run.2, run.0, 1);
        }
        let from = before.last().map_or(BEGIN, |run| run.1);
        let after = simulated(&mut schedule, from, BEGIN + DAY, 3, 1, (0, 0));
        prop_assert_eq!(&whole[before.len()..], &after[..]);
    }
}

const DAY: u64 = 86_400;

#[test]
fn a_busy_endpoint_is_asked_again_a_minute_later_and_a_failed_run_is_over() {
    let mut schedule = Schedule::new(&monitor(&[3600], 0, None, None));
    assert_eq!(schedule.next(BEGIN), Next::Run(0));
    schedule.finished(BEGIN + 1, Outcome::Busy);
    assert_eq!(schedule.next(BEGIN + 1), Next::Run(1));
    schedule.finished(BEGIN + 4, Outcome::Failed(0));
    assert_eq!(schedule.next(BEGIN + 4), Next::Wait(BEGIN + 61));
    assert_eq!(schedule.next(BEGIN + 61), Next::Run(0));
    schedule.finished(BEGIN + 64, Outcome::Done(1));
    let slot = BEGIN.div_ceil(3600) * 3600;
    assert_eq!(schedule.next(BEGIN + 64), Next::Wait(slot));
}

#[test]
fn runs_of_the_future_stop_no_test_and_count_against_a_budget_for_a_day() {
    let mut schedule = Schedule::new(&monitor(&[3600], 0, None, None));
    for task in 0..2 {
        schedule.remember(task, BEGIN + 30 * DAY, 1);
    }
    let runs = simulated(&mut schedule, BEGIN, BEGIN + DAY, 3, 1, (0, 0));
    assert!((46..=48).contains(&runs.len()), "{}", runs.len());
    let carried = schedule.carried_by(0) + schedule.carried_by(1);
    assert_eq!(carried, 2 + runs.len() as u64);
    let _ = schedule.next(BEGIN + 3 * DAY);
    assert_eq!(schedule.carried_by(0) + schedule.carried_by(1), 0);
}

#[test]
fn a_budget_smaller_than_a_run_lets_none_run() {
    let mut schedule = Schedule::new(&monitor(&[3600], 0, None, Some(10)));
    (0..2).for_each(|task| schedule.remember(task, BEGIN, 11));
    assert_eq!(schedule.next(BEGIN + 3600), Next::Never);
}

#[test]
fn a_proof_counts_against_budgets_and_quiet_hours_and_not_as_the_size_of_a_run() {
    let quiet = (22 * 3600, 23 * 3600);
    let mut schedule = Schedule::new(&monitor(&[3600], 0, Some(quiet), Some(1_000_000_000)));
    let begin = BEGIN / DAY * DAY;
    // The link of this path carries 100 Mbit/s: a run may carry 50 MB.
    assert_eq!(schedule.room(0, begin, 12), Some(1_000_000_000));
    assert_eq!(schedule.room(0, begin, 27), None);
    schedule.remember_proof(0, begin, 600_000_000);
    assert_eq!(schedule.room(0, begin, 8), Some(400_000_000));
    assert_eq!(schedule.room(0, begin, 12), None, "the budget is that of all tests");
    assert_eq!(schedule.within_budgets(0, begin), Some(begin), "a run is as small as before");
    assert_eq!(schedule.room(0, begin + 22 * 3600 - 20, 8), None, "it would not be over");
    assert!(schedule.room(0, begin + 22 * 3600 - 40, 8).is_some());
}

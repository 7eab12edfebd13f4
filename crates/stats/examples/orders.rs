//! False alarms on a series of real runs: in the order of the runs, and in random orders of them,
//! in which nothing has changed whatever the machine did meanwhile. Reads a number from each line.
//!
//! `cargo run --release -p linerate-stats --example orders < throughputs`
#![allow(clippy::print_stdout, clippy::expect_used, reason = "a report of one file")]

use std::io::stdin;

use linerate_stats::{TimedValue, changes, new_change, wilson};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Random orders of the series.
const ORDERS: u32 = 1000;

fn main() {
    let lines = stdin().lines().map(|line| line.expect("a line"));
    // One after the other, within an hour.
    let parsed = lines.map(|line| line.trim().parse().expect("a number"));
    let mut values: Vec<TimedValue> = (0..).zip(parsed).collect();
    let runs = values.len();
    println!(
        "{runs} runs in their order: monitor {}, history changes {}",
        if monitor_alarms(&values) { "ALARM" } else { "no alarm" },
        changes(&values, 1).expect("numbers").len()
    );
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (mut monitor, mut once) = (0, 0);
    for order in 0..ORDERS {
        for last in (1..runs).rev() {
            let other = (rng.next_u64() % (last as u64 + 1)) as usize;
            let pair = [last, other].map(|at| values[at].1);
            (values[last].1, values[other].1) = (pair[1], pair[0]);
        }
        monitor += u32::from(monitor_alarms(&values));
        let found = changes(&values, order.into()).expect("numbers");
        once += u32::from(!found.is_empty());
    }
    for (name, alarms) in [("monitor, after each run", monitor), ("history changes", once)] {
        let share = wilson(alarms.into(), ORDERS.into()).expect("there are orders");
        println!("{ORDERS} random orders, {name}: {alarms} with an alarm, {share:?}");
    }
}

/// Whether a monitor, which looks after each run, says at any time that the series has changed.
fn monitor_alarms(values: &[TimedValue]) -> bool {
    let mut looks = 10..=values.len();
    looks.any(|end| new_change(&values[..end]).expect("numbers").is_some())
}

//! Nanoseconds for each packet, by test runs of the kernel.

use linerate_qos::rules::RuleSet;
use linerate_sys::bpf::{Context, TestRun};

use crate::loaded::Loaded;
use crate::median;
use crate::rules;
use linerate_core::units::SplitMix64;

const HEADERS: usize = 4096;
const REPEAT: u32 = 300_000;

/// Name, rules, and the goals: nanoseconds for each packet, milliseconds to compile and load.
type Case = (&'static str, usize, f64, Option<f64>);
const CASES: [Case; 3] = [
    ("1 rule", 1, 15.0, None),
    ("1,000 mixed", 1000, 90.0, Some(60.0)),
    ("5,000 mixed", 5000, 170.0, Some(200.0)),
];

/// Prints the table; whether all goals are met.
pub(crate) fn measure(runs: u32, seed: u64) -> anyhow::Result<bool> {
    println!(
        "ns a packet by BPF_PROG_TEST_RUN, {HEADERS} random headers in turn, median of {runs}"
    );
    println!("(range); what puts the header into the packet is taken off\n");
    println!(
        "{:12} {:>24} {:>6} {:>12} {:>10} {:>6} {:>7}",
        "rules", "ns", "goal", "compile ms", "load ms", "goal", "insns"
    );
    let nothing = RuleSet::pass_through();
    let bare = Loaded::new(&nothing, None, None)?;
    let (floor, ..) = cost(&bare, runs)?;
    println!("{:12} {floor:>24.1}", "pass-through");
    let mut is_met = true;
    for (name, count, goal_ns, goal_ms) in CASES {
        let mut dice = SplitMix64::new(seed);
        let conditions = match count {
            1 => rules::one(),
            _ => rules::mixed(&mut dice, count),
        };
        let headers: Vec<_> = (0..HEADERS).map(|_| rules::header(&mut dice, &conditions)).collect();
        let set: RuleSet = rules::of(conditions);
        let with = Loaded::new(&set, None, Some(&headers))?;
        let without = Loaded::new(&nothing, None, Some(&headers))?;
        let mut ns = Vec::new();
        for _ in 0..runs {
            // In turn, so that both meet the same machine.
            let (before, after) = (once(&without)?, once(&with)?);
            ns.push(after - before + floor);
        }
        let (ns, least, most) = median(ns);
        let setup = (with.compiling + with.loading).as_secs_f64() * 1e3;
        let goal = goal_ms.map_or(String::new(), |goal| format!("{goal:.0}"));
        println!(
            "{name:12} {:>24} {goal_ns:>6.0} {:>12.1} {:>10.1} {goal:>6} {:>7}",
            format!("{ns:.1} ({least:.1} … {most:.1})"),
            with.compiling.as_secs_f64() * 1e3,
            with.loading.as_secs_f64() * 1e3,
            with.instructions,
        );
        is_met &= ns <= goal_ns && goal_ms.is_none_or(|goal| setup <= goal);
    }
    println!();
    Ok(is_met)
}

fn cost(loaded: &Loaded, runs: u32) -> anyhow::Result<(f64, f64, f64)> {
    let figures = (0..runs).map(|_| once(loaded));
    Ok(median(figures.collect::<Result<_, _>>()?))
}

fn once(loaded: &Loaded) -> anyhow::Result<f64> {
    let mut frame = vec![0u8; 64];
    frame[12] = 0x08;
    frame[14] = 0x45;
    let result = loaded.program.test_run(&TestRun {
        frame: &frame,
        context: Context::default(),
        repeat: REPEAT,
    })?;
    // The kernel gives whole nanoseconds; several runs give the parts.
    Ok(result.duration.as_nanos() as f64)
}

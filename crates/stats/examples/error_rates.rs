//! How often `compare` is wrong, by simulation. Prints `docs/error-rates.md`; the same seed prints
//! the same.
//!
//! `cargo run --release -p linerate-stats --example error_rates > docs/error-rates.md`
#![allow(clippy::print_stdout, reason = "a report")]

#[path = "../tests/compare_support/mod.rs"]
mod compare_support;

use std::process::ExitCode;

use compare_support::{
    MODELS, Model, Source, blocks_with_mann_whitney, compare, design, t_test_with_peeking,
};
use linerate_stats::paired::Conclusion;
use linerate_stats::{Proportion, wilson};

const SEED: u64 = 20_261_121;
/// Comparisons behind every figure.
const TRIALS: u64 = 20_000;
/// What the upper end of the interval of A against A may be.
const GOAL: f64 = 0.055;
const MARGIN_PERCENT: f64 = 5.0;

fn main() -> ExitCode {
    print!("{HEAD}");
    println!(
        "Seed {SEED}, {} comparisons behind every figure, at most 30 pairs in each.\n",
        thousands(TRIALS)
    );
    println!("| noise | what the path does, whatever the treatment |\n|---|---|");
    for model in &MODELS {
        println!("| {} | {} |", model.name, model.what);
    }
    let highest = a_against_a();
    several_metrics();
    intervals();
    power();
    equivalence();
    let met = highest <= GOAL;
    let goal = if met { "met" } else { "MISSED" };
    println!(
        "\nThe goal, at most {} DIFFERENT of A against A at the upper end of the interval: {goal} \
         (highest: {}).",
        percent(GOAL),
        percent(highest)
    );
    ExitCode::from(u8::from(!met))
}

/// Returns the highest upper end.
fn a_against_a() -> f64 {
    println!("\n## A against A\n\n{A_AGAINST_A}");
    println!(
        "| noise | DIFFERENT | 95 % interval | AAA…BBB, Mann–Whitney | ABAB, t-test with peeking |"
    );
    println!("|---|---|---|---|---|");
    let rows = MODELS.iter().zip(0..).map(|(model, stream)| {
        let mut source = Source::new(SEED, stream);
        let ours = share(|| is_different(&compare(model, &mut source, &design(None, 1), 0.0)));
        let blocks = share(|| blocks_with_mann_whitney(model, &mut source));
        let peeking = share(|| t_test_with_peeking(model, &mut source));
        println!(
            "| {} | {} | {} | {} | {} |",
            model.name,
            percent(ours.share),
            interval(ours),
            percent(blocks.share),
            percent(peeking.share)
        );
        ours.high
    });
    rows.fold(0.0, f64::max)
}

fn several_metrics() {
    println!("\n## Several metrics\n\n{SEVERAL_METRICS}");
    println!(
        "| noise | 2 metrics | 95 % interval | 3 metrics | 95 % interval |\n|---|---|---|---|---|"
    );
    for (model, stream) in [&MODELS[0], &MODELS[2]].into_iter().zip(10..) {
        let mut source = Source::new(SEED, stream);
        let cells = [2, 3].map(|metrics| {
            let wrong = share(|| {
                let conclusion = compare(model, &mut source, &design(None, metrics), 0.0);
                conclusion.metrics.iter().any(|metric| metric.different)
            });
            format!("{} | {}", percent(wrong.share), interval(wrong))
        });
        println!("| {} | {} |", model.name, cells.join(" | "));
    }
}

fn intervals() {
    println!("\n## The interval\n\n{INTERVALS}");
    println!("| noise | effect 0 % | 5 % | 10 % |\n|---|---|---|---|");
    for (model, stream) in MODELS.iter().zip(20..) {
        let mut source = Source::new(SEED, stream);
        let cells = [0.0, 5.0, 10.0].map(|effect| {
            let covered =
                share(|| covers(&compare(model, &mut source, &design(None, 1), effect), effect));
            percent(covered.share)
        });
        println!("| {} | {} |", model.name, cells.join(" | "));
    }
}

fn power() {
    println!("\n## What is found, and after how many runs\n\n{POWER}");
    println!("| noise | effect 2 % | 5 % | 10 % | 20 % |\n|---|---|---|---|---|");
    for (model, stream) in MODELS.iter().zip(30..) {
        let mut source = Source::new(SEED, stream);
        let cells = [2.0, 5.0, 10.0, 20.0].map(|effect| power_cell(model, &mut source, effect));
        println!("| {} | {} |", model.name, cells.join(" | "));
    }
}

fn power_cell(model: &Model, source: &mut Source, effect: f64) -> String {
    let (mut pairs, mut said) = (0, Vec::new());
    let found = share(|| {
        let conclusion = compare(model, source, &design(None, 1), effect);
        pairs += u64::from(conclusion.pairs);
        if is_different(&conclusion) {
            said.push(conclusion.metrics[0].effect_percent);
        }
        is_different(&conclusion)
    });
    said.sort_by(f64::total_cmp);
    let median = said.get(said.len() / 2).map_or("–".to_owned(), |said| format!("{said:+.1} %"));
    format!("{}, {:.0} runs, {median}", percent(found.share), 2.0 * mean(pairs))
}

fn equivalence() {
    println!("\n## EQUIVALENT within {MARGIN_PERCENT} %\n\n{EQUIVALENCE}");
    println!(
        "| noise | at an effect of 5 % | 95 % interval | at 0 % | runs at 0 % | interval holds 0 % \
         |"
    );
    println!("|---|---|---|---|---|---|");
    let design = design(Some(MARGIN_PERCENT), 1);
    for (model, stream) in MODELS.iter().zip(40..) {
        let mut source = Source::new(SEED, stream);
        let wrong =
            share(|| compare(model, &mut source, &design, MARGIN_PERCENT).metrics[0].equivalent);
        let (mut pairs, mut held, mut equivalent) = (0, 0, 0);
        for _ in 0..TRIALS {
            let conclusion = compare(model, &mut source, &design, 0.0);
            pairs += u64::from(conclusion.pairs);
            equivalent += u64::from(conclusion.metrics[0].equivalent);
            held += u64::from(conclusion.metrics[0].equivalent && covers(&conclusion, 0.0));
        }
        println!(
            "| {} | {} | {} | {} | {:.0} | {} |",
            model.name,
            percent(wrong.share),
            interval(wrong),
            percent(equivalent as f64 / TRIALS as f64),
            2.0 * mean(pairs),
            wilson(held, equivalent).map_or("–".to_owned(), |held| percent(held.share))
        );
    }
}

fn share(mut event: impl FnMut() -> bool) -> Proportion {
    let events = (0..TRIALS).filter(|_| event()).count() as u64;
    wilson(events, TRIALS).expect("there are trials")
}

fn is_different(conclusion: &Conclusion) -> bool {
    conclusion.metrics[0].different
}

fn covers(conclusion: &Conclusion, percent: f64) -> bool {
    let [low, high] = conclusion.metrics[0].interval_percent;
    (low..=high).contains(&percent)
}

fn mean(total: u64) -> f64 {
    total as f64 / TRIALS as f64
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn interval(share: Proportion) -> String {
    format!("{:.1}–{:.1} %", 100.0 * share.low, 100.0 * share.high)
}

fn thousands(count: u64) -> String {
    format!("{},{:03}", count / 1000, count % 1000)
}

const HEAD: &str = "\
# How often `compare` is wrong

The output of `cargo run --release -p linerate-stats --example error_rates`. It simulates whole
comparisons on known noise, from the order of the runs to the verdict, with the code that `compare`
runs. `cargo test -p linerate-stats --test compare_error_rates` does the same with fewer
comparisons, and fails where a rate is off. The noise of a real path is not known. That A against A
cannot exceed 5 % does not depend on the noise, only on the coin that orders each pair.

";
const A_AGAINST_A: &str = "\
Both treatments are the same. How often does the comparison say DIFFERENT? For contrast two common
methods: ten runs of A and then ten of B with a Mann–Whitney test at 5 %; and A, B, A, B, … with a
paired t-test at 5 % after each pair from the third on, until it finds a difference or there are 30
pairs.
";
const SEVERAL_METRICS: &str = "\
A against A, where each metric is an independent series. How often is any of them DIFFERENT?
";
const INTERVALS: &str = "\
How often does the interval contain the planted effect, wherever the comparison stopped? It says
95 %.
";
const POWER: &str = "\
How often is a planted effect DIFFERENT, after how many runs on average (two for each pair;
comparisons that do not find it take 60), and what is the median of the reported effect? Where few
are found, the reported effect is too large: those comparisons stopped where the effect happened to
look large.
";
const EQUIVALENCE: &str = "\
An effect as large as the margin is not equivalent: how often is it called EQUIVALENT, of at most
5 %? Beside it how often no effect is called EQUIVALENT, after how many runs, and how often the
interval contains 0; that interval says 90 %. A comparison at 0 % that is not EQUIVALENT ends after
60 runs, or as DIFFERENT.
";

//! What is printed of a benchmark.

use linerate_core::stats::MedianInterval;

use crate::cases::Bound;
use crate::pair::{Finding, Pair, Verdict};

/// Prints a benchmark's findings.
pub(crate) fn print(title: &str, pairs: &[Pair], findings: &[Finding]) {
    let methods = methods(pairs);
    println!("\n{title}  n={}{methods}", pairs.len());
    for finding in findings {
        println!(
            "  {:<22} {:>9} {:>9}   {:<24} {}",
            finding.metric.name(),
            figure(finding.linerate),
            figure(finding.peer),
            ratio(finding.ratio),
            verdict(finding),
        );
    }
}

/// Prints the heads of the columns.
pub(crate) fn print_head() {
    println!(
        "  {:<22} {:>9} {:>9}   {:<24} goal",
        "medians", "linerate", "peer", "ratio by pair (95 %)"
    );
}

/// The ways of sending that linerate named.
fn methods(pairs: &[Pair]) -> String {
    let mut names: Vec<&str> =
        pairs.iter().filter_map(|pair| pair.linerate.method.as_deref()).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() { String::new() } else { format!("  ({})", names.join(", ")) }
}

pub(crate) fn figure(interval: Option<MedianInterval>) -> String {
    match interval.map(|interval| interval.median) {
        None => "-".to_owned(),
        Some(median) if median < 10.0 => format!("{median:.3}"),
        Some(median) => format!("{median:.1}"),
    }
}

/// The median, and the interval that holds that of all pairs that could be run.
pub(crate) fn ratio(ratio: Option<MedianInterval>) -> String {
    ratio.map_or_else(String::new, |MedianInterval { median, low, high, .. }| {
        format!("{median:.2} ({low:.2} … {high:.2})")
    })
}

/// The goal and whether it is met.
pub(crate) fn verdict(finding: &Finding) -> String {
    let bound = match finding.bound {
        Bound::RatioAtLeast(least) => format!("ratio ≥ {least}"),
        Bound::RatioAtMost(most) => format!("ratio ≤ {most}"),
        Bound::Below(limit) => format!("< {limit}"),
        Bound::Shown => return String::new(),
    };
    let word = match finding.verdict {
        Some(Verdict::Met) => "met",
        Some(Verdict::Open) => "open",
        Some(Verdict::Missed) | None => "MISSED",
    };
    format!("{bound}: {word}")
}

//! What is printed of a benchmark.

use crate::cases::Bound;
use crate::pair::{Finding, Pair, Spread};

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
        "medians", "linerate", "peer", "ratio by pair (range)"
    );
}

/// The ways of sending that linerate named.
fn methods(pairs: &[Pair]) -> String {
    let mut names: Vec<&str> = pairs
        .iter()
        .filter_map(|pair| pair.linerate.method.as_deref())
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        String::new()
    } else {
        format!("  ({})", names.join(", "))
    }
}

fn figure(spread: Option<Spread>) -> String {
    match spread.map(|spread| spread.median) {
        None => "-".to_owned(),
        Some(median) if median < 10.0 => format!("{median:.3}"),
        Some(median) => format!("{median:.1}"),
    }
}

fn ratio(spread: Option<Spread>) -> String {
    spread.map_or_else(String::new, |Spread { median, min, max }| {
        format!("{median:.2} ({min:.2} … {max:.2})")
    })
}

fn verdict(finding: &Finding) -> String {
    let bound = match finding.bound {
        Bound::RatioAtLeast(least) => format!("ratio ≥ {least}"),
        Bound::RatioAtMost(most) => format!("ratio ≤ {most}"),
        Bound::Below(limit) => format!("< {limit}"),
        Bound::Shown => return String::new(),
    };
    let word = if finding.passed == Some(true) {
        "PASS"
    } else {
        "FAIL"
    };
    format!("{bound} {word}")
}

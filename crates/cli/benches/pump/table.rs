//! What is printed of a benchmark.

use linerate_core::stats::Summary;

use crate::cases::Figures;

/// Both sides, run in turn; without a peer the pump alone.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) pump: Figures,
    pub(crate) peer: Option<Figures>,
}

/// Prints the heads of the columns.
pub(crate) fn print_head() {
    println!("  {:<27} {:>24} {:>24}   ratio by pair", "medians (range)", "pump", "kernel");
}

/// Prints a benchmark's figures.
pub(crate) fn print(title: &str, pairs: &[Pair]) {
    println!("\n{title}  n={}", pairs.len());
    let names = pairs.first().into_iter().flat_map(|pair| &pair.pump);
    for (name, _) in names.copied() {
        let ours = |pair: &Pair| figure(&pair.pump, name);
        let theirs = |pair: &Pair| figure(pair.peer.as_ref()?, name);
        let ratio = |pair: &Pair| Some(ours(pair)? / theirs(pair)?);
        // A ratio of errors, which may be zero or negative, says nothing.
        let ratio =
            if name.contains("error") { String::new() } else { spread(pairs.iter().map(ratio)) };
        println!(
            "  {name:<27} {:>24} {:>24}   {ratio}",
            spread(pairs.iter().map(ours)),
            spread(pairs.iter().map(theirs)),
        );
    }
}

fn figure(figures: &Figures, name: &str) -> Option<f64> {
    let found = figures.iter().find(|(known, _)| *known == name)?;
    Some(found.1)
}

/// Median and range; nothing if a run has no figure.
fn spread(figures: impl Iterator<Item = Option<f64>>) -> String {
    let figures: Option<Vec<f64>> = figures.collect();
    let summary = figures.and_then(|figures| Summary::new(&figures).ok());
    summary.map_or_else(String::new, |summary| {
        let [median, min, max] = [summary.median(), summary.min(), summary.max()].map(rounded);
        format!("{median} ({min} … {max})")
    })
}

fn rounded(figure: f64) -> String {
    match figure.abs() {
        0.0..10.0 => format!("{figure:.2}"),
        10.0..1000.0 => format!("{figure:.1}"),
        _ => format!("{figure:.0}"),
    }
}

//! Charts of a comparison: both figures of each pair, and their change with the effect.

use linerate_core::compare::{ComparedMetric, ComparedPair, Comparison};

use super::unit_of;
use crate::number::digits;
use crate::svg::{Chart, Mark, Panel, Plot, Series, Unit};

/// One chart for each metric.
pub(crate) fn comparison(comparison: &Comparison) -> Vec<Chart> {
    let metrics = comparison.metrics.iter();
    let charts = metrics.map(|metric| of_metric(metric, comparison));
    charts.collect()
}

fn of_metric(metric: &ComparedMetric, comparison: &Comparison) -> Chart {
    let path = metric.metric.as_str();
    let counted = || comparison.runs.iter().filter(|pair| pair.counts());
    let number = |pair: &ComparedPair| f64::from(pair.pair);
    let side = |name, mark, colour, of: fn(&ComparedPair, &str) -> Option<f64>| {
        let points = counted().filter_map(|pair| Some([number(pair), of(pair, path)?]));
        Series::new(name, mark, colour, points)
    };
    let sides = vec![
        side("A", Mark::Line, 0, |pair, path| pair.a.get(path).copied()),
        side("B", Mark::Dashed, 1, |pair, path| pair.b.get(path).copied()),
    ];
    let mut figures = Panel::new("Figures", unit_of(path), sides);
    figures.close = true;
    let excluded = comparison
        .runs
        .iter()
        .filter(|pair| !pair.counts())
        .filter_map(|pair| Some([number(pair), pair.change_percent(path)?]));
    let mut changes =
        vec![side("B against A", Mark::Dots, 2, |pair, path| pair.change_percent(path))];
    let excluded = Series::new("does not count", Mark::Rings, 2, excluded);
    changes.extend((!excluded.points.is_empty()).then_some(excluded));
    let mut changes = Panel::new("Change", Unit::Percent, changes);
    let found = &metric.conclusion;
    changes.band = Some(found.interval_percent);
    let effect = found.effect_percent;
    changes.levels = vec![(effect, format!("effect {} %", digits(effect)))];
    let [low, high] = found.interval_percent.map(digits);
    let says = format!(
        "{path}: {}, B against A {} %, interval {low} to {high} %, {} pairs. The band is the interval.",
        found.verdict.name(),
        digits(effect),
        found.pairs,
    );
    let plot = Plot::new("Pair", Unit::Count, vec![changes, figures]);
    let name = path.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let title = format!("Pair by pair: {path}");
    Chart::new(&format!("pairs-{name}"), title, says, plot)
}

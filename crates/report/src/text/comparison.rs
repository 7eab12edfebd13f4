//! The page of a comparison of two treatments.

use std::collections::BTreeMap;

use linerate_core::compare::{
    ComparedMetric, ComparedPair, Comparison, IdleLoad, MAX_PAIRS, MetricConclusion, SeenFault,
    Standing, WouldDecide,
};
use linerate_core::plan::{Extent, Test};
use linerate_core::record::{Observed, Status};
use linerate_core::stats::{Figure, median};
use linerate_core::units::printable;

use super::history::baseline;
use super::live::duration;
use super::number::{
    NBSP, bytes, change, if_known, joined, named, plural, seconds, signed_percent, some_joined,
    span, writer,
};
use super::parts::{caveats, destination, emulated, figure, protocol_name, towards, workload_name};
use crate::document::{Document, Ending, Surroundings};
use crate::page::{Emphasis, Page, Table, table};

impl Document for Comparison {
    /// The answer, what was compared, both treatments side by side, and the caveats.
    fn page(&self, page: &mut Page) {
        page.heading(&headline(self));
        page.gap();
        page.facts("A", treatment(&self.a.to_string(), &self.read_back.a));
        page.facts("B", treatment(&self.b.to_string(), &self.read_back.b));
        page.facts("run", run_facts(self));
        let with = self.with.as_ref().map(|with| load_facts(with, &self.runs));
        page.facts("with", with.unwrap_or_default());
        emulated(page, &self.environment);
        page.facts("B's path", self.lab_b.clone());
        if page.has_details() {
            page.facts("pairs", pair_facts(self));
            page.facts("before", idle_facts(&self.idle));
        }
        page.gap();
        page.table(&metric_table(&self.metrics));
        if page.has_details() && !self.metrics.is_empty() {
            page.plain("  below each figure: its interval; for A and B, of the median");
        }
        if let Some(would) = &self.would_decide {
            page.words(&would_decide(self, would));
        }
        // The table says all there is to say of metrics that are not decided.
        let details = page.has_details();
        let decided = |metric: &&ComparedMetric| {
            let found = &metric.conclusion;
            details || found.different || found.equivalent
        };
        for metric in self.metrics.iter().skip(1).filter(decided) {
            page.gap();
            page.words(&answer(metric, self.margin_percent));
        }
        several_figures(page, &self.metrics);
        for fault in &self.one_sided_faults {
            page.gap();
            page.heading(&fault.message);
        }
        if page.has_details() {
            excluded(page, &self.runs);
            for note in &self.notes {
                page.gap();
                page.paragraph(Emphasis::None, "  note", 8, note);
            }
        }
        baseline(page, self.baseline.as_ref());
        caveats(page, &self.caveats);
    }

    fn observed(&self) -> Observed {
        self.observed()
    }

    fn environments_mut(&mut self) -> Vec<Surroundings<'_>> {
        vec![(&mut self.environment, &mut self.caveats)]
    }

    fn endings(&self) -> Vec<Ending<'_>> {
        vec![(self.status, &self.caveats)]
    }
}

/// A pair that has just ended, as a line without newline or colour: its figures of the deciding
/// metric, the effect so far, and the number of pairs after which an answer is expected.
pub fn pair_line(standing: &Standing<'_>) -> String {
    let path = standing.metric.as_str();
    let write = writer(path);
    let pair = standing.pair;
    let figures = match pair.excluded.first() {
        Some(why) => format!("excluded: {}", seen(why)),
        None => {
            let [a, b] = [&pair.a, &pair.b].map(|side| side.get(path).copied().map(write));
            let (a, b) = (a.unwrap_or_default(), b.unwrap_or_default());
            let change = if_known(pair.change_percent(path), signed_percent);
            format!("A {a:>11} B {b:>11} {change:>7}")
        }
    };
    let so_far = if_known(standing.conclusion.as_ref().and_then(|c| c.metrics.first()), |metric| {
        format!("  so far {:>7}", signed_percent(metric.effect_percent))
    });
    let (number, outlook) = (pair.pair, outlook(standing));
    let line = format!("pair {number:>2}  {figures}{so_far}  {outlook}");
    printable(&line).replace(NBSP, " ")
}

/// The expected number of pairs, and the longest time until then: `13–17 pairs, 2 min`.
fn outlook(standing: &Standing<'_>) -> String {
    let left = duration(standing.left_s()[1]);
    match standing.expected_pairs {
        Some([fewest, _]) if fewest <= standing.counted => String::new(),
        Some([fewest, most]) if most > fewest => format!("{fewest}–{most} pairs, {left}"),
        Some([fewest, _]) => format!("{fewest} pairs, {left}"),
        None => format!("to {} pairs, {left}", standing.max_pairs),
    }
}

fn headline(comparison: &Comparison) -> String {
    let metric = comparison.metrics.first();
    let words = match metric {
        Some(metric) => answer(metric, comparison.margin_percent),
        None => "INCONCLUSIVE: every pair was excluded".to_owned(),
    };
    let is_partial = comparison.status == Status::Partial;
    words + if is_partial { " (STOPPED EARLY)" } else { "" }
}

/// The verdict on a metric in words, with effect, interval and n.
fn answer(metric: &ComparedMetric, margin_percent: Option<f64>) -> String {
    let found = &metric.conclusion;
    let path = &metric.metric;
    let margin = if_known(margin_percent, |m| format!(" of {}", plain(m)));
    match (found.different, found.equivalent) {
        (true, small) => {
            let is_lower = found.effect_percent < 0.0;
            let way = if is_lower { "lower" } else { "higher" };
            let small = match small {
                true => format!(" (real, and smaller than the margin{margin}: EQUIVALENT, too)"),
                false => String::new(),
            };
            format!(
                "DIFFERENT: {path} is {} {way} under B than under A{small}; {}",
                change(found.effect_percent.abs()),
                interval_and_n(found)
            )
        }
        (false, true) => format!(
            "EQUIVALENT: {path} differs by less than the margin{margin}: {}, {}",
            signed_percent(found.effect_percent),
            interval_and_n(found)
        ),
        (false, false) => format!(
            "INCONCLUSIVE: {} {} not decide whether {path} differs: {}, interval {}",
            counted(found.pairs),
            if found.pairs == 1 { "does" } else { "do" },
            signed_percent(found.effect_percent),
            interval(found)
        ),
    }
}

/// Says what would decide an undecided comparison: more pairs, longer runs or a wider margin.
fn would_decide(comparison: &Comparison, would: &WouldDecide) -> String {
    let plan = &comparison.plan;
    let time = |pairs: u32, longer: f64| {
        let all = |run| duration(2.0 * f64::from(pairs) * run * longer);
        let run = plan.seconds();
        if_known(run, |run| format!(", about {}", all(run)))
    };
    let scatter = change(would.scatter_percent);
    let more = match (would.pairs, would.times_as_long) {
        (Some(_), Some(longer)) => {
            let run = match plan.extent {
                Extent::Time(run) => format!("-t {:.0}s", (run.as_secs_f64() * longer).ceil()),
                Extent::Bytes(_) | Extent::Count(_) => format!("{longer} times as much"),
            };
            Some(format!("longer runs, as {run}{}", time(MAX_PAIRS, longer)))
        }
        (Some(pairs), None) => {
            let most = match pairs > comparison.max_pairs {
                true => format!(" (--pairs {pairs})"),
                false => String::new(),
            };
            Some(format!("{pairs} pairs{most}{}", time(pairs, 1.0)))
        }
        (None, _) => None,
    };
    let more = more.map(|more| format!("{more}, for a difference like the one so far"));
    let margin = would.margin_percent;
    let asks_less = comparison.margin_percent.is_none_or(|asked| asked < margin);
    let margin = (asks_less && margin <= GREATEST_MARGIN)
        .then(|| format!("--margin {margin}% tests whether the difference is smaller than that"));
    let ways = some_joined([more, margin], "; or ");
    let ways = ways.unwrap_or_else(|| "a quieter path or host".to_owned());
    format!("Undecided: pairs scatter by {scatter}. To decide it: {ways}.")
}

/// Largest margin that still says something of a treatment, percent.
const GREATEST_MARGIN: f64 = 20.0;

/// `stream -P 4: 94.1 Mbit/s beside A, 93.9 Mbit/s beside B`
fn load_facts(with: &Test, runs: &[ComparedPair]) -> Vec<String> {
    let words = std::iter::once(with.workload().word().to_owned()).chain(with.typed(&[]));
    let figure = |side: fn(&ComparedPair) -> &BTreeMap<String, f64>, name: &str| {
        let figures = runs.iter().filter(|pair| pair.counts()).flat_map(side);
        let of_load = figures.filter(|(path, _)| path.starts_with("with."));
        let found: Vec<_> = of_load.collect();
        let write = writer(found.first()?.0);
        let values: Vec<f64> = found.iter().map(|(_, value)| **value).collect();
        Some(format!("{} beside {name}", write(median(&values))))
    };
    let figures = [figure(|pair| &pair.a, "A"), figure(|pair| &pair.b, "B")];
    let words = std::iter::once(joined(words, " "));
    words.chain(figures.into_iter().flatten()).collect()
}

fn interval_and_n(found: &MetricConclusion) -> String {
    format!("interval {}, {}", interval(found), counted(found.pairs))
}

/// `+9.80 % to +10.1 % at 97.6 %`
fn interval(found: &MetricConclusion) -> String {
    let [low, high] = found.interval_percent.map(signed_percent);
    format!("{low} to {high} at {}", plain(found.confidence_percent))
}

fn counted(pairs: u32) -> String {
    plural(pairs.into(), "pair")
}

fn treatment(text: &str, read_back: &[String]) -> [String; 1] {
    let values = (!read_back.is_empty()).then(|| format!("(read back: {})", read_back.join("; ")));
    [joined([Some(text.to_owned()), values], " ")]
}

fn run_facts(comparison: &Comparison) -> [Option<String>; 5] {
    let plan = &comparison.plan;
    let to = destination(&comparison.host, &comparison.peer, None);
    [
        Some(workload_name(plan.workload()).to_owned()),
        Some(protocol_name(plan.protocol).to_owned()),
        named("DSCP", plan.options.dscp, |dscp| dscp.to_string()),
        Some(extent(plan)),
        Some(format!("{} {to}", towards(plan.direction))),
    ]
}

fn extent(plan: &Test) -> String {
    match plan.extent {
        Extent::Time(time) => format!("{} each", seconds(time.as_secs_f64())),
        Extent::Bytes(size) => format!("{} on each flow", bytes(size.0)),
        Extent::Count(count) => format!("{count} messages on each flow"),
    }
}

fn pair_facts(comparison: &Comparison) -> [Option<String>; 4] {
    let (most, seed) = (comparison.max_pairs, comparison.seed);
    let counts = comparison.runs.iter().filter(|pair| pair.counts()).count();
    let excluded = comparison.runs.len() - counts;
    let order = format!("{counts} of at most {most}, the order in each by a coin (seed {seed})");
    let faults = comparison.forbidden.iter();
    let forbidden = some_joined(faults.map(|fault| fault.name().to_owned()), ", ");
    [
        Some(format!("begun {}", comparison.started_at)),
        Some(order),
        (excluded > 0).then(|| format!("{excluded} excluded")),
        named("forbidden:", forbidden, |faults| faults),
    ]
}

fn idle_facts(idle: &IdleLoad) -> [Option<String>; 2] {
    let ends =
        [("this host", idle.client_cpu_percent), ("endpoint's host", idle.server_cpu_percent)];
    ends.map(|(name, busy)| named(name, busy, |busy| format!("{busy:.1}{NBSP}% busy")))
}

/// Two rows for each metric: the medians and the effect, and below them their intervals; a third
/// row where an interval is too wide for one.
fn metric_table(metrics: &[ComparedMetric]) -> Table<[String; 5]> {
    let rows = metrics.iter().flat_map(|metric| {
        let write = writer(metric.metric.as_str());
        let [a, b] = [&metric.a, &metric.b].map(|side| median_and_spread(side, write));
        let found = &metric.conclusion;
        let [low, high] = found.interval_percent.map(signed_percent);
        let (name, rest) = short_name(metric.metric.as_str());
        let effect = signed_percent(found.effect_percent);
        let [a_spread, b_spread, change] = [a.1, b.1, span(&low, &high, "to")].map(halves);
        let is_wide = [&a_spread, &b_spread, &change].iter().any(|cell| !cell[1].is_empty());
        let [[a_low, a_high], [b_low, b_high], [from, to]] = [a_spread, b_spread, change];
        let none = String::new;
        let rows = [
            [name, a.0, b.0, effect, found.pairs.to_string()],
            [rest, a_low, b_low, from, none()],
            [none(), a_high, b_high, to, none()],
        ];
        rows.into_iter().take(if is_wide { 3 } else { 2 })
    });
    table! { rows, row =>
        left "metric" => row[0].clone();
        right "A" => row[1].clone();
        right "B" => row[2].clone();
        right "B against A" => row[3].clone();
        right @1 "pairs" => row[4].clone();
    }
}

/// An interval that is too wide for a table of 80 columns, split behind its separator; else all of
/// it, and nothing.
fn halves(interval: String) -> [String; 2] {
    let is_wide = interval.chars().count() > MAX_INTERVAL;
    let separators = [" – ", " to "];
    let at = separators.iter().find_map(|separator| {
        let at = interval.find(separator)?;
        Some(at + separator.trim_end().len())
    });
    match at.filter(|_| is_wide) {
        Some(at) => [interval[..at].to_owned(), interval[at..].trim_start().to_owned()],
        None => [interval, String::new()],
    }
}

/// Three of them, a name and the gaps fit into 80 columns.
const MAX_INTERVAL: usize = 18;

/// The name of a metric, split over two rows if it is long, without a unit that its figures have.
fn short_name(path: &str) -> (String, String) {
    let bare = path.trim_end_matches("_us_per_kib");
    match bare.split_once('.') {
        Some((end, rest)) if bare.len() > LONG_NAME => (format!("{end}."), format!("  {rest}")),
        _ => (bare.to_owned(), String::new()),
    }
}

/// Longest name that fits into a table of 80 columns.
const LONG_NAME: usize = 20;

/// Median and interval of a figure; several figures are described below the table.
fn median_and_spread(figure: &Figure, write: fn(f64) -> String) -> (String, String) {
    let Figure::One(one) = figure else {
        return ("not one figure,".to_owned(), "see below".to_owned());
    };
    let spread = span(&write(one.low), &write(one.high), "–");
    (write(one.median), spread)
}

fn several_figures(page: &mut Page, metrics: &[ComparedMetric]) {
    for metric in metrics {
        let write = writer(metric.metric.as_str());
        for (name, side) in [("A", &metric.a), ("B", &metric.b)] {
            if !matches!(side, Figure::One(_)) {
                page.gap();
                page.words(&format!("{} under {name}: {}", metric.metric, figure(side, write)));
            }
        }
    }
}

fn excluded(page: &mut Page, runs: &[ComparedPair]) {
    page.gap();
    for pair in runs.iter().filter(|pair| !pair.counts()) {
        let why = joined(pair.excluded.iter().map(seen), "; ");
        let first = format!("  pair {} excluded: ", pair.pair);
        page.paragraph(Emphasis::None, &first, first.chars().count(), &why);
    }
}

/// `2 segments retransmitted (B)`
fn seen(fault: &SeenFault) -> String {
    format!("{} ({})", fault.message, fault.side.name())
}

/// A percentage that the user or the design chose, rounded to a hundredth.
fn plain(value: f64) -> String {
    format!("{}{NBSP}%", (100.0 * value).round() / 100.0)
}

#[cfg(test)]
mod tests {
    use linerate_core::stats::MedianInterval;
    use linerate_core::stats::paired::ComparisonVerdict;

    use super::*;

    #[test]
    fn the_table_of_metrics_fits_80_columns_whatever_the_units() {
        let one = |low: f64, high: f64| {
            Figure::One(MedianInterval { median: low, low, high, coverage: 0.97, n: 8 })
        };
        let metric = |path: &str, a, b| ComparedMetric {
            metric: path.parse().expect("a path"),
            a,
            b,
            conclusion: MetricConclusion {
                verdict: ComparisonVerdict::Inconclusive,
                different: false,
                equivalent: false,
                effect_percent: 12.3,
                interval_percent: [-100.4, 123.4],
                confidence_percent: 95.0,
                look_confidence_percent: 98.0,
                pairs: 30,
            },
        };
        let rates = || one(998e6, 1.02e9);
        let demand = || one(12.34, 123.4);
        let metrics = [
            metric("throughput_bps", rates(), rates()),
            metric("receiver.service_demand_us_per_kib", demand(), demand()),
        ];
        let table = metric_table(&metrics);
        let layout = table.grid.layout(80, 0);
        assert_eq!(layout.left_out, 0);
        for line in &layout.rows {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(layout.rows[2].contains("1.02\u{a0}Gbit/s"), "{:?}", layout.rows);
    }
}

//! What figures that were measured elsewhere can say.

use linerate_core::analyze::{
    Analysis, ClaimVerdict, Contrast, Format, Group, Level, Overall, Setting, Source,
};
use linerate_core::ceilings::Cause;
use linerate_core::stats::Figure;

use super::Style;
use super::ceilings::cause_name;
use super::number::{NBSP, count, digits, rate};
use super::page::{Emphasis, Page};
use super::table::{Align, Table};
use crate::document::Document;

impl Document for Analysis {
    /// Each metric with its groups, then what the columns explain, what the reports said, what is
    /// doubtful.
    fn text(&self, style: Style) -> String {
        let mut page = Page::new(style);
        for source in &self.sources {
            page.paragraph(Emphasis::Strong, "", 2, &of_source(source));
        }
        for name in &self.metrics {
            metric(&mut page, self, name);
        }
        ceilings(&mut page, self);
        claims(&mut page, self);
        if !self.doubts.is_empty() {
            page.gap();
        }
        for doubt in &self.doubts {
            page.paragraph(Emphasis::Warning, "  !", 4, &doubt.message);
        }
        if !self.notes.is_empty() {
            page.gap();
        }
        for note in &self.notes {
            page.paragraph(Emphasis::None, "  -", 4, note);
        }
        page.finish()
    }
}

fn of_source(source: &Source) -> String {
    let format = match source.format {
        Format::Csv => "table",
        Format::Linerate => "linerate",
        Format::Iperf3 => "iperf3",
        Format::Netperf => "netperf",
        Format::Json => "JSON",
    };
    let label = if source.label == source.file {
        String::new()
    } else {
        format!(" ({})", source.label)
    };
    let rows = match source.rows {
        1 => "1 row".to_owned(),
        rows => format!("{} rows", count(rows as u64)),
    };
    format!("{}{label}: {format}, {rows}", source.file)
}

fn metric(page: &mut Page, analysis: &Analysis, name: &str) {
    let groups: Vec<&Group> = analysis
        .groups
        .iter()
        .filter(|group| group.metric == name)
        .collect();
    page.gap();
    page.paragraph(Emphasis::Strong, "", 2, &heading(analysis, name));
    let shown = &groups[..groups.len().min(MAX_GROUPS)];
    match analysis.factor {
        None => page.table(&figures(shown)),
        Some(_) => {
            page.table(&contrasts(shown));
            says(page, shown);
            let lone = groups
                .iter()
                .filter(|group| group.comparisons.is_empty())
                .count();
            if lone > 0 {
                let words = format!("{lone} groups have no level to compare with the first one");
                page.paragraph(Emphasis::None, "  -", 4, &words);
            }
        }
    }
    for overall in analysis
        .overall
        .iter()
        .filter(|overall| overall.metric == name)
    {
        page.paragraph(Emphasis::None, "  -", 4, &over_groups(overall));
    }
    if groups.len() > shown.len() {
        let words = format!("{} groups more, with --json", groups.len() - shown.len());
        page.paragraph(Emphasis::None, "  -", 4, &words);
    }
}

/// What is compared. Two levels are named here, and in no row then.
fn heading(analysis: &Analysis, name: &str) -> String {
    let by = if analysis.by.is_empty() {
        String::new()
    } else {
        format!(", for each {}", analysis.by.join(", "))
    };
    let Some(factor) = &analysis.factor else {
        return format!("{name}{by}");
    };
    let contrasts = analysis.groups.iter().flat_map(|group| &group.comparisons);
    let mut pairs: Vec<(&str, &str)> = contrasts.map(|c| (c.a.as_str(), c.b.as_str())).collect();
    pairs.sort_unstable();
    pairs.dedup();
    let levels = match pairs[..] {
        [(a, b)] => format!("a is {a}, b is {b}"),
        _ => "each level (b) against the first (a)".to_owned(),
    };
    format!(
        "{name} by {factor}{by}: {levels}. Not known to be paired and interleaved: an observation, no verdict"
    )
}

/// Without a factor: the figure of each group.
fn figures(groups: &[&Group]) -> Table {
    let mut table = Table::new(&[
        ("group", Align::Left),
        ("runs", Align::Right),
        ("median", Align::Right),
        ("interval", Align::Right),
        ("at %", Align::Right),
        ("mean", Align::Right),
    ]);
    for group in groups {
        for level in &group.levels {
            let write = writer(&group.metric);
            let median = level.median.filter(|median| median.n > 1);
            table.row([
                group_name(&group.settings),
                Some(count(level.runs as u64)),
                middle(level, write),
                median.map(|median| format!("{} to {}", write(median.low), write(median.high))),
                median.map(|median| format!("{:.0}", 100.0 * median.coverage)),
                // A mean between modes is as little a figure as a median.
                level.median.map(|_| write(level.mean)),
            ]);
        }
    }
    table
}

/// The median, or what stands in its place where there is no one figure.
fn middle(level: &Level, write: fn(f64) -> String) -> Option<String> {
    match (&level.median, &level.not_one_figure) {
        (Some(median), _) => Some(write(median.median)),
        (None, Some(Figure::Modes { modes })) => {
            let modes: Vec<String> = modes.iter().map(|mode| write(mode.median)).collect();
            Some(modes.join(&format!("{NBSP}/{NBSP}")))
        }
        (None, Some(Figure::Drift { from, to, .. })) => {
            Some(format!("{}{NBSP}→{NBSP}{}", write(*from), write(*to)))
        }
        (None, Some(Figure::One(_)) | None) => None,
    }
}

fn contrasts(groups: &[&Group]) -> Table {
    let mut table = Table::new(&[
        ("group", Align::Left),
        ("a", Align::Left),
        ("b", Align::Left),
        ("runs\na", Align::Right),
        ("\nb", Align::Right),
        ("median\na", Align::Right),
        ("\nb", Align::Right),
        ("\nb − a", Align::Right),
        ("\nb ÷ a", Align::Right),
        ("clock\nallows", Align::Right),
        ("effect\n%", Align::Right),
        ("interval\n%", Align::Right),
        ("\nat %", Align::Right),
        ("runs\nneeded", Align::Right),
    ]);
    let all = || groups.iter().flat_map(|group| &group.comparisons);
    let is_pair = all().all(|c| Some((&c.a, &c.b)) == all().next().map(|c| (&c.a, &c.b)));
    for group in groups {
        for contrast in &group.comparisons {
            let medians = [&contrast.a, &contrast.b].map(|name| {
                let level = group
                    .levels
                    .iter()
                    .find(|level| level.level.as_ref() == Some(name));
                level.and_then(|level| middle(level, writer(&group.metric)))
            });
            table.row(contrast_cells(group, contrast, medians, !is_pair));
        }
    }
    table
}

fn contrast_cells(
    group: &Group,
    contrast: &Contrast,
    medians: [Option<String>; 2],
    is_named: bool,
) -> [Option<String>; 14] {
    let [median_a, median_b] = medians;
    let range = |[low, high]: [f64; 2], write: fn(f64) -> String| {
        format!("{} to {}", write(low), write(high))
    };
    [
        group_name(&group.settings),
        is_named.then(|| contrast.a.clone()),
        is_named.then(|| contrast.b.clone()),
        Some(count(contrast.n_a as u64)),
        Some(count(contrast.n_b as u64)),
        median_a,
        median_b,
        Some(signed(contrast.difference, writer(&group.metric))),
        contrast.ratio.map(digits),
        contrast.ratio_by_clock.map(|ends| range(ends, digits)),
        contrast.effect_percent.map(signed_percent),
        contrast
            .interval_percent
            .map(|ends| range(ends, signed_percent)),
        contrast
            .confidence_percent
            .map(|percent| format!("{percent:.0}")),
        contrast.runs_needed.map(|runs| count(runs as u64)),
    ]
}

/// What so many runs show: each sentence once, with the groups that it is about.
fn says(page: &mut Page, groups: &[&Group]) {
    let mut sentences: Vec<(&str, Vec<String>)> = Vec::new();
    let mut contrasts = 0;
    for group in groups {
        for contrast in &group.comparisons {
            contrasts += 1;
            for sentence in &contrast.shows {
                let about = if group.settings.is_empty() {
                    contrast.b.clone()
                } else {
                    words(&group.settings)
                };
                match sentences.iter_mut().find(|(known, _)| known == sentence) {
                    Some((_, groups)) => groups.push(about),
                    None => sentences.push((sentence, vec![about])),
                }
            }
        }
    }
    let is_long = sentences.len() > MAX_SENTENCES;
    page.gap();
    for (sentence, about) in sentences {
        // In a long table the sentences of single rows repeat its figures.
        if is_long && about.len() == 1 {
            continue;
        }
        let of = match about.len() {
            all if all == contrasts => String::new(),
            few if few <= MAX_NAMED => format!("{}: ", about.join("; ")),
            many => format!("{many} of {contrasts}: "),
        };
        page.paragraph(Emphasis::None, "  -", 4, &format!("{of}{sentence}"));
    }
}

fn over_groups(overall: &Overall) -> String {
    let at = |settings: &[Setting]| words(settings);
    format!(
        "{} ÷ {} over {} groups: above 1 in {}, below 1 in {}; median {}, from {} at {} to {} at {}",
        overall.b,
        overall.a,
        overall.groups,
        overall.larger,
        overall.smaller,
        digits(overall.median_ratio),
        digits(overall.smallest.ratio),
        at(&overall.smallest.settings),
        digits(overall.largest.ratio),
        at(&overall.largest.settings)
    )
}

fn ceilings(page: &mut Page, analysis: &Analysis) {
    if analysis.ceilings.is_empty() {
        return;
    }
    page.gap();
    let heading = "What the columns of each row would let through, Mbit/s; the lowest explains a row that agrees with it";
    page.paragraph(Emphasis::Strong, "", 2, heading);
    let mut table = Table::new(&[
        ("row", Align::Left),
        ("receive\nwindow", Align::Right),
        ("congestion", Align::Right),
        ("pacing", Align::Right),
        ("path\nrate", Align::Right),
        ("measured", Align::Right),
        ("explained by", Align::Left),
    ]);
    let mbits = |bps: f64| digits(bps / 1e6);
    for row in analysis.ceilings.iter().take(MAX_GROUPS) {
        let limit = |cause| {
            let found = row.ceilings.iter().find(|ceiling| ceiling.cause == cause);
            found.map(|ceiling| mbits(ceiling.limit_bps))
        };
        table.row([
            Some(row.row.clone()),
            limit(Cause::ReceiveWindow),
            limit(Cause::Congestion),
            limit(Cause::Pacing),
            limit(Cause::PathRate),
            Some(mbits(row.throughput_bps)),
            Some(cause_name(row.explained_by).to_owned()),
        ]);
    }
    page.table(&table);
    let rows = analysis.ceilings.len();
    if rows > MAX_GROUPS {
        let words = format!("{} rows more, with --json", rows - MAX_GROUPS);
        page.paragraph(Emphasis::None, "  -", 4, &words);
    }
}

fn claims(page: &mut Page, analysis: &Analysis) {
    if analysis.claims.is_empty() {
        return;
    }
    page.gap();
    let agree = analysis
        .claims
        .iter()
        .filter(|claim| claim.verdict == ClaimVerdict::Agrees);
    let heading = format!(
        "What the report says, against its own rows: {} of {} agree",
        agree.count(),
        analysis.claims.len()
    );
    page.paragraph(Emphasis::Strong, "", 2, &heading);
    for claim in &analysis.claims {
        let (word, emphasis) = match claim.verdict {
            ClaimVerdict::Agrees => ("agrees", Emphasis::None),
            ClaimVerdict::Disagrees => ("disagrees", Emphasis::Warning),
            ClaimVerdict::OtherBase => ("wrong base", Emphasis::Warning),
            ClaimVerdict::WrongSign => ("wrong sign", Emphasis::Warning),
        };
        let says = format!("{}: {} {}", claim.says, claim.metric, claim.claimed);
        page.paragraph(emphasis, &format!("  {word}"), VERDICTS, &says);
        page.paragraph(Emphasis::None, "", VERDICTS, &claim.explanation);
    }
}

fn group_name(settings: &[Setting]) -> Option<String> {
    let values = settings.iter().map(|setting| setting.value.as_str());
    (!settings.is_empty()).then(|| values.collect::<Vec<_>>().join(", "))
}

fn words(settings: &[Setting]) -> String {
    let each = settings
        .iter()
        .map(|s| format!("{}{NBSP}{}", s.column, s.value));
    each.collect::<Vec<_>>().join(", ")
}

/// A figure of a metric: rates with their unit, others as the table has them.
fn writer(metric: &str) -> fn(f64) -> String {
    if metric.ends_with("_bps") || metric.ends_with("bits_per_second") {
        rate
    } else {
        digits
    }
}

/// With a sign, also where it is positive.
fn signed(value: f64, write: fn(f64) -> String) -> String {
    let text = write(value.abs());
    match value {
        0.0 => text,
        value if value < 0.0 => format!("−{text}"),
        _ => format!("+{text}"),
    }
}

fn signed_percent(percent: f64) -> String {
    signed(percent, digits)
}

/// Groups and rows that a terminal shows; the document has all.
const MAX_GROUPS: usize = 100;
/// Groups that a sentence names.
const MAX_NAMED: usize = 4;
/// With more, the sentences of single rows are left to the document.
const MAX_SENTENCES: usize = 14;
/// Columns of the verdicts beside the claims.
const VERDICTS: usize = 14;

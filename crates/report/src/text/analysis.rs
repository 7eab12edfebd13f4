//! The page of an analysis of figures that were measured elsewhere.

use linerate_core::analyze::{
    Analysis, ClaimResult, ClaimVerdict, Contrast, Format, Group, Level, Overall, RowCeilings,
    Setting, Source,
};
use linerate_core::ceilings::Cause;
use linerate_core::stats::Figure;

use super::number::{
    NBSP, counted, digits, grouped, if_known, joined, plural, rate, signed, some_joined,
};
use super::parts;
use crate::document::Document;
use crate::page::{Emphasis, Page, Table, table};

impl Document for Analysis {
    /// Each metric with its groups, then what the columns explain, what the reports said, what is
    /// doubtful.
    fn page(&self, page: &mut Page) {
        for source in &self.sources {
            page.verdict(&of_source(source));
        }
        for name in &self.metrics {
            metric(page, self, name);
        }
        ceilings(page, self);
        claims(page, self);
        page.gap();
        for doubt in &self.doubts {
            page.doubt(&doubt.message);
        }
        page.gap();
        self.notes.iter().for_each(|note| page.point(note));
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
    let (file, label) = (&source.file, &source.label);
    let named = if label == file { file.clone() } else { format!("{file} ({label})") };
    format!("{named}: {format}, {}", plural(source.rows as u64, "row"))
}

fn metric(page: &mut Page, analysis: &Analysis, name: &str) {
    let of_metric = analysis.groups.iter().filter(|group| group.metric == name);
    let groups: Vec<&Group> = of_metric.collect();
    page.gap();
    page.verdict(&heading(analysis, name));
    let shown = &groups[..groups.len().min(MAX_GROUPS)];
    match analysis.factor {
        None => page.table(&figures(shown)),
        Some(_) => {
            page.table(&contrasts(shown));
            says(page, shown);
            let lone = groups.iter().filter(|group| group.comparisons.is_empty());
            if let Some(lone) = counted(lone.count() as u64, "groups") {
                page.point(&format!("{lone} have no level to compare with the first one"));
            }
        }
    }
    let overall = analysis.overall.iter().filter(|all| all.metric == name);
    overall.for_each(|all| page.point(&over_groups(all)));
    page.left_out(groups.len() - shown.len(), "groups");
}

/// Says what is compared. If there are only two levels, they are named here and not in each row.
fn heading(analysis: &Analysis, name: &str) -> String {
    let by = if_known(some_joined(analysis.by.clone(), ", "), |by| format!(", for each {by}"));
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
        "{name} by {factor}{by}: {levels}. Not known to be paired and interleaved: an observation, \
         no verdict"
    )
}

/// The figure of each group, for an analysis without a factor.
fn figures<'a>(groups: &[&'a Group]) -> Table<(&'a Group, &'a Level)> {
    let of = |group: &'a Group| group.levels.iter().map(move |level| (group, level));
    let rows = groups.iter().copied().flat_map(of);
    let median = |level: &Level| level.median.filter(|median| median.n > 1);
    let interval = |(group, level): &(&Group, &Level)| {
        let [low, high] =
            median(level).map(|median| [median.low, median.high].map(writer(&group.metric)))?;
        Some(format!("{low} to {high}"))
    };
    let coverage = |(_, level): &(_, &Level)| Some(whole(100.0 * median(level)?.coverage));
    table! { rows, row @ (group, level) =>
        left "group" => group_name(&group.settings);
        right "runs" => level.runs as u64;
        right "median" => middle(level, writer(&group.metric));
        right "interval" => interval(row);
        right "at %" => coverage(row);
        // Where runs have several modes, the mean says as little as the median.
        right "mean" => level.median.map(|_| writer(&group.metric)(level.mean));
    }
}

/// The median, or what stands in its place where there is no one figure.
fn middle(level: &Level, write: fn(f64) -> String) -> Option<String> {
    let one = level.median.map(Figure::One);
    let figure = one.as_ref().or(level.not_one_figure.as_ref())?;
    Some(parts::middle(figure, write))
}

fn contrasts<'a>(groups: &[&'a Group]) -> Table<(&'a Group, &'a Contrast)> {
    let of = |group: &'a Group| group.comparisons.iter().map(move |one| (group, one));
    let rows: Vec<_> = groups.iter().copied().flat_map(of).collect();
    let pair = |at: usize| (&rows[at].1.a, &rows[at].1.b);
    let is_named = (1..rows.len()).any(|at| pair(at) != pair(0));
    let median = |group: &Group, name: &String| {
        let mut levels = group.levels.iter();
        let level = levels.find(|level| level.level.as_ref() == Some(name))?;
        middle(level, writer(&group.metric))
    };
    let range = |ends: Option<[f64; 2]>, write: fn(f64) -> String| {
        ends.map(|ends| ends.map(write).join(" to "))
    };
    table! { rows, (group, one) =>
        left "group" => group_name(&group.settings);
        left "a" => is_named.then(|| one.a.clone());
        left "b" => is_named.then(|| one.b.clone());
        right ["runs", "a"] => one.n_a as u64;
        right ["", "b"] => one.n_b as u64;
        right ["median", "a"] => median(group, &one.a);
        right ["", "b"] => median(group, &one.b);
        right ["", "b − a"] => signed(one.difference, writer(&group.metric));
        right ["", "b ÷ a"] => one.ratio.map(digits);
        right ["clock", "allows"] => range(one.ratio_by_clock, digits);
        right ["effect", "%"] => one.effect_percent.map(signed_percent);
        right ["interval", "%"] => range(one.interval_percent, signed_percent);
        right ["", "at %"] => one.confidence_percent.map(whole);
        right ["runs", "needed"] => one.runs_needed.map(|runs| runs as u64);
    }
}

/// Writes each conclusion once, with the groups that it holds for.
fn says(page: &mut Page, groups: &[&Group]) {
    let about = |group: &Group, contrast: &Contrast| match group.settings.is_empty() {
        true => contrast.b.clone(),
        false => words(&group.settings),
    };
    let of = |group: &&Group| group.comparisons.len();
    let contrasts: usize = groups.iter().map(of).sum();
    let pairs = groups.iter().flat_map(|group| {
        let contrasts = group.comparisons.iter();
        let shows = contrasts.flat_map(|of| of.shows.iter().map(move |sentence| (of, sentence)));
        shows.map(|(contrast, sentence)| (sentence, about(group, contrast)))
    });
    let sentences = grouped(pairs);
    let is_long = sentences.len() > MAX_SENTENCES;
    page.gap();
    for (sentence, about) in sentences {
        // In a long table, the conclusion on a single row only repeats its figures.
        if is_long && about.len() == 1 {
            continue;
        }
        let of = match about.len() {
            all if all == contrasts => String::new(),
            few if few <= MAX_NAMED => format!("{}: ", about.join("; ")),
            many => format!("{many} of {contrasts}: "),
        };
        page.point(&format!("{of}{sentence}"));
    }
}

fn over_groups(overall: &Overall) -> String {
    let Overall { a, b, groups, larger, smaller, .. } = overall;
    let median = digits(overall.median_ratio);
    let [from, to] = [&overall.smallest, &overall.largest]
        .map(|group| format!("{} at {}", digits(group.ratio), words(&group.settings)));
    format!(
        "{b} ÷ {a} over {groups} groups: above 1 in {larger}, below 1 in {smaller}; median \
         {median}, from {from} to {to}"
    )
}

fn ceilings(page: &mut Page, analysis: &Analysis) {
    if analysis.ceilings.is_empty() {
        return;
    }
    page.gap();
    let is_own = |source: &Source| source.format == Format::Linerate;
    let own = match analysis.sources.iter().any(is_own) {
        true => "; linerate's own records keep their verdict",
        false => "",
    };
    page.verdict(&format!(
        "What the columns of each row would let through, Mbit/s; the lowest explains a row that \
         agrees with it{own}"
    ));
    let mbits = |bps: f64| digits(bps / 1e6);
    let limit = |row: &RowCeilings, cause| {
        let found = row.ceilings.iter().find(|ceiling| ceiling.cause == cause)?;
        Some(mbits(found.limit_bps))
    };
    page.table(&table! { analysis.ceilings.iter().take(MAX_GROUPS), row =>
        left "row" => row.row.clone();
        right ["receive", "window"] => limit(row, Cause::ReceiveWindow);
        right "congestion" => limit(row, Cause::Congestion);
        right "pacing" => limit(row, Cause::Pacing);
        right ["path", "rate"] => limit(row, Cause::PathRate);
        right "measured" => mbits(row.throughput_bps);
        left "explained by" => row.explained_by.words();
    });
    page.left_out(analysis.ceilings.len().saturating_sub(MAX_GROUPS), "rows");
}

fn claims(page: &mut Page, analysis: &Analysis) {
    let claims = &analysis.claims;
    if claims.is_empty() {
        return;
    }
    page.gap();
    let is_agreed = |it: &&ClaimResult| it.verdict == ClaimVerdict::Agrees;
    let (agree, all) = (claims.iter().filter(is_agreed).count(), claims.len());
    page.verdict(&format!("What the report says, against its own rows: {agree} of {all} agree"));
    for claim in claims {
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
    some_joined(settings.iter().map(|setting| setting.value.clone()), ", ")
}

fn words(settings: &[Setting]) -> String {
    let each = |it: &Setting| format!("{}{NBSP}{}", it.column, it.value);
    joined(settings.iter().map(each), ", ")
}

/// How a figure of a metric is written: rates with their unit, others as digits.
fn writer(metric: &str) -> fn(f64) -> String {
    if metric.ends_with("_bps") || metric.ends_with("bits_per_second") { rate } else { digits }
}

fn signed_percent(percent: f64) -> String {
    signed(percent, digits)
}

fn whole(percent: f64) -> String {
    format!("{percent:.0}")
}

/// Maximum number of groups and rows on a page; the document has all.
const MAX_GROUPS: usize = 100;

/// Maximum number of groups that a sentence names.
const MAX_NAMED: usize = 4;

/// With more conclusions, those on single rows are left to the document.
const MAX_SENTENCES: usize = 14;

/// Width of the column of verdicts.
const VERDICTS: usize = 14;

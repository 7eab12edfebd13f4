//! Parts that pages share: ceilings and verdicts, caveats, figures over repeats, the way of a test,
//! latencies.

use std::iter::repeat;
use std::net::{IpAddr, SocketAddr};

use linerate_core::ceilings::{Cause, Ceiling, Verdict};
use linerate_core::one_way::ClockOffset;
use linerate_core::plan::{Direction, Protocol, Workload};
use linerate_core::proof::{intervention, words};
use linerate_core::qoo::Outcome;
use linerate_core::record::{
    Caveat, CaveatKind, CaveatRemedy, ChangeResult, Environment, Leg, Proof, ProofDoubt,
    ProofLevel, Record,
};
use linerate_core::remedy::Remedy;
use linerate_core::stats::{CONFIDENCE, Figure, LatencySummary, MedianInterval};
use linerate_core::video::Playback;

use super::number::{
    NBSP, bar, counted, ends, grouped, if_known, joined, micros, named, percent, plural, rate,
    ratio, seconds, some_joined, span, sure, with_unit,
};
use crate::charts;
use crate::document::Document;
use crate::page::{MARGIN, Page, table};

/// Writes a table of the lowest `most` ceilings, with the measured rate as a share of each.
pub(super) fn ceilings(
    page: &mut Page,
    ceilings: &[Ceiling],
    measured_bps: Option<f64>,
    most: usize,
) {
    let shown = &ceilings[..ceilings.len().min(most)];
    page.table(&table! { shown, ceiling =>
        left "" => if ceiling.independent { " " } else { "*" };
        left "ceiling" => ceiling.cause.words();
        right "limit" => rate(ceiling.limit_bps);
        right "reached" => percent(
            100.0 * share_of(measured_bps, ceiling).filter(|_| ceiling.independent)?
        );
        left "formula" => ceiling.formula.clone();
    });
    let is_derived = shown.iter().any(|ceiling| !ceiling.independent);
    let derived = is_derived.then(|| "* derived from the measured rate; cannot confirm".to_owned());
    let others = counted((ceilings.len() - shown.len()) as u64, "higher left out");
    page.indented(&joined([derived, others], "; "));
}

/// The measured rate as a share of a ceiling.
fn share_of(measured_bps: Option<f64>, ceiling: &Ceiling) -> Option<f64> {
    let measured = measured_bps.filter(|_| ceiling.limit_bps > 0.0)?;
    Some(measured / ceiling.limit_bps)
}

/// Writes the verdict of a direction as a sentence, its evidence, and the remedy as a command.
///
/// `direction` is given where there are several. Without details, one sentence of evidence is
/// enough.
pub(super) fn verdict(page: &mut Page, direction: Option<Direction>, leg: &Leg) {
    let Some(verdict) = &leg.verdict else { return };
    let subject = match direction {
        Some(Direction::Up) => "Bottleneck up",
        Some(Direction::Down) => "Bottleneck down",
        Some(Direction::Both) | None => "Bottleneck",
    };
    let sentence = verdict_sentence(subject, verdict, leg);
    page.verdict(&sentence);
    let few = if direction.is_some() { 0 } else { 1 };
    let most = if page.has_details() { usize::MAX } else { few };
    page.evidence(verdict.evidence.iter().take(most));
    if let Some(remedy) = &verdict.remedy {
        let promise = remedy_promise(verdict, remedy, leg.throughput_bps);
        page.plain(&format!("  {promise}"));
        // The promise says the reason.
        page.command(&remedy.line.with_reason(""));
    }
    if verdict.proof.is_none() {
        runner_up(page, verdict);
    }
    if page.has_details() {
        changes(page, verdict, leg);
    }
}

/// Writes what each change brought, beside what the cause and its nearest rival predict.
pub(super) fn changes(page: &mut Page, verdict: &Verdict, leg: &Leg) {
    let cause = verdict.cause;
    let rival = |of: &ChangeResult| {
        let others = of.predicted.iter().filter(|(other, _)| **other != cause);
        let far = |ratio: &f64| (ratio / of.ratio).ln().abs();
        others.max_by(|a, b| far(a.1).total_cmp(&far(b.1))).map(|(rival, ratio)| (*rival, *ratio))
    };
    page.table(&table! { &leg.experiments, change =>
        left "change" => in_words(change);
        right "rate ×" => ratio(change.ratio);
        left ["", "95 %"] => joined(change.interval.map(|end| Some(ratio(end))), "–");
        right "runs" => u64::from(change.runs);
        right ["predicted", "by it"] => change.predicted.get(&cause).copied().map(ratio);
        left ["else", ""] =>
            rival(change).map(|(rival, it)| format!("{} by {}", ratio(it), rival.words()));
    });
    let not_made = leg
        .experiments_not_made
        .iter()
        .filter_map(|not| Some(format!("{}: {}", intervention(&not.change)?.words, not.why)));
    page.facts("not made", not_made.map(Some));
}

/// Writes the second most likely cause, and the run that would tell both apart: with the details,
/// and where the bottleneck is unexplained.
fn runner_up(page: &mut Page, verdict: &Verdict) {
    let is_unexplained = verdict.cause == Cause::Unexplained;
    let is_shown = page.has_details() || is_unexplained;
    let Some(next) = verdict.runner_up.as_ref().filter(|_| is_shown) else {
        return;
    };
    let words = match (is_unexplained, next.cause) {
        (true, Cause::Unexplained) => "The run that would tell more:".to_owned(),
        (true, cause) => format!("Nearest: {}; the run that would decide:", cause.words()),
        (false, Cause::Unexplained) => "The run that would confirm it:".to_owned(),
        (false, cause) => format!("Else: {}; the run that tells them apart:", cause.words()),
    };
    page.plain(&format!("  {words}"));
    page.command(&next.tell_apart.command);
}

/// Draws the lowest ceilings, one of each cause, as bars. A ceiling that is derived from the
/// measured rate is left out, unless it is the verdict's, which is the last to be spared: it has no
/// bar, which would look like a confirmation.
pub(super) fn bars(page: &mut Page, leg: &Leg) {
    if page.has_pictures() {
        return;
    }
    let found = leg.verdict.as_ref().map(|verdict| verdict.cause);
    let is_found = |ceiling: &&Ceiling| Some(ceiling.cause) == found;
    let mut lowest = charts::lowest(&leg.ceilings, |it| it.independent || is_found(&it));
    let at = lowest.iter().position(is_found);
    if let Some(at) = at.filter(|at| *at >= MAX_BARS) {
        lowest.swap(at, MAX_BARS - 1);
    }
    lowest.truncate(MAX_BARS);
    let first = at.map_or(1, |_| 2);
    let rest = lowest.iter().filter(|ceiling| !is_found(ceiling));
    let others: Vec<Cause> = rest.map(|ceiling| ceiling.cause).collect();
    let rank = |cause| others.iter().position(|other| *other == cause);
    let share = |ceiling: &Ceiling| share_of(leg.throughput_bps, ceiling);
    let bars = table! { lowest, ceiling =>
        left "" => ceiling.cause.words();
        right "" => rate(ceiling.limit_bps);
        left "" => if ceiling.independent {
            share(ceiling).map(bar)
        } else {
            Some(DERIVED.to_owned())
        };
        right "" => if ceiling.independent {
            percent(100.0 * share(ceiling)?)
        } else {
            String::new()
        };
    };
    page.table(&bars.spare_rows(|one| rank(one.cause).map_or(1, |place| place as u8 + first)));
}

/// In place of the bar of a ceiling that is derived from the measured rate.
const DERIVED: &str = "from the measured rate";

/// Maximum number of ceilings that are drawn.
const MAX_BARS: usize = 3;

/// How sure a verdict is: by changes, if any were made, else by its confidence.
fn how_sure(verdict: &Verdict) -> String {
    match &verdict.proof {
        Some(proof) if proof.level == ProofLevel::Open => String::new(),
        Some(proof) => format!(", {}", proof.level.word()),
        None => sure(verdict.confidence),
    }
}

/// `twice the window gave 1.90 of the rate, twice the flows 1.93`: the changes that tell most of
/// the cause, first those that the rate follows.
fn shown_by(verdict: &Verdict, leg: &Leg) -> Option<String> {
    let mut told: Vec<(&ChangeResult, f64)> = leg
        .experiments
        .iter()
        .filter_map(|change| Some((change, change.tells(verdict.cause)?)))
        .filter(|(_, tells)| *tells > 0.0)
        .collect();
    let follows = |change: &ChangeResult| change.follows(verdict.cause);
    told.sort_by(|a, b| follows(b.0).cmp(&follows(a.0)).then(b.1.total_cmp(&a.1)));
    let mut changes = told.iter().take(MAX_CHANGES).enumerate().map(|(at, (change, _))| {
        let gave = if at == 0 { " gave" } else { "" };
        let unit = if at == 0 { " of the rate" } else { "" };
        format!("{}{gave} {}{unit}", in_words(change), ratio(change.ratio))
    });
    let first = changes.next()?;
    Some(changes.fold(first, |all, next| format!("{all}, {next}")))
}

/// `twice the flows`; of a window what the sender has seen of it, as it is not always what was
/// asked for.
fn in_words(change: &ChangeResult) -> String {
    match change.window_ratio {
        Some(times) if !(1.95..2.05).contains(&times) => format!("{times:.1} of the window"),
        _ => words(&change.change).to_owned(),
    }
}

/// Changes that a verdict's sentence names.
const MAX_CHANGES: usize = 2;

/// `open. Ruled out: receive window, send buffer`, and why nothing is proved.
fn open(proof: &Proof) -> String {
    let doubt = match proof.doubt {
        Some(ProofDoubt::Drift) => ": the path changed meanwhile",
        Some(ProofDoubt::Scatter) => ": equal runs differ too much",
        None => "",
    };
    let names = proof.ruled_out.iter().map(|out| out.cause.words().to_owned());
    let out = some_joined(names.map(Some), ", ").map(|names| format!(". Ruled out: {names}"));
    format!("open{doubt}{}", out.unwrap_or_default())
}

/// `receive window, proved: twice the window gave 1.90 of the rate`; `None` where no change was
/// made.
fn proved(verdict: &Verdict, leg: &Leg) -> Option<String> {
    let proof = verdict.proof.as_ref()?;
    let shown = shown_by(verdict, leg).filter(|_| proof.level != ProofLevel::Open);
    Some(format!("{}{}", concluded(proof), if_known(shown, |shown| format!(": {shown}"))))
}

/// `receive window, proved`
pub(super) fn concluded(proof: &Proof) -> String {
    let names: Vec<&str> = proof.causes.iter().map(|cause| cause.words()).collect();
    match proof.level {
        ProofLevel::Open => open(proof),
        level => format!("{}, {}", names.join(" and "), level.word()),
    }
}

/// What changes of a document's runs have shown to limit the path, each direction where there are
/// several: `up receive window, proved: …; down open`. `None` where no change was made.
pub fn proofs(document: &dyn Document) -> Option<String> {
    let records = document.records()?;
    let legs = records.iter().flat_map(|record| &record.legs);
    let said = legs.filter_map(|leg| Some((leg.direction, proved(leg.verdict.as_ref()?, leg)?)));
    match &said.collect::<Vec<_>>()[..] {
        [(_, only)] => Some(only.clone()),
        all => {
            some_joined(all.iter().map(|(way, says)| Some(format!("{} {says}", way.word()))), "; ")
        }
    }
}

fn verdict_sentence(subject: &str, verdict: &Verdict, leg: &Leg) -> String {
    if let Some(proved) = proved(verdict, leg) {
        return format!("{subject}: {proved}.");
    }
    let says = match verdict.cause {
        Cause::Unexplained => {
            "unexplained. No cause has both the kernel's evidence and a ceiling that agrees"
                .to_owned()
        }
        Cause::AsAsked => "none. The sender kept to the rate that was asked for".to_owned(),
        cause => format!("{}{}", cause.words(), how_sure(verdict)),
    };
    // A ceiling that is derived from the measured rate is always reached.
    let ceiling = verdicts_ceiling(verdict, leg).filter(|ceiling| ceiling.independent);
    let is_plain = matches!(verdict.cause, Cause::Unexplained | Cause::AsAsked);
    let share = ceiling.zip(verdict.share_of_ceiling).filter(|_| !is_plain);
    let reached = if_known(share, |(ceiling, share)| {
        let (share, limit) = (percent(100.0 * share), rate(ceiling.limit_bps));
        format!(", at {share} of its ceiling of {limit}")
    });
    format!("{subject}: {says}{reached}.")
}

/// The ceiling that the verdict's share refers to, among those of its cause.
fn verdicts_ceiling<'a>(verdict: &Verdict, leg: &'a Leg) -> Option<&'a Ceiling> {
    let limit_bps = leg.throughput_bps? / verdict.share_of_ceiling?;
    let off = |ceiling: &Ceiling| (ceiling.limit_bps / limit_bps).ln().abs();
    let of_cause = leg.ceilings.iter().filter(|it| it.cause == verdict.cause);
    of_cause.min_by(|a, b| off(a).total_cmp(&off(b)))
}

/// What a remedy brings, and what else is to be said of it.
fn remedy_promise(verdict: &Verdict, remedy: &Remedy, measured_bps: Option<f64>) -> String {
    let (how, then_bps) = match verdict.remedied_bps {
        Some(then) => ("measured", Some(then)),
        None => ("expected", verdict.predicted_bps),
    };
    let expected = then_bps.map(rate);
    if let (Some(asked), Some(Cause::AsAsked)) = (&expected, verdict.next_cause) {
        return format!("Remedy (expected: the {asked} asked for):");
    }
    let reason = (!remedy.reason.is_empty()).then(|| remedy.reason.clone());
    let expected = expected.map(|then| match measured_bps.map(rate) {
        Some(now) => format!("{how}: {}", span(&now, &then, "→")),
        None => format!("{how}: {then}"),
    });
    let next = named("next:", verdict.next_cause, |next| next.words().to_owned());
    let facts = some_joined([expected, next, reason], "; ");
    facts.map_or("Remedy:".to_owned(), |facts| format!("Remedy ({facts}):"))
}

/// The figure of a run: its throughput, or its exchanges per second.
pub(super) fn single_figure(record: &Record) -> String {
    let per_second = match record.workload {
        Workload::Stream => None,
        Workload::Rr => record.transactions_per_s.map(|n| with_unit(n, "trans/s")),
        Workload::Crr => record.connections_per_s.map(|n| with_unit(n, "conn/s")),
    };
    let figure = per_second.or_else(|| record.throughput_bps().map(rate));
    figure.unwrap_or_else(|| "no figure".to_owned())
}

/// `bottleneck up: receive window, 97 % sure`
pub(super) fn held(direction: &str, leg: &Leg) -> Option<String> {
    let verdict = leg.verdict.as_ref()?;
    let sure = how_sure(verdict);
    let cause = match verdict.cause {
        Cause::AsAsked => "none, it kept to the rate asked for",
        cause => cause.words(),
    };
    let space = if direction.is_empty() { "" } else { " " };
    Some(format!("bottleneck{space}{direction}: {cause}{sure}"))
}

/// Writes caveats, each with its remedy on a line of its own. Without details, only those that
/// change how the figures are to be read, and the number of the others.
pub(super) fn caveats<'a>(page: &mut Page, caveats: impl IntoIterator<Item = &'a Caveat>) {
    let mut all: Vec<&Caveat> = Vec::new();
    for caveat in caveats {
        if !all.contains(&caveat) {
            all.push(caveat);
        }
    }
    let number = all.len();
    if !page.has_details() {
        all.retain(|caveat| changes_the_reading(caveat.kind));
        all.truncate(MAX_CAVEATS);
    }
    page.gap();
    for caveat in &all {
        page.doubt(&caveat.says());
        match &caveat.remedy {
            CaveatRemedy::Command(command) => page.command(command),
            CaveatRemedy::Words(words) if words.is_empty() => {}
            CaveatRemedy::Words(words) => page.reason(words),
        }
    }
    let others = (number - all.len()) as u64;
    if others > 0 {
        let notes = if all.is_empty() { "note" } else { "more note" };
        let place = page.place_of_evidence();
        page.plain(&format!("  {}: {place}", plural(others, notes)));
    }
}

/// Maximum number of caveats without details.
const MAX_CAVEATS: usize = 2;

/// Whether a caveat changes how figures are to be read; the other kinds say where figures are from.
fn changes_the_reading(kind: CaveatKind) -> bool {
    !matches!(
        kind,
        CaveatKind::SharedKernel
            | CaveatKind::Discarded
            | CaveatKind::FewRuns
            | CaveatKind::NotReadable
            | CaveatKind::LocalPath
            | CaveatKind::IdleSpinners
    )
}

/// The figure with `write` as the way to write one of its values: the median with its interval, or,
/// where one figure would mislead, the modes or the drift.
pub(super) fn figure(figure: &Figure, write: impl Fn(f64) -> String) -> String {
    match figure {
        Figure::One(one) if one.n == 1 => {
            format!("{} in one run, its spread is not known", write(one.median))
        }
        Figure::One(one) => {
            let lacks = if one.takes_independence() { "few" } else { "alike" };
            let few = match one.reaches_confidence() {
                true => String::new(),
                false => format!(", too {lacks} for {:.0}{NBSP}%", CONFIDENCE * 100.0),
            };
            let (median, n, level) = (write(one.median), one.n, confidence(one));
            let interval = span(&write(one.low), &write(one.high), "–");
            format!("{median} [{interval}], median of {n} runs ({level}{few})")
        }
        Figure::Modes { modes } => {
            let mode = modes.iter().map(|it| format!("{} ({} runs)", write(it.median), it.n));
            format!("not one figure: groups of runs at {}", joined(mode, " and "))
        }
        Figure::Drift { from, to, .. } => {
            let [from, to] = [*from, *to].map(write);
            format!("not one figure: it changes with time from {from} to {to}")
        }
    }
}

/// What an interval holds the median with; of runs that are too few to show it, if each is
/// independent of those before it: a whole percent says enough of that.
pub(super) fn confidence(interval: &MedianInterval) -> String {
    let percent = 100.0 * interval.coverage;
    match interval.takes_independence() {
        true => format!("{percent:.0}{NBSP}% if independent"),
        false => format!("{percent:.1}{NBSP}% confidence"),
    }
}

/// The median, or what stands in its place where there is no one figure: `modes / modes`,
/// `from → to`.
pub(super) fn middle(figure: &Figure, write: impl Fn(f64) -> String) -> String {
    match figure {
        Figure::One(one) => write(one.median),
        Figure::Modes { modes } => joined(modes.iter().map(|mode| write(mode.median)), MODES),
        Figure::Drift { from, to, .. } => format!("{}{DRIFT}{}", write(*from), write(*to)),
    }
}

/// Separators between modes, and between the ends of a drift.
pub(super) const MODES: &str = "\u{a0}/\u{a0}";

pub(super) const DRIFT: &str = "\u{a0}→\u{a0}";

/// `endpoint's clock 1.20 s ahead ± 10.0 ms, drift 3.1 ppm (-1.0 to 5.2)`
pub(super) fn clock(clock: &ClockOffset) -> String {
    let is_behind = clock.offset_us < 0.0;
    let place = if is_behind { "behind" } else { "ahead" };
    let [offset, error] = [clock.offset_us.abs(), clock.offset_error_us].map(micros);
    let [drift, min, max] = [clock.drift_ppm, clock.drift_min_ppm, clock.drift_max_ppm];
    format!(
        "endpoint's clock {offset} {place} ± {error}, drift {drift:.1} ppm ({min:.1} to {max:.1})"
    )
}

/// Writes the specification of an emulated path.
pub(super) fn emulated(page: &mut Page, environment: &Environment) {
    let Some(lab) = &environment.lab else { return };
    let room = page.columns().saturating_sub(MARGIN);
    let mut lines = vec![String::new()];
    // The specification has no blank to break at.
    for entry in lab.spec.split_inclusive(',') {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() || line.chars().count() + entry.chars().count() <= room {
            line.push_str(entry);
        } else {
            lines.push(entry.to_owned());
        }
    }
    for (label, line) in ["emulated"].into_iter().chain(repeat("")).zip(lines) {
        page.entry(label, &line);
    }
}

/// `TCP up to pit.example (198.18.0.2:5201)`; with another tool at the other end `…:5201, iperf3)`,
/// and where that was the client `…:5201), for iperf3`.
pub(super) fn traffic_and_peer(record: &Record) -> String {
    let protocol = protocol_name(record.protocol);
    let what = match record.workload {
        Workload::Stream => format!("{protocol} {}", towards(record.direction)),
        Workload::Rr => format!("{protocol} requests to"),
        Workload::Crr => format!("{protocol} connections to"),
    };
    let tool = record.via.map(|tool| tool.to_string());
    let (client, server) = if record.served { (tool, None) } else { (None, tool) };
    let to = destination(&record.host, &record.peer, server);
    let client = client.map(|tool| format!("for {tool}"));
    let dscp = named("DSCP", record.plan.options.dscp, |dscp| dscp.to_string());
    joined([Some(format!("{what} {to}")), client, dscp], ", ")
}

/// `pit.example (198.18.0.2:5201)`, or the address alone if that is the host's name; `beside` is
/// added within the brackets.
pub(super) fn destination(host: &str, peer: &str, beside: Option<String>) -> String {
    let address: Option<SocketAddr> = peer.parse().ok();
    let named: Option<IpAddr> = host.parse().ok();
    let (name, peer) = match named {
        _ if peer.is_empty() || peer == host => (host, None),
        Some(named) if Some(named) == address.map(|peer| peer.ip()) => (peer, None),
        _ => (host, Some(peer.to_owned())),
    };
    let beside = some_joined([peer, beside], ", ");
    beside.map_or(name.to_owned(), |beside| format!("{name} ({beside})"))
}

pub(super) fn workload_name(workload: Workload) -> &'static str {
    match workload {
        Workload::Stream => "stream",
        Workload::Rr => "request/response",
        Workload::Crr => "connect/request/response",
    }
}

pub(super) fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Mptcp => "MPTCP",
    }
}

/// The direction of the payload, seen from the client.
pub(super) fn towards(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "up to",
        Direction::Down => "down from",
        Direction::Both => "up and down, with",
    }
}

/// Writes a table of the latency summaries that are there.
pub(super) fn latencies<'a>(
    page: &mut Page,
    rows: impl IntoIterator<Item = (&'a str, Option<&'a LatencySummary>)>,
) {
    let known_rows = rows.into_iter().filter_map(|(name, latency)| Some((name, latency?)));
    // With fewer samples than this, a quantile would only repeat the maximum.
    let known = |us: f64, count: u64, one_in: u64| (count >= one_in).then(|| micros(us));
    page.gap();
    page.table(&table! { known_rows, (name, all) =>
        left "" => *name;
        right @1 "min" => micros(all.min);
        right @2 "mean" => micros(all.mean);
        right "p50" => micros(all.p50);
        right "p90" => known(all.p90, all.count, 10);
        right "p99" => known(all.p99, all.count, 100);
        right @3 "p99.9" => known(all.p999, all.count, 1000);
        right "max" => micros(all.max);
        right "count" => all.count;
    });
}

/// `voice call 100, game 63 of 100`: the Quality of Outcome of each application, of several lists
/// the least.
pub(super) fn qoo<'a>(lists: impl IntoIterator<Item = &'a Vec<Outcome>>) -> Option<String> {
    let all = lists.into_iter().flatten().map(|one| (one.application.as_str(), one.score_percent));
    let scores = grouped(all).into_iter().map(|(application, scores)| {
        let [least, _] = ends(scores);
        Some(format!("{application} {least:.0}"))
    });
    some_joined(scores, ", ").map(|scores| format!("{scores} of 100"))
}

/// `video of 5.2 Mbit/s, 3 rate changes, 1 stall (2.1 s)`
pub(super) fn video(video: &Playback) -> [String; 4] {
    let stalls = match video.stalls {
        0 => "no stall".to_owned(),
        stalls => format!("{} ({})", plural(stalls, "stall"), seconds(video.stalled_s)),
    };
    [
        format!("video of {}", rate(video.mean_bps)),
        plural(video.switches, "rate change"),
        stalls,
        format!("first chunk after {}", seconds(video.startup_s)),
    ]
}

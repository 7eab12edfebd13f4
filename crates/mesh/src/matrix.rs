//! The last result of each pair of sites as a document, `linerate.matrix/1`, and the sites,
//! directions of a site and groups that explain bad pairs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use linerate_core::record::{Cause, Proof};
use linerate_core::stats::{median, two_sided_normal};
use linerate_core::units::parse_rfc3339;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with_macros::skip_serializing_none;

use crate::plan::Mesh;

/// The value of the document's key `schema`.
pub const MATRIX_SCHEMA: &str = "linerate.matrix/1";

/// The last result of each pair of sites, the medians of each site, and the sites and groups that
/// explain bad pairs.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MatrixDocument {
    /// [`MATRIX_SCHEMA`].
    pub schema: String,
    /// Results up to this time count, RFC 3339.
    pub until: String,
    /// Name of the test.
    pub test: String,
    /// All sites, in the order of the mesh's file.
    pub sites: Vec<MatrixSite>,
    /// The last result of each ordered pair that has one.
    pub cells: Vec<MatrixCell>,
    /// Number of ordered pairs without a result.
    pub missing_pairs: u64,
    /// The only site that all of several missing pairs have.
    pub missing_site: Option<String>,
    /// Number of pairs that each cause holds back, the largest first.
    pub causes: Vec<CauseCount>,
    /// The sites, directions of sites and groups that explain bad pairs, the surest first. For each
    /// metric the probability that chance alone names one is at most 5 %.
    pub suspects: Vec<Suspect>,
}

/// A site of the matrix.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MatrixSite {
    /// Its name.
    pub name: String,
    /// Groups that it shares with other sites.
    pub groups: Vec<String>,
    /// Median throughput from it to the other sites, bits per second.
    pub median_out_bps: Option<f64>,
    /// Median throughput from the other sites to it, bits per second.
    pub median_in_bps: Option<f64>,
    /// Median round-trip time to and from the other sites, µs.
    pub median_rtt_us: Option<f64>,
}

/// A result of an ordered pair.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MatrixCell {
    /// Index in `sites` of the sending site, from 0.
    pub from: u32,
    /// Index in `sites` of the receiving site.
    pub to: u32,
    /// When the test began, RFC 3339.
    #[serde(deserialize_with = "linerate_core::units::deserialize_rfc3339")]
    pub started_at: String,
    /// Payload that the receiver counted, bits per second.
    pub throughput_bps: Option<f64>,
    /// Share of what was sent that was lost or retransmitted, per cent.
    pub loss_percent: Option<f64>,
    /// Round trip, µs.
    pub rtt_us: Option<f64>,
    /// The cause that holds the pair back.
    pub cause: Option<Cause>,
    /// Confidence in the cause, 0–1.
    pub confidence: Option<f64>,
}

/// Number of pairs that a cause holds back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CauseCount {
    /// The cause.
    pub cause: Cause,
    /// Number of ordered pairs.
    pub pairs: u64,
}

impl MatrixDocument {
    /// The matrix of one test of a mesh, from results in any order, of which the last one of each
    /// pair until the moment `until` counts. A result from the future, which a clock that was ahead
    /// has left, hides no later one, and one without a time does not count.
    pub fn new(
        mesh: &Mesh,
        test: usize,
        until: &str,
        results: impl IntoIterator<Item = MatrixCell>,
    ) -> Self {
        let until_at = parse_rfc3339(until).ok();
        let mut last: BTreeMap<(u32, u32), (SystemTime, MatrixCell)> = BTreeMap::new();
        for result in results {
            let pair = (result.from, result.to);
            let Ok(at) = parse_rfc3339(&result.started_at) else {
                continue;
            };
            let is_future = until_at.is_some_and(|until| at > until);
            let is_older = last.get(&pair).is_some_and(|(known, _)| *known > at);
            if pair.0 != pair.1 && !is_future && !is_older {
                last.insert(pair, (at, result));
            }
        }
        let cells: Vec<MatrixCell> = last.into_values().map(|(_, cell)| cell).collect();
        let missing = missing(&mesh.tests[test].sites, &cells);
        let mut document = Self {
            schema: MATRIX_SCHEMA.to_owned(),
            until: until.to_owned(),
            test: mesh.tests[test].name.clone(),
            sites: Vec::from_iter(
                (0..mesh.sites.len()).map(|at| MatrixSite::new(mesh, at, &cells)),
            ),
            missing_pairs: missing.len() as u64,
            missing_site: only_site(&missing).map(|site| mesh.sites[site].name.clone()),
            causes: causes(&cells),
            suspects: Vec::new(),
            cells,
        };
        document.suspects = suspects(&document);
        document
    }

    /// Computes anew which sites and groups explain the bad pairs. What is proved of them stays.
    pub fn explain(&mut self) {
        let mut suspects = suspects(self);
        for suspect in &mut suspects {
            let known = self.suspects.iter().find(|it| it.label() == suspect.label());
            suspect.proof = known.and_then(|it| it.proof.clone());
        }
        self.suspects = suspects;
    }

    /// The one site that all pairs slower than half of the fastest have, and no other pair has,
    /// with their number. Of a few sites that may be chance, and makes no suspect.
    pub fn slow_site(&self) -> Option<(&str, u64)> {
        let slowest = self.slowest();
        let least = slowest.last()?.throughput_bps? / 2.0;
        let is_slow = |cell: &&MatrixCell| cell.throughput_bps.is_some_and(|bps| bps < least);
        let (slow, others): (Vec<_>, Vec<_>) = slowest.into_iter().partition(is_slow);
        let ends = |cell: &&MatrixCell| (cell.from as usize, cell.to as usize);
        let site = only_site(&slow.iter().map(ends).collect::<Vec<_>>())?;
        let has = |cell: &&MatrixCell| [cell.from as usize, cell.to as usize].contains(&site);
        let is_apart = !others.is_empty() && !others.iter().any(has);
        is_apart.then(|| (self.name(site as u32), slow.len() as u64))
    }

    /// The cells with a throughput, the slowest first.
    pub fn slowest(&self) -> Vec<&MatrixCell> {
        let mut cells: Vec<&MatrixCell> = self.cells.iter().collect();
        cells.retain(|cell| cell.throughput_bps.is_some());
        let rate = |cell: &&MatrixCell| cell.throughput_bps.unwrap_or(0.0);
        cells.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
        cells
    }

    /// The cells, the worst first: the slowest, or those with the longest round trip if the test
    /// measures no throughput.
    pub fn worst(&self) -> Vec<&MatrixCell> {
        let slowest = self.slowest();
        if !slowest.is_empty() {
            return slowest;
        }
        let mut cells: Vec<&MatrixCell> = self.cells.iter().collect();
        let rtt = |cell: &&MatrixCell| cell.rtt_us.unwrap_or(0.0);
        cells.sort_by(|a, b| rtt(b).total_cmp(&rtt(a)));
        cells
    }

    /// The name of a site by its index.
    pub fn name(&self, site: u32) -> &str {
        self.sites.get(site as usize).map_or("?", |it| &it.name)
    }
}

/// The ordered pairs of these sites without a result.
fn missing(sites: &[usize], cells: &[MatrixCell]) -> Vec<(usize, usize)> {
    let known: BTreeSet<(usize, usize)> =
        cells.iter().map(|cell| (cell.from as usize, cell.to as usize)).collect();
    let pairs = sites.iter().flat_map(|from| sites.iter().map(move |to| (*from, *to)));
    pairs.filter(|pair| pair.0 != pair.1 && !known.contains(pair)).collect()
}

/// The site that all of several pairs have, if it is one alone.
fn only_site(pairs: &[(usize, usize)]) -> Option<usize> {
    let (first, rest) = pairs.split_first()?;
    let is_in_all = |site: &usize| rest.iter().all(|pair| [pair.0, pair.1].contains(site));
    let all: Vec<usize> = [first.0, first.1].into_iter().filter(is_in_all).collect();
    all.first().copied().filter(|_| all.len() == 1 && !rest.is_empty())
}

impl MatrixSite {
    fn new(mesh: &Mesh, at: usize, cells: &[MatrixCell]) -> Self {
        let site = &mesh.sites[at];
        let median_of = |of: &dyn Fn(&MatrixCell) -> Option<f64>| {
            let values: Vec<f64> = cells.iter().filter_map(of).collect();
            (!values.is_empty()).then(|| median(&values))
        };
        let is = |index: u32| index as usize == at;
        let groups = site.groups.iter();
        Self {
            name: site.name.clone(),
            groups: groups.map(|it| mesh.groups[*it].name.clone()).collect(),
            median_out_bps: median_of(&|cell| cell.throughput_bps.filter(|_| is(cell.from))),
            median_in_bps: median_of(&|cell| cell.throughput_bps.filter(|_| is(cell.to))),
            median_rtt_us: median_of(&|cell| cell.rtt_us.filter(|_| is(cell.from) || is(cell.to))),
        }
    }
}

fn causes(cells: &[MatrixCell]) -> Vec<CauseCount> {
    let mut counts: Vec<CauseCount> = Vec::new();
    for cause in cells.iter().filter_map(|cell| cell.cause) {
        match counts.iter_mut().find(|count| count.cause == cause) {
            Some(count) => count.pairs += 1,
            None => counts.push(CauseCount { cause, pairs: 1 }),
        }
    }
    counts.sort_by_key(|count| std::cmp::Reverse(count.pairs));
    counts
}

// Suspects: what explains bad pairs.

/// A site, direction of a site or group that explains bad pairs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Suspect {
    /// Site, direction or group.
    pub kind: SuspectKind,
    /// Name of the site or group.
    pub name: String,
    /// The figure that is bad.
    pub metric: SuspectMetric,
    /// Number of ordered pairs that it is part of and that no surer suspect explains.
    pub pairs: u64,
    /// Median of these pairs: bits/s, or percent lost.
    pub median: f64,
    /// Median of all other pairs.
    pub others_median: f64,
    /// `median` over `others_median`; absent where that is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Probability that chance alone names any such suspect.
    pub p_value: f64,
    /// Indexes in `sites` of the worst of these pairs: the sender and the receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<[u32; 2]>,
    /// What changed runs of a pair have shown to limit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<SuspectProof>,
}

/// What changed runs of a pair of a suspect have shown to limit it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SuspectProof {
    /// Number of the run in the history that has the proof.
    pub run: i64,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// Index in `sites` of the sending site.
    pub from: u32,
    /// Index in `sites` of the receiving site.
    pub to: u32,
    /// How sure it is, of which causes.
    #[serde(flatten)]
    pub proof: Proof,
}

impl Suspect {
    /// The value of the label `proof` of runs that were made because of it: `site_out:s3`.
    pub fn label(&self) -> String {
        let kind = match self.kind {
            SuspectKind::Site => "site",
            SuspectKind::SiteOut => "site_out",
            SuspectKind::SiteIn => "site_in",
            SuspectKind::Group => "group",
        };
        format!("{kind}:{}", self.name)
    }
}

/// Kind of a suspect.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SuspectKind {
    /// A site, in both directions.
    Site,
    /// A site, as a sender.
    SiteOut,
    /// A site, as a receiver.
    SiteIn,
    /// A group of sites.
    Group,
}

/// The figure that is bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SuspectMetric {
    /// The throughput is low.
    Throughput,
    /// The loss is high.
    Loss,
}

/// A pair and its figure: the higher, the worse.
struct RankedPair<'a> {
    cell: &'a MatrixCell,
    value: f64,
    rank: f64,
}

type Candidate = (SuspectKind, String);

/// The suspects of a matrix, the surest first.
///
/// Each candidate has the pairs that it is part of. Their ranks among all pairs are compared with
/// those of the other pairs (Wilcoxon's rank-sum test, one-sided, normal approximation with ties).
/// The candidate with the least p-value becomes a suspect, its pairs are set aside, and the rest is
/// tested again. Bonferroni's correction over all candidates keeps the probability of naming any
/// candidate by chance at [`FALSE_ALARMS`]. A suspect must also be worse by [`LEAST_DIFFERENCE`].
fn suspects(matrix: &MatrixDocument) -> Vec<Suspect> {
    let mut suspects = found(matrix, SuspectMetric::Throughput);
    suspects.extend(found(matrix, SuspectMetric::Loss));
    suspects.sort_by(|a, b| a.p_value.total_cmp(&b.p_value));
    suspects
}

fn found(matrix: &MatrixDocument, metric: SuspectMetric) -> Vec<Suspect> {
    let value = |cell: &MatrixCell| match metric {
        SuspectMetric::Throughput => cell.throughput_bps.map(|bps| -bps),
        SuspectMetric::Loss => cell.loss_percent,
    };
    let cells = matrix.cells.iter();
    let pairs = cells.filter_map(|cell| Some((cell, value(cell)?)));
    let mut pairs: Vec<RankedPair<'_>> =
        pairs.map(|(cell, value)| RankedPair { cell, value, rank: 0.0 }).collect();
    let mut suspects = Vec::new();
    while suspects.len() < MAX_SUSPECTS {
        let ties = rank(&mut pairs);
        let Some((candidate, suspect)) = surest(matrix, &pairs, ties, metric) else {
            break;
        };
        pairs.retain(|pair| !candidates(matrix, pair.cell).contains(&candidate));
        suspects.push(suspect);
    }
    suspects
}

/// Gives each pair its rank; equal ones get their mean rank. Returns the sum of t³ − t over the
/// ties of t pairs each.
fn rank(pairs: &mut [RankedPair<'_>]) -> f64 {
    pairs.sort_by(|a, b| a.value.total_cmp(&b.value));
    let mut ties = 0.0;
    let mut from = 0;
    while from < pairs.len() {
        let equal = |pair: &&RankedPair<'_>| pair.value == pairs[from].value;
        let count = pairs[from..].iter().take_while(equal).count();
        let mean = from as f64 + (count as f64 + 1.0) / 2.0;
        pairs[from..from + count].iter_mut().for_each(|it| it.rank = mean);
        ties += (count as f64).powi(3) - count as f64;
        from += count;
    }
    ties
}

/// The candidates that a pair is part of.
fn candidates(matrix: &MatrixDocument, cell: &MatrixCell) -> Vec<Candidate> {
    let ends = [cell.from, cell.to].map(|index| matrix.sites.get(index as usize));
    let [Some(from), Some(to)] = ends else {
        return Vec::new();
    };
    let mut all = vec![
        (SuspectKind::Site, from.name.clone()),
        (SuspectKind::Site, to.name.clone()),
        (SuspectKind::SiteOut, from.name.clone()),
        (SuspectKind::SiteIn, to.name.clone()),
    ];
    for group in from.groups.iter().chain(&to.groups) {
        let candidate = (SuspectKind::Group, group.clone());
        if !all.contains(&candidate) {
            all.push(candidate);
        }
    }
    all
}

/// The candidate with the least p-value that is a suspect.
fn surest(
    matrix: &MatrixDocument,
    pairs: &[RankedPair<'_>],
    ties: f64,
    metric: SuspectMetric,
) -> Option<(Candidate, Suspect)> {
    let mut sums: BTreeMap<Candidate, (f64, f64)> = BTreeMap::new();
    for pair in pairs {
        for candidate in candidates(matrix, pair.cell) {
            let sum = sums.entry(candidate).or_default();
            *sum = (sum.0 + 1.0, sum.1 + pair.rank);
        }
    }
    let all = pairs.len() as f64;
    let tested = sums.len() as f64;
    let score = |(count, sum): (f64, f64)| {
        let others = all - count;
        let variance = count * others / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
        // Half a rank for continuity.
        let z = (sum - count * (all + 1.0) / 2.0 - 0.5) / variance.sqrt();
        Some(z).filter(|_| others >= 1.0 && variance > 0.0).unwrap_or(0.0)
    };
    let scores = sums.into_iter().map(|(candidate, sum)| (score(sum), candidate));
    let mut scored: Vec<(f64, Candidate)> = scores.collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().find_map(|(z, candidate)| {
        let p_value = (tested * two_sided_normal(z.max(0.0)) / 2.0).min(1.0);
        if p_value > FALSE_ALARMS {
            return None;
        }
        let is_part = |pair: &&RankedPair<'_>| candidates(matrix, pair.cell).contains(&candidate);
        let (own, others): (Vec<_>, Vec<_>) = pairs.iter().partition(|pair| is_part(pair));
        let median_of = |pairs: &[&RankedPair<'_>]| {
            let values: Vec<f64> = pairs.iter().map(|pair| pair.value.abs()).collect();
            median(&values)
        };
        let (own_median, other_median) = (median_of(&own), median_of(&others));
        let is_bad = match metric {
            SuspectMetric::Throughput => own_median <= other_median * (1.0 - LEAST_DIFFERENCE),
            SuspectMetric::Loss => own_median >= other_median + LEAST_LOSS_PERCENT,
        };
        let suspect = Suspect {
            kind: candidate.0,
            name: candidate.1.clone(),
            metric,
            pairs: own.len() as u64,
            median: own_median,
            others_median: other_median,
            ratio: (other_median > 0.0).then(|| own_median / other_median),
            p_value,
            // They are in the order of their values.
            pair: own.last().map(|worst| [worst.cell.from, worst.cell.to]),
            proof: None,
        };
        is_bad.then_some((candidate, suspect))
    })
}

/// Probability of naming a candidate where nothing is wrong, for each metric.
const FALSE_ALARMS: f64 = 0.05;
/// A throughput is bad if it is lower by this share at least.
const LEAST_DIFFERENCE: f64 = 0.2;
/// A loss is bad if it is higher by this at least, percentage points.
const LEAST_LOSS_PERCENT: f64 = 0.1;
/// Most suspects for each metric: more would explain nothing.
const MAX_SUSPECTS: usize = 10;

#[cfg(test)]
mod tests {
    use linerate_core::units::SplitMix64;

    use super::*;

    #[test]
    fn the_last_result_of_each_pair_counts_and_missing_pairs_are_counted() {
        let site = |name| format!("[[site]]\nname = \"{name}\"\nhost = \"192.0.2.1\"\n");
        let sites: String = ["a", "b", "c"].map(site).concat();
        let test = "[[test]]\nname = \"bulk\"\nworkload = { command = \"stream\" }\n";
        let mesh = Mesh::from_toml(&format!("{sites}{test}"), 7).unwrap();
        let result = |from, to, day: u32, rate| MatrixCell {
            from,
            to,
            started_at: format!("2026-11-{day}T00:00:00Z"),
            throughput_bps: Some(rate),
            loss_percent: None,
            rtt_us: Some(100.0),
            cause: Some(Cause::PathRate),
            confidence: None,
        };
        let results = [
            result(0, 1, 24, 2e6),
            result(0, 1, 23, 1e6),
            result(0, 2, 23, 4e6),
            result(0, 2, 25, 8e6),
            result(0, 2, 99, 8e6),
            result(0, 0, 23, 4e6),
        ];
        let matrix = MatrixDocument::new(&mesh, 0, "2026-11-24T02:00:00Z", results);
        assert_eq!(matrix.cells.len(), 2);
        assert_eq!((matrix.missing_pairs, matrix.missing_site.as_deref()), (4, None));
        // Neither the result of tomorrow nor that of no day.
        assert_eq!(matrix.sites[0].median_out_bps, Some(3e6));
        assert_eq!(matrix.sites[0].median_in_bps, None);
        assert_eq!(matrix.causes[0].pairs, 2);
        let slowest = matrix.slowest();
        assert_eq!((matrix.name(slowest[0].from), slowest[0].throughput_bps), ("a", Some(2e6)));
        assert!(matrix.suspects.is_empty());
    }

    /// The fault that a test matrix has.
    #[derive(Clone, Copy, PartialEq)]
    enum Planted {
        None,
        SlowOut,
        SlowSite,
        LossyGroup,
    }

    /// Throughputs with a standard deviation of a fifth; the fault is at site 3 or group `g1`.
    fn matrix(sites: usize, planted: Planted, seed: u64) -> MatrixDocument {
        let mut random = SplitMix64::new(seed);
        let mut noise = || {
            let sum: f64 =
                (0..12).map(|_| random.below(1 << 32) as f64 / f64::from(u32::MAX)).sum();
            sum - 6.0
        };
        let site = |at: usize| MatrixSite {
            name: format!("s{at}"),
            groups: vec![format!("g{}", at / 3)],
            median_out_bps: None,
            median_in_bps: None,
            median_rtt_us: None,
        };
        let mut cells = Vec::new();
        for from in 0..sites {
            for to in (0..sites).filter(|to| *to != from) {
                let is_slow = match planted {
                    Planted::SlowOut => from == 3,
                    Planted::SlowSite => from == 3 || to == 3,
                    Planted::None | Planted::LossyGroup => false,
                };
                let is_lossy = planted == Planted::LossyGroup && (from / 3 == 1 || to / 3 == 1);
                let loss = if is_lossy { 1.0 } else { 0.01 };
                let rate = 1e8 * (0.2 * noise()).exp() * if is_slow { 0.5 } else { 1.0 };
                cells.push(MatrixCell {
                    from: from as u32,
                    to: to as u32,
                    started_at: String::new(),
                    throughput_bps: Some(rate),
                    loss_percent: Some(loss * noise().exp()),
                    rtt_us: None,
                    cause: None,
                    confidence: None,
                });
            }
        }
        MatrixDocument {
            schema: MATRIX_SCHEMA.to_owned(),
            until: String::new(),
            test: "bulk".to_owned(),
            sites: (0..sites).map(site).collect(),
            cells,
            missing_pairs: 0,
            missing_site: None,
            causes: Vec::new(),
            suspects: Vec::new(),
        }
    }

    fn share(sites: usize, planted: Planted, is_right: impl Fn(&[Suspect]) -> bool) -> f64 {
        let trials = if sites > 20 { 40 } else { 400 };
        let right = (0..trials).filter(|seed| is_right(&suspects(&matrix(sites, planted, *seed))));
        right.count() as f64 / trials as f64
    }

    #[test]
    fn planted_faults_are_named_and_chance_is_not() {
        for sites in [10, 50] {
            let named = |kind, name: &'static str| {
                move |found: &[Suspect]| {
                    found.first().is_some_and(|it| it.kind == kind && it.name == name)
                }
            };
            let found = share(sites, Planted::SlowOut, named(SuspectKind::SiteOut, "s3"));
            assert!(found >= 0.95, "{sites} sites, slow out: {found}");
            let found = share(sites, Planted::SlowSite, named(SuspectKind::Site, "s3"));
            assert!(found >= 0.95, "{sites} sites, slow site: {found}");
            let found = share(sites, Planted::LossyGroup, named(SuspectKind::Group, "g1"));
            assert!(found >= 0.95, "{sites} sites, lossy group: {found}");
            let alarms = share(sites, Planted::None, |found| !found.is_empty());
            assert!(alarms <= 0.05, "{sites} sites, nothing planted: {alarms}");
        }
    }

    #[test]
    fn the_worst_pair_of_a_suspect_is_its_own_and_a_proof_stays_when_it_is_named_again() {
        let mut slow = matrix(10, Planted::SlowOut, 1);
        slow.explain();
        let suspect = &mut slow.suspects[0];
        assert_eq!((suspect.label().as_str(), suspect.pair.unwrap()[0]), ("site_out:s3", 3));
        let level = linerate_core::record::ProofLevel::Open;
        let proof = Proof { level, causes: Vec::new(), ruled_out: Vec::new(), doubt: None };
        let started_at = String::new();
        suspect.proof = Some(SuspectProof { run: 7, started_at, from: 3, to: 1, proof });
        slow.explain();
        assert_eq!(slow.suspects[0].proof.as_ref().unwrap().run, 7);
        let json = serde_json::to_value(&slow).unwrap();
        assert_eq!(json["suspects"][0]["proof"]["proof"], "open");
    }

    #[test]
    fn of_few_sites_the_one_in_all_slow_pairs_is_named_without_a_probability() {
        let mut few = matrix(4, Planted::None, 1);
        assert_eq!(few.slow_site(), None);
        few.cells.retain(|cell| cell.from < 3 && cell.to < 3);
        for cell in &mut few.cells {
            let is_slow = cell.from == 1 || cell.to == 1;
            cell.throughput_bps = Some(if is_slow { 1e7 } else { 1e8 });
        }
        assert_eq!((few.slow_site(), suspects(&few).len()), (Some(("s1", 4)), 0));
        few.cells.iter_mut().for_each(|cell| cell.throughput_bps = Some(1e8));
        assert_eq!(few.slow_site(), None);
    }

    #[test]
    fn the_site_of_all_missing_pairs_is_named() {
        assert_eq!(only_site(&[(0, 1), (1, 2), (1, 0)]), Some(1));
        for pairs in [&[][..], &[(0, 1)], &[(0, 1), (1, 0)], &[(0, 1), (2, 3)]] {
            assert_eq!(only_site(pairs), None);
        }
    }

    #[test]
    fn too_few_pairs_explain_nothing() {
        assert!(suspects(&matrix(2, Planted::None, 1)).is_empty());
        let mut none = matrix(4, Planted::None, 1);
        none.cells.clear();
        assert!(suspects(&none).is_empty());
    }
}
